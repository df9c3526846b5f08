"""``comal tortilla create``: a folder of files as a Tortilla."""

from __future__ import annotations

from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import working
from comal.cli.tortilla import cutting
from comal.cli.tortilla.cutting import cut_of, cut_options, report
from comal.errors import InvalidInputError
from comal.tortilla import Enrichment, pack_folder


@click.command(
    "create",
    cls=Command,
    examples=(
        ("comal tortilla create rasters/ scenes.tortilla", "every file below rasters/"),
        ("comal tortilla create rasters/ big.tortilla --size 4GB", "as a set of parts"),
        (
            "comal tortilla create rasters/ scenes.tortilla --manifest samples.csv",
            "only what a table lists, with its columns",
        ),
        (
            "comal tortilla create rasters/ a.tortilla --layer gdp=gdp.tif --admin 0=world.geojson",
            "with columns of responsible AI",
        ),
    ),
)
@click.argument("directory")
@click.argument("output")
@click.option(
    "--manifest",
    metavar="FILE",
    help="CSV or Parquet with id (such as a/b.tif), path and other columns; time_start becomes a "
    "STAC time. A row with an empty path is a nested Tortilla, such as a.",
)
@click.option("--pattern", multiple=True, help="Names to pack, such as '*.tif'; repeatable.")
@click.option("--no-stac", is_flag=True, help="Do not read CRS, shape and place of the rasters.")
@click.option(
    "--layer",
    multiple=True,
    metavar="NAME=RASTER",
    help="Mean over each sample as rai:NAME: elevation, cisi, gdp, hdi, gmi, pop; repeatable.",
)
@click.option(
    "--admin",
    multiple=True,
    metavar="N=AREAS",
    help="Name of the area as rai:adminN, from GeoJSON or GeoParquet; repeatable.",
)
@click.option(
    "--rai-level",
    type=click.IntRange(0),
    default=0,
    help="Items that get these columns: 0 the outermost, 1 those nested in them, ...",
)
@click.option(
    "--allow-ids",
    is_flag=True,
    help="Keep ids that are not portable: a?b, CON, two that differ in case.",
)
@cutting.peer_names
@cut_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    directory: str,
    output: str,
    manifest: str | None,
    pattern: tuple[str, ...],
    layer: tuple[str, ...],
    admin: tuple[str, ...],
    *,
    no_stac: bool,
    rai_level: int,
    allow_ids: bool,
    peer_names: bool,
    overwrite: bool,
    **cut: Any,
) -> None:
    """Pack the files below DIRECTORY as one Tortilla.

    A file becomes an item, a subfolder an item that holds items. Several parts are called
    NAME.0001.part.tortilla, NAME.0002.part.tortilla, ...
    """
    rasters = dict(_pair(text, "--layer") for text in layer)
    areas = {_level(name): path for name, path in (_pair(text, "--admin") for text in admin)}
    rai = Enrichment(rasters, areas, level=rai_level) if rasters or areas else None
    with working(f"packing {directory}", style) as progress:
        made = pack_folder(
            directory,
            output,
            manifest=manifest,
            pattern=list(pattern) or "*",
            stac=not no_stac,
            rai=rai,
            allow_ids=allow_ids,
            peer_names=peer_names,
            overwrite=overwrite,
            progress=progress,
            **cut_of(**cut),
        )
    report(made, style)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise click.BadParameter(f"{text!r} is not NAME=FILE", param_hint=option)
    return name, path


def _level(text: str) -> int:
    if not text.isdecimal():
        raise InvalidInputError(
            "unknown administrative level", found=text, expected="0, 1 or 2", where="--admin"
        )
    return int(text)
