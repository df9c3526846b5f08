"""Which rows lie in a box or in a range of time (7.2.2), told for whole columns at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.geo import boxes, times
from comal.geo.crs import on_own_thread
from comal.geo.places import (
    CENTROIDS,
    CRS,
    GEOMETRY,
    GEOTRANSFORM,
    SHAPES,
    TIMES,
    Places,
    Way,
    way_of,
    ways_of,
    within,
)
from comal.taco.model.extent import warn_without_crs

Bools = npt.NDArray[np.bool_]

AUTO = "auto"
_RASTER = f"{GEOMETRY}, or {CRS} with {GEOTRANSFORM} and {SHAPES[0]}"
_POINTS = " or ".join(CENTROIDS)


@dataclass(frozen=True, slots=True)
class Box:
    """Rows that have a point in common with a box; edges count."""

    bounds: boxes.Box
    """West, south, east, north in degrees; west > east crosses the antimeridian."""
    ways: tuple[Way, ...]
    """What tells where a row is, the most telling first."""
    level: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `matches` takes."""
        return tuple(dict.fromkeys(name for way in self.ways for name in way.columns))

    @property
    def in_degrees(self) -> bool:
        """Whether no place has to be transformed."""
        return all(way.in_degrees for way in self.ways)

    def within(self, names: Collection[str]) -> Box | None:
        """The rule for rows that have these columns alone; None when they tell no place."""
        ways = tuple(way for way in self.ways if set(way.columns) <= set(names))
        return replace(self, ways=ways) if ways else None

    def matches(self, *columns: Any) -> Bools:
        """Which rows match: Arrow arrays of n rows for `columns`."""
        table = pa.table(list(columns), names=list(self.columns))
        if self.in_degrees:
            return self._meeting(table)
        found: Bools = on_own_thread(self._meeting, table)
        return found

    def _meeting(self, table: Any) -> Bools:
        try:
            return Places.meeting(table, self.ways, self.bounds)[0]
        except InvalidInputError as error:  # which the file has given, not the caller
            raise InvalidMetadataError(
                f"the place of a sample is broken: {error.what}",
                where=error.where,
                found=error.found,
                expected=error.expected,
                hint="pass geometry_col= a column of centroids to go by these",
            ) from error


@dataclass(frozen=True, slots=True)
class Period:
    """Rows whose time lies in a range, both ends included."""

    start: int | None
    """Microseconds since 1970 UTC, or None for an open end."""
    end: int | None
    column: str
    level: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `matches` takes."""
        return (self.column,)

    def within(self, names: Collection[str]) -> Period | None:
        """The rule for rows that have these columns alone; None when they tell no time."""
        return self if self.column in names else None

    def matches(self, values: Any) -> Bools:
        """Which rows match; null never does."""
        return within(_plain(values), self.start, self.end, self.column)


Filter = Box | Period


def _plain(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


# -- choosing columns ------------------------------------------------------------------------------


def box_filter(bounds: Iterable[float], column: str, level: int, *, schema: Any) -> Box:
    """The filter for a box; ``column="auto"`` takes every way to a place that there is.

    Footprints come before centroids, which 7.2.2 alone would have taken of rasters.
    """
    box = boxes.validate_bbox(tuple(bounds), "bbox")
    if column == AUTO:
        ways = ways_of(schema)
        if not ways:
            raise _nothing(schema, level, "geometry_col", f"{_RASTER}, or {_POINTS}")
    else:
        way = way_of(schema, _known(column, schema, level, "geometry_col"))
        if way is None:
            raise InvalidInputError(
                f"column {shown(column)} is no geometry",
                found=str(schema.field(column).type),
                expected="WKB in binary, or texts of POINT (longitude latitude)",
            )
        ways = (way,)
    warn_without_crs(ways)
    return Box(box, ways, level)


def period_filter(value: Any, column: str, level: int, *, schema: Any) -> Period:
    """The filter for a range of time; ``column="auto"`` takes the first of 7.2.2."""
    start, end = times.parse_range(value)
    if column == AUTO:
        name = next((name for name in TIMES if name in schema.names), None)
        if name is None:
            raise _nothing(schema, level, "time_col", " or ".join(TIMES))
    else:
        name = _known(column, schema, level, "time_col")
    kind = schema.field(name).type
    if not (pa.types.is_temporal(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind)):
        raise InvalidInputError(
            f"column {shown(name)} is no time", found=str(kind), expected="a timestamp"
        )
    return Period(start, end, name, level)


def has_place(schema: Any, column: str) -> bool:
    """Whether rows of a schema can be found by a box."""
    return column in schema.names if column != AUTO else bool(ways_of(schema))


def has_time(schema: Any, column: str) -> bool:
    """Whether rows of a schema can be found by a range of time."""
    return bool({*TIMES} & {*schema.names}) if column == AUTO else column in schema.names


def _known(column: str, schema: Any, level: int, what: str) -> str:
    if schema.names.count(column) == 1:
        return column
    raise InvalidInputError(
        f"no column {shown(column)} at level {level}",
        expected=", ".join(shown(name) for name in schema.names[:40]),
        hint=f"pass {what}= one of these, or another level=",
    )


def _nothing(schema: Any, level: int, what: str, expected: str) -> InvalidInputError:
    return InvalidInputError(
        f"level {level} has no column that {what}='auto' looks for",
        found=", ".join(shown(name) for name in schema.names[:40]),
        expected=expected,
        hint=f"pass {what}= the right column, or another level=",
    )
