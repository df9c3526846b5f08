"""Weights, classes and parts by columns, against rules written down once more in plain Python."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import quadbin  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import ml, taco
from comal.errors import InvalidInputError
from comal.geo import wkb
from comal.grid import mercator
from comal.ml.splits import rows_of_parts, words_of
from tests.ml.made import flat, pack

NONE = pa.table({})
PARTS = {"train": 0.7, "val": 0.2, "test": 0.1}
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


def split(ids: Any, table: Any = NONE, by: str | None = None, **options: Any) -> dict[str, Any]:
    """The ids of each part."""
    how: dict[str, Any] = {"seed": 0, "exact": False, "zoom": 8, "gap": False}
    parts = options.pop("parts", PARTS)
    found = rows_of_parts(pa.array(ids, pa.string()), table, parts, by, **{**how, **options})
    return {name: [ids[row] for row in rows.tolist()] for name, rows in found.items()}


def part_of(found: dict[str, Any]) -> dict[str, str]:
    return {one: name for name, ids in found.items() for one in ids}


def names(count: int) -> list[str]:
    return [f"sample-{number:06d}" for number in range(count)]


# -- at random and by groups -----------------------------------------------------------------------


def mixed(value: int, key: int) -> int:
    """The finaliser of SplitMix64, by its definition."""
    value = (value * 0x9E3779B97F4A7C15 + key) % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


def word(text: str, key: int) -> int:
    total = sum((byte + 1) * (mixed(place, 0) | 1) for place, byte in enumerate(text.encode()))
    return mixed(total % 2**64, key)


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXTS, max_size=12), st.integers(0, 2**64 - 1))
def test_words_of_texts(texts: list[str], key: int) -> None:
    """Their rule never changes, or parts would."""
    array = pa.array(["before", *texts], pa.string())[1:]
    assert words_of(array, key).tolist() == [word(text, key) for text in texts]


def test_words_of_numbers_and_of_large_columns() -> None:
    assert words_of(pa.array(range(3), pa.int16()), 7).tolist() == [word(n, 7) for n in "012"]
    texts = names(40_000)  # in blocks
    found = words_of(pa.array(texts), 5)
    assert len(np.unique(found)) == 40_000
    for row in (0, 16_383, 16_384, 39_999):
        assert found[row] == word(texts[row], 5)


@given(st.lists(TEXTS, unique=True, max_size=40), st.data())
def test_samples_have_their_part_whoever_else_is_there(ids: list[str], data: st.DataObject) -> None:
    seed = data.draw(st.integers(-(2**63), 2**64))
    whole = part_of(split(ids, seed=seed))
    assert sorted(whole) == sorted(ids)
    some = data.draw(st.permutations(ids))[: len(ids) // 2]
    found = split(some, seed=seed)
    assert part_of(found) == {one: whole[one] for one in some}
    for part in found.values():
        assert part == [one for one in some if one in part]


def test_proportions_and_seeds() -> None:
    ids = names(20_000)
    found = split(ids)
    for name, share in PARTS.items():
        spread = (20_000 * share * (1 - share)) ** 0.5
        assert abs(len(found[name]) - 20_000 * share) < 5 * spread
    other = part_of(split(ids, seed=1))
    same = sum(other[one] == name for one, name in part_of(found).items())
    assert abs(same / 20_000 - sum(share**2 for share in PARTS.values())) < 0.02
    # Another proportion moves only what it must.
    more = part_of(split(ids, parts={"train": 8, "test": 2}))
    assert all(more[one] == "train" for one in found["train"])


GROUPS = st.lists(st.sampled_from([None, *"abcdefghij"]), max_size=60)


@given(GROUPS, st.booleans(), st.integers(0, 9))
def test_groups_are_never_divided(groups: list[str | None], exact: bool, seed: int) -> None:
    """And proportions are met as well as groups allow, if they are to be exact."""
    ids, table = names(len(groups)), pa.table({"site": pa.array(groups, pa.string())})
    found = split(ids, table, "site", exact=exact, seed=seed)
    of = part_of(found)
    assert sorted(of) == ids
    pairs = {(group, of[one]) for one, group in zip(ids, groups, strict=True) if group is not None}
    sizes = Counter(group for group in groups if group is not None)
    assert len(pairs) == len(sizes)
    largest = max([1, *sizes.values()])
    for name, share in PARTS.items() if exact else ():
        assert abs(len(found[name]) - share * len(groups)) <= largest
    halves = split(ids, exact=True, seed=seed, parts={"a": 1, "b": 1})
    assert abs(len(halves["a"]) - len(halves["b"])) <= 1


# -- by place --------------------------------------------------------------------------------------


def degrees(*limits: tuple[int, int]) -> Any:
    """Coordinates that are on no edge of a cell."""
    return st.one_of(
        [st.integers(64 * low, 64 * high - 1).map(lambda n: (n + 0.5) / 64) for low, high in limits]
    )


LONGITUDES = degrees((-180, 180), (-3, 3), (178, 180))
LATITUDES = degrees((-85, 85), (-2, 2))
POINTS = st.lists(st.tuples(LONGITUDES, LATITUDES), max_size=40)


@settings(max_examples=60, deadline=None)
@given(POINTS, st.booleans(), st.integers(2, 5), st.integers(0, 3), st.integers(0, 9))
def test_parts_do_not_touch(
    points: list[tuple[float, float]], exact: bool, zoom: int, more: int, seed: int
) -> None:
    ids = names(len(points))
    lon, lat = np.array(points).reshape(-1, 2).T
    table = pa.table({"stac:centroid": wkb.point(lon, lat)})
    how: dict[str, Any] = {"zoom": zoom, "seed": seed, "exact": exact}
    whole = part_of(split(ids, table, "place", **how))
    assert sorted(whole) == ids
    assert whole == part_of(split(ids, table, "stac:centroid", **how))
    fine = {one: tile(*point, zoom + more) for one, point in zip(ids, points, strict=True)}
    block = {one: (x >> more, y >> more) for one, (x, y) in fine.items()}
    assert len({(block[one], name) for one, name in whole.items()}) == len({*block.values()})
    kept = part_of(split(ids, table, "place", gap=zoom + more, **how))
    assert kept.items() <= whole.items()
    around = {one: ring(*place, 1 << zoom + more) for one, place in fine.items()}
    for one, name in kept.items():
        for other, its in kept.items():
            assert name == its or fine[other] not in around[one]
    for one in whole.keys() - kept.keys():  # they are at the edge of their block
        assert {(x >> more, y >> more) for x, y in around[one]} != {block[one]}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("zoom", [3, 5])
def test_just_samples_near_another_part_are_left_out(zoom: int, exact: bool) -> None:
    """A sample in each cell of the earth."""
    fine, how = 5, {"zoom": zoom, "exact": exact, "parts": {"train": 19, "test": 1}}
    side = 1 << fine
    x, y = np.meshgrid(np.arange(side), np.arange(side))
    lon, lat = mercator.xy_to_lonlat(x.ravel() + 0.5, y.ravel() + 0.5, fine)
    ids, table = names(side * side), pa.table({"stac:centroid": wkb.point(lon, lat)})
    whole = part_of(split(ids, table, "place", **how))
    parts = np.array([whole[one] == "test" for one in ids]).reshape(side, side)
    near = np.zeros((side, side), np.bool_)
    for down in (-1, 0, 1):
        rows = np.clip(np.arange(side) + down, 0, side - 1)
        for across in (-1, 0, 1):
            near |= np.roll(parts, across, axis=1)[rows] != parts
    kept = part_of(split(ids, table, "place", gap=fine, **how))
    assert kept == {one: whole[one] for one, out in zip(ids, near.ravel(), strict=True) if not out}
    assert 0 < len(kept) < len(ids)


def tile(lon: float, lat: float, zoom: int) -> tuple[int, int]:
    """Column and row, by the package of the format's authors."""
    x, y, _ = quadbin.cell_to_tile(quadbin.point_to_cell(lon, lat, zoom))
    return int(x), int(y)


