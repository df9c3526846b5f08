"""Self-contained rasters: opening them by their first bytes, reading pixels and headers.

GDAL is restricted here: it opens no sidecar files and uses no network, and its errors become those
of comal.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import rasterio
from rasterio._err import CPLE_BaseError  # no public name, yet damaged GeoTIFF keys let it out
from rasterio.enums import MaskFlags, Resampling
from rasterio.errors import CRSError, NotGeoreferencedWarning, RasterioError
from rasterio.windows import Window

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    reason_of,
    shown,
)
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.parallel import Workers, results
from comal.plan import Head
from comal.raster.values import Array, Mask, alpha_at, as_array, valid_mask
from comal.storage import BlockCache, CachedSource, RangeFile, Source, check_several, local_path
from comal.storage.config import StorageConfig, default_config
from comal.storage.wrappers import BLOCK

_ENVIRONMENT = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # no sidecar files
    "GDAL_PAM_ENABLED": "NO",
    "GDAL_CACHEMAX": 64 * MIB,  # rasterio passes it to GDALSetCacheMax64, which takes bytes
    "GDAL_NUM_THREADS": "1",  # executors parallelize; errors in GDAL's threads are lost
    # Remote files are read through comal.storage, and GDAL itself must not use the network: the
    # first option blocks its file systems, the unusable proxy its drivers that fetch.
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": "{none}",
    "GDAL_HTTP_PROXY": "http://127.0.0.1:0",
    "GDAL_HTTP_CONNECTTIMEOUT": 5,
    "GDAL_HTTP_TIMEOUT": 30,
    "GDAL_HTTP_MAX_RETRY": 3,
}

_NETWORK = ("CPL_VSIL_CURL_ALLOWED_EXTENSIONS", "GDAL_HTTP_PROXY")


@contextmanager
def gdal_rules(config: StorageConfig | None = None) -> Iterator[None]:
    """Context with the restrictions of GDAL.

    GDAL may use the network only if `linked_origins` names origins that a VRT may refer to.
    """
    options: dict[str, Any] = _ENVIRONMENT
    if (default_config() if config is None else config).linked_origins:
        options = {name: value for name, value in _ENVIRONMENT.items() if name not in _NETWORK}
    with _quiet(), rasterio.Env(**options):
        yield


FAULTS: tuple[type[BaseException], ...] = (
    RasterioError,
    CRSError,
    CPLE_BaseError,
    UnicodeDecodeError,  # from names in the header
)
"""Errors that GDAL and rasterio raise for a file that they cannot read."""

_MAGICS = (
    ("GTiff", b"II*\0"),
    ("GTiff", b"MM\0*"),
    ("GTiff", b"II+\0"),  # BigTIFF
    ("GTiff", b"MM\0+"),
    ("PNG", b"\x89PNG\r\n\x1a\n"),
    ("JPEG", b"\xff\xd8\xff"),
    ("JP2OpenJPEG", b"\0\0\0\x0cjP  \r\n\x87\n"),
    ("JP2OpenJPEG", b"\xff\x4f\xff\x51"),  # a bare codestream
)
_HEAD = 16


@dataclass(frozen=True, slots=True)
class Span:
    """A raster that is a byte range of a local file, such as a sample in an archive."""

    path: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.path} (bytes {self.offset}+{self.size})"


RasterSource = str | os.PathLike[str] | bytes | Span | Source
"""A local file, its bytes, a span of it, or an object."""
_KEPT = 32 * MIB
"""Bytes of an object that are kept while GDAL reads it."""
_numbers = count()


def sniff_driver(head: bytes, where: str = "raster") -> str:
    """Name of the GDAL driver for content that starts with `head` (16 bytes are enough).

    Raises
    ------
    NotThisFormatError
        The bytes are not TIFF, JPEG, PNG, WebP or JPEG 2000.
    """
    for driver, magic in _MAGICS:
        if head.startswith(magic):
            return driver
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    raise NotThisFormatError(
        "not a raster that comal opens",
        where=where,
        found=f"first bytes {head[:8].hex(' ') or 'missing'}",
        expected="TIFF, JPEG, PNG, WebP or JPEG 2000",
    )


def place(source: RasterSource) -> str:
    """Name of a raster in messages."""
    if isinstance(source, Source):
        return source.location.label
    return "raster in memory" if isinstance(source, bytes) else shown(source, 200)


@contextmanager
def reading(where: str, failures: Sequence[ComalError] = ()) -> Iterator[None]:
    """Translate errors of GDAL while `where` is opened or read.

    `failures` are errors of files that GDAL reads through comal, which it cannot report: the first
    is raised.
    """
    try:
        yield
    except FAULTS as error:
        if failures:
            raise failures[0] from None
        raise InvalidMetadataError(
            "the raster cannot be read",
            where=where,
            found=reason_of(_first_of(error)),
            hint="the file may be cut off or damaged: compare its size with that of the original",
        ) from error
    if failures:
        raise failures[0]


def _first_of(error: BaseException) -> BaseException:
    """GDAL's first error; those that follow only say that something failed before."""
    first = error
    while isinstance(cause := first.__cause__ or first.__context__, FAULTS):
        first = cause
    return first


