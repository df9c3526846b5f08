"""Addresses of tiles: what is one, and what only looks like one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from comal.server.problems import bad_request, not_found

DEEPEST = 26
_LONGEST = 8  # digits of 2 ** 26


@dataclass(frozen=True, slots=True)
class Address:
    """One tile: XYZ scheme, y down."""

    z: int
    x: int
    y: int
    scale: int = 1
    ext: str = ""


def parse_address(z: str, x: str, last: str) -> Address:
    """The address from ``z``, ``x`` and ``y[@2x][.ext]``.

    Raises
    ------
    Refusal
        400 for what is no number (or has leading zeros, a sign, a point); 404 for a tile that is
        in no matrix, and for a scale that does not exist.
    """
    name, _, ext = last.partition(".")
    y, at, scale = name.partition("@")
    factor = _scale(scale) if at else 1
    return _checked(number(z), number(x), number(y), factor, ext)


def _checked(z: int, x: int, y: int, scale: int, ext: str) -> Address:
    if z > DEEPEST or x >> z or y >> z:
        raise not_found("there is no such tile in the matrix")
    if len(ext) > 16 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in ext):
        raise not_found("there is no such format")
    return Address(z, x, y, scale, ext)


@lru_cache(maxsize=8192)
def number(text: str) -> int:
    """A whole number written without sign and leading zeros.

    Raises
    ------
    Refusal
        400 for anything else.
    """
    right = text.isascii() and text.isdigit() and (text[0] != "0" or text == "0")
    if not right:
        raise bad_request("a tile is named by three whole numbers: z/x/y")
    if len(text) > _LONGEST:
        raise not_found("there is no such tile in the matrix")
    return int(text)


def _scale(text: str) -> int:
    if len(text) == 2 and text[1] == "x" and text[0] in "123456789":
        return int(text[0])
    raise not_found("there is no such scale")
