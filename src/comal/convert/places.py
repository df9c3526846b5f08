"""Places of rasters in the forms of TACO 2.0: shapes with bands, centroids as WKB."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from comal.geo import wkb

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BLOCK = 65_536


def tensor_shapes(shapes: Any, bands: Ints) -> tuple[Any, int]:
    """Shapes with the number of bands before rows and columns.

    Parameters
    ----------
    shapes
        Arrow lists of integers, n rows.
    bands
        Bands of each row; 0 where they are not known.

    Returns
    -------
    The lists, of int64, and how many of them are rows and columns only. A list that has not two
    numbers is kept as it is.
    """
    lengths = np.asarray(pc.fill_null(pc.list_value_length(shapes), 0), np.int64)
    values = np.asarray(pc.list_flatten(shapes).cast(pa.int64()).fill_null(0), np.int64)
    pairs = lengths == 2
    more = pairs & (bands > 0)
    sizes = lengths + more
    ends = np.cumsum(sizes)
    starts = ends - sizes
    made = np.empty(int(sizes.sum()), np.int64)
    heads = starts[more]
    inside = np.ones(len(made), bool)
    inside[heads] = False
    made[heads] = bands[more]
    made[inside] = values
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    missing = shapes.is_null()
    found = pa.ListArray.from_arrays(
        pa.array(offsets),
        pa.array(made),
        type=pa.list_(pa.field("element", pa.int64())),
        mask=missing if missing.true_count else None,
    )
    return found, int(np.count_nonzero(pairs & (bands <= 0)))


def centroid_points(texts: Any) -> tuple[Any, int]:
    """Points as WKB, from WKT, or from WKB as it is.

    Returns
    -------
    The points, and how many rows had a value that is no point on the earth; they are null.
    """
    known = np.asarray(texts.is_valid(), bool)
    x, y = _binary(texts) if pa.types.is_binary(texts.type) else _texts(texts, known)
    with np.errstate(invalid="ignore"):
        good = (np.abs(x) <= 180) & (np.abs(y) <= 90)
    points = wkb.point(np.where(good, x, np.nan), np.where(good, y, np.nan))
    return points, int(np.count_nonzero(known & ~good))


def _texts(texts: Any, known: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    x, y = (numbers.copy() for numbers in wkb.text_points_xy(texts))
    odd = np.flatnonzero(known & np.isnan(x))
    for start in range(0, len(odd), _BLOCK):
        rows = odd[start : start + _BLOCK]
        shapes = _shapes(shapely.from_wkt, texts.take(pa.array(rows)))
        _points(shapes, rows, x, y)
    return x, y


def _binary(values: Any) -> tuple[Floats, Floats]:
    x, y = np.full(len(values), np.nan), np.full(len(values), np.nan)
    for start in range(0, len(values), _BLOCK):
        shapes = _shapes(shapely.from_wkb, values.slice(start, _BLOCK))
        _points(shapes, np.arange(start, start + len(shapes)), x, y)
    return x, y


def _shapes(read: Callable[..., Any], values: Any) -> Any:
    """Geometries; None for those that GEOS would crash over, and for broken ones and curves."""
    found: list[Any] = values.to_pylist()
    for row in wkb.crashing(found):
        found[row] = None
    try:
        return read(np.array(found, object), on_invalid="ignore")
    except NotImplementedError:  # of curves, whatever is to be done about invalid ones
        return np.array([_shape(read, one) for one in found], object)


def _shape(read: Callable[..., Any], value: Any) -> Any:
    with suppress(NotImplementedError):
        return read(value, on_invalid="ignore")
    return None


def _points(shapes: Any, rows: Ints, x: Floats, y: Floats) -> None:
    points = (shapely.get_type_id(shapes) == 0) & ~shapely.is_empty(shapes)
    x[rows[points]] = shapely.get_x(shapes[points])
    y[rows[points]] = shapely.get_y(shapes[points])
