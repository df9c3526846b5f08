"""``comal tapalcatl create``: tiles as a tileset."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import working
from comal.cli.tapalcatl.building import (
    bounds_of,
    described_options,
    entry_options,
    layout_of,
    layout_options,
    report,
)
from comal.cli.tapalcatl.opening import generation1_options, tiles_of
from comal.tapalcatl import Generation1, build


@click.command(
    "create",
    cls=Command,
    examples=(
        ("comal tapalcatl create tiles.mbtiles tiles/", "a tileset of an MBTiles file"),
        ("comal tapalcatl create tiles.mbtiles tiles.zip", "in a single archive"),
        ("comal tapalcatl create https://example.org/a.pmtiles tiles/", "of a PMTiles file"),
        ("comal tapalcatl create loose/ tiles/ --scheme tms --scale 2", "of a folder of tiles"),
        (
            "comal tapalcatl create a.mbtiles tiles/ --materialized 0,4,8 --metatile 1",
            "with a layout of its own",
        ),
        (
            "comal tapalcatl create a.mbtiles t1/ --generation 1 --metatile 8 --layer all",
            "Tapalcatl 1",
        ),
        ("comal tapalcatl create dark.mbtiles tiles/ --variant dark", "tiles below a name"),
        ("comal tapalcatl create t1/ t2/ --t1-metatile 8 --t1-layer all", "out of Tapalcatl 1"),
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="OUT")
@click.option(
    "--scheme",
    type=click.Choice(["xyz", "tms", "zyx", "ags", "gwc"]),
    help="How tiles are named in a folder; xyz if absent.",
)
@click.option(
    "--generation", type=click.Choice(["1", "2"]), default="2", help="Of Tapalcatl; 2 if absent."
)
@click.option("--layer", default="", help="Layer in keys of Tapalcatl 1.")
@click.option(
    "--keys",
    default="plain",
    help="Keys of Tapalcatl 1: plain, prefix-hash, hash-prefix, or a pattern.",
)
@click.option("--prefix", default="", help="Prefix of keys of Tapalcatl 1.")
@click.option(
    "--tile-size",
    type=click.IntRange(1),
    default=256,
    metavar="PIXELS",
    help="Pixels of the tiles, for Tapalcatl 1: 256 if absent.",
)
@click.option(
    "--tilejson",
    metavar="URL",
    help="Write TileJSON for Tapalcatl 1; the address of tiles, with {z}, {x}, {y} and {fmt}.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    metavar="N",
    help="Processes that write archives; threads of this one if absent.",
)
@click.option("--variant", metavar="NAME", help="Below this name; 'put' adds other variants.")
@click.option("--no-resume", is_flag=True, help="Start anew and keep nothing after an error.")
@layout_options
@entry_options
@described_options
@generation1_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    output: str,
    *,
    scheme: str | None,
    generation: str,
    layer: str,
    keys: str,
    prefix: str,
    tile_size: int,
    processes: int | None,
    no_resume: bool,
    metatile: int | None,
    materialized: str | None,
    hash_in_path: bool,
    bounds: str | None,
    overwrite: bool,
    **more: Any,
) -> None:
    """Write the tiles of SRC as the tileset OUT, which appears when it is complete.

    OUT is a folder, or a single archive when its name ends in .zip. SRC is an MBTiles or PMTiles
    file, a folder of tiles, or a tileset. A folder that was broken off is gone on with: finished
    archives are kept beside it. What --t1 options say is said of SRC.
    """
    if generation == "1":
        settings = Generation1(
            metatile=metatile or 4, tile_size=tile_size, layer=layer, layout=keys, prefix=prefix
        )
        chosen: dict[str, Any] = {"version": 1, "generation1": settings}
    else:
        chosen = layout_of(metatile, materialized, hash_in_path=hash_in_path)
    with ExitStack() as scope, working(f"building {output}", style) as progress:
        variant = more.pop("variant")  # of OUT: SRC is read without
        tiles = tiles_of(source, more, scope, scheme=scheme)
        if processes is not None:
            # New ones: what a fork of this process would take along, its threads and locks, is
            # not made for that.
            pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
            chosen["executor"] = scope.enter_context(pool)
        made = build(
            tiles,
            output,
            bounds=bounds_of(bounds),
            variant=variant,
            resume=not no_resume,
            overwrite=overwrite,
            progress=progress,
            **chosen,
            **more,
        )
    report(made, style)
