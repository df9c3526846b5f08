"""Windows of a Web Mercator grid, read or warped from one raster or from many.

A raster that is aligned with the pixels of the grid is copied without change; any other is warped
by GDAL. The pixels of a window depend on the window and the raster alone, not on earlier reads, so
the same windows give the same pixels in any thread and process.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np
import rasterio
from affine import Affine
from rasterio.crs import CRS
from rasterio.enums import Resampling
from rasterio.warp import reproject
from rasterio.windows import Window

from comal.errors import ComalError, InvalidInputError
from comal.geo.crs import projection
from comal.grid.mercator import CIRCUMFERENCE, HALF
from comal.raster.describing import FileOrigin, RasterInfo, open_origin
from comal.raster.gridding import Edge, Member, Window2D, crs_kind
from comal.raster.opening import gdal_rules, reading
from comal.raster.values import Array, Mask, as_array, occurring, seen, valid_mask, valid_masks

METHODS: Mapping[str, Resampling] = {
    "nearest": Resampling.nearest,
    "bilinear": Resampling.bilinear,
    "cubic": Resampling.cubic,
    "cubicspline": Resampling.cubic_spline,
    "lanczos": Resampling.lanczos,
    "average": Resampling.average,
    "mode": Resampling.mode,
    "max": Resampling.max,
    "min": Resampling.min,
    "med": Resampling.med,
    "q1": Resampling.q1,
    "q3": Resampling.q3,
}
"""Resampling methods, by the names of GDAL's tools."""
_OF_AREAS = {METHODS[name] for name in ("average", "mode", "max", "min", "med", "q1", "q3")}
"""Those that give a pixel a value if the source covers a part of it, though not its centre."""

MERCATOR = "EPSG:3857"
_local = threading.local()
_OPEN = 8
"""Files of a mosaic that are open at a time."""
_AT_ONCE = 1 << 22
_MOST_CRS = 64
MASK_BAND = 0
_WARP_MEGABYTES = 64
_MOST_BYTES = 64 << 20
"""Bytes of source pixels that are warped at a time: far more than a window has at their zoom."""
_MARGIN = 8
_SIDE = 33
_HALVES = np.dtype(np.uint32)


@dataclass(frozen=True, slots=True)
class OutBand:
    """A band to make."""

    source: int
    """Number of the source band from 1, or `MASK_BAND` for its mask, as 0 and 255."""
    dtype: str
    nodata: int | float | None = None
    """Value of pixels without data; None if all covered pixels are valid."""
    padding: int | float = 0
    """Value outside of the source if there is no nodata value."""

    @property
    def fill(self) -> int | float:
        """Value outside of the source."""
        return self.padding if self.nodata is None else self.nodata


@dataclass(slots=True)
class Patch:
    """Pixels of a window."""

    bands: list[Array]
    """Pixels (rows, columns) of each band."""
    covered: Mask | None
    """Where the source has pixels, valid or not; None for everywhere."""


def method_of(name: str) -> Resampling:
    """The resampling of a name; also accepts ``near``, ``cubic_spline`` and ``median``."""
    aliases = {"near": "nearest", "cubic_spline": "cubicspline", "median": "med"}
    found = METHODS.get(aliases.get(name, name))
    if found is None:
        raise InvalidInputError("unknown resampling", found=name, expected=", ".join(METHODS))
    return found


