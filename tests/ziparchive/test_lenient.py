"""A lenient reader: what is wrong with single entries is told, the archive still opens."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.fakes import MemorySource
from tests.tapalcatl.odd import Entry, archive, tiles

from comal.errors import InvalidMetadataError
from comal.plan import run
from comal.ziparchive import (
    Directory,
    content_plan,
    directory_plan,
    local_plan,
)


def opened(data: bytes) -> Directory:
    return run(directory_plan(lenient=True), MemorySource.of(data).fetch)


def with_second(entry: Entry) -> bytes:
    entries = tiles()
    entries[1] = entry
    return archive(entries)


BROKEN = {
    "past the end": (Entry(b"a", b"x", csize=1 << 30), "zip-span"),
    "offset past the end": (Entry(b"a", b"x", offset=1 << 30), "zip-span"),
    "short ZIP64 field": (
        Entry(b"a", b"x", csize=0xFFFFFFFF, extra=struct.pack("<HHI", 1, 4, 5)),
        "zip-zip64-field",
    ),
    "ZIP64 beyond any file": (
        Entry(b"a", b"x", csize=0xFFFFFFFF, extra=struct.pack("<HHQ", 1, 8, 2**64 - 1)),
        "zip-zip64-field",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_entries_that_cannot_be_are_marked(name: str) -> None:
    entry, code = BROKEN[name]
    data = with_second(entry)
    directory = opened(data)
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
    inner = archive([Entry(b"in", b"y")], b"")
    data = archive([Entry(b"out", inner), Entry(b"in", b"y", offset=33)])
    directory = opened(data)
    offsets, found = run(local_plan(directory), MemorySource.of(data).fetch)
    assert offsets.tolist() == [33, 33 + 32]
    assert "zip-overlap" in {problem.code for problem in found}


def test_names_that_end_with_the_archive() -> None:
    data = archive([Entry(b"a", b""), Entry(b"b" * 40, b"", local_name=b"b")])
    directory = opened(data)
    _, found = run(local_plan(directory), MemorySource.of(data).fetch)
    assert [problem.code for problem in found] == ["zip-local-mismatch"]
