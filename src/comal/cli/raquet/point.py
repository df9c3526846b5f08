"""``comal raquet point``: the values at a place."""

from __future__ import annotations

import click
import numpy as np

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import print_fields
from comal.cli.raquet import choices


@click.command(
    "point",
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    examples=(
        ("comal raquet point dem.parquet 11.5 48.1", "longitude, then latitude"),
        ("comal raquet point dem.parquet -122.4 37.7 --json", "as one JSON object"),
    ),
)
@options.source
@click.argument("lon", type=click.FloatRange(-180, 180))
@click.argument("lat", type=click.FloatRange(-90, 90))
@choices.bands
@choices.zoom
@choices.step
@click.option("--scaled", is_flag=True, help="Physical values: pixel x scale + offset.")
@options.pass_style
def command(
    style: options.Style,
    source: str,
    lon: float,
    lat: float,
    bands: tuple[str, ...],
    zoom: int | None,
    step: int | None,
    *,
    scaled: bool,
) -> None:
    """Tell the value of each band of X at LON LAT, in degrees; nothing where there is none."""
    with raquet.open(source) as file:
        names = list(bands) or list(file.metadata.band_names)
        values = [
            file.point(lon, lat, [name], zoom=zoom, time=step, masked=True, scaled=scaled)
            for name in names
        ]
    fields = {
        name: None if np.ma.getmaskarray(value)[0] else value[0].item()
        for name, value in zip(names, values, strict=True)
    }
    print_fields(fields, style)
