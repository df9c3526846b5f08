"""``comal tortilla set-columns``: new columns, or other values, in a Tortilla."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done
from comal.tortilla import set_columns
from comal.tortilla.writing.folders import read_manifest


@click.command(
    "set-columns",
    cls=Command,
    examples=(
        ("comal tortilla set-columns scenes.tortilla clouds.csv", "the columns of a table"),
        ("comal tortilla set-columns scenes.tortilla splits.csv --replace", "in place of old ones"),
    ),
)
@click.argument("file")
@click.argument("table")
@click.option("--replace", is_flag=True, help="Columns that are there already may be replaced.")
@options.pass_style
def command(style: options.Style, file: str, table: str, *, replace: bool) -> None:
    """Give the Tortilla FILE the columns of TABLE, which is CSV or Parquet.

    With a column id, rows are found by it, and rows that are not named keep their value or get
    none; else TABLE has a row for each item, in their order.
    """
    columns = read_manifest(table)
    set_columns(file, columns, replace=replace)
    names = [name for name in columns.column_names if name not in {"id", "tortilla:id"}]
    done({"output": file, "columns": names}, style, f"{file}: set {', '.join(names)}")
