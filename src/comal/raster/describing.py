"""Description of a raster before it is put on a grid: georeference, bands, masks.

A description is plain data that can be sent to another process, which opens the raster again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from xml.etree import ElementTree as ET

import numpy as np
import rasterio
from rasterio.crs import CRS
from rasterio.enums import ColorInterp, MaskFlags
from rasterio.io import DatasetReader

from comal import storage
from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    reason_of,
    shown,
    translated,
)
from comal.geo.crs import refuse_files, wkt_of
from comal.limits import DEFAULT_LIMITS, MIB
from comal.plan import Head
from comal.raster.opening import (
    FAULTS,
    check_blocks,
    crs_name,
    gdal_rules,
    head_of,
    open_remote,
    reading,
    refuse_complex,
    sniff_driver,
)
from comal.raster.values import alpha_at, stored_nodata, whole_nodata
from comal.storage.config import StorageConfig, default_config
from comal.storage.location import Location, parse_href

_BLOCK = 1 * MIB
"""Bytes that are read of a remote raster at once."""

Transform = tuple[float, float, float, float, float, float]
"""Affine coefficients a, b, c, d, e, f: x = a column + b row + c, y = d column + e row + f."""

_BY_NAME = {".vrt": "VRT"}
"""Formats that refer to other files are opened only by the extension of the name."""
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
"""Drivers of self-contained formats, tried for files with none of the known first bytes."""


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
    """`scale` and `offset` are None if they are 1 and 0."""
    colorinterp: str | None = None
    colortable: Mapping[int, tuple[int, int, int, int]] | None = None


@dataclass(frozen=True, slots=True)
class FileOrigin:
    """A raster that GDAL opens."""

    path: str
    """Path of a local file; for a remote one, its name in messages."""
    driver: str | tuple[str, ...]
    location: Location | None = None
    """Location of a remote file."""
    config: StorageConfig | None = None
    """Settings of remote storage, and of the origins that a VRT may refer to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasterInfo:
    """A raster: its georeference and its bands."""

    origin: Any
    """A `FileOrigin`, or arrays with the method ``read(bands, rows, columns)``."""
    where: str
    """Name of the raster in messages."""
    width: int
    height: int
    transform: Transform
    crs: str
    """WKT."""
    bands: tuple[BandInfo, ...]
    masked: bool = False
    """Whether it has a mask other than a nodata value or an alpha band that is read."""
    own_crs: bool = True
    """Whether `crs` is from the file, not given by the user."""
    tags: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def config(self) -> StorageConfig | None:
        """Settings of remote storage for GDAL; the same for all rasters of a conversion."""
        return self.origin.config if isinstance(self.origin, FileOrigin) else None

    @property
    def alpha(self) -> int | None:
        """Position of the alpha band, from 0; None without one."""
        return alpha_at([band.colorinterp for band in self.bands])

    def nodata(self, index: int) -> int | float | None:
        """Nodata value of a band, numbered from 1; None without one.

        For floats without a declared value it is NaN, unless there is an alpha band.
        """
        band = self.bands[index - 1]
        found = fitting_nodata(band.nodata, band.dtype)
        if found is None and np.dtype(band.dtype).kind == "f" and self.alpha is None:
            return float("nan")
        return found


def origin_of(
    source: str | os.PathLike[str],
    variable: str | None = None,
    config: StorageConfig | None = None,
) -> FileOrigin:
    """How GDAL opens a path or a URL; the driver is chosen by the first bytes.

    A variable of a NetCDF, HDF5 or Zarr file is named by `variable`, or in the source in GDAL's
    syntax (``NETCDF:"path":name``).
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
    """The first origin that GDAL can open; else raises an error that lists the variables."""
    if not Path(inner.path).is_dir():
        head_of(inner.path, inner.path)  # raises the error of an unreadable file
    for path, driver in inner.openings():
        with (
            suppress(InvalidMetadataError, NotThisFormatError),
            open_origin(FileOrigin(path, driver), path),
        ):
            return FileOrigin(path, driver)
    with _unknown(inner.path), DatasetReader(inner.path, driver=CONTAINERS, sharing=False) as whole:
        raise no_variable(inner.path, inner.name, names_of(whole))


def open_origin(origin: FileOrigin, where: str, failures: list[ComalError] | None = None) -> Any:
    """A rasterio dataset, which the caller closes.

    `failures` receives errors of reading a remote file, now or later; see `reading`.
    """
    failures = [] if failures is None else failures
    drivers = [origin.driver] if isinstance(origin.driver, str) else list(origin.driver)
    sniffed = isinstance(origin.driver, str)
    with reading(where, failures) if sniffed else _unknown(where):
        if origin.location is None:
            dataset = DatasetReader(origin.path, driver=drivers, sharing=False)
        else:
            remote = storage.open_source(origin.location, config=origin.config)
            dataset = open_remote(remote, failures, drivers[0], _BLOCK)
        try:
            _refuse_container(dataset, where)
            check_blocks(dataset, DEFAULT_LIMITS, where)
        except BaseException:  # no one else would close the dataset
            dataset.close()
            raise
    return dataset


@contextmanager
def _unknown(where: str) -> Iterator[None]:
    """Translate errors of GDAL: a file that no driver opens is not a raster."""
    with translated(dict.fromkeys(FAULTS, NotThisFormatError), "not a raster", where=where):
        yield


def describe(
    source: str | os.PathLike[str],
    *,
    crs: str | None = None,
    variable: str | None = None,
    config: StorageConfig | None = None,
) -> RasterInfo:
    """Describe a raster.

    Self-contained formats are recognized by their content; a VRT, which refers to other files, only
    by the name ``*.vrt``. In a NetCDF, HDF5 or Zarr file, the source or `variable` names one
    variable. `crs` applies to a raster without a CRS of its own.
    """
    with gdal_rules(config):
        origin = origin_of(source, variable, config)
        where = origin.path
        failures: list[ComalError] = []
        dataset = open_origin(origin, where, failures)
        with dataset, reading(where, failures):
            return _described(dataset, origin, where, crs)


def crs_wkt(crs: Any, where: str) -> str:
    """The WKT of a CRS given as ``EPSG:32618``, WKT, or an object of another library.

    `comal.geo.crs` parses texts and rejects those that name a file or a URL, which GDAL would open
    or fetch.
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
    """``EPSG:32618``, or the WKT if no authority defines the CRS."""
    return crs_name(CRS.from_wkt(wkt)) or wkt


