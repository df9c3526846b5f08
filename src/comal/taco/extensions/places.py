"""STAC and ISTAC: place and time of samples, regular rasters and others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.geo import footprints, times, wkb
from comal.geo.shapes import geometry_centroids
from comal.geo.times import Instant
from comal.taco.extensions.base import SameForAll, declared, list_of, require

Floats = npt.NDArray[np.float64]

COLUMNS = ("stac:centroid", "istac:centroid")


def centre_columns(table: pa.Table, who: str) -> tuple[Floats, Floats]:
    """Longitude and latitude of each row, from the first of `COLUMNS` that has them.

    Raises
    ------
    InvalidInputError
        The table has none of the columns, or no row has a centroid.
    """
    lon, lat = np.full(table.num_rows, np.nan), np.full(table.num_rows, np.nan)
    present = [name for name in COLUMNS if name in table.column_names]
    for name in present:
        x, y = wkb.points_xy(table.column(name), name)
        lon, lat = np.where(np.isnan(lon), x, lon), np.where(np.isnan(lat), y, lat)
    if not present or (table.num_rows and np.isnan(lon).all()):
        raise InvalidInputError(
            f"{who} needs centroids",
            found="no centroid in any row" if present else _listed(table),
            expected=" or ".join(COLUMNS),
            hint="extend the samples with STAC or ISTAC first",
        )
    return lon, lat


def _listed(table: pa.Table) -> str:
    return ", ".join(shown(name) for name in table.column_names[:20])


TIMESTAMP = pa.timestamp("us")


def text_column(values: Any, count: int) -> pa.Array:
    """A column of texts from one text for all rows, an Arrow column or a sequence."""
    if isinstance(values, str):
        return pa.repeat(values, count)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return (
        values.cast(pa.string()) if isinstance(values, pa.Array) else pa.array(values, pa.string())
    )


def list_column(values: Any, kind: pa.DataType, what: str) -> pa.Array:
    """A list column from an Arrow column, an array (n, k) or a sequence of sequences."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.ndim == 2:
        offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
        flat = pa.array(np.ascontiguousarray(values).ravel()).cast(kind.value_type)
        return pa.ListArray.from_arrays(pa.array(offsets), flat, type=kind)
    try:
        if isinstance(values, pa.Array):
            return values.cast(kind)
        rows = [None if row is None else [_plain(part) for part in row] for row in values]
        return pa.array(rows).cast(kind)  # a cast checks, a type given at once truncates 1.5
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"invalid {what}", found=str(error)[:80], expected=str(kind)
        ) from error


