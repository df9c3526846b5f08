"""Access to the files of a set, the tables nested in them, and the bytes of items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError
from comal.lazy import pc
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.parallel import ByteCache, side_by_side
from comal.plan import ByteRange, Piece, Plan, run
from comal.samples.payloads import Spans
from comal.samples.tables import depth_first
from comal.storage import RangeFile, Source
from comal.table.columns import (
    numbers_at,
    numbers_column,
    one_array,
    rows_equal,
    texts_column,
)
from comal.tortilla import spec
from comal.tortilla.items import is_json, items_of, joined, stored_table
from comal.tortilla.wire import Header, Opened, children_plan

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_CACHE = 64 * MIB
"""Size of the cache of opened nested files, in bytes."""
_AT_ONCE = 1_024
"""Nested files that are opened in one round trip; bounds the memory while they are decoded."""
_BLOCK = 4 * MIB


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a set, or a file that is a set of its own."""

    source: Source
    header: Header
    size: int
    collection: bytes | None = None
    json_footer: bool = False

    @classmethod
    def of(cls, source: Source, opened: Opened) -> Part:
        """The part that `opened` was read from."""
        return cls(source, opened.header, opened.size, opened.collection, is_json(opened))


class Address(NamedTuple):
    """The part, offset and size of an item."""

    part: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Nested:
    """An opened nested file: its items, and its bytes if it was fetched whole."""

    items: Any
    kept: tuple[Piece, ...] = ()

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        return int(self.items.nbytes) + sum(len(piece.data) for piece in self.kept)


class Home:
    """The files behind a frame and all frames made from it.

    It is safe to use from several threads and after a fork; its pickle leaves out what can be read
    again.
    """

    def __init__(
        self, parts: Sequence[Part], limits: Limits = DEFAULT_LIMITS, *, typed: bool = True
    ) -> None:
        self.parts = tuple(parts)
        self.limits = limits
        self.typed = typed
        self.sources = [part.source for part in self.parts]
        self._remote = not all(source.location.is_local for source in self.sources)
        self._cache: ByteCache[Address, Nested] = ByteCache(_CACHE)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Home, typed=self.typed), (self.parts, self.limits)

    def spans(self, table: Any, rows: Ints) -> Spans:
        """The spans of some rows."""
        offsets, sizes = (numbers_at(table[name], rows) for name in (spec.OFFSET, spec.LENGTH))
        has_parts = spec.PART in table.column_names
        parts = numbers_at(table[spec.PART], rows) if has_parts else np.zeros(len(rows), np.int64)
        return Spans(self.sources, parts.astype(np.int64, copy=False), offsets, sizes)

    def addresses(self, table: Any, rows: Ints) -> list[Address]:
        """As `spans`, one by one."""
        spans = self.spans(table, rows)
        columns = (spans.source, spans.offsets, spans.lengths)
        return list(map(Address, *(column.tolist() for column in columns)))

    def nested(self, addresses: Sequence[Address], depth: int) -> list[Nested]:
        """Open nested files; those of one object come in one round trip.

        Addresses may be repeated; `depth` is the number of files around them.
        """
        if addresses:
            # An item is inside the data of its file, after the header, so each nested file is
            # smaller than the one around it: no file can contain itself, but nesting can be deep.
            self.limits.check("tortilla_depth", depth, self._name(addresses[0]))
        cached = {one: self._cache.get(one) for one in addresses}
        found = {one: nested for one, nested in cached.items() if nested is not None}
        missing = [one for one in cached if one not in found]
        rows = 0
        for start in range(0, len(missing), _AT_ONCE):
            batch: dict[int, list[Address]] = {}
            for one in missing[start : start + _AT_ONCE]:
                batch.setdefault(one.part, []).append(one)
            jobs = [partial(self._opened, part, some) for part, some in batch.items()]
            opened = chain(*side_by_side(jobs, remote=self._remote))
            for address, child in zip(chain(*batch.values()), opened, strict=True):
                if isinstance(child, ComalError):
                    raise child
                found[address] = self._decoded(address, child)
                rows += found[address].items.num_rows
            self.limits.check("table_rows", rows, self.parts[0].source.href)
        return [found[address] for address in addresses]

    def _opened(self, part: int, addresses: Sequence[Address]) -> list[Opened | ComalError]:
        spans = [ByteRange(one.offset, one.size) for one in addresses]
        names = [self._name(one) for one in addresses]
        plan: Plan[list[Opened | ComalError]] = children_plan(spans, names, limits=self.limits)
        return run(plan, self.parts[part].source.fetch)

    def _decoded(self, address: Address, opened: Opened) -> Nested:
        where = self._name(address)
        stored = stored_table(opened, where, self.limits)
        items = items_of(stored, opened, where, typed=self.typed)
        nested = Nested(items, opened.kept)
        self._cache.put(address, nested, nested.nbytes)
        return nested

    def _name(self, address: Address) -> str:
        """The name of a nested file in messages."""
        href = self.parts[address.part].source.href
        return f"{href} (bytes {address.offset}+{address.size})"

    # -- bytes -------------------------------------------------------------------------------------

    def read(self, spans: Spans, kept: Sequence[Piece] = ()) -> list[bytes]:
        """The bytes of items, in order; one round trip. `kept` are bytes that were read before."""
        found = [b""] * len(spans)
        if not found:
            return found
        largest = int(spans.lengths.argmax())
        if spans.lengths[largest] > self.limits.leaf_bytes:
            self.limits.check("leaf_bytes", int(spans.lengths[largest]), spans.place(largest))
        missing = np.ones(len(spans), bool)
        ends = spans.offsets + spans.lengths
        for piece in kept:
            held = missing & (piece.offset <= spans.offsets) & (ends <= piece.end)
            missing &= ~held
            for row in np.flatnonzero(held).tolist():
                found[row] = piece.slice(int(spans.offsets[row]), int(spans.lengths[row]))
        rows = np.flatnonzero(missing)
        owner = spans.source[rows]
        groups = [(part, rows[owner == part]) for part in np.unique(owner).tolist()]
        jobs = [
            partial(self.parts[part].source.fetch_spans, spans.offsets[mine], spans.lengths[mine])
            for part, mine in groups
        ]
        answers: list[list[bytes]] = side_by_side(jobs, remote=self._remote)
        if len(groups) == 1 and len(answers[0]) == len(found):
            return answers[0]
        for (_, mine), answer in zip(groups, answers, strict=True):
            for row, data in zip(mine.tolist(), answer, strict=True):
                found[row] = data
        return found


