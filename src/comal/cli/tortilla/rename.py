"""``comal tortilla rename``: other ids for rows of a Tortilla."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done
from comal.tortilla import rename


@click.command(
    "rename",
    cls=Command,
    examples=(("comal tortilla rename scenes.tortilla old.tif=new.tif", "give a sample a new id"),),
)
@click.argument("file")
@click.argument("pairs", nargs=-1, required=True, metavar="OLD=NEW...")
@options.pass_style
def command(style: options.Style, file: str, pairs: tuple[str, ...]) -> None:
    """Give rows of the Tortilla FILE new ids; their bytes stay where they are."""
    ids = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new) or old in ids:
            raise click.BadParameter(f"{pair!r} is not OLD=NEW, or names a row twice")
        ids[old] = new
    rename(file, ids)
    done({"output": file, "ids": ids}, style, f"{file}: renamed {len(ids)}")
