"""Tortilla files of all layouts: header, footer, nested files and items."""

from __future__ import annotations

from collections.abc import Iterator

from comal import tortilla
from comal.limits import Limits
from comal.plan import run
from comal.tortilla import wire
from tests.attacks.reading import checked, read_tortilla
from tests.fakes import MemorySource
from tests.fuzz.base import Target, as_file, let_through
from tests.tortilla.build import Item, built, deep, nested

_LIMITS = Limits(table_rows=100_000, leaf_bytes=16 << 20)
_ITEMS = [Item("a", b"first leaf"), Item("b", b"II*\0second", "GTiff"), Item("c", b"")]


def _wire(data: bytes) -> None:
    opened = run(wire.open_plan("file", limits=_LIMITS), MemorySource.of(data).fetch)
    span = opened.header.footer
    assert data[span.offset : span.offset + span.size] == opened.footer.data


def _file(data: bytes) -> None:
    """Everything that reads a file, and the check."""
    path = as_file(data, "data.tortilla")
    checked(tortilla, path)
    found = read_tortilla(path, {}, limits=_LIMITS)
    let_through(found)
    frame = tortilla.open(path, limits=_LIMITS)
    repr(frame)
    for row in range(min(len(frame), 20)):
        with found.kept():
            leaf = frame.leaf(row)
            assert len(frame.read_bytes(row)) == leaf.size <= len(data)


def _files() -> Iterator[bytes]:
    for layout in ("v0.5", "v0.1", "v0.0"):
        yield built(_ITEMS, layout=layout)
    yield built(_ITEMS, collection={"id": "x", "tortilla": True}, gap=3, trailing=b"more")
    yield built(_ITEMS, layout="v0.0", json_footer=True)
    yield built([*_ITEMS, Item("in", built(_ITEMS), "TORTILLA")])
    yield nested(("one", _ITEMS), ("two", _ITEMS[:1]))
    yield deep(3)


TARGETS = {"tortilla": Target(_file, _files), "tortilla-wire": Target(_wire, _files)}
