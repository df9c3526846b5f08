"""What the checker finds, and that it finds any changed byte that matters."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from tests.fakes import MemorySource
from tests.tapalcatl import odd
from tests.ziparchive.archives import Entry, add, archive, contents, opened

from comal.errors import ComalError, Problem
from comal.plan import run
from comal.ziparchive import ZipWriter, check_plan, directory_plan, wire

PLAIN = [Entry("DATA/a", b"1111"), Entry("DATA/b", b"22" * 300), Entry("z", b"3" * 50, True)]
DATA = archive(PLAIN)
FIRST = DATA.index(b"PK\1\2")
SECOND = DATA.index(b"PK\1\2", FIRST + 1)
THIRD = DATA.index(b"PK\1\2", SECOND + 1)


def found(data: bytes, *, content: bool = True, stored_only: bool = False) -> list[Problem]:
    plan = check_plan(opened(data), content=content, stored_only=stored_only)
    return run(plan, MemorySource.of(data).fetch)


def codes(data: bytes, *, stored_only: bool = False) -> list[str]:
    return [problem.code for problem in found(data, stored_only=stored_only)]


def changed(offset: int, new: bytes, data: bytes = DATA) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


def both(local: int, central: int, new: bytes) -> bytes:
    """The same field changed in the first local header and in its directory entry."""
    return changed(FIRST + central, new, changed(local, new))


HIDDEN = archive([Entry("hidden", b"secret")])
CASES: dict[str, tuple[bytes, list[str]]] = {
    "sound": (DATA, []),
    "encrypted": (both(6, 8, b"\1"), ["zip-encrypted"]),
    "method": (both(8, 10, b"\x0c"), ["zip-method"]),
    "two sizes of a stored entry": (both(22, 24, b"\5"), ["zip-size", "zip-content"]),
    "unsafe name": (DATA.replace(b"DATA/a", b"../../"), ["zip-name"]),
    "backslash": (DATA.replace(b"DATA/a", b"DATA\\a"), ["zip-name"]),
    "duplicate name": (
        DATA.replace(b"DATA/b", b"DATA/a"),
        ["zip-duplicate-name", "zip-duplicate-name"],
    ),
    "symbolic link": (changed(FIRST + 38, struct.pack("<I", 0o120777 << 16)), ["zip-symlink"]),
    "local name": (changed(30, b"d"), ["zip-local-mismatch"]),
    "local checksum": (changed(14, b"xxxx"), ["zip-local-mismatch"]),
    "local signature": (changed(0, b"xx"), ["zip-local-header"]),
    "local extra beyond the archive": (
        changed(28, b"\xff\xff"),
        ["zip-span", "zip-overlap", "zip-overlap"],
    ),
    "local extra over the payload": (changed(28, b"\1\0"), ["zip-overlap", "zip-crc"]),
    "payload": (changed(36, b"2"), ["zip-crc"]),
    "deflated payload": (changed(FIRST - 2, b"\xff\xff"), ["zip-content"]),
    "stub": (b"stub" + DATA, ["zip-prefix"]),
    "trailing": (DATA + b"x", ["zip-trailing-bytes"]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_fault_by_its_code(case: str) -> None:
    data, expected = CASES[case]
    assert codes(data) == expected


def test_compressed_entries_where_only_stored_ones_belong() -> None:
    data = archive([*PLAIN, Entry("folder/", b"")])
    assert codes(data) == []
    assert codes(data, stored_only=True) == ["zip-compressed", "zip-folder-entry"]


def test_shared_local_header() -> None:
    data = archive([Entry("a", b"1"), Entry("b", b"1")])
    start = data.index(b"PK\1\2")
    data = changed(start + 47 + 42, bytes(4), data)
    assert codes(data)[:2] == ["zip-shared-header", "zip-shared-header"]
    assert {"zip-local-mismatch", "zip-undeclared-entry"} <= set(codes(data))


@pytest.mark.parametrize("content", [False, True])
def test_an_entry_that_the_directory_does_not_list(content: bool) -> None:
    file = io.BytesIO(HIDDEN[: HIDDEN.index(b"PK\1\2")])
    file.seek(0, io.SEEK_END)
    writer = ZipWriter(file, base_offset=file.tell())
    writer.add("a", b"1")
    writer.close()
    (problem,) = found(file.getvalue(), content=content)
    assert problem.code == "zip-undeclared-entry"
    assert "'hidden'" in problem.message
    assert problem.place == "bytes 0+42"


def test_a_hole() -> None:
    file = io.BytesIO(bytes(70_000))
    file.seek(70_000)
    writer = ZipWriter(file, base_offset=70_000)
    writer.add("b", b"1")
    writer.close()
    (problem,) = found(file.getvalue())
    assert (problem.code, problem.severity) == ("zip-hole", "warning")
    assert problem.place == "bytes 0+70000"


class Forward(io.BytesIO):
    """A target that cannot seek, so that zipfile writes data descriptors."""

    def seekable(self) -> bool:
        return False

    def seek(self, *args: int) -> int:
        raise io.UnsupportedOperation

    def tell(self) -> int:
        raise io.UnsupportedOperation


def test_data_descriptors_of_zipfile_are_no_fault() -> None:
    target = Forward()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as other:
        other.writestr("a", b"1" * 1000)
        other.writestr(zipfile.ZipInfo("b"), b"22")
        with other.open("c", "w", force_zip64=True) as member:
            member.write(b"333")
    data = target.getvalue()
    assert contents(data) == {"a": b"1" * 1000, "b": b"22", "c": b"333"}
    assert found(data) == []


def test_a_bomb_is_stopped() -> None:
    bomb = archive([Entry("bomb", bytes(50_000_000), True), Entry("b", b"")])
    start = bomb.index(b"PK\1\2")
    lying = changed(start + 24, struct.pack("<I", 1000), changed(22, struct.pack("<I", 1000), bomb))
    (problem,) = found(lying)
    assert problem.code == "zip-content"
    assert "more than 1000 bytes" in problem.message


@pytest.mark.parametrize(
    ("payload", "message"),
    [(b"\x03\x00tail", "bytes follow"), (b"\x01\x05\x00\xfa\xff12", "cut short")],
)
def test_compressed_streams_that_end_elsewhere(payload: bytes, message: str) -> None:
    size = 2 if message == "cut short" else 0
    entry = odd.Entry(b"a", payload, method=wire.DEFLATE, size=size, crc=0)
    (problem,) = found(odd.archive([entry], b""))
    assert problem.code == "zip-content"
    assert message in problem.message


def test_large_members_are_streamed() -> None:
    rng = np.random.default_rng(0)
    bodies = [rng.bytes(20_000_000), b"x", bytes(20_000_000), rng.bytes(9_000_000)]
    file = io.BytesIO()
    writer = ZipWriter(file)
    for row, body in enumerate(bodies):
        add(writer, Entry(str(row), body, deflate=row == 2))
    writer.close()
    source = MemorySource.of(file.getvalue())
    directory = run(directory_plan(), source.fetch)
    source.log.clear()
    assert run(check_plan(directory, content=True), source.fetch) == []
    assert max(item.size for wanted in source.log for item in wanted) <= 8 << 20  # type: ignore[union-attr]
    broken = bytearray(file.getvalue())
    broken[15_000_000] ^= 1
    (problem,) = found(bytes(broken))
    assert (problem.code, problem.place) == ("zip-crc", "entry 0 ('0')")


def test_requests_are_few() -> None:
    file = io.BytesIO()
    writer = ZipWriter(file)
    names = pa.array([str(row) for row in range(20_000)])
    writer.add_many(names, pa.array([b"12345678"] * 20_000))
    writer.close()
    source = MemorySource.of(file.getvalue())
    directory = run(directory_plan(), source.fetch)
    source.log.clear()
    assert run(check_plan(directory, content=True), source.fetch) == []
    assert source.requests == 2


def test_any_single_changed_byte_is_found_or_harmless() -> None:
    """Right bytes or an error of ours when reading; the checker names what readers might miss."""
    expected = {entry.name: entry.data for entry in PLAIN}
    # Fields that no reader uses: versions, times, attributes, and numbers of disks.
    unused = {4, 5, 10, 11, 12, 13}
    unused_central = {4, 5, 6, 7, 12, 13, 14, 15, 34, 35, 36, 37, 38, 39, 40, 41}
    starts = [0, 40, DATA.index(b"PK\3\4", 41)]
    harmless = {start + field for start in starts for field in unused}
    harmless |= {start + field for start in (FIRST, SECOND, THIRD) for field in unused_central}
    harmless.add(FIRST - 1)  # bits behind the end of a compressed stream
    for offset in range(len(DATA)):
        for flip in (0x01, 0x80, 0xFF):
            mutant = changed(offset, bytes([DATA[offset] ^ flip]))
            try:
                got = contents(mutant)
                seen = codes(mutant)
            except ComalError:
                continue
            same = {name: got[name] == expected[name] for name in got.keys() & expected.keys()}
            assert all(same.values()), (offset, flip)
            assert seen or (got == expected and offset in harmless), (offset, flip)
