"""``comal tortilla compact``: free what changes have left behind."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, human_size, working
from comal.tortilla import compact


@click.command(
    "compact",
    cls=Command,
    examples=(
        ("comal tortilla compact scenes.tortilla", "in its place"),
        ("comal tortilla compact scenes.tortilla -o small.tortilla", "into another file"),
    ),
)
@click.argument("file")
@click.option("-o", "--output", metavar="FILE", help="Write here instead of in its place.")
@options.overwrite
@options.pass_style
def command(style: options.Style, file: str, output: str | None, *, overwrite: bool) -> None:
    """Write the Tortilla FILE anew, without the bytes that no row leads to."""
    with working(f"compacting {file}", style) as progress:
        saved = compact(file, output, overwrite=overwrite, progress=progress)
    target = output or file
    text = f"{target}: {human_size(abs(saved))} {'smaller' if saved >= 0 else 'larger'}"
    done({"output": target, "saved": saved}, style, text)
