"""Building tilesets: what is in the archives, what they say, and where each tile is found."""

from __future__ import annotations

import datetime as dt
import json
import re
import struct
import zipfile
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import tapalcatl
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    ObjectChangedError,
    StorageError,
)
from comal.grid.quadbin import interleave
from comal.tapalcatl import Generation1, NewTile
from comal.tapalcatl.containers.base import Square, Tiles, TileSource
from comal.tapalcatl.layout import Layout, Template, TreeLayout
from comal.tapalcatl.spec import TileSetMetadata
from comal.tapalcatl.writing import building
from tests.support import files_below
from tests.tapalcatl.making import (
    PNG,
    Key,
    data_of,
    listed,
    names_and_data,
    payload,
    picture,
    pyramid,
    said,
    sparse,
    unzipped,
    write_files,
    write_mbtiles,
)


def test_entries_stand_by_zoom_and_morton_code(tmp_path: Path) -> None:
    tapalcatl.build(listed(pyramid(4)), tmp_path / "out", metatile=4, materialized_zooms=[0, 2])
    for path in (tmp_path / "out").rglob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            names = [tuple(map(int, name[:-4].split("/"))) for name in archive.namelist()]
            offsets = [info.header_offset for info in archive.infolist()]
        assert names == sorted(names, key=lambda key: (key[0], int(interleave(key[1], key[2]))))
        assert offsets == sorted(offsets)


VECTOR = "application/vnd.mapbox-vector-tile"
ZIPPED = [{"Content-Type": VECTOR}, {"Content-Encoding": "gzip"}]


@pytest.mark.parametrize(
    ("kind", "choice", "formats", "methods"),
    [
        ("png", "auto", {"png": "image/png"}, {0}),
        ("mvt", "auto", {"mvt": ZIPPED}, {0}),
        ("pbf", "auto", {"mvt": VECTOR}, {0, 8}),
        ("json", "auto", {"json": "application/json"}, {8}),
        ("json", "store", {"json": "application/json"}, {0}),
        ("json", "deflate", {"json": "application/json"}, {8}),
    ],
)
def test_only_what_is_not_compressed_is_deflated(
    tmp_path: Path, kind: str, choice: str, formats: dict[str, Any], methods: set[int]
) -> None:
    tiles = pyramid(2, kind=kind)
    tapalcatl.build(listed(tiles), tmp_path / "out", compression=choice)
    assert said(tmp_path / "out")["formats"] == formats
    with zipfile.ZipFile(tmp_path / "out" / "0" / "0" / "0.zip") as archive:
        assert {info.compress_type for info in archive.infolist()} <= methods
    with tapalcatl.open(tmp_path / "out") as tileset:
        assert all(data_of(tileset, *key) == data for key, data in tiles.items())


def test_tiles_of_another_encoding_say_so(tmp_path: Path) -> None:
    tiles = pyramid(1, kind="mvt")
    tiles[1, 1, 1] = payload(1, 1, 1, "pbf")
    tapalcatl.build(listed(tiles), tmp_path / "out")
    with tapalcatl.open(tmp_path / "out") as tileset:
        odd, plain = tileset.tile(1, 1, 1), tileset.tile(1, 0, 0)
    assert odd is not None
    assert plain is not None
    assert (odd.content_encoding, plain.content_encoding) == ("identity", "gzip")


def test_the_same_input_gives_the_same_bytes(tmp_path: Path, processes: Executor) -> None:
    tiles = sparse(300, 9)
    path = write_mbtiles(tmp_path / "a.mbtiles", tiles, [("name", "x")])
    found = []
    with ThreadPoolExecutor(3) as threads:
        for number, executor in enumerate((None, threads, processes)):
            out = tmp_path / f"out{number}"
            tapalcatl.build(path, out, executor=executor)
            found.append(files_below(out))
    assert found[0] == found[1] == found[2]
    other = write_mbtiles(tmp_path / "b.mbtiles", dict(reversed(list(tiles.items()))))
    tapalcatl.build(other, tmp_path / "other", name="x")
    again = files_below(tmp_path / "other")
    assert set(again) == set(found[0])
    assert all(data == found[0][name] for name, data in again.items() if name.endswith(".zip"))


@pytest.mark.parametrize("name", ["tree", "one.zip"])
@pytest.mark.parametrize("tiles", [sparse(200, 8), pyramid(4, kind="json")], ids=["png", "json"])
def test_large_groups_are_streamed_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, tiles: dict[Key, bytes]
) -> None:
    whole, streamed = tmp_path / "whole", tmp_path / "streamed"
    whole.mkdir()
    streamed.mkdir()
    tapalcatl.build(listed(tiles), whole / name)
    monkeypatch.setattr(building, "HELD", 100)
    monkeypatch.setattr(building, "_BLOCK", 1000)
    tapalcatl.build(listed(tiles), streamed / name)
    assert files_below(streamed) == files_below(whole)


