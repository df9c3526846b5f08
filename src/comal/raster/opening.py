"""What a VRT leads to: other files of this machine, and of the network only what is allowed.

GDAL opens the sources of a VRT by itself, resolves their names and follows their redirects. So
nothing that is elsewhere is opened unless `StorageConfig.linked_origins` names its origin.
"""

from __future__ import annotations

import os
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree as ET

import numpy as np
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
from comal.raster.values import Array, Mask, alpha_at, as_array, valid_mask
from comal.storage import local_path
from comal.storage.config import StorageConfig, default_config
from comal.storage.location import parse_href

_LARGEST = 64 * MIB
_DEEPEST = 8
_STORES = {"s3": "s3", "gs": "gs", "az": "az", "adls": "az"}
# File systems of GDAL that ask the network, alone or around others: /vsizip//vsicurl/https://...
_VSI = re.compile(
    r"/vsi(curl|s3|gs|az|adls|oss|swift|hdfs|webhdfs)(_streaming)?([/?].*)", re.DOTALL
)
_URL = re.compile(r"(?:https?|ftp)://\S+", re.IGNORECASE)
# Descriptions of services, which GDAL takes for the name of a file.
_SERVICE = re.compile(r"\s*<|[A-Z][A-Z0-9_]{2,}:(?!//)", re.ASCII)
_LOCAL = (
    "NETCDF:",
    "HDF5:",
    "HDF4_EOS:",
    "HDF4_SDS:",
    "GTIFF_DIR:",
    "GTIFF_RAW:",
    "GPKG:",
)


def check_references(path: Path, config: StorageConfig | None = None, depth: int = 0) -> None:
    """Refuse a VRT, or one that it leads to, with sources that may not be opened.

    Raises
    ------
    AccessDeniedError
        A source is elsewhere, and its origin is not named in ``linked_origins``.
    InvalidMetadataError
        It cannot be read as XML, or leads to itself.
    """
    where = str(path)
    config = default_config() if config is None else config
    for text in _references(path, where):
        found = _VSI.search(text)
        url = _URL.search(text)
        if found is not None or url is not None:
            _check_elsewhere(_named(found, url), where, config)
        elif _SERVICE.match(text) and not text.startswith(_LOCAL):
            raise _refused(where, text.strip())
        else:
            _check_nested(path.parent / text, where, config, depth)


def _references(path: Path, where: str) -> Iterator[str]:
    """All texts that may name a file: of a source, or such as begin like a place elsewhere."""
    if path.stat().st_size > _LARGEST:
        raise InvalidMetadataError("not a VRT", where=where, found="a file of more than 64 MiB")
    try:
        root = ET.fromstring(path.read_bytes())  # noqa: S314 - expat bounds its entities
    except (ET.ParseError, ValueError) as error:
        raise InvalidMetadataError(
            "raster cannot be read", where=where, found=reason_of(error)
        ) from error
    for element in root.iter():
        kind = (element.tag + element.get("name", "")).lower()
        names = kind.startswith("source") or "filename" in kind or kind.endswith("dataset")
        text = (element.text or "").strip()
        if (text and names and kind != "sourceband" and not len(element)) or _VSI.match(text):
            yield text


def _named(found: re.Match[str] | None, url: re.Match[str] | None) -> str:
    if found is None or (url is not None and found[1] == "curl" and found[3].startswith("/")):
        assert url is not None, "one of them is there"
        return url[0]
    rest = found[3]
    if found[1] == "curl":
        return str(parse_qs(rest[1:]).get("url", [""])[0])
    scheme = _STORES.get(found[1])
    return f"{scheme}:/{rest}" if scheme else found[0]


def _check_elsewhere(href: str, where: str, config: StorageConfig) -> None:
    try:
        location = parse_href(href)
    except InvalidInputError as error:
        raise _refused(where, href) from error
    if location.is_local:
        raise _refused(where, href)
    if config.linked(location) is None:
        raise _refused(where, location.label, location.origin)


