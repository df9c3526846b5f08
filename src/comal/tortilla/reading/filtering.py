"""Which items lie in a box or in a range of time, by the STAC columns of their footer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import InvalidInputError, InvalidMetadataError, QueryError, shown
from comal.geo import boxes, times
from comal.geo.places import TIMES, Places, Way, way_of, ways_of, within
from comal.query import Budget, engine, select_isolated
from comal.table.columns import numbers_column
from comal.tortilla import spec

Mask = npt.NDArray[np.bool_]

AUTO = "auto"
_OUTLINE = (spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE)


def box_mask(
    table: Any, bounds: tuple[float, float, float, float], geometry_col: str
) -> tuple[Mask, tuple[str, ...]]:
    """Which rows have a point in common with a box, and by what they were found.

    See `TortillaFrame.filter_bbox`.
    """
    box = boxes.validate_bbox(bounds)
    ways = ways_in(table, geometry_col)
    try:
        return Places.meeting(table, ways, box)
    except InvalidInputError as error:  # which the file has given, not the caller
        raise broken(error) from error


def broken(error: InvalidInputError) -> InvalidMetadataError:
    """The error about a place that the file has given, not the caller."""
    return InvalidMetadataError(
        f"the place of an item is broken: {error.what}",
        where=error.where,
        found=error.found,
        expected=error.expected,
        hint=f'pass geometry_col="{spec.CENTROID}" to go by the centres',
    )


def ways_in(table: Any, geometry_col: str = AUTO) -> tuple[Way, ...]:
    """What tells where the rows of a table are.

    Raises
    ------
    InvalidInputError
        The columns say nothing of it.
    InvalidMetadataError
        Those that should are of another type.
    """
    schema = table.schema
    if geometry_col != AUTO:
        name = _known(table, geometry_col, "geometry_col")
        way = way_of(schema, name)
        if way is None and not pa.types.is_null(schema.field(name).type):
            raise InvalidInputError(
                f"column {shown(name)} is no geometry",
                found=str(schema.field(name).type),
                expected="texts of POINT (longitude latitude), or WKB in binary",
            )
        return () if way is None else (way,)
    if set(_OUTLINE) <= set(schema.names):
        _check_outline(schema)
    ways = ways_of(schema)
    if not ways and spec.CENTROID not in schema.names:
        raise InvalidInputError(
            "the columns say nothing of where items are",
            found=_some(table),
            expected=f"{', '.join(_OUTLINE)}, or {spec.CENTROID}",
            hint="pass geometry_col= the right column; nested items are reached by flatten(); "
            "create(..., stac=True) fills in the columns from the headers of rasters",
        )
    return ways


def _check_outline(schema: Any) -> None:
    for name in _OUTLINE:
        kind = schema.field(name).type
        if not _is_of_kind(kind, spec.TYPES[name]):
            raise InvalidMetadataError(
                f"{name} has the wrong type",
                found=str(kind),
                expected=str(spec.TYPES[name]),
                hint=f'pass geometry_col="{spec.CENTROID}" to go by the centres',
            )


def _is_of_kind(kind: Any, wanted: Any) -> bool:
    if pa.types.is_null(kind):
        return True
    if pa.types.is_list(wanted):
        inner = kind.value_type if pa.types.is_list(kind) else None
        return inner is not None and (pa.types.is_integer(inner) or pa.types.is_floating(inner))
    return bool(kind.equals(wanted))


def time_mask(table: Any, datetime_range: Any, time_col: str) -> Mask:
    """Which rows lie in a range of time; see `TortillaFrame.filter_datetime`."""
    start, end = times.parse_range(datetime_range)
    if time_col == AUTO:
        name = next((n for n in (spec.TIME_START, *TIMES) if n in table.column_names), "")
    else:
        name = _known(table, time_col, "time_col")
    if not name:
        raise InvalidInputError(
            "the columns say nothing of the time of items",
            found=_some(table),
            expected=spec.TIME_START,
            hint="pass time_col= the right column; nested items are reached by flatten()",
        )
    column = table[name]
    tests = (
        pa.types.is_temporal,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_string,
        pa.types.is_null,
    )
    if not any(test(column.type) for test in tests):
        raise InvalidInputError(
            f"column {shown(name)} is no time",
            found=str(column.type),
            expected="seconds since 1970, or timestamps",
        )
    return within(column, start, end, name, seconds=True)


def _known(table: Any, name: str, argument: str) -> str:
    name = name if name in table.column_names else spec.ALIASES.get(name, name)
    if name not in table.column_names:
        raise InvalidInputError(
            f"no column {shown(name)}",
            expected=_some(table),
            hint=f"pass {argument}= one of these",
        )
    return name


def _some(table: Any) -> str:
    return ", ".join(shown(name) for name in table.column_names[:40])


# -- SQL -------------------------------------------------------------------------------------------


_NUMBER = "comal_row"


def selected(
    table: Any, query: str, params: Mapping[str, Any] | None, *, isolated: bool | Budget
) -> Any:
    """What one SELECT makes of a frame's table.

    Raises
    ------
    QueryError
        It cannot run, or makes up a path for GDAL.
    """
    tables = {"data": table}
    if isolated:
        budget = isolated if isinstance(isolated, Budget) else None
        found = select_isolated(query, params, tables=tables, budget=budget)
    else:
        found = engine().select(query, params, tables=tables)
    if spec.SUBFILE in found.column_names:
        column = found[spec.SUBFILE]
        if not set(column.to_pylist()) <= {None, *table[spec.SUBFILE].to_pylist()}:
            raise QueryError(
                f"the query changed {spec.SUBFILE}, which leads to the bytes of items",
                hint="call what you compute something else",
            )
    return found


def matching(
    table: Any, condition: str, params: Mapping[str, Any] | None, *, isolated: bool | Budget
) -> Any:
    """For each row of a frame's table whether a condition in SQL holds; null is no."""
    numbered = table.append_column(_NUMBER, numbers_column(np.arange(table.num_rows)))
    # The condition is the caller's own SQL; the engine takes one SELECT and nothing else. Only
    # numbers of rows come back, so that a query can choose rows but change nothing in them.
    query = f"SELECT {_NUMBER} FROM data WHERE ({condition}\n)"  # noqa: S608
    rows = selected(numbered, query, params, isolated=isolated)[_NUMBER]
    return pc.is_in(numbered[_NUMBER], value_set=rows.combine_chunks())