class _RemoteFile(RangeFile):
    """A remote raster that GDAL reads through comal: GDAL itself uses no network."""

    def __init__(self, source: Source, failures: list[ComalError]) -> None:
        super().__init__(source)
        self._failures = failures

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes; none if reading fails, since GDAL does not propagate errors."""
        try:
            return super().read(size)
        except ComalError as error:
            self._failures.append(error)
            return b""


def open_remote(source: Source, failures: list[ComalError], driver: str, block: int) -> Any:
    """A rasterio dataset of an object, which is read by blocks of so many bytes."""
    cached = CachedSource(source, BlockCache(_KEPT, block_size=block))
    # GDAL gets a numbered name, so that its URL appears in no log.
    name = f"comal-raster-{next(_numbers)}"
    return rasterio.open(name, opener=lambda *_, **__: _RemoteFile(cached, failures), driver=driver)


@contextmanager
def open_raster(source: RasterSource, limits: Limits = DEFAULT_LIMITS) -> Iterator[Any]:
    """A raster opened for reading, as a rasterio dataset.

    Parameters
    ----------
    source
        Path of a local file, bytes, a `Span` of a local file (which is read completely), or the
        `Source` of an object. GDAL names such as ``/vsicurl/..`` are rejected.
    limits
        ``leaf_bytes`` limits what is held in memory, ``raster_bytes`` one block of pixels.

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError, StorageError
        The file cannot be read.
    NotThisFormatError
        The first bytes are not of an allowed format.
    InvalidMetadataError
        GDAL cannot read the file, or fails while the dataset is in use.
    LimitExceededError
        The file or a block of it is over a limit.
    """
    where, failures = place(source), list[ComalError]()
    with gdal_rules(), reading(where, failures):
        if isinstance(source, Source):
            (head,) = source.fetch([Head(_HEAD)])
            driver = sniff_driver(head.data, where)
            with open_remote(source, failures, driver, BLOCK) as dataset:
                check_blocks(dataset, limits, where)
                yield dataset
        elif isinstance(source, bytes | Span):
            data = source if isinstance(source, bytes) else _read_span(source, limits, where)
            limits.check("leaf_bytes", len(data), where)
            driver = sniff_driver(data[:_HEAD], where)
            with rasterio.MemoryFile(data) as memory, memory.open(driver=driver) as dataset:
                check_blocks(dataset, limits, where)
                yield dataset
        else:
            path = str(local_path(source, "a raster").absolute())
            driver = sniff_driver(head_of(path, where), where)
            with rasterio.open(path, driver=driver) as dataset:
                check_blocks(dataset, limits, where)
                yield dataset


def check_read(dataset: Any, cells: int, limits: Limits, where: str) -> None:
    """Raise an error if `cells` pixels of one band would take more than ``raster_bytes``."""
    itemsize = max(np.dtype(name).itemsize for name in dataset.dtypes)
    limits.check("raster_bytes", cells * itemsize, where)


def read_valid(
    dataset: Any, bands: Sequence[int], **request: Any
) -> tuple[Array, list[Mask | None]]:
    """Pixels of bands of a rasterio dataset, and which of each have a value.

    GDAL uses only one of mask, nodata and alpha, and recognizes alpha as the second of two bands or
    the fourth of four; `comal.raster.values` uses all that a raster has.

    Parameters
    ----------
    dataset, bands
        The dataset, and numbers of bands from 1.
    request
        Which pixels: ``window``, ``out_shape``, ``resampling``. An averaged pixel has a value if
        any of its source pixels has one.
    """
    shape = request.get("out_shape")
    stacked = {} if shape is None else {"out_shape": (len(bands), *shape)}
    pixels = dataset.read(list(bands), **request | stacked)
    at = alpha_at([colour.name for colour in dataset.colorinterp])
    alpha = None
    masks = []
    for band, plane in zip(bands, pixels, strict=True):
        if plane.dtype.kind == "f" and request.get("resampling") is Resampling.average:
            _mend_means(dataset, band, plane, request.get("window"))
        flags = dataset.mask_flag_enums[band - 1]
        covered = None
        if MaskFlags.all_valid not in flags:
            covered = dataset.read_masks(band, **request) > 0
        nodata = None if MaskFlags.nodata in flags else dataset.nodatavals[band - 1]
        own = at is None or band == at + 1 or MaskFlags.alpha in flags
        if at is not None and not own and alpha is None:
            alpha = dataset.read(at + 1, **request)
        masks.append(valid_mask(plane, nodata, covered, None if own else alpha))
    return pixels, masks


def _mend_means(dataset: Any, band: int, means: Array, window: Window | None) -> None:
    """Fill in means that GDAL lost to a NaN or an infinity that is not the nodata value."""
    lost = ~np.isfinite(means)
    if not lost.any():
        return
    rows, columns = means.shape
    whole = window or Window(0, 0, dataset.width, dataset.height)
    width, height = int(whole.width), int(whole.height)
    shrink = min(height / rows, width / columns)
    level = max((one for one in dataset.overviews(band) if one <= shrink), default=1)
    for row in np.flatnonzero(lost.any(axis=1)).tolist():
        top, bottom = row * height // rows, max(-(-(row + 1) * height // rows), 1)
        strip = Window(whole.col_off, whole.row_off + top, width, bottom - top)
        shape = (max(1, (bottom - top) // level), max(columns, width // level))
        (pixels,), (mask,) = read_valid(dataset, [band], window=strip, out_shape=shape)
        valid = as_array(mask, shape)
        starts = np.arange(columns) * shape[1] // columns
        counts = np.add.reduceat(valid.sum(axis=0), starts)
        with np.errstate(over="ignore"):
            sums = np.where(valid, pixels, 0).sum(axis=0, dtype=np.float64)
            found = np.add.reduceat(sums, starts) / np.maximum(counts, 1)
        mended = lost[row] & (counts > 0)
        means[row, mended] = found[mended]


def check_blocks(dataset: Any, limits: Limits, where: str) -> None:
    """Reject a raster without bands, or with a block of pixels that takes too much memory."""
    if dataset.count == 0:
        raise InvalidMetadataError("the raster has no bands", where=where)
    if "complex" in "".join(dataset.dtypes):
        # In some drivers their size differs from that of the numpy type of the same name.
        return
    blocks = zip(dataset.block_shapes, dataset.dtypes, strict=True)
    largest = max(rows * columns * np.dtype(name).itemsize for (rows, columns), name in blocks)
    limits.check("raster_bytes", largest, f"{where}, one block")


def refuse_complex(dtypes: Iterable[str], where: str) -> None:
    """Reject complex pixels, which have no order and fit in no tile."""
    for name in dtypes:
        if "complex" in name:
            raise InvalidInputError(
                "the raster holds complex numbers",
                where=where,
                found=name,
                hint="convert the raster to real bands first, such as amplitude and phase",
            )


def head_of(path: str, where: str) -> bytes:
    """The first bytes of a local file."""
    try:
        with Path(path).open("rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        raise _unreadable(error, where) from error
    except ValueError as error:  # a NUL in the path
        raise InvalidInputError("not a path", where=where) from error


def _read_span(span: Span, limits: Limits, where: str) -> bytes:
    if span.offset < 0 or span.size < 0:
        raise InvalidInputError("the span is negative", where=where)
    limits.check("leaf_bytes", span.size, where)
    try:
        with Path(span.path).open("rb") as file:
            file.seek(span.offset)
            data = file.read(span.size)
    except OSError as error:
        raise _unreadable(error, where) from error
    if len(data) != span.size:
        raise ShortReadError(
            "the span reaches beyond the file", where=where, found=len(data), expected=span.size
        )
    return data


def _unreadable(error: OSError, where: str) -> Exception:
    kinds = {FileNotFoundError: ObjectNotFoundError, PermissionError: AccessDeniedError}
    kind = kinds.get(type(error), StorageError)
    return kind("the raster cannot be opened", where=where, found=error.strerror)


_quiet_lock = threading.Lock()
_quiet_users = 0
_quiet_filters: Any = None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warning about rasters without a georeference, which are valid here.

    The filters of `warnings` are global to the process, so threads share one change of them: the
    first to enter makes it and the last to leave restores them.
    """
    global _quiet_users, _quiet_filters  # noqa: PLW0603 - filters are global, so is their count
    with _quiet_lock:
        if _quiet_users == 0:
            _quiet_filters = warnings.catch_warnings()
            _quiet_filters.__enter__()
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
        _quiet_users += 1
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_users -= 1
            if _quiet_users == 0:
                _quiet_filters.__exit__(None, None, None)


