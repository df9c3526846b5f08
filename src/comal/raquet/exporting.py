"""RaQuet as GeoTIFF, as Cloud-Optimized GeoTIFF, and as an image."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from comal import storage
from comal.errors import InvalidInputError
from comal.grid.arguments import integers
from comal.progress import Progress, silent
from comal.public import options_of, takes
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.opening import borrowed
from comal.raquet.reading.pixels import alpha_of, chosen_bands, stored_nodata
from comal.raquet.reading.windows import Grid, grid_of
from comal.raquet.spec import Band, Number
from comal.raster.describing import BandInfo, crs_wkt
from comal.raster.geotiff import TiffLayout, geotiff_to_cog, write_geotiff
from comal.raster.pictures import fitted, picture_of, shrunk
from comal.raster.values import colour_table, default_bands
from comal.raster.values import stored_nodata as as_stored
from comal.storage.config import StorageConfig
from comal.storage.targets import TIFF, TargetFile, check_ending, target_path

Pixels = npt.NDArray[Any]
Path_ = str | os.PathLike[str]
Source = Path_ | Sequence[Path_] | RaquetFile

_CHUNK = 1024
_PICTURE = 4096
_EXACT = 2**53
"""The greatest nodata value of integers: rasterio has nodata values as floats only."""
_ALPHA_TYPES, _ALPHA_COUNTS = ("uint8", "uint16"), (2, 4)
"""Types and numbers of bands whose last one GDAL takes for a mask if it is alpha."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    path: str
    zoom: int
    width: int
    height: int
    bands: tuple[str, ...]
    """Names of the bands; in a time series, with the time of the step."""
    dtype: str
    nodata: Number | None
    size: int
    """Size of the file in bytes."""

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        known = self.nodata is None or self.nodata == self.nodata  # JSON has no NaN
        told = {"bands": list(self.bands), "nodata": self.nodata if known else "nan"}
        return {**asdict(self), **told}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Which pixels are written, and how; see `to_geotiff`."""

    zoom: int | None = None
    bbox: Sequence[float] | None = None
    bands: Any = None
    time: Any = None
    nodata: Number | None = None
    compression: str = "deflate"


@takes(ExportOptions)
def to_geotiff(
    source: Source,
    path: Path_,
    *,
    overviews: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
    config: StorageConfig | None = None,
    **options: Any,
) -> Exported:
    """Write a GeoTIFF in EPSG:3857, on the pixels of a zoom.

    Parameters
    ----------
    source
        A RaQuet file, the parts of a set, or an open file.
    path
        The file to write.
    zoom
        Which zoom; the finest by default.
    bbox
        West, south, east, north in degrees: every pixel that touches it is written; west > east
        crosses the antimeridian. By default all tiles.
    bands
        Names or numbers from 1; all by default.
    time
        A step of a time series, by number, ``time_cf`` or instant. By default all steps, each as
        a band of its own.
    nodata
        Value of pixels without data, for all bands; a GeoTIFF has only one, and no pixel with data
        may hold it. By default that of the bands, or NaN if they are floats with different nodata
        values.
    compression
        ``deflate`` (the default), ``zstd``, ``lzw``, ``lerc``, ``packbits`` or ``none``.
    overviews
        Whether to add overviews: averages, or the most frequent class for colour tables.
    overwrite
        Whether to replace an existing file.
    progress
        Called with the number of blocks that are done.
    config
        Settings and credentials to read and to write with.
    **options
        Parameters above that the signature does not name.

    Raises
    ------
    InvalidInputError
        There is no such zoom, band or step, bands have different nodata values and `nodata` is
        not given, or a pixel with data holds `nodata`.
    ConflictError
        The file exists and `overwrite` is false.
    """

    def write(file: TargetFile, plan: _Plan) -> None:
        method = _method(plan) if overviews else None
        write_geotiff(file.path, plan.layout, _blocks(plan, progress), overviews=method)

    chosen = options_of(ExportOptions, options)
    return _written(source, path, chosen, write, config, overwrite=overwrite)


@takes(ExportOptions)
def to_cog(
    source: Source,
    path: Path_,
    *,
    overwrite: bool = False,
    progress: Progress = silent,
    config: StorageConfig | None = None,
    **options: Any,
) -> Exported:
    """Write a Cloud-Optimized GeoTIFF with overviews; parameters are those of `to_geotiff`."""
    chosen = options_of(ExportOptions, options)

    def write(file: TargetFile, plan: _Plan) -> None:
        whole = file.folder() / "whole.tif"
        # For a file that is read once LZW, which takes half of the time of DEFLATE.
        write_geotiff(whole, replace(plan.layout, compression="lzw"), _blocks(plan, progress))
        how: dict[str, Any] = {"compression": chosen.compression, "block": plan.layout.block}
        geotiff_to_cog(whole, file.path, method=_method(plan), **how)

    return _written(source, path, chosen, write, config, overwrite=overwrite)


def _written(
    source: Source,
    path: Path_,
    options: ExportOptions,
    write: Callable[[TargetFile, _Plan], None],
    config: StorageConfig | None,
    *,
    overwrite: bool,
) -> Exported:
    target = target_path(path, config)
    check_ending(target, ".tif", ".tiff")
    with borrowed(source, config) as raster:
        plan = _plan(raster, options)
        with storage.targets.new_file(target, overwrite, TIFF, raster.store.sources) as file:
            file.close()  # GDAL creates the file itself
            write(file, plan)
            size = file.path.stat().st_size
    layout, zoom = plan.layout, plan.grid.zoom
    of = layout.width, layout.height, plan.names, layout.dtype, layout.nodata
    return Exported(os.fspath(path), zoom, *of, size)


def preview(
    source: Source,
    *,
    size: int = 512,
    bands: Any = None,
    time: Any = None,
) -> bytes:
    """A PNG of the area of the source, from the zoom that fits; see `comal.raster.preview`.

    Parameters
    ----------
    source
        A RaQuet file, the parts of a set, or an open file.
    size
        Longest side in pixels.
    bands
        One or three bands; by default those marked red, green and blue, else the first.
    time
        Which step of a time series; the first by default.

    Raises
    ------
    InvalidInputError
        The size is not 1 to 4096, there is no such band or step, or the raster is too large and
        has no overviews.
    """
    if not 1 <= integers(size, "size") <= _PICTURE:
        raise InvalidInputError("size out of range", found=size, expected=f"1 to {_PICTURE}")
    with borrowed(source) as raster:
        numbers = default_bands([band.colorinterp for band in raster.bands])
        wanted = numbers if bands is None else bands
        chosen = chosen_bands(raster.metadata, wanted, raster.href)
        if len(chosen) not in {1, 3}:
            raise InvalidInputError(
                "a picture needs one band or three", where=raster.href, found=len(chosen)
            )
        step = _steps(raster, 0 if raster.times is not None and time is None else time)[0]
        grid = _grid_for(raster, size)
        column, row, width, height = grid.span(raster.bounds)
        if width * height > _PICTURE**2:
            raise InvalidInputError(
                "the raster has no overviews and is too large for a picture",
                where=raster.href,
                found=f"{width} x {height} pixels at its coarsest zoom",
            )
        names = [band.name for band in chosen]
        span = column % grid.width, row, width, height
        window = raster.window(grid.zoom, *span, names, time=step, masked=True)
        return _picture(window.data, chosen, size)


def _picture(data: Pixels, bands: Sequence[Band], size: int) -> bytes:
    pixels, masks = np.ma.getdata(data), list(~np.ma.getmaskarray(data))
    table = bands[0].colortable if len(bands) == 1 else None
    shape = fitted(pixels.shape[1], pixels.shape[2], size)
    if shape != pixels.shape[1:]:
        pixels, masks = shrunk(pixels, masks, shape, mixed=table is None)
    return picture_of(pixels, masks, None if table is None else colour_table(table, 256))


@dataclass(frozen=True, slots=True)
class _Plan:
    raster: RaquetFile
    layout: TiffLayout
    grid: Grid
    column: int
    row: int
    bands: tuple[Band, ...]
    steps: tuple[int | None, ...]
    names: tuple[str, ...]
    plain: bool
    """Whether stored pixels are written unchanged."""


def _plan(raster: RaquetFile, asked: ExportOptions) -> _Plan:
    metadata = raster.metadata
    zoom = metadata.max_zoom if asked.zoom is None else asked.zoom
    grid = grid_of(metadata, zoom, raster.href)
    span = column, row, width, height = _span(raster, grid, asked.bbox)
    chosen = chosen_bands(metadata, asked.bands, raster.href)
    steps = _steps(raster, asked.time)
    dtype = np.result_type(*(_tiff_type(band.dtype) for band in chosen))
    if any(not np.can_cast(_tiff_type(band.dtype), dtype, "safe") for band in chosen) or (
        dtype.kind == "f" and any(band.dtype in {"int64", "uint64"} for band in chosen)
    ):
        raise InvalidInputError(
            "no type holds the pixels of all these bands",
            found=", ".join(band.dtype for band in chosen),
            hint="export the bands one by one: bands=[...]",
        )
    value, masked = _common_nodata(raster, chosen, dtype, asked.nodata)
    names = tuple(_dated(raster, band.name, step) for step in steps for band in chosen)
    infos = tuple(
        BandInfo(
            dtype=dtype.name,
            description=_dated(raster, band.description or band.name, step),
            unit=band.unit or None,
            scale=band.scale,
            offset=band.offset,
            colorinterp=band.colorinterp,
            colortable=band.colortable,
        )
        for step in steps
        for band in chosen
    )
    told = dtype.name in _ALPHA_TYPES and len(infos) in _ALPHA_COUNTS
    told = told and alpha_of(chosen) == len(chosen) - 1
    layout = TiffLayout(
        width=width,
        height=height,
        transform=grid.transform(column, row),
        crs=crs_wkt("EPSG:3857", "target"),
        dtype=dtype.name,
        bands=infos,
        nodata=value,
        masked=masked and not told and _has_gaps(raster, chosen, grid, span),
        compression=asked.compression,
        block=min(metadata.block_width, 512) if metadata.block_width % 16 == 0 else 256,
    )
    # Integer bands that already share one nodata value.
    plain = value is not None and asked.nodata is None and dtype.kind != "f"
    plain = plain and alpha_of(raster.bands) is None
    return _Plan(raster, layout, grid, column, row, chosen, steps, names, plain)


def _has_gaps(
    raster: RaquetFile, bands: Sequence[Band], grid: Grid, span: tuple[int, int, int, int]
) -> bool:
    """Whether there may be nodata pixels that only a mask can mark."""
    metadata = raster.metadata
    alpha = alpha_of(metadata.bands)
    if alpha is not None or any(stored_nodata(band) is not None for band in bands):
        return True
    left, *rest = span
    holes = raster.holes(grid.zoom, left % grid.width, *rest)
    return any(band.name in holes for band in bands)


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
                plan.grid.zoom,
                (plan.column + column) % plan.grid.width,
                plan.row + row,
                width,
                height,
                names,
                time=step,
                masked=not plan.plain,
            ).data
            found.append(window if plan.plain else _filled(plan, window))
        together: Any = np.ma.concatenate  # numpy gives it no type
        pixels = together(found) if len(found) > 1 else found[0]
        if not plan.plain:
            _check_mask(plan, np.ma.getmaskarray(pixels))
        yield column, row, pixels.astype(layout.dtype, copy=False)
        progress(done + 1, len(places), "writing blocks")


def _filled(plan: _Plan, window: Any) -> Pixels:
    """Pixels as the GeoTIFF stores them: masked ones hold its nodata value and alpha 0."""
    layout = plan.layout
    data = np.ma.getdata(window).astype(layout.dtype, copy=False)
    mask = np.ma.getmaskarray(window)
    at = alpha_of(plan.bands)
    alpha = None
    if at is not None:
        # An alpha band may have a nodata value, which masks nothing.
        mask[at] = np.delete(mask, at, axis=0).all(axis=0) if len(mask) > 1 else mask[at]
        alpha = np.where(mask[at], 0, data[at])
    if layout.nodata is not None:
        lost = (data == layout.nodata) & ~mask
        if any(taken.any() for n, taken in enumerate(lost) if n != at):
            raise InvalidInputError(
                "pixels that have a value hold the nodata value",
                where=plan.raster.href,
                found=layout.nodata,
                hint="choose a nodata value that no pixel holds (nodata=...)",
            )
        data[mask] = layout.nodata
    if alpha is not None:
        data[at] = alpha
    return np.ma.MaskedArray(data, mask)


def _check_mask(plan: _Plan, mask: Pixels) -> None:
    """Without a nodata value, a GeoTIFF has at most one mask, for all bands."""
    told = plan.layout.nodata is not None or alpha_of(plan.bands) is not None
    if not told and ((mask != mask[0]).any() if plan.layout.masked else mask.any()):
        raise InvalidInputError(
            "a GeoTIFF without a nodata value cannot mark pixels without a value",
            where=plan.raster.href,
            expected="pixels that have a value in all bands or in none",
            hint="give a nodata value (nodata=...), or export the bands one by one",
        )


def _span(
    raster: RaquetFile, grid: Grid, bbox: Sequence[float] | None
) -> tuple[int, int, int, int]:
    """First column and row, width and height, in pixels of the zoom."""
    if bbox is None:
        return grid.span(raster.everything())
    span, own = grid.span(bbox), grid.span(raster.bounds)
    if not _meet(span, own, grid.width):
        raise InvalidInputError(
            "the box lies outside the raster",
            where=raster.href,
            found=tuple(bbox),
            expected=f"a part of {raster.bounds}",
        )
    return span


def _meet(one: Sequence[int], other: Sequence[int], world: int) -> bool:
    """Whether two windows share a pixel; columns wrap around the world."""
    (left, top, width, height), (column, row, columns, rows) = one, other
    across = (column - left) % world < width or (left - column) % world < columns
    return across and top < row + rows and row < top + height


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
    raster: RaquetFile, bands: Sequence[Band], dtype: np.dtype[Any], wanted: Number | None
) -> tuple[Number | None, bool]:
    """The nodata value of the GeoTIFF (one for all bands), or None and whether it needs a mask."""
    if wanted is not None:
        value = as_stored(wanted, dtype)
        if value is None:
            raise InvalidInputError(
                "nodata is not a value of the raster's type", found=wanted, expected=f"a {dtype}"
            )
        if dtype.kind in "iu" and abs(int(value)) > _EXACT:
            raise InvalidInputError(
                "a GeoTIFF cannot tell the nodata value",
                found=wanted,
                expected=f"-{_EXACT} to {_EXACT}",
            )
        return value.item(), False
    # The alpha band marks nodata pixels by its values; its own nodata value is ignored.
    alpha = alpha_of(raster.bands)
    others = [band for band in bands if alpha is None or band is not raster.bands[alpha]] or bands
    own = [stored_nodata(band) for band in others]
    values = {repr(one.item()): one.item() for one in own if one is not None}
    if len(values) == 1 and None not in own:
        (value,) = values.values()
        if dtype.kind == "f" or abs(value) <= _EXACT:
            return value, False
        values = {}
    if dtype.kind == "f":
        return float("nan"), False
    if not values:
        return None, True
    raise InvalidInputError(
        "the bands have different nodata values",
        found=", ".join(f"{band.name} {band.nodata}" for band in others),
        hint="give one for all (nodata=...), or export the bands one by one",
    )


def _method(plan: _Plan) -> str:
    classes = any(band.colortable or band.colorinterp == "palette" for band in plan.bands)
    return "mode" if classes else "average"


def _grid_for(raster: RaquetFile, size: int) -> Grid:
    """The coarsest zoom with `size` pixels along the longer side, or the finest."""
    grids = [grid_of(raster.metadata, zoom, raster.href) for zoom in raster.zooms]
    large = (grid for grid in grids if max(grid.span(raster.bounds)[2:]) >= size)
    return next(large, grids[-1])
