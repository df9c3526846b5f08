"""The warning class of TACO."""

from __future__ import annotations

from collections.abc import Iterable

from comal.geo.places import GEOMETRY, Way
from comal.public import warn


class TacoWarning(UserWarning):
    """Content that is wrong somewhere, though what is returned is right."""


def warn_without_crs(ways: Iterable[Way]) -> None:
    """Say that geometries without a CRS are taken to be in degrees."""
    if any(way.columns == (GEOMETRY,) for way in ways):
        warn(f"{GEOMETRY} without istac:crs is taken to be in EPSG:4326", TacoWarning)
