"""The metadata of a RaQuet file: one model for every version.

The names are those of the nested form (0.3.0 and later); `wire` reads both forms into it and
`documents` writes it as either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from comal.errors import InvalidInputError, Problem, shown
from comal.public import guarded_class

WRITTEN = ("0.1.0", "0.5.0")
"""Versions of the metadata that are written; the first is the default."""
TIMED = "0.2.0"
"""Version that added the time dimension; a time series in the flat form is labelled with it."""
MAX_ZOOM = 26
"""RaQuet 0.1.0, resolution information: resolutions are 0 to 26."""
BLOCK_STEP = 16
"""RaQuet 0.1.0: a block size must be divisible by 16."""
MAX_BLOCK = 8192

BLOCK, METADATA, PIXELS = "block", "metadata", "pixels"
"""Columns: ids of cells, the document, and all bands of a tile in the interleaved layout."""
TIME_CF, TIME_TS = "time_cf", "time_ts"
STATISTICS = ("count", "min", "max", "sum", "mean", "stddev")
"""Tile statistics (0.5.0): kinds, in the order of their columns ``{band}_{kind}``."""
PART = "part"
"""Key of ``processing`` in a file that `partition` cut from another: the tile that contains it.

Its band statistics are those of the original file."""
RESERVED = frozenset({BLOCK, METADATA, PIXELS, TIME_CF, TIME_TS})
"""Names that no band can have."""

GZIP, JPEG, WEBP = "gzip", "jpeg", "webp"
COMPRESSIONS = (None, GZIP, JPEG, WEBP)
SEQUENTIAL, INTERLEAVED = "sequential", "interleaved"
LAYOUTS = (SEQUENTIAL, INTERLEAVED)
LOSSY_BANDS = {JPEG: (1, 3), WEBP: (1, 3, 4)}
"""Numbers of bands that lossy tiles can have; all of type uint8."""

DTYPES = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
)
"""Pixel types; float16 since 0.4.0."""

VERSION_KEY = "raquet:version"
"""Key of the Parquet footer that holds the version (0.4.0 and later)."""
METADATA_KEY = "comal:metadata"
"""Key of the Parquet footer that may hold a copy of the document, to save a request."""

Number = int | float
Bounds = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class BandStatistics:
    """Statistics of the valid pixels of a band at the maximum zoom; None where unknown.

    They are of stored pixels: `Band.scale` and `Band.offset` are not applied.
    """

    count: int | None = None
    """Valid pixels."""
    min: Number | None = None
    max: Number | None = None
    mean: float | None = None
    stddev: float | None = None
    """Population standard deviation."""
    sum: Number | None = None
    sum_squares: Number | None = None
    valid_percent: float | None = None
    """Valid pixels as a percentage of the pixels that the source covers (nested form)."""
    quantiles: Mapping[str, tuple[Number, ...]] | None = None
    """Key ``"4"``: the three quartiles (flat form)."""
    top_values: Mapping[str, int] | None = None
    """Most frequent values and their counts (flat form)."""
    approximated: bool | None = None
    version: str | None = None
    """Version of the statistics, free text."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys that no version defines, kept when the document is written again."""


