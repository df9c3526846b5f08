"""RaQuet as GeoTIFF, as Cloud-Optimized GeoTIFF, and as a picture."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comal import storage
from comal.errors import InvalidInputError, shown
from comal.grid.arguments import integers
from comal.grid.mercator import CIRCUMFERENCE, HALF, lonlat_to_xy
from comal.progress import Progress, silent
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.opening import open as open_raquet
from comal.raquet.reading.pixels import stored_nodata
from comal.raquet.spec import Band, Number
from comal.raster.describing import BandInfo, crs_wkt
from comal.raster.geotiff import TiffLayout, geotiff_to_cog, picture_of, write_geotiff
from comal.storage.endings import check_ending
from comal.storage.targets import local_path

Pixels = npt.NDArray[Any]
Path_ = str | os.PathLike[str]
Source = Path_ | Sequence[Path_] | RaquetFile

_CHUNK = 1024
_SLACK = 1e-2
_PICTURE = 4096


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    path: str
    zoom: int
    width: int
    height: int
    bands: tuple[str, ...]
    """Names of the bands: of a time series, also when it was."""
    dtype: str
    nodata: Number | None
    size: int
    """Bytes of the file."""

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        nodata = self.nodata
        known = nodata is None or nodata == nodata  # noqa: PLR0124 - NaN has no JSON
        return {
            "path": self.path,
            "zoom": self.zoom,
            "width": self.width,
            "height": self.height,
            "bands": list(self.bands),
            "dtype": self.dtype,
            "nodata": nodata if known else "nan",
            "size": self.size,
        }


def to_geotiff(
    source: Source,
    path: Path_,
    *,
    zoom: int | None = None,
    bbox: Sequence[float] | None = None,
    bands: Any = None,
    time: Any = None,
    nodata: Number | None = None,
    compression: str = "deflate",
    overviews: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write a GeoTIFF in EPSG:3857, on the pixels of a zoom.

    Parameters
    ----------
    source
        A RaQuet file, the parts of a set, or one that is open.
    path
        The file to write.
    zoom
        Which zoom; the finest by default.
    bbox
        West, south, east, north in degrees: what the pixels cover that touch it; west > east
        crosses the antimeridian. By default all tiles.
    bands
        Names or numbers from 1 on; all by default.
    time
        A step of a time series, by number, ``time_cf`` or instant. By default all steps, each as
        a band of its own.
    nodata
        Value of pixels without data, for all bands; a GeoTIFF has only one. By default that of
        the bands, and NaN for floats that differ in it.
    compression
        ``deflate``, ``zstd``, ``lzw``, ``lerc``, ``packbits`` or ``none``.
    overviews
        Whether to add overviews: averages, and the most frequent class for colour tables.
    overwrite
        Whether an existing file is replaced.
    progress
        Told how many blocks are done.

    Raises
    ------
    InvalidInputError
        No such zoom, band or step, or bands with different nodata values and no `nodata`.
    ConflictError
        The file exists and may not be replaced.
    """
    check_ending(path, ".tif", ".tiff")
    with _Open(source) as raster:
        plan = _plan(raster, zoom, bbox, bands, time, nodata, compression)
        with storage.targets.new_file(path, overwrite) as file:
            file.close()  # GDAL makes a file of its own under this name
            method = _method(plan) if overviews else None
            write_geotiff(file.path, plan.layout, _blocks(plan, progress), overviews=method)
            size = file.path.stat().st_size
    return _exported(path, plan, size)


