"""Parts of a data set: which part each sample belongs to, by its id, a column or its place."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, counted, shown, translated
from comal.geo.boxes import arc_width, wrap
from comal.geo.places import CENTROID, CENTROIDS, GEOMETRY, Places, Way, way_of, ways_of
from comal.grid import quadbin
from comal.lazy import pc
from comal.ml.order import Floats, Ints, Words, fractions, key_of, mixed, uniform
from comal.public import warn
from comal.table.columns import one_array

PLACE = "place"
_FINER = 3
"""Zooms from a block to the cells of a gap, which are an eighth of it."""
_AT_ONCE = 1 << 14
_EAST, _SOUTH = np.array([[-1, 0, 1, -1, 1, -1, 0, 1], [-1, -1, -1, 0, 0, 1, 1, 1]])
"""Steps to the cells around one."""


def column_of(table: Any, name: str) -> Any:
    """A column of a data set, an Arrow array."""
    if name in table.column_names:
        return one_array(table.column(name))
    raise InvalidInputError(
        f"samples have no column {shown(name)}",
        found=", ".join(map(shown, table.column_names[:40])) or "no columns",
        hint=f"open the data set with columns=[{shown(name)}]",
    )


def coded(values: Any) -> tuple[Ints, Any]:
    """The number of the value of each row, -1 for null, and the values in order of appearance."""
    if pa.types.is_null(values.type):  # of which Arrow makes one value
        values = pc.cast(values, pa.string())
    with translated({pa.ArrowException: InvalidInputError}, "a column that cannot be grouped by"):
        encoded = pc.dictionary_encode(values)
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return np.asarray(codes, np.int64), encoded.dictionary


def rows_by_value(values: Any) -> dict[Any, Ints]:
    """The rows of each value of an Arrow array, in the order in which values first appear."""
    codes, known = coded(values)
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(known) + 1))
    return {
        value: order[start:stop]
        for value, (start, stop) in zip(known.to_pylist(), pairwise(bounds.tolist()), strict=True)
    }


# -- parts -----------------------------------------------------------------------------------------


def rows_of_parts(
    ids: Any,
    table: Any,
    parts: Mapping[str, float],
    by: str | None,
    *,
    seed: int,
    exact: bool,
    zoom: int,
    gap: bool | int,
) -> dict[str, Ints]:
    """The rows of each part: see `ArchiveDataset.split`."""
    sizes = np.array(list(parts.values()), np.float64)
    if not len(sizes) or not np.isfinite(sizes).all() or (sizes <= 0).any():
        raise InvalidInputError(
            "proportions of parts", found=shown(repr(dict(parts))), expected="numbers above 0"
        )
    ends: Floats = np.cumsum(sizes)[:-1] / sizes.sum()
    key, ways = key_of(seed), _ways(table, by)
    rows = np.arange(len(ids))
    if ways:
        rows, lon, lat = _placed(table, ways)
        shares = uniform(quadbin.from_lonlat(lon, lat, zoom), key)
    elif gap:
        raise InvalidInputError("a gap is between places", found=f"by={by!r}", expected=PLACE)
    else:
        groups = ids if by is None else pc.coalesce(_texts(column_of(table, by)), _texts(ids))
        codes, known = coded(groups)
        shares = fractions(words_of(known, key))[codes]
    if exact:
        ends = _met(ends, shares)
    found = np.searchsorted(ends, shares, side="right")
    if gap:
        finer = min(zoom + _FINER, quadbin.MAX_ZOOM) if gap is True else gap
        cells, of_row = np.unique(quadbin.from_lonlat(lon, lat, finer), return_inverse=True)
        around = quadbin.neighbours(cells[:, None], _EAST, _SOUTH)
        blocks = quadbin.parents(np.where(around == 0, cells[:, None], around), zoom)
        others = np.searchsorted(ends, uniform(blocks, key), side="right")
        found[(others[of_row] != found[:, None]).any(axis=1)] = -1
    return {name: rows[found == number] for number, name in enumerate(parts)}


def _met(ends: Floats, shares: Floats) -> Floats:
    """The shares at which parts end so that they have as many samples as they should."""
    groups, sizes = np.unique(shares, return_counts=True)
    middles = (np.cumsum(sizes) - sizes / 2) / max(1, len(shares))
    return np.append(groups, 1.0)[np.searchsorted(middles, ends)]


def _texts(values: Any) -> Any:
    with translated({pa.ArrowException: InvalidInputError}, "a column that cannot be grouped by"):
        return pc.cast(values, pa.large_string())


def words_of(values: Any, key: int) -> Words:
    """Words of 64 random bits, each a function of a key and a value of an Arrow array as text."""
    texts = _texts(values)
    _, offsets, buffer = texts.buffers()
    found = np.empty(len(texts), np.uint64)
    ends = np.frombuffer(offsets or bytes(8), np.int64)[texts.offset :]
    for start in range(0, len(texts), _AT_ONCE):
        mine = ends[start : min(start + _AT_ONCE, len(texts)) + 1]
        sizes, first = np.diff(mine), int(mine[0])
        data = np.frombuffer(buffer or b"", np.uint8)[first : int(mine[-1])].astype(np.uint64)
        within = np.arange(len(data)) - np.repeat(mine[:-1] - first, sizes)
        # A random odd factor for each position, as texts differ in a few characters only.
        factors = mixed(np.arange(sizes.max(initial=0), dtype=np.uint64), 0) | np.uint64(1)
        sums = np.zeros(len(data) + 1, np.uint64)
        np.cumsum((data + np.uint64(1)) * factors[within], out=sums[1:])
        found[start : start + len(sizes)] = np.diff(sums[mine - first])
    return mixed(found, key)


def _ways(table: Any, by: str | None) -> tuple[Way, ...]:
    """How samples are located, centroids first; none if they are not divided by place."""
    if by is None:
        return ()
    if by != PLACE:
        column_of(table, by)  # or an error
        way = way_of(table.schema, by)
        return () if way is None or way.kind != "geometry" else (way,)
    ways = tuple(sorted(ways_of(table.schema), key=lambda way: way.by != CENTROID))
    if not ways:
        raise InvalidInputError(
            "samples have no places",
            found=", ".join(map(shown, table.column_names[:40])) or "no columns",
            expected=", ".join((*CENTROIDS, GEOMETRY)),
            hint=f"open the data set with columns=[{CENTROIDS[0]!r}]",
        )
    return ways


def _placed(table: Any, ways: tuple[Way, ...]) -> tuple[Ints, Floats, Floats]:
    """The rows with a place, and longitude and latitude of centroid or middle of the box."""
    west, south, east, north = Places(table, ways).corners
    lon, lat = wrap(west + arc_width(west, east) / 2), (south + north) / 2
    there = np.isfinite(lon) & np.isfinite(lat)
    if not there.all():
        warn(f"{counted(int((~there).sum()), 'sample')} without a place are in no part")
    return np.flatnonzero(there), lon[there], lat[there]
