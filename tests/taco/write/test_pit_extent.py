"""The tree must be regular (PIT-1), and the extent is that of what is in it."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from comal.errors import InvalidInputError
from comal.taco.model.collection import Coverage, Sample, Tortilla
from comal.taco.writing.creating import create
from tests.taco.read.scenes import point
from tests.taco.write.small import Archive, dataset, flat


def folder(name: str, *children: str) -> Sample:
    samples = [Sample(one, b"" if one.startswith("__") else one.encode()) for one in children]
    return Sample(name, Tortilla(samples))


def deep(name: str, *leaves: str) -> Sample:
    return Sample(name, Tortilla([folder("x", *leaves), folder("y", "k")]))


@pytest.mark.parametrize(
    ("first", "second", "text", "places"),
    [
        (folder("s", "a", "b"), folder("t", "a"), "number of children at level 0", ("s", "t")),
        (folder("s", "a", "b"), folder("t", "a", "c"), "id at level 1", ("s/b", "t/c")),
        (folder("s", "a", "b"), folder("t", "b", "a"), "id at level 1", ("s/a", "t/b")),
        (folder("s", "a"), Sample("t", Tortilla([folder("a", "x")])), "type", ("s/a", "t/a")),
        (deep("s", "a", "b"), deep("t", "a", "c"), "id at level 2", ("s/x/b", "t/x/c")),
        (Sample("s", b""), folder("t", "a"), "type at level 0", ("s", "t")),
    ],
)
def test_samples_must_be_alike(
    first: Sample, second: Sample, text: str, places: tuple[str, str]
) -> None:
    assert len(dataset(Tortilla([first])).tortilla) == 1
    with pytest.raises(InvalidInputError, match=text) as caught:
        dataset(Tortilla([first, second]))
    assert all(f"'{place}'" in str(caught.value) for place in places)


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


def centroids(*lons: float) -> Tortilla:
    fields: list[dict[str, Any]] = [{"stac:centroid": point(lon, 10)} for lon in lons]
    return Tortilla([Sample(f"s{n}", b"", **field) for n, field in enumerate(fields)])


def stac(lon: float, day: int, **more: Any) -> dict[str, Any]:
    return {
        "stac:crs": "EPSG:4326",
        "stac:tensor_shape": [1, 100, 200],
        "stac:geotransform": [lon, 0.01, 0.0, 5.0, 0.0, -0.01],
        "stac:time_start": dt.datetime(2023, 1, day),
        **{f"stac:{name}": value for name, value in more.items()},
    }


def rows(*fields: dict[str, Any]) -> Tortilla:
    return Tortilla([Sample(f"s{n}", b"", **row) for n, row in enumerate(fields)])


def in_scenes(*fields: dict[str, Any]) -> Tortilla:
    time: Any = {"stac:time_start": dt.datetime(2024, 1, 1)}
    return Tortilla([Sample(f"s{n}", rows(row), **time) for n, row in enumerate(fields)])


@pytest.mark.parametrize(
    ("tortilla", "spatial", "temporal"),
    [
        # The smallest arc of longitudes.
        (centroids(-5, -1, 0.1, 4), [-5, 10, 4, 10], None),
        (centroids(170, -170, 179), [170, 10, -170, 10], None),
        # Footprints, not their centres; from the first start to the last end.
        (rows(stac(10, 1), stac(20, 3)), [10, 4, 22, 5], ["2023-01-01", "2023-01-03"]),
        (
            rows(stac(0, 1, time_end=dt.datetime(2023, 5, 1)), stac(0, 2, time_end=None)),
            [0, 4, 2, 5],
            ["2023-01-01", "2023-05-01"],
        ),
        (
            rows(stac(0, 3, time_end=dt.datetime(2023, 1, 2))),
            [0, 4, 2, 5],
            ["2023-01-02", "2023-01-03"],
        ),
        # The first level that tells counts.
        (in_scenes(stac(1, 1), stac(3, 1)), [1, 4, 5, 5], ["2024-01-01", "2024-01-01"]),
        (flat(), [-180, -90, 180, 90], None),
    ],
)
def test_extents(tortilla: Tortilla, spatial: list[float], temporal: list[str] | None) -> None:
    assert dataset(tortilla).extent == {
        "spatial": pytest.approx(spatial),
        "temporal": temporal and [f"{day}T00:00:00Z" for day in temporal],
    }


def test_given_extent_is_kept(tmp_path: Path) -> None:
    given = {"spatial": [1, 2, 3, 4], "temporal": None}
    (path,) = create(dataset(centroids(50), extent={"spatial": [1, 2, 3, 4]}), tmp_path / "a.zip")
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
