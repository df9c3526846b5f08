"""``comal tortilla delete``: fewer rows in a Tortilla."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done
from comal.errors import counted
from comal.tortilla import delete


@click.command(
    "delete",
    cls=Command,
    examples=(("comal tortilla delete scenes.tortilla cloudy.tif", "remove one sample"),),
)
@click.argument("file")
@click.argument("ids", nargs=-1, required=True)
@options.pass_style
def command(style: options.Style, file: str, ids: tuple[str, ...]) -> None:
    """Remove the rows with these IDS from the Tortilla FILE.

    Their bytes stay in the file until 'comal tortilla compact'.
    """
    count = delete(file, ids=list(ids))
    done({"output": file, "samples": count}, style, f"{file}: {counted(count, 'sample')}")
