"""Comments of archives: of many of a zoom, and of one that has no document beside it.

Those of a zoom differ in where the archives are and in nothing else: their text is made once, with
marks where bounds and root stand, and filled in for each archive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from comal.tapalcatl.addressing import archive_bounds
from comal.tapalcatl.spec import (
    MAX_COMMENT,
    ArchiveMetadata,
    Tile,
    archive_comment,
    archive_document,
    ascii_line,
)

_BOUNDS: Final = "\0bounds"
_ROOT: Final = "\0root"


def filled(said: ArchiveMetadata, archives: Sequence[Tile]) -> list[bytes] | None:
    """What `archive_document` gives for each archive, as bytes.

    Parameters
    ----------
    said
        The metadata of one of them.
    archives
        All of one zoom.

    Returns
    -------
    list of bytes or None
        None when a text of the metadata looks like a mark, so that they must be made one by one.
    """
    form = {**archive_document(said), "bounds": _BOUNDS, "root": _ROOT}
    head, *middle = ascii_line(form).split(ascii_line(_BOUNDS))
    parts = middle[0].split(ascii_line(_ROOT)) if len(middle) == 1 else []
    if len(parts) != 2:
        return None
    between, tail = parts
    z = archives[0][0]
    across = _texts({x for _, x, _ in archives}, lambda x: (z, x, 0), said.metatile, (0, 2))
    along = _texts({y for _, _, y in archives}, lambda y: (z, 0, y), said.metatile, (1, 3))
    comments = []
    for _, x, y in archives:
        (west, east), (south, north) = across[x], along[y]
        text = b'[%b,%b,%b,%b]%b"%d/%d/%d"' % (west, south, east, north, between, z, x, y)
        comments.append(head + text + tail)
    return comments


def fitted(said: ArchiveMetadata) -> tuple[bytes, tuple[str, ...]]:
    """The comment of an archive that stands alone, and the keys that had to be left out.

    No document says elsewhere what is left out here, so that it is as little as can be: of keys
    that the format does not know the longest ones, until the rest fits into 65 535 bytes.

    Raises
    ------
    InvalidInputError
        What the format itself needs is too long.
    """
    kept = dict(said.extra)
    cut = []
    left = len(ascii_line(archive_document(said))) - MAX_COMMENT
    for size, key in sorted(((_size(key, said.extra[key]), key) for key in kept), reverse=True):
        if left <= 0:
            break
        del kept[key]
        cut.append(key)
        left -= size
    data, more = archive_comment(replace(said, extra=kept))
    return data, (*cut, *more)


def _size(key: str, value: object) -> int:
    """Bytes of a key, its value and what stands around them."""
    return len(ascii_line(key)) + len(ascii_line(value)) + 2


def _texts(
    places: set[int], tile: Callable[[int], Tile], metatile: int, sides: tuple[int, int]
) -> dict[int, tuple[bytes, bytes]]:
    """Two sides of the bounds of archives as JSON, which depend on column or row alone."""
    found = {}
    for place in places:
        bounds = archive_bounds(tile(place), metatile)
        low, high = (repr(bounds[side]).encode() for side in sides)
        found[place] = (low, high)
    return found
