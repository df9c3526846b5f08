"""Archives for tests: one table of entries drives writer and reader alike."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from tests.fakes import MemorySource

from comal.errors import InvalidMetadataError
from comal.plan import run
from comal.ziparchive import (
    DEFLATE,
    STORE,
    Details,
    Directory,
    ZipWriter,
    directory_plan,
    extracted,
    parse_local,
)
from comal.ziparchive.local import differences


@dataclass(frozen=True)
class Entry:
    name: str
    data: bytes
    deflate: bool = False
    comment: bytes = b""


CASES: dict[str, list[Entry]] = {
    "empty archive": [],
    "one": [Entry("a.txt", b"hello")],
    "empty entry": [Entry("a", b""), Entry("b", b"x")],
    "empty deflated entry": [Entry("a", b"", deflate=True)],
    "folders": [Entry("DATA/s/a.tif", b"1" * 10), Entry("DATA/s/b.tif", b"2" * 20)],
    "deflated": [Entry("t.json", b'{"a": 1}' * 500, deflate=True), Entry("u", b"u")],
    "not ASCII": [Entry("DATA/Łódź.tif", b"x"), Entry("東京/é", b"y", deflate=True)],
    "entry comments": [Entry("a", b"1", comment=b"first"), Entry("b", b"2")],
    "signatures inside": [
        Entry("PK\x01\x02", b"PK\x05\x06" * 9),
        Entry("PK\x03\x04name", b"PK\x01\x02" * 20),
        Entry("c", b"PK\x03\x04" * 20, comment=b"PK\x01\x02" + bytes(50)),
    ],
    "long name": [Entry("d/" * 300 + "x", b"x"), Entry("n" * 65_535, b"y")],
}


def add(writer: ZipWriter, entry: Entry) -> int:
    """Add one entry, stored or deflated; the offset of its payload."""
    packed = zlib.compressobj(6, zlib.DEFLATED, -15)
    deflated = packed.compress(entry.data) + packed.flush()
    details = Details(
        methods=np.array([DEFLATE if entry.deflate else STORE], np.uint16),
        sizes=np.array([len(entry.data)]),
        crcs=np.array([zlib.crc32(entry.data)], np.uint32),
        comments=pa.array([entry.comment]),
    )
    payload = deflated if entry.deflate else entry.data
    return int(writer.add_many([entry.name], [payload], details)[0])


def archive(entries: list[Entry], *, comment: bytes = b"", **named: Any) -> bytes:
    """The bytes of an archive of `entries`."""
    file = io.BytesIO()
    writer = ZipWriter(file, **named)
    for entry in entries:
        add(writer, entry)
    writer.close(comment)
    return file.getvalue()


def opened(data: bytes) -> Directory:
    """The directory of an archive in memory."""
    return run(directory_plan(), MemorySource.of(data).fetch)


def payload_at(data: bytes, directory: Directory, row: int) -> int:
    """Where a payload begins, by a local header that says what the directory says."""
    start = int(directory.header_offset[row])
    header = parse_local(data[start:], "x.zip")
    if wrong := differences(header, directory, row):
        raise InvalidMetadataError("local header", where="x.zip", found="; ".join(wrong))
    return start + header.length


def content(data: bytes, directory: Directory, row: int) -> bytes:
    """The content of an entry, checked against its local header and checksum."""
    offset = payload_at(data, directory, row)
    return extracted(
        data[offset : offset + int(directory.csize[row])],
        method=int(directory.method[row]),
        size=int(directory.size[row]),
        crc=int(directory.crc[row]),
        where=f"row {row}",
    )


def contents(data: bytes) -> dict[str, bytes]:
    """All entries of an archive by name."""
    directory = opened(data)
    names = directory.names.to_pylist()
    return {name: content(data, directory, row) for row, name in enumerate(names)}
