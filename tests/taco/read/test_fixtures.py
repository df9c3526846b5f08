"""The files of the existing writers, of every generation and container, against their answers."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import rasterio

from comal.taco.checking import check
from comal.taco.reading.dataset import TacoDataset, load
from tests.support import SHARED, needs_shared

pytestmark = needs_shared

ROOT = SHARED / "fixtures" / "taco"
_ANSWERS = ROOT / "expected.json"
EXPECTED: dict[str, Any] = json.loads(_ANSWERS.read_text()) if _ANSWERS.is_file() else {}
every = pytest.mark.parametrize("name", sorted(EXPECTED))


def leaves_in(name: str) -> dict[str, dict[str, Any]]:
    """Expected leaves by path; in an index the ZIP's name is cut off, scenes are unique there."""
    leaves = EXPECTED[name]["leaves"]
    return {
        path.rpartition(":")[2]: leaf for path, leaf in leaves.items() if "__TACOPAD__" not in path
    }


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@every
def test_every_leaf_by_every_way(name: str) -> None:
    """By navigation, by the level tables and their GDAL paths, and flattened with ancestors."""
    answer, wanted = EXPECTED[name], leaves_in(name)
    right = {path: leaf["sha256"] for path, leaf in wanted.items()}
    dataset = load(ROOT / name)
    frame = dataset.data
    paths = [path for path, _ in frame.walk()]
    assert len(paths) == len(set(paths))
    assert dict(zip(paths, map(digest, frame.read_bytes(paths)), strict=True)) == right
    found: list[str] = []
    for level, rows in enumerate(answer["visible_rows"]):
        table = dataset.sql(f"SELECT * FROM level{level}").data
        assert len(table) == rows
        files = table.filter([kind == "FILE" for kind in table["type"].to_pylist()])
        leaves = files.read_bytes()
        found += map(digest, leaves)
        assert [_through_vsi(vsi) for vsi in files["internal:gdal_vsi"].to_pylist()] == leaves
    assert sorted(found) == sorted(right.values())
    deepest = len(answer["visible_rows"]) - 1
    flat = dataset.flatten()
    names = zip(*(flat[f"l{n}:id"].to_pylist() for n in range(deepest + 1)), strict=True)
    shown = zip(map("/".join, names), map(digest, flat.read_bytes()), strict=True)
    assert sorted(shown) == sorted((p, d) for p, d in right.items() if p.count("/") == deepest)


def _through_vsi(vsi: str) -> bytes:
    """The bytes of a GDAL path of a local file, by its text alone."""
    if not vsi.startswith("/vsisubfile/"):
        return Path(vsi).read_bytes()
    span, _, path = vsi.removeprefix("/vsisubfile/").partition(",")
    offset, size = (int(part) for part in span.split("_"))
    return Path(path).read_bytes()[offset : offset + size]


@every
def test_rows_and_columns(name: str) -> None:
    answer = EXPECTED[name]
    dataset = load(ROOT / name)
    assert dataset.id == answer["id"]
    assert dataset.pit_schema.to_dict()["root"] == answer["pit_schema"]["root"]
    assert dataset.columns == dataset.data.columns
    assert dataset.schema.equals(dataset.data.schema)
    assert len(dataset.data_raw) == answer["levels"][0]["rows"]
    for level, stored in zip(dataset.home.containers[0].levels, answer["levels"], strict=True):
        assert level.num_rows == stored["rows"]
        assert set(stored["columns"]) <= set(level.columns)


def _calls() -> list[tuple[str, int]]:
    return [
        (name, n)
        for name, answer in EXPECTED.items()
        for n in range(len(answer.get("queries", ())))
    ]


def _ask(dataset: TacoDataset, call: str, args: list[Any]) -> TacoDataset:
    if "level=" in call:
        method, _, level = call.partition(" level=")
        found: TacoDataset = getattr(dataset, method)(*args, level=int(level))
        return found
    methods = call.split(" then ")
    each = [args] if len(methods) == 1 else [a if isinstance(a, list) else [a] for a in args]
    for method, some in zip(methods, each, strict=True):
        dataset = getattr(dataset, method)(*some)
    return dataset


@pytest.mark.parametrize(("name", "number"), _calls())
def test_queries(name: str, number: int) -> None:
    query = EXPECTED[name]["queries"][number]
    frame = _ask(load(ROOT / name), query["call"], query["args"]).data
    assert frame["id"].to_pylist() == query["ids"]


def test_values_and_pixels() -> None:
    frame = load(ROOT / "flat.tacozip").data
    row = frame.to_arrow().slice(1, 1).to_pylist()[0]
    answer = EXPECTED["flat.tacozip"]["values"]["img_001"]
    for key in ("cloud_cover", "country", "flag", "n", "split", "stac:crs", "stac:tensor_shape"):
        assert row[key] == answer[key]
    assert row["stac:time_start"].isoformat() == answer["stac:time_start"]
    with rasterio.open(frame.read("img_001")) as image:
        assert image.shape == (16, 16)
        assert str(image.crs) == answer["stac:crs"]


def test_an_index_is_found_in_its_folder_and_takes_another_base(tmp_path: Path) -> None:
    index = load(ROOT / "cat")
    assert index.data["id"].to_pylist() == load(ROOT / "cat" / ".tacocat").data["id"].to_pylist()
    target = tmp_path / "__TACOCAT__"
    target.write_bytes((ROOT / "tacocat_binary" / "__TACOCAT__").read_bytes())
    moved = load(target, base_path=ROOT / "tacocat_binary")
    assert moved.data.read_bytes("scene_003/label.json") == (
        load(ROOT / "tacocat_binary" / "part1.tacozip").data.read_bytes("scene_003/label.json")
    )
    assert str(ROOT / "tacocat_binary" / "part1.tacozip") in moved.data.read("scene_003/label.json")
    # Without its ZIPs an index can still be queried.
    alone = load(target)
    assert len(alone.sql("SELECT * FROM level2").data) == 12


# The existing writers take the box of the centroids and the range of the middles of the times, so
# that the footprints and the first start and last end lie outside. Nothing else is wrong. The
# counts of an index are those of its own collection and of each of its three parts.
EXTENTS = ("taco-extent-space", "taco-extent-time")
TIMES = {
    **dict.fromkeys(("flat.tacozip", "flat_folder", "flat_padded.tacozip"), 1),
    **dict.fromkeys(("nested.tacozip", "nested_folder"), 1),
    "nested_padded.tacozip": 0,
    **dict.fromkeys(("cat", "cat/.tacocat", "tacocat_binary/__TACOCAT__", "tacocat_binary"), 4),
}


@pytest.mark.parametrize("name", TIMES)
def test_a_check_reports_only_what_its_writer_is_known_for(name: str) -> None:
    path = ROOT / name
    # `.tacocat` names its ZIPs by their base names; they lie in the folder above it.
    base = path.parent if path.name == ".tacocat" else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = check(path, base_path=base)
    assert dict(report.counts) == (dict.fromkeys(EXTENTS, TIMES[name]) if TIMES[name] else {})
    assert report.ok


def test_every_container_of_the_fixtures_is_checked() -> None:
    """Alone, or by the index that lies beside it."""
    archives = {path.relative_to(ROOT) for path in ROOT.rglob("*.tacozip")}
    assert {str(one if one.parent == Path() else one.parent) for one in archives} <= set(TIMES)
