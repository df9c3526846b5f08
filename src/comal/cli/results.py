"""Results of queries: any Arrow table as a table on a terminal, CSV, or JSON lines."""

from __future__ import annotations

import csv
import datetime as dt
import json
import shutil
import sys
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import click

from comal.cli.output import on_terminal, print_rows

_BATCH = 8192
_ON_TERMINAL = 100
_CUT = 32
# What stands around the cells of a column.
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
    """How many columns a terminal holds; where it does not hold all, long cells are cut."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    if sum(widths) + _GAP * len(widths) <= width:
        return len(widths)
    if len(widths) == 1:
        return 1  # it folds, and nothing of it is lost
    for row in rows:
        row[:] = [cell if len(cell) <= _CUT else cell[: _CUT - 1] + "…" for cell in row]
    ends = accumulate(
        min(size, max(_CUT, len(name))) + _GAP for name, size in zip(names, widths, strict=True)
    )
    return max(1, sum(end <= width for end in ends))


def _rows(table: Any) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=_BATCH):
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: Any) -> list[Any]:
    try:
        found: list[Any] = column.to_pylist()
    except OverflowError:  # instants that Python's calendar does not hold, as numbers
        found = [getattr(one, "value", None) for one in column]
    return found


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
        # JSON has no name for what is no number.
        return value if value == value and abs(value) != float("inf") else None  # noqa: PLR0124
    return str(value)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, list | dict) else str(plain)