class SourceReader:
    """Reads windows of a raster as it is stored; for one thread."""

    def __init__(self, info: RasterInfo) -> None:
        self._info = info
        self._dataset: Any = None
        self.failures: list[ComalError] = []
        """Errors of reading a remote file; see `comal.raster.opening.reading`."""

    @property
    def dataset(self) -> Any:
        """The rasterio dataset of a file."""
        if self._dataset is None:
            self._dataset = open_origin(self._info.origin, self._info.where, self.failures)
        return self._dataset

    def close(self) -> None:
        """Close the file."""
        if self._dataset is not None:
            self._dataset.close()
            self._dataset = None

    def read(self, bands: tuple[int, ...], rows: slice, columns: slice) -> Array:
        """Pixels (bands, rows, columns); bands are numbered from 1."""
        origin = self._info.origin
        if not isinstance(origin, FileOrigin):
            return np.asarray(origin.read(bands, rows, columns))
        return np.asarray(self.dataset.read(list(bands), window=Window.from_slices(rows, columns)))

    def mask(self, rows: slice, columns: slice) -> Mask | None:
        """Where the raster has pixels; None without a mask."""
        if not self._info.masked:
            return None
        if self._info.alpha is not None:
            shown = self.read((self._info.alpha + 1,), rows, columns)[0]
        else:
            shown = self.dataset.read_masks(1, window=Window.from_slices(rows, columns))
        return np.asarray(shown != 0)


