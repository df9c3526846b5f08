"""``comal tortilla drop-columns``: fewer columns in a Tortilla."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done
from comal.tortilla import drop_columns


@click.command(
    "drop-columns",
    cls=Command,
    examples=(("comal tortilla drop-columns scenes.tortilla cloud haze", "remove two columns"),),
)
@click.argument("file")
@click.argument("columns", nargs=-1, required=True)
@options.pass_style
def command(style: options.Style, file: str, columns: tuple[str, ...]) -> None:
    """Remove COLUMNS from the Tortilla FILE; those that every file needs stay."""
    drop_columns(file, list(columns))
    done({"output": file, "columns": list(columns)}, style, f"{file}: dropped {', '.join(columns)}")
