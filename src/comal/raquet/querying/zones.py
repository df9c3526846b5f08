"""Zones out of what users have: GeoDataFrames, files of four formats, GeoJSON, shapely."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from comal import strictjson
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    MissingExtraError,
    shown,
    translated,
)
from comal.geo import wkb
from comal.lazy import shapely
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Head, Whole, run
from comal.storage import Source, StorageConfig, open_source
from comal.table import ParquetTable, footer_plan

_PLAIN = "OGC:CRS84"
_HEAD = 64


@dataclass(frozen=True, slots=True)
class Zones:
    """Geometries, their CRS, and what else is kept of them."""

    shapes: Any
    """Array of n shapely geometries or None."""
    crs: Any
    kept: Mapping[str, Any]
    """Columns of n rows."""


def zones_of(
    zones: Any,
    *,
    crs: Any = None,
    keep: Sequence[str] = (),
    layer: str | None = None,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Zones:
    """Zones in whatever form they come.

    Parameters
    ----------
    zones
        GeoDataFrame or GeoSeries; path or URL of a GeoParquet, GeoJSON or GeoPackage file, path
        of a Shapefile; an Arrow table as a GeoParquet file has it; a GeoJSON document; or shapely
        geometries, one or a sequence of them.
    crs
        CRS of the geometries, where `zones` itself does not tell; longitude and latitude if
        nobody does.
    keep
        Columns of the table of zones that are kept.
    layer
        Which layer of a GeoPackage that has several.

    Raises
    ------
    InvalidInputError
        Nothing that has zones, or no such column.
    InvalidMetadataError
        A file that is no GeoParquet, or a geometry that is broken.
    """
    if isinstance(zones, str | os.PathLike):
        return _of_file(zones, crs, keep, layer, config, limits)
    if isinstance(zones, Mapping):
        return _zones(of_geojson(zones, keep, "zones"), crs)
    if isinstance(zones, pa.Table):
        return _of_table(zones, zones.schema.metadata or {}, crs, keep, "zones", limits)
    geometry = getattr(zones, "geometry", None)
    if geometry is not None and hasattr(zones, "crs"):
        return Zones(
            np.asarray(geometry, object),
            zones.crs if zones.crs is not None else crs or _PLAIN,
            {name: _column(zones, name) for name in keep},
        )
    if keep:
        raise InvalidInputError(
            "geometries alone have no columns", found=", ".join(map(shown, keep))
        )
    return Zones(_shapes(zones), crs or _PLAIN, {})


def _shapes(zones: Any) -> Any:
    several = isinstance(zones, Iterable) and not isinstance(zones, shapely.Geometry)
    found = list(zones) if several else [zones]
    for one in found:
        if one is not None and not isinstance(one, shapely.Geometry):
            raise InvalidInputError(
                "no zones",
                found=type(one).__name__,
                expected="geometries, a GeoDataFrame, GeoJSON or a file of zones",
            )
    array = np.empty(len(found), object)
    array[:] = found
    return array


def _column(frame: Any, name: str) -> Any:
    if name not in frame.columns:
        raise InvalidInputError("zones have no such column", found=shown(name))
    return pa.array(frame[name])


def _of_file(
    href: str | os.PathLike[str],
    crs: Any,
    keep: Sequence[str],
    layer: str | None,
    config: StorageConfig | None,
    limits: Limits,
) -> Zones:
    with open_source(href, config=config) as source:
        (head,) = source.fetch([Head(_HEAD)])
        if is_json(head.data):
            return _zones(geojson_file(source, keep, limits), crs)
        if head.data.startswith(SQLITE):
            return _zones(geopackage(source, layer, keep, limits), crs)
        if head.data.startswith(SHAPEFILE):
            return _zones(shapefile(source, keep), crs)
        span = ByteRange(0, source.stat().size or 0)
        footer = run(footer_plan(span, limits=limits), source.fetch)
        key_values = footer.metadata.metadata or {}
        geometry, _ = _described(key_values, footer.schema.names, source.href, limits)
        wanted = list(dict.fromkeys([geometry, *keep]))
        for name in wanted:
            if name not in footer.schema.names:
                raise InvalidInputError("zones have no such column", found=shown(name))
        table = ParquetTable(source, footer, limits=limits).read(wanted)
        return _of_table(table, key_values, crs, keep, source.href, limits)


def _zones(found: Found, crs: Any) -> Zones:
    shapes, own, kept = found
    return Zones(shapes, own if own is not None else crs or _PLAIN, kept)


def _of_table(
    table: Any,
    key_values: Mapping[bytes, bytes],
    crs: Any,
    keep: Sequence[str],
    where: str,
    limits: Limits,
) -> Zones:
    name, own = _described(key_values, table.column_names, where, limits)
    for one in (name, *keep):
        if one not in table.column_names:
            raise InvalidInputError("zones have no such column", where=where, found=shown(one))
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        raise InvalidInputError(
            "geometries are not WKB", where=where, found=str(column.type), expected="binary"
        )
    shapes = wkb.to_shapely(column.cast(pa.binary()))
    chosen = own if own is not None else crs or _PLAIN
    return Zones(shapes, chosen, {one: table.column(one) for one in keep})


def _described(
    key_values: Mapping[bytes, bytes], names: Sequence[str], where: str, limits: Limits
) -> tuple[str, Any]:
    """Name of the column of geometries, and its CRS (GeoParquet 1.1, file metadata)."""
    text = key_values.get(b"geo")
    if text is None:
        if "geometry" in names:
            return "geometry", None
        raise InvalidMetadataError(
            "no GeoParquet", where=where, found="no key 'geo'", expected="a column of geometries"
        )
    document = strictjson.loads(text, f"{where}: geo", limits)
    name = document.get("primary_column")
    columns = document.get("columns")
    about = columns.get(name) if isinstance(columns, dict) and isinstance(name, str) else None
    if not isinstance(name, str) or not isinstance(about, dict):
        raise InvalidMetadataError("no GeoParquet", where=where, found="no primary column")
    if about.get("encoding") != "WKB":
        raise InvalidInputError(
            "geometries are not WKB", where=where, found=shown(about.get("encoding"))
        )
    # No CRS at all means longitude and latitude; null means that it is not known.
    return name, about.get("crs", _PLAIN)


# -- files -----------------------------------------------------------------------------------------


Found = tuple[Any, Any, dict[str, Any]]
"""n shapely geometries, their CRS (None where it is not told), and columns of n rows."""

SQLITE, SHAPEFILE = b"SQLite format 3\0", b"\0\0\x27\x0a"
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
"""Bytes of the envelope of a geometry by its code (GeoPackage 1.3, 2.1.3)."""
_UNKNOWN_CRS = (-1, 0)


def is_json(head: bytes) -> bool:
    """Whether bytes begin as GeoJSON does."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


