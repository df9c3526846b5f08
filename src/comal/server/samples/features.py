"""Rows as items: GeoJSON features in the shape of STAC."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from comal.server.samples.holdings import (
    ID,
    OTHER_MEDIA,
    TYPE,
    Holdings,
    Row,
    media_of,
    sizes_of,
    visible,
)
from comal.server.samples.places import box_of, geometries
from comal.server.samples.values import kind_of, shown_values

_STAC = "1.1.0"
_PICTURED = frozenset({"tif", "tiff", "png", "jpg", "jpeg", "webp", "jp2"})
_TIMES = ("istac:time_start", "stac:time_start")
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
    found = []
    for row, geometry in enumerate(geometries(table)):
        properties = {name: values[row] for name, values in columns.items()}
        one = _item(source, before + str(ids[row]), str(ids[row]), geometry, properties)
        one["comal:type"] = kinds[row]
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
    times: dict[str, Any] = {"datetime": start}
    if start and end:
        times |= {"start_datetime": start, "end_datetime": end}
    item: dict[str, Any] = {
        "type": "Feature",
        "stac_version": _STAC,
        "stac_extensions": [],
        "id": name,
        "collection": source,
        "geometry": geometry,
        "properties": {**times, **properties},
        "comal:path": path,
        "links": [],
    }
    box = box_of(geometry)
    if box is not None:
        item["bbox"] = box
    return item


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
