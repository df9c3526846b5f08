"""What commands print: tables for people on a terminal, plain lines and JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from comal.cli.options import Style
from comal.progress import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console


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
        click.echo(f"{label}  {plain_text(value)}")


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows as a table on a terminal, as tab-separated lines elsewhere."""
    if not on_terminal():
        for row in rows:
            click.echo("\t".join(plain_text(value) for value in row))
        return
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - only a terminal needs it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(header_style="bold", box=SIMPLE_HEAD)
    for number, name in enumerate(columns):
        # The first of several columns names the row and keeps its width.
        keeps = number == 0 and len(columns) > 1
        table.add_column(Text(name), no_wrap=keeps, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain_text(value)) for value in row))
    Console().print(table)


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
    from rich import progress as bars  # noqa: PLC0415 - only a terminal needs it
    from rich.console import Console  # noqa: PLC0415

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


def plain_text(value: Any) -> str:
    """A value as text of one line that no terminal takes for a command."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(plain_text(part) for part in value)
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    text = str(value)
    return text if text.isprintable() else ascii(text)[1:-1]
