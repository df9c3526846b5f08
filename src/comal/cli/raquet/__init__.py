"""The group ``comal raquet``: rasters as Parquet tables of tiles."""

from __future__ import annotations

import click

from comal.cli.base import Group

COMMANDS = {
    "create": ("comal.cli.raquet.create", "Convert a raster, or several as a mosaic."),
    "export": ("comal.cli.raquet.export", "Write a GeoTIFF, a COG or a PNG."),
    "partition": ("comal.cli.raquet.partition", "Cut a file along cells, each a file."),
    "merge": ("comal.cli.raquet.merge", "Write the parts of a set as one file."),
    "add-bands": ("comal.cli.raquet.add_bands", "Write the bands of two rasters as one file."),
    "sql": ("comal.cli.raquet.sql", "One SELECT over the tiles, with functions for rasters."),
    "zonal": ("comal.cli.raquet.zonal", "Statistics of the pixels within zones."),
    "stats": ("comal.cli.raquet.stats", "Statistics of the bands, out of their pixels."),
    "point": ("comal.cli.raquet.point", "The values at a place."),
    "check": ("comal.cli.raquet.check", "Every problem of a file, its statistics too."),
    "repair": ("comal.cli.raquet.repair", "A copy with everything but the pixels made right."),
    "inspect": ("comal.cli.raquet.inspect", "The metadata as they stand in the file."),
}


@click.group(
    cls=Group,
    table=COMMANDS,
    examples=(
        ("comal raquet create dem.tif dem.parquet", "convert a raster"),
        ("comal raquet export dem.parquet dem.tif", "and back, as a COG"),
        ("comal raquet point dem.parquet 11.5 48.1", "the values at a place"),
        ("comal raquet zonal dem.parquet fields.parquet --stat mean", "a mean for every field"),
        ("comal raquet sql dem.parquet 'SELECT count(*) FROM raster'", "query it"),
    ),
)
def command() -> None:
    """RaQuet: make and query rasters that are Parquet tables of tiles."""
