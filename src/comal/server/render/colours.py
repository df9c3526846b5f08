"""Colour maps by name, those of rio-tiler, as tables that NumPy indexes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, MissingExtraError, shown

Bytes = npt.NDArray[np.uint8]
_SHOWN = 16


def _maps() -> Any:
    try:
        from rio_tiler.colormap import cmap  # noqa: PLC0415 - optional, and half a second
    except ImportError as error:
        raise MissingExtraError.of("rio-tiler", "server", "a colour map") from error
    return cmap


def colormap_names() -> list[str]:
    """Every name, in order."""
    return sorted(_maps().list())


@lru_cache(maxsize=64)
def colormap_table(name: str) -> Bytes:
    """RGBA of the 256 values of a colour map, shape (256, 4).

    Raises
    ------
    InvalidInputError
        No such colour map, or one of intervals, which pictures of 8 bits have no use for.
    """
    maps = _maps()
    wanted = name.lower()
    # Names are keys of a list: what a client sends never becomes the name of a file.
    if wanted not in maps.list():
        raise InvalidInputError("there is no such colour map", found=shown(name))
    table = np.zeros((256, 4), np.uint8)
    colours = maps.get(wanted)
    if not isinstance(colours, Mapping):
        raise InvalidInputError("the colour map is one of intervals", found=shown(name))
    for value, colour in colours.items():
        if 0 <= value < 256:
            table[value] = _rgba(colour)
    table.setflags(write=False)
    return table


def _rgba(colour: Any) -> tuple[int, int, int, int]:
    red, green, blue, *alpha = colour
    return red, green, blue, alpha[0] if alpha else 255


@lru_cache(maxsize=1)
def colormap_list() -> dict[str, Any]:
    """Every colour map with 16 of its colours, for people to choose from."""
    found = []
    for name in colormap_names():
        try:
            table = colormap_table(name)
        except InvalidInputError:
            continue
        places = np.linspace(0, 255, _SHOWN).round().astype(int)
        colours = [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue, _ in table[places]]
        found.append({"name": name, "colors": colours})
    return {"colormaps": found}
