"""What the writer writes, as the standard library, unzip and our own reader see it."""

from __future__ import annotations

import io
import pickle
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import MemorySource
from tests.ziparchive.archives import CASES, Entry, archive, contents, opened

from comal.errors import InvalidInputError, StorageError
from comal.plan import run
from comal.ziparchive import ZipWriter, check_plan

needs_unzip = pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")


COLUMNS = {
    "crc": "CRC",
    "size": "file_size",
    "csize": "compress_size",
    "method": "compress_type",
    "flags": "flag_bits",
    "header_offset": "header_offset",
    "external": "external_attr",
}
"""What zipfile calls the columns of a directory."""
names = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30
)
entry_lists = st.lists(
    st.builds(Entry, names, st.binary(max_size=300), st.booleans(), st.binary(max_size=20)),
    max_size=20,
    unique_by=lambda entry: entry.name,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(CASES.values())) | entry_lists, st.binary(max_size=60))
def test_entries_come_back(entries: list[Entry], comment: bytes) -> None:
    """By our reader and by zipfile, with all that the directory says of them."""
    comment = comment.replace(b"PK", b"pk")
    data = archive(entries, comment=comment)
    assert archive(entries, comment=comment) == data
    expected = {entry.name: entry.data for entry in entries}
    assert contents(data) == expected
    directory = opened(data)
    with zipfile.ZipFile(io.BytesIO(data)) as other:
        assert other.testzip() is None
        assert {name: other.read(name) for name in other.namelist()} == expected
        assert other.comment == directory.comment == comment
        infos = other.infolist()
        assert directory.start == other.start_dir
    for column, attribute in COLUMNS.items():
        values = getattr(directory, column).tolist()
        assert values == [getattr(info, attribute) for info in infos], column
    assert directory.names.to_pylist() == [entry.name for entry in entries]
    comments = [entry.comment for entry in entries]
    assert [info.comment for info in infos] == comments
    assert (directory.comments is None) == (not any(comments))
    assert directory.comments is None or directory.comments.to_pylist() == comments
    assert (directory.total, directory.shift, directory.problems) == (len(data), 0, ())
    assert pickle.loads(pickle.dumps(directory)).names.equals(directory.names)
    found = run(check_plan(directory, content=True), MemorySource.of(data).fetch)
    assert {problem.code for problem in found} <= {"zip-name"}


@needs_unzip
def test_unzip_reads_them(tmp_path: Path) -> None:
    # unzip warns of an empty archive, cuts long names and hides control characters.
    for case in sorted(CASES.keys() - {"empty archive", "long name", "signatures inside"}):
        path = tmp_path / "a.zip"
        path.write_bytes(archive(CASES[case]))
        done = subprocess.run(["unzip", "-tqq", path], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, b""), case


@pytest.mark.parametrize(
    ("entry", "version", "flags"),
    [
        (Entry("DATA/x", b"abc"), 10, 0),
        (Entry("a", b"a", deflate=True), 20, 0),
        (Entry("é", b"a"), 10, 0x0800),
    ],
)
def test_profile_of_an_entry(entry: Entry, version: int, flags: int) -> None:
    data = archive([entry])
    (info,) = zipfile.ZipFile(io.BytesIO(data)).infolist()
    assert info.date_time == (1980, 1, 1, 0, 0, 0)
    assert info.external_attr == 0x81A40000
    assert (info.create_version, info.create_system) == (0x3F, 3)
    assert (info.extract_version, info.flag_bits, info.extra) == (version, flags, b"")
    assert struct.unpack_from("<HH", data, 4) == (version, flags)
    # Header, name, payload; then nothing but the directory and the end record.
    name = len(entry.name.encode())
    assert len(data) == 30 + name + info.compress_size + 46 + name + 22
    timed = archive([entry], dos_date=(44 << 9) | (2 << 5) | 29, dos_time=(13 << 11) | 30)
    (info,) = zipfile.ZipFile(io.BytesIO(timed)).infolist()
    assert info.date_time == (2024, 2, 29, 13, 0, 60)


def test_reserved_entry_is_filled_last() -> None:
    file = io.BytesIO()
    writer = ZipWriter(file)
    header = writer.reserve("TACO_HEADER", 116)
    assert (header.offset, header.size) == (41, 116)
    writer.add("a", b"1")
    writer.fill(header, bytes(range(116)))
    writer.close()
    data = file.getvalue()
    assert data[41:157] == bytes(range(116))
    with zipfile.ZipFile(file) as other:
        assert other.testzip() is None
    assert contents(data) == {"TACO_HEADER": bytes(range(116)), "a": b"1"}


def test_reserved_entry_must_be_filled() -> None:
    writer = ZipWriter(io.BytesIO())
    reserved = writer.reserve("h", 4)
    with pytest.raises(InvalidInputError, match="payload does not fit"):
        writer.fill(reserved, b"123")
    with pytest.raises(InvalidInputError, match="never filled"):
        writer.close()


