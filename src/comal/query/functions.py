"""Functions for the SQL of every format: ``quadbin_*`` for cells, ``ST_*`` for geometries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from comal import grid
from comal.errors import InvalidInputError, QueryError, shown
from comal.geo.crs import on_own_thread, projection
from comal.geo.footprints import footprints
from comal.geo.wkb import crashing
from comal.grid.cover import geometry_cells
from comal.lazy import shapely
from comal.query.columns import (
    coordinates,
    is_bytes,
    real,
    shapes,
    sql_type,
    texts,
    unique_shapes,
    vectorised,
    whole,
)

ID = pa.uint64()
IDS = pa.list_(ID)
TILE = pa.struct([("x", pa.int32()), ("y", pa.int32()), ("z", pa.int32())])
POINT = pa.struct([("lon", pa.float64()), ("lat", pa.float64())])
BOX = pa.struct([(name, pa.float64()) for name in ("min_lon", "min_lat", "max_lon", "max_lat")])
PIXEL = pa.struct([("pixel_x", pa.int32()), ("pixel_y", pa.int32())])

Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function:
    """A vectorised scalar function for one query.

    `call` takes one Arrow array per argument, nulls included, and returns an Arrow array of the
    same length.
    """

    call: Callable[..., Any]
    arguments: tuple[str, ...] | None
    """SQL types of the arguments; None takes any number of any types."""
    returns: str = "BOOLEAN"
    """SQL type of the result."""


# -- cells -----------------------------------------------------------------------------------------


def _cell(call: Call) -> Call:
    """A function whose only argument is a cell."""
    return lambda cell: call(whole(cell, "cell"))


def _to_tile(cells: Any) -> Any:
    z, x, y = grid.tiles(cells)
    return x, y, z


def _from_tile(x: Any, y: Any, z: Any) -> Any:
    return grid.cells(whole(z, "zoom"), whole(x, "column"), whole(y, "row"))


def _from_lonlat(lon: Any, lat: Any, z: Any) -> Any:
    return grid.from_lonlat(real(lon, "longitude"), real(lat, "latitude"), whole(z, "zoom"))


def _pixel_xy(lon: Any, lat: Any, z: Any, block: Any = None) -> Any:
    """The pixel of a point in its tile: (lon, lat, zoom[, block_size])."""
    zoom = whole(z, "zoom")
    size = 256 if block is None else _within(whole(block, "block size"), "block size", 1 << 16)
    found = []
    for position in grid.lonlat_to_xy(real(lon, "longitude"), real(lat, "latitude"), zoom):
        tile = np.minimum(np.floor(position), 2.0**zoom - 1)
        found.append(np.minimum((position - tile) * size, size - 1).astype(np.int32))
    return tuple(found)


def _within(numbers: Any, what: str, most: int) -> Any:
    """Whole numbers from 1 to `most`."""
    wrong = (numbers < 1) | (numbers > most)
    if wrong.any():
        raise InvalidInputError(
            f"{what} out of range", found=int(numbers[wrong][0]), expected=f"1 to {most}"
        )
    return numbers


def _to_parent(cell: Any, z: Any = None) -> Any:
    cells = whole(cell, "cell")
    zoom = np.maximum(grid.zooms(cells) - 1, 0) if z is None else whole(z, "zoom")
    return grid.parents(cells, zoom)


def _to_children(cell: Any, z: Any = None) -> Any:
    cells = whole(cell, "cell")
    zooms = [None] * len(cells) if z is None else whole(z, "zoom").tolist()
    return [grid.children(one, zoom) for one, zoom in zip(cells.tolist(), zooms, strict=True)]


def _kring(cell: Any, k: Any) -> Any:
    pairs = zip(whole(cell, "cell").tolist(), whole(k, "distance").tolist(), strict=True)
    return [grid.k_ring(one, reach) for one, reach in pairs]


def _to_wkt(cells: Any) -> Any:
    boxes = shapely.box(*grid.bounds(cells))
    return pa.array(shapely.to_wkt(boxes, rounding_precision=-1), pa.string())


def _to_geojson(cells: Any) -> Any:
    return [
        json.dumps({"type": "Polygon", "coordinates": [[[w, s], [e, s], [e, n], [w, n], [w, s]]]})
        for w, s, e, n in np.stack(grid.bounds(cells), axis=1).tolist()
    ]


def _polyfill(geometry: Any, z: Any, mode: Any = None) -> Any:
    """Cells of a geometry: (geometry, zoom[, mode]); the mode is ``intersects`` if absent."""
    zooms = whole(z, "zoom").tolist()
    modes: Any = ["intersects"] * len(zooms) if mode is None else texts(mode, "mode")
    keys = zip(shapely.to_wkb(shapes(geometry)).tolist(), zooms, modes, strict=True)
    return [_filled(wkb, zoom, how.lower()) for wkb, zoom, how in keys]


@lru_cache(maxsize=64)
def _filled(wkb: bytes, zoom: int, mode: Any) -> Any:
    """Cells of a geometry, cached because a query requests the same ones several times."""
    return geometry_cells(shapely.from_wkb(wkb), zoom, mode)


_CELLS: dict[str, tuple[Call, Any]] = {
    "quadbin_from_tile": (_from_tile, ID),
    "quadbin_to_tile": (_cell(_to_tile), TILE),
    "quadbin_from_lonlat": (_from_lonlat, ID),
    "quadbin_to_lonlat": (_cell(grid.centres), POINT),
    "quadbin_resolution": (_cell(grid.zooms), pa.int32()),
    "quadbin_to_bbox": (_cell(grid.bounds), BOX),
    "quadbin_pixel_xy": (_pixel_xy, PIXEL),
    "quadbin_to_parent": (_to_parent, ID),
    "quadbin_to_children": (_to_children, IDS),
    "quadbin_sibling": (_cell(lambda cells: list(grid.siblings(cells))), IDS),
    "quadbin_kring": (_kring, IDS),
    "quadbin_is_valid": (_cell(grid.is_valid), pa.bool_()),
    "quadbin_to_wkt": (_cell(_to_wkt), pa.string()),
    "quadbin_to_geojson": (_cell(_to_geojson), pa.string()),
    "quadbin_polyfill": (_polyfill, IDS),
}
"""SQL name, function to call for rows without nulls, and Arrow type of its result."""


# -- geometry --------------------------------------------------------------------------------------


_TYPES = {
    "GEOMETRY": pa.binary(),
    "BLOB": pa.binary(),
    "VARCHAR": pa.string(),
    "JSON": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
    "INTEGER": pa.int32(),
    "UINTEGER": pa.uint32(),
}
_KINDS = (
    "POINT", "LINESTRING", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING",
    "MULTIPOLYGON", "GEOMETRYCOLLECTION",
)  # fmt: skip
"""The result of ``ST_GeometryType``, by shapely's type number."""
_LINE, _POLYGON = 1, 3


