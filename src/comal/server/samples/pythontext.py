"""The lines of Python that load what is shown."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from comal.server.cql2.texts import as_arrow, as_sql
from comal.server.cql2.tree import Node
from comal.server.samples.selecting import Selection
from comal.server.samples.values import kind_of
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
            lines.append(f"data = data.filter_bbox({_edges(selection.bbox)})")
    lines.append("rows = data.data")
    return "\n".join(lines)


def tortilla_lines(title: str, schema: Any, selection: Selection | None = None) -> str:
    """How to open a Tortilla, whose rows have this schema, with these filters."""
    lines = ["from comal import tortilla", "", f"rows = tortilla.open({json.dumps(title)})"]
    if selection is not None:
        if selection.filter is not None:
            lines.insert(0, "import pyarrow.compute as pc")
            lines.append(f"rows = rows.filter({_filter_text(selection.filter, schema)})")
        if selection.datetime is not None:
            lines.append(f"rows = rows.filter_datetime({json.dumps(selection.datetime)})")
        if selection.bbox is not None:
            lines.append(f"rows = rows.filter_bbox({_edges(selection.bbox)})")
    return "\n".join(lines)


def _edges(bbox: tuple[float, ...]) -> str:
    return ", ".join(repr(edge) for edge in bbox)


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
