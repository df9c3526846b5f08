"""Fills in the format of items by their first bytes, and their place by their header.

Only missing values are filled in; values from the user are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.geo import footprints
from comal.lazy import pc
from comal.parallel import Workers
from comal.public import warn
from comal.samples.copying import Copied
from comal.samples.payloads import Heads, Ints
from comal.table.columns import (
    flags_of,
    numbers_column,
    one_array,
    rows_equal,
    texts_column,
    valid_of,
)
from comal.tortilla import spec
from comal.tortilla.columns import with_column, with_some
from comal.tortilla.samples import Prepared, mapped
from comal.tortilla.spec import TortillaWarning
from comal.tortilla.wire import OLDEST_HEADER_SIZE

RASTERS = ("GTiff", "COG", "PNG", "JPEG", "WEBP", "JP2OpenJPEG")
"""Formats whose headers are read for the place of an item."""
_PLACE = (spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE, spec.CENTROID)
_CLEAR = ("GTiff", "PNG", "JPEG", "JP2OpenJPEG", "HDF5", "GPKG", "FlatGeobuf", "Parquet", "PMTiles")
"""Formats with unique first bytes."""
_WEBP = b"RIFF"
_DECIMALS = 6
_STEP = 16_384
"""Items whose first bytes are held at once."""
_FIRST = 64
"""Items whose places are looked for first."""
_FEW = 1_024
"""Up to this many items formats are handled in Python: nested files hold few."""


def with_formats(level: Prepared) -> Prepared:
    """``tortilla:file_format`` for every item; unknown formats are ``BYTES``."""
    nested = np.zeros(len(level), bool)
    nested[level.nested()] = True
    if spec.FILE_FORMAT in level.table.column_names:
        known = one_array(level.table[spec.FILE_FORMAT])
    else:
        known = pa.nulls(len(level), pa.string())
    missing = ~valid_of(known)
    wrong = nested & ~missing
    if wrong.any():
        wrong &= ~rows_equal(known, spec.TORTILLA)
    for row in np.flatnonzero(wrong)[:1].tolist():
        raise InvalidInputError(
            f"an item that holds items cannot have the format {shown(known[row].as_py())}",
            where=f"sample {shown(level.table[spec.ID][row].as_py())}",
            expected=spec.TORTILLA,
        )
    if not missing.any():
        return level
    found = np.full(len(level), spec.BYTES, object)
    found[nested] = spec.TORTILLA
    unknown = np.flatnonzero(missing & ~nested)
    for start in range(0, len(unknown), _STEP):
        rows = unknown[start : start + _STEP]
        found[rows] = formats_of(level.payloads.heads(rows))
        files = rows[found[rows] == spec.TORTILLA]
        short = level.payloads.take(files).sizes() < OLDEST_HEADER_SIZE
        found[files[short]] = spec.BYTES
    names = pc.if_else(numbers_column(missing), texts_column(found.tolist()), known)
    return replace(level, table=with_column(level.table, spec.FILE_FORMAT, names))


def formats_of(heads: Heads) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Formats by first bytes, shape (n,)."""
    found = np.full(len(heads), spec.BYTES, object)
    for name in (*_CLEAR, spec.TORTILLA):
        found[(found == spec.BYTES) & begins(heads, name)] = name
    is_webp = _starts(heads, _WEBP) & _starts(heads[:, 8:], b"WEBP")
    found[is_webp] = "WEBP"
    # Two letters are not enough: in a nested file, the footer offset after them is not text.
    text = (heads[:, 2:10] >= 0x20).all(axis=1)
    found[(found == spec.TORTILLA) & text] = spec.BYTES
    return found


