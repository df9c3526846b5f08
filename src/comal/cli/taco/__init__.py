"""The group ``comal taco``: what only TACO can do."""

from __future__ import annotations

import click

from comal.cli.base import Group

COMMANDS = {
    "create": ("comal.cli.taco.create", "Pack a folder of rasters, or what a manifest lists."),
    "sql": ("comal.cli.taco.sql", "Run one SELECT over the samples."),
    "export": ("comal.cli.taco.export", "A filtered data set as an archive of its own."),
    "concat": ("comal.cli.taco.concat", "Several data sets joined into one archive."),
    "tacocat": ("comal.cli.taco.tacocat", "One index over several archives."),
    "tacollection": ("comal.cli.taco.tacollection", "One TACOLLECTION.json over several archives."),
    "zip2folder": ("comal.cli.taco.zip2folder", "Unpack an archive into the folder form."),
    "folder2zip": ("comal.cli.taco.folder2zip", "Pack the folder form into one archive."),
}


@click.group(
    cls=Group,
    table=COMMANDS,
    examples=(
        ("comal taco create rasters/ scenes.tacozip", "pack a folder of GeoTIFFs"),
        ("comal taco sql scenes.tacozip 'SELECT count(*) FROM data'", "query it"),
        ("comal taco export scenes.tacozip clear.tacozip --where 'cloud_cover < 10'", "cut a part"),
    ),
)
def command() -> None:
    """TACO 2.0: make, query, cut, join and convert data sets of samples."""
