"""Coordinates of any CRS to longitude and latitude of EPSG:4326, x before y."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import InvalidInputError, shown

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

LONLAT = "EPSG:4326"
_LONLAT_NAMES = frozenset(
    {LONLAT, "epsg:4326", "OGC:CRS84", "WGS84", "urn:ogc:def:crs:OGC:1.3:CRS84"}
)

_ARGUMENT = re.compile(r"\b\w+\s*=\s*[\"@]*([^\s\"]*)")
"""The value of an argument of PROJ, in its own notation or inside of WKT 1."""
_FRACTION = re.compile(r"[\d.eE]+/[\d.eE]+")
_FILE = re.compile(r"PARAMETERFILE\s*\[([^\]]*)|\"value\"\s*:\s*\"([^\"]*)", re.IGNORECASE)
"""The value of a parameter of WKT 2 or PROJJSON that is the name of a file."""

_MOST_KNOWN = 256
"""A file may name as many as it has rows."""

_local = threading.local()


@dataclass(frozen=True, slots=True)
class Projection:
    """How coordinates of one CRS become longitude and latitude."""

    name: str
    is_geographic: bool
    """Coordinates are degrees of longitude and latitude, of whatever datum."""
    unit: float
    """Length of one unit of the CRS in metres; for degrees, at the equator."""
    transformer: Any = None
    """None when coordinates are EPSG:4326 already."""

    def to_lonlat(self, x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Longitudes and latitudes in degrees; NaN where the CRS has no such place."""
        xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if self.transformer is None:
            return xs, ys
        return self._transformed(xs, ys, "FORWARD")

    def from_lonlat(self, lon: npt.ArrayLike, lat: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Coordinates in the CRS; NaN where it has none."""
        lons, lats = np.asarray(lon, np.float64), np.asarray(lat, np.float64)
        if self.transformer is None:
            return lons, lats
        return self._transformed(lons, lats, "INVERSE")

    def _transformed(self, first: Floats, second: Floats, direction: str) -> tuple[Floats, Floats]:
        if first.size == second.size == 1:
            # Arrays of one number are taken for numbers by pyproj, of which numpy before 2.4 warns.
            pair = self.transformer.transform(first.item(), second.item(), direction=direction)
            found = tuple(np.full(first.shape, value) for value in pair)
        else:
            found = self.transformer.transform(first, second, direction=direction)
        lost = ~(np.isfinite(found[0]) & np.isfinite(found[1]))
        return np.where(lost, np.nan, found[0]), np.where(lost, np.nan, found[1])


_DEGREE = 111_319.49079327358
"""Metres in a degree of the equator of WGS 84."""

_PLAIN = Projection(LONLAT, is_geographic=True, unit=_DEGREE)


def projection(crs: str, where: str = "crs") -> Projection:
    """What is known of a CRS; kept per thread, for the objects of PROJ belong to one.

    Parameters
    ----------
    crs
        ``EPSG:32718``, WKT, PROJJSON or a PROJ string.
    where
        The field or row that names it, for messages.

    Raises
    ------
    InvalidInputError
        PROJ knows no such CRS, or its text names a file.
    """
    if crs in _LONLAT_NAMES:
        return _PLAIN
    known: dict[str, Projection] = _local.__dict__.setdefault("known", {})
    found = known.get(crs)
    if found is None:
        found = _load(crs, where)
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[crs] = found
    return found


def _load(crs: str, where: str) -> Projection:
    import pyproj  # noqa: PLC0415 - 60 ms that EPSG:4326 does not need

    _refuse_files(crs, where)
    try:
        parsed = pyproj.CRS.from_user_input(crs)
        if parsed.equals(pyproj.CRS.from_epsg(4326), ignore_axis_order=True):
            return _PLAIN
        transformer = pyproj.Transformer.from_crs(parsed, LONLAT, always_xy=True)
    except (pyproj.exceptions.ProjError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            "invalid CRS",
            where=where,
            found=shown(crs, 100),
            expected="an authority code such as EPSG:32718, WKT or PROJJSON",
        ) from error
    unit = parsed.axis_info[0].unit_conversion_factor if parsed.axis_info else 1.0
    geographic = bool(parsed.is_geographic)
    if geographic:
        unit = unit * _DEGREE / np.deg2rad(1)
    return Projection(crs, geographic, float(unit or 1.0), transformer)


def _refuse_files(crs: str, where: str) -> None:
    """Refuse a text that would have PROJ open a path: texts of strangers name no files of ours."""
    text = crs
    if crs.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):  # which PROJ refuses
            text = json.dumps(json.loads(crs), ensure_ascii=False)  # without escapes of slashes
    named = [value for value in _ARGUMENT.findall(text) if not _FRACTION.fullmatch(value)]
    named += [old or new for old, new in _FILE.findall(text)]
    found = next((value for value in named if "/" in value or "\\" in value), None)
    if found is not None:
        raise InvalidInputError(
            "CRS names a file", where=where, found=shown(found, 100), expected="no paths in it"
        )


def groups(crs: Any, count: int) -> Iterator[tuple[str, Rows]]:
    """Each distinct CRS with its rows.

    `crs` is one text for all `count` rows or an Arrow array of texts; null rows are left out.
    """
    if isinstance(crs, str):
        yield crs, np.arange(count)
        return
    if isinstance(crs, pa.ChunkedArray):
        crs = crs.combine_chunks()
    if not isinstance(crs, pa.Array):
        crs = pa.array(crs, pa.string())
    if len(crs) != count:
        raise InvalidInputError("columns differ in length", found=len(crs), expected=count)
    if count == 1:
        if crs[0].is_valid:
            yield crs[0].as_py(), np.arange(1)
        return
    coded = crs.dictionary_encode()
    codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(coded.dictionary) + 1))
    for code, name in enumerate(coded.dictionary.to_pylist()):
        yield name, order[starts[code] : starts[code + 1]].astype(np.int64)
