"""Tiles on the Web Mercator square against boxes in degrees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor

from comal.grid import mercator


def tile_meets(z: int, x: int, y: int, bounds: Sequence[float]) -> bool:
    """Whether a tile and a box have more than an edge in common; west > east crosses 180."""
    return any(
        left <= x < right and top <= y < bottom
        for left, top, right, bottom in tile_ranges(bounds, z)
    )


def tile_ranges(bounds: Sequence[float], z: int) -> Iterator[tuple[int, int, int, int]]:
    """Ranges of tiles that a box covers: first column and row, and those behind the last.

    A box across the antimeridian gives two ranges.
    """
    west, south, east, north = bounds
    arcs = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    side = 1 << z
    for start, end in arcs:
        left, top = mercator.lonlat_to_xy(max(-180.0, start), north, z)
        right, bottom = mercator.lonlat_to_xy(min(180.0, end), south, z)
        first_column, first_row = min(floor(left), side - 1), min(floor(top), side - 1)
        yield (
            max(0, first_column),
            max(0, first_row),
            min(side, max(ceil(right), first_column + 1)),
            min(side, max(ceil(bottom), first_row + 1)),
        )


def middle_tile(bounds: Sequence[float], z: int) -> tuple[int, int, int]:
    """The tile in the middle of a box, or of its western part where it crosses the antimeridian."""
    left, top, right, bottom = next(tile_ranges(bounds, z))
    return z, (left + right - 1) // 2, (top + bottom - 1) // 2