# -- headers ---------------------------------------------------------------------------------------


_ELEMENT = "element"
SCHEMA = pa.schema(
    [
        ("crs", pa.string()),
        ("shape", pa.list_(pa.field(_ELEMENT, pa.int64()))),
        ("geotransform", pa.list_(pa.field(_ELEMENT, pa.float64()))),
        ("dtype", pa.string()),
        ("nodata", pa.float64()),
        ("driver", pa.string()),
    ]
)
_BATCH = 64
_THREADS = 8
_CONFIDENCE = 70  # percent; minimum confidence of PROJ that a CRS matches one of an authority


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one raster."""

    crs: str | None
    """``EPSG:32718``, or WKT if no authority defines the CRS."""
    shape: tuple[int, int, int]
    """Bands, rows, columns."""
    geotransform: tuple[float, ...] | None
    """Six numbers in GDAL order: x0, dx, rotation, y0, rotation, dy; None if there is none."""
    dtype: str
    """numpy name of the pixel type; that of the widest band if they differ."""
    nodata: float | None
    driver: str
    """GDAL driver."""


def header(source: RasterSource, limits: Limits = DEFAULT_LIMITS) -> Header:
    """The header of one raster; raises the errors of `open_raster`."""
    with open_raster(source, limits) as dataset:
        placed = dataset.crs is not None or not dataset.transform.is_identity
        nodata = dataset.nodata
        return Header(
            crs_name(dataset.crs),
            (dataset.count, dataset.height, dataset.width),
            dataset.transform.to_gdal() if placed else None,
            _widest(dataset.dtypes),
            None if nodata is None else float(nodata),
            dataset.driver,
        )


def headers(
    sources: Iterable[RasterSource],
    executor: Workers = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> pa.Table:
    """The headers of many rasters, in their order, read in parallel.

    Parameters
    ----------
    sources
        Paths, bytes, spans or sources of objects.
    executor
        Any `concurrent.futures.Executor`, a number of processes, or None for threads.
    limits
        As for `open_raster`.

    Returns
    -------
    A table with a row per source: ``crs`` string, ``shape`` list of bands, rows, columns,
    ``geotransform`` list of six numbers in GDAL order, ``dtype``, ``nodata``, ``driver``.

    Raises
    ------
    ComalError
        For the first source that cannot be read; the message names it.
    """
    check_several(sources, "rasters")
    # Few batches are in flight at a time, so that a million paths do not need a million futures.
    read = partial(read_headers, limits=limits)
    rows = results(executor, read, _batches(sources), threads=_THREADS, ahead=4 * _THREADS)
    return pa.Table.from_batches(rows, SCHEMA)


def _batches(sources: Iterable[RasterSource]) -> Any:
    iterator = iter(sources)
    for first in iterator:
        yield list(chain([first], islice(iterator, _BATCH - 1)))


def read_headers(sources: Sequence[RasterSource], limits: Limits) -> pa.RecordBatch:
    """The headers of some rasters, one row each; a task of `headers`."""
    found = [header(source, limits) for source in sources]
    columns = [
        pa.array([getattr(one, column.name) for one in found], column.type) for column in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def crs_name(crs: Any) -> str | None:
    """``EPSG:32718``, or WKT if no authority defines the CRS; None without one."""
    if not crs:
        return None
    authority = crs.to_authority(confidence_threshold=_CONFIDENCE)
    return ":".join(authority) if authority else str(crs.to_wkt())


def _widest(names: Sequence[str]) -> str:
    return max(names, key=lambda name: (pa.array([], name).type.bit_width, name))