# -- GeoJSON (RFC 7946) ---------------------------------------------------------------------------


def of_geojson(document: Mapping[str, Any], keep: Sequence[str], where: str) -> Found:
    """A feature collection, a feature or a geometry."""
    kind = document.get("type")
    features: Any = [document]
    if kind == "FeatureCollection":
        features = document.get("features")
    elif kind in _TYPES:
        features = [{"type": "Feature", "geometry": document}]
    elif kind != "Feature":
        raise InvalidMetadataError("no GeoJSON", where=where, found=f"type {shown(kind)}")
    if not isinstance(features, list) or not all(isinstance(one, Mapping) for one in features):
        raise InvalidMetadataError("GeoJSON without features", where=where)
    texts = [_text(one.get("geometry"), where) for one in features]
    return _file_shapes(texts, where), _geojson_crs(document), _properties(features, keep, where)


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
        raise InvalidMetadataError("geometry is nested too deeply", where=f"{where}, feature {row}")
    with translated(
        {shapely.errors.ShapelyError: InvalidMetadataError}, "broken GeoJSON", where=where
    ):
        return shapely.from_geojson(np.array(texts, object))


def _geojson_crs(document: Mapping[str, Any]) -> Any:
    """CRS by the member that GeoJSON of 2008 had and GDAL writes; else none is told."""
    member = document.get("crs")
    properties = member.get("properties") if isinstance(member, Mapping) else None
    return properties.get("name") if isinstance(properties, Mapping) else None


