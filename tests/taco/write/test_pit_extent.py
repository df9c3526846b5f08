"""The tree must be regular (PIT-1), and the extent is that of what is in it."""

from __future__ import annotations

import datetime as dt
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from comal.errors import InvalidInputError
from comal.taco.model.collection import Coverage, Sample, Tortilla, united
from comal.taco.writing.creating import create
from tests.taco.write.small import Archive, dataset, flat, nested


def folder(name: str, *children: str) -> Sample:
    return Sample(name, Tortilla([Sample(child, child.encode()) for child in children]))


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (folder("t", "a"), "number of children"),
        (folder("t", "a", "c"), "id at level 1"),
        (folder("t", "b", "a"), "id at level 1"),
        (
            Sample("t", Tortilla([Sample("a", b""), folder("b", "x")])),
            "type at level 1",
        ),
    ],
)
def test_level_1_must_repeat(second: Sample, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text) as caught:
        dataset(Tortilla([folder("s", "a", "b"), second]))
    assert "'t" in str(caught.value)
    assert "'s" in str(caught.value)


def test_deeper_levels_must_repeat_too() -> None:
    def deep(name: str, *leaves: str) -> Sample:
        return Sample(name, Tortilla([folder("x", *leaves), folder("y", "k")]))

    assert len(dataset(Tortilla([deep("s", "a", "b"), deep("t", "a", "b")])).tortilla) == 2
    with pytest.raises(InvalidInputError, match="id at level 2") as caught:
        dataset(Tortilla([deep("s", "a", "b"), deep("t", "a", "c")]))
    assert "'s/x/b'" in str(caught.value)
    assert "'t/x/c'" in str(caught.value)


def test_root_must_be_of_one_type() -> None:
    with pytest.raises(InvalidInputError, match="type at level 0"):
        dataset(Tortilla([Sample("s", b""), folder("t", "a")]))


def test_patterns_one_per_folder_position(tmp_path: Path) -> None:
    def scene(name: str) -> Sample:
        return Sample(name, Tortilla([folder("x", "a"), Sample("m", b""), folder("y", "b", "c")]))

    (path,) = create(dataset(Tortilla([scene("s"), scene("t")])), tmp_path / "a.zip")
    assert Archive(path).collection["taco:pit_schema"] == {
        "root": {"n": 2, "type": "FOLDER"},
        "shape": [2, 3, 2],
        "hierarchy": {
            "1": [{"n": 6, "type": ["FOLDER", "FILE", "FOLDER"], "id": ["x", "m", "y"]}],
            "2": [
                {"n": 2, "type": ["FILE"], "id": ["a"]},
                {"n": 4, "type": ["FILE", "FILE"], "id": ["b", "c"]},
            ],
        },
    }


def test_padding_takes_the_place_of_a_missing_file(tmp_path: Path) -> None:
    tortilla = Tortilla([folder("s", "__TACOPAD__0", "b"), folder("t", "a", "b")])
    (path,) = create(dataset(tortilla), tmp_path / "a.zip")
    (pattern,) = Archive(path).collection["taco:pit_schema"]["hierarchy"]["1"]
    assert pattern["id"] == ["a", "b"]
    with pytest.raises(InvalidInputError, match="id at level 1"):
        dataset(Tortilla([folder("s", "__TACOPAD__0"), folder("t", "a"), folder("u", "b")]))


# -- extent ---------------------------------------------------------------------------------------


def point(lon: float, lat: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, lon, lat)


def centroids(*lons: float) -> Tortilla:
    fields: list[dict[str, Any]] = [{"stac:centroid": point(lon, 10)} for lon in lons]
    return Tortilla([Sample(f"s{n}", b"", **field) for n, field in enumerate(fields)])