@pytest.mark.parametrize("size", [0, 1, 100_000, 9_000_000])
def test_stream_of_the_stated_size(size: int) -> None:
    body = np.random.default_rng(size).bytes(size)
    file = io.BytesIO()
    writer = ZipWriter(file)
    span = writer.add_stream("s", io.BytesIO(body), size, where="s")
    writer.add("t", b"t")
    writer.close()
    assert file.getvalue()[span.offset : span.offset + span.size] == body
    assert zipfile.ZipFile(file).read("s") == body


@pytest.mark.parametrize("held", [0, 9, 11, 5_000_000])
def test_stream_of_another_size_is_refused(held: int) -> None:
    with pytest.raises(InvalidInputError, match="not as long") as caught:
        ZipWriter(io.BytesIO()).add_stream("s", io.BytesIO(bytes(held)), 10, where="the/source")
    assert caught.value.where == "the/source"


def chunked(values: Sequence[object], kind: pa.DataType, data: st.DataObject) -> Any:
    """Values as an Arrow column: as it is, as a part of another, or in chunks."""
    column = pa.array([*values, *values], kind).slice(0, len(values))
    at = data.draw(st.integers(0, len(values)))
    whole = data.draw(st.booleans())
    return column if whole else pa.chunked_array([column[:at], column[at:]], kind)


LARGE = [b"s", b"l" * 9_000_000, b"m" * 5_000_000, b"t"]
BODIES = np.random.default_rng(0).bytes(90_000)
PAYLOADS = st.lists(st.integers(0, 90_000).map(lambda size: BODIES[:size]), max_size=40)


@settings(max_examples=40, deadline=None)
@given(st.just(LARGE) | PAYLOADS, st.data())
def test_add_many_is_add_many_times(payloads: list[bytes], data: st.DataObject) -> None:
    names = [f"DATA/é{row}" if row % 7 == 0 else f"DATA/{row}" for row in range(len(payloads))]
    one, many = io.BytesIO(), io.BytesIO()
    writer = ZipWriter(one)
    spans = [writer.add(name, payload) for name, payload in zip(names, payloads, strict=True)]
    writer.close()
    writer = ZipWriter(many)
    kind = data.draw(st.sampled_from([pa.binary(), pa.large_binary(), None]))
    column = payloads if kind is None else chunked(payloads, kind, data)
    listed = data.draw(st.booleans())
    offsets = writer.add_many(names if listed else chunked(names, pa.string(), data), column)
    end = writer.position
    writer.close()
    content = many.getvalue()
    assert content == one.getvalue()
    assert content[end:].startswith(b"PK\1\2" if names else b"PK\5\6")
    assert offsets.tolist() == [span.offset for span in spans]
    assert [content[span.offset :][: span.size] for span in spans] == payloads


@pytest.mark.parametrize("name", ["", "a\0b", "n" * 65_536, "\ud800"])
def test_names_that_cannot_be_written(name: str) -> None:
    with pytest.raises(InvalidInputError, match="name"):
        ZipWriter(io.BytesIO()).add(name, b"")
    column = pa.array(["a", None if name == "\ud800" else name])
    with pytest.raises(InvalidInputError, match="name"):
        ZipWriter(io.BytesIO()).add_many(column, pa.array([b"", b""]))


def test_null_payloads_and_lengths() -> None:
    writer = ZipWriter(io.BytesIO())
    with pytest.raises(InvalidInputError, match="nulls"):
        writer.add_many(pa.array(["a"]), pa.array([None], pa.binary()))
    with pytest.raises(InvalidInputError, match="differ in length"):
        writer.add_many(pa.array(["a"]), pa.array([b"", b""]))


def test_duplicate_names_are_refused_at_the_end() -> None:
    writer = ZipWriter(io.BytesIO())
    writer.add_many(pa.array(["a", "b"]), pa.array([b"", b""]))
    writer.add("b", b"")
    with pytest.raises(InvalidInputError, match="appear twice") as caught:
        writer.close()
    assert caught.value.found == "'b'"


def test_other_refusals() -> None:
    writer = ZipWriter(io.BytesIO())
    with pytest.raises(InvalidInputError, match="comment"):
        writer.close(bytes(65_536))
    writer.close()
    with pytest.raises(InvalidInputError, match="already closed"):
        writer.close()


class FullDisk(io.RawIOBase):
    """Takes a few bytes at a time, and then no more."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        taken = bytes(memoryview(data))[: min(self.room, 7)]  # type: ignore[arg-type]
        self.data += taken
        self.room -= len(taken)
        return len(taken)


def write_one(disk: FullDisk) -> None:
    writer = ZipWriter(disk)  # type: ignore[arg-type]
    writer.add("a", b"123")
    writer.close()


def test_short_writes_and_a_full_disk() -> None:
    whole = archive([Entry("a", b"123")])
    disk = FullDisk(1 << 20)
    write_one(disk)
    assert disk.data == whole
    for room in range(len(whole)):
        with pytest.raises(StorageError, match="target cannot be written"):
            write_one(FullDisk(room))


def test_a_target_that_cannot_seek() -> None:
    writer = ZipWriter(FullDisk(1 << 20))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="seek"):
        writer.reserve("a", 1)
    with pytest.raises(InvalidInputError, match="seek"):
        writer.add_stream("a", io.BytesIO(b""), 0, where="a")
