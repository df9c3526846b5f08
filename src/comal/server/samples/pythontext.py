"""The lines of Python that load what is shown."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from comal.geo import times
from comal.server.cql2.texts import as_arrow, as_sql
from comal.server.samples.selecting import Selection
from comal.taco import spec as taco_spec
from comal.tortilla import spec as tortilla_spec

# What the tables of the server call otherwise than the file (`TortillaHoldings.table_of`).
_RENAMED = {
    'pc.field("id")': f'pc.field("{tortilla_spec.ID}")',
    'pc.field("type")': f'pc.if_else(pc.field("{tortilla_spec.FILE_FORMAT}") '
    f'== "{tortilla_spec.TORTILLA}", "FOLDER", "FILE")',
}


def taco_lines(title: str, selection: Selection | None = None) -> str:
    """How to load a TACO data set with these filters."""
    lines = ["from comal import taco", "", f"data = taco.load({json.dumps(title)})"]
    if selection is not None:
        if selection.filter is not None:
            condition = as_sql(selection.filter)
            query = f"SELECT * FROM data WHERE {condition}"  # noqa: S608 - shown, never run here
            lines.append(f"data = data.sql({query!r})")
        if selection.datetime is not None:
            lines.append(f"data = data.filter_datetime({json.dumps(selection.datetime)})")
        if selection.bbox is not None:
            corners = ", ".join(repr(edge) for edge in selection.bbox)
            lines.append(f"data = data.filter_bbox({corners})")
    lines.append("rows = data.data")
    return "\n".join(lines)


def tortilla_lines(title: str, schema: Any, selection: Selection | None = None) -> str:
    """How to open a Tortilla, whose rows have this schema, with these filters."""
    imports = ["from comal import tortilla"]
    lines = ["", f"rows = tortilla.open({json.dumps(title)})"]
    if selection is not None:
        conditions = []
        if selection.filter is not None:
            conditions.append(_filter_text(selection))
        if selection.datetime is not None:
            conditions += _period_texts(schema, selection.datetime)
        if conditions:
            imports.insert(0, "import pyarrow.compute as pc")
        lines += [f"rows = rows.filter({condition})" for condition in conditions]
        if selection.bbox is not None:
            needed, steps = _box_lines(schema, selection.bbox)
            imports = sorted({*imports, *needed}, key=_import_order)
            lines += steps
    return "\n".join([*imports, *lines])


def _filter_text(selection: Selection) -> str:
    text = as_arrow(selection.filter) if selection.filter is not None else ""
    for shown, stored in _RENAMED.items():
        text = text.replace(shown, stored)
    return text


def _period_texts(schema: Any, text: str) -> list[str]:
    """A condition for each end of a range of time, of the column that the server compares."""
    name = next(name for name in taco_spec.TIME_COLUMNS if name in schema.names)
    field = f"pc.field({json.dumps(name)})"
    start, end = times.parse_range(text)
    if name == tortilla_spec.TIME_START:  # whole seconds, as the specification has them
        first, last = _seconds(start, up=True), _seconds(end, up=False)
    else:
        field += '.cast("timestamp[us]").cast("int64")'
        first, last = start, end
    return [
        *([] if first is None else [f"{field} >= {first}"]),
        *([] if last is None else [f"{field} <= {last}"]),
    ]


def _seconds(microseconds: int | None, *, up: bool) -> int | None:
    if microseconds is None:
        return None
    return -(-microseconds // 1_000_000) if up else microseconds // 1_000_000


def _box_lines(schema: Any, bbox: tuple[float, ...]) -> tuple[list[str], list[str]]:
    """Imports and lines for a box, by the columns that the server compares (`places.box_mask`)."""
    box = "(" + ", ".join(repr(edge) for edge in bbox) + ")"
    if any(
        name in schema.names and pa.types.is_binary(schema.field(name).type)
        for name in taco_spec.GEOMETRY_COLUMNS
    ):
        return ["from comal.taco.reading.filters import box_filter"], [
            f'rule = box_filter({box}, "auto", 0, prune=False, schema=rows.schema)',
            "rows = rows.filter(rule.matches(*(rows[name] for name in rule.columns)))",
        ]
    shapes = ("stac:tensor_shape", tortilla_spec.RASTER_SHAPE)
    shape = next((name for name in shapes if name in schema.names), "")
    columns = (tortilla_spec.CRS, tortilla_spec.GEOTRANSFORM, shape)
    if set(columns) <= set(schema.names):
        some = ", ".join(f"rows[{json.dumps(name)}].combine_chunks()" for name in columns)
        return ["from comal.geo import boxes, footprint"], [
            f"corners = footprint.footprints({some})",
            f"rows = rows.filter(boxes.boxes_intersect(*corners, {box}))",
        ]
    return ["import shapely", "from comal.geo import boxes"], [
        f"places = shapely.from_wkt(rows[{json.dumps(tortilla_spec.CENTROID)}].to_pylist())",
        "lon, lat = shapely.get_x(places), shapely.get_y(places)",
        f"rows = rows.filter(boxes.boxes_intersect(lon, lat, lon, lat, {box}))",
    ]


def _import_order(line: str) -> tuple[bool, str]:
    """Libraries first, then comal."""
    return "comal" in line, line
