"""Filters by bbox and time range, and checks of locations and times, on whole columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.geo import boxes, times
from comal.geo.crs import on_own_thread, projection
from comal.geo.places import (
    CENTROIDS,
    COLUMNS,
    CRS,
    GEOMETRY,
    GEOTRANSFORM,
    SHAPES,
    Places,
    Way,
    way_of,
    ways_of,
)
from comal.lazy import pc
from comal.samples.frame import Dialect
from comal.table.columns import one_array

Bools = npt.NDArray[np.bool_]

AUTO = "auto"
_PLACES = f"{GEOMETRY}, or {CRS} with {GEOTRANSFORM} and {SHAPES[0]}, or {' or '.join(CENTROIDS)}"

_TOGETHER = (
    *({name} for name in (GEOMETRY, *CENTROIDS)),
    *({CRS, GEOTRANSFORM, shape} for shape in SHAPES),
)
"""Sets of columns that give a location together."""


@dataclass(frozen=True, slots=True)
class Box:
    """Rows that have a point in common with a box; edges count."""

    bounds: boxes.Box
    """West, south, east, north in degrees; west > east crosses the antimeridian."""
    ways: tuple[Way, ...]
    """Columns that locate a row, the most precise first."""
    level: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `matches` takes."""
        return tuple(dict.fromkeys(name for way in self.ways for name in way.columns))

    @property
    def in_degrees(self) -> bool:
        """Whether no location has to be transformed."""
        return all(way.in_degrees for way in self.ways)

    def within(self, names: Collection[str]) -> Box | None:
        """The rule for rows with only these columns; None if they give no location."""
        ways = tuple(way for way in self.ways if set(way.columns) <= set(names))
        return replace(self, ways=ways) if ways else None

    def matches(self, *columns: Any) -> Bools:
        """Which rows match: Arrow arrays of n rows for `columns`."""
        table = pa.table(list(columns), names=list(self.columns))
        if self.in_degrees:
            return self.among(table)[0]
        found: Bools = on_own_thread(self.among, table)[0]
        return found

    def among(self, table: Any) -> tuple[Bools, tuple[str, ...]]:
        """Which rows of a table match, and what located them (`geo.places.FOOTPRINT`)."""
        try:
            return Places.meeting(table, self.ways, self.bounds)
        except InvalidInputError as error:  # the input is the file's, not the caller's
            raise broken_place(error) from error


@dataclass(frozen=True, slots=True)
class Period:
    """Rows whose time lies in a range, both ends included."""

    start: int | None
    """Microseconds since 1970 UTC, or None for an open end."""
    end: int | None
    column: str
    level: int = 0
    seconds: bool = False
    """Numbers are seconds since 1970, not microseconds."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `matches` takes."""
        return (self.column,)

    def within(self, names: Collection[str]) -> Period | None:
        """The rule for rows with only these columns; None if they give no time."""
        return self if self.column in names else None

    def matches(self, values: Any) -> Bools:
        """Which rows match; null never does."""
        return times.within(
            one_array(values), self.start, self.end, self.column, seconds=self.seconds
        )


Filter = Box | Period


def broken_place(error: InvalidInputError) -> InvalidMetadataError:
    """The error for an invalid location in the file, as opposed to in an argument."""
    return InvalidMetadataError(
        f"the place of a sample is not valid: {error.what}",
        where=error.where,
        found=error.found,
        expected=error.expected,
        hint=f'pass geometry_col="{CENTROIDS[0]}" to use the centroids',
    )


# -- choosing columns ------------------------------------------------------------------------------


def box_filter(
    bounds: Iterable[float], column: str, schema: Any, dialect: Dialect, level: int = 0
) -> Box:
    """The filter for a box; ``column="auto"`` uses every column that gives a location.

    Footprints come before centroids; TACO 2.0, 7.2.2 would use only centroids for rasters.
    """
    box = boxes.validate_bbox(tuple(bounds), "bbox")
    return Box(box, ways_in(schema, column, dialect, level), level)


def ways_in(schema: Any, column: str, dialect: Dialect, level: int = 0) -> tuple[Way, ...]:
    """The columns that locate rows; columns of Arrow's null type locate none."""
    if column == AUTO:
        ways = ways_of(schema)
        if not ways:
            _refuse_placeless(schema, dialect)
        return ways
    name = _known(column, schema, "geometry_col", dialect, level)
    way, kind = way_of(schema, name), schema.field(name).type
    if way is None and not pa.types.is_null(kind):
        raise InvalidInputError(
            f"column {shown(name)} is not a geometry",
            found=str(kind),
            expected="binary WKB, or text such as POINT (longitude latitude)",
        )
    return () if way is None else (way,)


