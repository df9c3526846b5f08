"""``comal raquet add-bands``: the bands of two rasters in one file."""

from __future__ import annotations

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, human_size, working


@click.command(
    "add-bands",
    cls=Command,
    examples=(
        (
            "comal raquet add-bands rgb.parquet dem.tif all.parquet --rename band_1=elevation",
            "a raster, put on the grid of the file",
        ),
        ("comal raquet add-bands a.parquet b.parquet both.parquet", "another RaQuet file"),
    ),
)
@click.argument("source", metavar="X")
@click.argument("other", metavar="OTHER")
@click.argument("output", metavar="OUTPUT")
@click.option(
    "--rename", multiple=True, metavar="OLD=NEW", help="New name for a band of OTHER; repeatable."
)
@click.option(
    "--layout",
    type=click.Choice(("sequential", "interleaved")),
    help="How tiles are stored; as in X if absent. Bands of several types need sequential.",
)
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    other: str,
    output: str,
    rename: tuple[str, ...],
    layout: str | None,
    *,
    overwrite: bool,
) -> None:
    """Write OUTPUT with the bands of X and of OTHER, a RaQuet file or a raster."""
    names = {}
    for one in rename:
        old, equals, new = one.partition("=")
        if not (old and equals and new):
            raise click.BadParameter(f"{one!r} is not OLD=NEW", param_hint="--rename")
        names[old] = new
    with working(f"adding bands to {source}", style) as progress:
        made = raquet.append_bands(
            source,
            other,
            output,
            names=names,
            layout=layout,
            overwrite=overwrite,
            progress=progress,
        )
    bands = ", ".join(made.bands)
    told = "".join(
        f"\nnodata of {name} is {value} now, which no pixel of it has"
        for name, value in made.chosen_nodata.items()
    )
    done(made.to_dict(), style, f"{output}: bands {bands}, {human_size(made.size)}{told}")
