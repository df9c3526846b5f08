"""Folders and manifests of TACO alone; what all formats do is in `samples/test_pack.py`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import ComalError, ConflictError, InvalidInputError, LimitExceededError
from comal.taco.writing.packing import level_tables, nested, pack_folder
from tests.raster.rasters import write
from tests.support import files_below
from tests.taco.write.small import Archive


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    root = tmp_path / "My Scenes"
    for number in (2, 10):
        pixels = np.full((2, 10, 20), number, np.uint16)
        affine = (500_000 + number * 1000, 10, 0, 10_000, 0, -10)
        (root / f"scene_{number}").mkdir(parents=True)
        for name in ("after.tif", "before.tif"):
            path = root / f"scene_{number}" / name
            write(path, pixels, crs="EPSG:32631", affine=affine)
        (root / f"scene_{number}" / "label.json").write_text(f"{number}")
    (root / ".hidden").write_text("x")
    return root


def test_tree_of_rasters(scenes: Path, tmp_path: Path) -> None:
    (path,) = pack_folder(scenes, tmp_path / "a.tacozip", title="T", extra={"n": 1})
    archive = Archive(path)
    assert archive.collection["id"] == "my-scenes"
    assert archive.collection["title"] == "T"
    assert archive.collection["n"] == 1
    assert archive.leaves() == {
        str(file.relative_to(scenes)): file.read_bytes()
        for file in scenes.rglob("*.*")
        if file.is_file() and file.name[0] != "."
    }
    rows = {row["internal:relative_path"]: row for row in archive.level(1).to_pylist()}
    before = rows["scene_2/before.tif"]
    assert before["stac:crs"] == "EPSG:32631"
    assert before["stac:tensor_shape"] == [2, 10, 20]
    assert before["stac:geotransform"] == [502_000, 10, 0, 10_000, 0, -10]
    centre = shapely.from_wkb(before["stac:centroid"])
    assert np.allclose([centre.x, centre.y], [3.0188, 0.0900], atol=1e-3)
    assert rows["scene_2/label.json"]["stac:crs"] is None
    west, _, east, _ = archive.collection["extent"]["spatial"]
    assert 3 < west < east < 3.2
    offset, size = before["internal:offset"], before["internal:size"]
    with rasterio.open(f"/vsisubfile/{offset}_{size},{path}") as opened:
        assert (opened.read() == 2).all()


def test_trees_that_differ_and_padding(scenes: Path, tmp_path: Path) -> None:
    (scenes / "scene_10/before.tif").unlink()
    with pytest.raises(InvalidInputError, match="structure"):
        pack_folder(scenes, tmp_path / "a.tacozip")
    (path,) = pack_folder(scenes, tmp_path / "a.tacozip", pad=True, stac=False)
    assert "stac:crs" not in Archive(path).level(1).column_names
    archive = Archive(path)
    (pattern,) = archive.collection["taco:pit_schema"]["hierarchy"]["1"]
    assert pattern["id"] == ["after.tif", "before.tif", "label.json"]
    assert archive.leaves()["scene_10/__TACOPAD__0"] == b""
    (root,) = pack_folder(scenes, tmp_path / "loose", pad=True)
    assert (root / "DATA/scene_10/__TACOPAD__0").read_bytes() == b""


def test_manifest_in_geoparquet(scenes: Path, tmp_path: Path) -> None:
    boxes = [shapely.to_wkb(shapely.box(n, 0, n + 1, 1)) for n in (170, -172)]
    table = pa.table({"id": ["a", "b"], "path": ["scene_2/label.json"] * 2, "geom": boxes})
    described = {"version": "1.1.0", "primary_column": "geom", "columns": {"geom": {}}}
    pq.write_table(
        table.replace_schema_metadata({"geo": json.dumps(described)}), tmp_path / "m.parquet"
    )
    (path,) = pack_folder(scenes, tmp_path / "a.tacozip", manifest=tmp_path / "m.parquet")
    archive = Archive(path)
    assert archive.level(0)["istac:crs"].to_pylist() == ["EPSG:4326"] * 2
    assert archive.collection["extent"]["spatial"] == [170, 0, -171, 1]


def test_an_output_that_is_a_folder_is_no_sample_of_the_next_run(tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    (root / "a.bin").write_bytes(b"a")
    for _ in range(2):
        (path,) = pack_folder(root, root / "out", overwrite=True)
        assert files_below(path / "DATA") == {"a.bin": b"a"}
    manifest = pa.table({"id": ["a", "b"], "path": ["a.bin", "out"]})
    with pytest.raises(ComalError, match="not a regular file"):
        pack_folder(root, path, manifest=manifest, overwrite=True)
    with pytest.raises(ConflictError, match="the target holds the source"):
        pack_folder(path / "DATA", path, overwrite=True)


def test_columns_of_a_manifest_named_like_ours(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"a")
    manifest = pa.table({"id": ["s/a", "t/a"], "path": ["a.bin"] * 2, "internal:parent_id": [7, 8]})
    (path,) = pack_folder(tmp_path, tmp_path / "o.tacozip", manifest=manifest)
    assert set(Archive(path).leaves()) == {"s/a", "t/a"}
    twins = pa.table([*manifest.columns, manifest["id"]], names=[*manifest.column_names, "id"])
    with pytest.raises(InvalidInputError, match="two columns of the same name"):
        pack_folder(tmp_path, tmp_path / "o.tacozip", manifest=twins, overwrite=True)


def test_ids_are_checked_before_headers_are_read(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scenes / "scene_2/a?.tif").write_bytes(b"x")
    monkeypatch.setattr("comal.taco.writing.packing.raster.headers", None)
    with pytest.raises(InvalidInputError, match=r"'a\?\.tif'"):
        pack_folder(scenes, tmp_path / "o.tacozip")
    deep = pa.table({"id": ["a/b/c/d/e/f/g"], "path": ["scene_2/before.tif"]})
    with pytest.raises(LimitExceededError, match="too deeply"):
        pack_folder(scenes, tmp_path / "o.tacozip", manifest=deep)


TREES = st.dictionaries(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple),
    st.booleans(),
    min_size=1,
    max_size=12,
)


def trees(found: dict[tuple[str, ...], bool]) -> dict[tuple[str, ...], bool]:
    """Every sample and whether it is a file: what has something below it is none."""
    whole = dict(found)
    for parts in found:
        whole |= dict.fromkeys((parts[:depth] for depth in range(1, len(parts))), False)
    return whole


def padded(tree: dict[tuple[str, ...], bool]) -> set[tuple[tuple[str, ...], bool, bool]] | None:
    """Path, whether it is a file, and whether it is padding; None where a file holds others."""
    rows = {(parts, is_file, False) for parts, is_file in tree.items()}
    files = sorted({parts[1:] for parts, is_file in tree.items() if is_file and parts[1:]})
    count: dict[tuple[str, ...], int] = {}
    for root in {parts[0] for parts, is_file in tree.items() if parts[1:] or not is_file}:
        for parts in [(root, *below) for below in files if (root, *below) not in tree]:
            above = [parts[:depth] for depth in range(1, len(parts))]
            if any(tree.get(one) for one in above):
                return None
            number = count[above[-1]] = count.get(above[-1], -1) + 1
            rows |= {(one, False, False) for one in above}
            rows.add(((*above[-1], f"__TACOPAD__{number}"), True, True))
    return rows


@given(TREES)
@settings(max_examples=50)
def test_padding_is_that_of_plain_python(found: dict[tuple[str, ...], bool]) -> None:
    tree = trees(found)
    ids = pa.array(["/".join(parts) for parts in tree])
    paths = pa.array([f"/{parts[-1]}" if is_file else None for parts, is_file in tree.items()])
    fields = pa.table({"n": list(range(len(tree)))})
    wanted = padded(tree)
    if wanted is None:
        with pytest.raises(InvalidInputError, match="below a file"):
            nested(ids, paths, pad=True)
        return
    above: list[tuple[str, ...]] = [()]
    rows, numbers = [], {}
    for depth, table in enumerate(level_tables(nested(ids, paths, pad=True), fields)):
        parents = table["internal:parent_id"].to_pylist() if depth else [0] * table.num_rows
        assert parents == sorted(parents)
        own = [(*above[n], name) for n, name in zip(parents, table["id"].to_pylist(), strict=True)]
        for parts, row in zip(own, table.to_pylist(), strict=True):
            padding = parts[-1].startswith("__TACOPAD__")
            assert row["path"] == (
                f"/{parts[-1]}" if row["type"] == "FILE" and not padding else None
            )
            rows.append((parts, row["type"] == "FILE", padding))
            numbers[parts] = row.get("n")
        above = own
    assert sorted(rows) == sorted(wanted)
    assert {parts: n for parts, n in numbers.items() if n is not None} == {
        parts: n for n, parts in enumerate(tree)
    }
    for parts in tree:
        siblings = [one for one, _, _ in rows if one[:-1] == parts[:-1]]
        names = [one[-1] for one in siblings if one in tree]
        assert len(parts) == 1 or names == sorted(names)
