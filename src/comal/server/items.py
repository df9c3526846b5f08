"""Samples as features: selection by a request, and GeoJSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.geo import times
from comal.geo.places import CENTROIDS, GEOMETRY, TIMES, ways_of
from comal.server.cql2 import matching
from comal.server.holdings import (
    ID,
    TYPE,
    Holdings,
    Row,
    geometries,
    media_of,
    visible,
)
from comal.server.requests import Query
from comal.server.responses import bad_request, not_found, plain

PARAMETERS = (
    "bbox",
    "datetime",
    "limit",
    "offset",
    "filter",
    "filter-lang",
    "filter-crs",
    "sortby",
)
"""Parameters that choose rows; items have no others."""
TIME_ENDS = ("istac:time_end", "stac:time_end")
"""Columns with the end of a sample's time; `TIMES` have its start."""
VALUE_SCHEMAS: dict[str, dict[str, str]] = {
    "number": {"type": "number"},
    "text": {"type": "string"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
}
"""Kinds of columns that can be filtered and sorted by, with the JSON Schema of their values."""
_LANGUAGES = {"cql2-text", "cql-text"}
_MOST_OFFSET = 100_000_000


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of a table that a request selects."""

    bbox: tuple[float, ...] | None
    datetime: str | None
    filter: str | None
    """CQL2 text."""
    sort: tuple[tuple[str, str], ...]
    limit: int
    offset: int

    @classmethod
    def of(cls, query: Query, most: int) -> Selection:
        """The selection that parameters name."""
        if query.text("filter-lang") not in {None, *_LANGUAGES}:
            raise bad_request("filter-lang must be cql2-text")
        if (query.text("filter-crs") or "CRS84").rpartition("/")[2] not in {"CRS84", "4326"}:
            raise bad_request("filter-crs must be CRS84")
        # OGC API Features: a limit above the server's is reduced to the server's.
        limit = min(query.whole("limit", 100, 1, 10**9), most)
        return cls(
            bbox_of(query),
            query.text("datetime"),
            query.text("filter"),
            _order(query.text("sortby")),
            limit,
            query.whole("offset", 0, 0, _MOST_OFFSET),
        )

    def rows(self, holdings: Holdings) -> npt.NDArray[np.int64]:
        """Numbers of all outermost rows that match, in order; the page is a part of them."""
        table = holdings.table
        mask = np.ones(table.num_rows, np.bool_)
        if self.filter is not None:
            mask &= matching(self.filter, table)
        if self.datetime is not None:
            mask &= holdings.in_period(self.datetime)
        if self.bbox is not None:
            mask &= holdings.in_box(self.bbox)
        rows: npt.NDArray[np.int64] = np.flatnonzero(mask)
        if self.sort:
            rows = rows[_sorted(table.take(pa.array(rows)), self.sort)]
        return rows

    def page(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The rows of the page."""
        return rows[self.offset : self.offset + self.limit]

    def next_offset(self, count: int) -> int | None:
        """Offset of the next page, None after the last."""
        after = self.offset + self.limit
        return after if after < count else None


def bbox_of(query: Query, name: str = "bbox") -> tuple[float, ...] | None:
    """Four numbers; of six (with heights) the horizontal ones."""
    text = query.text(name)
    if text is None:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInputError("bbox must be west,south,east,north", found=shown(text)) from error
    if len(numbers) == 6:
        numbers = (numbers[0], numbers[1], numbers[3], numbers[4])
    if len(numbers) != 4:
        raise InvalidInputError("bbox must be west,south,east,north", found=shown(text))
    return numbers


def _order(text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    keys: dict[str, str] = {}
    for part in text.split(",")[:8]:
        name = part.strip()
        order = "descending" if name.startswith("-") else "ascending"
        keys.setdefault(name.lstrip("+- "), order)
    return tuple(keys.items())


def _sorted(table: Any, keys: tuple[tuple[str, str], ...]) -> npt.NDArray[np.int64]:
    for name, _ in keys:
        known = table.column_names.count(name) == 1
        if not known or kind_of(name, table.schema.field(name).type) not in VALUE_SCHEMAS:
            raise InvalidInputError(f"rows cannot be sorted by {shown(name)}")
    # Arrow reads some names as paths, so columns get numbers. The position comes last, so that
    # equal rows stay in their order.
    columns = [table.column(name) for name, _ in keys]
    columns.append(pa.array(np.arange(table.num_rows)))
    orders = [*(order for _, order in keys), "ascending"]
    placed = [(str(number), order, "at_end") for number, order in enumerate(orders)]
    numbered = pa.table(columns, names=[name for name, _, _ in placed])
    return np.asarray(pc.sort_indices(numbered, sort_keys=placed), np.int64)


_MOST_VALUES = 100


def column_stats(table: Any, rows: npt.NDArray[np.int64], name: str, bins: int) -> dict[str, Any]:
    """The document of a column over some rows of a table."""
    if name not in visible(table):
        raise not_found("there is no such column")
    field = table.schema.field(name)
    column = table.column(name)
    if len(rows) < table.num_rows:
        column = column.take(pa.array(rows))
    document: dict[str, Any] = {
        **column_of(field),
        "rows": len(column),
        "nulls": column.null_count,
    }
    kind = kind_of(name, field.type)
    if kind == "number":
        return document | _numbers(column, bins)
    if kind == "time":
        return document | _times(column, bins)
    if kind in {"text", "boolean"}:
        return document | _values(column)
    raise InvalidInputError(f"the values of {shown(name)} cannot be counted", found=kind)


def _numbers(column: Any, bins: int) -> dict[str, Any]:
    values = np.asarray(pc.drop_null(column).cast(pa.float64(), safe=False), np.float64)
    found = _spread(values[np.isfinite(values)], bins, float)
    # Extremes as they are: floats do not hold all 64 bits.
    return found | pc.min_max(column).as_py() if pa.types.is_integer(column.type) else found


def _times(column: Any, bins: int) -> dict[str, Any]:
    present = pc.drop_null(pc.cast(column, pa.timestamp("us"), safe=False))
    moments = np.asarray(present.cast(pa.int64()), np.int64)
    # Differences are small enough for float64 to the microsecond, instants are not.
    first, last = (int(moments.min()), int(moments.max())) if len(moments) else (0, 0)
    since = (moments - first).astype(np.float64)
    found = _spread(since, bins, lambda edge: shown_time(first + round(edge)))
    return found if found["max"] is None else found | {"max": shown_time(last)}


@np.errstate(over="ignore", invalid="ignore")
def histogram(values: Any, bins: int) -> tuple[Any, Any]:
    """Counts and edges of bins, of equal width as far as floats go."""
    try:
        return np.histogram(values, bins)
    except (ValueError, IndexError):
        # The range is too narrow for so many floats, or too wide for one.
        half = np.linspace(values.min() / 2, values.max() / 2, bins + 1)
        return np.histogram(values, np.maximum.accumulate(half * 2))


def _spread(values: Any, bins: int, shown: Callable[[float], Any]) -> dict[str, Any]:
    if not len(values):
        return {"min": None, "max": None, "histogram": None}
    counts, edges = histogram(values, bins)
    return {
        "min": shown(values.min()),
        "max": shown(values.max()),
        "histogram": {"edges": [shown(edge) for edge in edges], "counts": counts.tolist()},
    }


def _values(column: Any) -> dict[str, Any]:
    counted = pc.value_counts(pc.drop_null(column))
    values, counts = counted.field("values"), counted.field("counts")
    order = pc.sort_indices(
        pa.table({"count": counts, "value": values.cast(pa.string())}),
        sort_keys=[("count", "descending"), ("value", "ascending")],
    )[:_MOST_VALUES]
    return {
        "unique": len(values),
        "values": [
            {"value": plain(value), "count": count}
            for value, count in zip(
                values.take(order).to_pylist(), counts.take(order).to_pylist(), strict=True
            )
        ],
    }


_STAC = "1.1.0"
_PICTURED = frozenset({"tif", "tiff", "png", "jpg", "jpeg", "webp", "jp2"})
_PROJECTION = "https://stac-extensions.github.io/projection/v1.2.0/schema.json"
"""The last version with proj:epsg, which GDAL before 3.10 needs."""
_EPSG = re.compile(r"EPSG:(\d{4,6})", re.ASCII)
_EVER = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
_STAC_NAMES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("title", "description", "platform", "constellation", "mission"), (str,)),
    "gsd": (int, float),
    **dict.fromkeys(("datetime", "start_datetime", "end_datetime", "created", "updated"), ()),
    **dict.fromkeys(("license", "providers", "instruments", "keywords", "roles", "bands"), ()),
    **dict.fromkeys(("data_type", "nodata", "statistics", "unit"), ()),
}
"""Names of STAC's common metadata, and the types that their values may have."""