class MemberReader:
    """Reads windows of one member of a `GridSource`; for one thread."""

    def __init__(self, source: GridSource, member: Member) -> None:
        self.member, self.bands, self.pixel_zoom = member, source.bands, source.pixel_zoom
        self._resampling = method_of(source.method)
        self._size = CIRCUMFERENCE / 2.0**source.pixel_zoom
        self._edge = Edge(member, source.pixel_zoom)
        self._alpha = member.info.alpha
        self._groups = _groups(source.bands, member.info)
        self._source = SourceReader(member.info)
        # rasterio finds a file that it reads through comal only in the context that opened it, and
        # another thread may close the reader.
        self._context = copy_context()

    def read(self, window: Window2D) -> Patch:
        """The pixels of a window, with fill values outside of the raster."""
        copied = self.member.offset is not None
        with reading(self.member.info.where, self._source.failures):
            return self._context.run(self._copied if copied else self._warped, window)

    def close(self) -> None:
        """Close the file."""
        self._context.run(self._source.close)

    # -- on the grid: copy

    def _copied(self, window: Window2D) -> Patch:
        info = self.member.info
        assert self.member.offset is not None
        left, top = self.member.offset
        c0, c1 = max(window.x - left, 0), min(window.x + window.width - left, info.width)
        r0, r1 = max(window.y - top, 0), min(window.y + window.height - top, info.height)
        shape = (window.height, window.width)
        if c0 >= c1 or r0 >= r1:
            return Patch(
                [np.full(shape, band.fill, band.dtype) for band in self.bands],
                np.zeros(shape, bool),
            )
        at = np.s_[
            r0 + top - window.y : r1 + top - window.y, c0 + left - window.x : c1 + left - window.x
        ]
        whole = r1 - r0 == window.height and c1 - c0 == window.width
        flip = info.transform[4] > 0
        rows = slice(info.height - r1, info.height - r0) if flip else slice(r0, r1)
        mask = self._source.mask(rows, slice(c0, c1))
        mask = mask[::-1] if flip and mask is not None else mask
        found: list[Array | None] = []
        for band, pixels in zip(
            self.bands, self._pixels(rows, slice(c0, c1), mask, flip=flip), strict=True
        ):
            if whole or pixels is None:
                found.append(pixels)
            else:
                full = np.full(shape, band.fill, band.dtype)
                full[at] = pixels
                found.append(full)
        if whole and mask is None:
            return self._shown(found, None, shape)
        covered = np.zeros(shape, bool)
        covered[at] = True if mask is None else mask
        return self._shown(found, covered, shape)

    def _pixels(
        self, rows: slice, columns: slice, mask: Mask | None, *, flip: bool
    ) -> list[Array | None]:
        """The bands of a source window with the nodata value of the result; None for the mask."""
        stored, info = self._stored(rows, columns), self.member.info
        found: list[Array | None] = []
        for band in self.bands:
            if band.source == MASK_BAND:
                found.append(None)
                continue
            pixels = stored[band.source]
            pixels = pixels[::-1] if flip else pixels
            own = info.nodata(band.source)
            pixels = _renamed(pixels.astype(band.dtype, copy=False), own, band.nodata)
            if mask is not None and band.nodata is not None:
                pixels = np.where(mask, pixels, pixels.dtype.type(band.nodata))
            found.append(pixels)
        return found

    def _stored(self, rows: slice, columns: slice) -> dict[int, Array]:
        """The bands of a window as stored in the source; bands of one type are read together."""
        kinds: dict[str, list[int]] = {}
        for index in sorted({band.source for band in self.bands} - {MASK_BAND}):
            kinds.setdefault(self.member.info.bands[index - 1].dtype, []).append(index)
        return {
            index: pixels
            for indexes in kinds.values()
            for index, pixels in zip(
                indexes, self._source.read(tuple(indexes), rows, columns), strict=True
            )
        }

    # -- off the grid: warp

    def _warped(self, window: Window2D) -> Patch:
        bands: list[Array | None] = [None] * len(self.bands)
        covered: Mask | None = None
        for group in self._groups:
            made, mask = self._warp_group(group, window)
            for at, pixels in zip(group.members, made, strict=True):
                bands[at] = pixels
            if mask is not None:
                covered = mask if covered is None else covered & mask
        if covered is None:
            covered = self._edge.covered(window)
        elif self._resampling in _OF_AREAS:
            covered = self._inside(window, bands, covered)
        if covered is not None and all(one.own is not None for one in self._groups if one.members):
            # GDAL's edge is exact to 1/8 pixel; pixels that it gives a value count as covered.
            for band, shown in zip(self.bands, bands, strict=True):
                if shown is not None:
                    covered |= as_array(valid_mask(shown, band.nodata), shown.shape)
        whole = covered is None or bool(covered.all())
        return self._shown(bands, None if whole else covered, (window.height, window.width))

    def _inside(self, window: Window2D, bands: Sequence[Array | None], covered: Mask) -> Mask:
        """The covered pixels whose centres the source covers; all others are filled."""
        edge = self._edge.covered(window)
        if edge is None:
            return covered
        for band, pixels in zip(self.bands, bands, strict=True):
            if pixels is not None:
                pixels[~(covered & edge)] = band.fill
        return np.asarray(covered & edge)

    def _shown(
        self, bands: Sequence[Array | None], covered: Mask | None, shape: tuple[int, int]
    ) -> Patch:
        """The bands, with a mask band, if any, that is 255 where any other band has a value."""
        made = [one for one in bands if one is not None]
        if len(made) < len(bands):
            nodata = [band.nodata for band in self.bands if band.source != MASK_BAND]
            masks = valid_masks(made, nodata, covered)
            opaque = np.where(as_array(seen(masks), shape), np.uint8(255), np.uint8(0))
            made = [opaque if one is None else one for one in bands]
        return Patch(made, covered)

    def _warp_group(self, group: _Group, window: Window2D) -> tuple[list[Array], Mask | None]:
        """Bands of one type and nodata value, and the covered pixels if they have none."""
        nearest = self._resampling is Resampling.nearest
        if np.dtype(group.dtype).itemsize == 8 and np.dtype(group.dtype).kind in "iu" and nearest:
            return self._warp_halves(group, window)
        indexes = [self.bands[at].source for at in group.members]
        if not indexes:
            return [], self._coverage(window)
        if group.own is not None:
            return list(self._warp(indexes, group, window, extra=0)), None
        alpha = None if self._alpha is None else self._alpha + 1
        if alpha is not None and alpha in indexes and not nearest:
            colours = [index for index in indexes if index != alpha]
            made = self._warp(colours, group, window, extra=1, src_alpha=alpha)
            planes = dict(zip([*colours, alpha], made, strict=True))
            found, covered = [planes[index] for index in indexes], self._coverage(window)
        else:
            *found, shown = self._warp(indexes, group, window, extra=1)
            covered = shown > 0
        if group.wanted is not None or group.fill:
            for one in found:
                one[~covered] = group.fill
        return found, covered

    def _coverage(self, window: Window2D) -> Mask:
        """Where the source has pixels according to GDAL."""
        group = _Group((), self.member.info.bands[0].dtype, None, None)
        made = self._warp([1], group, window, extra=1, resampling=Resampling.nearest)
        return np.asarray(made[1] > 0)

    def _warp_halves(self, group: _Group, window: Window2D) -> tuple[list[Array], Mask | None]:
        """Warp 64-bit integers as two 32-bit halves, since GDAL computes in 64-bit floats."""
        indexes = tuple(self.bands[at].source for at in group.members)
        made = self._warp_window(
            indexes, _Group(group.members, "uint32", None, None), window, 1, halves=True
        )
        covered = made[-1] > 0
        planes = np.stack([made[0:-1:2], made[1:-1:2]], axis=-1)
        whole = np.ascontiguousarray(planes).view(group.dtype)[..., 0]
        found = []
        for one in whole:
            pixels = np.where(covered, one, one.dtype.type(group.fill))
            found.append(_renamed(pixels, group.own, group.wanted))
        return found, covered

    def _warp(
        self,
        indexes: Sequence[int],
        group: _Group,
        window: Window2D,
        *,
        extra: int,
        src_alpha: int = 0,
        resampling: Resampling | None = None,
    ) -> Array:
        info, member = self.member.info, self.member
        direct = isinstance(info.origin, FileOrigin) and info.own_crs and not member.shift
        unfit = any(info.bands[i - 1].nodata is not None for i in indexes) and group.own is None
        # If the target has an additional alpha band, rasterio uses the band numbers of the source
        # for the target.
        renumbered = extra and list(indexes) != list(range(1, len(indexes) + 1))
        # GDAL ignores a mask if there is a nodata value, and an alpha band that is not read.
        hidden = info.masked and (info.alpha is not None or group.own is not None)
        direct = direct and not renumbered and not hidden
        if not direct or unfit or group.dtype not in {info.bands[i - 1].dtype for i in indexes}:
            return self._warp_window(
                tuple(indexes), group, window, extra, src_alpha=src_alpha, resampling=resampling
            )
        target = self._target(len(indexes) + extra, group, window)
        self._reproject(
            rasterio.band(self._source.dataset, list(indexes)),
            target,
            group,
            window,
            resampling,
            src_alpha=src_alpha,
            dst_alpha=len(indexes) + 1 if extra else 0,
        )
        return target

    def _warp_window(
        self, indexes: tuple[int, ...], group: _Group, window: Window2D, extra: int, **named: Any
    ) -> Array:
        """Warp a window of the source that is first read as an array, in pieces if it is large."""
        pixel = sum(np.dtype(self.member.info.bands[at - 1].dtype).itemsize for at in indexes)
        pieces = self._pieces(window, _MOST_BYTES // pixel)
        if len(pieces) == 1:
            return self._warp_piece(indexes, group, window, extra, **named)
        made = [self._warp_piece(indexes, group, piece, extra, **named) for piece in pieces]
        target = np.empty((len(made[0]), window.height, window.width), made[0].dtype)
        for piece, pixels in zip(pieces, made, strict=True):
            top, left = piece.y - window.y, piece.x - window.x
            target[:, top : top + piece.height, left : left + piece.width] = pixels
        return target

    def _pieces(self, window: Window2D, most: int) -> list[Window2D]:
        """A window, or parts of it that need at most so many pixels of the source each."""
        size = self._source_size(window)
        if size <= most:
            return [window]
        parts = _quarters(window)
        # Where the source cannot be cut, near a pole, each part needs all of it.
        if len(parts) == 1 or sum(map(self._source_size, parts)) > 2 * size:
            return [window]
        return [piece for part in parts for piece in self._pieces(part, most)]

    def _source_size(self, window: Window2D) -> int:
        part = self._source_window(window)
        return 0 if part is None else math.prod(side.stop - side.start for side in part)

    def _warp_piece(
        self,
        indexes: tuple[int, ...],
        group: _Group,
        window: Window2D,
        extra: int,
        *,
        src_alpha: int = 0,
        halves: bool = False,
        resampling: Resampling | None = None,
    ) -> Array:
        info = self.member.info
        count = (2 if halves else 1) * len(indexes)
        working = "float32" if group.dtype == "float16" else group.dtype
        target = self._target(count + extra, group, window, working)
        part = self._source_window(window)
        if part is None:
            return target
        rows, columns = part
        wanted = (*indexes, src_alpha) if src_alpha else indexes
        pixels = self._source.read(wanted, rows, columns)
        if halves:
            low_high = np.ascontiguousarray(pixels).view(_HALVES)
            shape = pixels.shape
            pixels = np.ascontiguousarray(
                low_high.reshape(*shape, 2).transpose(0, 3, 1, 2)
            ).reshape(count, *shape[1:])
        pixels = np.ascontiguousarray(pixels, working)
        mask = self._source.mask(rows, columns)
        if mask is not None and group.own is not None:
            pixels = np.where(mask, pixels, pixels.dtype.type(group.own))
        a, b, c, d, e, f = info.transform
        turn = 360.0 if crs_kind(info.crs) == "lonlat" else CIRCUMFERENCE
        left, top = columns.start, rows.start
        east = c + self.member.shift * turn + a * left + b * top
        moved = Affine(a, b, east, d, e, f + d * left + e * top)
        self._reproject(
            pixels,
            target,
            group,
            window,
            resampling,
            src_transform=moved,
            src_crs=_crs(info.crs),
            src_alpha=len(wanted) if src_alpha else 0,
            dst_alpha=count + 1 if extra else 0,
        )
        if mask is not None and extra:
            shown = np.zeros((1, window.height, window.width), np.uint8)
            self._reproject(
                mask.astype(np.uint8)[None],
                shown,
                _Group((), "uint8", None, None),
                window,
                Resampling.nearest,
                src_transform=moved,
                src_crs=_crs(info.crs),
            )
            target[-1] = np.where(shown[0] > 0, target[-1], 0)
        return target.astype(group.dtype, copy=False)

    def _target(
        self, count: int, group: _Group, window: Window2D, dtype: str | None = None
    ) -> Array:
        fill = 0 if group.wanted is None or group.own is None else group.wanted
        return np.full((count, window.height, window.width), fill, dtype or group.dtype)

    def _reproject(
        self,
        source: Any,
        target: Array,
        group: _Group,
        window: Window2D,
        resampling: Resampling | None,
        **named: Any,
    ) -> None:
        size = self._size
        transform = Affine(size, 0, window.x * size - HALF, 0, -size, HALF - window.y * size)
        if group.own is not None:
            named |= {
                "src_nodata": group.own,
                "dst_nodata": group.wanted if group.wanted is not None else group.own,
                # Validity is per band: nodata in one band does not affect the others.
                "UNIFIED_SRC_NODATA": "NO",
            }
        with warnings.catch_warnings():
            reproject(
                source,
                target,
                dst_transform=transform,
                dst_crs=_crs(MERCATOR),
                resampling=resampling or self._resampling,
                num_threads=1,
                warp_mem_limit=_WARP_MEGABYTES,
                **named,
            )

    def _source_window(self, window: Window2D) -> tuple[slice, slice] | None:
        """Rows and columns of the source that a window needs, with a margin for the kernel."""
        info = self.member.info
        along = np.linspace(0, 1, _SIDE)
        x, y = np.meshgrid(window.x + along * window.width, window.y + along * window.height)
        side = 2.0**self.pixel_zoom
        columns, rows = self._pixel_of(x.ravel() / side, y.ravel() / side)
        if not (np.isfinite(columns).all() and np.isfinite(rows).all()):
            return slice(0, info.height), slice(0, info.width)
        step = max(np.ptp(columns) / window.width, np.ptp(rows) / window.height, 1.0)
        margin = int(_MARGIN + 4 * step)
        spans = []
        for found, length in ((rows, info.height), (columns, info.width)):
            low = max(int(np.floor(found.min())) - margin, 0)
            high = min(int(np.ceil(found.max())) + margin, length)
            if low >= high:
                return None
            spans.append(slice(low, high))
        return spans[0], spans[1]

    def _pixel_of(self, u: Array, v: Array) -> tuple[Array, Array]:
        """Positions in pixels of the source."""
        info = self.member.info
        u = u - self.member.shift
        kind = crs_kind(info.crs)
        if kind == "mercator":
            x, y = (u - 0.5) * CIRCUMFERENCE, (0.5 - v) * CIRCUMFERENCE
        else:
            lat = np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * v))))
            lon = u * 360 - 180
            x, y = (lon, lat) if kind == "lonlat" else projection(info.crs).from_lonlat(lon, lat)
        a, b, c, d, e, f = info.transform
        dx, dy = np.asarray(x) - c, np.asarray(y) - f
        scale = a * e - b * d
        return (e * dx - b * dy) / scale, (a * dy - d * dx) / scale


