"""All items at any depth as one table, computed level by level for whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.lazy import pc
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
from comal.tortilla.reading.archive import Address, Home, Leaves, Nested
from comal.tortilla.reading.items import joined

T = TypeVar("T")
Ints = npt.NDArray[np.int64]


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
class _Level:
    table: Any
    """Rows with their path, grouped by parent in the order of the parents."""
    parents: Ints
    """Row of each row's parent in the level above."""
    nested: Ints
    """Rows that have a level below."""


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
    levels = [_Level(table, np.zeros(table.num_rows, np.int64), nested_rows(table))]
    where = home.where(0)
    while len(levels[-1].nested):
        above, depth = levels[-1], depth + 1
        addresses = addresses_of(above.table, above.nested)
        children = home.nested(addresses, depth)
        counts = np.array([child.items.num_rows for child in children], np.int64)
        home.limits.check("table_rows", sum(counts.tolist()), where)
        levels.append(_level(above, addresses, children, counts, columns, where))
    if len(levels) == 1:
        return levels[0].table
    leaves = [_leaf_rows(level) for level in levels]
    everything = joined(
        [
            level.table.take(numbers_column(rows))
            for level, rows in zip(levels, leaves, strict=True)
        ],
        where,
    )
    places = np.concatenate(
        [starts[rows] for starts, rows in zip(_places(levels), leaves, strict=True)]
    )
    return everything.take(numbers_column(np.argsort(places, kind="stable")))


def _chosen(table: Any, columns: Sequence[str] | None) -> Any:
    if columns is None:
        return table
    wanted = {spec.ALIASES.get(name, name) for name in (*columns, *spec.NAVIGATION)}
    names = table.column_names
    return table.select([name for name in names if spec.ALIASES.get(name, name) in wanted])


def _leaf_rows(level: _Level) -> Ints:
    return np.setdiff1d(np.arange(level.table.num_rows), level.nested, assume_unique=True)


def _level(
    above: _Level,
    addresses: Sequence[Address],
    children: Sequence[Nested],
    counts: Ints,
    columns: Sequence[str] | None,
    where: str,
) -> _Level:
    """The rows of all children, each file's rows once for each row that names it."""
    distinct: dict[Address, int] = {}
    tables: list[Any] = []
    for address, child in zip(addresses, children, strict=True):
        if distinct.setdefault(address, len(tables)) == len(tables):
            tables.append(_chosen(child.items, columns))
    table = joined(tables, where)
    parents = np.repeat(above.nested, counts)
    if len(tables) < len(children):
        sizes = np.array([one.num_rows for one in tables], np.int64)
        which = np.array([distinct[address] for address in addresses], np.int64)
        table = table.take(numbers_column(_runs((np.cumsum(sizes) - sizes)[which], counts)))
    paths = above.table[spec.PATH].take(numbers_column(parents))
    ids = pc.coalesce(table[spec.ID], texts_column([""])[0])
    table = table.append_column(spec.PATH, pc.binary_join_element_wise(paths, ids, "/"))
    if spec.PART in above.table.column_names:
        parts = above.table[spec.PART].take(numbers_column(parents))
        table = table.append_column(spec.PART, parts)
    return _Level(table, parents, nested_rows(table))


def _runs(starts: Ints, counts: Ints) -> Ints:
    """``starts[i] .. starts[i] + counts[i]`` for each i, one after the other."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def _places(levels: Sequence[_Level]) -> list[Ints]:
    """For each row of each level where it stands, depth first, counted in leaves."""
    sizes = [np.ones(level.table.num_rows, np.int64) for level in levels]
    for index in range(len(levels) - 1, 0, -1):
        above = levels[index - 1]
        total = np.zeros(above.table.num_rows, np.int64)
        np.add.at(total, levels[index].parents, sizes[index])
        sizes[index - 1][above.nested] = total[above.nested]
    starts = [np.cumsum(sizes[0]) - sizes[0]]
    for index in range(1, len(levels)):
        before = np.cumsum(sizes[index]) - sizes[index]
        parents = levels[index].parents
        first = np.searchsorted(parents, parents)  # parents ascend
        starts.append(starts[-1][parents] + before - before[first])
    return starts