def _properties(features: Sequence[Any], keep: Sequence[str], where: str) -> dict[str, Any]:
    rows = [one.get("properties") or {} for one in features]
    kept = {}
    for name in keep:
        if not any(isinstance(row, Mapping) and name in row for row in rows):
            raise InvalidInputError("zones have no such column", where=where, found=shown(name))
        values = [row.get(name) if isinstance(row, Mapping) else None for row in rows]
        with translated(_BROKEN, f"column {shown(name)} has values of several types", where=where):
            kept[name] = pa.array(values)
    return kept


def geojson_file(source: Source, keep: Sequence[str], limits: Limits) -> Found:
    """A GeoJSON file."""
    wide = replace(limits, json_bytes=limits.table_bytes)
    (piece,) = source.fetch([Whole(wide.json_bytes)])
    return of_geojson(strictjson.loads(piece.data, source.href, wide), keep, source.href)


# -- GeoPackage 1.3 -------------------------------------------------------------------------------


def geopackage(source: Source, layer: str | None, keep: Sequence[str], limits: Limits) -> Found:
    """A layer of features; the file is read into memory, so that it may be anywhere."""
    (piece,) = source.fetch([Whole(limits.table_bytes)])
    where = source.href
    with (
        # SQLite says that memory is short of some broken files, too.
        translated(
            {**_BROKEN, MemoryError: InvalidMetadataError}, "broken GeoPackage", where=where
        ),
        closing(sqlite3.connect(":memory:")) as database,
    ):
        database.deserialize(piece.data)
        # What the file defines must not run functions; triggers and views of strangers could.
        database.execute("PRAGMA trusted_schema = OFF")
        table, column, crs = _layer(database, layer, where)
        names = {row[1] for row in database.execute(f"PRAGMA table_info({_quoted(table)})")}
        for name in keep:
            if name not in names:
                raise InvalidInputError("zones have no such column", where=where, found=shown(name))
        columns = ", ".join(map(_quoted, [column, *keep]))
        rows = database.execute(
            f"SELECT {columns} FROM {_quoted(table)} ORDER BY rowid"  # noqa: S608 - quoted
        ).fetchall()
        blobs = pa.array([_wkb(row[0], where) for row in rows], pa.binary())
        kept = {name: pa.array([row[n] for row in rows]) for n, name in enumerate(keep, 1)}
    return wkb.to_shapely(blobs, where), crs, kept


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
            "a GeoPackage of several layers" if chosen else "no such layer in the GeoPackage",
            where=where,
            found=", ".join(shown(row[0]) for row in found),
            expected="the name of one of them as layer",
        )
    table, column, number, organisation, code, definition = chosen[0]
    if not isinstance(table, str) or not isinstance(column, str):
        raise InvalidMetadataError("a layer without a name", where=where)
    if number in _UNKNOWN_CRS:
        return table, column, None
    known = isinstance(organisation, str) and organisation.upper() not in {"NONE", "CUSTOM"}
    return table, column, f"{organisation}:{code}" if known else definition


def _wkb(blob: Any, where: str) -> bytes | None:
    """The WKB behind the header of a geometry (2.1.3)."""
    if blob is None:
        return None
    if not isinstance(blob, bytes) or blob[:2] != b"GP" or len(blob) < 8:
        raise InvalidMetadataError("a geometry that is none of GeoPackage", where=where)
    return blob[8 + int(_ENVELOPES[blob[3] >> 1 & 7]) :]


# -- Shapefile ------------------------------------------------------------------------------------


def shapefile(source: Source, keep: Sequence[str]) -> Found:
    """A Shapefile of this machine, by geopandas."""
    mend = "make it a GeoPackage: ogr2ogr zones.gpkg zones.shp"
    try:
        import geopandas  # type: ignore[import-untyped]  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "a Shapefile needs geopandas",
            where=source.href,
            hint=f"pip install geopandas, or {mend}",
        ) from error
    if not source.location.is_local:
        raise InvalidInputError("a Shapefile must be a local file", where=source.href, hint=mend)
    broken = (RuntimeError, ValueError, OSError, shapely.errors.ShapelyError)
    with translated(
        dict.fromkeys(broken, InvalidMetadataError),
        "broken Shapefile",
        where=source.href,
    ):
        frame = geopandas.read_file(source.href)
    for name in keep:
        if name not in frame.columns:
            raise InvalidInputError(
                "zones have no such column", where=source.href, found=shown(name)
            )
    return np.asarray(frame.geometry, object), frame.crs, {n: pa.array(frame[n]) for n in keep}
