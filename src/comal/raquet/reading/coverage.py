"""Which pixels the source of a raster covered: tiles at its edge have padding.

A band with a nodata value is padded with that value; with an alpha band padding is transparent.
Other bands, of images and of older files, are padded with 0, which looks like a pixel value.
Files by comal therefore store the area of their source (``custom.comal.source``): ``footprint``,
a GeoJSON MultiPolygon whose edges are straight on the Web Mercator plane, or only ``bounds`` if
the source fills them. A pixel is covered if its centre is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.geo.scanline import Edges, Method, area_spans
from comal.grid import mercator
from comal.raquet.reading.pixels import alpha_of, stored_nodata
from comal.raquet.spec import Bounds, Metadata
from comal.raster.values import as_array

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_NEAR = 0.3
"""Fraction of a pixel within which GDAL and the footprint may disagree on the side of an edge."""
_PIECE = 1024
"""Side in pixels of the blocks in which coverage of a large window is tested."""
_MOST_POINTS = 200_000
"""Most vertices of footprints that are read from a document."""


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """The area that the sources of a band cover; the world is the unit square."""

    edges: Edges
    """Edges by source; u to the east, v to the south, as fractions of the world."""

    def tile(self, z: int, x: int, y: int, shape: tuple[int, int]) -> Bools | None:
        """Which pixels (rows, columns) of a tile are covered; None if all are."""
        side = 2.0**z
        return self._box(x / side, y / side, 1 / side, 1 / side, shape)

    def reach(
        self, z: int, x: int, y: int, shape: tuple[int, int], *, reduced: bool
    ) -> tuple[Bools | None, bool]:
        """Pixels of a tile that a writer may consider covered, None for all; whether all do so.

        In a `reduced` tile, an overview, the source may cover a fraction of a pixel at the edge.
        """
        side, (rows, columns) = 2.0**z, shape
        width, height = 1 / (side * columns), 1 / (side * rows)
        box = x / side - width, y / side - height, 1 / side + 2 * width, 1 / side + 2 * height
        if not self._near(*box).any():
            return self.tile(z, x, y, shape), True
        if reduced:
            grown = rows + 2, columns + 2
            touched = as_array(self._box(*box, grown, "all_touched"), grown)
            around = [touched[i : rows + i, j : columns + j] for i in range(3) for j in range(3)]
            return np.logical_or.reduce(around), False
        moved = [
            as_array(
                self._box(x / side + i * width, y / side + j * height, 1 / side, 1 / side, shape),
                shape,
            )
            for i in (-_NEAR, 0, _NEAR)
            for j in (-_NEAR, 0, _NEAR)
        ]
        found = np.logical_or.reduce(moved)
        return found, bool((found == np.logical_and.reduce(moved)).all())

    def window(self, span: tuple[int, int, int, int], world: tuple[int, int]) -> Bools | None:
        """Which pixels of a window are covered; None if all are.

        `span` is the first column and row, width and height; columns wrap around the `world`,
        given as its columns and rows.
        """
        column, row, width, height = span
        columns, rows = world
        parts: list[Bools | None] = []
        widths = []
        at = column
        while at < column + width:
            stop = min((at // columns + 1) * columns, column + width)
            shape = (height, stop - at)
            where = (at % columns) / columns, row / rows
            parts.append(self._box(*where, shape[1] / columns, height / rows, shape))
            widths.append(shape[1])
            at = stop
        if all(part is None for part in parts):
            return None
        filled = [as_array(part, (height, wide)) for part, wide in zip(parts, widths, strict=True)]
        return np.concatenate(filled, axis=1)

    def is_whole(self, span: tuple[int, int, int, int], world: tuple[int, int]) -> bool:
        """Whether all pixels of a window are covered; takes less memory than `window`."""
        left, top, width, height = span
        left %= world[0]
        corner, sides = (left + 0.5, top + 0.5), (width - 1, height - 1)
        box = *np.divide(corner, world), *np.divide(sides, world)
        if left + width <= world[0] and not self._near(*box).any():
            # No edge runs between pixel centres, so one pixel stands for all.
            return self.window((left, top, 1, 1), world) is None
        pieces = (
            (column, row, min(_PIECE, left + width - column), min(_PIECE, top + height - row))
            for row in range(top, top + height, _PIECE)
            for column in range(left, left + width, _PIECE)
        )
        return all(self.window(piece, world) is None for piece in pieces)

    def _box(
        self,
        west: float,
        north: float,
        width: float,
        height: float,
        shape: tuple[int, int],
        method: Method = "centre",
    ) -> Bools | None:
        rows, columns = shape
        if not self._near(west, north, width, height).any():
            # No edge runs here, so the centre stands for the box.
            shape = (1, 1)
        lines = north + np.arange(2 * shape[0] + 1) / (2 * shape[0]) * height
        local = self.edges.on(west, width / shape[1])
        spans = area_spans(local, lines[::2], lines[1::2], shape[1], method)
        found = spans.mask(*shape) > 0
        if found.all():
            return None
        return np.broadcast_to(found, (rows, columns)) if shape == (1, 1) else found

    def _near(self, west: float, north: float, width: float, height: float) -> Bools:
        """Which edges have a bbox that intersects this box."""
        edges = self.edges
        found: Bools = np.maximum(edges.u0, edges.u1) >= west
        found &= np.minimum(edges.u0, edges.u1) <= west + width
        found &= np.maximum(edges.v0, edges.v1) >= north
        found &= np.minimum(edges.v0, edges.v1) <= north + height
        return found


def coverages(every: Sequence[Metadata], *, declared: bool = True) -> tuple[Coverage | None, ...]:
    """The area that the source of each band of a set of files covers.

    None for a band whose padding is marked by alpha or by its nodata value (both only if
    `declared`), and if a file does not store the area of its source.
    """
    bands = every[0].bands
    alpha = alpha_of(bands)
    told = [
        declared and (stored_nodata(band) is not None or alpha not in (None, at))
        for at, band in enumerate(bands)
    ]
    cover = None if all(told) else _of_sources([source_of(one) for one in every])
    return tuple(None if one else cover for one in told)


def coverage_of(bounds: Bounds) -> Coverage | None:
    """A rectangle in degrees."""
    return _of_sources([{"bounds": list(bounds)}])


def source_of(metadata: Metadata) -> Any:
    """The value of ``custom.comal.source``; not validated."""
    own = metadata.custom.get("comal")
    return own.get("source") if isinstance(own, Mapping) else None


def _of_sources(sources: Sequence[Any]) -> Coverage | None:
    # The parts of one raster usually have the same source.
    different = [one for n, one in enumerate(sources) if n == 0 or one != sources[n - 1]]
    rings: list[tuple[int, Floats]] = []
    for number, source in enumerate(different):
        own = polygons_of(source)
        if own is None:
            return None
        rings += [(number, ring) for polygon in own for ring in polygon]
    if not rings or sum(len(ring) for _, ring in rings) > _MOST_POINTS:
        return None
    zone = np.repeat([number for number, _ in rings], [len(ring) - 1 for _, ring in rings])
    start = np.concatenate([ring[:-1] for _, ring in rings])
    end = np.concatenate([ring[1:] for _, ring in rings])
    return Coverage(Edges(zone.astype(np.int64), start[:, 0], start[:, 1], end[:, 0], end[:, 1]))


def bounds_of(every: Sequence[Metadata], whole: Metadata | None = None) -> Bounds:
    """West, south, east, north in degrees of the area that the sources of a set cover.

    If its files do not store the same bounds, those of complete tiles: from `whole`, the metadata
    of the set, or from the first file.
    """
    sources = [source_of(one) for one in every]
    same = all(source == sources[0] for source in sources)
    return (extent_of(sources[0]) if same else None) or (whole or every[0]).bounds


def extent_of(source: Any) -> Bounds | None:
    """The ``bounds`` of a source; None if they are missing or invalid."""
    try:
        bounds = source.get("bounds") if isinstance(source, Mapping) else None
        west, south, east, north = _numbers(bounds, 4)
    except _NotToldError:
        return None
    inside = max(abs(west), abs(east)) <= 180 and -90 <= south < north <= 90
    return (west, south, east, north) if inside and west != east else None


def polygons_of(source: Any) -> list[list[Floats]] | None:
    """The area of a source on the unit square: the exterior ring and the holes of each polygon.

    None if the document does not store it.
    """
    try:
        return list(_polygons(source))
    except _NotToldError:
        return None


def add_padding(
    missing: Bools,
    covers: Sequence[Coverage | None],
    of: Callable[[Coverage], Bools | None],
    at: Any = ...,
) -> None:
    """Mark padding in `missing`: `of` returns which of the pixels at the index `at` are covered.

    `covers` has an entry per band as from `coverages`: the same coverage, or None.
    """
    cover = next(filter(None, covers), None)
    inside = None if cover is None else of(cover)
    if inside is None:
        return
    for index, one in enumerate(covers):
        if one is not None:
            missing[index][at] |= ~inside


class _NotToldError(Exception):
    """The document does not store the area of its source in a usable form."""


def _polygons(source: Any) -> Iterator[list[Floats]]:
    """Closed rings in fractions of the world. The document is untrusted."""
    if not isinstance(source, Mapping):
        raise _NotToldError
    footprint = source.get("footprint")
    if footprint is None:
        yield from _of_bounds(source.get("bounds"))
        return
    if not isinstance(footprint, Mapping) or footprint.get("type") != "MultiPolygon":
        raise _NotToldError
    for polygon in _listed(footprint.get("coordinates")):
        rings = []
        for ring in _listed(polygon):
            points = [_numbers(point, 2) for point in _listed(ring)]
            if len(points) < 4 or points[0] != points[-1]:
                raise _NotToldError
            rings.append(_plane(np.array(points)))
        if rings:
            yield rings


def _of_bounds(bounds: Any) -> Iterator[list[Floats]]:
    west, south, east, north = _numbers(bounds, 4)
    if south >= north or west == east:
        raise _NotToldError
    for left, right in [(west, east)] if west < east else [(west, 180.0), (-180.0, east)]:
        corners = ((left, north), (right, north), (right, south), (left, south), (left, north))
        yield [_plane(np.array(corners))]


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MOST_POINTS:
        raise _NotToldError
    return value


def _numbers(value: Any, count: int) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) != count:
        raise _NotToldError
    for one in value:
        # NaN and infinities are no degrees either.
        if isinstance(one, bool) or not (isinstance(one, int | float) and abs(one) <= 360):
            raise _NotToldError
    return [float(one) for one in value]


def _plane(points: Floats) -> Floats:
    _, v = mercator.lonlat_to_xy(np.zeros(len(points)), points[:, 1].clip(-90, 90), 0)
    # Longitudes are not wrapped: 180 is the eastern edge of the world.
    return np.stack([points[:, 0] / 360 + 0.5, v], axis=1)
