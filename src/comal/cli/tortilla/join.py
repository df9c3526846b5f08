"""``comal tortilla join``: parts of a set, or several Tortillas, as one file."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import working
from comal.cli.tortilla.cutting import report
from comal.tortilla import join


@click.command(
    "join",
    cls=Command,
    examples=(
        ("comal tortilla join scenes.0001.part.tortilla -o scenes.tortilla", "the whole set"),
        ("comal tortilla join north.tortilla south.tortilla -o all.tortilla", "two into one"),
    ),
)
@click.argument("files", nargs=-1, required=True)
@click.option("-o", "--output", metavar="OUT", required=True, help="The file to write.")
@click.option("--allow-ids", is_flag=True, help="Keep ids that no file system could hold.")
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    files: tuple[str, ...],
    output: str,
    *,
    allow_ids: bool,
    overwrite: bool,
) -> None:
    """Join FILES in their order; of one part, the others of its set are found by their names.

    Sets must be whole, and no id may stand in two files.
    """
    sources = files[0] if len(files) == 1 else list(files)
    with working(f"writing {output}", style) as progress:
        made = join(sources, output, allow_ids=allow_ids, overwrite=overwrite, progress=progress)
    report(made, style)
