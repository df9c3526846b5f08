"""``comal raquet zonal``: statistics of the pixels within zones."""

from __future__ import annotations

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import working
from comal.cli.raquet import choices
from comal.cli.results import print_result


@click.command(
    "zonal",
    cls=Command,
    examples=(
        ("comal raquet zonal dem.parquet fields.parquet", "a line for each field, as CSV"),
        (
            "comal raquet zonal dem.parquet fields.parquet --stat mean --keep name --json",
            "means with the names of the fields",
        ),
        ("comal raquet zonal dem.parquet fields.geojson --keep name", "zones of a GeoJSON file"),
        ("comal raquet zonal rain.parquet basins.parquet --method fractional", "by exact areas"),
        (
            "comal raquet zonal cover.parquet fields.parquet --stat majority --stat variety",
            "the most frequent class, and how many there are",
        ),
    ),
)
@options.source
@click.argument("zones")
@choices.bands
@choices.stats
@choices.zoom
@choices.step
@click.option(
    "--method",
    type=click.Choice(("centre", "all_touched", "fractional")),
    default="centre",
    show_default=True,
    help="Pixels whose middle is inside; all that are touched; or by the share that is inside.",
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Also this column of the zones.")
@click.option("--layer", metavar="NAME", help="Which layer of a GeoPackage that has several.")
@options.as_csv
@options.pass_style
def command(
    style: options.Style,
    source: str,
    zones: str,
    bands: tuple[str, ...],
    stats: tuple[str, ...],
    zoom: int | None,
    step: int | None,
    method: str,
    keep: tuple[str, ...],
    layer: str | None,
    *,
    as_csv: bool,
) -> None:
    """Tell statistics of the valid pixels of X within each zone of ZONES.

    ZONES is a file of GeoParquet, GeoJSON or GeoPackage; a Shapefile needs geopandas.
    """
    with working(f"zones of {source}", style) as progress:
        table = raquet.zonal(
            source,
            zones,
            bands=bands or None,
            zoom=zoom,
            time=step,
            stats=stats or choices.STATS,
            method=method,  # type: ignore[arg-type] # click has checked it
            keep=keep,
            layer=layer,
            progress=progress,
        )
    print_result(table, as_json=style.json, as_csv=as_csv)
