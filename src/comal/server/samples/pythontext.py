"""The lines of Python that load what is shown."""

from __future__ import annotations

import json

from comal.server.cql2.texts import as_arrow, as_sql
from comal.server.samples.selecting import Selection


def taco_lines(title: str, selection: Selection | None = None) -> str:
    """How to load a TACO data set with these filters."""
    lines = ["from comal import taco", "", f"data = taco.load({json.dumps(title)})"]
    if selection is not None:
        if selection.filter is not None:
            condition = as_sql(selection.filter)
            query = f"SELECT * FROM data WHERE {condition}"  # noqa: S608 - shown, never run here
            lines.append(f"data = data.sql({json.dumps(query, ensure_ascii=False)})")
        if selection.datetime is not None:
            lines.append(f"data = data.filter_datetime({json.dumps(selection.datetime)})")
        if selection.bbox is not None:
            corners = ", ".join(repr(edge) for edge in selection.bbox)
            lines.append(f"data = data.filter_bbox({corners})")
    lines.append("rows = data.data")
    return "\n".join(lines)


def tortilla_lines(title: str, selection: Selection | None = None) -> str:
    """How to open a Tortilla with these filters."""
    lines = ["from comal import tortilla", "", f"rows = tortilla.open({json.dumps(title)})"]
    if selection is not None and selection.filter is not None:
        expression = as_arrow(selection.filter).replace('pc.field("id")', 'pc.field("tortilla:id")')
        lines.insert(0, "import pyarrow.compute as pc")
        lines.append(f"rows = rows.filter({expression})")
    return "\n".join(lines)