def _refuse_placeless(schema: Any, dialect: Dialect) -> None:
    """Refuse columns that give no location, unless only because they are of Arrow's null type."""
    kinds = {name: schema.field(name).type for name in COLUMNS if schema.names.count(name) == 1}
    typed = {name: kind for name, kind in kinds.items() if not pa.types.is_null(kind)}
    for names in _TOGETHER:
        if names <= typed.keys():
            raise InvalidMetadataError(
                "the columns that hold places have the wrong types",
                found=", ".join(f"{name} {typed[name]}" for name in COLUMNS if name in names),
                hint=f"pass the right column as geometry_col={dialect.elsewhere}",
            )
    if typed.keys() == kinds.keys():
        raise _nothing("where samples are", schema, "geometry_col", _PLACES, dialect)


def period_filter(value: Any, column: str, schema: Any, dialect: Dialect, level: int = 0) -> Period:
    """The filter for a time range; ``column="auto"`` takes the dialect's first that exists."""
    start, end = times.parse_range(value)
    if column == AUTO:
        name = next((name for name in dialect.times if name in schema.names), None)
        if name is None:
            expected = " or ".join(dialect.times)
            raise _nothing("when samples were taken", schema, "time_col", expected, dialect)
    else:
        name = _known(column, schema, "time_col", dialect, level)
    kind = schema.field(name).type
    tests = [pa.types.is_temporal, pa.types.is_integer, pa.types.is_string, pa.types.is_null]
    if not any(test(kind) for test in tests) and not (
        dialect.seconds and pa.types.is_floating(kind)
    ):
        raise InvalidInputError(
            f"column {shown(name)} is not a time", found=str(kind), expected="a timestamp"
        )
    return Period(start, end, name, level, dialect.seconds)


def has_place(schema: Any, column: str) -> bool:
    """Whether rows of a schema can be found by a box."""
    return column in schema.names if column != AUTO else bool(ways_of(schema))


def has_time(schema: Any, column: str, dialect: Dialect) -> bool:
    """Whether rows of a schema can be found by a range of time."""
    wanted = {*dialect.times} if column == AUTO else {column}
    return bool(wanted & {*schema.names})


def _known(column: str, schema: Any, argument: str, dialect: Dialect, level: int) -> str:
    name = column if column in schema.names else dialect.aliases.get(column, column)
    if schema.names.count(name) == 1:
        return name
    raise InvalidInputError(
        f"no column {shown(column)}" + (f" at level {level}" if level else ""),
        expected=_some(schema),
        hint=f"pass one of these as {argument}={dialect.elsewhere}",
    )


def _nothing(
    what: str, schema: Any, argument: str, expected: str, dialect: Dialect
) -> InvalidInputError:
    return InvalidInputError(
        f"the columns do not say {what}",
        found=_some(schema),
        expected=expected,
        hint=f"pass the right column as {argument}={dialect.elsewhere}",
    )


def _some(schema: Any) -> str:
    return ", ".join(shown(name) for name in schema.names[:40])


# -- values that cannot be, for checks -------------------------------------------------------------


_MOST_UNKNOWN = 20
"""Most unknown CRS reported; PROJ searches a quarter of a second for each name."""


def crs_problem(name: str) -> str | None:
    """Why a text is not a CRS; None if it is one."""
    try:
        projection(name)
    except InvalidInputError as error:
        return f"{error.what}: {shown(name)}"
    return None


def unknown_crs(column: Any) -> dict[int, str]:
    """The rows of an Arrow array of texts that name no CRS, and why."""
    encoded = pc.dictionary_encode(column)
    problems = (
        (code, reason)
        for code, name in enumerate(encoded.dictionary.to_pylist())
        if (reason := crs_problem(name)) is not None
    )
    reasons = dict(islice(problems, _MOST_UNKNOWN))
    codes = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False))
    rows = np.flatnonzero(np.isin(codes, list(reasons)))
    return {row: reasons[int(codes[row])] for row in rows.tolist()}


def good_lists(column: Any, least: int, most: int, *, positive: bool = False) -> Bools:
    """Which lists are null or hold `least` to `most` finite (if `positive`, positive) numbers."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(column), least))
    good: Bools = (lengths >= least) & (lengths <= most)
    values = pc.cast(pc.list_flatten(column), pa.float64(), safe=False)
    numbers = np.asarray(pc.fill_null(values, 0.0 if positive else np.nan))
    wrong = ~np.isfinite(numbers) | (numbers <= 0 if positive else False)
    owners = np.asarray(pc.list_parent_indices(column))[wrong]
    good[owners] = False
    return good


def ends_before(start: Any, end: Any) -> Bools:
    """Which rows of two Arrow arrays of times end before they start."""
    return np.asarray(pc.fill_null(pc.greater(start, end), False))
