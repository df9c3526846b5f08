"""Zones out of what users have: GeoDataFrames, files of four formats, GeoJSON, shapely."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from comal import strictjson
from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.geo import wkb
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Head, run
from comal.raquet.querying import vectorfiles
from comal.storage import StorageConfig, open_source
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
        return _zones(vectorfiles.of_geojson(zones, keep, "zones"), crs)
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
    import shapely  # noqa: PLC0415

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
        if vectorfiles.is_json(head.data):
            return _zones(vectorfiles.geojson_file(source, keep, limits), crs)
        if head.data.startswith(vectorfiles.SQLITE):
            return _zones(vectorfiles.geopackage(source, layer, keep, limits), crs)
        if head.data.startswith(vectorfiles.SHAPEFILE):
            return _zones(vectorfiles.shapefile(source, keep), crs)
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


def _zones(found: vectorfiles.Found, crs: Any) -> Zones:
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
