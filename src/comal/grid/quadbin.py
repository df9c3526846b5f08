"""QUADBIN cell ids: tile (z, x, y) of the XYZ scheme as one positive 64-bit number.

From the top: bit 63 is 0, bit 62 is 1, bits 59 to 61 hold the mode (1, a cell), bits 57 and 58 are
0, bits 52 to 56 hold the zoom, and bits 0 to 51 hold the left-aligned Morton code of column and
row, padded with ones. The largest id is below 2**63, so ids are int64 here; uint64 is accepted.
"""

from __future__ import annotations

from typing import Any, cast, overload

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.grid.arguments import integers, reals, together
from comal.grid.mercator import box, lonlat_to_xy, plain, xy_to_lonlat

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Whole = int | np.integer[Any]

MAX_ZOOM = 26
"""Finest zoom that an id can hold."""

_HEADER = 0x4800000000000000
_BELOW = (1 << 52) - 1
_ZOOM = 0x1F << 52
# Bits that are the same in every cell: all but the zoom and the Morton code.
_FIXED = ~(_ZOOM | _BELOW)
_MOST = 1 << 24


@overload
def cells(z: Whole, x: Whole, y: Whole) -> int: ...
@overload
def cells(z: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike) -> Ints: ...
def cells(z: Any, x: Any, y: Any) -> Any:
    """Ids of tiles.

    Parameters
    ----------
    z, x, y
        Zoom, column from the west and row from the north, broadcast to one shape.

    Raises
    ------
    InvalidInputError
        A zoom not in 0 to 26, a tile outside of the world, or shapes that cannot be broadcast.
    """
    zoom, across, down = zooms_of(z), integers(x, "column"), integers(y, "row")
    together(zoom, across, down)
    side = np.left_shift(1, zoom)
    if _any((across < 0) | (across >= side) | (down < 0) | (down >= side)):
        raise InvalidInputError("no such tile", expected="columns and rows from 0 to 2**z - 1")
    return plain(_packed(zoom, interleave(across, down)))


def tiles(cell: npt.ArrayLike) -> tuple[Any, Any, Any]:
    """Zoom, column and row of cells.

    Raises
    ------
    InvalidInputError
        A number that is not a cell; see `is_valid`.
    """
    ids = valid(cell)
    zoom = (ids & _ZOOM) >> 52
    x, y = deinterleave((ids & _BELOW) >> (52 - 2 * zoom))
    return plain(zoom), plain(x), plain(y)


def zooms(cell: npt.ArrayLike) -> Any:
    """Zooms of cells; the errors are those of `tiles`."""
    return plain((valid(cell) & _ZOOM) >> 52)


def is_valid(cell: npt.ArrayLike) -> Any:
    """Whether numbers are cells: mode, zoom, and all ones behind the Morton code are right."""
    given = np.asarray(cell)
    if given.dtype == np.object_:
        # Python numbers too large for 64 bits.
        inside = [isinstance(one, int) and 0 <= one < 1 << 63 for one in given.flat]
        small = [one if fits else 0 for one, fits in zip(given.flat, inside, strict=True)]
        given = np.array(small, np.int64).reshape(given.shape)
    elif given.dtype.kind not in "iu":
        given = integers(given, "cell")
    # An id of 2**63 or more becomes negative, and is not a cell either.
    return plain(_valid(given.astype(np.int64, copy=False)))


