"""The group ``comal tortilla``: making and changing Tortilla files."""

from __future__ import annotations

import click

from comal.cli.base import Group

COMMANDS = {
    "create": ("comal.cli.tortilla.create", "Pack a folder of files, or what a manifest lists."),
    "append": ("comal.cli.tortilla.append", "Add files to a Tortilla, behind its rows."),
    "delete": ("comal.cli.tortilla.delete", "Remove rows; their bytes stay until 'compact'."),
    "set-columns": ("comal.cli.tortilla.set_columns", "Add or replace columns, from a table."),
    "drop-columns": ("comal.cli.tortilla.drop_columns", "Remove columns."),
    "rename": ("comal.cli.tortilla.rename", "Give rows other ids."),
    "compact": ("comal.cli.tortilla.compact", "Free the bytes that no row leads to."),
    "compile": ("comal.cli.tortilla.compile", "A part of a Tortilla as a file of its own."),
    "sql": ("comal.cli.tortilla.sql", "One SELECT over the items."),
    "split": ("comal.cli.tortilla.split", "A Tortilla as a set of parts."),
    "join": ("comal.cli.tortilla.join", "Parts of a set, or several Tortillas, as one file."),
}


@click.group(
    cls=Group,
    table=COMMANDS,
    examples=(
        ("comal tortilla create rasters/ scenes.tortilla", "pack a folder of GeoTIFFs"),
        ("comal tortilla append scenes.tortilla new.tif", "add to it"),
        (
            "comal tortilla compile scenes.tortilla train.tortilla --split train",
            "write a part of it",
        ),
        ("comal tortilla join scenes.0001.part.tortilla -o scenes.tortilla", "one file of parts"),
    ),
)
def command() -> None:
    """Tortilla 0.5: make, change, cut and join files of samples."""
