"""``comal raquet check``: every problem of a file, its statistics too."""

from __future__ import annotations

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.check import print_findings
from comal.cli.output import working


@click.command(
    "check",
    cls=Command,
    examples=(
        ("comal raquet check dem.parquet", "every tile is decoded, statistics are recomputed"),
        ("comal raquet check z6_32_21.parquet z6_33_21.parquet", "parts of a data set"),
    ),
)
@click.argument("sources", metavar="X...", nargs=-1, required=True)
@options.pass_style
@click.pass_context
def command(ctx: click.Context, style: options.Style, sources: tuple[str, ...]) -> None:
    """List every problem of X, as 'comal check' does, and statistics that differ from the pixels.

    Exit code 1 means that X has an error; warnings do not count.
    """
    with working(f"checking {sources[0]}", style) as progress:
        found = raquet.check(sources, statistics=True, progress=progress)
    print_findings(found, sources, style)
    if found.errors:
        ctx.exit(1)