@overload
def from_lonlat(lon: float, lat: float, z: Whole) -> int: ...
@overload
def from_lonlat(lon: npt.ArrayLike, lat: npt.ArrayLike, z: npt.ArrayLike) -> Ints: ...
def from_lonlat(lon: Any, lat: Any, z: Any) -> Any:
    """Cells that contain points.

    Parameters
    ----------
    lon, lat
        Degrees of EPSG:4326. Longitudes beyond 180 degrees are wrapped, and 180 itself belongs to
        the easternmost column. Points nearer to a pole than the limit of Web Mercator belong to
        the outermost row.
    z
        Zooms.

    Raises
    ------
    InvalidInputError
        A coordinate that is not finite, a latitude beyond 90 degrees, a zoom out of range, or
        shapes that cannot be broadcast.
    """
    zoom = zooms_of(z)
    longitude, latitude = reals(lon, "longitude"), reals(lat, "latitude")
    together(longitude, latitude, zoom)
    if not (np.isfinite(longitude).all() and (np.abs(latitude) <= 90).all()):
        raise InvalidInputError(
            "not a point on the earth", expected="finite degrees, latitude <= 90"
        )
    x, y = lonlat_to_xy(longitude, latitude, zoom)
    last = np.left_shift(1, zoom) - 1
    across = np.minimum(np.floor(x).astype(np.int64), last)
    down = np.minimum(np.floor(y).astype(np.int64), last)
    return plain(_packed(zoom, interleave(across, down)))


def centres(cell: npt.ArrayLike) -> tuple[Any, Any]:
    """Longitude and latitude of the centres of cells in Web Mercator."""
    z, x, y = tiles(cell)
    return xy_to_lonlat(x + 0.5, y + 0.5, z)


def bounds(cell: npt.ArrayLike) -> tuple[Any, Any, Any, Any]:
    """West, south, east and north edge of cells, in degrees of EPSG:4326."""
    z, x, y = tiles(cell)
    west, north = xy_to_lonlat(x, y, z)
    east, south = xy_to_lonlat(x + 1, y + 1, z)
    return west, south, east, north


def extent(cell: npt.ArrayLike) -> tuple[float, float, float, float]:
    """West, south, east and north of cells of one zoom together, the same on every processor."""
    z, x, y = tiles(cell)
    return box(
        int(np.max(z)), int(np.min(x)), int(np.min(y)), int(np.max(x)) + 1, int(np.max(y)) + 1
    )


@overload
def parents(cell: Whole, z: Whole) -> int: ...
@overload
def parents(cell: npt.ArrayLike, z: npt.ArrayLike) -> Ints: ...
def parents(cell: Any, z: Any) -> Any:
    """Ancestors at zoom `z`, which is not finer than the cells themselves.

    Raises
    ------
    InvalidInputError
        An invalid cell, or a zoom that is out of range or finer.
    """
    ids, zoom = valid(cell), zooms_of(z)
    together(ids, zoom)
    if _any(zoom > (ids & _ZOOM) >> 52):
        raise InvalidInputError("an ancestor is not finer than its cell", found=_told(zoom))
    return plain(_ancestors(ids, zoom))


def children(cell: npt.ArrayLike, z: int | None = None) -> Ints:
    """Descendants at zoom `z` (the next one if absent), in ascending order.

    The four children of tile (x, y) are (2x, 2y), (2x + 1, 2y), (2x, 2y + 1), (2x + 1, 2y + 1).

    Returns
    -------
    int64 array of the shape of `cell` with one more axis, over the descendants; cells of different
    zooms can only be given without `z`.

    Raises
    ------
    InvalidInputError
        An invalid cell, a zoom that is not finer, cells with different numbers of descendants, or
        more than 16 million in all.
    """
    ids = valid(cell)
    own = (ids & _ZOOM) >> 52
    target = own + 1 if z is None else _like(zooms_of(z), own)
    steps = np.unique(target - own)
    if not len(steps):
        return np.empty((*ids.shape, 0), np.int64)
    if len(steps) > 1 or steps[0] < 1 or _any(target > MAX_ZOOM):
        raise InvalidInputError(
            "descendants are finer than their cells, all by the same number of zooms",
            found=_told(target),
            expected=f"zooms up to {MAX_ZOOM}",
        )
    count = 4 ** int(steps[0])
    if count * ids.size > _MOST:
        raise InvalidInputError(
            "too many descendants",
            found=count * ids.size,
            hint="descendants() gives them as ranges",
        )
    first, _ = _ends(ids, target)
    offsets = np.arange(count, dtype=np.int64)
    return first[..., None] + (offsets << (52 - 2 * target)[..., None])