def to_cog(
    source: Source,
    path: Path_,
    *,
    zoom: int | None = None,
    bbox: Sequence[float] | None = None,
    bands: Any = None,
    time: Any = None,
    nodata: Number | None = None,
    compression: str = "deflate",
    overwrite: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write a Cloud-Optimized GeoTIFF with overviews; parameters are those of `to_geotiff`."""
    check_ending(path, ".tif", ".tiff")
    with _Open(source) as raster:
        plan = _plan(raster, zoom, bbox, bands, time, nodata, compression)
        with storage.targets.new_file(path, overwrite) as file:
            file.close()
            folder = local_path(path).absolute().parent
            with tempfile.TemporaryDirectory(prefix=".cog.", dir=folder) as scratch:
                whole = Path(scratch) / "whole.tif"
                write_geotiff(whole, plan.layout, _blocks(plan, progress))
                geotiff_to_cog(
                    whole,
                    file.path,
                    method=_method(plan),
                    compression=compression,
                    block=plan.layout.block,
                )
            size = file.path.stat().st_size
    return _exported(path, plan, size)


def preview(
    source: Source,
    *,
    size: int = 512,
    bands: Any = None,
    time: Any = None,
) -> bytes:
    """A PNG of what the source covers, from the zoom that fits; see `comal.raster.preview`.

    Parameters
    ----------
    source
        A RaQuet file, the parts of a set, or one that is open.
    size
        Longest side in pixels.
    bands
        One or three bands; those marked red, green and blue by default, else the first.
    time
        Which step of a time series; the first by default.

    Raises
    ------
    InvalidInputError
        A size below 1 or above 4096, no such band or step, or a raster without overviews that is
        too large.
    """
    if not 1 <= integers(size, "size") <= _PICTURE:
        raise InvalidInputError("no such size", found=size, expected=f"1 to {_PICTURE}")
    with _Open(source) as raster:
        if raster.times is not None and time is None:
            time = 0
        zoom = _zoom_for(raster, size)
        plan = _plan(raster, zoom, raster.extent, bands, time, None, "none")
        layout = plan.layout
        if layout.width * layout.height > _PICTURE**2:
            raise InvalidInputError(
                "raster without overviews is too large for a picture",
                where=raster.href,
                found=f"{layout.width} x {layout.height} pixels at its coarsest zoom",
            )
        empty: Any = np.ma.empty if layout.masked else np.empty
        pixels = empty((len(layout.bands), layout.height, layout.width), layout.dtype)
        for column, row, block in _blocks(plan, silent):
            _, height, width = block.shape
            pixels[:, row : row + height, column : column + width] = block
        return picture_of(layout, pixels, size)


@dataclass(frozen=True, slots=True)
class _Plan:
    raster: RaquetFile
    layout: TiffLayout
    zoom: int
    column: int
    row: int
    bands: tuple[Band, ...]
    steps: tuple[int | None, ...]
    names: tuple[str, ...]
    fills: bool
    """Whether pixels without data get another value than they have."""


class _Open:
    """A file that is opened here is closed here."""

    def __init__(self, source: Source) -> None:
        self._own = not isinstance(source, RaquetFile)
        self._raster = source if isinstance(source, RaquetFile) else open_raquet(source)

    def __enter__(self) -> RaquetFile:
        return self._raster

    def __exit__(self, *_error: object) -> None:
        if self._own:
            self._raster.close()


def _plan(
    raster: RaquetFile,
    zoom: int | None,
    bbox: Sequence[float] | None,
    bands: Any,
    time: Any,
    nodata: Number | None,
    compression: str,
) -> _Plan:
    metadata = raster.metadata
    zoom = metadata.max_zoom if zoom is None else zoom
    if zoom not in raster.zooms:
        raise InvalidInputError(
            "the file has no such zoom",
            where=raster.href,
            found=zoom,
            expected=f"{metadata.min_zoom} to {metadata.max_zoom}",
        )
    column, row, width, height = _span(raster, zoom, bbox)
    chosen = _chosen(raster, bands)
    steps = _steps(raster, time)
    dtype = np.result_type(*(_tiff_type(band.dtype) for band in chosen))
    if any(not np.can_cast(_tiff_type(band.dtype), dtype, "safe") for band in chosen) or (
        dtype.kind == "f" and any(band.dtype in {"int64", "uint64"} for band in chosen)
    ):
        raise InvalidInputError(
            "bands whose types have none in common",
            found=", ".join(band.dtype for band in chosen),
            hint="export them one by one: bands=[...]",
        )
    value, fills = _common_nodata(chosen, dtype, nodata)
    names = tuple(_dated(raster, band.name, step) for step in steps for band in chosen)
    texts = [
        _dated(raster, band.description or band.name, step) for step in steps for band in chosen
    ]
    size = CIRCUMFERENCE / (metadata.block_width << zoom)
    down = CIRCUMFERENCE / (metadata.block_height << zoom)
    infos = tuple(
        BandInfo(
            dtype=dtype.name,
            description=text,
            unit=band.unit or None,
            scale=band.scale,
            offset=band.offset,
            colorinterp=band.colorinterp,
            colortable=band.colortable,
        )
        for text, band in zip(texts, chosen * len(steps), strict=True)
    )
    span = column, row, width, height
    layout = TiffLayout(
        width=width,
        height=height,
        transform=(size, 0.0, column * size - HALF, 0.0, -down, HALF - row * down),
        crs=crs_wkt("EPSG:3857", "target"),
        dtype=dtype.name,
        bands=infos,
        nodata=value,
        masked=value is None and _has_padding(raster, chosen, zoom, span),
        compression=compression,
        block=min(metadata.block_width, 512) if metadata.block_width % 16 == 0 else 256,
    )
    return _Plan(raster, layout, zoom, column, row, chosen, steps, names, fills)


def _has_padding(
    raster: RaquetFile, bands: Sequence[Band], zoom: int, span: tuple[int, int, int, int]
) -> bool:
    """Whether there are pixels that the source did not cover, and no alpha band tells them."""
    metadata = raster.metadata
    covers = [raster.store.coverage[metadata.band_index(band.name)] for band in bands]
    if not all(covers) or any(band.colorinterp == "alpha" for band in bands):
        return False
    left, top, width, height = span
    world = metadata.block_width << zoom, metadata.block_height << zoom
    parts = (
        (column, row, min(_CHUNK, left + width - column), min(_CHUNK, top + height - row))
        for row in range(top, top + height, _CHUNK)
        for column in range(left, left + width, _CHUNK)
    )
    return any(
        cover.window(part, world) is not None
        for part in parts
        for cover in dict.fromkeys(covers)
        if cover is not None
    )


def _blocks(plan: _Plan, progress: Progress) -> Iterator[tuple[int, int, Pixels]]:
    layout = plan.layout
    block = layout.block
    side = max(block, _CHUNK // block * block)
    places = [
        (column, row)
        for row in range(0, layout.height, side)
        for column in range(0, layout.width, side)
    ]
    names = [band.name for band in plan.bands]
    for done, (column, row) in enumerate(places):
        width, height = min(side, layout.width - column), min(side, layout.height - row)
        found = []
        for step in plan.steps:
            window = plan.raster.window(
                plan.zoom,
                (plan.column + column) % (plan.raster.metadata.block_width << plan.zoom),
                plan.row + row,
                width,
                height,
                names,
                time=step,
                masked=plan.fills or layout.masked,
            ).data
            if plan.fills:
                filled: Pixels = np.ma.getdata(window).astype(layout.dtype)
                filled[np.ma.getmaskarray(window)] = layout.nodata
                window = filled
            found.append(window.astype(layout.dtype, copy=False))
        together: Any = np.ma.concatenate if layout.masked else np.concatenate
        yield column, row, together(found)
        progress(done + 1, len(places), "writing blocks")


def _span(raster: RaquetFile, zoom: int, bbox: Sequence[float] | None) -> tuple[int, int, int, int]:
    """First column and row, width and height in pixels of a zoom."""
    metadata = raster.metadata
    try:
        box = tuple(float(edge) for edge in (raster.everything() if bbox is None else bbox))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "not a box", found=shown(bbox), expected="west, south, east, north in degrees"
        ) from error
    if len(box) != 4 or not np.isfinite(box).all() or box[1] >= box[3] or box[0] == box[2]:
        raise InvalidInputError(
            "not a box", found=box, expected="west, south, east, north with south < north"
        )
    if bbox is not None and not _meet(box, raster.everything()):
        raise InvalidInputError(
            "the box lies outside of the raster",
            where=raster.href,
            found=box,
            expected=f"a part of {raster.everything()}",
        )
    (x0, x1), (y0, y1) = lonlat_to_xy([box[0], box[2]], [box[3], box[1]], zoom)
    across, down = metadata.block_width, metadata.block_height
    world = across << zoom
    left, right = _outward(x0 * across, x1 * across)
    top, bottom = _outward(y0 * down, y1 * down)
    if box[0] > box[2]:
        right += world
    return left, top, max(min(right - left, world), 1), max(bottom - top, 1)


def _meet(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two boxes share a part; west of east they cross the antimeridian."""
    (west, south, east, north), (left, bottom, right, top) = one, other
    east, right = east + 360 * (east < west), right + 360 * (right < left)
    across = any(west + turn < right and left < east + turn for turn in (-360, 0, 360))
    return across and south < top and bottom < north


def _outward(start: float, stop: float) -> tuple[int, int]:
    """Whole pixels; an edge within 1/100 pixel of a line is on it."""
    return int(np.floor(start + _SLACK)), int(np.ceil(stop - _SLACK))


def _chosen(raster: RaquetFile, bands: Any) -> tuple[Band, ...]:
    every = raster.bands
    if bands is None:
        return every
    wanted = list(bands) if isinstance(bands, Iterable) and not isinstance(bands, str) else [bands]
    names = [band.name for band in every]
    found = []
    for one in wanted:
        at = one - 1 if isinstance(one, int) else names.index(one) if one in names else -1
        if not 0 <= at < len(every):
            raise InvalidInputError(
                "no such band", where=raster.href, found=repr(one), expected=", ".join(names)
            )
        found.append(every[at])
    if not found:
        raise InvalidInputError("no band is chosen", where=raster.href)
    return tuple(found)


def _steps(raster: RaquetFile, time: Any) -> tuple[int | None, ...]:
    axis = raster.times
    if axis is None:
        if time is not None:
            raise InvalidInputError("the file has no time", where=raster.href, found=time)
        return (None,)
    if time is None:
        return tuple(range(len(axis)))
    return (axis.index(time, raster.href),)


def _dated(raster: RaquetFile, name: str, step: int | None) -> str:
    axis = raster.times
    if step is None or axis is None:
        return name
    stamp = axis.stamps[step]
    told = f"{axis.values[step]:g} {axis.units}" if np.isnat(stamp) else str(stamp)
    return f"{name} {told.removesuffix('T00:00:00.000000')}"


def _tiff_type(dtype: str) -> np.dtype[Any]:
    return np.dtype("float32" if dtype == "float16" else dtype)


def _common_nodata(
    bands: Sequence[Band], dtype: np.dtype[Any], wanted: Number | None
) -> tuple[Number | None, bool]:
    """The nodata value of a GeoTIFF, and whether pixels have to be changed for it."""
    if wanted is not None:
        bounds = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
        if wanted == wanted and not bounds.min <= wanted <= bounds.max:  # noqa: PLR0124 - NaN
            raise InvalidInputError(
                "nodata is no value of the raster's type", found=wanted, expected=f"a {dtype}"
            )
        return wanted, True
    own = [stored_nodata(band) for band in bands]
    values = [None if one is None else one.item() for one in own]
    if len({repr(value) for value in values}) == 1:
        return values[0], False
    if dtype.kind == "f":
        return float("nan"), True
    raise InvalidInputError(
        "bands with different nodata values",
        found=", ".join(f"{band.name} {value}" for band, value in zip(bands, values, strict=True)),
        hint="give one for all (nodata=...), or export the bands one by one",
    )


def _method(plan: _Plan) -> str:
    classes = any(band.colortable or band.colorinterp == "palette" for band in plan.bands)
    return "mode" if classes else "average"


def _zoom_for(raster: RaquetFile, size: int) -> int:
    """The coarsest zoom with `size` pixels along the longer side, or the finest."""
    for zoom in raster.zooms:
        if max(_span(raster, zoom, raster.extent)[2:]) >= size:
            return zoom
    return raster.metadata.max_zoom


def _exported(path: Path_, plan: _Plan, size: int) -> Exported:
    layout = plan.layout
    return Exported(
        os.fspath(path),
        plan.zoom,
        layout.width,
        layout.height,
        plan.names,
        layout.dtype,
        layout.nodata,
        size,
    )
