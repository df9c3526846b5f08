"""Extensions for locations and times (STAC, ISTAC), cells (MajorTOM) and spatial groups."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal import limits
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    ObjectNotFoundError,
    shown,
    translated,
)
from comal.geo import footprints, times, wkb
from comal.geo.places import CENTROIDS
from comal.geo.shapes import geometry_centroids
from comal.geo.times import Instant
from comal.grid.quadbin import z_order
from comal.public import check_fields
from comal.samples.copying import blocks
from comal.taco.extensions.base import (
    FAULTS,
    ComputedColumns,
    SameForAll,
    declared,
    list_of,
    require,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_TIMESTAMP = pa.timestamp("us")
_TIMES = {
    f"time_{name}": (_TIMESTAMP, f"{name.capitalize()} of the acquisition, UTC")
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


class _Placed(SameForAll):
    """Location and time of one sample, in a table built on creation."""

    crs: str | None
    time_start: Instant | None
    time_end: Instant | None
    time_middle: Instant | None
    centroid: bytes | None
    sample_id: str | None
    _row: pa.Table

    def _who(self) -> str:
        name = type(self).__name__
        return f"{name} of sample {self.sample_id}" if self.sample_id else name

    def _check_crs(self) -> None:
        if not isinstance(self.crs, str):
            raise InvalidInputError(
                "the CRS is not text",
                where=self._who(),
                found=shown(self.crs),
                expected="an authority code such as 'EPSG:32718', WKT or PROJJSON",
            )

    def _times(self) -> list[pa.Array]:
        """Start, end and middle as ``timestamp[us]``; the middle is floor((start + end) / 2)."""
        names = ("time_start", "time_end", "time_middle")
        start, end, middle = (
            times.timestamps([value], f"{self._who()} {name}").cast(_TIMESTAMP)
            for name, value in ((name, getattr(self, name)) for name in names)
        )
        if start.null_count or end.null_count:
            return [start, end, middle]
        first, last = start[0].value, end[0].value
        if first > last:
            raise InvalidInputError(
                "time_start is after time_end",
                where=self._who(),
                found=f"{start[0]} > {end[0]}",
            )
        if middle.null_count:
            middle = pa.array([(first + last) // 2], pa.int64()).cast(_TIMESTAMP)
        return [start, end, middle]

    def _centroid(self, lon: Floats, lat: Floats) -> pa.Array:
        """The given centroid, else the computed one; raises if it is not on the earth."""
        if self.centroid is not None:
            given = pa.array([self.centroid], pa.binary())
            lon, lat = wkb.points_xy(given, f"{self._who()} centroid")
        if not (abs(lon[0]) <= 180 and abs(lat[0]) <= 90):
            raise InvalidInputError(
                "the centroid is not on the earth",
                where=self._who(),
                found=f"longitude {lon[0]}, latitude {lat[0]}",
                expected="longitude -180 to 180, latitude -90 to 90",
                hint="check the CRS and the coordinates, or give the centroid",
            )
        return wkb.point(lon, lat)

    def _compute(self, sample: Any) -> pa.Table:
        del sample
        return self._row


@dataclass
class STAC(_Placed):
    """Location and time of a sample that is a regular raster.

    Parameters
    ----------
    crs
        Authority code such as ``EPSG:32718``, WKT or PROJ string.
    tensor_shape
        At least two sizes, the last two are rows and columns; usually (bands, rows, columns).
    geotransform
        Six numbers in GDAL order; rotation is respected.
    time_start, time_end
        Instants as `comal.geo.times.parse_instant` takes them: microseconds since 1970 UTC,
        datetime (naive is UTC), date or ISO text. The end may be None.
    time_middle
        None gives floor((start + end) / 2) if there is an end.
    centroid
        WKB point in EPSG:4326; None gives the transformed centre of the raster.
    sample_id
        Id for messages.
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
        self._check_crs()
        who = self._who()
        shape = _list_column(self.tensor_shape, pa.int64(), "tensor_shape")
        affine = _list_column(self.geotransform, pa.float64(), "geotransform")
        sides = footprints.size_of(shape, f"{who} tensor_shape")
        numbers = footprints.affine_of(affine, f"{who} geotransform")
        found = f"shape {shape[0]}, geotransform {affine[0]}"
        _check_raster(np.asarray(shape.values), numbers[0], found, who)
        centre = self._centroid(*footprints.centroids(self.crs, numbers, sides))
        start, end, middle = self._times()
        columns = [pa.array([self.crs], pa.string()), shape, affine, start, centre, end, middle]
        self._row = pa.table(columns, schema=STAC_SCHEMA)

    @classmethod
    def from_raster(
        cls,
        path: str | os.PathLike[str] | bytes,
        *,
        time_start: Instant,
        time_end: Instant | None = None,
        sample_id: str | None = None,
    ) -> STAC:
        """The extension for a raster file, from its header.

        Raises
        ------
        InvalidInputError
            The raster has no CRS or no geotransform.
        ComalError
            It cannot be opened, as `comal.raster.open_raster` says.
        """
        from comal.raster.opening import header, place  # noqa: PLC0415 - loads GDAL

        found = header(path)
        if found.crs is None or found.geotransform is None:
            raise InvalidInputError(
                "the raster is not georeferenced",
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


def _list_column(values: Any, kind: pa.DataType, what: str) -> pa.Array:
    wanted = list_of(kind)
    try:
        parts = [values] if isinstance(values, str | bytes) else values  # text is no sequence
        row = [part.item() if isinstance(part, np.generic) else part for part in parts]
        return pa.array([row]).cast(wanted)  # the cast checks; `type=` would truncate 1.5
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"invalid {what}", found=str(error)[:80], expected=str(wanted)
        ) from error


