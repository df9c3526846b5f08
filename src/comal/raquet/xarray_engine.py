"""RaQuet as an engine of xarray: ``xarray.open_dataset(path, engine="raquet")``.

Reading is lazy, and a chunk is a tile. Each band is a variable with the dimensions (y, x), or
(time, y, x), in EPSG:3857.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import MissingExtraError
from comal.grid.arguments import integers
from comal.limits import KIB
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.opening import open as open_file
from comal.raquet.reading.pixels import stored_nodata
from comal.raquet.reading.windows import CRS, Grid, grid_of, tiles_of
from comal.raquet.spec import Band
from comal.raquet.times import TimeAxis

try:
    import xarray as xr
    from xarray.backends import BackendArray, BackendEntrypoint
    from xarray.core import indexing
except ImportError as error:
    raise MissingExtraError.of("xarray", "xarray", "a RaQuet file as xarray.Dataset") from error

Ints = npt.NDArray[np.int64]

Wanted = bool | Mapping[str, bool]
"""A choice for all variables, or for each by name."""

SPATIAL_REF = "spatial_ref"
_COORDINATES = frozenset({"x", "y", "time", SPATIAL_REF})
_TAIL = 64 * KIB
_SMALL = 2
"""Size in bytes of integers that float32 holds exactly."""


class RaquetBackend(BackendEntrypoint):
    """The engine ``raquet``."""

    description = "RaQuet rasters (Parquet tables of tiles), lazily, one chunk for each tile"
    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "mask_and_scale",
        "decode_times",
        "decode_coords",
        "zoom",
        "config",
        "limits",
        "cache_bytes",
        "byte_interleaved",
    )

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        mask_and_scale: Wanted = True,
        decode_times: Wanted = True,
        decode_coords: bool | str | None = None,
        zoom: int | None = None,
        **opening: Any,
    ) -> xr.Dataset:
        """Open a file, a folder or URL, a `Source` or a `RaquetFile`; see `dataset`.

        ``spatial_ref`` is a coordinate whatever `decode_coords` is. `opening` takes parameters of
        `comal.raquet.open`: ``config``, ``limits``, ``cache_bytes``, ``byte_interleaved``.
        """
        del decode_coords
        file = filename_or_obj
        if not isinstance(file, RaquetFile):
            file = open_file(file, **opening)
        found = dataset(file, zoom, mask_and_scale=mask_and_scale, decode_times=decode_times)
        if drop_variables is not None:
            names = [drop_variables] if isinstance(drop_variables, str) else list(drop_variables)
            found = found.drop_vars(names, errors="ignore")
        found.set_close(file.close)
        return found

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether this is a local Parquet file whose footer names the columns of RaQuet."""
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        path = Path(filename_or_obj)
        if path.suffix != ".parquet" or not path.is_file():
            return False
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            tail = file.read(_TAIL)
        return tail.endswith(b"PAR1") and b"block" in tail and b"metadata" in tail


