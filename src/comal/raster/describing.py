"""What has to be known of a raster before it is put on a grid: place, bands, masks.

A description is plain data that can be sent to another process, which opens the raster again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import rasterio
from rasterio.crs import CRS
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.io import DatasetReader

from comal import storage
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    shown,
    translated,
)
from comal.geo.crs import refuse_files, wkt_of
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.plan import Head
from comal.raster.opening import (
    _FAULTS,
    _check_blocks,
    _quiet,
    check_references,
    gdal_environment,
    head_of,
    reading,
    sniff_driver,
)
from comal.raster.reading import crs_name
from comal.raster.values import alpha_at, stored_nodata
from comal.raster.variables import (
    CONTAINERS,
    Variable,
    head_of_any,
    names_of,
    no_variable,
    refuse_container,
    variable_of,
)
from comal.storage.config import StorageConfig
from comal.storage.location import Location, parse_href

# Of a remote raster: what is kept, and what is fetched at once.
_KEPT = 32 * MIB
_BLOCK = 1 * MIB
_numbers = count()

Transform = tuple[float, float, float, float, float, float]
"""Affine coefficients a, b, c, d, e, f: x = a column + b row + c, y = d column + e row + f."""

_BY_NAME = {".vrt": "VRT"}
"""Formats that lead to other files are opened only when the name says so."""
_EPSG = re.compile(r"EPSG:\d{1,9}", re.IGNORECASE)
_WKT = re.compile(r"\s*\w+\s*\[")
_OTHERS = (
    "netCDF",
    "HDF5",
    "GRIB",
    "HFA",
    "AAIGrid",
    "ENVI",
    "EHdr",
    "NITF",
    "DTED",
    "SRTMHGT",
    "GPKG",
    "MBTiles",
    "ERS",
    "RST",
    "SAGA",
    "PCIDSK",
    "BMP",
    "GIF",
)
"""Drivers of files that stand for themselves, tried for what has none of the known first bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BandInfo:
    """One band of a raster."""

    dtype: str
    """numpy name of the pixels."""
    nodata: int | float | None = None
    description: str | None = None
    unit: str | None = None
    scale: float | None = None
    offset: float | None = None
    """None where they are 1 and 0."""
    colorinterp: str | None = None
    colortable: Mapping[int, tuple[int, int, int, int]] | None = None


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """A raster that GDAL opens."""

    path: str
    """Path of a local file; of another one what messages call it."""
    driver: str | tuple[str, ...]
    overview: int | None = None
    """Which of its overviews is meant, from the finest on; None for the raster itself."""
    location: Location | None = None
    """Where it is, when it is not on this machine."""
    config: StorageConfig | None = None
    """How what is remote is spoken to, and where a VRT may lead."""


