"""Zones from GeoDataFrames, files of three formats, GeoJSON or shapely geometries.

Zones with names, such as countries, are `Regions`, which find the zone of a point.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import strictjson
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    shown,
    translated,
)
from comal.geo import wkb
from comal.geo.crs import projection
from comal.lazy import shapely
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import cached_property
from comal.plan import ByteRange, Head, Whole, run
from comal.storage import Source, StorageConfig, open_source
from comal.table import ParquetTable, footer_plan
from comal.table.columns import one_array

_PLAIN = "OGC:CRS84"
_HEAD = 64

Keep = Sequence[str] | Callable[[Sequence[str]], Sequence[str]]
"""Columns to keep, or a function that chooses them from all names."""


@dataclass(frozen=True, slots=True)
class Zones:
    """Geometries, their CRS, and their other columns."""

    shapes: Any
    """Array of n shapely geometries or None."""
    crs: Any
    """None if it is not declared; only while they are read."""
    kept: Mapping[str, Any]
    """Kept columns of n rows."""


def zones_of(
    zones: Any,
    *,
    crs: Any = None,
    keep: Keep = (),
    layer: str | None = None,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Zones:
    """Read zones in any supported form.

    Parameters
    ----------
    zones
        GeoDataFrame or GeoSeries; path or URL of a GeoParquet, GeoJSON or GeoPackage file; the
        Arrow table of a GeoParquet file; a GeoJSON document; or shapely geometries, one or a
        sequence.
    crs
        CRS of `zones` that do not declare one; longitude and latitude if absent.
    keep
        Columns of the zones to keep, or a function that chooses them from all names.
    layer
        Which layer of a GeoPackage that has several.

    Raises
    ------
    InvalidInputError
        The argument has no zones, or there is no such column.
    InvalidMetadataError
        A file is not GeoParquet, or a geometry is broken.
    """
    if isinstance(zones, str | os.PathLike):
        found = _of_file(zones, keep, layer, config, limits)
    elif isinstance(zones, Mapping):
        found = _of_geojson(zones, keep, "zones")
    elif isinstance(zones, pa.Table):
        found = _of_table(zones, zones.schema.metadata or {}, keep, "zones", limits)
    else:
        found = _of_objects(zones, keep)
    return found if found.crs is not None else replace(found, crs=crs or _PLAIN)


def _of_objects(zones: Any, keep: Keep) -> Zones:
    """Zones from a table or a column of GeoPandas, or from geometries."""
    geometry = getattr(zones, "geometry", None)
    if geometry is not None and hasattr(zones, "crs"):
        names = _chosen(keep, list(zones.columns), "zones") if keep else []
        kept = {name: _kept(name, zones[name], "zones") for name in names}
        return Zones(np.asarray(geometry, object), zones.crs, kept)
    if keep:
        found = "" if callable(keep) else ", ".join(map(shown, keep))
        raise InvalidInputError("geometries alone have no columns", found=found)
    return Zones(_shapes(zones), None, {})


def _shapes(zones: Any) -> Any:
    several = isinstance(zones, Iterable) and not isinstance(zones, shapely.Geometry)
    found = list(zones) if several else [zones]
    for one in found:
        if one is not None and not isinstance(one, shapely.Geometry):
            raise InvalidInputError(
                "not zones",
                found=type(one).__name__,
                expected="geometries, a GeoDataFrame, GeoJSON or a file of zones",
            )
    array = np.empty(len(found), object)
    array[:] = found
    return array


def _chosen(keep: Keep, names: Sequence[str], where: str) -> list[str]:
    """The columns to keep; raises an error if one does not exist."""
    chosen = list(keep(names) if callable(keep) else keep)
    for name in chosen:
        if name not in names:
            raise InvalidInputError("the zones have no such column", where=where, found=shown(name))
    return chosen


def _kept(name: str, values: Any, where: str) -> Any:
    """The values of a column that is kept."""
    with translated(_BROKEN, "a column cannot be kept", where=f"{where}, column {shown(name)}"):
        return pa.array(values)


def _of_file(
    href: str | os.PathLike[str],
    keep: Keep,
    layer: str | None,
    config: StorageConfig | None,
    limits: Limits,
) -> Zones:
    with open_source(href, config=config) as source:
        (head,) = source.fetch([Head(_HEAD)])
        if _is_json(head.data):
            return _geojson_file(source, keep, limits)
        if head.data.startswith(_SQLITE):
            return _geopackage(source, layer, keep, limits)
        if not head.data.startswith(b"PAR1"):
            raise NotThisFormatError(
                "not a file of zones",
                where=source.href,
                expected="GeoParquet, GeoJSON or a GeoPackage",
                hint="convert the file to a GeoPackage: ogr2ogr zones.gpkg zones.shp",
            )
        span = ByteRange(0, source.stat().size or 0)
        footer = run(footer_plan(span, limits=limits), source.fetch)
        key_values = footer.metadata.metadata or {}
        names = footer.schema.names
        geometry, _ = _described(key_values, names, source.href, limits)
        kept = _chosen(keep, names, source.href)
        wanted = _chosen([geometry, *kept], names, source.href)
        table = ParquetTable(source, footer, limits=limits).read(wanted)
        return _of_table(table, key_values, kept, source.href, limits)


def _of_table(
    table: Any, key_values: Mapping[bytes, bytes], keep: Keep, where: str, limits: Limits
) -> Zones:
    names = table.column_names
    name, crs = _described(key_values, names, where, limits)
    _, *kept = _chosen([name, *_chosen(keep, names, where)], names, where)
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        raise InvalidInputError(
            "the geometries are not WKB", where=where, found=str(column.type), expected="binary"
        )
    shapes = wkb.to_shapely(column.cast(pa.binary()))
    return Zones(shapes, crs, {one: table.column(one) for one in kept})


def _described(
    key_values: Mapping[bytes, bytes], names: Sequence[str], where: str, limits: Limits
) -> tuple[str, Any]:
    """Name of the column of geometries, and its CRS (GeoParquet 1.1, file metadata)."""
    text = key_values.get(b"geo")
    if text is None:
        if "geometry" in names:
            return "geometry", None
        raise InvalidMetadataError(
            "not GeoParquet", where=where, found="no key 'geo'", expected="a column of geometries"
        )
    document = strictjson.loads(text, f"{where}: geo", limits)
    name = document.get("primary_column")
    columns = document.get("columns")
    about = columns.get(name) if isinstance(columns, dict) and isinstance(name, str) else None
    if not isinstance(name, str) or not isinstance(about, dict):
        raise InvalidMetadataError("not GeoParquet", where=where, found="no primary column")
    if about.get("encoding") != "WKB":
        raise InvalidInputError(
            "the geometries are not WKB", where=where, found=shown(about.get("encoding"))
        )
    # A missing CRS means longitude and latitude; null means unknown.
    return name, about.get("crs", _PLAIN)


# -- files -----------------------------------------------------------------------------------------


_SQLITE = b"SQLite format 3\0"
_TYPES = frozenset(
    {"Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon"}
    | {"GeometryCollection"}
)
_BROKEN: dict[type[BaseException], type[ComalError]] = {
    sqlite3.Error: InvalidMetadataError,
    UnicodeDecodeError: InvalidMetadataError,
    pa.ArrowException: InvalidInputError,
    OverflowError: InvalidInputError,
}
_ENVELOPES = np.array([0, 32, 48, 48, 64, 0, 0, 0])
"""Size in bytes of the envelope of a geometry by its code (GeoPackage 1.3, 2.1.3)."""
_UNKNOWN_CRS = (-1, 0)


def _is_json(head: bytes) -> bool:
    """Whether bytes start like GeoJSON."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


