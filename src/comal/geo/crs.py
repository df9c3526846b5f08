"""CRS names from untrusted content, and transformation of coordinates to EPSG:4326.

All texts that name a CRS go through here. None that names a file, a URL or a program reaches PROJ
or GDAL, and no PROJ object is shared between threads: each thread makes its own.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.lazy import pc

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

LONLAT = "EPSG:4326"
_EPSG = "EPSG"
_LONLAT_NAMES = frozenset(
    {LONLAT, "epsg:4326", "OGC:CRS84", "WGS84", "urn:ogc:def:crs:OGC:1.3:CRS84"}
)

_ARGUMENT = re.compile(r"\b(\w+)\s*=\s*[\"@]*([^\s\"]*)")
"""An argument of PROJ and its value, in PROJ notation or inside WKT 1."""
_FRACTION = re.compile(r"[\d.eE]+/[\d.eE]+")
_FILE = re.compile(r"PARAMETERFILE\s*\[([^\]]*)|\"value\"\s*:\s*\"([^\"]*)", re.IGNORECASE)
"""The value of a parameter of WKT 2 or PROJJSON that names a file."""
_INIT = re.compile(r"(?:epsg|esri|ignf):\w+", re.IGNORECASE)
"""Values allowed for ``+init=``: files that PROJ no longer reads but finds in its database."""
_OGC = re.compile(r"https?://(?:www\.)?opengis\.net/def/crs/(\w+)/[\w.]+/(\w+)/?", re.IGNORECASE)
"""OGC names of CRS, which PROJ resolves without a network."""
_GRID_EXTENSION = re.compile(r"\"PROJ4_GRIDS\"\s*,\s*\"([^\"]*)", re.IGNORECASE)
_ADDRESS = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*://|[@/\\~]|\.{1,2}[/\\]|[A-Za-z]:[/\\])")
"""The beginning of a text that is a URL or a path and not a CRS."""
_CODE = re.compile(r"\s*([A-Za-z_][\w-]*)\s*:{1,2}\s*(\w+)\s*")
"""``EPSG:32718``: an authority and its code of the CRS."""

_MOST_KNOWN = 256
"""CRS kept per thread; a file may name as many as it has rows."""

_local = threading.local()


@dataclass(frozen=True, slots=True)
class Projection:
    """Transforms coordinates of one CRS to longitude and latitude; any thread may use it."""

    name: str
    """The text of the CRS; empty for EPSG:4326, in either axis order."""
    is_geographic: bool
    """Whether coordinates are degrees of longitude and latitude, in any datum."""
    unit: float
    """Length of one unit of the CRS in metres; for degrees, at the equator."""

    @property
    def transformer(self) -> Any:
        """The transformer of this thread; None if coordinates are EPSG:4326 already."""
        return _known(self.name, "crs")[1] if self.name else None

    def to_lonlat(self, x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Longitudes and latitudes in degrees; NaN outside the domain of the CRS."""
        return self._transformed(x, y, "FORWARD")

    def from_lonlat(self, lon: npt.ArrayLike, lat: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Coordinates in the CRS; NaN outside its domain."""
        return self._transformed(lon, lat, "INVERSE")

    def _transformed(
        self, x: npt.ArrayLike, y: npt.ArrayLike, direction: str
    ) -> tuple[Floats, Floats]:
        first, second = np.asarray(x, np.float64), np.asarray(y, np.float64)
        transformer = self.transformer
        if transformer is None:
            return first, second
        if first.size == second.size == 1:
            # pyproj converts arrays of one number to numbers, of which numpy before 2.4 warns.
            pair = transformer.transform(first.item(), second.item(), direction=direction)
            found = tuple(np.full(first.shape, value) for value in pair)
        else:
            found = transformer.transform(first, second, direction=direction)
        lost = ~(np.isfinite(found[0]) & np.isfinite(found[1]))
        return np.where(lost, np.nan, found[0]), np.where(lost, np.nan, found[1])


_DEGREE = 111_319.49079327358
"""Metres in a degree of the equator of WGS 84."""

_PLAIN = Projection("", is_geographic=True, unit=_DEGREE)


def projection(crs: str, where: str = "crs") -> Projection:
    """The projection of a CRS; PROJ objects are cached for each thread.

    Parameters
    ----------
    crs
        A code of an authority that PROJ knows (``EPSG:32718``, ``ESRI:54009``), WKT, PROJJSON or
        a PROJ string.
    where
        The field or row that names it, for error messages.

    Raises
    ------
    InvalidInputError
        PROJ knows no such CRS, or its text names a file.
    """
    return _PLAIN if crs in _LONLAT_NAMES else _known(crs, where)[0]


def wkt_of(crs: Any, where: str = "crs") -> str:
    """The WKT of a CRS.

    `crs` is a text as for `projection`, an EPSG number, or an object with ``to_wkt``.

    Raises
    ------
    InvalidInputError
        As `projection`.
    """
    import pyproj  # noqa: PLC0415 - as below

    if isinstance(crs, int) and not isinstance(crs, bool):
        crs = f"{_EPSG}:{crs}"
    elif hasattr(crs, "to_wkt"):
        crs = crs.to_wkt()
    if not isinstance(crs, str):
        raise _unknown(repr(crs), where)
    return str(_parsed(pyproj, crs, where).to_wkt())


def refuse_files(crs: str, where: str) -> None:
    """Refuse a text that would make PROJ or GDAL open a path or a URL.

    Untrusted texts must not name local files.
    """
    text = crs
    if crs.lstrip().startswith("{"):
        with suppress(ValueError, RecursionError):  # which PROJ refuses
            text = json.dumps(json.loads(crs), ensure_ascii=False)  # without escapes of slashes
    named = [text] if _ADDRESS.match(text) and not _OGC.fullmatch(text.strip()) else []
    for key, value in _ARGUMENT.findall(text):
        if _FRACTION.fullmatch(value) or (key == "init" and _INIT.fullmatch(value)):
            continue
        if key == "init" or "/" in value or "\\" in value:
            named.append(value)
        elif "grids" in key:
            named += _of_working_directory(value)
    values = [old or new for old, new in _FILE.findall(text)] + _GRID_EXTENSION.findall(text)
    for value in values:
        named += [value] if "/" in value or "\\" in value else _of_working_directory(value)
    if named:
        raise InvalidInputError(
            "the CRS names a file",
            where=where,
            found=shown(named[0], 100),
            expected="a CRS without paths and addresses",
        )


def _of_working_directory(names: str) -> list[str]:
    """Grids that PROJ would finally look for in the working directory of the program."""
    return [name for name in re.split(r"[,\"@\s]+", names) if name and os.path.lexists(name)]


def _known(crs: str, where: str) -> tuple[Projection, Any]:
    """The projection of a CRS, and the transformer of this thread."""
    known: dict[str, tuple[Projection, Any]] = _local.__dict__.setdefault("known", {})
    found = known.get(crs)
    if found is None:
        found = _load(crs, where)
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[crs] = found
    return found


def _load(crs: str, where: str) -> tuple[Projection, Any]:
    import pyproj  # noqa: PLC0415 - 60 ms that EPSG:4326 does not need

    parsed = _parsed(pyproj, crs, where)
    try:
        if parsed.equals(pyproj.CRS.from_epsg(4326), ignore_axis_order=True):
            return _PLAIN, None
        transformer = pyproj.Transformer.from_crs(parsed, LONLAT, always_xy=True)
    except (pyproj.exceptions.ProjError, ValueError, RecursionError) as error:
        raise _unknown(crs, where) from error
    unit = parsed.axis_info[0].unit_conversion_factor if parsed.axis_info else 1.0
    geographic = bool(parsed.is_geographic)
    if geographic:
        unit = unit * _DEGREE / np.deg2rad(1)
    return Projection(crs, geographic, float(unit or 1.0)), transformer


def _parsed(pyproj: Any, crs: str, where: str) -> Any:
    refuse_files(crs, where)
    try:
        return pyproj.CRS.from_user_input(crs)
    except (pyproj.exceptions.ProjError, ValueError, RecursionError) as error:
        raise _unknown(crs, where) from error


def _unknown(crs: str, where: str) -> InvalidInputError:
    hint = None
    code = _CODE.fullmatch(crs)
    if code is not None:
        from pyproj.database import get_authorities  # noqa: PLC0415 - as above

        authorities = get_authorities()
        if code[1].upper() not in authorities:
            hint = f"PROJ knows the authorities {', '.join(authorities)}; pass other CRSs as WKT"
    return InvalidInputError(
        "invalid CRS",
        where=where,
        found=shown(crs, 100),
        expected="an authority code such as EPSG:32718, WKT or PROJJSON",
        hint=hint,
    )


_PROJECTING: list[ThreadPoolExecutor] = []


def on_own_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function on a Python thread.

    PROJ objects belong to a thread and are kept with it. To Python, the threads of a query engine
    are new ones at each call, and PROJ crashes in them.
    """
    if not _PROJECTING:
        _PROJECTING.append(ThreadPoolExecutor(1, "comal-projection"))
    return _PROJECTING[0].submit(function, *args).result()


os.register_at_fork(after_in_child=_PROJECTING.clear)


BLOCK = 65_536
"""Rows to transform at once."""


def groups(crs: Any, count: int) -> Iterator[tuple[Projection, Rows]]:
    """Rows of each distinct CRS with its projection, a block at a time.

    `crs` is one text for all `count` rows or an Arrow array of texts; null rows are left out.
    """
    for name, rows in _by_name(crs, count):
        source = projection(name)
        for start in range(0, len(rows), BLOCK):
            yield source, rows[start : start + BLOCK]


def _by_name(crs: Any, count: int) -> Iterator[tuple[str, Rows]]:
    if isinstance(crs, str):
        yield crs, np.arange(count)
        return
    if isinstance(crs, pa.ChunkedArray):
        crs = crs.combine_chunks()
    if not isinstance(crs, pa.Array):
        crs = pa.array(crs, pa.string())
    if len(crs) != count:
        raise InvalidInputError("the columns differ in length", found=len(crs), expected=count)
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
