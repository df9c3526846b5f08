"""What commands print: tables for people on a terminal, plain lines and JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from rich import progress as bars
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from comal.cli.options import Style
from comal.progress import Progress, silent

# What JSON has to escape, and what a terminal might not show.
_ESCAPED = r'["\\\x00-\x1f\x7f]|[^\x00-\x7f]'


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON object on one line."""
    click.echo(json.dumps(document, default=str))


def print_fields(fields: Mapping[str, Any], style: Style) -> None:
    """One object: JSON, or a line for each of its fields."""
    if style.json:
        print_json(fields)
        return
    known = {name: value for name, value in fields.items() if value is not None}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        label = click.style(name.ljust(width), bold=True)
        click.echo(f"{label}  {_plain(value)}")


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows as a table on a terminal, as tab-separated lines elsewhere."""
    if not on_terminal():
        for row in rows:
            click.echo("\t".join(_plain(value) for value in row))
        return
    table = Table(header_style="bold", box=SIMPLE_HEAD)
    for number, name in enumerate(columns):
        # The first of several columns names the row and keeps its width.
        keeps = number == 0 and len(columns) > 1
        table.add_column(Text(name), no_wrap=keeps, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_plain(value)) for value in row))
    Console().print(table)


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
        parts += [_replaced(text, _plain), "\t"]
    return _joined([*parts[:-1], "\n"])


def aligned_lines(table: Any) -> bytes:
    """A table of texts and integers as lines whose columns stand below one another."""
    parts = []
    for name in table.column_names:
        column = table.column(name)
        pad = pc.utf8_lpad if pa.types.is_integer(column.type) else pc.utf8_rpad
        text = _replaced(pc.fill_null(_text(column), ""), _plain)
        width = pc.max(pc.utf8_length(text)).as_py() or 0
        parts += [pad(text, width), "  "]
    return _joined([*parts[:-1], "\n"])


def write_bytes(data: bytes) -> None:
    """Bytes to standard output, after the text that was printed before."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


@contextmanager
def working(what: str, style: Style, console: Console | None = None) -> Iterator[Progress]:
    """A bar with `what` on a terminal while something long runs; nothing elsewhere.

    What it yields tells how far the work is; while nobody calls it, the bar only moves. What is
    printed meanwhile must go through `console`, so that the bar makes way for it.
    """
    if style.quiet or style.json or not sys.stderr.isatty():
        yield silent
        return
    with bars.Progress(console=console or Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)

        def tell(done: int, total: int | None, what: str) -> None:
            shown.update(task, completed=done, total=total, description=what)

        yield tell


def done(summary: Mapping[str, Any], style: Style, text: str) -> None:
    """The end of a command that wrote something: JSON, a sentence, or nothing when quiet."""
    if style.json:
        print_json(summary)
    elif not style.quiet:
        click.echo(text)


def human_size(size: int) -> str:
    """Bytes with a unit: ``1.4 MB``."""
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"


def _plain(value: Any) -> str:
    """A value as text of one line that no terminal takes for a command."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(part) for part in value)
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    text = str(value)
    return text if text.isprintable() else ascii(text)[1:-1]


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
