"""Options by which several commands of the group open a tileset."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import click

from comal.errors import InvalidInputError
from comal.tapalcatl import Generation1, open_tiles
from comal.tapalcatl import open as open_tileset

_FIRST = ("metatile", "tile_size", "max_detail_zoom", "layout", "prefix", "layer")


def generation1_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """All that must be told of Tapalcatl 1."""
    options = (
        click.option(
            "--t1",
            "first",
            is_flag=True,
            help="Open it as Tapalcatl 1; each of the options --t1-... says so, too.",
        ),
        click.option(
            "--t1-metatile", type=int, metavar="N", help="Tiles of 256 pixels per side: 4."
        ),
        click.option("--t1-tile-size", type=int, metavar="PIXELS", help="Pixels of a tile: 256."),
        click.option(
            "--t1-max-detail-zoom", type=int, metavar="Z", help="Deepest zoom with archives."
        ),
        click.option(
            "--t1-layout",
            metavar="LAYOUT",
            help="plain, prefix-hash, hash-prefix, or a pattern such as '{layer}/{z}/{x}/{y}.zip'.",
        ),
        click.option("--t1-prefix", metavar="TEXT", help="Prefix in keys, such as 20171221."),
        click.option("--t1-layer", metavar="TEXT", help="Layer in keys, such as all."),
    )
    return _decorated(function, options)


def open_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What nothing in a tileset tells: all of Tapalcatl 1, and hashes and variants."""
    options = (
        click.option(
            "--hash",
            "hash_kind",
            type=click.Choice(["name", "file", "layer"]),
            help="What {h} stands for: md5 of z/x/y, of z/x/y.zip, or of /layer/z/x/y.zip.",
        ),
        click.option("--variant", metavar="NAME", help="Only tiles below this name."),
        click.option("--template", metavar="TEXT", help="Where archives are: '{z}/{x}/{y}.zip'."),
    )
    return generation1_options(_decorated(function, options))


def _decorated(function: Callable[..., Any], options: Any) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


def generation1_of(options: dict[str, Any]) -> Generation1 | None:
    """The settings that the options of Tapalcatl 1 stand for; they are taken out."""
    opening = opening_of(options)
    if opening.pop("version", None) is None:
        return None
    return Generation1(**opening)


def tiles_of(source: str, options: dict[str, Any], scope: ExitStack, **more: Any) -> Any:
    """A source of tiles, which the options may tell to be Tapalcatl 1; they are taken out."""
    opening = opening_of(options)
    if opening:
        return scope.enter_context(open_tileset(source, **opening))
    return open_tiles(source, scope=scope, **more)


def opening_of(options: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of `tapalcatl.open` that the options stand for; they are taken out."""
    first = bool(options.pop("first", False))
    settings = {name: options.pop(f"t1_{name}", None) for name in _FIRST}
    given = {name: value for name, value in settings.items() if value is not None}
    opening: dict[str, Any] = {"version": 1, **given} if first or given else {}
    for option, name in (("hash_kind", "hash"), ("variant", "variant"), ("template", "source")):
        value = options.pop(option, None)
        if value is not None:
            opening[name] = value
    return opening


def box_of(text: str | None) -> tuple[float, ...] | None:
    """A box from ``W,S,E,N``."""
    if text is None:
        return None
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) != 4:
        raise InvalidInputError("not a box", found=text, expected="W,S,E,N", where="--bbox")
    return numbers


def zooms_of(text: str, where: str) -> tuple[int, int]:
    """Two zooms from ``0-14``, or one from ``14``."""
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise InvalidInputError("not a range of zooms", found=text, expected="0-14", where=where)
    return int(first), int(last) if dash else int(first)


def numbers_of(text: str | None, where: str) -> tuple[int, ...] | None:
    """Zooms from ``0,4,8``."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise InvalidInputError("not a list of zooms", found=text, expected="0,4,8", where=where)
    return tuple(int(part) for part in parts)