def _check_raster(shape: Integers, numbers: Floats, found: str, who: str) -> None:
    area = numbers[1] * numbers[5] - numbers[2] * numbers[4]
    if not np.isfinite(numbers).all() or area == 0:
        raise InvalidInputError("the geotransform has no area", where=who, found=found)
    if not (shape > 0).all():
        raise InvalidInputError("the raster is empty", where=who, found=found)


@dataclass
class ISTAC(_Placed):
    """Location and time of a sample that is not a regular raster.

    Parameters
    ----------
    crs
        Authority code, WKT or PROJ string.
    geometry
        Footprint in `crs`, x before y, as WKB or a shapely geometry.
    time_start, time_end, time_middle
        As for `comal.taco.extensions.STAC`.
    centroid
        WKB point in EPSG:4326; None computes it from the geometry.
    check_antimeridian
        In a geographic CRS, take an edge longer than 180 degrees, or a geometry with parts on both
        sides of the antimeridian, as crossing it; the centroid then lies within it. False uses
        coordinates unchanged. Geometries over Greenwich are never affected.
    sample_id
        Id for messages.
    schema_only
        Typed nulls; no other parameter is needed.

    Raises
    ------
    InvalidInputError
        On creation: a CRS that PROJ does not know, a geometry that is empty or not WKB, a start
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
        self._check_crs()
        crs = pa.array([self.crs], pa.string())
        geometry = pa.array([getattr(self.geometry, "wkb", self.geometry)], pa.binary())
        try:
            place = geometry_centroids(geometry, crs, check_antimeridian=self.check_antimeridian)
        except InvalidMetadataError as error:  # here an argument is invalid, not a file
            raise InvalidInputError(
                "invalid geometry", where=self._who(), found=error.found
            ) from error
        columns = [crs, geometry, *self._times(), self._centroid(*place)]
        self._row = pa.table(columns, schema=ISTAC_SCHEMA)


# -- cells and groups ------------------------------------------------------------------------------


def _centres(table: pa.Table, who: str) -> tuple[Floats, Floats]:
    """Longitude and latitude of each row, from its first column of `CENTROIDS` with a value."""
    lon, lat = np.full(table.num_rows, np.nan), np.full(table.num_rows, np.nan)
    present = [name for name in CENTROIDS if name in table.column_names]
    for name in present:
        x, y = wkb.points_xy(table.column(name), name)
        lon, lat = np.where(np.isnan(lon), x, lon), np.where(np.isnan(lat), y, lat)
    if not present or (table.num_rows and np.isnan(lon).all()):
        names = ", ".join(map(shown, table.column_names[:20]))
        raise InvalidInputError(
            f"{who} needs centroids",
            found="no centroid in any row" if present else names,
            expected=" or ".join(CENTROIDS),
            hint="extend the samples with STAC or ISTAC first",
        )
    return lon, lat


RADIUS_KM = 6378.137
"""Equatorial radius of the earth."""


@dataclass
class MajorTOM(ComputedColumns):
    """The MajorTOM cell of each sample, such as ``0100km_0003U_0005R``.

    Anchors are `dist_km` apart on parallels `dist_km` apart, counted from Greenwich and the
    equator. A sample belongs to the anchor south-west of its centroid; a centroid exactly on an
    anchor belongs to the one before.

    Parameters
    ----------
    dist_km
        Distance between anchors in kilometres.
    latitude_range, longitude_range
        Anchors outside are dropped: a row clips to the nearest remaining one, and a column west
        of the first wraps to the last.
    sep
        Separator of the three parts of a code.

    Raises
    ------
    InvalidInputError
        On creation: a distance that is not positive, an empty range. On use: no centroids.
    """

    dist_km: float = 100
    latitude_range: tuple[float, float] = (-85, 85)
    longitude_range: tuple[float, float] = (-180, 180)
    sep: str = "_"

    def __post_init__(self) -> None:
        check_fields(self)
        if not (math.isfinite(self.dist_km) and self.dist_km > 0):
            raise InvalidInputError("invalid dist_km", found=self.dist_km, expected="above 0")
        for low, high in (self.latitude_range, self.longitude_range):
            if not low < high:
                raise InvalidInputError("empty range", found=(low, high), expected="low < high")

    def get_schema(self) -> pa.Schema:
        """The column ``majortom:code``."""
        text = f"Cell of the MajorTOM grid of {self.dist_km:g} km"
        return declared(("majortom:code", pa.string(), text))

    def compute_table(self, table: pa.Table) -> pa.Table:
        """Codes of the centroids ``stac:centroid`` or ``istac:centroid``; null without one."""
        lon, lat = _centres(table, "MajorTOM")
        known = np.isfinite(lon) & np.isfinite(lat)
        rows, columns = self.cells(np.where(known, lon, 0), np.where(known, lat, 0))
        head = pa.scalar(f"{int(self.dist_km):04d}km")
        codes = pc.binary_join_element_wise(
            head, _labels(rows, "U", "D"), _labels(columns, "R", "L"), self.sep
        )
        codes = pc.if_else(pa.array(known), codes, pa.scalar(None, pa.string()))
        return pa.table({"majortom:code": codes})

    def cells(self, lon: npt.ArrayLike, lat: npt.ArrayLike) -> tuple[Integers, Integers]:
        """Row and column numbers of points in degrees; negative to the south and the west."""
        lons, lats = np.asarray(lon, np.float64), np.asarray(lat, np.float64)
        step = 180 / math.ceil(math.pi * RADIUS_KM / self.dist_km)
        lowest, highest = _range(*self.latitude_range, step, 90)
        rows = np.clip(np.ceil(lats / step) - 1, lowest, highest)
        around = 2 * math.pi * RADIUS_KM * np.cos(np.radians(rows * step))
        count = np.maximum(1, np.ceil(around / self.dist_km))
        width = 360 / count
        first, last = _range(*self.longitude_range, width, 180)
        columns = np.ceil(lons / width) - 1
        columns = np.where((columns < first) | (columns > last), last, columns)
        columns = np.where(first > last, 0, columns)
        return rows.astype(np.int64), columns.astype(np.int64)


def _range(low: float, high: float, step: Any, end: float) -> tuple[Any, Any]:
    """First and last anchor within low..high, of the anchors in -end <= anchor < end."""
    first = np.ceil(max(low, -end) / step)
    last = np.minimum(np.floor(high / step), np.ceil(end / step) - 1)
    return first, last


def _labels(numbers: Integers, upper: str, lower: str) -> pa.Array:
    """``0003U`` for 3 and ``0002D`` for -2."""
    digits = pc.utf8_lpad(pa.array(np.abs(numbers)).cast(pa.string()), 4, "0")
    sides = pc.if_else(pa.array(numbers >= 0), upper, lower)
    return pc.binary_join_element_wise(digits, sides, "")


SIZES = ("internal:size", "size")
"""Columns used as the size of a sample in bytes."""

_UNIT = re.compile(r"(?<=[KMGT])B?\s*$", re.IGNORECASE)


@dataclass
class SpatialGrouping(ComputedColumns):
    """A group of neighbours for each sample: ``sg0000``, ``sg0001``, ...

    Samples are sorted along a Z-order curve through their centroids and cut into groups at
    `target_count` samples or `target_size` bytes, whichever comes first. A sample larger than
    `target_size` is a group of its own.

    Parameters
    ----------
    target_count
        Maximum number of samples in a group.
    target_size
        Maximum bytes in a group: a number, or text such as ``"512MB"`` (of 1024 * 1024).

    Raises
    ------
    InvalidInputError
        On creation: no limit, or one that is not positive. On use: no centroids; unknown sizes.
    """

    _columns: ClassVar[pa.Schema] = declared(
        ("spatialgroup:code", pa.string(), "Group of neighbouring samples along a Z-order curve")
    )

    target_count: int | None = None
    target_size: int | str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.target_count is None and self.target_size is None:
            raise InvalidInputError(
                "SpatialGrouping needs a limit", expected="target_count, target_size or both"
            )
        if self.target_count is not None and self.target_count < 1:
            raise InvalidInputError(
                "invalid target_count", found=self.target_count, expected="at least 1"
            )
        self._bytes = None if self.target_size is None else parse_size(self.target_size)

    def compute_table(self, table: pa.Table) -> pa.Table:
        """Groups of the rows; null without a centroid."""
        lon, lat = _centres(table, "SpatialGrouping")
        rows = np.flatnonzero(np.isfinite(lon) & np.isfinite(lat))
        rows = rows[np.argsort(z_order(lon[rows], lat[rows]), kind="stable")]
        sizes = np.zeros(len(rows), np.int64) if self._bytes is None else _sizes(table)[rows]
        groups = np.full(table.num_rows, -1, np.int64)
        runs = blocks(sizes, budget=self._bytes or 0, rows=self.target_count or len(rows))
        for number, (start, stop) in enumerate(runs):
            groups[rows[start:stop]] = number
        numbers = pa.array(groups, mask=groups < 0).cast(pa.string())
        codes = pc.binary_join_element_wise("sg", pc.utf8_lpad(numbers, 4, "0"), "")
        return pa.table({"spatialgroup:code": codes})


def parse_size(size: int | str) -> int:
    """Bytes of ``"512MB"``, ``"4.5 GB"`` or a number; units are powers of 1024."""
    return limits.parse_size(_UNIT.sub("iB", size) if isinstance(size, str) else size, "not a size")


def _sizes(table: pa.Table) -> Integers:
    for name in SIZES:
        if name in table.column_names:
            with translated(FAULTS, "sizes of samples are not whole numbers", where=name):
                known = pc.fill_null(pc.cast(table.column(name), pa.int64()), 0)
            sizes: Integers = known.to_numpy()
            return sizes
    if "path" in table.column_names:
        return np.fromiter(map(_size_of, table.column("path").to_pylist()), np.int64)
    raise InvalidInputError(
        "SpatialGrouping by size needs the sizes of the samples",
        expected=f"a column {' or '.join(SIZES)} or 'path'",
        hint="add such a column, or use target_count",
    )


def _size_of(path: str | bytes | None) -> int:
    if path is None:
        return 0
    if isinstance(path, bytes):
        return len(path)
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a million paths
    except OSError as error:
        raise ObjectNotFoundError(
            "the file of a sample is missing", where=shown(path, 200)
        ) from error
