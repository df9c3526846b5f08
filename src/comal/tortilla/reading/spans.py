"""Spans of items, told for whole columns at once: are they numbers, inside, and apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import InvalidMetadataError
from comal.table.columns import numbers_of, one_array, valid_of
from comal.tortilla.wire import Header

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_TOO_LARGE = np.iinfo(np.int64).max


def integers(column: Any, name: str, where: str) -> Ints:
    """A column of offsets or lengths as int64; what no int64 holds becomes the largest.

    Raises
    ------
    InvalidMetadataError
        The column holds nulls, or is no column of integers.
    """
    kind = column.type
    if not pa.types.is_integer(kind) and not (pa.types.is_null(kind) and not len(column)):
        raise InvalidMetadataError(
            f"{name} is no integer", where=where, found=str(kind), expected="int64"
        )
    if column.null_count:
        row = int(np.argmin(valid_of(column)))
        raise InvalidMetadataError(f"{name} is null", where=f"{where}, row {row}")
    if pa.types.is_uint64(kind):
        # A value that would wrap is as far outside of the file as one can be.
        column = pc.min_element_wise(column, pa.scalar(_TOO_LARGE, pa.uint64()))
    if not pa.types.is_int64(column.type):
        column = pc.cast(column, pa.int64())
    return numbers_of(one_array(column))


def outside(offsets: Ints, lengths: Ints, header: Header, size: int) -> Mask:
    """Which spans do not lie in the data of a file of `size` bytes.

    Header, footer and collection are no data; an empty item may lie anywhere behind the header.
    Gaps are legal, and so is data behind the footer.
    """
    start = header.size
    # Written so that nothing can wrap.
    wrong: Mask = (offsets < start) | (lengths < 0) | (offsets > size)
    wrong |= lengths > size - np.minimum(offsets, size)
    filled = ~wrong & (lengths > 0)
    for span in (header.footer, header.collection):
        if span is not None and span.size:
            wrong |= filled & (offsets < span.end) & (offsets + lengths > span.offset)
    return wrong


def overlaps(offsets: Ints, lengths: Ints) -> list[tuple[int, int]]:
    """Pairs of rows whose spans share bytes without being the same span.

    Spans must not be `outside`. Each row stands at most once as the later of a pair.
    """
    ends = offsets + lengths
    if len(offsets) < 2 or (offsets[1:] >= ends[:-1]).all():
        return []
    rows = np.flatnonzero(lengths > 0)
    order = rows[np.lexsort((-lengths[rows], offsets[rows]))]
    starts, stops = offsets[order], ends[order]
    reach = np.maximum.accumulate(stops)[:-1]
    same = (starts[1:] == starts[:-1]) & (stops[1:] == stops[:-1])
    # The first of several rows that share a span speaks for all of them.
    bad = np.flatnonzero((starts[1:] < reach) & ~same) + 1
    places = np.arange(len(order))
    farthest = np.maximum.accumulate(np.where(stops >= np.maximum.accumulate(stops), places, 0))
    pairs = zip(order[farthest[bad - 1]].tolist(), order[bad].tolist(), strict=True)
    return sorted(pairs)
