"""A Tortilla and all that is nested in it, as one table per depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError
from comal.storage import Source
from comal.taco.model.levels import check_depth, flat
from comal.taco.model.sources import Spans
from comal.tortilla import spec
from comal.tortilla.reading.flat import addresses_of, nested_rows, parts_of
from comal.tortilla.reading.frame import TortillaFrame
from comal.tortilla.reading.joining import joined

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_AT_ONCE = 1_024
"""Nested files whose tables are held before they are joined."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The items of one depth, grouped by parent in the order of the parents."""

    table: Any
    parent: Rows
    """Row of the file that holds each item, in the depth above; the row itself at the top."""
    folders: Mask
    """Which items are files of items themselves."""
    aliased: frozenset[str] = frozenset()
    """Columns that the files call otherwise."""
    collections: int = 0
    """How many of the files that hold these items, themselves nested, have a collection."""

    @property
    def rows(self) -> int:
        """How many items."""
        return len(self.parent)

    @property
    def ids(self) -> Any:
        """Ids as they are stored; a null is empty."""
        return pc.fill_null(flat(self.table[spec.ID]), "")

    def spans(self, sources: list[Source]) -> Spans:
        """Where the bytes of the items lie."""
        offsets, lengths = (
            np.asarray(self.table[name].to_numpy(), np.int64) for name in (spec.OFFSET, spec.LENGTH)
        )
        return Spans(sources, parts_of(self.table), offsets, lengths)


def depths_of(frame: TortillaFrame) -> list[Depth]:
    """All items of a frame; the nested files of one depth are opened together.

    Raises
    ------
    InvalidInputError
        The frame mixes levels, or its columns have the types that happen to be stored.
    LimitExceededError
        Deeper than TACO 2.0 can be, or more rows than the limits allow.
    InvalidMetadataError
        A nested file is broken, or has columns that do not go together with others.
    """
    home = frame.home
    if spec.PATH in frame.columns:
        raise InvalidInputError(
            "a flattened frame cannot be migrated", hint="pass the frame that it was made from"
        )
    if not home.typed:
        raise InvalidInputError("the frame was opened with typed=False", hint="open it again")
    table = frame.to_arrow().drop_columns([spec.SUBFILE])
    names = frozenset(name for part in home.parts for name in part.aliased)
    depths = [_depth(table, np.arange(table.num_rows), names)]
    while depths[-1].folders.any():
        check_depth(len(depths) + 1)
        depths.append(_below(depths[-1], len(depths), frame))
    return depths


def _depth(table: Any, parent: Rows, aliased: frozenset[str], collections: int = 0) -> Depth:
    folders = np.zeros(table.num_rows, bool)
    folders[nested_rows(table)] = True
    return Depth(table, parent, folders, aliased, collections)


def _below(above: Depth, depth: int, frame: TortillaFrame) -> Depth:
    home, rows = frame.home, np.flatnonzero(above.folders)
    where = home.where(0)
    tables: list[Any] = []
    counts: list[Rows] = []
    names: set[str] = set()
    total = collections = 0
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        opened = home.nested(addresses_of(above.table, some), depth)
        children = [one.items for one in opened]
        names.update(name for one in opened for name in one.aliased)
        collections += sum(one.has_collection for one in opened)
        counts.append(np.array([child.num_rows for child in children], np.int64))
        total += int(counts[-1].sum())
        home.limits.check("table_rows", total, where)
        tables.append(joined(children, where))
    table = joined(tables, where)
    parent = np.repeat(rows, np.concatenate(counts))
    if spec.PART in above.table.column_names:
        part = flat(above.table[spec.PART]).take(pa.array(parent))
        table = table.append_column(spec.PART, part)
    return _depth(table, parent, frozenset(names), collections)