def _refused(where: str, found: str, origin: str = "its origin") -> AccessDeniedError:
    return AccessDeniedError(
        "a VRT leads away from this machine",
        where=where,
        found=shown(found),
        hint=f"name {origin} in linked_origins if that is meant",
    )


def _check_nested(path: Path, where: str, config: StorageConfig, depth: int) -> None:
    """A source that is a VRT itself, whatever its name."""
    try:
        with path.open("rb") as file:
            nested = file.read(512).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<VRTDataset")
    except (OSError, ValueError):
        return  # GDAL says what is wrong with it
    if nested:
        if depth >= _DEEPEST:
            raise InvalidMetadataError("VRTs are nested too deep", where=where)
        check_references(path, config, depth + 1)


_ENVIRONMENT = {
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",  # nothing beside the file is looked for
    "GDAL_PAM_ENABLED": "NO",
    "GDAL_CACHEMAX": 64 * MIB,  # rasterio hands it to GDALSetCacheMax64, which counts bytes
    "GDAL_NUM_THREADS": "1",  # work is spread by executors; errors of GDAL's threads are lost
    # What is elsewhere is read through comal.storage; GDAL itself reaches no network: these two
    # close its file systems, and a proxy that nobody can be its drivers that fetch.
    "CPL_VSIL_CURL_ALLOWED_EXTENSIONS": "{none}",
    "GDAL_HTTP_PROXY": "http://127.0.0.1:0",
    "GDAL_HTTP_CONNECTTIMEOUT": 5,
    "GDAL_HTTP_TIMEOUT": 30,
    "GDAL_HTTP_MAX_RETRY": 3,
}

_NETWORK = ("CPL_VSIL_CURL_ALLOWED_EXTENSIONS", "GDAL_HTTP_PROXY")


def gdal_environment(config: StorageConfig | None = None) -> dict[str, Any]:
    """The options of GDAL; with the network only where origins are named that a VRT may lead to."""
    if not (default_config() if config is None else config).linked_origins:
        return _ENVIRONMENT
    return {name: value for name, value in _ENVIRONMENT.items() if name not in _NETWORK}


_FAULTS: tuple[type[BaseException], ...] = (
    RasterioError,
    CRSError,
    CPLE_BaseError,
    UnicodeDecodeError,  # of names in the header
)
"""What GDAL and rasterio raise for a file that they cannot read."""

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


RasterSource = str | os.PathLike[str] | bytes | Span
"""A local file, the bytes of one, or a span of one."""


