"""What commands print: tables for people on a terminal, plain lines and JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from comal.cli.options import Style
from comal.errors import InvalidInputError, without_secrets
from comal.progress import Progress, silent

if TYPE_CHECKING:
    from rich.console import Console

_SHARE_AND_TIME = 16
"""Columns that "100%", the time that is left and the gaps take."""
_UNPRINTABLE = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


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
        click.echo(f"{label}  {_in_words(value)}")


def _in_words(value: Any) -> str:
    """A field for people; programs ask for JSON."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{_in_words(key)}{_behind(one)}" for key, one in value.items()) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(_named, value)) or "-"
    return plain_text(value)


def _behind(value: Any) -> str:
    """What a key says: simple values behind a colon, more of them in brackets."""
    return f" ({_in_words(value)})" if isinstance(value, Mapping) else f": {_in_words(value)}"


def _named(value: Any) -> str:
    """One of several: its name first, where it has one."""
    if not isinstance(value, Mapping) or "name" not in value:
        return _in_words(value)
    rest = {key: one for key, one in value.items() if key != "name" and one is not None}
    return _in_words(value["name"]) + (f" ({_in_words(rest)})" if rest else "")


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
    """Bytes to standard output, after the text that was printed before.

    Raises
    ------
    InvalidInputError
        They are no text, and standard output is a terminal, which may take them for commands.
    """
    if on_terminal() and _UNPRINTABLE.search(data):
        raise InvalidInputError(
            "these bytes are no text for a terminal",
            hint="write them to a file with -o FILE, or pass them to another program",
        )
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
    what = without_secrets(what)
    from rich import progress as bars  # noqa: PLC0415 - only a terminal needs it
    from rich.console import Console  # noqa: PLC0415

    screen = console or Console(stderr=True)
    # Without a bound of their own long words leave no place for the bar and the share.
    bar = max(8, min(40, screen.width // 4))
    words = max(8, screen.width - bar - _SHARE_AND_TIME)
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(bar),
        bars.TaskProgressColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=screen, transient=True) as shown:
        task = shown.add_task(shortened(what, words), total=None)

        def tell(done: int, total: int | None, what: str) -> None:
            shown.update(task, completed=done, total=total, description=shortened(what, words))

        yield tell


def shortened(text: str, width: int) -> str:
    """A text without its middle where it is too long: the end of a path says most of it."""
    if len(text) <= width:
        return text
    head = width // 3
    return f"{text[:head]}...{text[head + 3 - width :]}"


def done(summary: Mapping[str, Any], style: Style, text: str) -> None:
    """The end of a command that wrote something: JSON, a sentence, or nothing when quiet."""
    if style.json:
        plain = {
            key: without_secrets(value) if isinstance(value, str) else value
            for key, value in summary.items()
        }
        print_json(plain)
    elif not style.quiet:
        click.echo(without_secrets(text))


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