def features(holdings: Holdings, source: str, table: Any, before: str = "") -> list[dict[str, Any]]:
    """Items of all rows of a table."""
    names = [name for name in listed_columns(table) if name not in {ID, TYPE}]
    columns = {name: shown_values(table.column(name)) for name in names}
    starts, ends = (_first_moments(table, some) for some in (TIMES, TIME_ENDS))
    ids, kinds = table.column(ID).to_pylist(), table.column(TYPE).to_pylist()
    sizes = holdings.sizes(table)
    raster = [way for way in ways_of(table.schema) if way.kind == "raster"]
    placed = raster[0].columns if raster else ()
    found = []
    for row, (geometry, box) in enumerate(geometries(table)):
        properties = {name: values[row] for name, values in columns.items()}
        told = _properties(starts[row], ends[row], properties)
        one = _item(source, before + str(ids[row]), str(ids[row]), geometry, told)
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


def moments(table: Any, name: str) -> Any:
    """The instants of a column as microseconds; nulls if it is missing, or holds no times."""
    if name in table.column_names:
        try:
            return times.timestamps(table.column(name), name).cast(pa.int64())
        except InvalidInputError:
            pass  # no times; the samples are still shown
    return pa.nulls(table.num_rows, pa.int64())


def _first_moments(table: Any, names: Sequence[str]) -> list[str | None]:
    """The first time that each row has in these columns, as text."""
    found = pc.coalesce(*(moments(table, name) for name in names))
    return [shown_time(moment) for moment in found.to_pylist()]


