"""WKB in Arrow binary columns, without a Python object per row if rows are plain points.

A point of ISO WKB in little-endian is 21 bytes: ``01``, ``01000000``, x and y as float64. Columns
of such points are read and written with numpy on the Arrow buffers. Anything else (big-endian, EWKB
with an SRID, Z and M, other geometries) goes through shapely, a block of rows at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, InvalidMetadataError, translated
from comal.lazy import pc, shapely

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_POINT = np.dtype([("order", "u1"), ("kind", "<u4"), ("x", "<f8"), ("y", "<f8")])
_POINT_SIZE = 21
_BLOCK = 65_536

_COLLECTIONS = 1_000
"""More collections in one geometry could be nested, and GEOS crashes by stack overflow."""
_LEAST = 9
"""Bytes of a collection without its members."""
_COLLECTION = re.compile(
    rb"\x01(?:\x07\x00\x00.|\xef\x03\x00\x00|\xd7\x07\x00\x00|\xbf\x0b\x00\x00)"
    rb"|\x00(?:.\x00\x00\x07|\x00\x00\x03\xef|\x00\x00\x07\xd7|\x00\x00\x0b\xbf)",
    re.DOTALL,
)
"""The head of a collection: in either byte order, with Z, M and SRID as in ISO and EWKB."""


def point(x: npt.ArrayLike, y: npt.ArrayLike) -> Any:
    """Points as WKB, little-endian, in a ``pa.BinaryArray``; null where x or y is NaN."""
    xs, ys = np.asarray(x, np.float64).ravel(), np.asarray(y, np.float64).ravel()
    records = np.empty(len(xs), _POINT)
    records["order"], records["kind"] = 1, 1
    records["x"], records["y"] = xs, ys
    missing = np.isnan(xs) | np.isnan(ys)
    if records.nbytes >= 2**31:
        raise InvalidInputError(
            "too many points for one column",
            found=f"{len(xs)} points",
            expected=f"at most {2**31 // _POINT_SIZE}",
        )
    offsets = np.arange(len(xs) + 1, dtype=np.int32) * np.int32(_POINT_SIZE)
    bits = np.packbits(~missing, bitorder="little") if missing.any() else None
    buffers = [None if part is None else pa.py_buffer(part) for part in (bits, offsets, records)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(xs), buffers)


def points_xy(array: Any, where: str = "geometry") -> tuple[Floats, Floats]:
    """Coordinates x and y of n points in an Arrow binary column, in any WKB.

    NaN for null, for an empty point and for other geometries. A row that is not WKB raises
    `InvalidMetadataError`, which names `where` and the row.
    """
    x, y = _told(array, where, _points, 1)
    return x, y


def bounds(array: Any, where: str = "geometry") -> tuple[Floats, Floats, Floats, Floats]:
    """Smallest and largest coordinates of n geometries, in the plane of their CRS.

    The column holds WKB or EWKB. Returns x min, y min, x max, y max; NaN for null and for empty
    geometries. A row that is not WKB raises `InvalidMetadataError`, as for `points_xy`.
    """
    west, south, east, north = _told(array, where, lambda shapes: shapely.bounds(shapes).T, 2)
    return west, south, east, north


def _told(array: Any, where: str, tell: Callable[[Any], Floats], times: int) -> Floats:
    """Values of each row: for plain points x and y, repeated `times`; for others from `tell`."""
    array = _binary(array)
    known = present(array)
    plain, xs, ys = _plain_points(array, known)
    if len(plain) == len(array):
        return np.stack([xs, ys] * times)
    result = np.full((2 * times, len(array)), np.nan)
    result[:, plain] = np.stack([xs, ys] * times)
    known[plain] = False
    for rows, geometries in _decoded(array, np.flatnonzero(known), where):
        result[:, rows] = tell(geometries)
    return result


def to_shapely(array: Any, where: str = "geometry") -> npt.NDArray[np.object_]:
    """Geometries of an Arrow binary column as shapely objects; None for null."""
    array = _binary(array)
    result = np.full(len(array), None, object)
    for rows, geometries in _decoded(array, np.flatnonzero(present(array)), where):
        result[rows] = geometries
    return result


def _points(geometries: Any) -> Floats:
    """X and y of points (2, n); NaN for other geometries."""
    found = np.full((2, len(geometries)), np.nan)
    points = (shapely.get_type_id(geometries) == 0) & ~shapely.is_empty(geometries)
    found[:, points] = shapely.get_x(geometries[points]), shapely.get_y(geometries[points])
    return found


def crashing(values: Iterable[bytes | str | None]) -> list[int]:
    """Rows that must not reach a parser of GEOS, as it recurses into collections."""
    return [
        row
        for row, one in enumerate(values)
        if one is not None and len(one) > _LEAST * _COLLECTIONS and _count(one) > _COLLECTIONS
    ]


def _count(value: bytes | str) -> int:
    if isinstance(value, str):
        return value.upper().count("GEOMETRYCOLLECTION")
    return len(_COLLECTION.findall(value))


def _decoded(array: Any, rows: Rows, where: str) -> Iterator[tuple[Rows, Any]]:
    """Blocks of rows with their geometries; objects live for one block only."""
    if not len(rows):
        return
    longest = pc.max(pc.binary_length(array)).as_py()
    if longest > _LEAST * _COLLECTIONS:
        for row in crashing(array.to_pylist()):
            raise InvalidMetadataError(
                "a geometry nests too many collections",
                where=f"{where}, row {row}",
                expected=f"at most {_COLLECTIONS}",
            )
    for start in range(0, len(rows), _BLOCK):
        some = rows[start : start + _BLOCK]
        encoded = np.array(array.take(pa.array(some)).to_pylist(), object)
        try:
            with np.errstate(invalid="ignore"):  # NaN coordinates need no warning
                geometries = shapely.from_wkb(encoded)
            look_for_curves(geometries)
        except (shapely.errors.ShapelyError, NotImplementedError):
            for row, one in zip(some.tolist(), encoded, strict=True):
                _refuse_broken(one, f"{where}, row {row}")
            raise
        yield some, geometries


def look_for_curves(geometries: npt.NDArray[np.object_]) -> None:
    """Raise `NotImplementedError` for curves in collections; shapely raises it for any others."""
    parts = geometries
    while len(parts):
        parts = parts[shapely.get_type_id(parts) == shapely.GeometryType.GEOMETRYCOLLECTION]
        parts = shapely.get_parts(parts)


def _refuse_broken(encoded: bytes, where: str) -> None:
    try:
        look_for_curves(np.array([shapely.from_wkb(encoded)], object))
    except shapely.errors.ShapelyError as error:
        raise InvalidMetadataError(
            "not a WKB geometry", where=where, found=str(error)[:80]
        ) from error
    except NotImplementedError as error:
        raise InvalidMetadataError(
            "a geometry has curves",
            where=where,
            expected="points, lines and polygons",
            hint="convert the curves to lines: ogr2ogr -nlt CONVERT_TO_LINEAR",
        ) from error


def _binary(array: Any) -> Any:
    """One contiguous large-binary array with 64-bit offsets."""
    with translated({pa.ArrowException: InvalidMetadataError}, "not a column of WKB"):
        if isinstance(array, pa.ChunkedArray):
            array = array.cast(pa.large_binary()).combine_chunks()
            if isinstance(array, pa.ChunkedArray):
                array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([])
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        return array.cast(pa.large_binary())


def present(array: Any) -> npt.NDArray[np.bool_]:
    """Which rows of an Arrow array are not null."""
    result: npt.NDArray[np.bool_] = pc.is_valid(array).to_numpy(zero_copy_only=False).copy()
    return result


def _plain_points(array: Any, known: npt.NDArray[np.bool_]) -> tuple[Rows, Floats, Floats]:
    """Rows that are little-endian points, with their coordinates."""
    _, offset_buffer, data_buffer = array.buffers()
    none = np.empty(0)
    if len(array) == 0 or data_buffer is None or data_buffer.size < _POINT_SIZE:
        return np.empty(0, np.int64), none, none
    offsets = np.frombuffer(offset_buffer, np.int64, len(array) + 1, array.offset * 8)
    data = np.frombuffer(data_buffer, np.uint8)
    rows = np.flatnonzero(known & (np.diff(offsets) == _POINT_SIZE))
    records = np.empty(len(rows), _POINT)
    first = int(offsets[rows[0]]) if len(rows) else 0
    if len(rows) and (np.diff(offsets[rows]) == _POINT_SIZE).all():
        records = np.frombuffer(data_buffer, _POINT, len(rows), first)
    else:
        raw = records.view(np.uint8).reshape(-1, _POINT_SIZE)
        within = np.arange(_POINT_SIZE)
        for start in range(0, len(rows), _BLOCK):
            some = slice(start, start + _BLOCK)
            raw[some] = data[offsets[rows[some], None] + within]
    plain = (records["order"] == 1) & (records["kind"] == 1)
    if not plain.all():
        rows, records = rows[plain], records[plain]
    return rows, records["x"].copy(), records["y"].copy()


# -- text ------------------------------------------------------------------------------------------


_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_POINT_TEXT = rf"^\s*(?i:POINT)\s*\(\s*(?P<x>{_NUMBER})\s+(?P<y>{_NUMBER})\s*\)\s*$"


def text_points_xy(texts: Any) -> tuple[Floats, Floats]:
    """Coordinates x and y of points in an Arrow column of texts; NaN for all other texts."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    parts = pc.extract_regex(texts, _POINT_TEXT)
    x, y = (
        np.asarray(
            pc.cast(pc.struct_field(parts, name), pa.float64()).to_numpy(zero_copy_only=False),
            np.float64,
        )
        for name in ("x", "y")
    )
    return x, y