# -- GeoJSON (RFC 7946) ---------------------------------------------------------------------------


def _of_geojson(document: Mapping[str, Any], keep: Keep, where: str) -> Zones:
    """Zones from a feature collection, a feature or a geometry."""
    kind = document.get("type")
    features: Any = [document]
    if kind == "FeatureCollection":
        features = document.get("features")
    elif kind in _TYPES:
        features = [{"type": "Feature", "geometry": document}]
    elif kind != "Feature":
        raise InvalidMetadataError("not GeoJSON", where=where, found=f"type {shown(kind)}")
    if not isinstance(features, list) or not all(isinstance(one, Mapping) for one in features):
        raise InvalidMetadataError("the GeoJSON has no features", where=where)
    texts = [_text(one.get("geometry"), where) for one in features]
    shapes = _file_shapes(texts, where)
    return Zones(shapes, _geojson_crs(document), _properties(features, keep, where))


def _text(geometry: Any, where: str) -> str | None:
    if geometry is None:
        return None
    with translated(
        {ValueError: InvalidMetadataError, TypeError: InvalidMetadataError},
        "broken GeoJSON",
        where=where,
    ):
        return json.dumps(geometry)


def _file_shapes(texts: Sequence[str | None], where: str) -> Any:
    for row in wkb.crashing(texts)[:1]:
        raise InvalidMetadataError(
            "a geometry is nested too deeply", where=f"{where}, feature {row}"
        )
    with translated(
        {shapely.errors.ShapelyError: InvalidMetadataError}, "broken GeoJSON", where=where
    ):
        return shapely.from_geojson(np.array(texts, object))