@dataclass(frozen=True, slots=True)
class _Group:
    """Bands that are warped together."""

    members: tuple[int, ...]
    """Positions among the bands to make."""
    dtype: str
    own: int | float | None
    """Nodata value of the source."""
    wanted: int | float | None
    """Nodata value of the result."""
    fill: int | float = 0
    """Value outside of the source."""


def _groups(bands: tuple[OutBand, ...], info: RasterInfo) -> list[_Group]:
    found: dict[tuple[Any, ...], list[int]] = {}
    for at, band in enumerate(bands):
        if band.source == MASK_BAND:
            continue
        own = info.nodata(band.source)
        key = (band.dtype, repr(own), repr(band.nodata), band.padding)
        found.setdefault(key, []).append(at)
    groups = []
    for members in found.values():
        band = bands[members[0]]
        own = info.nodata(band.source)
        groups.append(_Group(tuple(members), band.dtype, own, band.nodata, band.fill))
    masks = [at for at, band in enumerate(bands) if band.source == MASK_BAND]
    if masks and all(group.own is not None for group in groups):
        groups.append(_Group((), "uint8", None, None))
    return groups


def _quarters(window: Window2D) -> list[Window2D]:
    """The four parts of a window; fewer if it is a pixel wide or high."""
    across, down = (
        [(start, size // 2), (start + size // 2, size - size // 2)]
        for start, size in ((window.x, window.width), (window.y, window.height))
    )
    parts = (Window2D(x, y, width, height) for y, height in down for x, width in across)
    return [part for part in parts if part.width and part.height]


def _renamed(pixels: Array, own: float | None, wanted: float | None) -> Array:
    """Pixels with the nodata value `own` replaced by `wanted`."""
    if own is None or wanted is None or own == wanted:
        return pixels
    if own != own:  # noqa: PLR0124 - NaN
        if wanted != wanted:  # noqa: PLR0124
            return pixels
        return np.where(np.isnan(pixels), pixels.dtype.type(wanted), pixels)
    return np.where(pixels == pixels.dtype.type(own), pixels.dtype.type(wanted), pixels)


def _crs(text: str) -> Any:
    """A CRS object for this thread only, as PROJ requires."""
    known: dict[str, Any] = _local.__dict__.setdefault("known", {})
    if text not in known:
        if len(known) >= _MOST_CRS:
            known.clear()
        known[text] = CRS.from_string(text)
    return known[text]


# -- many rasters ----------------------------------------------------------------------------------


def mosaic(
    images: Sequence[tuple[Array, Mask]],
    places: Sequence[tuple[Sequence[float], str]],
    target: tuple[Sequence[float], str],
    shape: tuple[int, int],
) -> Array:
    """Arrays (bands, y, x) on one grid of `shape`, by nearest pixels; 0 where none has a value.

    Of those that have a value at a pixel, the first counts. Each image comes with a mask of its
    shape that is True where it has values. `places` are their geotransforms in GDAL order, each
    with its CRS, and `target` is that of the grid.
    """
    whole = np.zeros((len(images[0][0]), *shape), images[0][0].dtype)
    filled = np.zeros(whole.shape, np.bool_)
    for image, place in zip(images, places, strict=True):
        pixels, masks = (_nearest(one, place, target, shape) for one in image)
        new = (masks > 0) & ~filled
        whole[new] = pixels[new]
        filled |= new
    return whole


def _nearest(pixels: Array, source: Any, target: Any, shape: tuple[int, int]) -> Array:
    dtype = np.uint8 if pixels.dtype == np.bool_ else pixels.dtype
    found = np.zeros((len(pixels), *shape), dtype)
    grids = {
        f"{name}_{part}": value
        for name, (affine, crs) in (("src", source), ("dst", target))
        for part, value in (("transform", Affine.from_gdal(*affine)), ("crs", _crs(crs)))
    }
    reproject(pixels.astype(dtype), found, resampling=Resampling.nearest, **grids)
    return found


def values_of(info: RasterInfo, band: int) -> Array:
    """Distinct values of a band (from 1); for types over 16 bits only the minimum and maximum."""
    found: Array = np.empty(0, info.bands[band - 1].dtype)
    rows = max(1, _AT_ONCE // info.width)
    source = SourceReader(info)
    with gdal_rules(info.config), closing(source), reading(info.where, source.failures):
        for top in range(0, info.height, rows):
            part = slice(top, min(top + rows, info.height))
            (pixels,) = source.read((band,), part, slice(0, info.width))
            values = occurring(pixels, valid_mask(pixels, info.nodata(band)))
            found = np.union1d(found, values)
    return found


@dataclass(frozen=True, slots=True)
class GridSource:
    """The rasters to put on a grid, as plain data that another process can open."""

    members: tuple[Member, ...]
    """Rasters; earlier ones are on top."""
    bands: tuple[OutBand, ...]
    pixel_zoom: int
    """The world is 2**pixel_zoom pixels wide."""
    method: str = "nearest"


class GridReader:
    """Reads windows of a `GridSource`; for one thread.

    Only a few files are open at a time, whatever their number.
    """

    def __init__(self, source: GridSource) -> None:
        self.source = source
        self._boxes = np.array([member.box for member in source.members])
        self._open: OrderedDict[int, MemberReader] = OrderedDict()

    def read(self, window: Window2D) -> Patch | None:
        """The pixels of a window; None if no raster touches it."""
        merged: Patch | None = None
        for index in self._touching(window):
            patch = self._reader(index).read(window)
            merged = patch if merged is None else self._merged(merged, patch)
            if self._complete(merged):
                break
        return merged

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()

    def _touching(self, window: Window2D) -> list[int]:
        side = 2.0**self.source.pixel_zoom
        # One pixel of tolerance, since edges are snapped to tile edges.
        west, east = (window.x - 1) / side, (window.x + window.width + 1) / side
        north, south = (window.y - 1) / side, (window.y + window.height + 1) / side
        boxes = self._boxes
        touching = (
            (boxes[:, 0] < east)
            & (boxes[:, 2] > west)
            & (boxes[:, 1] < south)
            & (boxes[:, 3] > north)
        )
        return [int(index) for index in np.flatnonzero(touching)]

    def _reader(self, index: int) -> MemberReader:
        reader = self._open.pop(index, None)
        if reader is None:
            if len(self._open) >= _OPEN:
                self._open.popitem(last=False)[1].close()
            reader = MemberReader(self.source, self.source.members[index])
        self._open[index] = reader
        return reader

    def _merged(self, top: Patch, below: Patch) -> Patch:
        bands = []
        for at, band in enumerate(self.source.bands):
            valid = valid_mask(top.bands[at], band.nodata, top.covered)
            if valid is None:
                bands.append(top.bands[at])
            elif band.nodata is None and top.covered is not None:
                # Without a nodata value a pixel comes from one raster or the other in all bands.
                bands.append(np.where(top.covered, top.bands[at], below.bands[at]))
            else:
                bands.append(np.where(valid, top.bands[at], below.bands[at]))
        covered = None
        if top.covered is not None and below.covered is not None:
            covered = top.covered | below.covered
        return Patch(bands, covered)

    def _complete(self, patch: Patch) -> bool:
        return len(self.source.members) > 1 and all(
            valid_mask(pixels, band.nodata, patch.covered) is None
            for pixels, band in zip(patch.bands, self.source.bands, strict=True)
        )
