"""Tortilla 0.5 and TACO v1 in constants: columns, types, formats, tasks. No I/O here.

Column names are those of the specification, "The Footer"; other spellings of published writers are
aliases that readers accept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.check import rules

SPEC_VERSION = "0.5.0"
ENDINGS = (".tortilla", ".taco")
"""Suffixes of file names."""

# -- columns of the footer ------------------------------------------------------------------------

ID = "tortilla:id"
FILE_FORMAT = "tortilla:file_format"
DATA_SPLIT = "tortilla:data_split"
OFFSET = "tortilla:offset"
LENGTH = "tortilla:length"

REQUIRED = (ID, FILE_FORMAT, OFFSET, LENGTH)
"""The four mandatory columns; files before 0.3 have the format in the header instead."""
CORE: Mapping[str, Any] = {
    ID: pa.string(),
    FILE_FORMAT: pa.string(),
    DATA_SPLIT: pa.string(),
    OFFSET: pa.int64(),
    LENGTH: pa.int64(),
}

SPLITS = ("train", "validation", "test")

CRS = "stac:crs"
GEOTRANSFORM = "stac:geotransform"
RASTER_SHAPE = "stac:raster_shape"
TIME_START = "stac:time_start"
TIME_END = "stac:time_end"
CENTROID = "stac:centroid"

STAC: Mapping[str, Any] = {
    CRS: pa.string(),
    GEOTRANSFORM: pa.list_(pa.field("element", pa.float64())),
    RASTER_SHAPE: pa.list_(pa.field("element", pa.int64())),
    TIME_START: pa.int64(),
    TIME_END: pa.int64(),
    CENTROID: pa.string(),
}
"""Times are whole seconds since 1970, UTC."""
STAC_REQUIRED = (CRS, GEOTRANSFORM, RASTER_SHAPE, TIME_START, TIME_END)

ELEVATION = "rai:elevation"
RAI: Mapping[str, Any] = {
    ELEVATION: pa.int64(),
    "rai:cisi": pa.float64(),
    "rai:gdp": pa.float64(),
    "rai:hdi": pa.float64(),
    "rai:gmi": pa.float64(),
    "rai:pop": pa.float64(),
    "rai:admin0": pa.string(),
    "rai:admin1": pa.string(),
    "rai:admin2": pa.string(),
}
RAI_REQUIRED = tuple(RAI)
RAI_FRACTIONS = ("rai:cisi", "rai:hdi", "rai:gmi")
RAI_RANGES: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(RAI_FRACTIONS, (0.0, 1.0)),
    "rai:gdp": (0.0, 1e15),
    "rai:pop": (0.0, 1e11),
    ELEVATION: (-12_000.0, 9_000.0),
}
"""Ranges of values: indices, money, people, and metres from the deepest sea to the summit."""

_DATE = "a date without separators"
_ODD_TIMES: tuple[tuple[float, float, str], ...] = (
    (1900, 2200, "a year"),
    (7_000, 30_000, "days since 1970"),
    (19_000_101, 22_001_231, _DATE),
    (1e11, 4.2e12, "milliseconds since 1970"),
    (1e14, 4.2e15, "microseconds since 1970"),
    (1e17, 4.2e18, "nanoseconds since 1970"),
)
"""Ranges of numbers that are far more often in another unit than seconds since 1970."""


def odd_times(values: npt.NDArray[np.float64]) -> Iterator[tuple[npt.NDArray[np.bool_], str]]:
    """Which numbers are probably not seconds since 1970, and what they look like."""
    for low, high, what in _ODD_TIMES:
        odd = (values >= low) & (values <= high)
        if what is _DATE:
            # Seconds in August and September 1970 are in this range, too: only numbers that are a
            # date are odd.
            odd[odd] = _are_dates(values[odd].astype(np.int64))
        yield odd, what


def _are_dates(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether numbers are year, month and day of an existing date, such as 20240229."""
    year, month, day = numbers // 10_000, numbers // 100 % 100, numbers % 100
    starts = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    last = ((starts + 1).astype("M8[D]") - starts.astype("M8[D]")).astype(np.int64)
    dates: npt.NDArray[np.bool_] = (month >= 1) & (month <= 12) & (day >= 1) & (day <= last)
    return dates


TYPES: Mapping[str, Any] = {**CORE, **STAC, **RAI}
"""The type of every column that the specification names."""
ALIASES: Mapping[str, str] = {"rai:ele": ELEVATION}
"""Other names of published writers for columns of the specification."""

PREFIXES = ("tortilla:", "stac:", "rai:", "internal:")
INDEX_COLUMN = re.compile(r"__index_level_\d+__")
"""The index columns of pandas 2."""