def sniff_driver(head: bytes, where: str = "raster") -> str:
    """Name of the GDAL driver for content that starts with `head` (16 bytes are enough).

    Raises
    ------
    NotThisFormatError
        The bytes are none of TIFF, JPEG, PNG, WebP and JPEG 2000.
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
    """Where a raster is, for messages."""
    return "raster in memory" if isinstance(source, bytes) else shown(source, 200)


@contextmanager
def reading(where: str, failures: Sequence[ComalError] = ()) -> Iterator[None]:
    """Errors of GDAL while `where` is opened or read become ours.

    Parameters
    ----------
    failures
        What went wrong where GDAL reads through us, which it cannot tell: the first is the error.
    """
    try:
        yield
    except _FAULTS as error:
        if failures:
            raise failures[0] from None
        raise InvalidMetadataError(
            "raster cannot be read",
            where=where,
            found=reason_of(_first_of(error)),
            hint="the file may be cut off or damaged: compare its size with that of the original",
        ) from error
    if failures:
        raise failures[0]


def _first_of(error: BaseException) -> BaseException:
    """What GDAL said first; the errors that follow say only that something failed before."""
    first = error
    while isinstance(cause := first.__cause__ or first.__context__, _FAULTS):
        first = cause
    return first


@contextmanager
def open_raster(source: RasterSource, limits: Limits = DEFAULT_LIMITS) -> Iterator[Any]:
    """A raster opened for reading, as a rasterio dataset.

    Parameters
    ----------
    source
        Path of a local file, bytes, or a `Span` of a local file (which is read whole). GDAL
        names such as ``/vsicurl/..`` are refused: bytes from elsewhere are fetched first.
    limits
        ``leaf_bytes`` bounds what is held in memory, ``raster_bytes`` one block of pixels.

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError, StorageError
        The file cannot be read.
    NotThisFormatError
        The first bytes are none of the allowed formats.
    InvalidMetadataError
        GDAL cannot read the file, or fails to while the dataset is in use.
    LimitExceededError
        The file or a block of it is over a limit.
    """
    where = place(source)
    with (
        _quiet(),
        rasterio.Env(**gdal_environment()),
        reading(where),
    ):
        if isinstance(source, bytes | Span):
            data = source if isinstance(source, bytes) else _read_span(source, limits, where)
            limits.check("leaf_bytes", len(data), where)
            driver = sniff_driver(data[:_HEAD], where)
            with rasterio.MemoryFile(data) as memory, memory.open(driver=driver) as dataset:
                _check_blocks(dataset, limits, where)
                yield dataset
        else:
            path = str(local_path(source, "a raster").absolute())
            driver = sniff_driver(head_of(path, where), where)
            with rasterio.open(path, driver=driver) as dataset:
                _check_blocks(dataset, limits, where)
                yield dataset


def check_read(dataset: Any, cells: int, limits: Limits, where: str) -> None:
    """Refuse to read `cells` pixels of one band when they would take more than ``raster_bytes``."""
    itemsize = max(np.dtype(name).itemsize for name in dataset.dtypes)
    limits.check("raster_bytes", cells * itemsize, where)


def read_valid(
    dataset: Any, bands: Sequence[int], **request: Any
) -> tuple[Array, list[Mask | None]]:
    """Pixels of bands of a rasterio dataset, and which of each have a value.

    GDAL goes by one of mask, nodata and alpha, and knows alpha as the second of two bands or the
    fourth of four; `comal.raster.values` by all that a raster has.

    Parameters
    ----------
    dataset, bands
        The dataset, and numbers of bands from 1 on.
    request
        Of which pixels: ``window``, ``out_shape``, ``resampling``. A pixel that is averaged has a
        value where any of those in it has one.
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


def _check_blocks(dataset: Any, limits: Limits, where: str) -> None:
    if dataset.count == 0:
        raise InvalidMetadataError("raster without bands", where=where)
    if "complex" in "".join(dataset.dtypes):
        # Their size is not that of a numpy type of the same name in all drivers.
        return
    blocks = zip(dataset.block_shapes, dataset.dtypes, strict=True)
    largest = max(rows * columns * np.dtype(name).itemsize for (rows, columns), name in blocks)
    limits.check("raster_bytes", largest, f"{where}, one block")


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
        raise InvalidInputError("negative span", where=where)
    limits.check("leaf_bytes", span.size, where)
    try:
        with Path(span.path).open("rb") as file:
            file.seek(span.offset)
            data = file.read(span.size)
    except OSError as error:
        raise _unreadable(error, where) from error
    if len(data) != span.size:
        raise ShortReadError(
            "span reaches beyond the file", where=where, found=len(data), expected=span.size
        )
    return data


def _unreadable(error: OSError, where: str) -> Exception:
    kinds = {FileNotFoundError: ObjectNotFoundError, PermissionError: AccessDeniedError}
    kind = kinds.get(type(error), StorageError)
    return kind("raster cannot be opened", where=where, found=error.strerror)


_quiet_lock = threading.Lock()
_quiet_users = 0
_quiet_filters: Any = None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warning about rasters without a place, which are no fault here.

    The filters of `warnings` belong to the whole process, so threads share one change of them:
    the first to come makes it and the last to leave takes it back.
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
