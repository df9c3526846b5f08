"""Tilesets joined, cut and laid out anew, payloads as they were stored."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from comal import tapalcatl
from comal.errors import InvalidInputError
from comal.tapalcatl import NewTile
from tests.tapalcatl.making import PNG, listed, payload, pyramid, sparse, unzipped


def stored(tree: Path) -> dict[str, tuple[object, ...]]:
    """Entries with their stored bytes, method, comment, extra field and time."""
    found: dict[str, tuple[object, ...]] = {}
    for path in tree.rglob("*.zip"):
        data = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                start = info.header_offset + 30 + len(info.filename) + len(info.extra)
                raw = data[start : start + info.compress_size]
                about = (info.compress_type, info.comment, info.extra, info.date_time)
                found[info.filename] = (raw, *about)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tiles = [
        NewTile(*key, data, "json", 1, (("X-A", str(key[0])),), 1_541_013_000 + key[0])
        for key, data in {**sparse(80, 8, kind="json"), **pyramid(2, kind="json")}.items()
    ]
    tapalcatl.build(tiles, tmp_path / "set", times="source", level=12, name="n")
    return tmp_path / "set"


@pytest.mark.parametrize("layout", [(1, [0, 1, 2, 3]), (8, [0, 5]), (4, [0])])
def test_another_layout(tree: Path, tmp_path: Path, layout: tuple[int, list[int]]) -> None:
    made = tapalcatl.remetatile(
        tree, tmp_path / "new", metatile=layout[0], materialized_zooms=layout[1]
    )
    assert (made.metatile, list(made.materialized_zooms)) == (layout[0], layout[1])
    assert stored(tmp_path / "new") == stored(tree)
    with tapalcatl.open(tmp_path / "new") as tileset:
        assert tileset.metadata.name == "n"
    back = tmp_path / "back"
    with tapalcatl.open(tree) as old:
        own = old.metadata
    tapalcatl.remetatile(
        tmp_path / "new", back, metatile=own.metatile, materialized_zooms=own.materialized_zooms
    )
    assert {path.relative_to(back): path.read_bytes() for path in back.rglob("*.*")} == {
        path.relative_to(tree): path.read_bytes() for path in tree.rglob("*.*")
    }


def test_cutting_by_zooms_and_merging(tree: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "upper", tmp_path / "lower"]
    tapalcatl.extract(tree, folders[0], max_zoom=3)
    tapalcatl.extract(tree, folders[1], min_zoom=4)
    tapalcatl.merge(folders, tmp_path / "again")
    assert stored(tmp_path / "again") == stored(tree)


def test_which_tile_counts(tmp_path: Path) -> None:
    one = {**pyramid(1), (2, 0, 0): PNG + b"one"}
    two = {(2, 0, 0): PNG + b"two", (2, 1, 1): payload(2, 1, 1)}
    for name, tiles in (("one", one), ("two", two)):
        tapalcatl.build(listed(tiles), tmp_path / name)
    sources = [tmp_path / "one", tmp_path / "two"]
    for conflict, winner in (("first", b"one"), ("last", b"two")):
        made = tapalcatl.merge(sources, tmp_path / conflict, conflict=conflict)
        assert made.tiles == len({**one, **two})
        assert unzipped(tmp_path / conflict)["2/0/0.png"] == PNG + winner
    with pytest.raises(InvalidInputError, match="several sources"):
        tapalcatl.merge(sources, tmp_path / "no", conflict="error")


def test_merging_different_formats(tmp_path: Path) -> None:
    tapalcatl.build(listed(pyramid(2)), tmp_path / "png")
    tapalcatl.to_mbtiles(listed(pyramid(2, kind="mvt")), tmp_path / "mvt.mbtiles")
    made = tapalcatl.merge([tmp_path / "png", tmp_path / "mvt.mbtiles"], tmp_path / "out")
    assert made.tiles == 42
    with tapalcatl.open(tmp_path / "out") as tileset:
        vector, picture = tileset.tile(2, 1, 1, ext="mvt"), tileset.tile(2, 1, 1, ext="png")
    assert vector is not None
    assert picture is not None
    assert vector.content_encoding == "gzip"
    assert vector.data == payload(2, 1, 1, "mvt")
    assert picture.data == payload(2, 1, 1)


@pytest.mark.parametrize("deep_first", [False, True])
def test_the_layout_of_a_merged_tileset(tmp_path: Path, deep_first: bool) -> None:
    tiles = pyramid(4)
    upper = listed({key: data for key, data in tiles.items() if key[0] < 3})
    lower = listed({key: data for key, data in tiles.items() if key[0] >= 3})
    tapalcatl.build(upper, tmp_path / "upper", metatile=1, materialized_zooms=[0, 2])
    tapalcatl.build(lower, tmp_path / "lower", metatile=4, materialized_zooms=[3])
    parts = [tmp_path / "upper", tmp_path / "lower"]
    made = tapalcatl.merge(parts[::-1] if deep_first else parts, tmp_path / "out")
    # The layout that begins at zoom 3 has no archive for the tiles above.
    assert (made.metatile, made.materialized_zooms) == (1, (0, 2))
    assert made.tiles == len(tiles)
    own = tapalcatl.merge([parts[1], listed(tiles)], tmp_path / "own")
    assert (own.metatile, own.materialized_zooms) == (2, (0,))
    said = tapalcatl.merge(parts, tmp_path / "said", metatile=4, materialized_zooms=[0, 4])
    assert (said.metatile, said.materialized_zooms) == (4, (0, 4))


def test_a_layout_whose_directories_would_grow_is_not_taken(tmp_path: Path) -> None:
    tapalcatl.build(listed(pyramid(1)), tmp_path / "a", metatile=1, materialized_zooms=[0])
    made = tapalcatl.merge([tmp_path / "a", [(9, 0, 0, b"{}")]], tmp_path / "out")
    assert made.materialized_zooms == tapalcatl.choose_layout(0, 9).materialized_zooms
