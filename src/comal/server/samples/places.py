"""Where samples are, as GeoJSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from comal.geo.places import Places, ways_of

_DIGITS = 7
"""Decimals of a degree, about a centimetre."""
_STRAIGHT = 1e-3
"""Part of the size of an outline by which its edge may be beside the raster's."""


def rounded(box: Any) -> list[float]:
    """West, south, east, north for a document; west > east across the antimeridian."""
    return [round(float(edge), _DIGITS) for edge in box]


def geometries(table: Any) -> list[tuple[dict[str, Any] | None, list[float] | None]]:
    """For each row its geometry in degrees, and its box; the most telling that it has.

    A geometry column first, then the outline of the raster, then its centre. What crosses the
    antimeridian is cut there (RFC 7946, 3.1.9), and its box has west > east (5.2).
    """
    # Broken places are none; the sample itself is shown.
    places = Places(table, ways_of(table.schema), lenient=True)
    told = np.flatnonzero(places.told_by >= 0)
    found: list[tuple[dict[str, Any] | None, list[float] | None]] = [(None, None)] * table.num_rows
    if not len(told):
        return found
    import shapely  # noqa: PLC0415 - 40 ms that rows without places never need

    from comal.geo.shapes import cut  # noqa: PLC0415 - as above

    shapes = places.shapes(told)
    sizes = shapely.length(shapes)
    rasters = [number for number, way in enumerate(places.ways) if way.kind == "raster"]
    straight = np.isin(places.told_by[told], rasters)
    shapes[straight] = shapely.simplify(shapes[straight], sizes[straight] * _STRAIGHT / 4)
    shapes = shapely.orient_polygons(cut(shapes))
    corners = np.stack(places.corners)
    for row, shape in zip(told.tolist(), shapes, strict=True):
        found[row] = _geojson(shape), rounded(corners[:, row])
    return found


def _geojson(shape: Any) -> dict[str, Any]:
    import shapely  # noqa: PLC0415 - as above

    near = shapely.transform(shape, lambda points: np.round(points, _DIGITS))
    document: dict[str, Any] = json.loads(shapely.to_geojson(near))
    return document