def begins(heads: Heads, name: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether items begin with the signature of their format."""
    signatures = spec.SIGNATURES[name]
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.logical_or.reduce(
        [_starts(heads, signature) for signature in signatures]
    )
    return found


def _starts(heads: Heads, signature: bytes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    wanted = np.frombuffer(signature, np.uint8)[: heads.shape[1]]
    found: np.ndarray[Any, np.dtype[np.bool_]] = (heads[:, : len(wanted)] == wanted).all(axis=1)
    return found


class PayloadWarnings:
    """Counts items without the signature of their format, and items that are all zeros."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}
        """Number and first item of each kind."""

    def look(self, copied: Copied, table: Any, start: int) -> None:
        """Check the copied rows of `table` from `start` on."""
        if copied.empty.any():
            self._note("hold nothing but zeros", copied.empty, table, start)
        formats = table[spec.FILE_FORMAT].slice(start, len(copied.sizes))
        names: Iterable[str] = spec.SIGNATURES
        if len(formats) <= _FEW:
            names = spec.SIGNATURES.keys() & set(formats.to_pylist())
        for name in names:
            wrong = rows_equal(formats, name) & (copied.sizes > 0)
            if wrong.any():
                wrong &= ~begins(copied.heads, name)
            if wrong.any():
                self._note(f"do not begin like {name}", wrong, table, start)

    def _note(self, what: str, wrong: Any, table: Any, start: int) -> None:
        count, first = self._found.get(what, (0, ""))
        if not first:
            first = shown(table[spec.ID][start + int(np.argmax(wrong))].as_py())
        self._found[what] = count + int(wrong.sum()), first

    def warn(self, where: str) -> None:
        """Warn once for each kind."""
        for what, (count, first) in self._found.items():
            warn(f"{where}: {count} of the items, such as {first}, {what}", TortillaWarning)


# -- place -----------------------------------------------------------------------------------------


def wants_place(prepared: Prepared) -> bool:
    """Whether the user gave any STAC column, so that the others are wanted."""
    return any(
        name in spec.STAC for level in prepared.levels() for name in level.table.column_names
    )


def placed_columns(prepared: Prepared) -> list[list[str]]:
    """Columns of place and time that each level has once `with_place` has filled it in.

    Files are read until one of a level has a place; where none has, all of that level are.
    """
    levels = list(prepared.levels())
    if any(name in _PLACE for level in levels for name in level.table.column_names):
        levels = list(mapped(mapped(prepared, with_formats), with_place).levels())
        return [_stac_in(level) for level in levels]
    found: list[list[str]] = []
    for level in reversed(levels):
        names, below = {*_stac_in(level)}, found[-1] if found else []
        if spec.CRS in below:  # the first item with a place gives it to the one that holds it
            names.update(below)
        rows = np.setdiff1d(np.arange(len(level)), level.nested())
        start, step = 0, _FIRST
        while start < len(rows) and not names.issuperset(_PLACE):
            some = rows[start : start + step]
            table = level.table.take(numbers_column(some))
            names.update(
                _stac_in(with_place(with_formats(Prepared(table, level.payloads.take(some)))))
            )
            start, step = start + step, _STEP
        found.append([name for name in spec.STAC if name in names])
    return found[::-1]


def _stac_in(level: Prepared) -> list[str]:
    return [name for name in spec.STAC if name in level.table.column_names]


def with_place(level: Prepared, executor: Workers = None) -> Prepared:
    """Fill the STAC columns of place from rasters, and the centroid from the full affine.

    A nested item gets the place and the times of its first item that has a place, as in
    published files.
    """
    table = _with_first_child(level)
    names = [spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE]
    lacking = np.zeros(len(level), bool)
    for name in names:
        lacking |= _null(table, name)
    is_raster = flags_of(pc.is_in(table[spec.FILE_FORMAT], value_set=texts_column(RASTERS)))
    rows = np.flatnonzero(lacking & is_raster)
    if len(rows):
        table = _with_headers(level, table, rows, executor)
    return replace(level, table=_with_centroids(table))


def _with_headers(level: Prepared, table: Any, rows: Ints, executor: Workers) -> Any:
    from comal.raster import headers  # noqa: PLC0415 - loads GDAL

    sources = level.payloads.rasters(rows)
    readable = np.array([source is not None for source in sources], bool)
    rows = rows[readable]
    found = headers([source for source in sources if source is not None], executor)
    shapes = found["shape"].combine_chunks()
    sides = footprints.size_of(shapes).astype(np.int64)
    placed = valid_of(found["crs"]) & valid_of(found["geotransform"])
    values = {
        spec.CRS: found["crs"],
        spec.GEOTRANSFORM: found["geotransform"],
        spec.RASTER_SHAPE: _lists(sides, spec.STAC[spec.RASTER_SHAPE]),
    }
    for name, column in values.items():
        # A shape without CRS and geotransform does not locate the item.
        table = _filled(table, name, rows[placed], column.filter(pa.array(placed)))
    return table


def _with_first_child(level: Prepared) -> Any:
    table = level.table
    nested = level.nested()
    below = level.below
    if below is None or not len(nested):
        return table
    placed = np.flatnonzero(~_null(below.items.table, spec.CRS))
    first = np.searchsorted(placed, below.starts[nested])
    # A sentinel after the last item with a place, which belongs to no item above.
    child = np.append(placed, len(below.items))[first]
    found = (child < below.stops[nested]) & _null(table, spec.CRS)[nested]
    rows, child = nested[found], child[found]
    for name in spec.STAC:
        if name in below.items.table.column_names:
            values = below.items.table[name].take(pa.array(child))
            table = _filled(table, name, rows, values)
    return table


def _with_centroids(table: Any) -> Any:
    if not {spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE} <= set(table.column_names):
        return table
    rows = np.flatnonzero(_null(table, spec.CENTROID) & ~_null(table, spec.CRS))
    chosen = table.take(pa.array(rows))
    lon, lat = footprints.centroids(
        chosen[spec.CRS].combine_chunks(), chosen[spec.GEOTRANSFORM], chosen[spec.RASTER_SHAPE]
    )
    known = np.isfinite(lon) & np.isfinite(lat)
    texts = [
        f"POINT ({x:.{_DECIMALS}f} {y:.{_DECIMALS}f})"
        for x, y in zip(lon[known].tolist(), lat[known].tolist(), strict=True)
    ]
    return _filled(table, spec.CENTROID, rows[known], pa.array(texts, pa.string()))


def _null(table: Any, name: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if name not in table.column_names:
        return np.ones(table.num_rows, bool)
    return np.asarray(table[name].is_null().to_numpy(), bool)


def _filled(table: Any, name: str, rows: Ints, values: Any) -> Any:
    """The column with `values` in `rows` where it was null."""
    free = _null(table, name)[rows]
    if not free.any():
        return table
    return with_some(table, name, rows[free], values.filter(pa.array(free)), spec.STAC[name])


def _lists(values: Ints, kind: Any) -> Any:
    offsets = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
    flat = pa.array(np.ascontiguousarray(values).ravel())
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=kind)
