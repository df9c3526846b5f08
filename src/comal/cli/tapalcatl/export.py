"""``comal tapalcatl export``: tiles into another format."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.cli.tapalcatl.opening import generation1_options, tiles_of
from comal.errors import counted
from comal.tapalcatl import to_directory, to_mbtiles, to_pmtiles


@click.command(
    "export",
    cls=Command,
    examples=(
        ("comal tapalcatl export tiles/ tiles.mbtiles", "as MBTiles"),
        ("comal tapalcatl export tiles/ tiles.pmtiles", "as PMTiles"),
        ("comal tapalcatl export tiles/ loose/ --scheme tms", "as loose files"),
        ("comal tapalcatl export tiles/ a.mbtiles --ext png --scale 2", "one of several formats"),
        ("comal tapalcatl export t1/ a.mbtiles --t1-layer all --ext mvt", "out of Tapalcatl 1"),
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="DST")
@click.option("--ext", help="Only tiles of this extension.")
@click.option("--scale", type=float, help="Only tiles of this scale.")
@click.option(
    "--scheme",
    type=click.Choice(["xyz", "tms", "zyx", "ags", "gwc"]),
    default="xyz",
    help="How loose files are named.",
)
@generation1_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    output: str,
    ext: str | None,
    scale: float | None,
    scheme: str,
    *,
    overwrite: bool,
    **more: Any,
) -> None:
    """Write the tiles of SRC to DST, byte for byte: .mbtiles, .pmtiles, or a folder of files."""
    with ExitStack() as scope, working(f"writing {output}", style) as progress:
        tiles = tiles_of(source, more, scope)
        if output.lower().endswith(".mbtiles"):
            made = to_mbtiles(
                tiles, output, ext=ext, scale=scale, overwrite=overwrite, progress=progress
            )
        elif output.lower().endswith(".pmtiles"):
            made = to_pmtiles(
                tiles, output, ext=ext, scale=scale, overwrite=overwrite, progress=progress
            )
        else:
            made = to_directory(
                tiles,
                output,
                scheme=scheme,
                ext=ext,
                scale=scale,
                overwrite=overwrite,
                progress=progress,
            )
    done(made.to_dict(), style, f"{output}: {counted(made.tiles, 'tile')}")
