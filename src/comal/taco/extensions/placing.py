"""What STAC and ISTAC share: times, centroids and their checks, for whole columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError
from comal.geo import times, wkb

Floats = npt.NDArray[np.float64]

TIMESTAMP = pa.timestamp("us")


def text_column(values: Any, count: int) -> pa.Array:
    """A column of texts from one text for all rows, an Arrow column or a sequence."""
    if isinstance(values, str):
        return pa.repeat(values, count)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return (
        values.cast(pa.string()) if isinstance(values, pa.Array) else pa.array(values, pa.string())
    )


def list_column(values: Any, kind: pa.DataType, what: str) -> pa.Array:
    """A list column from an Arrow column, an array (n, k) or a sequence of sequences."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.ndim == 2:
        offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
        flat = pa.array(np.ascontiguousarray(values).ravel()).cast(kind.value_type)
        return pa.ListArray.from_arrays(pa.array(offsets), flat, type=kind)
    try:
        if isinstance(values, pa.Array):
            return values.cast(kind)
        rows = [None if row is None else [_plain(part) for part in row] for row in values]
        return pa.array(rows).cast(kind)  # a cast checks, a type given at once truncates 1.5
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"invalid {what}", found=str(error)[:80], expected=str(kind)
        ) from error


def _all_none(values: Any) -> bool:
    return values is None or (isinstance(values, list) and values == [None])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def time_columns(
    start: Any, end: Any, middle: Any, count: int, who: str
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Start, end and middle as ``timestamp[us]``; the middle is floor((start + end) / 2).

    Raises
    ------
    InvalidInputError
        A value is no time, or a start lies after its end.
    """
    start, end, middle = (
        pa.nulls(count, TIMESTAMP) if _all_none(part) else times.timestamps(part, f"{who} {name}")
        for name, part in (("time_start", start), ("time_end", end), ("time_middle", middle))
    )
    if end.null_count == count:  # the usual case: nothing to compare
        return start, end, middle
    late = pc.fill_null(pc.greater(start, end), False)
    if pc.any(late).as_py():
        row = pc.index(late, True).as_py()
        raise InvalidInputError(
            "time_start is after time_end",
            where=place_of(who, row, count),
            found=f"{start[row]} > {end[row]}",
        )
    known = pc.and_(pc.is_valid(start), pc.is_valid(end)).to_numpy(zero_copy_only=False)
    if middle.null_count and known.any():
        first, last = (part.cast(pa.int64()).fill_null(0).to_numpy() for part in (start, end))
        between = pa.array(times.middles(first, last), mask=~known).cast(TIMESTAMP)
        middle = pc.coalesce(middle, between)
    return start, end, middle


def centroid_column(given: Any, lon: Floats, lat: Floats, needed: Any, who: str) -> pa.Array:
    """The centroids that are given, and computed ones where none is.

    Parameters
    ----------
    given
        Arrow binary column of WKB points or None.
    lon, lat
        Computed centroids in degrees.
    needed
        Boolean array: rows that have a place, so that a missing centroid is an error.
    who
        The extension or sample, for messages.

    Raises
    ------
    InvalidInputError
        A centroid is not on the earth: not finite, longitude outside -180..180, latitude outside
        -90..90.
    """
    if given is not None:
        x, y = wkb.points_xy(given, f"{who} centroid")
        present = pc.is_valid(given).to_numpy(zero_copy_only=False)
        lon, lat = np.where(present, x, lon), np.where(present, y, lat)
        needed = needed | present
    with np.errstate(invalid="ignore"):
        good = (np.abs(lon) <= 180) & (np.abs(lat) <= 90)
    bad = np.flatnonzero(needed & ~good)
    if len(bad):
        row = int(bad[0])
        raise InvalidInputError(
            "centroid is not on the earth",
            where=place_of(who, row, len(lon)),
            found=f"longitude {lon[row]}, latitude {lat[row]}",
            expected="longitude -180..180, latitude -90..90",
            hint="check the CRS and the coordinates, or give the centroid",
        )
    return wkb.point(np.where(needed, lon, np.nan), lat)


def place_of(who: str, row: int, count: int) -> str:
    """The row, unless there is only one."""
    return who if count == 1 else f"{who}, row {row}"


def require(extension: Any, *names: str) -> None:
    """Refuse an extension that lacks a parameter and is to compute something."""
    missing = [name for name in names if getattr(extension, name) is None]
    if missing and not extension.schema_only:
        raise InvalidInputError(
            f"{type(extension).__name__} needs {', '.join(missing)}",
            hint="or schema_only=True for the columns without values",
        )
