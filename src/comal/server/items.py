"""Rows as items: GeoJSON features in the shape of STAC."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from comal.geo import times
from comal.geo.places import CENTROIDS, GEOMETRY, ways_of
from comal.server.holdings import (
    ID,
    OTHER_MEDIA,
    TYPE,
    Holdings,
    Row,
    geometries,
    media_of,
    sizes_of,
    visible,
)

_STAC = "1.1.0"
_PICTURED = frozenset({"tif", "tiff", "png", "jpg", "jpeg", "webp", "jp2"})
_TIMES = ("istac:time_start", "stac:time_start")
_PROJECTION = "https://stac-extensions.github.io/projection/v1.2.0/schema.json"
"""Of the versions the last one that has proj:epsg, which GDAL before 3.10 needs."""
_EPSG = re.compile(r"EPSG:(\d{4,6})", re.ASCII)
_EVER = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
_STAC_NAMES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("title", "description", "platform", "constellation", "mission"), (str,)),
    "gsd": (int, float),
    **dict.fromkeys(("datetime", "start_datetime", "end_datetime", "created", "updated"), ()),
    **dict.fromkeys(("license", "providers", "instruments", "keywords", "roles", "bands"), ()),
    **dict.fromkeys(("data_type", "nodata", "statistics", "unit"), ()),
}
"""Names of STAC's common metadata, and the types of columns that may stand there."""
_ENDS = ("istac:time_end", "stac:time_end")


def features(holdings: Holdings, source: str, table: Any, before: str = "") -> list[dict[str, Any]]:
    """Items of all rows of a table.

    Parameters
    ----------
    holdings
        The archive.
    source
        Name of the source, which its links begin with.
    table
        Some rows.
    before
        Path of the rows' parent with a final slash, empty at the top.
    """
    names = [
        field.name
        for field in table.schema
        if field.name in set(visible(table)) - {ID, TYPE}
        and kind_of(field.name, field.type) not in {"geometry", "other"}
    ]
    columns = {name: shown_values(table.column(name)) for name in names}
    ids, kinds = table.column(ID).to_pylist(), table.column(TYPE).to_pylist()
    sizes = sizes_of(holdings, table)
    raster = [way for way in ways_of(table.schema) if way.kind == "raster"]
    placed = raster[0].columns if raster else ()
    found = []
    for row, (geometry, box) in enumerate(geometries(table)):
        properties = {name: values[row] for name, values in columns.items()}
        one = _item(source, before + str(ids[row]), str(ids[row]), geometry, properties)
        if box is not None:
            one["bbox"] = box
        one["comal:type"] = kinds[row]
        if kinds[row] == "FILE":
            _project(one, *(properties.get(name) for name in placed))
        one["assets"] = _assets(source, one["comal:path"], kinds[row], sizes[row], properties)
        found.append(one)
    return found


def feature(holdings: Holdings, source: str, row: Row) -> dict[str, Any]:
    """The item of one row."""
    name = str(row.value(ID))
    before = row.path[: len(row.path) - len(name)]
    (found,) = features(holdings, source, row.table.slice(row.index, 1), before)
    return found


def _item(
    source: str, path: str, name: str, geometry: Any, properties: dict[str, Any]
) -> dict[str, Any]:
    start = next((properties[key] for key in _TIMES if properties.get(key)), None)
    end = next((properties[key] for key in _ENDS if properties.get(key)), None)
    return {
        "type": "Feature",
        "stac_version": _STAC,
        "stac_extensions": [],
        "id": name,
        "collection": source,
        "geometry": geometry,
        "properties": _properties(start, end, properties),
        "comal:path": path,
        "links": [],
    }