def _geojson_crs(document: Mapping[str, Any]) -> Any:
    """CRS from the member ``crs`` of GeoJSON 2008, which GDAL writes; None without it."""
    member = document.get("crs")
    properties = member.get("properties") if isinstance(member, Mapping) else None
    return properties.get("name") if isinstance(properties, Mapping) else None


def _properties(features: Sequence[Any], keep: Keep, where: str) -> dict[str, Any]:
    if not keep:
        return {}
    rows = [one.get("properties") or {} for one in features]
    if not all(isinstance(row, Mapping) for row in rows):
        raise InvalidMetadataError("the properties of a feature are not an object", where=where)
    kept = {}
    for name in _chosen(keep, list(dict.fromkeys(name for row in rows for name in row)), where):
        kept[name] = _kept(name, [row.get(name) for row in rows], where)
    return kept


def _geojson_file(source: Source, keep: Keep, limits: Limits) -> Zones:
    """Zones from a GeoJSON file."""
    wide = replace(limits, json_bytes=limits.table_bytes)
    (piece,) = source.fetch([Whole(wide.json_bytes)])
    return _of_geojson(strictjson.loads(piece.data, source.href, wide), keep, source.href)


# -- GeoPackage 1.3 -------------------------------------------------------------------------------


def _geopackage(source: Source, layer: str | None, keep: Keep, limits: Limits) -> Zones:
    """Zones from a layer of features; the file is read into memory, so it can be remote."""
    (piece,) = source.fetch([Whole(limits.table_bytes)])
    where = source.href
    with (
        # SQLite reports lack of memory for some broken files, too.
        translated(
            {**_BROKEN, MemoryError: InvalidMetadataError}, "broken GeoPackage", where=where
        ),
        closing(sqlite3.connect(":memory:")) as database,
    ):
        database.deserialize(piece.data)
        # Triggers and views in an untrusted file must not run functions.
        database.execute("PRAGMA trusted_schema = OFF")
        table, column, crs = _layer(database, layer, where)
        names = [row[1] for row in database.execute(f"PRAGMA table_info({_quoted(table)})")]
        chosen = _chosen(keep, names, where)
        columns = ", ".join(map(_quoted, [column, *chosen]))
        rows = database.execute(
            f"SELECT {columns} FROM {_quoted(table)} ORDER BY rowid"  # noqa: S608 - quoted
        ).fetchall()
        blobs = pa.array([_wkb(row[0], where) for row in rows], pa.binary())
        kept = {
            name: _kept(name, [row[n] for row in rows], where) for n, name in enumerate(chosen, 1)
        }
    return Zones(wkb.to_shapely(blobs, where), crs, kept)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _layer(database: sqlite3.Connection, layer: str | None, where: str) -> tuple[str, str, Any]:
    """Table, geometry column and CRS of the layer (2.1.5)."""
    found = database.execute(
        "SELECT g.table_name, g.column_name, g.srs_id, s.organization, s.organization_coordsys_id,"
        " s.definition FROM gpkg_geometry_columns g"
        " LEFT JOIN gpkg_spatial_ref_sys s ON s.srs_id = g.srs_id ORDER BY g.table_name"
    ).fetchall()
    chosen = [row for row in found if layer in (None, row[0])]
    if len(chosen) != 1:
        raise InvalidInputError(
            "the GeoPackage has several layers" if chosen else "no such layer in the GeoPackage",
            where=where,
            found=", ".join(shown(row[0]) for row in found),
            expected="the name of one of them as layer",
        )
    table, column, number, organisation, code, definition = chosen[0]
    if not isinstance(table, str) or not isinstance(column, str):
        raise InvalidMetadataError("a layer has no name", where=where)
    if number in _UNKNOWN_CRS:
        return table, column, None
    known = isinstance(organisation, str) and organisation.upper() not in {"NONE", "CUSTOM"}
    return table, column, f"{organisation}:{code}" if known else definition


def _wkb(blob: Any, where: str) -> bytes | None:
    """The WKB after the header of a geometry (2.1.3)."""
    if blob is None:
        return None
    if not isinstance(blob, bytes) or blob[:2] != b"GP" or len(blob) < 8:
        raise InvalidMetadataError("a geometry is not a GeoPackage geometry", where=where)
    return blob[8 + int(_ENVELOPES[blob[3] >> 1 & 7]) :]


# -- areas with names -----------------------------------------------------------------------------

NAMES = ("name", "shapename", "admin", "name_en")
"""Default columns of names, ignoring case."""


