"""``comal tapalcatl merge``: several tilesets as one."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import working
from comal.cli.tapalcatl.building import layout_of, layout_options, report
from comal.tapalcatl import merge


@click.command(
    "merge",
    cls=Command,
    examples=(
        ("comal tapalcatl merge north/ south/ -o both/", "two tilesets"),
        ("comal tapalcatl merge base/ new.mbtiles -o both/", "the later source counts"),
        ("comal tapalcatl merge a/ b/ -o both/ --conflict error", "refuse different tiles"),
        ("comal tapalcatl merge a/ b/ -o both/ --materialized 0,4,8 --metatile 2", "a layout"),
    ),
)
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="OUT", required=True, help="A folder, or one archive: x.zip."
)
@click.option(
    "--conflict",
    type=click.Choice(["last", "first", "error"]),
    default="last",
    help="Which tile counts where several sources have one.",
)
@layout_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    sources: tuple[str, ...],
    output: str,
    conflict: str,
    metatile: int | None,
    materialized: str | None,
    *,
    hash_in_path: bool,
    overwrite: bool,
) -> None:
    """Write the tiles of all SRC as one tileset; stored bytes are copied as they are.

    The layout is that of the first SRC whose archives can hold all tiles with directories of at
    most 64 KiB, unless it is given; where there is none, one is chosen. The report says which.
    Tiles of variants are left out.
    """
    chosen = layout_of(metatile, materialized, hash_in_path=hash_in_path)
    with working(f"merging into {output}", style) as progress:
        made = merge(
            sources, output, conflict=conflict, overwrite=overwrite, progress=progress, **chosen
        )
    report(made, style)