def _wkb(geometries: Any) -> Any:
    return pa.array(shapely.to_wkb(geometries, flavor="iso"), pa.binary())


def _plain_wkb(column: Any) -> Any:
    """Any geometry as WKB; columns of WKB are passed on unread."""
    return column if is_bytes(column) else _wkb(shapes(column))


def _unary(name: str) -> Call:
    """A shapely function of one geometry."""

    def call(geometry: Any) -> Any:
        return getattr(shapely, name)(shapes(geometry))

    return call


def _overlay(name: str) -> Call:
    def call(one: Any, other: Any) -> Any:
        return getattr(shapely, name)(shapes(one), shapes(other))

    return call


# -- relations -------------------------------------------------------------------------------------

_TURNED = {
    "contains": "within",
    "within": "contains",
    "covers": "covered_by",
    "covered_by": "covers",
    **{name: name for name in ("intersects", "disjoint", "touches", "overlaps", "crosses")},
    "equals": "equals",
}
"""The relation of the second geometry to the first one."""


def _relation(name: str) -> Call:
    def call(one: Any, other: Any) -> Any:
        if pa.types.is_integer(one.type):
            return _related_cells(_TURNED[name], other, one)
        if pa.types.is_integer(other.type):
            return _related_cells(name, one, other)
        return _related(name, unique_shapes(one), unique_shapes(other))

    return call