def _item(
    source: str, path: str, name: str, geometry: Any, properties: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "Feature",
        "stac_version": _STAC,
        "stac_extensions": [],
        "id": name,
        "collection": source,
        "geometry": geometry,
        "properties": properties,
        "comal:path": path,
        "links": [],
    }


def _properties(start: Any, end: Any, columns: dict[str, Any]) -> dict[str, Any]:
    """Times as STAC requires them, and columns, renamed if STAC defines their name differently."""
    # STAC 1.1.0, common metadata: datetime is null only with both ends. For a sample without a
    # time, of which nothing is known, these are all of time.
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
    """The grid of a raster, in the form that readers such as GDAL's STACIT use."""
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
    place = quoted_path(path)
    assets: dict[str, Any] = {}
    suffix = path.rpartition(".")[2].lower()
    form = properties.get("tortilla:file_format")
    if kind == "FILE":
        media = media_of(path, form if isinstance(form, str) else None)
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


def quoted_path(path: str) -> str:
    """A path of ids as part of a URL."""
    return "/".join(quote(part, safe="") for part in path.split("/"))


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


def listed_columns(table: Any) -> list[str]:
    """Names of the columns whose values documents list: all but geometries and bytes."""
    schema = table.schema
    return [
        name
        for name in visible(table)
        if kind_of(name, schema.field(name).type) not in {"geometry", "other"}
    ]


def column_of(field: Any) -> dict[str, str]:
    """A column as the documents of the server describe it."""
    return {
        "name": field.name,
        "type": str(field.type),
        "kind": kind_of(field.name, field.type),
    }


def shown_values(column: Any) -> list[Any]:
    """The values of a listed column as JSON: times as texts in UTC, NaN as null."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        moments = pc.cast(column, pa.timestamp("us"), safe=False).cast(pa.int64())
        return [shown_time(moment) for moment in moments.to_pylist()]
    return [plain(value) for value in times.values_of(column)]


def shown_time(microseconds: int | None) -> str | None:
    """An instant as text; None for null and for years outside of the calendar."""
    if microseconds is None:
        return None
    try:
        return times.isoformat(microseconds)
    except OverflowError:
        return None