def no_crs(where: str) -> InvalidInputError:
    """The error for a raster without a CRS."""
    return InvalidInputError(
        "the raster has no coordinate reference system",
        where=where,
        hint="pass the CRS: crs='EPSG:...' (--crs on the command line)",
    )


def _described(dataset: Any, origin: FileOrigin, where: str, crs: str | None) -> RasterInfo:
    refuse_complex(dataset.dtypes, where)
    own = bool(dataset.crs)
    if dataset.transform.is_identity and (dataset.gcps[0] or dataset.rpcs):
        # Before the check of the CRS, which such rasters store elsewhere.
        gcps = bool(dataset.gcps[0])
        option = "" if gcps else "-rpc "
        raise InvalidInputError(
            "the raster is not georeferenced",
            where=where,
            found="ground control points" if gcps else "rational polynomials (RPC)",
            expected="a geotransform",
            hint=f"rectify the raster first: gdalwarp {option}-t_srs EPSG:3857 IN OUT.tif",
        )
    if not own and crs is None:
        raise no_crs(where)
    if dataset.transform.is_identity:
        raise InvalidInputError(
            "the raster is not georeferenced",
            where=where,
            found="no geotransform",
            hint="georeference the raster first, as gdal_translate -a_ullr does",
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
        tags=dict(dataset.tags()),
    )


def _band(dataset: Any, index: int) -> BandInfo:
    at = index - 1
    kind = dataset.colorinterp[at]
    scale, offset, nodata = dataset.scales[at], dataset.offsets[at], dataset.nodatavals[at]
    table = None
    if kind is ColorInterp.palette:
        table = {value: tuple(colour) for value, colour in dataset.colormap(index).items()}
    return BandInfo(
        dtype=dataset.dtypes[at],
        nodata=None if nodata is None else whole_nodata(nodata, dataset.dtypes[at]),
        description=dataset.descriptions[at] or None,
        unit=dataset.units[at] or None,
        scale=None if scale == 1 else scale,
        offset=None if offset == 0 else offset,
        colorinterp=kind.name,
        colortable=table,
    )


def fitting_nodata(nodata: float | None, dtype: str) -> int | float | None:
    """A nodata value, or None if the type cannot hold it, so that no pixel has it."""
    found = stored_nodata(nodata, dtype)
    return None if found is None else whole_nodata(nodata, dtype)


# -- variables -------------------------------------------------------------------------------------
#
# A raster in a file of several (NetCDF, HDF5, Zarr) is named in GDAL's syntax,
# ``NETCDF:"path":variable``, or by the path of the file and a separate variable.

_NAMED = re.compile(r'(NETCDF|HDF5|ZARR):(?:"([^"]+)"|([^"]+?))(?::([^":]*))?', re.IGNORECASE)
_KINDS = ((b"CDF", ("NETCDF",)), (b"\x89HDF", ("NETCDF", "HDF5")))
_DRIVERS = {"NETCDF": ("netCDF", ""), "HDF5": ("HDF5Image", "//"), "ZARR": ("Zarr", "/")}
"""GDAL's driver for each kind, and its prefix of the name of a variable."""
CONTAINERS = ["netCDF", "HDF5", "Zarr"]
"""Drivers that list the variables of a file."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A raster in a file of several."""

    path: str
    kinds: tuple[str, ...]
    """Possible kinds of the file, the likeliest first."""
    name: str | None
    """None for the only variable."""

    def openings(self) -> list[tuple[str, str]]:
        """GDAL names to try, each with its driver."""
        found = []
        for kind in self.kinds:
            driver, before = _DRIVERS[kind]
            named = f":{before}{self.name.lstrip('/')}" if self.name else ""
            found.append((f'{kind}:"{self.path}"{named}', driver))
        return found