KEYS = st.integers(0, 7).flatmap(
    lambda z: st.tuples(st.just(z), st.integers(0, (1 << z) - 1), st.integers(0, (1 << z) - 1))
)
SECOND = st.fixed_dictionaries(
    {
        "metatile": st.sampled_from([1, 2, 4, 8]),
        "materialized_zooms": st.sets(st.integers(1, 6), max_size=3).map(lambda z: [0, *sorted(z)]),
        "hash_in_path": st.booleans(),
    }
)
FIRST = st.fixed_dictionaries(
    {
        "metatile": st.sampled_from([4, 8]),
        "tile_size": st.sampled_from([256, 512, 1024]),
        # Beyond the deepest zoom of archives tiles come out of deeper levels (format note 1.3).
        "max_detail_zoom": st.sampled_from([None, 1, 2, 3]),
        "layer": st.sampled_from(["", "all"]),
        "layout": st.sampled_from(["plain", "prefix-hash", "hash-prefix"]),
        "prefix": st.sampled_from(["abc", "p"]),
        "max_zoom": st.just(7),
    }
)


@given(st.sets(KEYS, min_size=1, max_size=40), SECOND, FIRST)
@settings(max_examples=12)
def test_any_pyramid_in_any_layout_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    keys: set[Key],
    second: dict[str, Any],
    first: dict[str, Any],
) -> None:
    """And from there into Tapalcatl 1, and out of that again."""
    folder = tmp_path_factory.mktemp("any")
    tiles = {key: payload(*key, "json") for key in sorted(keys)}
    old: dict[str, Any] = {"version": 1, "generation1": Generation1(**first)}
    source: Any = listed(tiles)
    steps = [(second, {}), (old, {"version": 1, **first}), (second, {})]
    for number, (options, opening) in enumerate(steps):
        out = folder / str(number)
        made = tapalcatl.build(source, out, **options)
        assert made.tiles == len(tiles)
        assert (made.min_zoom, made.max_zoom) == (min(keys)[0], max(keys)[0])
        source = tapalcatl.open(out, **opening)
        assert {tuple(key) for key in source.keys().tolist()} == keys
        assert all(data_of(source, *key) == data for key, data in tiles.items())
        if options is second:
            assert unzipped(out) == names_and_data(tiles, "json")
            assert set(tapalcatl.check(out, level="full").counts) <= {"archive-missing"}
        assert (out / "meta.json").exists() == (options is second)


def test_metadata_of_the_source_and_of_the_caller(tmp_path: Path) -> None:
    about = [
        ("name", "Łódź"),
        ("description", "old"),
        ("format", "png"),
        ("bounds", "-10,-20,30,40"),
        ("center", "1,2,3"),
        ("attribution", "them"),
        ("type", "overlay"),
        ("json", '{"vector_layers": [{"id": "a"}]}'),
    ]
    path = write_mbtiles(tmp_path / "a.mbtiles", pyramid(3), about)
    tapalcatl.build(
        path, tmp_path / "out", description="new", metadata={"attribution": None, "x": 1}
    )
    text = (tmp_path / "out" / "meta.json").read_bytes()
    assert text.isascii()
    meta = json.loads(text)
    assert meta["name"] == "Łódź"
    assert meta["description"] == "new"
    assert (meta["center"], meta["x"]) == ([1.0, 2.0, 3], 1)
    assert meta["vector_layers"] == [{"id": "a"}]
    assert not {"attribution", "type", "format", "json"} & meta.keys()
    tapalcatl.build(path, tmp_path / "ours", attribution="us")
    assert said(tmp_path / "ours")["attribution"] == "us"


WRONG_TILES: list[tuple[Any, ...]] = [
    *((z, 0, 0, PNG) for z in (1.7, "1", float("inf"), float("nan"), None)),
    *((0, 0, 0, PNG, "png", scale) for scale in ("2", None)),
    (0, 0, 0, PNG, 5),
    *(
        (0, 0, 0, PNG, "png", 1, headers)
        for headers in ({"X-A": "b"}, "ab", 5, None, [("X-A",)], [("X-A", 1)])
    ),
    *((0, 0, 0, PNG, "png", 1, (), modified) for modified in (2**70, 1.5, "x")),
]
WRONG_OPTIONS: list[dict[str, Any]] = [
    *({"formats": {"png": headers}} for headers in (5, [{"X-A": "b"}], {"X-A": "b"})),
    *(
        {"metadata": {key: value}}
        for key, value in (("name", "n"), ("minzoom", 5), ("source", "x"))
    ),
    # A document with these could not be read again.
    *({"metadata": {"x": value}} for value in ("\udcff", 10**400)),
    {"bounds": (0, 5, 1, 1)},
    {"metatile": 1 << 40},
    *({"version": 1, key: value} for key, value in (("metatile", 8), ("name", "n"))),
    {"generation1": Generation1(metatile=8)},
]


