"""``comal tapalcatl split``: a tileset as several."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.cli.tapalcatl.building import layout_of, layout_options
from comal.errors import counted
from comal.tapalcatl import split


@click.command(
    "split",
    cls=Command,
    examples=(
        ("comal tapalcatl split tiles/ parts/ --zooms 0-7 --zooms 8-14", "by zooms"),
        ("comal tapalcatl split tiles/ parts/ --at 4", "a tileset for each tile of zoom 4"),
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="DIR")
@click.option("--zooms", multiple=True, metavar="A-B", help="A part for these zooms; repeatable.")
@click.option("--at", type=click.IntRange(0, 30), help="A part for each tile of this zoom.")
@layout_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    output: str,
    zooms: tuple[str, ...],
    at: int | None,
    metatile: int | None,
    materialized: str | None,
    *,
    hash_in_path: bool,
    overwrite: bool,
) -> None:
    """Write the tiles of SRC as several tilesets, each in a folder below DIR.

    Parts have the layout of SRC unless another one is given.
    """
    if (at is None) == (not zooms):
        raise click.UsageError("Give either --zooms or --at.")
    pairs = [_pair(text) for text in zooms] or None
    more = layout_of(metatile, materialized, hash_in_path=hash_in_path, overwrite=overwrite)
    with working(f"splitting {source}", style) as progress:
        parts = split(source, output, zooms=pairs, at=at, progress=progress, **more)
    lines = [f"{part.output}: {counted(part.tiles, 'tile')}" for part in parts.values()]
    found = {name: part.to_dict() for name, part in parts.items()}
    done({"output": output, "parts": found}, style, "\n".join(lines))


def _pair(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not (low.isdecimal() and (high or low).isdecimal()):
        raise click.BadParameter(f"{text!r} is not A-B", param_hint="--zooms")
    return int(low), int(high or low)