# -- columns that only readers add ----------------------------------------------------------------

INTERNAL = "internal:"
SUBFILE = "internal:subfile"
"""The path of the item for GDAL."""
PART = "internal:part"
"""Position of the file that holds the item, if there are several."""
PATH = "internal:path"
"""Ids from the outermost item to this one, joined by slashes, if levels are mixed."""

NAVIGATION = (PATH, ID, FILE_FORMAT, OFFSET, LENGTH, PART)
"""Columns that stay when others are selected."""

# -- formats of items ------------------------------------------------------------------------------

BYTES = "BYTES"
TORTILLA = "TORTILLA"

_DRIVERS = """
AAIGrid ACE2 ADRG AIG ARG AVCBin AVCE00 AirSAR AmigoCloud Arrow BAG BASISU BIGGIF BLX BMP BSB BT BYN
CAD CALS CEOS COASP COG COSAR CPG CSV CSW CTG CTable2 Carto DAAS DB2ODBC DDS DERIVED DGN DIMAP DIPEx
DOQ1 DOQ2 DTED DWG DXF ECRGTOC ECW EDIGEO EEDA EEDAI EHdr EIR ELAS ENVI ERS ESAT ESRIC ESRIJSON
Elasticsearch EXR FAST FIT FITS FileGDB FlatGeobuf GDALG GFF GIF GML GMLAS GMT GNMDatabase GNMFile
GPKG GPSBabel GPX GRASSASCIIGrid GRIB GS7BG GSAG GSBG GSC GTFS GTI GTX GTiff GXF GenBin GeoJSON
GeoJSONSeq GeoRSS HDF4 HDF4Image HDF5 HDF5Image HEIF HF2 HFA HTTP IDA IDRISI ILWIS INGR IRIS ISCE
ISG ISIS2 ISIS3 Idrisi JAXAPALSAR JDEM JML JP2ECW JP2KAK JP2Lura JP2MrSID JP2OpenJPEG JPEG JPEGXL
JSONFG KEA KML KMLSUPEROVERLAY KRO KTX2 L1B LAN LCP LIBERTIFF LIBKML LOSLAS LVBAG Leveller MAP
MBTiles MEM MFF MFF2 MRF MSGN MSSQLSpatial MVT MapML Memory MiraMonRaster MiraMonVector MrSID
MySQL NAS NDF NGSGEOID NGW NITF NOAA_B NSIDCbin NTv1 NTv2 NWT_GRC NWT_GRD OAPIF OCI ODBC ODS OGCAPI
OGR_GMT OGR_PDS OGR_VRT OSM OZI OpenFileGDB PAux PCIDSK PCRaster PDF PDS PDS4 PGDUMP PLMOSAIC
PLScenes PMTiles PNG PNM PRF Parquet PostGISRaster PostgreSQL R RDA RIK RMF ROI_PAC RPFTOC RRASTER
RS2 RST Rasterlite S102 S104 S111 S57 SAFE SAGA SAR_CEOS SDTS SENTINEL2 SGI SIGDEM SNAP_TIFF SNODAS
SQLite SRP SRTMHGT STACIT STACTA SVG SXF Selafin TGA TIGER TIL TIRIS TSX Terragen TileDB TopoJSON
USGSDEM VDV VFK VICAR VRT WAsP WCS WEBP WFS WMS WMTS XLS XLSX XODR XPM XYZ ZARR ZMap Zarr netCDF
"""
DRIVERS = frozenset([*_DRIVERS.split(), "ESRI Shapefile", "MapInfo File"])
"""Names of GDAL drivers, raster and vector, that are allowed as formats."""
FORMAT_ALIASES: Mapping[str, str] = {
    "GeoParquet": "Parquet",
    "NetCDF": "netCDF",
    "NETCDF": "netCDF",
    "HDF": "HDF5",
    "JPG": "JPEG",
    "TIFF": "GTiff",
    "GeoTIFF": "GTiff",
    "GTIFF": "GTiff",
    "GeoPackage": "GPKG",
    "Shapefile": "ESRI Shapefile",
}
"""Names in published files for formats that have another name in GDAL."""


def known_format(name: str) -> str | None:
    """The GDAL name of a format, ``BYTES`` or ``TORTILLA``; None for anything else."""
    name = FORMAT_ALIASES.get(name, name)
    return name if name in DRIVERS or name in (BYTES, TORTILLA) else None


