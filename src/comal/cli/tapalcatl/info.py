"""``comal tapalcatl info``: what a tileset is that must be opened by options."""

from __future__ import annotations

from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import human_size, on_terminal, print_fields
from comal.cli.tapalcatl.opening import open_options, opening_of
from comal.formats.tapalcatl import TapalcatlArchive
from comal.tapalcatl import open as open_tileset


@click.command(
    "info",
    cls=Command,
    examples=(
        ("comal tapalcatl info tiles", "archives, tiles, formats and dead bytes"),
        ("comal tapalcatl info tilezen --t1-metatile 4 --t1-layer all", "of Tapalcatl 1"),
    ),
)
@options.source
@open_options
@options.pass_style
def command(style: options.Style, /, source: str, **opening: Any) -> None:
    """Tell what the tileset X is: its layout, formats, tiles, and the bytes that updates have left.

    The same as 'comal info', with the options that Tapalcatl 1, hashes and variants need.
    """
    with open_tileset(source, **opening_of(opening)) as tileset:
        tileset.learn_formats()
        fields = {"format": "tapalcatl", **TapalcatlArchive(tileset).describe()}
    if not style.json and on_terminal() and isinstance(fields.get("size"), int):
        fields["size"] = f"{human_size(fields['size'])} ({fields['size']} bytes)"
    print_fields(fields, style)