def ring(x: int, y: int, side: int) -> set[tuple[int, int]]:
    """A tile and those around it."""
    rows = {y - 1, y, y + 1} & {*range(side)}
    return {((x + step) % side, row) for row in rows for step in (-1, 0, 1)}


def test_an_eighth_of_a_block_is_the_usual_gap() -> None:
    rng = np.random.default_rng(1)
    lon, lat = rng.uniform(5, 15, 4_000), rng.uniform(45, 55, 4_000)
    ids, table = names(4_000), pa.table({"istac:centroid": wkb.point(lon, lat)})
    usual = split(ids, table, "place", gap=True)
    assert usual == split(ids, table, "place", gap=11, zoom=8)
    assert 2_000 < sum(map(len, usual.values())) < 4_000
    assert min(map(len, usual.values())) > 50


def test_samples_without_a_place_are_in_no_part() -> None:
    table = pa.table({"stac:centroid": wkb.point([1.0, np.nan], [2.0, np.nan])})
    with pytest.warns(UserWarning, match="1 sample without a place"):
        found = split(["a", "b"], table, "place")
    assert part_of(found).keys() == {"a"}


def test_boxes_are_placed_by_their_middle() -> None:
    import shapely

    boxes = [shapely.box(0, 0, 10, 4), shapely.box(170, 0, 190, 4), shapely.box(-10, 0, 0, 4)]
    middles = wkb.point([5, 180, -5], [2.0, 2.0, 2.0])
    table = pa.table({"istac:geometry": pa.array([box.wkb for box in boxes], pa.binary())})
    for seed in range(6):
        centroids = pa.table({"stac:centroid": middles})
        found = split(names(3), table, "place", seed=seed, zoom=6)
        assert found == split(names(3), centroids, "place", seed=seed, zoom=6)