@dataclass(frozen=True, slots=True)
class Leaf:
    """The bytes of one item."""

    source: Source
    offset: int
    """Offset of the first byte in the file."""
    size: int
    format: str = ""
    """Their format by the footer."""

    def file(self) -> RangeFile:
        """A seekable binary file over the bytes."""
        return self.source.file("", self.offset, self.size)

    def blocks(self) -> Iterator[bytes]:
        """The bytes in blocks of 4 MiB."""
        with self.file() as file:
            while block := file.read(_BLOCK):
                yield block


# -- all items at any depth, level by level --------------------------------------------------------


def nested_rows(table: Any) -> Ints:
    """Numbers of the rows that are nested files."""
    return np.flatnonzero(rows_equal(table[spec.FILE_FORMAT], spec.TORTILLA))


@dataclass(frozen=True, slots=True)
class Level:
    """Items of one depth: those of a frame, or of all files nested in the level above."""

    table: Any
    """Rows grouped by parent, in the order of the parents."""
    parents: Ints
    """Row of each row's parent in the level above; at the top the row itself."""
    folders: Mask
    """Which rows have a level below."""

    @classmethod
    def of(cls, table: Any, parents: Ints | None = None) -> Level:
        """A level of these rows."""
        known = np.arange(table.num_rows) if parents is None else parents
        return cls(table, known, rows_equal(table[spec.FILE_FORMAT], spec.TORTILLA))

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def ids(self) -> Any:
        """Ids as they are stored; a null is empty."""
        return one_array(pc.coalesce(self.table[spec.ID], texts_column([""])[0]))


def levels_below(
    top: Level, depth: int, home: Home, columns: Sequence[str] | None = None
) -> Iterator[Level]:
    """The levels below some rows that are nested in `depth` files.

    The rows of a file are repeated for each row that refers to it, so files that share bytes can
    give many more rows than they store. Optional columns are limited to `columns`; None keeps all.
    """
    level = top
    while level.folders.any():
        depth += 1
        level = _level_below(level, depth, home, columns)
        yield level


def _level_below(above: Level, depth: int, home: Home, columns: Sequence[str] | None) -> Level:
    where = home.parts[0].source.href
    folders = np.flatnonzero(above.folders)
    addresses = home.addresses(above.table, folders)
    children = home.nested(addresses, depth)
    distinct = dict(zip(addresses, children, strict=True))
    numbers = {address: number for number, address in enumerate(distinct)}
    which = np.array([numbers[address] for address in addresses], np.int64)
    tables = [_chosen(child.items, columns) for child in distinct.values()]
    sizes = np.array([one.num_rows for one in tables], np.int64)
    counts = sizes[which]
    home.limits.check("table_rows", int(counts.sum()), where)
    table = joined(tables, where)
    if len(tables) < len(which):
        table = table.take(numbers_column(runs((np.cumsum(sizes) - sizes)[which], counts)))
    parents = np.repeat(folders, counts)
    if spec.PART in above.table.column_names:
        parts = above.table[spec.PART].take(numbers_column(parents))
        table = table.append_column(spec.PART, parts)
    return Level.of(table, parents)


def flattened(table: Any, depth: int, home: Home, columns: Sequence[str] | None = None) -> Any:
    """All items below some rows that are not nested files, depth first in the order of rows.

    Parameters and errors are those of `levels_below`.
    """
    table = _chosen(table, columns)
    top = Level.of(table)
    if spec.PATH not in table.column_names:
        top = replace(top, table=table.append_column(spec.PATH, top.ids))
    levels = [top]
    for level in levels_below(top, depth, home, columns):
        paths = levels[-1].table[spec.PATH].take(numbers_column(level.parents))
        paths = pc.binary_join_element_wise(paths, level.ids, "/")
        levels.append(replace(level, table=level.table.append_column(spec.PATH, paths)))
    if len(levels) == 1:
        return top.table
    masks = [~level.folders for level in levels]
    leaves = list(map(np.flatnonzero, masks))
    tables = [
        level.table.take(numbers_column(rows)) for level, rows in zip(levels, leaves, strict=True)
    ]
    starts = depth_first(masks, [level.parents for level in levels])
    places = np.concatenate([start[rows] for start, rows in zip(starts, leaves, strict=True)])
    everything = joined(tables, home.parts[0].source.href)
    return everything.take(numbers_column(np.argsort(places, kind="stable")))


def _chosen(table: Any, columns: Sequence[str] | None) -> Any:
    if columns is None:
        return table
    wanted = {spec.ALIASES.get(name, name) for name in (*columns, *spec.NAVIGATION)}
    names = table.column_names
    return table.select([name for name in names if spec.ALIASES.get(name, name) in wanted])


def runs(starts: Ints, counts: Ints) -> Ints:
    """``starts[i] .. starts[i] + counts[i]`` for each i, one after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
