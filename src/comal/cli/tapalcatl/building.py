"""Options of the commands that write tilesets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from comal.cli.options import Style, parse_bbox
from comal.cli.output import done, human_size
from comal.errors import counted
from comal.tapalcatl import Built


def layout_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where archives begin and how wide they are."""
    options = (
        click.option(
            "--metatile",
            type=click.IntRange(1),
            metavar="N",
            help="Root tiles of an archive per side, a power of two.",
        ),
        click.option(
            "--materialized",
            metavar="Z,Z,...",
            help="Zooms at which archives begin; chosen so that a directory has at most 64 KiB.",
        ),
        click.option("--hash", "hash_in_path", is_flag=True, help="Begin keys with {h}."),
    )
    return _decorated(function, options)


def entry_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How tiles become entries."""
    options = (
        click.option("--ext", help="Extension of tiles without one; by their bytes if absent."),
        click.option("--scale", type=float, default=1, help="Scale of tiles: 2 for '@2x'."),
        click.option(
            "--compression",
            type=click.Choice(["auto", "store", "deflate"]),
            default="auto",
            help="auto stores what is compressed already.",
        ),
        click.option(
            "--level", type=click.IntRange(1, 12), default=6, help="Level of DEFLATE; 6 if absent."
        ),
        click.option(
            "--times",
            default="fixed",
            metavar="TIME",
            help="'fixed' (1980-01-01), 'source', or one time for all tiles.",
        ),
        click.option("--exact-times", is_flag=True, help="Exact seconds in an extra field, too."),
    )
    return _decorated(function, options)


def described_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a tileset says of itself."""
    options = (
        click.option("--name", help="Name of the tileset; the source's if absent."),
        click.option("--description", help="Description; the source's if absent."),
        click.option("--attribution", help="Attribution; the source's if absent."),
        click.option("--bounds", metavar="W,S,E,N", help="Bounds in degrees; never too narrow."),
    )
    return _decorated(function, options)


def layout_of(metatile: int | None, materialized: str | None, **more: Any) -> dict[str, Any]:
    """Arguments of `build`, without those that were not given."""
    given = {"metatile": metatile, "materialized_zooms": None, **more}
    if materialized is not None:
        given["materialized_zooms"] = zooms_of(materialized, "--materialized")
    return {
        name: value for name, value in given.items() if value is not None and value is not False
    }


def bounds_of(text: str | None) -> tuple[float, float, float, float] | None:
    """Bounds from their text."""
    return None if text is None else parse_bbox(text)


def zooms_of(text: str, option: str) -> list[int]:
    """Zooms from ``0,4,8``."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not Z,Z,...", param_hint=option) from error


def tile_of(text: str) -> tuple[int, int, int]:
    """A tile from ``z/x/y``."""
    try:
        z, x, y = (int(part) for part in text.split("/"))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not z/x/y", param_hint="TILES") from error
    return z, x, y


def report(made: Built, style: Style) -> None:
    """What was written."""
    kept = f", {made.kept} of them kept" if made.kept else ""
    text = (
        f"{made.output}: {counted(made.tiles, 'tile')} "
        f"in {counted(made.archives, 'archive')}{kept}, "
        f"{human_size(made.size)}{_layout(made)}"
    )
    done(made.to_dict(), style, text)


def _layout(made: Built) -> str:
    """Which layout was given, taken over or chosen; nothing for Tapalcatl 1."""
    if not made.materialized_zooms:
        return ""
    zooms = ", ".join(map(str, made.materialized_zooms))
    return f"; archives at zooms {zooms} under {made.metatile} x {made.metatile} tiles"


def _decorated(function: Callable[..., Any], options: Any) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function