PADDING: Mapping[str, str] = {"padding": "NaN"}
"""Marks a float band whose source declared no nodata value.

NaN is never a valid value, and the reference converter cannot export a file that declares it: so
``nodata`` is null in such a band, and `wire` reads it as NaN.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One band."""

    name: str
    """Name of the band, and of its column in the sequential layout."""
    dtype: str
    """numpy name of the type; bytes are little-endian."""
    nodata: Number | None = None
    """Value of invalid pixels: an int if it is whole and the type is an integer type.

    If the type cannot hold the value, no pixel has it.
    """
    description: str | None = None
    unit: str | None = None
    scale: float | None = None
    offset: float | None = None
    """Physical value = pixel x `scale` + `offset`; None is 1 and 0."""
    colorinterp: str | None = None
    """GDAL's name in lower case: ``gray``, ``red``, ``palette``, ..."""
    colortable: Mapping[int, tuple[int, int, int, int]] | None = None
    """RGBA by pixel value, each component 0 to 255."""
    statistics: BandStatistics | None = None
    histogram: Mapping[str, Any] | None = None
    """``min``, ``max``, ``buckets`` and ``counts`` (0.3.0 and later)."""
    source_band: int | None = None
    """Number of the source band, from 1."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pixel_type(self) -> np.dtype[Any]:
        """The type as it is stored."""
        return np.dtype(self.dtype).newbyteorder("<")


@guarded_class
@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The document of a RaQuet file."""

    version: str | None = None
    """Version of the metadata; the earliest files have none."""
    compression: str | None = None
    """Compression of tiles: None, ``gzip``, ``jpeg`` or ``webp``."""
    quality: int | None = None
    """Quality of a lossy compression, 1 to 100."""
    layout: str = SEQUENTIAL
    """``sequential``: one column per band; ``interleaved``: one column, pixel by pixel."""
    block_width: int
    block_height: int
    """Tile size in pixels."""
    min_zoom: int
    max_zoom: int
    """Zooms of the coarsest overview and of the full resolution."""
    num_blocks: int | None = None
    """Number of tiles at the maximum zoom as the file claims; writers count differently."""
    bounds: Bounds
    """West, south, east, north in degrees; most writers round out to tiles."""
    width: int
    height: int
    """Size in pixels of the bounds at full resolution."""
    bands: tuple[Band, ...]
    time: Mapping[str, Any] | None = None
    """Time dimension (0.2.0): ``cf:units``, ``cf:calendar``, ``resolution``, ``count``, ..."""
    tile_statistics: tuple[str, ...] = ()
    """Kinds of statistics that the table has columns for; see `STATISTICS`."""
    custom: Mapping[str, Any] = field(default_factory=dict)
    """Entries of users, and those of comal under the key ``comal``."""
    processing: Mapping[str, Any] = field(default_factory=dict)
    """How the file was made (0.4.0)."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys that no version defines, kept when the document is written again."""
    nested: bool = False
    """Whether the document has the form of 0.3.0 and later."""
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    """Warnings: faults of the document that leave the pixels readable."""

    @property
    def band_names(self) -> tuple[str, ...]:
        """Names of the bands."""
        return tuple(band.name for band in self.bands)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that hold pixels: one per band, or a single one for all bands."""
        return (PIXELS,) if self.interleaved else self.band_names

    @property
    def interleaved(self) -> bool:
        """Whether the bands of a tile are stored together."""
        return self.layout == INTERLEAVED

    def stored_in(self, column: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Type and shape of the pixels in the blobs of a column.

        Parameters
        ----------
        column
            One of `columns`; in the interleaved layout the only one, which holds all bands.

        Returns
        -------
        The stored type, and (rows, columns) or (bands, rows, columns).

        Raises
        ------
        InvalidInputError
            The sequential layout has no such column.
        """
        shape = self.block_height, self.block_width
        if self.interleaved:
            return self.bands[0].pixel_type, (len(self.bands), *shape)
        return self.bands[self.band_index(column)].pixel_type, shape

    @property
    def statistics_columns(self) -> tuple[str, ...]:
        """Columns of the tile statistics."""
        return tuple(f"{band}_{kind}" for band in self.band_names for kind in self.tile_statistics)

    @property
    def center(self) -> tuple[float, float, int]:
        """Longitude and latitude of the centre of the bounds, and the maximum zoom."""
        west, south, east, north = self.bounds
        return (west + east) / 2, (south + north) / 2, self.max_zoom

    def band_index(self, name: str) -> int:
        """Position of a band, from 0.

        Raises
        ------
        InvalidInputError
            No band has that name.
        """
        if name not in self.band_names:
            raise InvalidInputError(
                "no such band", found=shown(name), expected=", ".join(map(shown, self.band_names))
            )
        return self.band_names.index(name)
