"""All items at any depth as one table, computed level by level for whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.lazy import pc
from comal.samples.tables import depth_first
from comal.table.columns import (
    numbers_at,
    numbers_column,
    numbers_of,
    one_array,
    rows_equal,
    texts_column,
    values_at,
)
from comal.tortilla import spec
from comal.tortilla.reading.archive import Address, Home, Leaves
from comal.tortilla.reading.items import joined

T = TypeVar("T")
Ints = npt.NDArray[np.int64]

_AT_ONCE = 1_024
"""Nested files that are opened and held together."""


def nested_rows(table: Any) -> Ints:
    """Numbers of the rows that are files of this format themselves."""
    return np.flatnonzero(rows_equal(table[spec.FILE_FORMAT], spec.TORTILLA))


def parts_of(table: Any) -> Ints:
    """For each row the position of the file that holds it."""
    if spec.PART not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    return numbers_of(one_array(pc.cast(table[spec.PART], pa.int64())))


def addresses_of(table: Any, rows: Ints) -> list[Address]:
    """Where the bytes of some rows lie."""
    spans = (values_at(table[name], rows) for name in (spec.OFFSET, spec.LENGTH))
    has_parts = spec.PART in table.column_names
    parts = values_at(table[spec.PART], rows) if has_parts else [0] * len(rows)
    return list(map(Address, parts, *spans))


def spans_of(table: Any, rows: Ints) -> Leaves:
    """As `addresses_of`, as columns."""
    offsets, sizes = (numbers_at(table[name], rows) for name in (spec.OFFSET, spec.LENGTH))
    has_parts = spec.PART in table.column_names
    parts = numbers_at(table[spec.PART], rows) if has_parts else np.zeros(len(rows), np.int64)
    return Leaves(parts.astype(np.int64, copy=False), offsets, sizes)


@dataclass(frozen=True, slots=True)
class Level:
    """Items of one depth: of a frame, or of all files that are nested in the level above."""

    table: Any
    """Rows grouped by parent, in the order of the parents."""
    parents: Ints
    """Row of each row's parent in the level above."""
    nested: Ints
    """Rows that have a level below."""
    aliased: frozenset[str] = frozenset()
    """As for `archive.Part`, of any of the files."""
    collections: int = 0
    """How many of the files are TACO v1 with a collection of their own."""

    @classmethod
    def of(cls, table: Any, parents: Ints | None = None, *more: Any) -> Level:
        """A level of these rows."""
        known = np.zeros(table.num_rows, np.int64) if parents is None else parents
        return cls(table, known, nested_rows(table), *more)

    @property
    def leaves(self) -> npt.NDArray[np.bool_]:
        """Which rows have no level below."""
        found = np.ones(self.table.num_rows, np.bool_)
        found[self.nested] = False
        return found


def level_below(
    above: Level, depth: int, home: Home, columns: Sequence[str] | None = None
) -> Level:
    """The rows of all files nested in a level, each file's once for each row that names it.

    Parameters
    ----------
    depth
        How many files they are nested in.
    columns
        Optional columns to keep; None for all.

    Raises
    ------
    LimitExceededError
        More rows than the limits allow, or nested too deep. Files that share bytes can stand for
        many more rows than they hold.
    InvalidMetadataError
        A nested file is broken, or has columns that do not go together with others.
    """
    where = home.where(0)
    distinct: dict[Address, int] = {}
    tables: list[Any] = []
    which: list[int] = []
    names: set[str] = set()
    total = collections = 0
    for start in range(0, len(above.nested), _AT_ONCE):
        addresses = addresses_of(above.table, above.nested[start : start + _AT_ONCE])
        # Bytes that came along with the files go with each batch.
        for address, child in zip(addresses, home.nested(addresses, depth), strict=True):
            number = distinct.setdefault(address, len(tables))
            if number == len(tables):
                tables.append(_chosen(child.items, columns))
            which.append(number)
            total += child.items.num_rows
            names.update(child.aliased)
            collections += child.has_collection
        home.limits.check("table_rows", total, where)
    sizes = np.array([one.num_rows for one in tables], np.int64)
    counts = sizes[which]
    table = joined(tables, where)
    if len(tables) < len(which):
        table = table.take(numbers_column(_runs((np.cumsum(sizes) - sizes)[which], counts)))
    parents = np.repeat(above.nested, counts)
    if spec.PART in above.table.column_names:
        parts = above.table[spec.PART].take(numbers_column(parents))
        table = table.append_column(spec.PART, parts)
    return Level.of(table, parents, frozenset(names), collections)


def flattened(table: Any, depth: int, home: Home, columns: Sequence[str] | None = None) -> Any:
    """All items below some rows that are no nested files, depth first in the order of rows.

    Parameters
    ----------
    table
        The rows.
    depth
        How many files they are nested in.
    columns
        Optional columns to keep; None for all.

    Raises
    ------
    LimitExceededError
        More rows than the limits allow, or nested too deep. Files that share bytes can stand for
        many more rows than they hold.
    InvalidMetadataError
        A nested file is broken, or has columns that do not go together with others.
    """
    table = _chosen(table, columns)
    if spec.PATH not in table.column_names:
        table = table.append_column(spec.PATH, pc.coalesce(table[spec.ID], texts_column([""])[0]))
    levels = [Level.of(table)]
    while len(levels[-1].nested):
        above, depth = levels[-1], depth + 1
        level = level_below(above, depth, home, columns)
        paths = above.table[spec.PATH].take(numbers_column(level.parents))
        ids = pc.coalesce(level.table[spec.ID], texts_column([""])[0])
        paths = pc.binary_join_element_wise(paths, ids, "/")
        levels.append(replace(level, table=level.table.append_column(spec.PATH, paths)))
    if len(levels) == 1:
        return levels[0].table
    masks = [level.leaves for level in levels]
    leaves = list(map(np.flatnonzero, masks))
    everything = joined(
        [
            level.table.take(numbers_column(rows))
            for level, rows in zip(levels, leaves, strict=True)
        ],
        home.where(0),
    )
    starts = depth_first(masks, [level.parents for level in levels])
    places = np.concatenate([start[rows] for start, rows in zip(starts, leaves, strict=True)])
    return everything.take(numbers_column(np.argsort(places, kind="stable")))


def _chosen(table: Any, columns: Sequence[str] | None) -> Any:
    if columns is None:
        return table
    wanted = {spec.ALIASES.get(name, name) for name in (*columns, *spec.NAVIGATION)}
    names = table.column_names
    return table.select([name for name in names if spec.ALIASES.get(name, name) in wanted])


def _runs(starts: Ints, counts: Ints) -> Ints:
    """``starts[i] .. starts[i] + counts[i]`` for each i, one after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
