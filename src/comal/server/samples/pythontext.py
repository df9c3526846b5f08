"""The lines of Python that load what is shown."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from comal.geo import times
from comal.server.cql2.texts import as_arrow, as_sql
from comal.server.cql2.tree import Node
from comal.server.samples.selecting import Selection
from comal.server.samples.values import kind_of
from comal.taco import spec as taco_spec
from comal.tortilla import spec as tortilla_spec

# What the tables of the server call otherwise than the file (`TortillaHoldings.table_of`).
_RENAMED = {
    'pc.field("id")': f'pc.field("{tortilla_spec.ID}")',
    'pc.field("type")': f'pc.if_else(pc.field("{tortilla_spec.FILE_FORMAT}") '
    f'== "{tortilla_spec.TORTILLA}", "FOLDER", "FILE")',
}


def taco_lines(title: str, schema: Any, selection: Selection | None = None) -> str:
    """How to load a TACO data set, whose rows have this schema, with these filters."""
    lines = ["from comal import taco", "", f"data = taco.load({json.dumps(title)})"]
    if selection is not None:
        if selection.filter is not None:
            condition = as_sql(selection.filter, _moments(schema))
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
            conditions.append(_filter_text(selection.filter, schema))
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


def _filter_text(condition: Node, schema: Any) -> str:
    text = as_arrow(condition, _moments(schema))
    for shown, stored in _RENAMED.items():
        text = text.replace(shown, stored)
    return text


def _moments(schema: Any) -> dict[str, tuple[str, int]]:
    """For each column of times an expression for its numbers, and their unit in microseconds."""
    found = {}
    for field in schema:
        if kind_of(field.name, field.type) == "time":
            text, unit = f"pc.field({json.dumps(field.name)})", 1_000_000
            # The two of Tortilla are whole seconds in the file, as its specification has them.
            names = {tortilla_spec.TIME_START, tortilla_spec.TIME_END}
            if field.name not in names or field.type != pa.timestamp("s"):
                text, unit = f'{text}.cast("timestamp[us]", safe=False).cast("int64")', 1
            found[field.name] = text, unit
    return found


def _period_texts(schema: Any, text: str) -> list[str]:
    """A condition for each end of a range of time, of the column that the server compares."""
    name = next(name for name in taco_spec.TIME_COLUMNS if name in schema.names)
    field, unit = _moments(schema)[name]
    start, end = times.parse_range(text)
    return [
        *([] if start is None else [f"{field} >= {-(-start // unit)}"]),
        *([] if end is None else [f"{field} <= {end // unit}"]),
    ]


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
