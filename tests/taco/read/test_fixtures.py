"""The files of the existing writers, of every generation and container, against their answers."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import rasterio

from comal.taco.reading.dataset import TacoDataset, load
from tests.servers.http import HttpServer
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
def test_every_leaf_by_navigation(name: str) -> None:
    frame = load(ROOT / name).data
    found = dict(frame.walk())
    wanted = leaves_in(name)
    assert list(found) == sorted(found, key=list(found).index)
    assert set(found) == set(wanted)
    paths = list(found)
    data = frame.read_bytes(paths)
    assert {path: digest(d) for path, d in zip(paths, data, strict=True)} == {
        path: leaf["sha256"] for path, leaf in wanted.items()
    }


@every
def test_every_leaf_by_the_level_tables(name: str) -> None:
    dataset = load(ROOT / name)
    wanted = sorted(leaf["sha256"] for leaf in leaves_in(name).values())
    found = []
    for level, rows in enumerate(EXPECTED[name]["visible_rows"]):
        frame = dataset.sql(f"SELECT * FROM level{level}").data
        assert len(frame) == rows
        files = frame.filter([kind == "FILE" for kind in frame["type"].to_pylist()])
        leaves = files.read_bytes()
        found += [digest(data) for data in leaves]
        assert [_through_vsi(vsi) for vsi in files["internal:gdal_vsi"].to_pylist()] == leaves
    assert sorted(found) == wanted


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
    for index, level in enumerate(answer["levels"]):
        table = dataset.home.containers[0].levels[index]
        assert table.num_rows == level["rows"]
        assert set(level["columns"]) <= set(table.columns)
        assert len(dataset.data_raw) == answer["levels"][0]["rows"]


@every
def test_flatten_shows_each_leaf_once_with_its_ancestors(name: str) -> None:
    dataset = load(ROOT / name)
    deepest = len(EXPECTED[name]["visible_rows"]) - 1
    frame = dataset.flatten()
    paths = zip(*(frame[f"l{n}:id"].to_pylist() for n in range(deepest + 1)), strict=True)
    found = {
        "/".join(path): digest(data) for path, data in zip(paths, frame.read_bytes(), strict=True)
    }
    wanted = {
        path: leaf["sha256"] for path, leaf in leaves_in(name).items() if path.count("/") == deepest
    }
    assert found == wanted
    assert len(frame) == len(wanted)


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


def test_an_index_over_http_spells_its_parts_as_urls(
    http_server: HttpServer, tmp_path: Path
) -> None:
    copied = shutil.copytree(ROOT / "tacocat_binary", tmp_path / "a b")
    dataset = load(http_server.serve_folder(copied, "a b") + "/__TACOCAT__")
    frame = dataset.data
    paths = frame["internal:gdal_vsi"].to_pylist()
    assert paths[2].endswith("/a%20b/part1.tacozip")
    leaf = "scene_002/label.json"
    assert frame.read(leaf).partition(",")[2] == paths[2].partition(",")[2]
    assert frame.read_bytes(leaf) == load(copied / "part1.tacozip").data.read_bytes(leaf)
    assert dataset.sql("SELECT * FROM level2").data.read_bytes(0)