def siblings(cell: npt.ArrayLike) -> Ints:
    """The four children of the parent of each cell, including the cell, in ascending order.

    Returns
    -------
    int64 array of the shape of `cell` with one more axis of 4.

    Raises
    ------
    InvalidInputError
        An invalid cell, or the cell of zoom 0.
    """
    ids = valid(cell)
    zoom = (ids & _ZOOM) >> 52
    if _any(zoom == 0):
        raise InvalidInputError("the cell of zoom 0 has no siblings")
    return children(_ancestors(ids, zoom - 1))


def neighbours(cell: npt.ArrayLike, dx: npt.ArrayLike, dy: npt.ArrayLike) -> Any:
    """Cells `dx` columns to the east and `dy` rows to the south; 0, not a cell, beyond the poles.

    Columns continue across the antimeridian.
    """
    z, x, y = (np.asarray(part) for part in tiles(cell))
    east, south = integers(dx, "distance"), integers(dy, "distance")
    together(z, east, south)
    side = np.left_shift(1, z)
    across = (x + east) % side
    down = y + south
    inside = (down >= 0) & (down < side)
    zoom, across, down = np.broadcast_arrays(z, across, np.where(inside, down, 0))
    return plain(np.where(inside, _packed(zoom, interleave(across, down)), 0))


def k_ring(cell: Whole, k: int) -> Ints:
    """All cells within `k` columns and rows of a cell, including the cell, ascending.

    The ring continues across the antimeridian and ends at the poles.

    Raises
    ------
    InvalidInputError
        An invalid cell, a negative `k`, or a ring of more than 16 million cells.
    """
    own, distance = valid(cell), integers(k, "distance")
    if own.ndim or distance.ndim:
        raise InvalidInputError("a ring has one cell and one distance")
    if distance < 0:
        raise InvalidInputError("negative distance", found=k)
    reach = min(int(distance), 1 << int(zooms(own)))
    if (2 * reach + 1) ** 2 > _MOST:
        raise InvalidInputError("the ring is too large", found=k)
    steps = np.arange(-reach, reach + 1)
    found = np.unique(neighbours(own, steps[None, :], steps[:, None]))
    return cast("Ints", found[found != 0])


def descendants(cell: npt.ArrayLike, z: npt.ArrayLike) -> tuple[Any, Any]:
    """First and last descendant at zoom `z`: all ids of that zoom between them are descendants.

    At a cell's own zoom both are the cell itself. The errors are those of `children`.
    """
    ids, zoom = valid(cell), zooms_of(z)
    together(ids, zoom)
    if _any(zoom < (ids & _ZOOM) >> 52):
        raise InvalidInputError("a descendant is not coarser than its cell", found=_told(zoom))
    first, last = _ends(ids, zoom)
    return plain(first), plain(last)


# -- for other modules of this room ----------------------------------------------------------------


def valid(cell: npt.ArrayLike) -> Ints:
    """Cells as an int64 array; invalid ones are refused."""
    ids = integers(cell, "cell")
    wrong = ~_valid(ids)
    if wrong.any():
        raise InvalidInputError(
            "not a QUADBIN cell", found=hex(int(ids[wrong].flat[0])) if ids.ndim else hex(int(ids))
        )
    return ids


def zooms_of(z: npt.ArrayLike) -> Ints:
    """Zooms as an int64 array; those that an id cannot hold are refused."""
    zoom = integers(z, "zoom")
    if _any((zoom < 0) | (zoom > MAX_ZOOM)):
        raise InvalidInputError("no such zoom", found=_told(zoom), expected=f"0 to {MAX_ZOOM}")
    return zoom


def _packed(zoom: Ints, code: Ints) -> Ints:
    return (code << (52 - 2 * zoom)) | (zoom << 52) | (_BELOW >> (2 * zoom)) | _HEADER