@dataclass(frozen=True)
class Regions:
    """Areas in EPSG:4326, each with a name."""

    names: pa.Array
    """n texts."""
    geometries: npt.NDArray[np.object_]
    """n shapely geometries in longitude and latitude."""

    @cached_property
    def _tree(self) -> shapely.STRtree:
        return shapely.STRtree(self.geometries)

    def find(self, lon: npt.ArrayLike, lat: npt.ArrayLike, tolerance: float = 0.0) -> pa.Array:
        """Names of the areas that contain points.

        Parameters
        ----------
        lon, lat
            n points in degrees; NaN is in no area.
        tolerance
            Degrees; a point in no area takes the nearest area within this distance.

        Returns
        -------
        n texts, null for points in no area. If areas overlap or touch, the first one counts.
        """
        lons, lats = np.asarray(lon, np.float64), np.asarray(lat, np.float64)
        found = np.full(len(lons), -1, np.int64)
        known = np.flatnonzero(np.isfinite(lons) & np.isfinite(lats))
        points = shapely.points(lons[known], lats[known])
        place, area = self._tree.query(points, predicate="intersects")
        # Assigned from the last to the first area, so that the first one wins.
        order = np.argsort(-area, kind="stable")
        found[known[place[order]]] = area[order]
        missing = known[found[known] < 0]
        if tolerance > 0 and len(missing):
            points = shapely.points(lons[missing], lats[missing])
            place, area = self._tree.query_nearest(
                points, max_distance=tolerance, all_matches=False
            )
            found[missing[place]] = area
        return self.names.take(pa.array(np.where(found < 0, 0, found), mask=found < 0))


def load_regions(source: Any, name: str | None = None) -> Regions:
    """Read areas with names.

    Parameters
    ----------
    source
        A path or URL, or an Arrow table, as `zones_of` takes them; a list of (WKB, name);
        `Regions`; or a pair of one of these and the column of names.
    name
        The column or property that holds the names; None for one of `NAMES`.

    Raises
    ------
    InvalidInputError
        The source is of another kind, or has no names.
    ObjectNotFoundError, NotThisFormatError, InvalidMetadataError
        The file is missing, of another format, or broken.
    """
    if isinstance(source, Regions):
        return source
    if isinstance(source, tuple) and len(source) == 2:
        return load_regions(source[0], source[1])
    if isinstance(source, list):
        with translated(_LIST_FAULTS, "not a list of (WKB, name)"):
            geometries = pa.array([pair[0] for pair in source], pa.binary())
            names = pa.array([pair[1] for pair in source], pa.string())
        return Regions(names, wkb.to_shapely(geometries, "list of areas"))
    if not isinstance(source, str | os.PathLike | pa.Table):
        raise InvalidInputError(
            "not a source of areas",
            found=type(source).__name__,
            expected="a path, a table, or a list of (WKB, name)",
        )
    zones = zones_of(source, keep=partial(_name_column, name=name))
    (column,) = zones.kept.values()
    with translated({pa.ArrowException: InvalidInputError}, "the names of the areas are not text"):
        texts = column.cast(pa.string())
    shapes, crs = zones.shapes, projection(crs_text(zones.crs), "areas")
    if crs.transformer is not None:
        shapes = shapely.transform(shapes, lambda xy: np.stack(crs.to_lonlat(*xy.T), axis=1))
    return Regions(one_array(texts), shapes)


_LIST_FAULTS: dict[type[BaseException], type[ComalError]] = dict.fromkeys(
    (ValueError, TypeError, LookupError, pa.ArrowException), InvalidInputError
)


def _name_column(names: Sequence[str], name: str | None) -> list[str]:
    """The column of names: `name`, or the first of `NAMES` that exists."""
    by_case = {one.lower(): one for one in sorted(names)}
    known = (by_case.get(one) for one in NAMES)
    found = next(filter(None, known), None) if name is None else name
    if found is None or found not in names:
        raise InvalidInputError(
            "the areas have no names",
            found=", ".join(map(shown, sorted(names))) or "no columns",
            expected=name or f"a column {' or '.join(NAMES)}",
            hint="name the column: (source, 'column')",
        )
    return [found]


_NO_JSON: dict[type[BaseException], type[ComalError]] = dict.fromkeys(
    (TypeError, ValueError, RecursionError), InvalidInputError
)


def crs_text(crs: Any) -> str:
    """A CRS as text, from an object of GeoPandas, PROJJSON of GeoParquet, an EPSG code or text."""
    if isinstance(crs, str):
        return crs
    if isinstance(crs, Mapping):
        with translated(_NO_JSON, "invalid CRS", where="zones", expected="PROJJSON"):
            return json.dumps(crs)
    if isinstance(crs, int):
        return f"EPSG:{crs}"
    if hasattr(crs, "to_wkt"):
        return str(crs.to_wkt())
    raise InvalidInputError(
        "invalid CRS", where="zones", found=type(crs).__name__, expected="EPSG:3857, WKT, PROJJSON"
    )
