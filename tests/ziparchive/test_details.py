"""Entries with methods, times, extra fields and comments of their own, and archives in batches."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import MemorySource

from comal.errors import InvalidInputError
from comal.plan import run
from comal.ziparchive import Details, ZipWriter, packed_archives, stored_directory_plan

Row = tuple[str, bytes, bool, bytes, bytes, tuple[int, int]]


def columns(rows: list[Row]) -> tuple[pa.Array, list[bytes], Details]:
    names = pa.array([row[0] for row in rows], pa.string())
    payloads = []
    for _, data, deflated, _, _, _ in rows:
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        payloads.append(packer.compress(data) + packer.flush() if deflated else data)
    details = Details(
        methods=np.array([8 if row[2] else 0 for row in rows], np.uint16),
        sizes=np.array([len(row[1]) for row in rows], np.int64),
        crcs=np.array([zlib.crc32(row[1]) for row in rows], np.uint32),
        extras=pa.array([row[3] for row in rows], pa.binary()),
        comments=pa.array([row[4] for row in rows], pa.binary()),
        stamps=np.array([row[5] for row in rows], np.uint16).reshape(-1, 2),
    )
    return names, payloads, details


def written(rows: list[Row], comment: bytes = b"", *, listed: bool = True) -> bytes:
    file = io.BytesIO()
    writer = ZipWriter(file)
    names, payloads, details = columns(rows)
    writer.add_many(names, payloads if listed else pa.array(payloads, pa.binary()), details)
    writer.close(comment)
    return file.getvalue()


ROWS: list[Row] = [
    ("0/0/0.png", b"stored", False, b"", b"", (0, 0x21)),
    ("1/0/0.json", b"deflated " * 40, True, struct.pack("<HHBi", 0x5455, 5, 1, 7), b"", (2, 0x22)),
    ("1/0/1.png", b"", False, b"", b'[{"X-A":"b"}]', (0xBF7D, 0xFF9F)),
]


def test_details_reach_local_headers_and_directory() -> None:
    data = written(ROWS, b"about")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert archive.comment == b"about"
        infos = archive.infolist()
    assert [info.comment for info in infos] == [b"", b"", b'[{"X-A":"b"}]']
    assert [info.extra for info in infos] == [row[3] for row in ROWS]
    assert infos[1].compress_type == zipfile.ZIP_DEFLATED
    assert infos[1].date_time == (1980, 1, 2, 0, 0, 4)
    assert infos[2].date_time == (2107, 12, 31, 23, 59, 58)
    local = data[infos[1].header_offset :]
    assert struct.unpack_from("<H", local, 8) == (8,)
    assert struct.unpack_from("<HH", local, 10) == (2, 0x22)
    assert local[30 + len("1/0/0.json") :].startswith(ROWS[1][3])


def test_compressed_payloads_need_sizes() -> None:
    with pytest.raises(InvalidInputError, match="size and checksum"):
        Details(methods=np.array([8], np.uint16))


def test_details_of_another_length_are_refused() -> None:
    writer = ZipWriter(io.BytesIO())
    with pytest.raises(InvalidInputError, match="differ in length"):
        writer.add_many(pa.array(["a"]), [b"x"], Details(crcs=np.zeros(2, np.uint32)))
    with pytest.raises(InvalidInputError, match="differ in length"):
        writer.add_many(pa.array(["a"]), [])


ENTRY = st.tuples(
    st.binary(max_size=40),
    st.booleans(),
    st.sampled_from([b"", struct.pack("<HHBi", 0x5455, 5, 1, 1)]),
    st.binary(max_size=8),
    st.tuples(st.integers(0, 0xBF7D), st.integers(0x21, 0xFF9F)),
)


@given(st.lists(st.lists(ENTRY, min_size=1, max_size=5), min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_a_batch_is_what_the_writer_writes(
    archives: list[list[tuple[bytes, bool, bytes, bytes, tuple[int, int]]]],
) -> None:
    groups: list[list[Row]] = [
        [(f"{number}/{row}/ü", *entry) for row, entry in enumerate(archive)]
        for number, archive in enumerate(archives)
    ]
    bounds = np.cumsum([0, *map(len, groups)]).tolist()
    comments = [f"archive {number}".encode() for number in range(len(groups))]
    names, payloads, details = columns([row for group in groups for row in group])
    batch = packed_archives(names, payloads, bounds, comments, details)
    found = [b"".join(pieces) for pieces in batch]
    for listed in (True, False):
        assert found == [
            written(group, comment, listed=listed)
            for group, comment in zip(groups, comments, strict=True)
        ]


@pytest.mark.parametrize("dropped", [[], [0], [1], [0, 1, 2]])
def test_kept_headers_are_copied_as_they_are(dropped: list[int]) -> None:
    old = written(ROWS, b"old")
    stored = run(stored_directory_plan(), MemorySource.of(old).fetch)
    keep = np.ones(len(ROWS), np.bool_)
    keep[dropped] = False
    file = io.BytesIO(old)
    file.seek(0, io.SEEK_END)
    writer = ZipWriter(file, base_offset=len(old))
    writer.add("new", b"new one")
    writer.close(b"new", kept=stored.kept(keep), kept_count=int(keep.sum()))
    data = file.getvalue()
    assert data.startswith(old)
    names = [row[0] for at, row in enumerate(ROWS) if at not in dropped]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.namelist() == [*names, "new"]
        assert archive.testzip() is None
        assert archive.comment == b"new"


@pytest.mark.parametrize("count", [1, 8, 9, 40])
def test_rows_are_found_by_name(count: int) -> None:
    # Each name stands inside of others, and as a comment.
    names = ["1", *(f"1/{row}" for row in range(30)), *(f"x/1/{row}" for row in range(30)), "1/3"]
    rows: list[Row] = [(name, b"1/2", False, b"", b"1/3", (0, 0x21)) for name in names]
    stored = run(stored_directory_plan(), MemorySource.of(doubled(rows)).fetch)
    wanted = names[-1:] + names[:count]
    for one in (wanted, pa.array(wanted)):
        assert stored.named(one).to_pylist() == [name in wanted for name in names]


def doubled(rows: list[Row]) -> bytes:
    """An archive with names that stand twice, which the writer refuses."""
    first = written(rows[:-1])
    stored = run(stored_directory_plan(), MemorySource.of(first).fetch)
    file = io.BytesIO(first)
    file.seek(0, io.SEEK_END)
    writer = ZipWriter(file, base_offset=len(first))
    writer.add_many(*columns(rows[-1:]))
    writer.close(kept=stored.data, kept_count=len(stored))
    return file.getvalue()