@pytest.mark.parametrize(
    ("lons", "west", "east"),
    [
        ((-5, -1, 0.1, 4), -5, 4),
        ((170, -170, 179), 170, -170),
    ],
)
def test_smallest_arc_of_longitudes(lons: tuple[float, ...], west: float, east: float) -> None:
    assert dataset(centroids(*lons)).extent == {
        "spatial": [west, 10.0, east, 10.0],
        "temporal": None,
    }


def stac(lon: float, day: int, **more: Any) -> dict[str, Any]:
    return {
        "stac:crs": "EPSG:4326",
        "stac:tensor_shape": [1, 100, 200],
        "stac:geotransform": [lon, 0.01, 0.0, 5.0, 0.0, -0.01],
        "stac:time_start": dt.datetime(2023, 1, day),
        **more,
    }


def test_footprints_count_not_their_centres() -> None:
    tortilla = Tortilla([Sample("a", b"", **stac(10, 1)), Sample("b", b"", **stac(20, 3))])
    extent = dataset(tortilla).extent
    assert extent is not None
    assert np.allclose(extent["spatial"], [10, 4, 22, 5])
    assert extent["temporal"] == ["2023-01-01T00:00:00Z", "2023-01-03T00:00:00Z"]


def test_time_reaches_from_first_start_to_last_end() -> None:
    rows = [
        stac(0, 1, **{"stac:time_end": dt.datetime(2023, 5, 1, 1)}),
        stac(0, 2, **{"stac:time_end": None}),
    ]
    tortilla = Tortilla([Sample(f"s{n}", b"", **row) for n, row in enumerate(rows)])
    assert dataset(tortilla).extent == {
        "spatial": pytest.approx([0, 4, 2, 5]),
        "temporal": ["2023-01-01T00:00:00Z", "2023-05-01T01:00:00Z"],
    }


def test_first_level_that_tells_counts() -> None:
    def inner(lon: float) -> Tortilla:
        return Tortilla([Sample("a", b"", **stac(lon, 1))])

    time: dict[str, Any] = {"stac:time_start": dt.datetime(2024, 1, 1)}
    tortilla = Tortilla([Sample(f"s{n}", inner(lon), **time) for n, lon in enumerate((1.0, 3.0))])
    extent = dataset(tortilla).extent
    assert extent is not None
    assert np.allclose(extent["spatial"], [1, 4, 5, 5])
    assert extent["temporal"] == ["2024-01-01T00:00:00Z"] * 2


def test_given_extent_is_kept_and_nothing_known_is_the_world(tmp_path: Path) -> None:
    given = {"spatial": [1, 2, 3, 4], "temporal": None}
    assert dataset(centroids(50), extent=given).extent == given
    world = [-180.0, -90.0, 180.0, 90.0]
    assert dataset(flat()).extent == {"spatial": world, "temporal": None}
    (path,) = create(dataset(nested(2), extent={"spatial": [1, 2, 3, 4]}), tmp_path / "a.zip")
    assert Archive(path).collection["extent"] == given


def test_coverage_of_batches_is_that_of_the_whole() -> None:
    generator = np.random.default_rng(3)
    lons = np.r_[generator.uniform(150, 180, 5000), generator.uniform(-180, -140, 5000)]
    table = pa.table({"stac:centroid": [point(lon, lon / 10) for lon in lons]})
    whole, parts = Coverage(), Coverage()
    whole.add(table)
    for batch in table.to_batches(max_chunksize=50):
        parts.add(pa.Table.from_batches([batch]))
    assert parts.spatial() == whole.spatial()
    assert len(parts.boxes) <= 65


def test_extents_unite_across_the_antimeridian() -> None:
    extents = [
        {
            "spatial": [170, -10, 175, 0],
            "temporal": ["2023-01-01T00:00:00Z", "2023-02-01T00:00:00Z"],
        },
        {"spatial": [-175, -5, -170, 5], "temporal": None},
        None,
    ]
    assert united(extents) == {
        "spatial": [170.0, -10.0, -170.0, 5.0],
        "temporal": ["2023-01-01T00:00:00Z", "2023-02-01T00:00:00Z"],
    }
