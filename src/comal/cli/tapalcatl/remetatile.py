"""``comal tapalcatl remetatile``: a tileset with another layout."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import working
from comal.cli.tapalcatl.building import layout_of, layout_options, report
from comal.tapalcatl import remetatile


@click.command(
    "remetatile",
    cls=Command,
    examples=(
        ("comal tapalcatl remetatile tiles/ new/ --metatile 4", "wider archives"),
        ("comal tapalcatl remetatile tiles/ new/ --materialized 0,6,12", "deeper ones"),
        ("comal tapalcatl remetatile tiles/ tiles.zip", "one archive for all tiles"),
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="OUT")
@layout_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    output: str,
    metatile: int | None,
    materialized: str | None,
    *,
    hash_in_path: bool,
    overwrite: bool,
) -> None:
    """Write the tileset SRC with other archives; stored bytes are copied as they are.

    OUT is a folder, or a single archive when its name ends in .zip.
    """
    chosen = layout_of(metatile, materialized, hash_in_path=hash_in_path)
    with working(f"writing {output}", style) as progress:
        made = remetatile(source, output, overwrite=overwrite, progress=progress, **chosen)
    report(made, style)