# -- data sets -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """24 samples: half of them tests, a third of each label."""
    return ml.dataset(flat(tmp_path_factory.mktemp("splits"), 24), columns=["label", "split"])


def test_parts_of_a_data_set(data: Any) -> None:
    parts = data.split({"train": 0.75, "val": 0.25}, seed=4, exact=True)
    assert {name: len(part) for name, part in parts.items()} == {"train": 18, "val": 6}
    ids = [one["id"] for part in parts.values() for one in part.fetch(range(len(part)))]
    assert sorted(ids) == data.ids.to_pylist()
    assert [one["id"] for one in data.split({"all": 1})["all"].head(2)] == ids_of(data)[:2]
    by_label = data.split({"a": 1, "b": 2}, by="label", exact=True)
    labels = [{*part.columns.column("label").to_pylist()} for part in by_label.values()]
    assert [len(one) for one in labels] == [1, 2]
    stored = data.splits("split")
    assert list(stored) == ["train", "test"]
    assert ids_of(stored["test"]) == ids_of(data)[1::2]


def ids_of(data: Any) -> list[str]:
    found: list[str] = data.ids.to_pylist()
    return found


def test_columns_choose_what_is_drawn(data: Any) -> None:
    some = data.take([0, 1, 3, 6, 9, 12, 15, 18])  # one sample of label 1, seven of label 0
    drawn = counts(some.loader(64, balance="label", draws=4_096, shuffle=True), "label")
    assert abs(drawn[1] / 4_096 - 0.5) < 0.04
    drawn = counts(data.loader(64, weights="label", draws=4_096), "label")
    assert drawn[0] == 0
    assert abs(drawn[2] / 4_096 - 2 / 3) < 0.04
    for batch in data.loader(6, strata="split", shuffle=True):
        assert Counter(batch["split"]) == {"train": 3, "test": 3}


def counts(loader: Any, name: str) -> Counter[int]:
    return Counter(np.concatenate([batch[name] for batch in loader]).tolist())


def test_null_is_no_class(tmp_path: Path) -> None:
    labels = ["a", None, "b", "a", None, "a"]
    samples = [
        taco.Sample(id=f"s{row}", path=b"x", kind=label, none=None)
        for row, label in enumerate(labels)
    ]
    path = pack(tmp_path / "a.tacozip", samples)
    data = ml.dataset(path, columns=["kind", "none"])
    assert data.splits("none") == {}
    with pytest.raises(InvalidInputError, match="weights"):
        data.loader(4, balance="none")
    drawn = [one for batch in data.loader(64, balance="kind", draws=1_024) for one in batch["kind"]]
    assert set(drawn) == {"a", "b"}
    assert abs(drawn.count("b") / 1_024 - 0.5) < 0.08
    assert {name: ids_of(part) for name, part in data.splits("kind").items()} == {
        "a": ["s0", "s3", "s5"],
        "b": ["s2"],
    }


def test_what_cannot_be_split(data: Any) -> None:
    for parts in ({}, {"a": 0}, {"a": -1, "b": 2}, {"a": float("nan")}, {"a": "x"}, ["a"]):
        with pytest.raises(InvalidInputError):
            data.split(parts)
    for call in (data.splits, lambda name: data.split(PARTS, by=name)):
        with pytest.raises(InvalidInputError, match=r"columns=\['colour'\]"):
            call("colour")
    with pytest.raises(InvalidInputError, match=r"columns=\['stac:centroid'\]"):
        data.split(PARTS, by="place")
    with pytest.raises(InvalidInputError, match="a gap is between places"):
        data.split(PARTS, by="label", gap=True)
    for options in ({"weights": "split"}, {"balance": "label", "strata": "label"}, {"balance": 3}):
        with pytest.raises(InvalidInputError):
            data.loader(4, **options)
