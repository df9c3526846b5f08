"""``comal raquet partition``: a RaQuet file as several, cut along cells."""

from __future__ import annotations

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.errors import counted


@click.command(
    "partition",
    cls=Command,
    examples=(
        ("comal raquet partition dem.parquet dem/", "parts of some 128 MB"),
        ("comal raquet partition dem.parquet dem/ --zoom 6", "a part for each cell of zoom 6"),
    ),
)
@click.argument("source", metavar="X")
@click.argument("folder")
@click.option("--zoom", type=click.IntRange(0, 26), help="Zoom of the cells that get a part each.")
@click.option(
    "--target-mb",
    type=click.IntRange(1),
    default=128,
    help="Size of a part in MB, where no zoom is given.",
)
@click.option("--no-overviews", is_flag=True, help="Leave out tiles coarser than the cells.")
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    folder: str,
    zoom: int | None,
    target_mb: int,
    *,
    no_overviews: bool,
    overwrite: bool,
) -> None:
    """Write X to FOLDER as parts, each a whole RaQuet file called z6_33_22.parquet."""
    with working(f"cutting {source}", style) as progress:
        made = raquet.partition(
            source,
            folder,
            zoom=zoom,
            target_size=target_mb << 20,
            overviews=not no_overviews,
            overwrite=overwrite,
            progress=progress,
        )
    summary = {"folder": folder, "parts": [one.to_dict() for one in made]}
    done(summary, style, f"{folder}: {counted(len(made), 'part')}")
