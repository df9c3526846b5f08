"""The group ``comal tapalcatl``: tilesets in ZIP archives."""

from __future__ import annotations

import click

from comal.cli.base import Group

COMMANDS = {
    "create": ("comal.cli.tapalcatl.create", "Tiles of MBTiles, PMTiles or a folder as a tileset."),
    "put": ("comal.cli.tapalcatl.put", "Add or replace tiles, in place."),
    "delete": ("comal.cli.tapalcatl.delete", "Take tiles out, in place."),
    "compact": ("comal.cli.tapalcatl.compact", "Free the bytes that updates have left."),
    "recover": ("comal.cli.tapalcatl.recover", "An archive whose update was killed."),
    "metadata": ("comal.cli.tapalcatl.metadata", "Print or change what a tileset says."),
    "merge": ("comal.cli.tapalcatl.merge", "Several tilesets as one."),
    "split": ("comal.cli.tapalcatl.split", "A tileset as several, by zooms or by tiles."),
    "remetatile": ("comal.cli.tapalcatl.remetatile", "A tileset with another layout."),
    "export": ("comal.cli.tapalcatl.export", "Tiles as MBTiles, PMTiles or loose files."),
    "plan": ("comal.cli.tapalcatl.plan", "Archives, entries and directories of a layout."),
    "extract": ("comal.cli.tapalcatl.extract", "A part of a tileset as a tileset of its own."),
    "info": ("comal.cli.tapalcatl.info", "What a tileset is, also of Tapalcatl 1."),
    "tile": ("comal.cli.tapalcatl.tile", "One tile, or what is said of it."),
    "check": ("comal.cli.tapalcatl.check", "Every problem, also of Tapalcatl 1."),
    "site": ("comal.cli.tapalcatl.site", "A web page that reads tilesets without a server."),
}


@click.group(
    cls=Group,
    table=COMMANDS,
    examples=(
        ("comal tapalcatl plan 0-14", "how many archives and entries a layout makes"),
        (
            "comal tapalcatl extract https://example.org/tiles/meta.json alps --bbox 5,44,17,48",
            "a part of a tileset on a server",
        ),
        ("comal tapalcatl tile alps 5/16/11 --headers", "what is said of one tile"),
        ("comal tapalcatl site public tiles/", "write a page with a copy of a tileset"),
    ),
)
def command() -> None:
    """Tapalcatl: tiles in ZIP archives that are read by byte range."""
