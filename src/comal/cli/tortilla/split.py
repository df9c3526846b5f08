"""``comal tortilla split``: a Tortilla as a set of parts."""

from __future__ import annotations

from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import working
from comal.cli.tortilla.cutting import cut_of, cut_options, report
from comal.tortilla import split


@click.command(
    "split",
    cls=Command,
    examples=(
        ("comal tortilla split scenes.tortilla parts/scenes.tortilla --size 4GB", "by size"),
        ("comal tortilla split scenes.tortilla parts/scenes.tortilla --by region", "by a column"),
    ),
)
@options.source
@click.argument("output")
@cut_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style, /, source: str, output: str, *, overwrite: bool, **cut: Any
) -> None:
    """Write X as a set of parts named after OUTPUT; one of --size, --rows and --by says where."""
    with working(f"splitting {source}", style) as progress:
        made = split(source, output, overwrite=overwrite, progress=progress, **cut_of(**cut))
    report(made, style)