def _all_none(values: Any) -> bool:
    return values is None or (isinstance(values, list) and values == [None])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def time_columns(
    start: Any, end: Any, middle: Any, count: int, who: str
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Start, end and middle as ``timestamp[us]``; the middle is floor((start + end) / 2).

    Raises
    ------
    InvalidInputError
        A value is no time, or a start lies after its end.
    """
    start, end, middle = (
        pa.nulls(count, TIMESTAMP) if _all_none(part) else times.timestamps(part, f"{who} {name}")
        for name, part in (("time_start", start), ("time_end", end), ("time_middle", middle))
    )
    if end.null_count == count:  # the usual case: nothing to compare
        return start, end, middle
    late = pc.fill_null(pc.greater(start, end), False)
    if pc.any(late).as_py():
        row = pc.index(late, True).as_py()
        raise InvalidInputError(
            "time_start is after time_end",
            where=place_of(who, row, count),
            found=f"{start[row]} > {end[row]}",
        )
    known = pc.and_(pc.is_valid(start), pc.is_valid(end)).to_numpy(zero_copy_only=False)
    if middle.null_count and known.any():
        first, last = (part.cast(pa.int64()).fill_null(0).to_numpy() for part in (start, end))
        between = pa.array(times.middles(first, last), mask=~known).cast(TIMESTAMP)
        middle = pc.coalesce(middle, between)
    return start, end, middle


def centroid_column(given: Any, lon: Floats, lat: Floats, needed: Any, who: str) -> pa.Array:
    """The centroids that are given, and computed ones where none is.

    Parameters
    ----------
    given
        Arrow binary column of WKB points or None.
    lon, lat
        Computed centroids in degrees.
    needed
        Boolean array: rows that have a place, so that a missing centroid is an error.
    who
        The extension or sample, for messages.

    Raises
    ------
    InvalidInputError
        A centroid is not on the earth: not finite, longitude outside -180..180, latitude outside
        -90..90.
    """
    if given is not None:
        x, y = wkb.points_xy(given, f"{who} centroid")
        present = pc.is_valid(given).to_numpy(zero_copy_only=False)
        lon, lat = np.where(present, x, lon), np.where(present, y, lat)
        needed = needed | present
    with np.errstate(invalid="ignore"):
        good = (np.abs(lon) <= 180) & (np.abs(lat) <= 90)
    bad = np.flatnonzero(needed & ~good)
    if len(bad):
        row = int(bad[0])
        raise InvalidInputError(
            "centroid is not on the earth",
            where=place_of(who, row, len(lon)),
            found=f"longitude {lon[row]}, latitude {lat[row]}",
            expected="longitude -180..180, latitude -90..90",
            hint="check the CRS and the coordinates, or give the centroid",
        )
    return wkb.point(np.where(needed, lon, np.nan), lat)


def place_of(who: str, row: int, count: int) -> str:
    """The row, unless there is only one."""
    return who if count == 1 else f"{who}, row {row}"


Bools = npt.NDArray[np.bool_]

_TIMES = {
    f"time_{name}": (TIMESTAMP, f"{name.capitalize()} of the acquisition, UTC")
    for name in ("start", "end", "middle")
}
_CRS = (pa.string(), "Coordinate reference system: authority code or WKT")
_AFFINE = "Affine transform in GDAL order: x0, dx, rotation, y0, rotation, dy"
STAC_SCHEMA = declared(
    ("stac:crs", *_CRS),
    ("stac:tensor_shape", list_of(pa.int64()), "Shape of the raster: bands, rows, columns"),
    ("stac:geotransform", list_of(pa.float64()), _AFFINE),
    ("stac:time_start", *_TIMES["time_start"]),
    ("stac:centroid", pa.binary(), "Centre of the raster as WKB point in EPSG:4326"),
    ("stac:time_end", *_TIMES["time_end"]),
    ("stac:time_middle", *_TIMES["time_middle"]),
)
ISTAC_SCHEMA = declared(
    ("istac:crs", *_CRS),
    ("istac:geometry", pa.binary(), "Footprint as WKB in istac:crs"),
    *((f"istac:{name}", *column) for name, column in _TIMES.items()),
    ("istac:centroid", pa.binary(), "Centroid as WKB point in EPSG:4326"),
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

    _columns: ClassVar[pa.Schema] = STAC_SCHEMA

    crs: str | None = None
    tensor_shape: Sequence[int] | None = None
    geotransform: Sequence[float] | None = None
    time_start: Instant | None = None
    time_end: Instant | None = None
    time_middle: Instant | None = None
    centroid: bytes | None = None
    sample_id: str | None = None

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
    present = [footprints.present(part) for part in (names, shape, affine)]
    _check_rasters(shape, affine, sides, numbers, present[2], who)
    lon, lat = footprints.centroids(crs if isinstance(crs, str) else names, numbers, sides)
    start, end, middle = time_columns(time_start, time_end, time_middle, len(shape), who)
    centres = centroid_column(centroid, lon, lat, np.logical_and.reduce(present), who)
    return pa.table([names, shape, affine, start, centres, end, middle], schema=STAC_SCHEMA)


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


@dataclass
class ISTAC(SameForAll):
    """Place and time of a sample that is no regular raster.

    Parameters
    ----------
    crs
        Authority code, WKT or PROJ string.
    geometry
        Footprint in `crs`, x before y, as WKB or a shapely geometry.
    time_start, time_end, time_middle
        As for `comal.taco.extensions.STAC`.
    centroid
        WKB point in EPSG:4326; computed from the geometry when None.
    check_antimeridian
        In a geographic CRS an edge longer than 180 degrees goes over the antimeridian, and so
        does a geometry with parts on both sides of it; its centroid lies within it. Without the
        check coordinates are taken as they stand. Geometries over Greenwich are never affected.
    sample_id
        Named in messages.
    schema_only
        Typed nulls; no other parameter is needed.

    Raises
    ------
    InvalidInputError
        On creation: a CRS that PROJ does not know, a geometry that is empty or no WKB, a start
        after the end, a centroid that is not on the earth.
    """

    _columns: ClassVar[pa.Schema] = ISTAC_SCHEMA

    crs: str | None = None
    geometry: Any = None
    time_start: Instant | None = None
    time_end: Instant | None = None
    time_middle: Instant | None = None
    centroid: bytes | None = None
    check_antimeridian: bool = True
    sample_id: str | None = None

    def __post_init__(self) -> None:
        require(self, "crs", "geometry", "time_start")
        if self.schema_only:
            return
        self._row = istac_table(
            crs=[self.crs],
            geometry=pa.array([getattr(self.geometry, "wkb", self.geometry)], pa.binary()),
            time_start=[self.time_start],
            time_end=[self.time_end],
            time_middle=[self.time_middle],
            centroid=None if self.centroid is None else pa.array([self.centroid], pa.binary()),
            check_antimeridian=self.check_antimeridian,
            who=f"ISTAC of sample {self.sample_id}" if self.sample_id else "ISTAC",
        )

    def _compute(self, sample: Any) -> pa.Table:
        del sample
        return self._row


def istac_table(
    *,
    crs: Any,
    geometry: Any,
    time_start: Any = None,
    time_end: Any = None,
    time_middle: Any = None,
    centroid: Any = None,
    check_antimeridian: bool = True,
    who: str = "ISTAC",
) -> pa.Table:
    """The ``istac:*`` columns of many samples at once.

    `geometry` is an Arrow binary column of WKB; the other parameters are those of `stac_table`.

    Raises
    ------
    InvalidInputError
        As for `ISTAC`; the message names the row.
    """
    if isinstance(geometry, pa.ChunkedArray):
        geometry = geometry.combine_chunks()
    names = text_column(crs, len(geometry))
    try:
        lon, lat = geometry_centroids(geometry, names, check_antimeridian=check_antimeridian)
    except InvalidMetadataError as error:  # from a file it is bad content, here a bad argument
        raise InvalidInputError("invalid geometry", where=who, found=error.found) from error
    needed = pc.and_(pc.is_valid(geometry), pc.is_valid(names)).to_numpy(zero_copy_only=False)
    start, end, middle = time_columns(time_start, time_end, time_middle, len(geometry), who)
    centres = centroid_column(centroid, lon, lat, needed, who)
    return pa.table([names, geometry, start, end, middle, centres], schema=ISTAC_SCHEMA)
