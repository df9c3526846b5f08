"""MajorTOM and SpatialGrouping."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import limits, taco
from comal.errors import InvalidInputError, ObjectNotFoundError
from comal.geo import wkb
from comal.taco.extensions import MajorTOM, SpatialGrouping
from comal.taco.extensions.base import columns_for
from comal.taco.extensions.places import parse_size


def table(lon: Any, lat: Any, name: str = "stac:centroid", **more: Any) -> pa.Table:
    ids = [str(n) for n in range(len(lon))]
    return pa.table({"id": ids, "type": ["FILE"] * len(ids), name: wkb.point(lon, lat), **more})


# Computed with the reference writer, version 0.26.9.
VECTORS = [
    (100, 39.47, -0.38, "0100km_0044U_0001L"),
    (100, -33.87, 151.21, "0100km_0038D_0139R"),
    (100, 84.9, 10, "0100km_0094U_0001R"),
    (100, 0, 0, "0100km_0001D_0001L"),
    (100, 0.5, 179.99, "0100km_0000U_0200R"),
    (10, 39.47, -0.38, "0010km_0439U_0004L"),
    (10, -11.755, -76.834, "0010km_0131D_0838L"),
    (10, 51.4769, 0.0005, "0010km_0573U_0000R"),
]


@pytest.mark.parametrize(("dist", "lat", "lon", "code"), VECTORS)
def test_majortom_vectors(dist: float, lat: float, lon: float, code: str) -> None:
    found = columns_for(MajorTOM(dist_km=dist), table([lon], [lat]))
    assert found.to_pylist() == [{"majortom:code": code}]


def slow_cell(lon: float, lat: float, dist: float) -> tuple[int, int]:
    """By search in the lists of anchors, written out as the grid is defined."""
    n = math.ceil(math.pi * 6378.137 / dist)
    rows = [k for k in range(-n, n) if -85 <= k * 180 / n <= 85]
    row = max([k for k in rows if k * 180 / n < lat] or rows[:1])
    m = max(1, math.ceil(2 * math.pi * 6378.137 * math.cos(math.radians(row * 180 / n)) / dist))
    columns = [k for k in range(-m, m) if -180 <= k * 360 / m < 180]
    west = [k for k in columns if k * 360 / m < lon]
    return row, max(west or columns)


@given(
    st.floats(-179.99, 179.99).map(lambda x: round(x, 3) + 1e-5),
    st.floats(-89.9, 89.9).map(lambda x: round(x, 3) + 1e-5),
    st.sampled_from([10.0, 100.0, 333.0, 5000.0]),
)
@settings(max_examples=60, deadline=None)
def test_majortom_is_the_anchor_to_the_south_west(lon: float, lat: float, dist: float) -> None:
    rows, columns = MajorTOM(dist_km=dist).cells([lon], [lat])
    assert (rows[0], columns[0]) == slow_cell(lon, lat, dist)


def test_majortom_ranges_and_nulls() -> None:
    near = MajorTOM(100, (-30, 60), (-20, 100), "-")
    found = near.compute_table(table([np.nan, 5, 170, -170], [0, 80, 0, -80], "istac:centroid"))
    assert found["majortom:code"].to_pylist() == [
        None,
        "0100km-0067U-0002R",
        "0100km-0001D-0111R",
        "0100km-0033D-0096R",
    ]
    wrong: tuple[dict[str, Any], ...] = (
        {"dist_km": 0},
        {"dist_km": math.nan},
        {"dist_km": "100"},
        {"latitude_range": (5, 5)},
        {"latitude_range": None},
    )
    for arguments in wrong:
        with pytest.raises(InvalidInputError):
            MajorTOM(**arguments)
    with pytest.raises(InvalidInputError, match="stac:centroid"):
        near.compute_table(pa.table({"id": ["a"]}))
    with pytest.raises(InvalidInputError, match="no centroid"):
        near.compute_table(table([np.nan], [0]))
    bare = columns_for(MajorTOM(schema_only=True), table([1], [2]))
    assert bare.to_pylist() == [{"majortom:code": None}]


def slow_groups(sizes: list[int], count: int | None, limit: int | None) -> list[int]:
    groups, group, members, total = [], 0, 0, 0
    for size in sizes:
        full = (count is not None and members >= count) or (
            limit is not None and total + size > limit
        )
        if members and full:
            group, members, total = group + 1, 0, 0
        groups.append(group)
        members, total = members + 1, total + size
    return groups


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.one_of(st.none(), st.integers(1, 10)),
    st.one_of(st.none(), st.integers(1, 100)),
)
@settings(max_examples=80, deadline=None)
def test_groups_are_cut_at_the_first_limit(
    sizes: list[int], count: int | None, limit: int | None
) -> None:
    if count is None and limit is None:
        count = 3
    lon = np.linspace(-170, 170, len(sizes))  # along a parallel the curve keeps the order
    rows = table(lon, np.full(len(sizes), -89.99))
    expected = [f"sg{group:04d}" for group in slow_groups(sizes, count, limit)]
    by_column = SpatialGrouping(count, limit).compute_table(
        rows.append_column("internal:size", pa.array(sizes))
    )
    assert by_column["spatialgroup:code"].to_pylist() == expected


def test_groups_follow_the_curve() -> None:
    lon, lat = [151.21, 0, -0.38, -76.834, np.nan], [-33.87, 0, 39.47, -11.755, 0]
    found = columns_for(SpatialGrouping(target_count=1), table(lon, lat))
    assert found["spatialgroup:code"].to_pylist() == ["sg0002", "sg0001", "sg0003", "sg0000", None]


def test_sizes_from_paths(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    paths = [str(tmp_path / "a")] * 3
    rows = table([1, 2, 3], [-89.99] * 3, path=paths)
    found = SpatialGrouping(target_size="200B").compute_table(rows)
    assert found["spatialgroup:code"].to_pylist() == ["sg0000", "sg0000", "sg0001"]
    tortilla = taco.Tortilla.from_table(rows, type="type").extend_with(
        SpatialGrouping(target_size="200B")
    )
    assert tortilla.to_arrow()["spatialgroup:code"].to_pylist() == ["sg0000", "sg0000", "sg0001"]
    with pytest.raises(ObjectNotFoundError, match="gone"):
        SpatialGrouping(target_size=1).compute_table(table([1], [2], path=["gone"]))
    with pytest.raises(InvalidInputError, match="sizes"):
        SpatialGrouping(target_size=1).compute_table(table([1], [2]))


@pytest.mark.parametrize(
    ("text", "of_1024", "of_1000"),
    [
        (5, 5, 5),
        ("5", 5, 5),
        ("3B", 3, 3),
        ("512MB", 512 * 2**20, 512 * 10**6),
        ("4.5 gb", 4.5 * 2**30, 4.5 * 10**9),
        ("1KiB", 1024, 1024),
        ("2TB", 2 * 2**40, 2 * 10**12),
    ],
)
def test_sizes(text: int | str, of_1024: float, of_1000: float) -> None:
    assert (parse_size(text), limits.parse_size(text)) == (of_1024, of_1000)


@pytest.mark.parametrize("text", ["", "MB", "-1", "1e3", 0, -5, True])
def test_no_sizes(text: int | str) -> None:
    with pytest.raises(InvalidInputError, match="size"):
        parse_size(text)


def test_a_limit_is_needed() -> None:
    wrong: tuple[dict[str, Any], ...] = ({}, {"target_count": 0}, {"target_count": 2.5})
    for arguments in wrong:
        with pytest.raises(InvalidInputError):
            SpatialGrouping(**arguments)


@pytest.mark.parametrize("sizes", [["1", "x"], [1.5, 2.0], [math.nan, 1.0]])
def test_sizes_that_are_no_bytes(sizes: list[Any]) -> None:
    with pytest.raises(InvalidInputError, match="not whole numbers"):
        SpatialGrouping(target_size=3).compute_table(table([1, 2], [1, 2], size=sizes))
