"""Which rows lie in a box or in a range of time (7.2.2), told for whole columns at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.geo import boxes, times
from comal.geo.crs import LONLAT, groups, on_own_thread, projection
from comal.geo.selecting import intersecting, projected_intersecting, within
from comal.taco import spec

Bools = npt.NDArray[np.bool_]

_DEGREES = frozenset({"", LONLAT, "OGC:CRS84"})


@dataclass(frozen=True, slots=True)
class Box:
    """Rows whose geometry has a point in common with a box; edges count."""

    bounds: tuple[float, float, float, float]
    """West, south, east, north in degrees; west > east crosses the antimeridian."""
    column: str
    crs_column: str | None
    """Column with the CRS of each geometry; None when it is longitude and latitude."""
    level: int = 0
    prune: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `matches` takes."""
        return (self.column,) if self.crs_column is None else (self.column, self.crs_column)

    def matches(self, geometry: Any, crs: Any = None) -> Bools:
        """Which rows match: WKB, and where needed the CRS, as Arrow arrays of n rows."""
        geometry = _plain(geometry)
        if crs is None:
            return intersecting(geometry, self.bounds, self.column)
        result = np.zeros(len(geometry), np.bool_)
        for name, rows in groups(pc.fill_null(_plain(crs), LONLAT), len(geometry)):
            some = geometry.take(pa.array(rows))
            if name in _DEGREES:
                result[rows] = intersecting(some, self.bounds, self.column)
            else:
                args = some, name, self.bounds, self.column
                result[rows] = on_own_thread(_projected, *args)
        return result


@dataclass(frozen=True, slots=True)
class Period:
    """Rows whose time lies in a range, both ends included."""

    start: int | None
    """Microseconds since 1970 UTC, or None for an open end."""
    end: int | None
    column: str
    level: int = 0
    prune: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `matches` takes."""
        return (self.column,)

    def matches(self, values: Any) -> Bools:
        """Which rows match; null never does."""
        return within(_plain(values), self.start, self.end, self.column)


Filter = Box | Period


def _projected(geometry: Any, crs: str, bounds: tuple[float, ...], where: str) -> Bools:
    """Which WKB geometries in another CRS meet the box."""
    try:
        source = projection(crs, where)
    except InvalidInputError as error:  # which the file has given, not the caller
        raise InvalidMetadataError(
            "unknown CRS", where=where, found=error.found, expected=error.expected
        ) from error
    return projected_intersecting(geometry, source, bounds, where)


def _plain(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


# -- choosing columns ------------------------------------------------------------------------------


def box_filter(
    bounds: Iterable[float], column: str, level: int, *, prune: bool, schema: Any
) -> Box:
    """The filter for a box; ``column="auto"`` takes the first of the columns of 7.2.2."""
    box = boxes.validate_bbox(tuple(bounds), "bbox")
    name = _chosen(column, spec.GEOMETRY_COLUMNS, schema, level, "geometry_col")
    kind = schema.field(name).type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise InvalidInputError(
            f"column {shown(name)} is no geometry", found=str(kind), expected="WKB in binary"
        )
    crs = "istac:crs" if name == "istac:geometry" and "istac:crs" in schema.names else None
    west, south, east, north = box
    return Box((west, south, east, north), name, crs, level, prune)


def period_filter(value: Any, column: str, level: int, *, prune: bool, schema: Any) -> Period:
    """The filter for a range of time; ``column="auto"`` takes the first of 7.2.2."""
    start, end = times.parse_range(value)
    name = _chosen(column, spec.TIME_COLUMNS, schema, level, "time_col")
    kind = schema.field(name).type
    if not (pa.types.is_temporal(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind)):
        raise InvalidInputError(
            f"column {shown(name)} is no time", found=str(kind), expected="a timestamp"
        )
    return Period(start, end, name, level, prune)


def _chosen(column: str, candidates: tuple[str, ...], schema: Any, level: int, what: str) -> str:
    if column != "auto":
        if column not in schema.names:
            raise InvalidInputError(
                f"no column {shown(column)} at level {level}",
                expected=", ".join(shown(name) for name in schema.names[:40]),
                hint=f"pass {what}= one of these, or another level=",
            )
        return column
    for name in candidates:
        if name in schema.names:
            return name
    raise InvalidInputError(
        f"level {level} has no column that {what}='auto' looks for",
        found=", ".join(shown(name) for name in schema.names[:40]),
        expected=" or ".join(candidates),
        hint=f"pass {what}= the right column, or another level=",
    )
