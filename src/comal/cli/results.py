"""Results of queries: any Arrow table as a table on a terminal, CSV, or JSON lines."""

from __future__ import annotations

import csv
import datetime as dt
import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from comal.cli.output import on_terminal, print_rows

_BATCH = 8192
_ON_TERMINAL = 100


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
    print_rows(names, [[_cell(value) for value in row] for row in _rows(table[:_ON_TERMINAL])])
    if table.num_rows > _ON_TERMINAL:
        more = table.num_rows - _ON_TERMINAL
        click.echo(f"... and {more} more rows; --csv and --json print all", err=True)


def _rows(table: Any) -> Iterator[tuple[Any, ...]]:
    for batch in table.to_batches(max_chunksize=_BATCH):
        columns = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)


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