# -- lenient reading -------------------------------------------------------------------------------


def lenient_points_xy(column: Any) -> tuple[Floats, Floats]:
    """Coordinates x and y of points as WKB or as WKT, in a column that may hold anything.

    NaN for null and for everything that is not a point.
    """
    known = present(column)
    if pa.types.is_binary(column.type):
        result = np.full((2, len(column)), np.nan)
        plain, xs, ys = _plain_points(_binary(column), known)
        result[:, plain] = xs, ys
        known[plain], read = False, shapely.from_wkb
    else:
        result = np.stack(text_points_xy(column))
        known, read = known & np.isnan(result[0]), shapely.from_wkt
    rest = np.flatnonzero(known)
    for start in range(0, len(rest), _BLOCK):
        rows = rest[start : start + _BLOCK]
        result[:, rows] = _points(_readable(read, column.take(pa.array(rows)).to_pylist()))
    return result[0], result[1]


def _readable(read: Callable[..., Any], values: list[Any]) -> Any:
    """Geometries; None for those that would crash GEOS, for broken ones and for curves."""
    for row in crashing(values):
        values[row] = None
    try:
        return read(np.array(values, object), on_invalid="ignore")
    except NotImplementedError:  # raised for curves, regardless of `on_invalid`
        return np.array([_one_readable(read, value) for value in values], object)


def _one_readable(read: Callable[..., Any], value: Any) -> Any:
    try:
        return read(value, on_invalid="ignore")
    except NotImplementedError:
        return None
