"""What notebooks show of datasets and frames. Every text from a file is escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comal.taco.reading.dataset import TacoDataset
    from comal.taco.reading.frame import TacoDataFrame

_ROWS = 10
_COLUMNS = 20
_WIDTH = 80


def _cell(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return html.escape(text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "...")


def frame(shown: TacoDataFrame) -> str:
    """The first rows of a frame as an HTML table."""
    rows, columns = shown.shape
    names = shown.columns[:_COLUMNS]
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(row[name])}</td>" for name in names) + "</tr>"
        for row in shown.to_arrow().select(names).slice(0, _ROWS).to_pylist()
    )
    return (
        f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{rows} rows, {columns} columns</p></div>"
    )


def dataset(shown: TacoDataset) -> str:
    """The description of a dataset as an HTML table."""
    facts: Mapping[str, Any] = {
        "id": shown.id,
        "title": shown.title or "",
        "version": shown.dataset_version or "",
        "description": shown.description or "",
        "tasks": ", ".join(map(str, shown.tasks)),
        "licenses": ", ".join(map(str, shown.licenses)),
        "spatial extent": shown.extent.get("spatial", ""),
        "temporal extent": shown.extent.get("temporal", ""),
        "location": shown.location,
        "levels": ", ".join(
            f"level {n}: {shown.pit_schema.rows(n)} rows" for n in range(shown.pit_schema.levels)
        ),
    }
    rows = "".join(
        f"<tr><th>{_cell(key)}</th><td>{_cell(value)}</td></tr>" for key, value in facts.items()
    )
    return f"<div><table><tbody>{rows}</tbody></table></div>"
