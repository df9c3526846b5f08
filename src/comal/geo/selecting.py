"""Which rows meet a box, or lie in a range of time, told for whole columns at once.

A box is one of `comal.geo.boxes`: west, south, east, north in degrees, west > east across the
antimeridian. A row matches when it has a point in common with it; edges count. What is null, and
what has no place on the earth, matches nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import arrowcompute as pc
from comal.geo import times

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]
Bounds = tuple[float, ...]

_PER_EDGE = 24
_BLOCK = 16_384
_SECOND = 1_000_000


def within(
    values: Any, start: int | None, end: int | None, where: str, *, seconds: bool = False
) -> Bools:
    """Which times lie in a range, both ends included.

    Parameters
    ----------
    values
        Arrow column, as `times.timestamps` takes it.
    start, end
        Microseconds since 1970 UTC, as `times.parse_range` gives them; None is an open end.
    where
        The column, for messages.
    seconds
        Numbers are seconds since 1970, not microseconds.
    """
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if seconds and is_number:
        # Ends in seconds, for times in microseconds may not fit 64 bits.
        start = None if start is None else -(-start // _SECOND)
        end = None if end is None else end // _SECOND
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_finite(column), pc.floor(column), None)
    else:
        column = times.timestamps(column, where).cast(pa.int64())
    result = np.asarray(pc.is_valid(column), np.bool_)
    moments = np.asarray(pc.fill_null(column, 0))
    if start is not None:
        result = result & (moments >= start)
    if end is not None:
        result = result & (moments <= end)
    return result