def file_of(source: Any) -> Any:
    """The file of a source that names a variable; else the source itself."""
    named = _NAMED.fullmatch(source) if isinstance(source, str) else None
    return source if named is None else named[2] or named[3]


def variable_of(source: str | os.PathLike[str], variable: str | None) -> Variable | None:
    """The requested variable; None for a plain raster."""
    named = _NAMED.fullmatch(source) if isinstance(source, str) else None
    if named is None and variable is None and not _is_zarr(source):
        return None
    name = (named[4] or None) if named is not None else None
    if name and variable not in {None, name}:
        raise InvalidInputError("two different variables are named", found=variable, expected=name)
    name = variable if name is None else name
    if name is not None and ('"' in name or not name.isprintable() or not name.strip("/")):
        raise InvalidInputError("not the name of a variable", found=shown(repr(name)))
    location = parse_href(file_of(source))
    if not location.is_local:
        raise InvalidInputError(
            "variables of remote files cannot be read",
            where=location.label,
            hint="copy the file to this machine first, or open it with xarray",
        )
    path = Path(location.path).absolute()
    kinds = _kinds_of(path) if named is None else (named[1].upper(),)
    if '"' in str(path):
        raise InvalidInputError("the path holds a double quote", where=shown(str(path)))
    return Variable(str(path), kinds, name)


def _is_zarr(source: Any) -> bool:
    if not isinstance(source, str | os.PathLike) or not isinstance(os.fspath(source), str):
        return False  # opening it raises the error
    path = Path(os.fspath(source))
    return path.is_dir() and any((path / n).is_file() for n in (".zgroup", ".zarray", "zarr.json"))


def _kinds_of(path: Path) -> tuple[str, ...]:
    if path.is_dir():
        return ("ZARR",)
    head = head_of(str(path), str(path))
    for magic, kinds in _KINDS:
        if head.startswith(magic):
            return kinds
    raise InvalidInputError(
        "a raster of this format has no variables", where=str(path), expected="NetCDF, HDF5 or Zarr"
    )


def names_of(dataset: Any) -> list[str]:
    """Names of the variables of a container."""
    named = [name.rpartition(":")[2].lstrip("/") for name in dataset.subdatasets]
    only = dataset.tags(1).get("NETCDF_VARNAME") if dataset.count else None
    return named or [one for one in (only,) if one]


def _refuse_container(dataset: Any, where: str) -> None:
    """Reject a file that only contains several rasters."""
    if dataset.count == 0 and dataset.subdatasets:
        raise no_variable(where, None, names_of(dataset))


def no_variable(where: str, wanted: str | None, known: list[str]) -> InvalidInputError:
    """The error for a file that needs the name of a variable, or has none of that name."""
    return InvalidInputError(
        "the file has no such variable" if wanted else "the file has several variables",
        where=where,
        found=None if wanted is None else shown(wanted),
        expected=", ".join(map(shown, known[:40])) or None,
        hint="choose one: variable= (--variable on the command line)",
    )


# -- VRT -------------------------------------------------------------------------------------------
#
# GDAL opens the sources of a VRT by itself, resolves their host names and follows redirects. So
# no remote source is opened unless `StorageConfig.linked_origins` names its origin.

_LARGEST = 64 * MIB
_DEEPEST = 8
_STORES = {"s3": "s3", "gs": "gs", "az": "az", "adls": "az"}
# File systems of GDAL that use the network, alone or nested: /vsizip//vsicurl/https://...
_VSI = re.compile(
    r"/vsi(curl|s3|gs|az|adls|oss|swift|hdfs|webhdfs)(_streaming)?([/?].*)", re.DOTALL
)
_URL = re.compile(r"(?:https?|ftp)://\S+", re.IGNORECASE)
# Descriptions of services, which GDAL accepts as file names.
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
    """Reject a VRT, or one that it refers to, with sources that may not be opened."""
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
    """All texts that may name a file: those of sources, and those like a network path."""
    if path.stat().st_size > _LARGEST:
        raise InvalidMetadataError("not a VRT", where=where, found="a file of more than 64 MiB")
    try:
        root = ET.fromstring(path.read_bytes())  # noqa: S314 - expat bounds its entities
    except (ET.ParseError, ValueError) as error:
        raise InvalidMetadataError(
            "the raster cannot be read", where=where, found=reason_of(error)
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
    """Check a source that is itself a VRT, whatever its name."""
    try:
        with path.open("rb") as file:
            nested = file.read(512).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<VRTDataset")
    except (OSError, ValueError):
        return  # GDAL reports the error
    if nested:
        if depth >= _DEEPEST:
            raise InvalidMetadataError("VRTs are nested too deeply", where=where)
        check_references(path, config, depth + 1)
