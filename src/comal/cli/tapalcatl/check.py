"""``comal tapalcatl check``: every problem of a tileset that must be opened by options."""

from __future__ import annotations

from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.check import print_findings
from comal.cli.output import working
from comal.cli.tapalcatl.opening import open_options, opening_of
from comal.tapalcatl import check


@click.command(
    "check",
    cls=Command,
    examples=(
        ("comal tapalcatl check tiles", "exit code 1 when there is an error"),
        ("comal tapalcatl check tiles --level structure --json", "without the bytes of tiles"),
        ("comal tapalcatl check tilezen --t1-metatile 4 --t1-layer all", "Tapalcatl 1"),
    ),
)
@options.source
@click.option(
    "--level",
    type=click.Choice(["structure", "sample", "full"]),
    default="full",
    show_default=True,
    help="Documents and directories; also some of the tiles; or every byte.",
)
@open_options
@options.pass_style
@click.pass_context
def command(
    ctx: click.Context, style: options.Style, /, source: str, level: str, **opening: Any
) -> None:
    """List every problem of the tileset X: archives, names, documents and the tiles themselves.

    The same as 'comal check', with the options that Tapalcatl 1, hashes and variants need.
    """
    with working(f"checking {source}", style) as progress:
        found = check(source, level=level, progress=progress, **opening_of(opening))
    print_findings(found, [source], style)
    if found.errors:
        ctx.exit(1)
