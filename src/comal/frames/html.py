"""What notebooks show of rows and of facts. Every text from a file is escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from comal.errors import counted

_ROWS = 10
_COLUMNS = 20
_WIDTH = 80


def _cell(value: Any) -> str:
    if isinstance(value, pa.Scalar):
        try:
            value = value.as_py()
        except (ArithmeticError, ValueError):  # a time that Python's do not reach
            value = value.value
    text = value.hex() if isinstance(value, bytes) else str(value)
    return html.escape(text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "...")


def table(shown: Any, shape: tuple[int, int]) -> str:
    """The first rows of an Arrow table that stands for one of `shape`, as an HTML table."""
    names = shown.column_names[:_COLUMNS]
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    rows = zip(*(shown.column(place)[:_ROWS] for place in range(len(names))), strict=True)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return (
        f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p>{counted(shape[0], 'row')}, {counted(shape[1], 'column')}</p></div>"
    )


def facts(shown: Mapping[str, object]) -> str:
    """Names and values as an HTML table."""
    rows = "".join(
        f"<tr><th>{_cell(key)}</th><td>{_cell(value)}</td></tr>" for key, value in shown.items()
    )
    return f"<div><table><tbody>{rows}</tbody></table></div>"