class ArrayOrigin(Protocol):
    """Arrays that are read by windows, such as those of xarray."""

    def read(self, bands: tuple[int, ...], rows: slice, columns: slice) -> np.ndarray[Any, Any]:
        """Pixels (bands, rows, columns) of bands counted from 1."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RasterInfo:
    """A raster: where it lies and what its bands are."""

    origin: Any
    """A `FileOrigin` or an `ArrayOrigin`."""
    where: str
    """What it is called in messages."""
    width: int
    height: int
    transform: Transform
    crs: str
    """WKT."""
    bands: tuple[BandInfo, ...]
    masked: bool = False
    """Whether it has a mask that is neither a nodata value nor an alpha band that is read."""
    own_crs: bool = True
    """Whether `crs` is the file's own, and not one that the user gave."""
    overviews: tuple[int, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def alpha(self) -> int | None:
        """Position of the alpha band, counted from 0."""
        return alpha_at([band.colorinterp for band in self.bands])

    def nodata(self, index: int) -> int | float | None:
        """Which value of a band, counted from 1, is none; None where all are values.

        NaN is none in floats, declared or not.
        """
        band = self.bands[index - 1]
        found = fitting_nodata(band.nodata, band.dtype)
        if found is None and np.dtype(band.dtype).kind == "f" and self.alpha is None:
            return float("nan")
        return found


@contextmanager
def gdal_rules(config: StorageConfig | None = None) -> Iterator[None]:
    """The rules under which GDAL works; its errors become ours."""
    with _quiet(), rasterio.Env(**gdal_environment(config)):
        yield


def origin_of(
    source: str | os.PathLike[str],
    variable: str | None = None,
    config: StorageConfig | None = None,
) -> FileOrigin:
    """How GDAL is to open a path or a URL; the driver is chosen by the first bytes.

    A variable of a NetCDF, HDF5 or Zarr file is named by `variable`, or in the source as GDAL does
    (``NETCDF:"path":name``).

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError, StorageError
        It cannot be read.
    NotThisFormatError
        A remote file that is none of TIFF, JPEG, PNG, WebP and JPEG 2000.
    """
    inner = variable_of(source, variable)
    if inner is not None:
        return _origin_of_variable(inner)
    location = parse_href(source)
    if location.is_local:
        path = str(Path(location.path).absolute())
        driver = _BY_NAME.get(Path(path).suffix.lower())
        head = head_of(path, path)
        if driver is not None:
            check_references(Path(path), config)
            return FileOrigin(path, driver, config=config)
        try:
            return FileOrigin(path, sniff_driver(head, path))
        except NotThisFormatError:
            return FileOrigin(path, _OTHERS)
    with storage.open_source(location, config=config) as remote:
        (piece,) = remote.fetch([Head(16)])
        driver = sniff_driver(piece.data, location.label)
        return FileOrigin(location.label, driver, location=location, config=config)


def _origin_of_variable(inner: Variable) -> FileOrigin:
    """The first way that opens it; what else the file holds is told where none does."""
    head_of_any(inner.path)
    for path, driver in inner.openings():
        with (
            suppress(InvalidMetadataError, NotThisFormatError),
            open_origin(FileOrigin(path, driver), path),
        ):
            return FileOrigin(path, driver)
    with _unknown(inner.path), DatasetReader(inner.path, driver=CONTAINERS, sharing=False) as whole:
        raise no_variable(inner.path, inner.name, names_of(whole))


class _RemoteFile(storage.RangeFile):
    """A remote raster, as GDAL reads it through us: it reaches no network by itself."""

    def __init__(self, source: storage.Source, failures: list[ComalError]) -> None:
        super().__init__(source)
        self._failures = failures

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes; none when reading fails, for GDAL passes no error on."""
        try:
            return super().read(size)
        except ComalError as error:
            self._failures.append(error)
            return b""


def _open_remote(origin: FileOrigin, failures: list[ComalError], **options: Any) -> Any:
    assert origin.location is not None
    cache = storage.BlockCache(_KEPT, block_size=_BLOCK)
    remote = storage.open_source(origin.location, config=origin.config)
    source = storage.CachedSource(remote, cache)
    # GDAL knows it by a number, so that nothing of its address is in a log.
    name = f"comal-raster-{next(_numbers)}"
    return rasterio.open(name, opener=lambda *_, **__: _RemoteFile(source, failures), **options)


def open_origin(
    origin: FileOrigin,
    where: str,
    limits: Limits = DEFAULT_LIMITS,
    failures: list[ComalError] | None = None,
) -> Any:
    """A rasterio dataset, which the caller closes.

    Parameters
    ----------
    failures
        Takes what goes wrong when a remote file is read, now or later; see `reading`.
    """
    failures = [] if failures is None else failures
    drivers = [origin.driver] if isinstance(origin.driver, str) else list(origin.driver)
    extra = {} if origin.overview is None else {"OVERVIEW_LEVEL": origin.overview}
    sniffed = isinstance(origin.driver, str)
    with reading(where, failures) if sniffed else _unknown(where):
        if origin.location is None:
            dataset = DatasetReader(origin.path, driver=drivers, sharing=False, **extra)
        else:
            dataset = _open_remote(origin, failures, driver=drivers[0], **extra)
        try:
            refuse_container(dataset, where)
            _check_blocks(dataset, limits, where)
        except BaseException:  # whatever it is, nobody else would close the dataset
            dataset.close()
            raise
    return dataset


@contextmanager
def _unknown(where: str) -> Iterator[None]:
    """What none of the drivers opens is no raster."""
    with translated(dict.fromkeys(_FAULTS, NotThisFormatError), "not a raster", where=where):
        yield


def describe(
    source: str | os.PathLike[str],
    *,
    crs: str | None = None,
    variable: str | None = None,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> RasterInfo:
    """What a raster is.

    Parameters
    ----------
    source
        A local path or a URL. Formats that stand for themselves are opened by their content; a
        VRT, which leads to other files, only under the name ``*.vrt``. Of a NetCDF, HDF5 or Zarr
        file one variable, as GDAL names it: ``NETCDF:"path":name``, ``HDF5:...``, ``ZARR:...``.
    variable
        The variable, where the source is the file alone.
    crs
        Coordinate reference system of a raster that has none, as ``EPSG:32618`` or WKT. One that
        the raster has is not replaced.
    config
        How what is remote is spoken to; its `linked_origins` are those that a VRT may lead to.
    limits
        ``raster_bytes`` bounds one block of pixels.

    Raises
    ------
    InvalidInputError
        It has no CRS, no place on the ground, or complex numbers.
    ObjectNotFoundError, NotThisFormatError, InvalidMetadataError, StorageError
        As `open_raster`.
    """
    with gdal_rules(config):
        origin = origin_of(source, variable, config)
        where = origin.path
        failures: list[ComalError] = []
        dataset = open_origin(origin, where, limits, failures)
        with dataset, reading(where, failures):
            return _described(dataset, origin, where, crs)


def crs_wkt(crs: Any, where: str) -> str:
    """The WKT of what names a CRS: ``EPSG:32618``, WKT, or an object of another library.

    A text is read by `comal.geo.crs`, which lets none through that names a file or an address:
    GDAL would open the one and fetch the other.
    """
    text = crs.to_wkt() if isinstance(crs, CRS) else crs
    is_wkt = isinstance(text, str) and _WKT.match(text) is not None
    if is_wkt:
        refuse_files(text, where)
    elif not (isinstance(text, str) and _EPSG.fullmatch(text)):
        text, is_wkt = wkt_of(text, where), True
    try:
        with gdal_rules():
            return str((CRS.from_wkt(text) if is_wkt else CRS.from_string(text)).to_wkt())
    except (rasterio.errors.CRSError, ValueError) as error:
        raise InvalidInputError("invalid CRS", where=where, found=shown(crs, 100)) from error


def crs_label(wkt: str) -> str:
    """``EPSG:32618``, or the WKT where no authority knows the CRS."""
    return crs_name(CRS.from_wkt(wkt)) or wkt


def no_crs(where: str) -> InvalidInputError:
    """The error about a raster without a CRS."""
    return InvalidInputError(
        "raster without a coordinate reference system",
        where=where,
        hint="say which one it is: crs='EPSG:...' (--crs on the command line)",
    )


def check_dtypes(dtypes: tuple[str, ...], where: str) -> None:
    """Refuse pixels that no tile can hold."""
    for dtype in dtypes:
        if "complex" in dtype:
            raise InvalidInputError(
                "raster of complex numbers",
                where=where,
                found=dtype,
                hint="convert it to real bands first, such as amplitude and phase",
            )


def _described(dataset: Any, origin: FileOrigin, where: str, crs: str | None) -> RasterInfo:
    check_dtypes(tuple(dataset.dtypes), where)
    if dataset.count == 0:
        raise InvalidMetadataError("raster without bands", where=where)
    own = bool(dataset.crs)
    if dataset.transform.is_identity and (dataset.gcps[0] or dataset.rpcs):
        # Before the question for its CRS, which such rasters have elsewhere.
        gcps = bool(dataset.gcps[0])
        raise InvalidInputError(
            "raster without a place on the ground",
            where=where,
            found="ground control points" if gcps else "rational polynomials (RPC)",
            expected="a geotransform",
            hint=f"rectify it first: gdalwarp {'' if gcps else '-rpc '}-t_srs EPSG:3857 IN OUT.tif",
        )
    if not own and crs is None:
        raise no_crs(where)
    if dataset.transform.is_identity:
        raise InvalidInputError(
            "raster without a place on the ground",
            where=where,
            found="no geotransform",
            hint="georeference it first, as gdal_translate -a_ullr does",
        )
    flags = dataset.mask_flag_enums
    masked = MaskFlags.per_dataset in flags[0] and MaskFlags.alpha not in flags[0]
    return RasterInfo(
        origin=origin,
        where=where,
        width=dataset.width,
        height=dataset.height,
        transform=tuple(dataset.transform)[:6],
        crs=crs_wkt(dataset.crs if own else crs, where),
        bands=tuple(_band(dataset, index) for index in dataset.indexes),
        masked=masked,
        own_crs=own,
        overviews=tuple(dataset.overviews(1)),
        tags=dict(dataset.tags()),
    )


def _band(dataset: Any, index: int) -> BandInfo:
    at = index - 1
    kind = dataset.colorinterp[at]
    scale, offset = dataset.scales[at], dataset.offsets[at]
    table = None
    if kind is ColorInterp.palette:
        table = {value: tuple(colour) for value, colour in dataset.colormap(index).items()}
    return BandInfo(
        dtype=dataset.dtypes[at],
        nodata=whole_nodata(dataset.nodatavals[at], dataset.dtypes[at]),
        description=dataset.descriptions[at] or None,
        unit=dataset.units[at] or None,
        scale=None if scale == 1 else scale,
        offset=None if offset == 0 else offset,
        colorinterp=kind.name,
        colortable=table,
    )


def whole_nodata(nodata: Any, dtype: str) -> int | float | None:
    """A nodata value as an int where the pixels are integers and it is whole."""
    if nodata is None:
        return None
    if np.dtype(dtype).kind in "iu" and nodata == nodata and abs(nodata) != float("inf"):  # noqa: PLR0124
        return int(nodata) if int(nodata) == nodata else float(nodata)
    return float(nodata)


def fitting_nodata(nodata: float | None, dtype: str) -> int | float | None:
    """A nodata value, or None when the type cannot hold it, so that no pixel has it."""
    found = stored_nodata(nodata, dtype)
    return None if found is None else whole_nodata(nodata, dtype)