def dataset(
    file: RaquetFile,
    zoom: int | None = None,
    *,
    mask_and_scale: Wanted = True,
    decode_times: Wanted = True,
) -> xr.Dataset:
    """A raster as a lazy `xarray.Dataset`.

    Parameters
    ----------
    file
        The raster. It must stay open while the data set is used.
    zoom
        Which zoom; None for the finest.
    mask_and_scale
        Apply nodata, scale and offset: pixels without a value become NaN, as CF says. Integers
        become floats (float32 for up to 16 bits without an offset, else float64), except bands
        without a nodata value that cannot have missing pixels: no padding, no missing tile, no
        alpha band. If false, variables have their stored type, with ``_FillValue``,
        ``scale_factor`` and ``add_offset`` as attributes: pixels without a value hold
        ``_FillValue`` if there is one, and 0 otherwise.
    decode_times
        Return times as dates; else as the numbers of ``time_cf``.

    Returns
    -------
    xarray.Dataset
        A variable for each band with the name of the band, plus ``_band`` if a coordinate has that
        name; coordinates ``x`` and ``y`` of pixel centres in metres, ``time`` in a time series, and
        ``spatial_ref``. It covers complete tiles, so that each is a chunk. If the file declares
        that it crosses the antimeridian, ``x`` continues beyond 20 037 508 m.

    Raises
    ------
    InvalidInputError
        The file does not declare the zoom.
    """
    zoom = file.zooms[-1] if zoom is None else int(integers(zoom, "zoom"))
    grid = grid_of(file.metadata, zoom, file.href)
    column, row, width, height = _whole_tiles(file, grid)
    transform = grid.transform(column, row)
    holes = file.holes(zoom, column % grid.width, row, width, height)
    names = [f"{band.name}_band" if band.name in _COORDINATES else band.name for band in file.bands]
    variables = {
        name: _Pixels(
            file,
            band,
            grid,
            (column, row, width, height),
            holes=band.name in holes,
            nan=_is_wanted(mask_and_scale, name),
        ).variable()
        for name, band in zip(names, file.bands, strict=True)
    }
    coordinates: dict[str, Any] = {
        "x": xr.Variable("x", _centres(transform[2], transform[0], width), _AXES["x"]),
        "y": xr.Variable("y", _centres(transform[5], transform[4], height), _AXES["y"]),
        SPATIAL_REF: xr.Variable((), 0, _spatial_ref(transform)),
    }
    if file.times is not None:
        coordinates["time"] = _time(file.times, decode=_is_wanted(decode_times, "time"))
    made = xr.Dataset(variables, coordinates, {"crs": CRS, "zoom": zoom})
    # xarray's types allow only one value for all variables.
    asked: dict[str, Any] = {"mask_and_scale": mask_and_scale, "decode_times": decode_times}
    decoded = xr.decode_cf(made, decode_coords=False, **asked)
    for name in names:
        # xarray keeps it in the encoding, and other tools look for it there.
        decoded[name].encoding["grid_mapping"] = SPATIAL_REF
    return decoded


_AXES: dict[str, dict[str, str]] = {
    "x": {"standard_name": "projection_x_coordinate", "units": "metre", "axis": "X"},
    "y": {"standard_name": "projection_y_coordinate", "units": "metre", "axis": "Y"},
}


class _Pixels(BackendArray):
    """One band of one zoom.

    Parameters
    ----------
    file, band, grid, span
        What to read; the span is column, row, width and height in pixels of the world.
    holes
        Whether there may be missing pixels that do not hold a nodata value.
    nan
        Whether such pixels become NaN if the band has no nodata value.
    """

    def __init__(
        self,
        file: RaquetFile,
        band: Band,
        grid: Grid,
        span: tuple[int, int, int, int],
        *,
        holes: bool = False,
        nan: bool = True,
    ) -> None:
        self._file = file
        self._band = band
        self._grid = grid
        self._span = span
        _, _, width, height = span
        times = () if file.times is None else (len(file.times),)
        self.shape = (*times, height, width)
        self.dtype, self._fill = _filled_type(band, holes=holes, nan=nan)
        # Integer nodata pixels already hold the value; hidden or non-finite pixels hold anything.
        self._masked = self._fill is not None and (holes or self.dtype.kind == "f")

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def variable(self) -> xr.Variable:
        """The band as a lazy variable."""
        chunks = {"y": self._grid.block_height, "x": self._grid.block_width}
        if len(self.shape) == 3:
            chunks = {"time": 1, **chunks}
        lazy = indexing.LazilyIndexedArray(self)
        variable = xr.Variable(tuple(chunks), lazy, _attributes(self._band))
        variable.encoding["preferred_chunks"] = chunks
        return variable

    def _read(self, key: tuple[Any, ...]) -> Any:
        rows, columns = _positions(key[-2], self.shape[-2]), _positions(key[-1], self.shape[-1])
        if len(self.shape) == 2:
            found = self._plane(rows, columns, None)
        else:
            steps = _positions(key[0], self.shape[0]).tolist()
            found = np.empty((len(steps), len(rows), len(columns)), self.dtype)
            for index, step in enumerate(steps):
                found[index] = self._plane(rows, columns, step)
        # A single number drops its dimension.
        return found[tuple(0 if _is_number(one) else slice(None) for one in key)]

    def _plane(self, rows: Ints, columns: Ints, step: int | None) -> Any:
        found = np.empty((len(rows), len(columns)), self.dtype)
        for of_rows in _runs(rows, self._grid.block_height):
            for of_columns in _runs(columns, self._grid.block_width):
                pixels = self._box(rows[of_rows], columns[of_columns], step)
                found[np.ix_(of_rows, of_columns)] = pixels
        return found

    def _box(self, rows: Ints, columns: Ints, step: int | None) -> Any:
        top, left = int(rows.min()), int(columns.min())
        window = self._file.window(
            self._grid.zoom,
            (self._span[0] + left) % self._grid.width,
            self._span[1] + top,
            int(columns.max()) + 1 - left,
            int(rows.max()) + 1 - top,
            self._band.name,
            time=step,
            masked=self._masked,
        )
        pixels = window.data[0].astype(self.dtype, copy=False)
        if self._masked:
            pixels = np.ma.filled(pixels, self._fill)
        return pixels[np.ix_(rows - top, columns - left)]


