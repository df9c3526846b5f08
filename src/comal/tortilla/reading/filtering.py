"""Which items lie in a box or in a range of time, by the STAC columns of their footer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.geo import boxes, times, wkt
from comal.geo.selecting import intersecting, rasters_intersecting, within
from comal.table.columns import one_array
from comal.tortilla import spec

Mask = npt.NDArray[np.bool_]

AUTO = "auto"
_OUTLINE = (spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE)


def box_mask(table: Any, bounds: tuple[float, float, float, float], geometry_col: str) -> Mask:
    """Which rows have a point in common with a box; see `TortillaFrame.filter_bbox`."""
    box = boxes.validate_bbox(bounds)
    if geometry_col != AUTO:
        return _touching(table, _known(table, geometry_col, "geometry_col"), box)
    has_outline = set(_OUTLINE) <= set(table.column_names)
    has_centre = spec.CENTROID in table.column_names
    if not has_outline and not has_centre:
        raise InvalidInputError(
            "the columns say nothing of where items are",
            found=_some(table),
            expected=f"{', '.join(_OUTLINE)}, or {spec.CENTROID}",
            hint="pass geometry_col= the right column; nested items are reached by flatten(); "
            "create(..., stac=True) fills in the columns from the headers of rasters",
        )
    if not has_outline:
        return _touching(table, spec.CENTROID, box)
    found, placed = _outlines(table, box)
    if has_centre and not placed.all():
        found |= ~placed & _touching(table, spec.CENTROID, box)
    return found


def _outlines(table: Any, box: boxes.Box) -> tuple[Mask, Mask]:
    """Which rasters meet the box, and which are known to lie anywhere."""
    columns = {name: one_array(table[name]) for name in _OUTLINE}
    for name, column in columns.items():
        if not _is_of_kind(column.type, spec.TYPES[name]):
            raise InvalidMetadataError(
                f"{name} has the wrong type",
                found=str(column.type),
                expected=str(spec.TYPES[name]),
                hint=f'pass geometry_col="{spec.CENTROID}" to go by the centres',
            )
    if any(pa.types.is_null(column.type) for column in columns.values()):
        return np.zeros(table.num_rows, bool), np.zeros(table.num_rows, bool)
    try:
        return rasters_intersecting(
            columns[spec.CRS], columns[spec.GEOTRANSFORM], columns[spec.RASTER_SHAPE], box
        )
    except InvalidInputError as error:  # which the file has given, not the caller
        raise InvalidMetadataError(
            f"the place of an item is broken: {error.what}",
            where=error.where,
            found=error.found,
            expected=error.expected,
            hint=f'pass geometry_col="{spec.CENTROID}" to go by the centres',
        ) from error


def _is_of_kind(kind: Any, wanted: Any) -> bool:
    if pa.types.is_null(kind):
        return True
    if pa.types.is_list(wanted):
        inner = kind.value_type if pa.types.is_list(kind) else None
        return inner is not None and (pa.types.is_integer(inner) or pa.types.is_floating(inner))
    return bool(kind.equals(wanted))


def _touching(table: Any, name: str, box: boxes.Box) -> Mask:
    """Which points or shapes of one column, in degrees, meet the box."""
    column = one_array(table[name])
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_null(kind):
        lon, lat = wkt.points_xy(column.cast(pa.string()))
        return boxes.boxes_intersect(lon, lat, lon, lat, box)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return intersecting(column, box, name)
    raise InvalidInputError(
        f"column {shown(name)} is no geometry",
        found=str(kind),
        expected="texts of POINT (longitude latitude), or WKB in binary",
    )


def time_mask(table: Any, datetime_range: Any, time_col: str) -> Mask:
    """Which rows lie in a range of time; see `TortillaFrame.filter_datetime`."""
    start, end = times.parse_range(datetime_range)
    name = spec.TIME_START if time_col == AUTO else _known(table, time_col, "time_col")
    if name not in table.column_names:
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