def _related(name: str, one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """A relation, row by row, which prepares the side with fewer geometries."""
    if len(other[0]) < len(one[0]):
        name, one, other = _TURNED[name], other, one
    # GEOS 3.14 crashes for a prepared polygon and its edge together with an empty part.
    if name != "contains" or not _has_empty_parts(other[0]):
        shapely.prepare(one[0])
    return getattr(shapely, name)(one[0][one[1]], other[0][other[1]])


def _has_empty_parts(geometries: Any) -> bool:
    """Whether a multi-geometry may have empty parts; collections are assumed to have some."""
    kinds = shapely.get_type_id(geometries)
    if (kinds == shapely.GeometryType.GEOMETRYCOLLECTION).any():
        return True
    parts = shapely.get_parts(geometries[kinds > _POLYGON])
    return bool(shapely.is_empty(parts).any())


def _related_cells(name: str, geometry: Any, cell: Any) -> Any:
    """A relation of geometries, which may extend beyond 180 degrees, to boxes of cells."""
    if name == "disjoint":
        return ~_related_cells("intersects", geometry, cell)
    geometries, boxes = unique_shapes(geometry), unique_shapes(cell)
    found = _related(name, geometries, boxes)
    first, _, last, _ = shapely.bounds(geometries[0]).T
    for turn, beyond in ((360, last > 180), (-360, first < -180)):
        rows = np.flatnonzero(beyond[geometries[1]])
        if len(rows):
            turned = shapely.transform(boxes[0], lambda places, by=turn: np.add(places, (by, 0)))
            some = (geometries[0], geometries[1][rows]), (turned, boxes[1][rows])
            found[rows] |= _related(name, *some)
    return found


def _within_distance(one: Any, other: Any, distance: Any) -> Any:
    return shapely.dwithin(shapes(one), shapes(other), real(distance, "distance"))


# -- numbers ---------------------------------------------------------------------------------------


def _number(found: Any) -> Any:
    """Numbers with null for NaN."""
    return pa.array(found, pa.float64(), mask=np.isnan(found))


def _distance(one: Any, other: Any) -> Any:
    return _number(_overlay("distance")(one, other))


def _axis(number: int) -> Call:
    return lambda geometry: _number(coordinates(geometry)[number])


def _bound(number: int) -> Call:
    return lambda geometry: _number(_unary("bounds")(geometry)[:, number])


def _length(dimension: int) -> Call:
    """The length of all lines, or of the edges of all polygons, in each geometry."""

    def call(geometry: Any) -> Any:
        parts = shapes(geometry)
        total, rows = np.zeros(len(parts)), np.arange(len(parts))
        # Collections may be nested.
        while len(parts):
            kinds = shapely.get_type_id(parts)
            alone = np.isin(kinds, (_LINE, _LINE + 1) if dimension == 1 else (_POLYGON,))
            np.add.at(total, rows[alone], shapely.length(parts[alone]))
            parts, index = shapely.get_parts(parts[kinds > _POLYGON], return_index=True)
            rows = rows[kinds > _POLYGON][index]
        return total

    return call


def _kind(geometry: Any) -> Any:
    numbers = _unary("get_type_id")(geometry)
    return pa.array(_KINDS).take(pa.array(numbers))


# -- geometries ------------------------------------------------------------------------------------


def _point(*places: Any) -> Any:
    return shapely.points(np.stack([real(place, "coordinate") for place in places], axis=1))


def _box(*edges: Any) -> Any:
    return shapely.box(*(real(edge, "edge") for edge in edges))


def _envelope(geometry: Any) -> Any:
    """The box of each geometry as a polygon, even that of a point."""
    bounds = _unary("bounds")(geometry)
    found = shapely.box(*bounds.T)
    found[np.isnan(bounds).any(axis=1)] = shapely.Polygon()
    return found


def _from_geojson(column: Any) -> Any:
    values = texts(column, "GeoJSON")
    if crashing(values):
        raise QueryError("a geometry nests too many collections")
    return shapely.from_geojson(values)


def _transformed(geometry: Any, source: Any, target: Any, always_xy: Any = None) -> Any:
    """``ST_Transform(geometry, from, to)``, through longitude and latitude of WGS 84."""
    if always_xy is not None and not all(always_xy.to_pylist()):
        raise QueryError(
            "coordinates are always x before y, longitude before latitude",
            found="always_xy := false",
            hint="ST_FlipCoordinates(geometry) exchanges the two",
        )
    given = shapes(geometry)
    names = list(zip(texts(source, "CRS"), texts(target, "CRS"), strict=True))
    result = np.empty(len(given), object)
    for pair in dict.fromkeys(names):
        rows = np.flatnonzero([one == pair for one in names])
        # PROJ objects belong to a Python thread, which DuckDB's threads are not.
        result[rows] = on_own_thread(_projected, given[rows], *pair)
    return result


def _projected(geometries: Any, source: str, target: str) -> Any:
    start, end = projection(source, "ST_Transform"), projection(target, "ST_Transform")

    def move(places: Any) -> Any:
        lost = ~np.isfinite(places[:, :2]).all(axis=1)
        x, y = places[:, 0], places[:, 1]
        if start != end:
            x, y = end.from_lonlat(*start.to_lonlat(x, y))
        if (np.isnan(x) & ~lost).any():
            first = places[int(np.argmax(np.isnan(x) & ~lost)), :2].tolist()
            raise QueryError(
                "a coordinate cannot be transformed to the CRS",
                where="ST_Transform",
                found=f"{first} from {shown(source)} to {shown(target)}",
            )
        return np.column_stack([x, y, places[:, 2:]])

    found = np.array(geometries, object)
    for has_z in (False, True):
        rows = shapely.has_z(found) == has_z
        found[rows] = shapely.transform(found[rows], move, include_z=has_z)
    return found


def _footprint(crs: Any, geotransform: Any, shape: Any) -> Any:
    """``ST_Footprint(crs, geotransform, shape)``: the box of a raster in degrees.

    Across the antimeridian it is two boxes, one on each side; null if it has no coordinates.
    """
    # PROJ objects belong to a thread, as above.
    west, south, east, north = on_own_thread(footprints, crs, geotransform, shape)
    split = west > east
    found = shapely.box(west, south, np.where(split, 180, east), north)
    if split.any():
        more = shapely.box(-180, south[split], east[split], north[split])
        found[split] = shapely.multipolygons(np.stack([found[split], more], axis=1))
    found[np.isnan(west)] = None
    return found


def _flipped(geometry: Any) -> Any:
    return shapely.transform(shapes(geometry), lambda places: places[:, ::-1])


def _buffered(geometry: Any, distance: Any, quarters: Any = None) -> Any:
    """``ST_Buffer(geometry, distance[, triangles in a quarter of a circle])``."""
    given, widths = shapes(geometry), real(distance, "distance")
    counts = np.full(len(given), 8)
    if quarters is not None:
        counts = _within(whole(quarters, "num_triangles"), "num_triangles", 1 << 10)
    result = np.empty(len(given), object)
    for count in np.unique(counts).tolist():
        rows = counts == count
        result[rows] = shapely.buffer(given[rows], widths[rows], quad_segs=count)
    return result


def _simplified(*, keeping: bool) -> Call:
    def call(geometry: Any, tolerance: Any) -> Any:
        widths = real(tolerance, "tolerance")
        return shapely.simplify(shapes(geometry), widths, preserve_topology=keeping)

    return call


_GEOMETRY: dict[str, tuple[tuple[str, ...], Call, str]] = {
    "ST_Point": (("x, y",), _point, "GEOMETRY"),
    "ST_MakeEnvelope": (("min_x, min_y, max_x, max_y",), _box, "GEOMETRY"),
    "ST_GeomFromQuadbin": (("cell",), shapes, "GEOMETRY"),
    "ST_X": (("geom",), _axis(0), "DOUBLE"),
    "ST_Y": (("geom",), _axis(1), "DOUBLE"),
    "ST_XMin": (("geom",), _bound(0), "DOUBLE"),
    "ST_YMin": (("geom",), _bound(1), "DOUBLE"),
    "ST_XMax": (("geom",), _bound(2), "DOUBLE"),
    "ST_YMax": (("geom",), _bound(3), "DOUBLE"),
    "ST_Area": (("geom",), _unary("area"), "DOUBLE"),
    "ST_Length": (("geom",), _length(1), "DOUBLE"),
    "ST_Perimeter": (("geom",), _length(2), "DOUBLE"),
    "ST_Distance": (("geom1, geom2",), _distance, "DOUBLE"),
    "ST_GeometryType": (("geom",), _kind, "VARCHAR"),
    "ST_Dimension": (("geom",), _unary("get_dimensions"), "INTEGER"),
    "ST_NPoints": (("geom",), _unary("get_num_coordinates"), "UINTEGER"),
    "ST_NumGeometries": (("geom",), _unary("get_num_geometries"), "INTEGER"),
    "ST_IsEmpty": (("geom",), _unary("is_empty"), "BOOLEAN"),
    "ST_IsValid": (("geom",), _unary("is_valid"), "BOOLEAN"),
    "ST_IsSimple": (("geom",), _unary("is_simple"), "BOOLEAN"),
    "ST_DWithin": (("geom1, geom2, distance",), _within_distance, "BOOLEAN"),
    **{
        f"ST_{name}": (("geom1, geom2",), _relation(relation), "BOOLEAN")
        for name, relation in (
            ("Intersects", "intersects"), ("Disjoint", "disjoint"), ("Within", "within"),
            ("Contains", "contains"), ("Covers", "covers"), ("CoveredBy", "covered_by"),
            ("Touches", "touches"), ("Overlaps", "overlaps"), ("Crosses", "crosses"),
            ("Equals", "equals"),
        )
    },
    "ST_Buffer": (
        ("geom, distance", "geom, distance, num_triangles"), _buffered, "GEOMETRY"
    ),
    "ST_Simplify": (("geom, tolerance",), _simplified(keeping=False), "GEOMETRY"),
    "ST_SimplifyPreserveTopology": (("geom, tolerance",), _simplified(keeping=True), "GEOMETRY"),
    "ST_Envelope": (("geom",), _envelope, "GEOMETRY"),
    "ST_Footprint": (("crs, geotransform, shape",), _footprint, "GEOMETRY"),
    "ST_FlipCoordinates": (("geom",), _flipped, "GEOMETRY"),
    "ST_Transform": (
        ("geom, source_crs, target_crs", "geom, source_crs, target_crs, always_xy"),
        _transformed,
        "GEOMETRY",
    ),
    **{
        f"ST_{name}": (("geom",), _unary(function), "GEOMETRY")
        for name, function in (
            ("Centroid", "centroid"), ("PointOnSurface", "point_on_surface"),
            ("ConvexHull", "convex_hull"), ("Boundary", "boundary"), ("MakeValid", "make_valid"),
            ("Normalize", "normalize"), ("Reverse", "reverse"),
        )
    },
    **{
        f"ST_{name}": (("geom1, geom2",), _overlay(name.lower()), "GEOMETRY")
        for name in ("Union", "Intersection", "Difference")
    },
}  # fmt: skip
"""SQL name: its arguments, function to call for rows without nulls, and SQL type of its result."""

_FORMS = ("ST_AsText", "ST_AsWKT", "ST_AsWKB", "ST_AsBinary", "ST_AsGeoJSON")
"""DuckDB's own functions for a GEOMETRY, which here also accept its other forms."""

_JSON: dict[str, tuple[tuple[str, ...], Call, str]] = {
    "ST_GeomFromGeoJSON": (("json",), _from_geojson, "GEOMETRY"),
    "ST_AsGeoJSON": (("geom",), _unary("to_geojson"), "JSON"),
}
"""Functions that DuckDB has itself from 2.0 on."""


_BODIES = {"GEOMETRY": ("BLOB", "ST_GeomFromWKB({})"), "JSON": ("VARCHAR", "{}::JSON")}
"""Substitute for a type that Python functions cannot return, and SQL that converts it back."""


@cache
def named(*, json: bool) -> Mapping[str, Function | str]:
    """Functions and their macros, by lower-case name; `json`: DuckDB supports GeoJSON."""
    found: dict[str, Function | str] = {
        name: Function(vectorised(call, kind), None, sql_type(kind))
        for name, (call, kind) in _CELLS.items()
    }
    found["comal_wkb"] = Function(vectorised(_plain_wkb, pa.binary()), None, "BLOB")
    found["st_geomfromtext"] = "CREATE MACRO ST_GeomFromText(wkt) AS wkt::VARCHAR::GEOMETRY"
    for name in _FORMS:
        body = f"system.main.{name}(ST_GeomFromWKB(comal_wkb(geom)))"
        found[name.lower()] = f"CREATE MACRO {name}(geom) AS {body}"
    for name, (forms, call, kind) in {**_GEOMETRY, **({} if json else _JSON)}.items():
        inner = f"comal_{name.lower()}"
        returned, body = _BODIES.get(kind, (kind, "{}"))
        found[inner] = Function(
            vectorised(partial(_guarded, call, kind), _TYPES[kind]), None, returned
        )
        made = [f"({form}) AS {body.format(f'{inner}({form})')}" for form in forms]
        found[name.lower()] = f"CREATE MACRO {name}" + ", ".join(made)
    return found


def _guarded(call: Call, kind: str, *columns: Any) -> Any:
    """The result in a form for Arrow; errors of GEOS become ours."""
    try:
        with np.errstate(all="ignore"):
            found = call(*columns)
    except shapely.errors.ShapelyError as error:
        raise QueryError(
            "a geometry cannot be used",
            found=shown(str(error), 100),
            hint="ST_IsValid finds invalid geometries, ST_MakeValid repairs them",
        ) from error
    return _wkb(found) if kind == "GEOMETRY" else found
