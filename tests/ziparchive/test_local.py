"""Local headers against the directory and against what an index claims."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.fakes import MemorySource
from tests.tapalcatl import odd
from tests.ziparchive.archives import Entry, archive, opened, payload_at

from comal.errors import InvalidMetadataError
from comal.plan import run
from comal.ziparchive import (
    STORE,
    Directory,
    content_plan,
    directory_plan,
    extracted,
    local_before,
    local_plan,
    parse_local,
    prefix_size,
)
from comal.ziparchive.local import local_size

DATA = archive([Entry("DATA/a", b"1111"), Entry("DATA/b", b"22"), Entry("c", b"3" * 50, True)])


@pytest.mark.parametrize(
    ("at", "new", "found"),
    [
        (0, b"PK\3\5", None),
        (6, b"\1\0", "encryption flag"),
        (8, b"\x08\0", "method 8, not 0"),
        (14, b"\0\0\0\0", "checksum 0, not"),
        (18, b"\5", "compressed size 5, not 4"),
        (22, b"\5", "size 5, not 4"),
        (26, b"\5", "name 'DATA/'"),
        (30, b"d", "name 'dATA/a'"),
        (28, b"\xff\xff", None),
    ],
)
def test_a_local_header_that_disagrees(at: int, new: bytes, found: str | None) -> None:
    data = DATA[:at] + new + DATA[at + len(new) :]
    with pytest.raises(InvalidMetadataError) as caught:
        payload_at(data, opened(DATA), 0)
    assert "x.zip" in str(caught.value.where)
    assert found is None or found in str(caught.value.found)


def test_a_header_that_is_cut_short() -> None:
    for size in range(36):
        with pytest.raises(InvalidMetadataError):
            parse_local(DATA[:size], "here")
    assert parse_local(DATA[:36], "here").length == 36
    with pytest.raises(InvalidMetadataError, match="no local header"):
        local_size(DATA[:29], "here")


def test_sizes_in_a_data_descriptor() -> None:
    flagged = bytearray(DATA)
    flagged[6] |= 8
    flagged[14:26] = bytes(12)
    assert payload_at(bytes(flagged), opened(DATA), 0) == 36


@pytest.mark.parametrize("padding", [0, 7, 63])
@pytest.mark.parametrize("name", ["DATA/a", "DATA/é", "PK\x03\x04"])
def test_local_before(padding: int, name: str) -> None:
    extra = struct.pack("<HH", 0xD935, padding) + bytes(padding) if padding else b""
    data = odd.archive(
        [odd.Entry(b"x", b"PK\3\4" * 30), odd.Entry(name.encode(), b"1234", local_extra=extra)]
    )
    offset = data.index(b"1234")
    prefix = data[max(0, offset - prefix_size(len(name.encode()))) : offset]
    header = local_before(prefix, name, 4, where="x.zip")
    assert (header.name.decode(), header.size) == (name, 4)
    assert extracted(b"1234", method=STORE, size=4, crc=header.crc, where="") == b"1234"


CENTRAL = DATA.index(b"PK\1\2")
ENCRYPTED = DATA[:6] + b"\1" + DATA[7:]


@pytest.mark.parametrize(
    ("data", "offset", "name", "size", "message"),
    [
        (DATA, 36, "DATA/b", 4, "name 'DATA/a'"),
        (DATA, 36, "DATA/a", 5, "size 4, not 5"),
        (DATA, 37, "DATA/a", 4, "no local header"),
        (DATA, 35, "DATA/a", 4, "no local header"),
        (DATA, 0, "DATA/a", 4, "no local header"),
        (DATA, CENTRAL, "DATA/a", 4, "no local header"),
        (DATA, int(opened(DATA).payload_offsets[2]), "c", 50, "method 8"),
        (ENCRYPTED, 36, "DATA/a", 4, "encryption"),
    ],
)
def test_a_span_that_is_another(
    data: bytes, offset: int, name: str, size: int, message: str
) -> None:
    prefix = data[max(0, offset - prefix_size(6)) : offset]
    with pytest.raises(InvalidMetadataError) as caught:
        local_before(prefix, name, size, where="x.zip")
    assert message in str(caught.value)
    assert "x.zip" in str(caught.value.where)


# -- a lenient reader: what is wrong with single entries is told, the archive still opens --------


def leniently(data: bytes) -> Directory:
    return run(directory_plan(lenient=True), MemorySource.of(data).fetch)


def with_second(entry: odd.Entry) -> bytes:
    entries = odd.tiles()
    entries[1] = entry
    return odd.archive(entries)


MARKED = {
    "past the end": (odd.Entry(b"a", b"x", csize=1 << 30), "zip-span"),
    "offset past the end": (odd.Entry(b"a", b"x", offset=1 << 30), "zip-span"),
    "short ZIP64 field": (
        odd.Entry(b"a", b"x", csize=0xFFFFFFFF, extra=struct.pack("<HHI", 1, 4, 5)),
        "zip-zip64-field",
    ),
    "ZIP64 beyond any file": (
        odd.Entry(b"a", b"x", csize=0xFFFFFFFF, extra=struct.pack("<HHQ", 1, 8, 2**64 - 1)),
        "zip-zip64-field",
    ),
}


@pytest.mark.parametrize("name", MARKED)
def test_entries_that_cannot_be_are_marked(name: str) -> None:
    entry, code = MARKED[name]
    data = with_second(entry)
    directory = leniently(data)
    assert directory.bad is not None
    assert np.flatnonzero(directory.bad).tolist() == [1]
    assert code in {problem.code for problem in directory.problems}
    with pytest.raises(InvalidMetadataError):
        run(directory_plan(), MemorySource.of(data).fetch)
    source = MemorySource.of(data)
    offsets, _ = run(local_plan(directory), source.fetch)
    assert offsets[1] == -1
    assert (offsets[[0, 2, 3, 4]] > 0).all()
    assert run(content_plan(directory, offsets), source.fetch) == []


def test_headers_inside_one_another() -> None:
    inner = odd.archive([odd.Entry(b"in", b"y")], b"")
    data = odd.archive([odd.Entry(b"out", inner), odd.Entry(b"in", b"y", offset=33)])
    directory = leniently(data)
    offsets, found = run(local_plan(directory), MemorySource.of(data).fetch)
    assert offsets.tolist() == [33, 33 + 32]
    assert "zip-overlap" in {problem.code for problem in found}


def test_names_that_end_with_the_archive() -> None:
    data = odd.archive([odd.Entry(b"a", b""), odd.Entry(b"b" * 40, b"", local_name=b"b")])
    directory = leniently(data)
    _, found = run(local_plan(directory), MemorySource.of(data).fetch)
    assert [problem.code for problem in found] == ["zip-local-mismatch"]
