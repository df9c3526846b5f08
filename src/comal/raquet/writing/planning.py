"""The options of a writer, and the job that they define: bands, tiles, and how they are made."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from comal.errors import InvalidInputError, shown
from comal.public import warn
from comal.raquet import spec
from comal.raquet.spec import Band, Number
from comal.raquet.times import TimeAxis, time_axis
from comal.raquet.writing.arrays import Sources, array_series, is_array
from comal.raquet.writing.job import LEVEL, QUALITY, Job, depth_of
from comal.raquet.writing.layout import alpha_band, first_choice, free_value
from comal.raster.describing import RasterInfo, crs_wkt, describe, fitting_nodata
from comal.raster.gridding import (
    STRATEGIES,
    Footprint,
    Grid,
    Member,
    choose_zoom,
    footprint,
    overview_zoom,
    plan_grid,
    raw_zoom,
)
from comal.raster.overviews import AVERAGE, MODE, check_method
from comal.raster.statistics import lattice_step
from comal.raster.values import Array, alpha_at, whole_nodata
from comal.raster.warping import MASK_BAND, GridSource, OutBand, method_of, values_of
from comal.storage import StorageConfig, several

_CLASSES = ("nearest", "near", "mode")
_MOST_TILES = 1 << 32


BLOCKS = tuple(2**power for power in range(4, 13))
"""Tile sizes that can be written: powers of two from 16 to 4096."""

BandChoice = Sequence[int | str] | Mapping[str, int | str] | None
NodataChoice = Number | str | Mapping[str, Number | None] | None

NO_NODATA = "none"
"""In place of a nodata value: choose none for bands without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `write`; see there."""

    spec_version: str = spec.WRITTEN[0]
    zoom: int | None = None
    zoom_strategy: str = "auto"
    min_zoom: int | None = None
    resampling: str = "nearest"
    overview_resampling: str | None = None
    block_size: int = 256
    bands: BandChoice = None
    nodata: NodataChoice = None
    crs: Any = None
    variable: str | None = None
    config: StorageConfig | None = None
    compression: str | None = spec.GZIP
    level: int = LEVEL
    quality: int = QUALITY
    layout: str = spec.SEQUENTIAL
    tile_statistics: bool = False
    row_group_size: int | None = None
    block_dtype: str = "uint64"

    def check(self) -> None:
        """Raise `InvalidInputError` for the first invalid value."""
        _one_of("version", self.spec_version, spec.WRITTEN)
        _one_of("zoom strategy", self.zoom_strategy, STRATEGIES)
        _one_of("block size", self.block_size, BLOCKS)
        _one_of("compression", self.compression, spec.COMPRESSIONS)
        _one_of("layout", self.layout, spec.LAYOUTS)
        _one_of("type for block", self.block_dtype, ("uint64", "int64"))
        method_of(self.resampling)
        if self.overview_resampling is not None:
            check_method(self.overview_resampling)
        _within("compression level", self.level, 0, 12)
        _within("quality", self.quality, 1, 100)
        for name, zoom in (("zoom", self.zoom), ("minimum zoom", self.min_zoom)):
            if zoom is not None:
                _within(name, zoom, 0, spec.MAX_ZOOM)
        if self.row_group_size is not None:
            _within("row group size", self.row_group_size, 1, 1 << 20)
        self._check_coding()

    def _check_coding(self) -> None:
        lossy = self.compression in spec.LOSSY_BANDS
        if lossy and self.layout != spec.INTERLEAVED:
            raise InvalidInputError(
                f"{self.compression} needs the interleaved layout", hint="pass layout='interleaved'"
            )
        for what, wanted in (
            ("interleaved layout", self.layout == spec.INTERLEAVED),
            ("tile statistics", self.tile_statistics),
        ):
            if wanted and self.spec_version == spec.WRITTEN[0]:
                raise InvalidInputError(
                    f"RaQuet {self.spec_version} has no {what}",
                    hint=f"pass spec_version={spec.WRITTEN[-1]!r}",
                )


def _one_of(what: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        raise InvalidInputError(
            f"unknown {what}", found=value, expected=", ".join(map(str, allowed))
        )


def _within(what: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInputError(f"{what} out of range", found=value, expected=f"{low} to {high}")


# -- sources ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conversion:
    """A job, and the parts of its metadata that are known in advance."""

    job: Job
    grid: Grid
    bands: tuple[Band, ...]
    sources: Sources


def sources_of(source: Any, options: Options, time: Any = None) -> Sources:
    """Describe the rasters to convert."""
    if is_array(source):
        series = array_series(source, options.variable, options.crs)
        axis = series.time if time is None else time_axis(list(time))
        _check_steps(axis, len(series.steps))
        return replace(series, time=axis)
    crs = None if options.crs is None else str(options.crs)
    if crs is not None:
        # An invalid CRS is reported even if no raster needs it.
        crs_wkt(crs, "crs")
    single = isinstance(source, str | os.PathLike)
    paths = [source] if single else several(source, "rasters: paths or URLs, or one of them")
    infos = tuple(_described(path, crs, options) for path in paths)
    if time is None:
        return Sources((_flat(infos),), None, None)
    axis = time_axis(list(time))
    _check_steps(axis, len(infos))
    return Sources(tuple((info,) for info in infos), None, axis)


def _described(path: Any, crs: str | None, options: Options) -> RasterInfo:
    if is_array(path):
        series = array_series(path, options.variable, options.crs)
        if len(series.steps) != 1:
            raise InvalidInputError("arrays with time cannot be joined to a mosaic")
        return series.first
    info = describe(path, crs=crs, variable=options.variable, config=options.config)
    steps = info.tags.get("NETCDF_DIM_EXTRA", "").strip("{}").split(",")
    if len(info.bands) > 1 and any(" since " in info.tags.get(f"{one}#units", "") for one in steps):
        warn(
            f"{len(info.bands)} steps in time become bands; open the file with xarray for a series",
            UserWarning,
        )
    return info


def _flat(infos: Sequence[RasterInfo]) -> tuple[RasterInfo, ...]:
    first = infos[0]
    for info in infos[1:]:
        if [band.dtype for band in info.bands] != [band.dtype for band in first.bands]:
            raise InvalidInputError(
                "rasters of a mosaic have different bands",
                where=info.where,
                found=", ".join(band.dtype for band in info.bands),
                expected=", ".join(band.dtype for band in first.bands),
            )
    return tuple(infos)


def _check_steps(axis: TimeAxis | None, count: int) -> None:
    found = 1 if axis is None else len(axis)
    if found != count:
        raise InvalidInputError(
            "the times do not fit the source", found=found, expected=f"{count}, one for each step"
        )


# -- job -------------------------------------------------------------------------------------------


def conversion_of(sources: Sources, options: Options) -> Conversion:
    """Plan the conversion of some sources."""
    infos, block = sources.every, options.block_size
    # Time steps on the same grid share a footprint.
    places = {_place(info): info for info in reversed(infos)}
    measured = {place: footprint(info) for place, info in places.items()}
    prints = [measured[_place(info)] for info in infos]
    if any(place.clipped for place in prints):
        warn(
            "the raster reaches beyond the latitudes of Web Mercator and is cut at 85.0511 degrees",
            UserWarning,
        )
    zoom, min_zoom = _zooms(prints, options)
    grid, whole = plan_grid(infos, prints, zoom=zoom, min_zoom=min_zoom, block=block)
    sources, bands, outs = _bands(sources, options, padded=not _fills_tiles(whole, grid))
    _check_layout(bands, options)
    _check_classes(bands, options)
    steps, at = [], 0
    for step in sources.steps:
        own = prints[at : at + len(step)]
        at += len(step)
        _, members = plan_grid(step, own, zoom=zoom, min_zoom=min_zoom, block=block)
        steps.append(GridSource(members, outs, grid.pixel_zoom, options.resampling))
    _warn_long(outs, steps, options)
    width = sum(part.east - part.west + 1 for part in grid.ranges) * block
    height = (grid.hull.south - grid.hull.north + 1) * block
    if width * height // block**2 > _MOST_TILES:
        raise InvalidInputError(
            "too many tiles",
            found=f"{width * height // block**2} at zoom {zoom}",
            expected=f"at most {_MOST_TILES}",
            hint="choose a coarser zoom, or larger blocks",
        )
    alpha = alpha_at([band.colorinterp for band in bands])
    job = Job(
        key=uuid.uuid4().hex,
        steps=tuple(steps),
        zoom=zoom,
        min_zoom=min_zoom,
        block=block,
        depth=depth_of(block, zoom, sum(np.dtype(band.dtype).itemsize for band in outs)),
        ranges=grid.ranges,
        overviews=tuple(_overview_method(band, options) for band in bands),
        alpha=alpha,
        compression=options.compression,
        level=options.level,
        quality=options.quality,
        interleaved=options.layout == spec.INTERLEAVED,
        tile_statistics=options.tile_statistics,
        sample_step=lattice_step(width * height * len(steps), len(bands)),
        undecided=_undecided(outs, options) if alpha is None else (),
    )
    return Conversion(job, grid, bands, sources)


def _fills_tiles(members: Sequence[Member], grid: Grid) -> bool:
    """Whether the raster is known to end on tile edges at all zooms."""
    offset, info = members[0].offset, members[0].info
    if len(members) != 1 or offset is None:
        return False
    side = grid.block << (grid.zoom - grid.min_zoom)
    return not any(edge % side for edge in (*offset, info.width, info.height))


def _place(info: RasterInfo) -> tuple[Any, ...]:
    return info.width, info.height, info.transform, info.crs


def _zooms(prints: Sequence[Footprint], options: Options) -> tuple[int, int]:
    zoom, lowest = options.zoom, options.min_zoom
    if zoom is None:
        zoom = choose_zoom(raw_zoom(prints, options.block_size), options.zoom_strategy)
    if lowest is None:
        lowest = overview_zoom(prints, options.block_size, zoom)
    elif lowest > zoom:
        raise InvalidInputError(
            "the minimum zoom is above the zoom of the raster", found=lowest, expected=zoom
        )
    return zoom, lowest


# -- bands -----------------------------------------------------------------------------------------


def _bands(
    sources: Sources, options: Options, *, padded: bool
) -> tuple[Sources, tuple[Band, ...], tuple[OutBand, ...]]:
    """The sources, and their bands as in the metadata and as they are read."""
    info = sources.first
    chosen = _chosen(info, sources.names, options.bands)
    if not chosen:
        raise InvalidInputError("no band is chosen")
    nodata = _nodata_of(options.nodata, [name for name, _ in chosen])
    plain = [index for _, index in chosen] == list(range(1, len(info.bands) + 1))
    sources = _with_hidden_alpha(sources, [index for _, index in chosen])
    alpha = alpha_at([info.bands[index - 1].colorinterp for _, index in chosen])
    lossy = options.compression in spec.LOSSY_BANDS
    guessing = options.nodata != NO_NODATA and not lossy and alpha is None
    bands, outs = [], []
    for (name, index), wanted in zip(chosen, nodata, strict=True):
        one = info.bands[index - 1]
        dtype = one.dtype
        if dtype == "float16" and options.spec_version == spec.WRITTEN[0]:
            dtype = "float32"  # float16 came with 0.4.0
        if dtype not in spec.DTYPES:
            raise InvalidInputError("RaQuet does not have this pixel type", found=dtype)
        found = [info.bands[index - 1].nodata for info in sources.every]
        used = partial(_values_of, sources, index)
        declared = _declared(wanted, found, dtype, used, beside_alpha=alpha is not None)
        own = fitting_nodata(declared, dtype)
        guess = first_choice(dtype) if own is None and guessing else 0
        outs.append(OutBand(index, dtype, own, guess))
        bands.append(
            Band(
                name=name,
                dtype=dtype,
                nodata=None if lossy else declared,
                description=one.description,
                unit=one.unit,
                scale=one.scale,
                offset=one.offset,
                colorinterp=one.colorinterp,
                colortable=one.colortable,
                source_band=None if plain else index,
                extra=spec.PADDING if wanted is None and _is_nan_of_ours(declared, found) else {},
            )
        )
    if _needs_alpha(sources, outs, alpha, options, padded=padded):
        outs.append(OutBand(MASK_BAND, "uint8"))
        bands.append(alpha_band(bands))
    _check_names([band.name for band in bands])
    return sources, tuple(bands), tuple(outs)


def _needs_alpha(
    sources: Sources, outs: Sequence[OutBand], alpha: int | None, options: Options, *, padded: bool
) -> bool:
    """Whether an added alpha band is the only way to mark pixels without a value."""
    masked = any(info.masked for info in sources.every)
    if options.compression not in spec.LOSSY_BANDS:
        return masked and any(out.nodata is None for at, out in enumerate(outs) if at != alpha)
    # Lossy images cannot keep a nodata value; WebP supports alpha with three bands.
    hidden = masked or any(out.nodata is not None for at, out in enumerate(outs) if at != alpha)
    if options.compression == "webp" and len(outs) == 3 and alpha is None:
        return hidden or (padded and options.nodata != NO_NODATA)
    if hidden:
        raise InvalidInputError(
            f"{options.compression} tiles of these bands cannot mark pixels without a value",
            where=sources.first.where,
            found="a nodata value or a mask",
            hint="use gzip, or webp for three bands of uint8, which then get an alpha band",
        )
    return False


def _with_hidden_alpha(sources: Sources, chosen: Sequence[int]) -> Sources:
    """Sources in which an alpha band that is not chosen still masks the other bands."""

    def told(info: RasterInfo) -> RasterInfo:
        alpha = info.alpha
        return info if alpha is None or alpha + 1 in chosen else replace(info, masked=True)

    return replace(sources, steps=tuple(tuple(map(told, step)) for step in sources.steps))


def _undecided(outs: Sequence[OutBand], options: Options) -> tuple[int, ...]:
    """Positions of bands that get a nodata value if their tiles need padding."""
    if options.nodata == NO_NODATA or options.compression in spec.LOSSY_BANDS:
        return ()
    return tuple(at for at, out in enumerate(outs) if out.nodata is None)


def _chosen(info: RasterInfo, names: tuple[str, ...] | None, choice: Any) -> list[tuple[str, int]]:
    """Names and positions of the bands to write."""
    count = len(info.bands)
    if choice is None:
        return [(names[at] if names else f"band_{at + 1}", at + 1) for at in range(count)]
    if isinstance(choice, Mapping):
        return [(str(name), _index(one, info, names)) for name, one in choice.items()]
    if isinstance(choice, str | int):
        choice = [choice]
    picked = [_index(one, info, names) for one in choice]
    if names:
        return [(names[index - 1], index) for index in picked]
    return [(f"band_{at + 1}", index) for at, index in enumerate(picked)]


def _index(wanted: object, info: RasterInfo, names: tuple[str, ...] | None) -> int:
    count = len(info.bands)
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 1 <= wanted <= count:
        return wanted
    lists: tuple[list[Any], ...] = (
        list(names or ()),
        [f"band_{at + 1}" for at in range(count)],
        [band.description for band in info.bands],
        [band.colorinterp for band in info.bands],
    )
    for known in lists:
        if wanted is not None and known.count(wanted) == 1:
            return known.index(wanted) + 1
    raise InvalidInputError(
        "no such band", where=info.where, found=repr(wanted), expected=f"1 to {count}, or a name"
    )


def _nodata_of(choice: NodataChoice, names: list[str]) -> list[Number | None]:
    if isinstance(choice, Mapping):
        unknown = set(choice) - set(names)
        if unknown:
            raise InvalidInputError(
                "nodata names a band that is not written", found=", ".join(map(str, unknown))
            )
        return [choice.get(name) for name in names]
    if choice == NO_NODATA:
        return [None] * len(names)
    if choice is not None and not isinstance(choice, int | float | np.integer | np.floating):
        raise InvalidInputError("nodata is not a number", found=repr(choice))
    return [choice] * len(names)


def _declared(
    wanted: Number | None,
    found: Sequence[Number | None],
    dtype: str,
    used: Callable[[], list[Array]],
    *,
    beside_alpha: bool,
) -> Number | None:
    """The nodata value of a band: as requested, else that of the sources, else NaN for floats.

    If the sources have different ones, it is an integer that none of them uses as a value; `used`
    reads their values.
    """
    if wanted is not None:
        value = whole_nodata(wanted, dtype)
        if fitting_nodata(value, dtype) is None:
            raise InvalidInputError(
                "the type cannot hold the nodata value", found=f"{wanted} in {dtype}"
            )
        return value
    # As text, since NaN does not equal NaN.
    known = {repr(fitting_nodata(value, dtype)): value for value in reversed(found)}
    if np.dtype(dtype).kind == "f" and not beside_alpha:
        same = len(known) == 1 and fitting_nodata(found[0], dtype) is not None
        return found[0] if same else float("nan")
    if len(known) == 1:
        return next((value for value in found if value is not None), None)
    liked = [fitting_nodata(value, dtype) for value in found]
    free = None
    if np.dtype(dtype).kind != "f":
        free = free_value(dtype, used(), [int(value) for value in liked if value is not None])
    if free is None:
        raise InvalidInputError(
            "the rasters have different nodata values, and no value is free in all of them",
            found=", ".join(known),
            hint="choose the nodata value: nodata=... (--nodata on the command line)",
        )
    return free


def _values_of(sources: Sources, index: int) -> list[Array]:
    """The values that occur in a band of each source."""
    return [values_of(info, index) for info in sources.every]


def _is_nan_of_ours(declared: Number | None, found: Sequence[Number | None]) -> bool:
    """Whether the nodata value is a NaN that not all sources declare."""
    if declared is None or not math.isnan(declared):
        return False
    return not all(value is not None and math.isnan(value) for value in found)


def _check_names(names: list[str]) -> None:
    for name in names:
        if not name or name in spec.RESERVED or not name.isprintable() or len(name) > 128:
            raise InvalidInputError("not a band name", found=shown(repr(name)))
    if len(set(names)) != len(names):
        raise InvalidInputError("two bands have the same name", found=", ".join(names))


def _check_layout(bands: Sequence[Band], options: Options) -> None:
    if options.layout == spec.INTERLEAVED:
        dtypes = {band.dtype for band in bands}
        if len(dtypes) > 1:
            raise InvalidInputError(
                "interleaved bands have several types", found=", ".join(sorted(dtypes))
            )
    allowed = spec.LOSSY_BANDS.get(str(options.compression))
    if allowed is not None and (
        len(bands) not in allowed or any(band.dtype != "uint8" for band in bands)
    ):
        raise InvalidInputError(
            f"{options.compression} cannot hold these bands",
            found=", ".join(band.dtype for band in bands),
            expected=f"{' or '.join(map(str, allowed))} bands of uint8",
        )


def _check_classes(bands: Sequence[Band], options: Options) -> None:
    """Reject resampling that would mix the classes of a colour table."""
    if not any(_is_classes(band) for band in bands):
        return
    for what, method, allowed in (
        ("resampling", options.resampling, _CLASSES),
        ("overview resampling", options.overview_resampling, (*_CLASSES, None)),
    ):
        if method not in allowed:
            raise InvalidInputError(
                f"{what} would mix the classes of a colour table",
                found=method,
                expected="nearest or mode",
            )


def _is_classes(band: Band) -> bool:
    return band.colortable is not None or band.colorinterp == "palette"


def _overview_method(band: Band, options: Options) -> str:
    if options.overview_resampling is not None:
        return check_method(options.overview_resampling)
    return MODE if _is_classes(band) else AVERAGE


def _warn_long(outs: Sequence[OutBand], steps: Sequence[GridSource], options: Options) -> None:
    long = any(one.dtype in {"int64", "uint64"} for one in outs)
    warped = any(member.offset is None for step in steps for member in step.members)
    if long and warped and options.resampling not in {"nearest", "near"}:
        warn(
            "64-bit integers are resampled in double precision: values beyond 2**53 are rounded",
            UserWarning,
        )