def _valid(ids: Ints) -> Bools:
    zoom = (ids & _ZOOM) >> 52
    ones = _BELOW >> (2 * np.minimum(zoom, MAX_ZOOM))
    found = ((ids & _FIXED) == _HEADER) & (zoom <= MAX_ZOOM) & ((ids & ones) == ones)
    return cast("Bools", found)


def _ancestors(ids: Ints, zoom: Ints) -> Ints:
    return (ids & ~_ZOOM) | (zoom << 52) | (_BELOW >> (2 * zoom))


def _ends(ids: Ints, zoom: Ints) -> tuple[Ints, Ints]:
    own = (ids & _ZOOM) >> 52
    last = (ids & ~_ZOOM) | (zoom << 52)
    return (last & ~(_BELOW >> (2 * own))) | (_BELOW >> (2 * zoom)), last


def _like(zoom: Ints, ids: Ints) -> Ints:
    together(zoom, ids)
    return np.broadcast_arrays(zoom, ids)[0]


def _any(condition: Any) -> bool:
    return bool(np.any(condition))


def _told(values: Ints) -> str:
    return str(int(values)) if values.ndim == 0 else ", ".join(map(str, np.unique(values)[:5]))


# -- Morton codes: two numbers of up to 31 bits interleaved to one, bit by bit --------------------


# Each step halves the distance over which bits still have to move.
_SPREAD = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)
_LARGEST = (1 << 31) - 1
_FINEST = (1 << 21) - 1
_COMPACT = (
    (1, 0x3333333333333333),
    (2, 0x0F0F0F0F0F0F0F0F),
    (4, 0x00FF00FF00FF00FF),
    (8, 0x0000FFFF0000FFFF),
    (16, 0x00000000FFFFFFFF),
)


def interleave(x: npt.ArrayLike, y: npt.ArrayLike) -> Ints:
    """Morton codes of columns and rows.

    Parameters
    ----------
    x, y
        Integers from 0 to 2**31 - 1, broadcast to one shape.

    Returns
    -------
    int64 array: bit 2i is bit i of `x`, bit 2i + 1 is bit i of `y`.

    Raises
    ------
    InvalidInputError
        Not integers, integers out of range, or shapes that cannot be broadcast.
    """
    across, down = integers(x, "column"), integers(y, "row")
    together(across, down)
    # A negative number has its highest bit set, so one comparison checks both bounds.
    if np.any((across | down).view(np.uint64) > _LARGEST):
        raise InvalidInputError("out of range of a Morton code", expected="0 to 2**31 - 1")
    across, down = np.broadcast_arrays(across, down)
    return _spread(across) | (_spread(down) << 1)


def deinterleave(code: npt.ArrayLike) -> tuple[Ints, Ints]:
    """Columns and rows of Morton codes: the inverse of `interleave`."""
    codes = np.asarray(code, np.int64)
    return _compact(codes), _compact(codes >> 1)


def z_order(lon: npt.ArrayLike, lat: npt.ArrayLike) -> Ints:
    """Keys of points along a Z-order curve.

    Longitude and latitude are scaled to 0..1, multiplied by 2^21 - 1 and truncated, then
    interleaved.

    Parameters
    ----------
    lon, lat
        n points in degrees, finite.

    Returns
    -------
    n keys below 2^42.
    """
    across = (np.asarray(lon, np.float64) + 180.0) / 360.0 * _FINEST
    up = (np.asarray(lat, np.float64) + 90.0) / 180.0 * _FINEST
    return interleave(across.astype(np.int64), up.astype(np.int64))


def _spread(values: Ints) -> Ints:
    result = values.copy()
    shifted = np.empty_like(result)
    for shift, mask in _SPREAD:
        np.left_shift(result, shift, out=shifted)
        result |= shifted
        result &= mask
    return result


def _compact(values: Ints) -> Ints:
    result = np.bitwise_and(values, 0x5555555555555555)
    shifted = np.empty_like(result)
    for shift, mask in _COMPACT:
        np.right_shift(result, shift, out=shifted)
        result |= shifted
        result &= mask
    return result
