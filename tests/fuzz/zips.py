"""ZIP archives: end records, directories, local headers and payloads."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from typing import TypeVar

from comal.errors import ComalError
from comal.plan import run
from comal.ziparchive import (
    Directory,
    check_plan,
    directory_plan,
    extracted,
    parse_local,
    stored_directory_plan,
)
from comal.ziparchive.directory import entry_blocks
from comal.ziparchive.local import differences
from tests.fakes import MemorySource
from tests.fuzz.base import Target
from tests.tapalcatl import odd
from tests.ziparchive.archives import CASES, archive
from tests.zips import with_zip64_end

T = TypeVar("T")
_MOST = 50
"""Entries that are read of an archive."""


def _archive(data: bytes) -> None:
    source = MemorySource.of(data)
    lenient = run(directory_plan(lenient=True), source.fetch)
    for content in (False, True):
        run(check_plan(lenient, content=content), source.fetch)
    _read(data, lenient)
    strict = _or_none(lambda: run(directory_plan(), source.fetch))
    stored = _or_none(lambda: run(stored_directory_plan(), source.fetch))
    blocks = _or_none(lambda: list(entry_blocks(source.fetch, block=1)))
    if strict is None:
        return
    entries = len(strict)
    assert stored is None or len(stored) == entries
    assert blocks is None or sum(len(block) for block in blocks) == entries
    if not strict.problems:
        _compare(data, strict)


def _or_none(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except ComalError:
        return None


def _read(data: bytes, directory: Directory) -> dict[int, bytes]:
    """Contents of the first entries, as far as they can be read."""
    found = {}
    for row in range(min(_MOST, len(directory))):
        start = int(directory.header_offset[row])
        if directory.bad is not None and directory.bad[row]:
            continue
        try:
            header = parse_local(data[start:], "archive")
            if differences(header, directory, row):
                continue
            offset = start + header.length
            found[row] = extracted(
                data[offset : offset + int(directory.csize[row])],
                method=int(directory.method[row]),
                size=int(directory.size[row]),
                crc=int(directory.crc[row]),
                where="archive",
            )
        except ComalError:
            continue
    return found


def _compare(data: bytes, directory: Directory) -> None:
    """What CPython takes as well must be the same: the fields, and contents that both read."""
    try:
        theirs = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError):
        return
    with theirs:
        infos = theirs.infolist()
        ours = zip(
            directory.header_offset.tolist(),
            directory.csize.tolist(),
            directory.size.tolist(),
            directory.crc.tolist(),
            directory.method.tolist(),
            strict=True,
        )
        assert list(ours) == [
            (info.header_offset, info.compress_size, info.file_size, info.CRC, info.compress_type)
            for info in infos
        ]
        for row, content in _read(data, directory).items():
            try:
                other = theirs.open(infos[row]).read()
            except Exception:  # noqa: BLE001 - it is not a validator: anything comes out of it
                continue
            assert other == content


def _payload(data: bytes) -> None:
    """Method, stated size, then the payload: what is inflated has the stated size."""
    if len(data) < 4:
        return
    size = int.from_bytes(data[1:4], "little")
    content = extracted(data[4:], method=data[0] & 8, size=size, crc=None, where="entry")
    assert len(content) == size


def _archives() -> Iterator[bytes]:
    for name, entries in CASES.items():
        if name != "long name":
            yield archive(entries)
            yield archive(entries[:2], comment=b'{"a": 1}')
    tiles = odd.tiles(deflate=True, comment=b"note", extra=b"UT\5\0\1\1\2\3\4")
    yield odd.archive(tiles)
    yield odd.archive(odd.tiles(descriptor=True), stub=b"stub", gap=b"gap", behind=b"\0")
    huge = io.BytesIO()
    with zipfile.ZipFile(huge, "w") as written, written.open("a", "w", force_zip64=True) as file:
        file.write(b"content")
    yield huge.getvalue()
    yield with_zip64_end(archive(CASES["deflated"]))


def _payloads() -> Iterator[bytes]:
    for entry in odd.tiles(deflate=True):
        yield b"\x08" + len(entry.data).to_bytes(3, "little") + entry.payload
    yield b"\0\3\0\0abc"


TARGETS = {"zip": Target(_archive, _archives), "zip-payload": Target(_payload, _payloads)}