_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_JPEG_2000 = (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")
_HDF5 = (b"\x89HDF\r\n\x1a\n",)
_SQLITE = (b"SQLite format 3\0",)

SIGNATURES: Mapping[str, tuple[bytes, ...]] = {
    "GTiff": _TIFF,
    "COG": _TIFF,
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "JPEG": (b"\xff\xd8\xff",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "BMP": (b"BM",),
    "WEBP": (b"RIFF",),
    "JP2OpenJPEG": _JPEG_2000,
    "JP2KAK": _JPEG_2000,
    "JP2ECW": _JPEG_2000,
    "HDF5": _HDF5,
    "HDF5Image": _HDF5,
    "netCDF": (*_HDF5, b"CDF\x01", b"CDF\x02", b"CDF\x05"),
    "GPKG": _SQLITE,
    "SQLite": _SQLITE,
    "MBTiles": _SQLITE,
    "FlatGeobuf": (b"fgb\x03",),
    "Parquet": (b"PAR1",),
    "Arrow": (b"ARROW1", b"\xff\xff\xff\xff"),
    "PMTiles": (b"PMTiles",),
    "NITF": (b"NITF", b"NSIF"),
    TORTILLA: (b"#y", b"WX"),
}
"""First bytes of formats whose files all begin with them."""

# -- names of parts --------------------------------------------------------------------------------

PART_NAME = re.compile(r"(?P<stem>.+)\.(?P<number>\d{4,9})\.part\.(?P<extension>tortilla|taco)")


def part_name(stem: str, number: int, extension: str = "tortilla") -> str:
    """``stem.0001.part.tortilla`` ("File Extension")."""
    return f"{stem}.{number:04d}.part.{extension}"


# -- the collection of TACO v1 ---------------------------------------------------------------------

COLLECTION_REQUIRED = (
    "id",
    "dataset_version",
    "description",
    "licenses",
    "extent",
    "providers",
    "taco_version",
)


# -- what a check can report ----------------------------------------------------------------------

_ERRORS = {
    "tortilla-header": "the header is not valid",
    "tortilla-footer": "the footer cannot be read",
    "tortilla-collection": "the collection of a TACO v1 cannot be read",
    # Columns of the core: "The Footer"
    "tortilla-column-missing": "a mandatory column is missing",
    "tortilla-column-type": "a column has the wrong type",
    "tortilla-column-null": "a mandatory column holds nulls",
    "tortilla-id-null": "an item has no id",
    "tortilla-id-twice": "an id appears twice",
    "tortilla-split": "a split other than train, validation and test",
    # Spans
    "tortilla-span-bounds": "an item lies outside the data",
    "tortilla-span-overlap": "two items overlap without being the same",
    # STAC
    "tortilla-crs": "an unknown CRS",
    "tortilla-geotransform": "a geotransform that is not valid",
    "tortilla-raster-shape": "a shape that is not valid",
    "tortilla-time-order": "an item ends before it starts",
    # Payloads
    "tortilla-magic": "the bytes of an item are not of its format",
    "tortilla-item": "the bytes of an item cannot be read",
    # Nesting
    "tortilla-nested": "a nested file cannot be read",
    "tortilla-depth": "files are nested too deeply",
    # Sets of parts: "The Data Partition"
    "tortilla-part-missing": "a part of the set is missing",
    "tortilla-part-twice": "a file is named twice",
    "tortilla-part-count": "the number of parts is not what the header says",
    # Errors that stopped a check
    "limit-exceeded": "the content is larger than the limits allow",
    "unsafe-content": "a name would lead out of the data",
}

_WARNINGS = {
    "tortilla-name": "the name of the file does not fit its kind",
    "tortilla-id": "an id that cannot be a file name, or that other formats forbid",
    "tortilla-id-alike": "two ids are the same name where case is ignored",
    "tortilla-format": "a format that neither GDAL nor the specification knows",
    "tortilla-stored-path": "a column holds paths of the machine that wrote the file",
    "tortilla-time-year": "a time that looks like a year instead of seconds",
    "tortilla-time-unit": "a time that looks like a unit other than seconds",
    "tortilla-centroid": "a centroid that is not a point, or not the centre of its raster",
    "tortilla-rai-range": "a value of RAI that is out of range",
    "tortilla-zero": "an item whose bytes are all zero",
    "tortilla-collection-field": "a field of the collection is missing",
    "tortilla-part-schema": "the parts of a set differ in their columns",
}

CODES = rules(_ERRORS, _WARNINGS)
"""Code to severity (``error`` or ``warning``) and meaning; codes are stable."""

# -- warnings --------------------------------------------------------------------------------------


class TortillaWarning(UserWarning):
    """Some content is wrong, but the returned values are right."""
