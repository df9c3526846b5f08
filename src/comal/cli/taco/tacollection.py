"""``comal taco tacollection``: one TACOLLECTION.json over several archives."""

from __future__ import annotations

import click

from comal import taco
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done


@click.command(
    "tacollection",
    cls=Command,
    examples=(("comal taco tacollection parts/*.tacozip -o parts/", "the sum of the parts"),),
)
@click.argument("archives", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="FOLDER", help="Write it here; beside the archives if absent."
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
    """Write TACOLLECTION.json over several TACO archives: counts summed, extents united."""
    written = taco.create_tacollection(
        list(archives), output, validate_schema=not any_schema, overwrite=overwrite
    )
    done({"output": str(written), "archives": len(archives)}, style, str(written))
