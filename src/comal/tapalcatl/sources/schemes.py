"""How loose tiles are named: folders by zoom, folders in there, and files.

``xyz``
    ``z/x/y``, rows from the north.
``tms``
    ``z/x/y``, rows from the south.
``zyx``
    ``z/y/x``, rows from the north.
``ags``
    Exploded caches of ArcGIS: ``L05/R0000000c/C0000000a``, rows from the north.
``gwc``
    GeoWebCache: ``EPSG_900913_05/0_0/0010_0019``, rows from the south.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from comal.errors import InvalidInputError, shown

SCHEMES: Final = ("xyz", "tms", "zyx", "ags", "gwc")
GRIDSET: Final = "EPSG_900913"
"""What GeoWebCache calls the grid of Web Mercator."""

_NUMBER: Final = r"(0|[1-9][0-9]{0,9})"
_SUFFIX: Final = r"((?:@[1-9][0-9]*x)?(?:\.[0-9A-Za-z_+-]{1,32})?)"
Key = tuple[int, int, int]


@dataclass(frozen=True)
class Scheme:
    """One way to name tiles. Of two names that mean one tile only that of `name` counts."""

    zoom: re.Pattern[str]
    """A folder of the first level; its group is the zoom."""
    middle: re.Pattern[str]
    file: re.Pattern[str]
    """A file: its name without the suffix, and the suffix."""
    tile: Callable[[int, str, str], tuple[int, int]]
    """Column and row from the north, by zoom, group of `middle`, and file without suffix."""
    place: Callable[[Key], tuple[str, str, str]]
    """The two folders and the file of a tile, without its suffix."""


@cache
def scheme_of(name: str, gridset: str = GRIDSET) -> Scheme:
    """A scheme by its name; of ``gwc`` folders begin with the name of a grid.

    Raises
    ------
    InvalidInputError
        There is none of this name.
    """
    if name not in SCHEMES:
        raise InvalidInputError(
            "scheme of a folder", found=shown(name), expected=", ".join(SCHEMES)
        )
    if name == "ags":
        return Scheme(
            re.compile(r"L([0-9]{2})"),
            re.compile(r"R([0-9a-f]{8})"),
            re.compile(f"(C[0-9a-f]{{8}}){_SUFFIX}"),
            lambda _, row, column: (int(column[1:], 16), int(row, 16)),
            lambda key: (f"L{key[0]:02d}", f"R{key[2]:08x}", f"C{key[1]:08x}"),
        )
    if name == "gwc":
        return Scheme(
            re.compile(rf"{re.escape(gridset)}_([0-9]{{2}})"),
            re.compile(r"([0-9]+_[0-9]+)"),
            re.compile(f"([0-9]+_[0-9]+){_SUFFIX}"),
            _tile_of_gwc,
            lambda key: _gwc(key, gridset),
        )
    number = re.compile(_NUMBER)
    file = re.compile(_NUMBER + _SUFFIX)
    if name == "zyx":
        return Scheme(
            number, number, file,
            lambda _, row, column: (int(column), int(row)),
            lambda key: (str(key[0]), str(key[2]), str(key[1])),
        )  # fmt: skip
    if name == "tms":
        return Scheme(
            number, number, file,
            lambda z, column, row: (int(column), _flipped(z, int(row))),
            lambda key: (str(key[0]), str(key[1]), str(_flipped(key[0], key[2]))),
        )  # fmt: skip
    return Scheme(
        number, number, file,
        lambda _, column, row: (int(column), int(row)),
        lambda key: (str(key[0]), str(key[1]), str(key[2])),
    )  # fmt: skip


def _flipped(z: int, row: int) -> int:
    return (1 << z) - 1 - row


def _tile_of_gwc(z: int, _: str, file: str) -> tuple[int, int]:
    column, row = file.split("_")
    return int(column), _flipped(z, int(row))


def _gwc(key: Key, gridset: str) -> tuple[str, str, str]:
    """As GeoWebCache's FilePathGenerator: folders of a square of tiles, digits by its side."""
    z, x, y = key
    south = _flipped(z, y)
    side = 2 << (z // 2)
    digits = int(math.log10(side)) + 1 if side > 10 else 1
    middle = f"{x // side:0{digits}d}_{south // side:0{digits}d}"
    return f"{gridset}_{z:02d}", middle, f"{x:0{2 * digits}d}_{south:0{2 * digits}d}"
