"""Quantiles and frequencies against numpy, pixel by pixel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import raquet
from comal.errors import InvalidInputError, LimitExceededError
from comal.raster import areastatistics
from tests.raquet.build import Plan, write
from tests.raquet.query.areas import TILES, place_of, shares, zones
from tests.raquet.writing.sources import noise

QUANTILES = ("median", "p0", "p10", "p33.3", "p90", "p100")
METHODS: tuple[Any, ...] = ("centre", "all_touched", "fractional")
FREQUENCIES = ("majority", "minority", "variety")
DTYPES = ("uint8", "int8", "uint16", "int16", "int32", "uint32", "int64", "float32", "float64")


def pixels_of(dtype: str, *, few: bool = False) -> Any:
    """32 x 32 pixels of which some are 7, the nodata value."""
    if few:
        found = np.random.default_rng(5).integers(-4, 5, (32, 32)).astype(dtype)
    else:
        found = noise((32, 32), dtype, 6)
    if found.dtype.kind == "f":
        found = found * 1e-3 if not few else found
        found[0, :5] = np.nan
        found[1, :2] = (-0.0, 0.0)
    found[2, 3:9] = 7
    return found.astype(dtype)


def file_of(path: Path, pixels: Any, *, interleaved: bool = False) -> Path:
    tiles = {tile: [pixels[place_of(tile)]] * (1 + interleaved) for tile in TILES}
    bands = tuple((name, pixels.dtype.name, 7) for name in ("a", "b")[: 1 + interleaved])
    return write(path, tiles, Plan(bands=bands, interleaved=interleaved, nested=interleaved))


def wanted(values: Any, weights: Any, stat: str, *, weighted: bool) -> Any:
    if stat == "variety":
        return len(np.unique(values))
    if stat == "count":
        return weights.sum()
    if not len(values):
        return None
    quantile = areastatistics.quantile_of(stat)
    if quantile is not None and not weighted:
        return float(np.quantile(values.astype(float), quantile))
    if quantile is not None:
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(weights[order]) / weights.sum()
        return float(values[order][min(np.searchsorted(reached, quantile - 1e-9), len(order) - 1)])
    sums: Counter[Any] = Counter()
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        sums[value + 0] += weight
    extreme = (max if stat == "majority" else min)(sums.values())
    return float(min(value for value, total in sums.items() if abs(total - extreme) < 1e-9))


def by_zone(path: Path, pixels: Any, stats: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
    """What is told of each zone by each method, and what is true."""
    valid = (pixels != 7) & ~np.isnan(pixels)
    for method in METHODS:
        found = raquet.zonal(path, zones(), crs="EPSG:3857", method=method, stats=stats)
        for row, zone in zip(found.to_pylist(), zones(), strict=True):
            weights = shares(zone, method)
            inside = valid & (weights > 1e-9)
            values, some = pixels[inside], weights[inside]
            weighted = method == "fractional"
            yield row, {stat: wanted(values, some, stat, weighted=weighted) for stat in stats}


@pytest.mark.parametrize(
    ("dtype", "pairs"),
    [*((dtype, 1 << 21) for dtype in DTYPES), ("int16", 300), ("uint32", 300), ("float64", 300)],
)
def test_quantiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, pairs: int) -> None:
    monkeypatch.setattr(areastatistics, "_PAIRS", pairs)
    pixels = pixels_of(dtype)
    path = file_of(tmp_path / "a.parquet", pixels)
    for row, true in by_zone(path, pixels, QUANTILES):
        for stat, value in true.items():
            told = row[f"a_{stat}"]
            assert told == (None if value is None else pytest.approx(value, rel=1e-12)), stat


@pytest.mark.parametrize("dtype", ["int8", "int16", "int64", "float32"])
def test_frequencies(tmp_path: Path, dtype: str) -> None:
    pixels = pixels_of(dtype, few=True)
    path = file_of(tmp_path / "a.parquet", pixels, interleaved=True)
    for row, true in by_zone(path, pixels, (*FREQUENCIES, "p50", "count")):
        assert row["a_count"] == pytest.approx(true.pop("count"))
        assert type(row["a_variety"]) is int
        for stat, value in true.items():
            assert row[f"a_{stat}"] == row[f"b_{stat}"] == value, stat


def test_too_many_values_for_frequencies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(areastatistics, "_PAIRS", 500)
    path = file_of(tmp_path / "a.parquet", pixels_of("float32"))
    with pytest.raises(LimitExceededError, match="different values"):
        raquet.statistics(path, stats=["median", "variety"])
    (row,) = raquet.statistics(path, stats=["median"]).to_pylist()
    pixels = pixels_of("float32")
    assert row["median"] == pytest.approx(np.median(pixels[(pixels != 7) & ~np.isnan(pixels)]))


@pytest.mark.parametrize("stat", ["p", "p101", "p-1", "p1e1", "p100.5", "P10", "mode", "p1000", ""])
def test_no_such_statistic(tmp_path: Path, stat: str) -> None:
    path = file_of(tmp_path / "a.parquet", pixels_of("uint8"))
    with pytest.raises(InvalidInputError, match="unknown statistic"):
        raquet.statistics(path, stats=[stat])


@given(st.sampled_from(DTYPES), st.data())
@settings(max_examples=200)
def test_keys_are_in_the_order_of_values(dtype: str, data: st.DataObject) -> None:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        width: Any = 8 * kind.itemsize
        numbers: Any = st.floats(width=width, allow_nan=False)
    else:
        limits = np.iinfo(kind)
        numbers = st.integers(int(limits.min), int(limits.max))
    values = np.array(data.draw(st.lists(numbers, min_size=2, max_size=20)), kind)
    keys = areastatistics.keys_of(values)
    np.testing.assert_array_equal(areastatistics.values_of(keys, kind), values.astype(np.float64))
    order = np.argsort(keys)
    assert (values[order][1:] >= values[order][:-1]).all()
    np.testing.assert_array_equal(keys[:, None] == keys, values[:, None] == values)