def _properties(start: Any, end: Any, columns: dict[str, Any]) -> dict[str, Any]:
    """Times as STAC wants them, and columns, which keep off the names that STAC gives a meaning."""
    # STAC 1.1.0, common metadata: datetime is null only beside both ends. Of a sample without a
    # time these are all of time, as nothing is known of it.
    found: dict[str, Any] = {"datetime": start}
    if start and end:
        found |= {"start_datetime": start, "end_datetime": end}
    elif not start:
        found |= {"start_datetime": _EVER[0], "end_datetime": end or _EVER[1]}
    for name, value in columns.items():
        kinds = _STAC_NAMES.get(name)
        if kinds is None:
            found[name] = value
        elif value is not None:
            fits = isinstance(value, kinds) and not isinstance(value, bool) and bool(value)
            found[name if fits else f"comal:{name}"] = value
    return found


def _project(item: dict[str, Any], crs: Any = None, affine: Any = None, shape: Any = None) -> None:
    """Where the pixels of a raster lie, as readers such as GDAL's STACIT take it."""
    code = _EPSG.fullmatch(crs) if isinstance(crs, str) else None
    if code is None or not affine or not shape or None in (*affine, *shape):
        return
    if len(affine) == 6 and len(shape) >= 2:
        # GDAL's geotransform begins with the corner; STAC has the rows of a matrix.
        order = (1, 2, 0, 4, 5, 3)
        item["stac_extensions"] = [_PROJECTION]
        item["properties"] |= {
            "proj:epsg": int(code[1]),
            "proj:code": crs,
            "proj:shape": shape[-2:],
            "proj:transform": [affine[at] for at in order],
        }


def _assets(
    source: str, path: str, kind: str, size: int | None, properties: dict[str, Any]
) -> dict[str, Any]:
    place = "/".join(quote(part, safe="") for part in path.split("/"))
    assets: dict[str, Any] = {}
    suffix = path.rpartition(".")[2].lower()
    form = properties.get("tortilla:file_format")
    if kind == "FILE":
        media = media_of(path)
        if media == OTHER_MEDIA and form in {"GTiff", "COG"}:
            media = media_of("x.tif")
        data: dict[str, Any] = {"href": f"{source}/data/{place}", "type": media, "roles": ["data"]}
        if size is not None and size >= 0:
            data["file:size"] = size
        assets["data"] = data
    if kind != "FILE" or suffix in _PICTURED or (form is not None and form != "BYTES"):
        assets["thumbnail"] = {
            "href": f"{source}/preview/{place}?size=256",
            "type": "image/png",
            "roles": ["thumbnail"],
        }
    return assets


_GEOMETRY = frozenset({GEOMETRY, *CENTROIDS, "geometry", "geom"})
_TEXT_GEOMETRY = frozenset({"stac:centroid"})


def kind_of(name: str, kind: Any) -> str:
    """``number``, ``text``, ``boolean``, ``time``, ``geometry``, ``list`` or ``other``."""
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "geometry" if name in _GEOMETRY or name.endswith(":geometry") else "other"
    if types.is_string(kind) or types.is_large_string(kind):
        return "geometry" if name in _TEXT_GEOMETRY else "text"
    tests = (
        ("boolean", types.is_boolean),
        ("number", types.is_integer),
        ("number", types.is_floating),
        ("number", types.is_decimal),
        ("time", types.is_timestamp),
        ("time", types.is_date),
        ("list", types.is_nested),
    )
    return next((word for word, test in tests if test(kind)), "other")


def column_of(field: Any) -> dict[str, str]:
    """A column as the documents of the server name it."""
    return {
        "name": field.name,
        "type": str(field.type),
        "kind": kind_of(field.name, field.type),
    }


def shown_values(column: Any) -> list[Any]:
    """The values of a column as JSON: times as texts in UTC, bytes and NaN as null."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        moments = pc.cast(column, pa.timestamp("us"), safe=False).cast(pa.int64())
        return [shown_time(moment) for moment in moments.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None] * len(column)
    return [plain(value) for value in column.to_pylist()]


def shown_time(microseconds: int | None) -> str | None:
    """An instant as text; None for null and for years that no calendar shows."""
    if microseconds is None:
        return None
    try:
        return times.isoformat(microseconds)
    except OverflowError:
        return None


def plain(value: Any) -> Any:
    """A Python value as JSON can say it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return plain(float(value))
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, bytes) else str(value)
