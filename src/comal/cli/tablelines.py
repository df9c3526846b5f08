"""Tables as lines of text, column by column: JSON, between tabs, and below one another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from comal.cli.output import plain_text

# What JSON has to escape, and what a terminal might not show.
_ESCAPED = r'["\\\x00-\x1f\x7f]|[^\x00-\x7f]'


def json_lines(table: Any) -> bytes:
    """A table of texts and integers as JSON, one object a line, without an object per row.

    Lists are written as they are, each by itself.
    """
    parts: list[Any] = []
    for number, name in enumerate(table.column_names):
        parts.append(("{" if number == 0 else ", ") + json.dumps(name) + ": ")
        column = table.column(name)
        if pa.types.is_nested(column.type):
            texts = [json.dumps(value) for value in column.to_pylist()]
            parts.append(pa.array(texts, pa.large_string()))
            continue
        parts.append(_json_values(_text(column), column.type))
    return _joined([*parts, "}\n"])


def tab_lines(table: Any) -> bytes:
    """A table of texts and integers as lines of values between tabs."""
    parts = []
    for name in table.column_names:
        text = pc.fill_null(_text(table.column(name)), "")
        parts += [_replaced(text, plain_text), "\t"]
    return _joined([*parts[:-1], "\n"])


def aligned_lines(table: Any) -> bytes:
    """A table of texts and integers as lines whose columns stand below one another."""
    parts = []
    for name in table.column_names:
        column = table.column(name)
        pad = pc.utf8_lpad if pa.types.is_integer(column.type) else pc.utf8_rpad
        text = _replaced(pc.fill_null(_text(column), ""), plain_text)
        width = pc.max(pc.utf8_length(text)).as_py() or 0
        parts += [pad(text, width), "  "]
    return _joined([*parts[:-1], "\n"])


def _text(column: Any) -> Any:
    return column.combine_chunks().cast(pa.large_string())


def _json_values(text: Any, kind: Any) -> Any:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        escaped = _replaced(text, lambda value: json.dumps(value)[1:-1])
        text = pc.binary_join_element_wise(_wide('"'), escaped, _wide('"'), _wide(""))
    return pc.fill_null(text, "null")


def _replaced(text: Any, escape: Any) -> Any:
    """The column with `escape` applied to the few values that need it."""
    odd = pc.fill_null(pc.match_substring_regex(text, _ESCAPED), False)
    if not pc.any(odd).as_py():
        return text
    values = [escape(value) for value in text.filter(odd).to_pylist()]
    return pc.replace_with_mask(text, odd, pa.array(values, pa.large_string()))


def _joined(parts: Sequence[Any]) -> bytes:
    """The parts of each row, texts and columns, as one run of bytes."""
    wide = [_wide(part) if isinstance(part, str) else part for part in parts]
    lines = pc.binary_join_element_wise(*wide, _wide(""))
    if len(lines) == 0:
        return b""
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q")
    return bytes(memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]])


def _wide(text: str) -> Any:
    return pa.scalar(text, pa.large_string())
