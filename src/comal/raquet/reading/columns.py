"""Whole column chunks of a Parquet file by a plan: for what the page index does not tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from comal.errors import InvalidMetadataError
from comal.limits import Limits
from comal.plan import ByteRange, Piece, Plan, Wanted
from comal.table import Footer, ParquetTable


class _Nowhere:
    """A source for tables whose bytes are here already."""

    def fetch(self, wanted: Sequence[Wanted]) -> NoReturn:
        """Refuse: a column that reaches out of its chunks is broken."""
        raise InvalidMetadataError("column reaches outside of its chunk", found=str(wanted[:1]))


def columns_plan(
    footer: Footer,
    names: Sequence[str],
    groups: Sequence[int],
    limits: Limits,
    known: Sequence[Piece] = (),
) -> Plan[Any]:
    """Columns of row groups as an Arrow table, their chunks in one round trip.

    Raises
    ------
    InvalidMetadataError, LimitExceededError
        As for `comal.table.ParquetTable.read`.
    """
    layout = footer.layout
    leaves = [leaf for name in names for leaf in layout.leaves[name]]
    size = int(layout.size[np.ix_(list(groups), leaves)].sum())
    limits.check("table_bytes", size, f"{footer.span.href or 'table'}, columns")
    held = [*known, footer.tail]
    missing = chunk_ranges(footer, names, groups, held)
    if missing:
        held += yield missing
    table = ParquetTable(_Nowhere(), footer, known=held, limits=limits)
    return table.read(list(names), list(groups))


def chunk_ranges(
    footer: Footer, names: Sequence[str], groups: Sequence[int], known: Sequence[Piece] = ()
) -> list[ByteRange]:
    """The column chunks of some columns and row groups, but for those that are known."""
    layout, span = footer.layout, footer.span
    leaves = [leaf for name in names for leaf in layout.leaves[name]]
    chosen = np.ix_(list(groups), leaves)
    sizes = layout.size[chosen].ravel().tolist()
    starts = (layout.start[chosen] + span.offset).ravel().tolist()
    return [
        ByteRange(start, size, span.href)
        for start, size in zip(starts, sizes, strict=True)
        if not any(piece.holds(start, size) for piece in known)
    ]
