"""``comal tapalcatl extract``: a part of a tileset as a tileset of its own."""

from __future__ import annotations

from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, human_size, working
from comal.cli.tapalcatl.opening import box_of, numbers_of, open_options, opening_of
from comal.errors import InvalidInputError, counted
from comal.tapalcatl.extracting import extract


@click.command(
    "extract",
    cls=Command,
    examples=(
        (
            "comal tapalcatl extract https://example.org/tiles/meta.json alps --bbox 5,44,17,48",
            "a box, from a server",
        ),
        (
            "comal tapalcatl extract tiles alps --geojson alps.geojson --max-zoom 12",
            "an outline, down to a zoom",
        ),
        (
            "comal tapalcatl extract tiles alps --bbox 5,44,17,48 --overview-zoom 5",
            "with the whole world as a background",
        ),
        ("comal tapalcatl extract tiles --bbox 5,44,17,48 --dry-run", "what it would cost"),
    ),
)
@options.source
@click.argument("output", required=False)
@click.option("--bbox", metavar="W,S,E,N", help="Tiles that touch this box, in degrees.")
@click.option("--geojson", metavar="FILE", help="Tiles that touch what is in this file.")
@click.option("--min-zoom", type=click.IntRange(0), help="First zoom to take.")
@click.option("--max-zoom", type=click.IntRange(0), help="Last zoom to take.")
@click.option(
    "--overview-zoom",
    type=click.IntRange(0),
    help="Take all tiles down to this zoom, wherever they are.",
)
@click.option("--metatile", type=click.IntRange(1), help="Layout of the extract; that of X.")
@click.option("--materialized", metavar="Z,Z,...", help="Layout of the extract; that of X.")
@click.option("--dry-run", is_flag=True, help="Tell tiles, bytes and requests; write nothing.")
@open_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    output: str | None,
    bbox: str | None,
    geojson: str | None,
    min_zoom: int | None,
    max_zoom: int | None,
    overview_zoom: int | None,
    metatile: int | None,
    materialized: str | None,
    *,
    dry_run: bool,
    overwrite: bool,
    **opening: Any,
) -> None:
    """Copy a part of the tileset X to OUTPUT, each tile byte by byte.

    OUTPUT is a folder, or a single archive when its name ends in .zip.

    Only directories of archives that the part touches are read, and only the tiles of the part;
    neighbours come in one request.
    """
    if output is None and not dry_run:
        raise InvalidInputError("no target to write to", where="OUTPUT", hint="or --dry-run")
    with working(f"extracting from {source}", style) as progress:
        found = extract(
            source,
            output,
            bbox=box_of(bbox),
            geometry=geojson,
            min_zoom=min_zoom,
            max_zoom=max_zoom,
            overview_zoom=overview_zoom,
            metatile=metatile,
            materialized_zooms=numbers_of(materialized, "--materialized"),
            dry_run=dry_run,
            overwrite=overwrite,
            progress=progress,
            **opening_of(opening),
        )
    text = (
        f"{counted(found.tiles, 'tile')} of {human_size(found.bytes)} "
        f"in {counted(found.archives, 'archive')}: "
        f"{counted(found.requests, 'request')} for {human_size(found.transferred)}, "
        f"and {found.directories:,} for {human_size(found.directory_bytes)} with directories"
    )
    done(found.to_dict(), style, text if output is None or dry_run else f"{output}: {text}")
