"""``comal tapalcatl delete``: tiles out of archives."""

from __future__ import annotations

from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.cli.tapalcatl.building import tile_of
from comal.cli.tapalcatl.opening import generation1_of, generation1_options
from comal.errors import counted
from comal.tapalcatl import delete


@click.command(
    "delete",
    cls=Command,
    examples=(
        ("comal tapalcatl delete tiles/ 5/10/23 5/10/24", "two tiles"),
        ("comal tapalcatl delete tiles/ 5/10/23 --ext png", "of one format only"),
        ("comal tapalcatl delete t1/ 5/10/23 --t1-metatile 8 --t1-layer all", "of Tapalcatl 1"),
    ),
)
@click.argument("target", metavar="X")
@click.argument("tiles", metavar="Z/X/Y...", nargs=-1, required=True)
@click.option("--ext", help="Only entries of this extension.")
@click.option("--scale", type=float, help="Only entries of this scale.")
@click.option("--variant", metavar="NAME", help="Only entries below this name.")
@generation1_options
@options.pass_style
def command(
    style: options.Style,
    /,
    target: str,
    tiles: tuple[str, ...],
    ext: str | None,
    scale: float | None,
    variant: str | None,
    **more: Any,
) -> None:
    """Take tiles out of the tileset or archive X; their bytes stay until 'compact'."""
    wanted = [tile_of(text) for text in tiles]
    with working(f"deleting tiles of {target}", style) as progress:
        changed = delete(
            target,
            wanted,
            ext=ext,
            scale=scale,
            variant=variant,
            generation1=generation1_of(more),
            progress=progress,
        )
    text = (
        f"{target}: {counted(changed.deleted, 'entry', 'entries')} deleted, "
        f"{counted(changed.absent, 'tile')} not there"
    )
    done({"output": target, **changed.to_dict()}, style, text)
