"""STAC: place and time of a regular raster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError
from comal.geo import footprints
from comal.geo.times import Instant
from comal.taco.extensions.base import SameForAll, column, list_of
from comal.taco.extensions.placing import (
    TIMESTAMP,
    centroid_column,
    list_column,
    place_of,
    require,
    text_column,
    time_columns,
)

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SCHEMA = pa.schema(
    [
        column("stac:crs", pa.string(), "Coordinate reference system: authority code or WKT"),
        column(
            "stac:tensor_shape", list_of(pa.int64()), "Shape of the raster: bands, rows, columns"
        ),
        column(
            "stac:geotransform",
            list_of(pa.float64()),
            "Affine transform in GDAL order: x0, dx, rotation, y0, rotation, dy",
        ),
        column("stac:time_start", TIMESTAMP, "Start of the acquisition, UTC"),
        column("stac:centroid", pa.binary(), "Centre of the raster as WKB point in EPSG:4326"),
        column("stac:time_end", TIMESTAMP, "End of the acquisition, UTC"),
        column("stac:time_middle", TIMESTAMP, "Middle of the acquisition, UTC"),
    ]
)


@dataclass
class STAC(SameForAll):
    """Place and time of a sample that is a regular raster.

    Parameters
    ----------
    crs
        Authority code such as ``EPSG:32718``, WKT or PROJ string.
    tensor_shape
        At least two sizes, the last two are rows and columns; usually (bands, rows, columns).
    geotransform
        Six numbers in GDAL order; rotation counts.
    time_start, time_end
        Instants as `comal.geo.times.parse_instant` takes them: microseconds since 1970 UTC,
        datetime (naive is UTC), date or ISO text. The end may be None.
    time_middle
        floor((start + end) / 2) when None and there is an end.
    centroid
        WKB point in EPSG:4326; the image of the raster's centre when None.
    sample_id
        Named in messages.
    schema_only
        Typed nulls; no other parameter is needed.

    Raises
    ------
    InvalidInputError
        On creation: a CRS that PROJ does not know, a wrong shape or geotransform, a start after
        the end, a centre that is not on the earth.
    """

    crs: str | None = None
    tensor_shape: Sequence[int] | None = None
    geotransform: Sequence[float] | None = None
    time_start: Instant | None = None
    time_end: Instant | None = None
    time_middle: Instant | None = None
    centroid: bytes | None = None
    sample_id: str | None = None
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        require(self, "crs", "tensor_shape", "geotransform", "time_start")
        if self.schema_only:
            return
        self._row = stac_table(
            crs=self.crs,
            tensor_shape=[self.tensor_shape],
            geotransform=[self.geotransform],
            time_start=[self.time_start],
            time_end=[self.time_end],
            time_middle=[self.time_middle],
            centroid=None if self.centroid is None else pa.array([self.centroid], pa.binary()),
            who=f"STAC of sample {self.sample_id}" if self.sample_id else "STAC",
        )

    @classmethod
    def from_raster(
        cls,
        path: str | os.PathLike[str] | bytes,
        *,
        time_start: Instant,
        time_end: Instant | None = None,
        sample_id: str | None = None,
    ) -> STAC:
        """The extension for a raster file, whose header is read.

        Raises
        ------
        InvalidInputError
            The raster has no CRS or no geotransform.
        ComalError
            It cannot be opened, as `comal.raster.open_raster` says.
        """
        from comal.raster.opening import place  # noqa: PLC0415 - GDAL only where it is needed
        from comal.raster.reading import header  # noqa: PLC0415

        found = header(path)
        if found.crs is None or found.geotransform is None:
            raise InvalidInputError(
                "raster without a place on the earth",
                where=place(path),
                expected="a CRS and a geotransform",
                hint="give them to STAC(...) or use ISTAC",
            )
        return cls(
            found.crs,
            found.shape,
            found.geotransform,
            time_start,
            time_end,
            sample_id=sample_id,
        )

    def get_schema(self) -> pa.Schema:
        """The seven columns ``stac:*``."""
        return SCHEMA

    def _compute(self, sample: Any) -> pa.Table:
        del sample
        return self._row


def stac_table(
    *,
    crs: Any,
    tensor_shape: Any,
    geotransform: Any,
    time_start: Any = None,
    time_end: Any = None,
    time_middle: Any = None,
    centroid: Any = None,
    who: str = "STAC",
) -> pa.Table:
    """The ``stac:*`` columns of many samples at once.

    Parameters
    ----------
    crs
        One text for all, or n texts; null where a sample has no place.
    tensor_shape, geotransform
        Arrow list columns, arrays (n, k) or sequences of sequences.
    time_start, time_end, time_middle
        n instants (integers, datetime64, Arrow timestamps or Python values) or None for null.
    centroid
        Arrow column of WKB points; computed where null or None.
    who
        Named in messages.

    Raises
    ------
    InvalidInputError
        As for `STAC`; the message names the row.
    """
    shape = list_column(tensor_shape, list_of(pa.int64()), "tensor_shape")
    affine = list_column(geotransform, list_of(pa.float64()), "geotransform")
    names = text_column(crs, len(shape))
    if not len(names) == len(shape) == len(affine):
        raise InvalidInputError(
            "columns differ in length", where=who, found=[len(names), len(shape), len(affine)]
        )
    sides = footprints.size_of(shape, f"{who} tensor_shape")
    numbers = footprints.affine_of(affine, f"{who} geotransform")
    present = [_present(part) for part in (names, shape, affine)]
    _check_rasters(shape, affine, sides, numbers, present[2], who)
    lon, lat = footprints.centroids(crs if isinstance(crs, str) else names, numbers, sides)
    start, end, middle = time_columns(time_start, time_end, time_middle, len(shape), who)
    centres = centroid_column(centroid, lon, lat, np.logical_and.reduce(present), who)
    return pa.table([names, shape, affine, start, centres, end, middle], schema=SCHEMA)


def _check_rasters(
    shape: pa.Array, affine: pa.Array, sides: Floats, numbers: Floats, whole: Bools, who: str
) -> None:
    area = numbers[:, 1] * numbers[:, 5] - numbers[:, 2] * numbers[:, 4]
    with np.errstate(invalid="ignore"):
        flat = whole & ~(np.isfinite(numbers).all(axis=1) & (area != 0))
        empty = sides <= 0
    for wrong, what in ((flat, "geotransform of no area"), (empty.any(axis=1), "empty raster")):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise InvalidInputError(
                what,
                where=place_of(who, row, len(shape)),
                found=f"shape {shape[row].as_py()}, geotransform {affine[row].as_py()}",
            )


def _present(column: pa.Array) -> Bools:
    if column.null_count == 0:
        return np.ones(len(column), bool)
    valid: Bools = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return valid
