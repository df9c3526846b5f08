"""What commands print: tables for people on a terminal, plain lines and JSON for programs."""

from __future__ import annotations

import csv
import datetime as dt
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import click

from comal.cli.app import styled
from comal.cli.options import Style
from comal.errors import InvalidInputError, without_secrets
from comal.progress import Progress, telling

if TYPE_CHECKING:
    from rich.console import Console

_UNPRINTABLE = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


def on_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout.isatty()


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON object on one line, with values as those of rows."""
    click.echo(json.dumps(_plain(dict(document))))


def print_fields(fields: Mapping[str, Any], style: Style) -> None:
    """One object: JSON, or a line for each of its fields."""
    if style.json:
        print_json(fields)
        return
    known = {name: value for name, value in fields.items() if value is not None}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        label = styled(name.ljust(width), bold=True)
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
    """The value after a key: a mapping in brackets, anything else after a colon."""
    return f" ({_in_words(value)})" if isinstance(value, Mapping) else f": {_in_words(value)}"


def _named(value: Any) -> str:
    """One element of a list: its name first, if it has one."""
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
        The bytes are not text, and standard output is a terminal, which may run them as commands.
    """
    if on_terminal() and _UNPRINTABLE.search(data):
        raise InvalidInputError(
            "these bytes are not text for a terminal",
            hint="write them to a file with -o FILE, or pass them to another program",
        )
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def write_file(output: str, data: bytes, source: str, *, overwrite: bool) -> None:
    """Write bytes of `source` to a file; replaces only an older file of the same kind."""
    from comal.storage import targets  # noqa: PLC0415 - help needs none of it
    from comal.storage.targets import like  # noqa: PLC0415

    with targets.new_file(output, overwrite, like(data), source) as file:
        file.write(data)


def working(
    what: str, style: Style, console: Console | None = None
) -> AbstractContextManager[Progress]:
    """A bar with `what` on a terminal while something long runs; nothing elsewhere.

    See `comal.progress.telling`.
    """
    quiet = style.quiet or style.json
    return telling(None, quiet=quiet, what=without_secrets(what), console=console)


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
        return f"{value:.8g}"  # a metre of a degree; more would show the noise of float32
    if isinstance(value, list | tuple):
        return ", ".join(plain_text(part) for part in value)
    if isinstance(value, dict):
        return json.dumps(value, default=str)
    text = str(value)
    return text if text.isprintable() else ascii(text)[1:-1]


# -- rows of a query ------------------------------------------------------------------------------

_BATCH = 8192
_ON_TERMINAL = 100
_CUT = 32
# Space and borders around the cells of a column.
_GAP = 3


def print_result(table: Any, *, as_json: bool, as_csv: bool) -> None:
    """Print the rows of `table`; binary values as hexadecimal, times in ISO 8601."""
    names = list(table.column_names)
    if as_json:
        for row in _rows(table):
            click.echo(json.dumps(dict(zip(names, map(_plain, row), strict=True))))
        return
    if as_csv or not on_terminal():
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_cell(value) for value in row] for row in _rows(table))
        return
    rows = [[_cell(value) for value in row] for row in _rows(table[:_ON_TERMINAL])]
    shown = _fitting(names, rows, shutil.get_terminal_size().columns)
    print_rows(names[:shown], [row[:shown] for row in rows])
    more = []
    if table.num_rows > _ON_TERMINAL:
        more.append(f"{table.num_rows - _ON_TERMINAL} more rows")
    if shown < len(names):
        more.append(f"{len(names) - shown} more columns ({', '.join(names[shown:])})")
    if more:
        click.echo(f"... and {' and '.join(more)}; --csv and --json print all", err=True)


def _fitting(names: list[str], rows: list[list[str]], width: int) -> int:
    """How many columns fit into `width`; if not all do, long cells are cut."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    if sum(widths) + _GAP * len(widths) <= width:
        return len(widths)
    if len(widths) == 1:
        return 1  # it wraps, and nothing is lost
    for row in rows:
        row[:] = [cell if len(cell) <= _CUT else cell[: _CUT - 1] + "…" for cell in row]
    ends = accumulate(
        min(size, max(_CUT, len(name))) + _GAP for name, size in zip(names, widths, strict=True)
    )
    return max(1, sum(end <= width for end in ends))


def _rows(table: Any) -> Iterator[tuple[Any, ...]]:
    from comal.geo.times import values_of  # noqa: PLC0415 - help needs none of it

    for batch in table.to_batches(max_chunksize=_BATCH):
        yield from zip(*map(values_of, batch.columns), strict=True)


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        # JSON has no NaN and no infinity.
        return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124
    return str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return str(value)
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, list | dict) else str(plain)