def _filled_type(band: Band, *, holes: bool, nan: bool) -> tuple[np.dtype[Any], Any]:
    """The type of a variable, and its fill value; None if it has none."""
    dtype = band.pixel_type
    nodata = stored_nodata(band)
    if nodata is not None:
        return dtype, nodata
    if dtype.kind == "f":
        return dtype, np.nan
    if holes and nan:
        # xarray decodes integers with a fill value in the same way.
        small = dtype.itemsize <= _SMALL and band.offset is None
        return np.dtype("float32" if small else "float64"), np.nan
    return dtype, None


def _is_number(key: Any) -> bool:
    return not isinstance(key, slice) and np.ndim(key) == 0


def _positions(key: Any, size: int) -> Ints:
    chosen = key if isinstance(key, slice) else np.atleast_1d(key)
    return np.arange(size, dtype=np.int64)[chosen]


def _runs(positions: Ints, block: int) -> Iterator[Ints]:
    """Groups of nearby positions; between two groups there is at least one tile."""
    order = np.argsort(positions, kind="stable")
    breaks = np.flatnonzero(np.diff(positions[order]) > block) + 1
    yield from (run for run in np.split(order, breaks) if len(run))


def _attributes(band: Band) -> dict[str, Any]:
    """CF and raster attributes of a band."""
    nodata = stored_nodata(band)
    if nodata is None and band.pixel_type.kind == "f":
        nodata = band.pixel_type.type(np.nan)
    found: dict[str, Any] = {
        "_FillValue": nodata,
        "scale_factor": band.scale,
        "add_offset": band.offset,
        "units": band.unit,
        "long_name": band.description,
        "color_interpretation": band.colorinterp,
    }
    return {key: value for key, value in found.items() if value is not None}


def _whole_tiles(file: RaquetFile, grid: Grid) -> tuple[int, int, int, int]:
    """The pixel window of all tiles that the bounds touch; it may cross the antimeridian."""
    across, down = tiles_of(grid, grid.span(file.everything()))
    return (
        int(across[0]) * grid.block_width,
        int(down[0]) * grid.block_height,
        min(len(across), 1 << grid.zoom) * grid.block_width,
        len(down) * grid.block_height,
    )


def _centres(start: float, step: float, count: int) -> Any:
    return start + (np.arange(count) + 0.5) * step


def _is_wanted(wanted: Wanted, name: str) -> bool:
    """Whether the choice is on for this variable."""
    return bool(wanted.get(name, True) if isinstance(wanted, Mapping) else wanted)


def _time(times: TimeAxis, *, decode: bool) -> xr.Variable:
    if decode and not np.isnat(times.stamps).any():
        fine = times.stamps.astype("datetime64[ns]")  # which overflows beyond the year 2262
        whole = (fine.astype(times.stamps.dtype) == times.stamps).all()
        return xr.Variable("time", fine if whole else times.stamps)
    described = {"units": times.units, "calendar": times.calendar} if times.units else {}
    return xr.Variable("time", times.values, described)


def _spatial_ref(transform: tuple[float, ...]) -> Mapping[str, Any]:
    """The CRS as CF writes it, and the transform as GDAL writes it."""
    from pyproj import CRS as Crs  # noqa: N811, PLC0415 - only users of xarray wait for PROJ

    a, b, west, d, e, north = transform
    attributes: dict[str, Any] = dict(Crs.from_epsg(3857).to_cf())
    attributes[SPATIAL_REF] = attributes["crs_wkt"]
    attributes["GeoTransform"] = " ".join(repr(float(one)) for one in (west, a, b, north, d, e))
    return attributes