@pytest.mark.parametrize("tile", WRONG_TILES, ids=repr)
def test_what_is_no_tile_is_refused(tmp_path: Path, tile: tuple[Any, ...]) -> None:
    with pytest.raises(ComalError):
        tapalcatl.build([tile], tmp_path / "out", times="source")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", WRONG_OPTIONS, ids=lambda one: repr(one)[:40])
@pytest.mark.parametrize("name", ["out", "out.zip"])
def test_what_no_reader_would_find_is_refused(
    tmp_path: Path, options: dict[str, Any], name: str
) -> None:
    with pytest.raises(ComalError):
        tapalcatl.build([(0, 0, 0, PNG)], tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seconds", [1_541_013_027, 2_000_000_001, 4_102_444_801])
@pytest.mark.parametrize("kind", [int, np.int64])
def test_times_of_any_integer(tmp_path: Path, seconds: int, kind: type) -> None:
    tile = NewTile(0, 0, 0, PNG, "png", modified=kind(seconds))
    tapalcatl.build([tile], tmp_path / "out.zip", times="source")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        date = archive.infolist()[0].date_time
    assert dt.datetime(*date, tzinfo=dt.UTC).timestamp() == seconds - 1
    with tapalcatl.open(tmp_path / "out.zip") as tileset:
        found = tileset.tile(0, 0, 0)
        # Extra fields have seconds until 2038, MS-DOS every other one.
        assert found is not None
        assert found.modified == seconds - (seconds >= 1 << 31)


def test_bounds_are_never_too_narrow(tmp_path: Path) -> None:
    tiles = {(5, 3, 4): payload(5, 3, 4), (2, 3, 3): payload(2, 3, 3)}
    tapalcatl.build(listed(tiles), tmp_path / "out", bounds=(-1, -1, 1, 1), materialized_zooms=[0])
    with tapalcatl.open(tmp_path / "out") as tileset:
        assert all(tileset.tile(*key) is not None for key in tiles)
    tight = {(5, 16, 15): payload(5, 16, 15)}
    made = tapalcatl.build(listed(tight), tmp_path / "tight", bounds=(1, 1, 2, 2))
    assert made.bounds == (1, 1, 2, 2)


def test_headers_times_and_scales(tmp_path: Path) -> None:
    tiles = [
        NewTile(0, 0, 0, payload(0, 0, 0), "png", 2, (("X-A", "b"),), 1_541_013_027),
        NewTile(1, 0, 0, payload(1, 0, 0), "png", 2),
    ]
    tapalcatl.build(
        tiles, tmp_path / "out", times="source", entry_headers={(1, 0, 0): (("X-C", "d"),)}
    )
    with tapalcatl.open(tmp_path / "out") as tileset:
        one, two = tileset.tile(0, 0, 0, scale=2), tileset.tile(1, 0, 0)
    assert one is not None
    assert two is not None
    assert (one.header("x-a"), two.header("X-C")) == ("b", "d")
    # The odd second is only in the extra field.
    assert one.modified == 1_541_013_027
    with zipfile.ZipFile(tmp_path / "out" / "0" / "0" / "0.zip") as archive:
        first, second = archive.infolist()
    assert first.filename == "0/0/0@2x.png"
    assert first.date_time == (2018, 10, 31, 19, 10, 26)
    assert struct.unpack("<HHBi", first.extra) == (0x5455, 5, 1, 1_541_013_027)
    assert (second.date_time, second.extra) == ((1980, 1, 1, 0, 0, 0), b"")


@pytest.mark.parametrize("time", [1_541_013_026, "2018-10-31T19:10:26Z"])
def test_one_time_for_all(tmp_path: Path, time: Any) -> None:
    tapalcatl.build(listed(pyramid(1)), tmp_path / "out", times=time, exact_times=True)
    with zipfile.ZipFile(tmp_path / "out" / "0" / "0" / "0.zip") as archive:
        assert {info.date_time for info in archive.infolist()} == {(2018, 10, 31, 19, 10, 26)}
        assert {len(info.extra) for info in archive.infolist()} == {9}


@pytest.mark.parametrize(
    ("tiles", "options", "match"),
    [
        ([], {}, "holds no tiles"),
        (listed(pyramid(3)), {"materialized_zooms": [2]}, "above the first"),
        (listed(pyramid(1)), {"version": 3}, "version"),
        (listed(pyramid(1)), {"compression": "lzma"}, "compression"),
        ([(1, 2, 0, b"x")], {}, "outside its zoom"),
        (listed(pyramid(1)), {"entry_headers": {(0, 0, 0): (("Set-Cookie", "x"),)}}, "cannot set"),
    ],
)
def test_what_cannot_be_built(
    tmp_path: Path, tiles: Any, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidInputError, match=match):
        tapalcatl.build(tiles, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def stopped(tmp_path: Path, error: BaseException, **options: Any) -> list[Path]:
    """Archives that are finished beside a target when a build of a file ends with an error."""
    path = write_mbtiles(tmp_path / "a.mbtiles", pyramid(3))

    def stop(done: int, total: int | None, what: str) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        tapalcatl.build(path, tmp_path / "out", progress=stop, **options)
    assert not (tmp_path / "out").exists()
    work = tmp_path / ".out.comal-build"
    if work.exists():
        assert re.search(r"comal clean .*out", str(caught.value))
    return sorted(work.rglob("*.zip"))


LAYOUT: dict[str, Any] = {"metatile": 1, "materialized_zooms": [0, 2]}
FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize("options", [LAYOUT, {"metatile": 2}], ids=["the same", "another"])
def test_a_broken_build_is_gone_on_with(tmp_path: Path, options: dict[str, Any]) -> None:
    finished = stopped(tmp_path, StorageError("away"), **LAYOUT)
    finished.pop().unlink()
    # As a kill leaves it: an archive has its name before all of its bytes.
    finished[0].write_bytes(finished[0].read_bytes()[:-30])
    made = tapalcatl.build(tmp_path / "a.mbtiles", tmp_path / "out", **options)
    assert made.kept == (len(finished) - 1 if options is LAYOUT else 0)
    assert unzipped(tmp_path / "out") == names_and_data(pyramid(3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mbtiles", "out"]


@pytest.mark.parametrize("least", [1, 9, 17])
def test_a_build_that_is_gone_on_with_has_the_bytes_of_one(tmp_path: Path, least: int) -> None:
    """Also where only a kept archive knows of a format."""
    names = {f"{z}/{x}/{y}.png": payload(z, x, y) for z, x, y in pyramid(4)}
    names |= {f"4/{x}/{y}.{ext}": b"x" for x, y, ext in ((1, 3, "mvt"), (3, 9, "json"))}
    source = write_files(tmp_path / "source", names)
    tapalcatl.build(source, tmp_path / "go", **LAYOUT)

    def stop(done: int, total: int | None, what: str) -> None:
        if done >= least:
            raise StorageError("away")

    for name in ("out", "more"):
        with pytest.raises(StorageError):
            tapalcatl.build(source, tmp_path / name, progress=stop, **LAYOUT)
    assert tapalcatl.build(source, tmp_path / "out", **LAYOUT).kept >= least
    assert files_below(tmp_path / "out") == files_below(tmp_path / "go")
    write_files(source, {"0/0/0.png": payload(1, 1, 1)})  # nothing is mixed
    assert tapalcatl.build(source, tmp_path / "more", **LAYOUT).kept == 0
    with tapalcatl.open(tmp_path / "more") as tiles:
        assert data_of(tiles, 0, 0, 0) == payload(1, 1, 1)


@pytest.mark.parametrize(
    ("error", "resume"), [(KeyboardInterrupt(), True), (FULL, True), (StorageError("away"), False)]
)
def test_a_build_that_leaves_nothing(tmp_path: Path, error: BaseException, resume: bool) -> None:
    assert not stopped(tmp_path, error, resume=resume, **LAYOUT)
    assert [path.name for path in tmp_path.iterdir()] == ["a.mbtiles"]


def test_a_document_beside_tapalcatl_1_is_nobody_s_to_remove(tmp_path: Path) -> None:
    """Older versions wrote them; people put there what a tileset gives, which looks the same."""
    how: dict[str, Any] = {"version": 1, "generation1": Generation1(metatile=4)}
    tapalcatl.build(listed(pyramid(3)), tmp_path / "out", **how)
    with tapalcatl.open(tmp_path / "out", version=1, metatile=4) as tiles:
        document = json.dumps(tiles.tilejson("https://example.org/{z}/{x}/{y}.png"))
    write_files(tmp_path / "out", {"tilejson/mapbox.json": document.encode()})
    before = files_below(tmp_path)
    with pytest.raises(ConflictError, match=r"tilejson/mapbox\.json(?s:.*)move them away"):
        tapalcatl.build(listed(pyramid(2)), tmp_path / "out", overwrite=True, **how)
    assert files_below(tmp_path) == before
    (tmp_path / "out" / "tilejson").rename(tmp_path / "tilejson")
    tapalcatl.build(listed(pyramid(2)), tmp_path / "out", overwrite=True, **how)
    with tapalcatl.open(tmp_path / "out", version=1, metatile=4) as tiles:
        assert tiles.tile(3, 0, 0) is None
        assert data_of(tiles, 2, 0, 0) == payload(2, 0, 0)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    made = tapalcatl.build(
        listed(pyramid(5)),
        tmp_path / "out",
        progress=lambda done, total, what: told.append((done, total)),
    )
    assert told[-1] == (made.archives, made.archives)


ODD_NAMES = ["plain", '"bounds":[1,2,3,4]', "\0bounds", '","root":"9/9/9', "\0root", "é\u007f%d%"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_comments_of_many_archives_are_those_of_each(name: str) -> None:
    layout = Layout((0, 3), 2)
    whole = TileSetMetadata(
        name=name,
        description=name,
        formats={"bounds": (("Content-Type", "a/b"), ("Content-Encoding", "gzip"))},
        min_zoom=1,
        max_zoom=5,
        bounds=(-180.0, -85.0, 180.0, 85.0),
        extra={"root": name, "bounds": [name], "vector_layers": [{"id": name}]},
    )
    second = TreeLayout(layout, Template("{z}/{x}/{y}.zip"), whole)
    for roots in ([(0, 0, 0)], [(3, x, y) for x in (0, 2, 4, 6) for y in (0, 6)]):
        each = [second.comment(root, whole.formats) for root in roots]
        assert list(second.comments(roots, whole.formats)) == each
        assert all(json.loads(comment)["name"] == name for comment, _ in each)


def test_read_ahead_keeps_the_order_and_stops_at_an_error() -> None:
    squares = [Square(4, x, 0, 1) for x in range(9)]
    asked: list[int] = []

    class Some(TileSource):
        def read(self, square: Square) -> Tiles:
            asked.append(square.x)
            return [] if square.x == 5 else square  # type: ignore[return-value]

    found: list[object] = []
    with pytest.raises(ObjectChangedError):
        found.extend(Some().gather(squares))
    # What was read before the error was given out; not all was asked for behind it.
    assert found == squares[:5]
    assert len(asked) <= 8


@pytest.mark.parametrize("scales", [(1,), (2,), (1, 2), (1, 2, 3)])
def test_comments_and_document_know_the_scales(tmp_path: Path, scales: tuple[int, ...]) -> None:
    """However they come: from an iterable, from files, and from tilesets made of these."""
    options: dict[str, Any] = {"metatile": 1, "materialized_zooms": [0, 1]}
    tiles = [
        tapalcatl.NewTile(*key, picture(1), "png", one) for key in pyramid(2) for one in scales
    ]
    tapalcatl.build(iter(tiles), tmp_path / "given", **options)
    tapalcatl.build(iter(tiles), tmp_path / "one.zip")
    marks = {1: "", 2: "@2x", 3: "@3x"}
    names = {f"{t.z}/{t.x}/{t.y}{marks[int(t.scale)]}.png": t.data for t in tiles}
    tapalcatl.build(write_files(tmp_path / "files", names), tmp_path / "loose", **options)
    tapalcatl.build(tmp_path / "given", tmp_path / "copied", **options)
    tapalcatl.merge([tmp_path / "given", tmp_path / "loose"], tmp_path / "merged", **options)
    tapalcatl.extract(tmp_path / "given", tmp_path / "part", max_zoom=1)
    for name in ("given", "one.zip", "loose", "copied", "merged", "part"):
        meta = said(tmp_path / name)
        assert (meta.get("minscale", 1), meta.get("maxscale", 1)) == (scales[0], scales[-1]), name
        assert not tapalcatl.check(tmp_path / name).counts, name
    # A tile of another scale in one archive is no contradiction to the comments of the others.
    for name in ("given", "one.zip"):
        tapalcatl.put(tmp_path / name, [tapalcatl.NewTile(0, 0, 0, picture(2), "png", 4)])
        assert said(tmp_path / name)["maxscale"] == 4
        assert set(tapalcatl.check(tmp_path / name).counts) == {"dead-space"}
