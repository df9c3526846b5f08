"""``comal tapalcatl put``: tiles into archives that are there."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.cli.tapalcatl.building import entry_options, tile_of
from comal.cli.tapalcatl.opening import generation1_of, generation1_options
from comal.errors import InvalidInputError, counted
from comal.tapalcatl import open_tiles, put


@click.command(
    "put",
    cls=Command,
    examples=(
        ("comal tapalcatl put tiles/ --tile 5/10/23=new.png", "one tile"),
        ("comal tapalcatl put tiles/ changed.mbtiles", "all tiles of a file"),
        ("comal tapalcatl put tiles/4/0/4.zip --tile 5/10/23=new.png", "into one archive"),
        ("comal tapalcatl put t1/ new.mbtiles --t1-metatile 8 --t1-layer all", "Tapalcatl 1"),
    ),
)
@click.argument("target", metavar="X")
@click.argument("source", metavar="SRC", required=False)
@click.option("--tile", "tiles", multiple=True, metavar="Z/X/Y=FILE", help="A tile; repeatable.")
@click.option("--variant", metavar="NAME", help="Below this name, beside tiles of other variants.")
@entry_options
@generation1_options
@options.pass_style
def command(
    style: options.Style,
    /,
    target: str,
    source: str | None,
    *,
    tiles: tuple[str, ...],
    variant: str | None,
    **more: Any,
) -> None:
    """Add or replace tiles of the tileset or archive X, without rewriting what is there.

    Tiles come from SRC, which is all that 'create' takes, or from --tile. New bytes are appended:
    'compact' frees the old ones. Of Tapalcatl 1, X is the folder that keys are relative to.
    """
    if (source is None) == (not tiles):
        raise click.UsageError("Give either SRC or --tile.")
    with ExitStack() as scope, working(f"putting tiles into {target}", style) as progress:
        given = _tiles(tiles) if source is None else open_tiles(source, scope=scope)
        first = generation1_of(more)
        changed = put(target, given, variant=variant, generation1=first, progress=progress, **more)
    text = (
        f"{target}: {counted(changed.added, 'tile')} added, {changed.replaced} replaced "
        f"in {counted(changed.archives, 'archive')}"
    )
    done({"output": target, **changed.to_dict()}, style, text)


def _tiles(given: tuple[str, ...]) -> list[tuple[int, int, int, bytes]]:
    found = []
    for text in given:
        key, equals, path = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not Z/X/Y=FILE", param_hint="--tile")
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise InvalidInputError(
                "file of a tile cannot be read", where=path, found=error.strerror
            ) from error
        found.append((*tile_of(key), data))
    return found
