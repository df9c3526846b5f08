"""Tilesets in a single archive: ``x.zip`` in place of a folder."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import tapalcatl
from comal.errors import ConflictError, InvalidInputError, ObjectNotFoundError
from comal.tapalcatl import Generation1, TapalcatlWarning
from tests.tapalcatl.making import Key, content, listed, names_and_data, payload, pyramid, said

TILES = pyramid(4, kind="json")
ALPS = {
    key: payload(*key, "json") for key in [(6, 33, 22), (6, 34, 22), (7, 66, 45), (9, 267, 177)]
}


def beside(path: Path) -> list[str]:
    return sorted(child.name for child in path.parent.iterdir())


@pytest.fixture
def world(tmp_path: Path) -> Path:
    tapalcatl.build(listed(TILES), tmp_path / "world.zip", name="World")
    return tmp_path / "world.zip"


@pytest.fixture
def alps(tmp_path: Path) -> Path:
    tapalcatl.build(listed(ALPS), tmp_path / "alps.zip")
    return tmp_path / "alps.zip"


def test_the_root_is_the_smallest_that_holds_all(alps: Path) -> None:
    about = said(alps)
    # Columns 33 and 34 differ in the two lowest bits: four by four tiles from 32 and 20.
    assert (about["root"], about["metatile"], about["materializedZooms"]) == ("6/32/20", 4, [6])
    # Columns 33 and 34 of 64, row 22: that is what the map should be opened at.
    assert about["bounds"][::2] == [5.625, 16.875]
    assert content(alps) == names_and_data(ALPS, "json")
    report = tapalcatl.check(alps)
    assert (report.ok, report.problems) == (True, ())
    with tapalcatl.open(alps) as tileset:
        assert all(tileset.tile(*key) for key in ALPS)
        assert list(tileset.bounds) == about["bounds"]


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 127), st.integers(0, 127)), min_size=1))
@settings(max_examples=20, deadline=None)
def test_arithmetic_leads_every_tile_to_the_archive(
    tmp_path_factory: pytest.TempPathFactory, drawn: set[Key]
) -> None:
    keys = {(z, x >> (7 - z), y >> (7 - z)) for z, x, y in drawn}
    path = tmp_path_factory.mktemp("one") / "a.zip"
    tiles = {key: payload(*key, "json") for key in keys}
    made = tapalcatl.build(listed(tiles), path, durable=False)
    assert content(path) == names_and_data(tiles, "json")
    assert (made.archives, made.tiles) == (1, len(keys))
    about = said(path)
    (zoom,), side = about["materializedZooms"], about["metatile"]
    assert zoom == about["minzoom"] == min(keys)[0]
    assert about["maxzoom"] == max(keys)[0]

    def roots(side: int) -> set[Key]:
        return {
            (zoom, (x >> (z - zoom)) // side * side, (y >> (z - zoom)) // side * side)
            for z, x, y in keys
        }

    assert roots(side) == {tuple(map(int, about["root"].split("/")))}
    assert side == 1 or len(roots(side // 2)) > 1
    assert tapalcatl.check(path).ok
    assert beside(path) == ["a.zip"]


def test_bounds_grow_with_tiles(alps: Path) -> None:
    assert tapalcatl.put(alps, [(10, 560, 323, b"{}")]).added == 1
    assert said(alps)["maxzoom"] == 10
    # 10/560 lies in column 35 of zoom 6, beyond the bounds before.
    assert said(alps)["bounds"][2] == pytest.approx(560 / 1024 * 360 - 180 + 360 / 1024)
    assert tapalcatl.check(alps).ok
    for key, match in (((6, 0, 0), "another archive"), ((5, 16, 11), "above the first")):
        with pytest.raises(InvalidInputError, match=match):
            tapalcatl.put(alps, [(*key, b"{}")])


def test_an_archive_of_a_tree_ends_where_the_next_begins(tmp_path: Path) -> None:
    tapalcatl.build(listed(pyramid(3)), tmp_path / "tree", materialized_zooms=[0, 2], metatile=1)
    archive = tmp_path / "tree/0/0/0.zip"
    assert said(archive)["materializedZooms"] == [0, 2]
    before = archive.read_bytes()
    with pytest.raises(InvalidInputError, match=r"another archive.*\n.*belongs to 2/1/1"):
        tapalcatl.put(archive, [(3, 2, 2, payload(3, 2, 2))])
    assert archive.read_bytes() == before
    tapalcatl.put(archive, [(1, 1, 1, payload(3, 2, 2))])
    deepest = tmp_path / "tree/2/1/1.zip"
    for elsewhere in ((3, 0, 0), (1, 0, 0)):
        with pytest.raises(InvalidInputError, match="another archive"):
            tapalcatl.put(deepest, [(*elsewhere, b"x")])
    with pytest.raises(ObjectNotFoundError):
        tapalcatl.put(deepest.with_name("99.zip"), [(3, 0, 0, b"x")])
    tapalcatl.put(deepest, [(9, 128, 128, payload(9, 1, 1))])
    assert "9/128/128.png" in content(deepest)


def test_a_comment_without_these_zooms_has_no_end(world: Path) -> None:
    about = {key: value for key, value in said(world).items() if key != "materializedZooms"}
    with zipfile.ZipFile(world, "a") as archive:
        archive.comment = json.dumps(about).encode()
    tapalcatl.put(world, [(9, 1, 1, b"{}")])
    assert said(world)["maxzoom"] == 9
    assert "materializedZooms" not in said(world)


def test_merge_remetatile_extract(world: Path, alps: Path, tmp_path: Path) -> None:
    tapalcatl.build(listed(TILES), tmp_path / "tree", materialized_zooms=[0, 2])
    made = tapalcatl.merge([tmp_path / "tree", alps], tmp_path / "both.zip")
    assert (made.archives, made.materialized_zooms) == (1, (0,))
    assert content(tmp_path / "both.zip") == names_and_data({**TILES, **ALPS}, "json")
    tapalcatl.remetatile(tmp_path / "tree", tmp_path / "flat.zip")
    assert content(tmp_path / "flat.zip") == names_and_data(TILES, "json")
    assert (
        tapalcatl.remetatile(
            world, tmp_path / "back", metatile=1, materialized_zooms=[0, 2]
        ).archives
        == 17
    )
    part = tapalcatl.extract(
        tmp_path / "tree", tmp_path / "part.zip", bbox=(1, 1, 2, 2), min_zoom=2
    )
    assert part.archives == 1
    assert content(tmp_path / "part.zip") == names_and_data(
        {key: TILES[key] for key in [(2, 2, 1), (3, 4, 3), (4, 8, 7)]}, "json"
    )
    again = tapalcatl.extract(world, tmp_path / "again.zip", bbox=(1, 1, 2, 2))
    assert again.tiles == 5


def test_layouts_of_several_archives_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "a.zip"
    refused: list[tuple[str, dict[Key, bytes], dict[str, Any]]] = [
        ("several archives", TILES, {"materialized_zooms": [0, 2]}),
        ("several archives", ALPS, {"metatile": 1}),
        ("single archive", ALPS, {"hash_in_path": True}),
        ("single archive", ALPS, {"version": 1, "generation1": Generation1()}),
        ("holds no tiles", {}, {}),
    ]
    for match, tiles, options in refused:
        with pytest.raises(InvalidInputError, match=match):
            tapalcatl.build(listed(tiles), out, **options)
    assert list(tmp_path.iterdir()) == []
    made = tapalcatl.build(listed(ALPS), out, materialized_zooms=[2])
    assert (made.metatile, said(out)["root"]) == (1, "2/2/1")
    made = tapalcatl.build(listed(ALPS), out, metatile=64, overwrite=True)
    assert said(out)["root"] == "6/0/0"


def test_it_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "a.zip"

    def broken() -> Any:
        yield from listed(ALPS)
        raise OSError

    with pytest.raises(OSError, match=r"^"):
        tapalcatl.build(broken(), out)
    assert list(tmp_path.iterdir()) == []
    tapalcatl.build(listed(ALPS), out)
    before = out.read_bytes()
    with pytest.raises(ConflictError):
        tapalcatl.build(listed(TILES), out)
    assert out.read_bytes() == before
    tapalcatl.build(listed(TILES), out, overwrite=True)
    assert content(out) == names_and_data(TILES, "json")
    assert beside(out) == ["a.zip"]
    with pytest.raises(ObjectNotFoundError):
        tapalcatl.build(listed(TILES), tmp_path / "no" / "a.zip")
    (tmp_path / "folder.zip").mkdir()
    with pytest.raises(ConflictError, match="is a folder"):
        tapalcatl.build(listed(TILES), tmp_path / "folder.zip", overwrite=True)


def test_a_name_with_a_slash_is_a_folder(tmp_path: Path) -> None:
    tapalcatl.build(listed(ALPS), f"{tmp_path}/a.zip/")
    assert (tmp_path / "a.zip" / "meta.json").is_file()


def test_what_has_no_room_in_the_comment(tmp_path: Path) -> None:
    layers = [{"id": f"layer {number}", "fields": {}} for number in range(100)]
    extra = {"vector_layers": layers, "tilestats": ["x" * 70] * 1000, "attribution": "A"}
    with pytest.warns(TapalcatlWarning, match="left out: tilestats$"):
        tapalcatl.build(listed(ALPS), tmp_path / "a.zip", metadata=extra)
    about = said(tmp_path / "a.zip")
    assert about["vector_layers"] == layers  # some 4 kB: only the longest goes
    assert about["attribution"] == "A"
    assert "tilestats" not in about
    with tapalcatl.open(tmp_path / "a.zip") as tileset:
        assert tileset.metadata.extra["vector_layers"] == layers
    with pytest.raises(InvalidInputError, match="do not fit"):
        tapalcatl.edit_metadata(tmp_path / "a.zip", {"tilestats": extra["tilestats"]})
    # A comment that all but fills its room, to which a tile adds a format.
    tapalcatl.edit_metadata(tmp_path / "a.zip", {"tilestats": "x" * (60_400 - 4_000)})
    room = 65_535 - len(json.dumps(said(tmp_path / "a.zip"), separators=(",", ":")))
    tapalcatl.edit_metadata(tmp_path / "a.zip", {"filling": "y" * (room - 14)})
    with pytest.warns(TapalcatlWarning, match="left out: tilestats"):
        tapalcatl.put(tmp_path / "a.zip", [(6, 32, 22, payload(6, 32, 22))])
    assert said(tmp_path / "a.zip")["vector_layers"] == layers
    assert tapalcatl.check(tmp_path / "a.zip", level="structure").ok
    with pytest.raises(InvalidInputError, match="do not fit"):
        tapalcatl.build(listed(ALPS), tmp_path / "b.zip", name="n" * 70_000)
    assert beside(tmp_path / "a.zip") == ["a.zip"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"bounds": [6, 45.5, 7, 46]}, {"minzoom": 6, "maxzoom": 9}),
        ({"minzoom": 7, "maxzoom": 8}, {"minzoom": 6, "maxzoom": 9}),
        ({"minzoom": 0, "maxzoom": 12}, {"minzoom": 0, "maxzoom": 12}),
        ({"bounds": [-20, 10, 50, 70]}, {"bounds": [-20, 10, 50, 70]}),
        ({"bounds": [170, -10, -170, 10]}, {"minzoom": 6}),
        ({"bounds": None, "minzoom": None}, {"bounds": None, "minzoom": None, "maxzoom": 9}),
    ],
)
def test_metadata_never_hide_a_tile(
    alps: Path, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    done = tapalcatl.edit_metadata(alps, changes)
    about = said(alps)
    assert done.document == about
    assert {key: about.get(key) for key in expected} == expected
    # As another reader would ask: the tile's zoom is within, and it touches the box.
    for z, x, y in ALPS:
        assert about.get("minzoom", 0) <= z <= about.get("maxzoom", 26)
        west, south, east, north = about.get("bounds", [-180, -90, 180, 90])
        tile = mercantile_box(z, x, y)
        assert west < tile[2]
        assert east > tile[0]
        assert south < tile[3]
        assert north > tile[1]
    with tapalcatl.open(alps) as tileset:
        assert all(tileset.tile(*key) is not None for key in ALPS)
    assert "archive-bounds" not in tapalcatl.check(alps).counts


def mercantile_box(z: int, x: int, y: int) -> tuple[float, float, float, float]:
    """West, south, east and north of a tile, by the formula of the web."""

    def latitude(row: int) -> float:
        return math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * row / 2**z))))

    return x / 2**z * 360 - 180, latitude(y + 1), (x + 1) / 2**z * 360 - 180, latitude(y)


def test_an_archive_of_a_tileset_keeps_the_box_of_its_root(tmp_path: Path) -> None:
    tapalcatl.build(listed(ALPS), tmp_path / "t", metatile=1, materialized_zooms=[6])
    archive = tmp_path / "t" / "6" / "33" / "22.zip"
    tapalcatl.edit_metadata(archive, {"bounds": [6, 46, 7, 47]})
    west, south, east, north = mercantile_box(6, 33, 22)
    assert said(archive)["bounds"] == pytest.approx([west, south, east, north])
    assert tapalcatl.check(tmp_path / "t").counts.keys() <= {"tile-image", "dead-space"}


def test_bounds_that_miss_a_tile_are_told(alps: Path) -> None:
    about = {**said(alps), "bounds": [5.625, 45.1, 11.0, 48.9]}
    with zipfile.ZipFile(alps, "a") as archive:
        archive.comment = json.dumps(about).encode()
    report = tapalcatl.check(alps)
    assert "archive-bounds" in report.counts
    assert "6/34/22" in report.problems[0].place
