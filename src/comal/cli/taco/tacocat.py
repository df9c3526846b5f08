"""``comal taco tacocat``: one index over several archives."""

from __future__ import annotations

import click

from comal import taco
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working


@click.command(
    "tacocat",
    cls=Command,
    examples=(("comal taco tacocat parts/*.tacozip", "an index beside the archives"),),
)
@click.argument("archives", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="FOLDER", help="Write the index here; beside the archives if absent."
)
@options.any_schema
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    archives: tuple[str, ...],
    output: str | None,
    *,
    any_schema: bool,
    overwrite: bool,
) -> None:
    """Write one index over several TACO archives, so that they open as one data set.

    Both forms are written: the file __TACOCAT__ of the specification, and the folder .tacocat
    that newer readers want.
    """
    with working("writing the index", style):
        written = taco.create_tacocat(
            list(archives), output, validate_schema=not any_schema, overwrite=overwrite
        )
    paths = [str(path) for path in written]
    done({"output": paths, "archives": len(archives)}, style, "\n".join(paths))
