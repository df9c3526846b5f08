"""Reading tiles: every layout of the table, every form of a tile, and how much is fetched."""

from __future__ import annotations

import asyncio
import hashlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import raquet, storage
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from comal.limits import Limits
from comal.raquet.reading import opening
from comal.raquet.reading.tilefile import ABSENT, TileIndex, cell_of
from tests.raquet.build import Plan, blobs_of, cell, framed, noise, stored, write
from tests.support import SHARED, needs_shared

if TYPE_CHECKING:
    from tests.servers.http import HttpServer
    from tests.servers.s3 import S3Server

TILES = {
    (z, x, y): [noise(z * 100 + x * 10 + y)]
    for z, x, y in [(2, 1, 1), (3, 2, 2), (3, 3, 2), (4, 4, 4), (4, 5, 4), (4, 7, 5), (4, 4, 5)]
}
ABSENT_TILE = (4, 6, 4)
ASKED = [ABSENT_TILE, *TILES, *reversed(TILES), ABSENT_TILE, (4, 4, 4)]


def check_all(file: raquet.RaquetFile, tiles: Mapping[Any, Any]) -> None:
    for (z, x, y), bands in tiles.items():
        found = file.tile(z, x, y)
        assert found.shape == (len(bands), *file.tile(z, x, y, bands=1).shape[1:])
        for index, band in enumerate(bands):
            np.testing.assert_array_equal(found[index], band)


# -- layouts of the table -------------------------------------------------------------------------

SEVERAL = [(kind, kind, None) for kind in ("uint8", "int16", "float32")]
PLANS = {
    "comal": Plan(),
    "checksums": Plan(checksum=True),
    "pages of version 2": Plan(page_version="2.0"),
    "metadata last": Plan(metadata_at="last"),
    "metadata inside, one group": Plan(metadata_at="inside"),
    "unsorted": Plan(sort=False, metadata_at="last", pages=False),
    "unsorted with pages": Plan(sort=False),
    "no index": Plan(pages=False),
    "dictionary": Plan(dictionary=True, metadata_at="last", rows_in_group=3),
    "dictionary and codec": Plan(dictionary=True, codec="snappy", pages=False),
    "codec and pages": Plan(codec="zstd"),
    "small groups": Plan(rows_in_group=1),
    "signed": Plan(block_type=pa.int64()),
    "required": Plan(required=True),
    "large types": Plan(large=True),
    "large types, dictionary": Plan(large=True, dictionary=True, pages=False),
    "no document in the footer": Plan(in_footer=False),
    "zlib": Plan(frame=lambda data: framed(data, "zlib")),
    "hybrid": Plan(frame=lambda data: framed(data, "hybrid")),
    "raw": Plan(compression=None),
    "nested": Plan(nested=True),
    "no squares": Plan(block=(16, 48)),
    "several types": Plan(bands=SEVERAL),
    "several types, nested": Plan(bands=SEVERAL, nested=True),
    "interleaved": Plan(
        bands=[(f"b{n}", "uint16", None) for n in range(3)], interleaved=True, nested=True
    ),
}


def tiles_of(plan: Plan) -> dict[Any, list[Any]]:
    return {
        key: [noise(sum(key) + n, kind, plan.block) for n, (_, kind, _) in enumerate(plan.bands)]
        for key in reversed(TILES)
    }


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_layout(tmp_path: Path, plan: Plan) -> None:
    tiles = tiles_of(plan)
    path = write(tmp_path / "a.parquet", tiles, plan)
    with raquet.open(path) as file:
        assert file.cells().tolist() == sorted(map(cell, tiles))
        check_all(file, tiles)
        assert file.raw_tile(*ABSENT_TILE) is None
        for tile, bands in tiles.items():
            assert file.raw_tile(*tile) == tuple(blobs_of(bands, plan))
            assert file.has_tile(*tile)
        assert not file.has_tile(*ABSENT_TILE)
        for number, (name, kind, _) in enumerate(plan.bands):
            column = 0 if plan.interleaved else number
            blobs = {tile: blobs_of(bands, plan)[column] for tile, bands in tiles.items()}
            expected = [blobs.get(tile) for tile in ASKED]
            assert file.raw_blobs(ASKED, name) == expected
            assert file.raw_blobs(np.array(ASKED), number + 1, verify=False) == expected
            assert list(file.iter_raw_blobs(iter(ASKED), name)) == expected
            assert asyncio.run(file.raw_blobs_async(ASKED, name)) == expected
            assert [file.raw_blob(*tile, name) for tile in ASKED] == expected
            for band in (name, number + 1):
                found = file.tile(4, 4, 4, bands=band)
                assert found.dtype == kind
                np.testing.assert_array_equal(found[0], tiles[4, 4, 4][number])
        assert file.raw_blobs([]) == list(file.iter_raw_blobs([])) == []
        np.testing.assert_array_equal(file.tiles(np.array(ASKED)), file.tiles(ASKED))
    again = pickle.loads(pickle.dumps(file))
    assert again.raw_blobs(ASKED, name) == expected
    check_all(again, tiles)


def test_bands_that_are_chosen(tmp_path: Path) -> None:
    plan = Plan(bands=[*SEVERAL, ("a", "int64", None), ("b", "uint64", None)])
    tiles = tiles_of(plan)
    file = raquet.open(write(tmp_path / "a.parquet", tiles, plan))
    found = file.tile(4, 4, 4, bands=["float32", 1])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[1], tiles[4, 4, 4][0])
    for bands in ("nothing", 0, 6, [], ["uint8", "x"]):
        with pytest.raises(InvalidInputError):
            file.tile(4, 4, 4, bands=bands)
    with pytest.raises(InvalidInputError, match="no type"):
        file.tile(4, 4, 4, bands=["a", "b"])


# -- what tiles say -------------------------------------------------------------------------------


def test_tiles_and_bands_that_are_not_there(tmp_path: Path) -> None:
    plan = Plan(bands=[("a", "uint8", 7), ("b", "float32", "NaN"), ("c", "int16", None)])
    tiles: dict[Any, Any] = {(1, 0, 0): [noise(1), None, noise(3, "int16")]}
    file = raquet.open(write(tmp_path / "a.parquet", tiles, plan))
    found = file.tile(1, 0, 0)
    assert np.isnan(found[1]).all()
    masked = file.tile(1, 0, 0, masked=True)
    assert masked.mask[1].all()
    assert not masked.mask[2].any()
    np.testing.assert_array_equal(masked.mask[0], tiles[1, 0, 0][0] == 7)
    empty = file.tile(1, 1, 1)
    assert (empty[0] == 7).all()
    assert np.isnan(empty[1]).all()
    assert (empty[2] == 0).all()
    assert file.tile(1, 1, 1, masked=True).mask.all()
    assert np.isnan(file.tile(1, 1, 1, scaled=True)).all()
    assert file.raw_tile(1, 0, 0) is not None
    assert file.raw_blob(1, 0, 0, "b") is None


def test_scale_and_offset(tmp_path: Path) -> None:
    said = {"bands": [{"name": "a", "type": "int16", "nodata": -1, "scale": 0.5, "offset": 10}]}
    pixels = noise(1, "int16")
    pixels[0, 0] = -1
    plan = Plan(bands=[("a", "int16", None)], nested=True, change=said)
    file = raquet.open(write(tmp_path / "a.parquet", {(1, 0, 0): [pixels]}, plan))
    found = file.tile(1, 0, 0, scaled=True)
    assert found.dtype == np.float64
    assert np.isnan(found[0, 0, 0])
    np.testing.assert_array_equal(found[0, 1:], pixels[1:] * 0.5 + 10)
    masked = file.tile(1, 0, 0, scaled=True, masked=True)
    assert masked.mask.sum() == 1
    assert masked[0, 1, 1] == pixels[1, 1] * 0.5 + 10
    np.testing.assert_array_equal(file.read(scaled=True).data, found)
    assert file.points([-179.9], [0.1], scaled=True).item() == pixels[-1, 0] * 0.5 + 10


def test_a_tile_belongs_to_who_asked_for_it(tmp_path: Path) -> None:
    file = raquet.open(write(tmp_path / "a.parquet", TILES))
    file.tile(4, 4, 4)[:] = 0
    check_all(file, TILES)


def test_what_is_asked_wrong(tmp_path: Path) -> None:
    file = raquet.open(write(tmp_path / "a.parquet", TILES))
    for tile in ((1, 0, 0), (5, 0, 0), (4, 16, 0), (4, 0, 16), (4, -1, 0), (60, 0, 0)):
        with pytest.raises(InvalidInputError) as alone:
            file.tile(*tile)
        for ask in (file.raw_blobs, file.iter_raw_blobs, file.tiles):
            with pytest.raises(InvalidInputError) as error:
                ask([*TILES, tile])
            assert str(error.value) == str(alone.value)
    others: list[Any] = [("4", 4, 4), (4, 4.5, 4), (4, None, 4), (None, None, None)]
    for wrong in others:
        with pytest.raises(InvalidInputError, match="whole numbers"):
            file.tile(*wrong)
    lists: list[Any] = [*([one] for one in others), [(4, 4)], [4, 4, 4], [(4, 4, 4), (4, 4)], 5]
    for tiles in [*lists, [(4, 2**70, 0)]]:
        for ask in (file.raw_blobs, file.iter_raw_blobs, file.tiles):
            with pytest.raises(
                InvalidInputError, match=r"not a list of tiles|not a 64-bit integer"
            ):
                ask(tiles)
    with pytest.raises(InvalidInputError, match="no time"):
        file.tile(4, 4, 4, time=3)


# -- time -----------------------------------------------------------------------------------------

SERIES = {
    (z, x, 1, day): [noise(z + 10 * x + day, "int16")]
    for z, x in [(2, 1), (2, 2), (1, 0)]
    for day in (31, 0, 60)
    if (x, day) != (2, 31)
}


@pytest.mark.parametrize(
    "layout",
    [{}, {"sort": False}, {"pages": False}, {"sort": False, "dictionary": True}, {"stamps": False}],
)
def test_time_steps(tmp_path: Path, layout: dict[str, Any]) -> None:
    plan = Plan(bands=[("a", "int16", -1)], times=True, **layout)
    file = raquet.open(write(tmp_path / "a.parquet", SERIES, plan))
    assert file.times is not None
    assert file.times.values.tolist() == [0.0, 31.0, 60.0]
    assert file.times.units == "days since 2020-01-01"
    for (z, x, y, day), (band,) in SERIES.items():
        step = [0, 31, 60].index(day)
        instant = np.datetime64("2020-01-01") + np.timedelta64(day, "D")
        times: list[Any] = [step, step - 3, float(day), str(instant), instant]
        for time in times:
            np.testing.assert_array_equal(file.tile(z, x, y, time=time)[0], band)
    assert file.tile(2, 2, 1, time=1, masked=True).mask.all()
    assert file.read(zoom=2, time=2, masked=True).data.mask.mean() == 0.0
    assert len(file.cells()) == 3
    wrong: list[Any] = [3, -4, 1.5, "2020-01-02", None]
    for time in wrong:
        with pytest.raises(InvalidInputError, match="time"):
            file.tile(2, 1, 1, time=time)


def test_a_series_of_one_step_needs_no_time(tmp_path: Path) -> None:
    tiles = {(1, 0, 0, 5): [noise(1)]}
    file = raquet.open(write(tmp_path / "a.parquet", tiles, Plan(times=True)))
    np.testing.assert_array_equal(file.tile(1, 0, 0)[0], tiles[1, 0, 0, 5][0])


def test_the_same_tile_twice_at_a_time(tmp_path: Path) -> None:
    extra = [{"block": cell((2, 1, 1)), "time_cf": 31.0, "band_1": framed(bytes(256))}]
    tiles = {key: [noise(1)] for key in SERIES}
    file = raquet.open(write(tmp_path / "a.parquet", tiles, Plan(times=True, extra_rows=extra)))
    with pytest.raises(InvalidMetadataError, match="twice"):
        file.tile(2, 1, 1, time=1)
    np.testing.assert_array_equal(file.tile(2, 1, 1, time=0)[0], noise(1))


# -- sets -----------------------------------------------------------------------------------------


def parts(folder: Path) -> dict[Any, Any]:
    plan = Plan(nested=True)
    first = {key: bands for key, bands in TILES.items() if key[1] < 5}
    second = {key: bands for key, bands in TILES.items() if key[1] >= 5}
    write(folder / "one.parquet", first, plan)
    write(folder / "two.parquet", second, replace(plan, pages=False))
    (folder / "notes.txt").write_text("no part")
    return TILES


@pytest.mark.parametrize("few", [64, 1])
def test_a_partitioned_set(
    tmp_path: Path, http_server: HttpServer, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_FEW", few)
    tiles = parts(tmp_path)
    both = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    urls = [http_server.put(path.name, path.read_bytes()) for path in both]
    for path in (both, both[::-1], tmp_path, str(tmp_path) + "/", urls):
        with raquet.open(path) as file:
            check_all(file, tiles)
            assert file.metadata.num_blocks == 4
            assert file.metadata.min_zoom == 2
            assert len(file.documents()) == 2
            blobs = [framed(stored(band)) for (band,) in tiles.values()]
            assert file.raw_blobs(list(tiles), "band_1") == blobs
            assert list(file.iter_raw_blobs(list(tiles), 1)) == blobs
            assert asyncio.run(file.raw_blobs_async(list(tiles))) == blobs
            for found in (file.tiles(list(tiles)), asyncio.run(file.tiles_async(list(tiles)))):
                for bands, seen in zip(tiles.values(), found, strict=True):
                    np.testing.assert_array_equal(seen, bands)
            tails = [len(part.footer.tail.data) for part in file.store.parts]
            footers = [part.footer.size for part in file.store.parts]
            assert (tails == footers) == (few == 1)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", TILES)
    write(tmp_path / "b.parquet", TILES, Plan(bands=[("band_1", "uint8", 1)]))
    with pytest.raises(InvalidMetadataError, match="belong"):
        raquet.open(tmp_path)
    # Both hold all tiles.
    write(tmp_path / "b.parquet", TILES)
    with pytest.raises(InvalidMetadataError, match="twice"):
        raquet.open(tmp_path).tile(4, 4, 4)


def test_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        raquet.open(tmp_path)
    with pytest.raises(ObjectNotFoundError):
        raquet.open(tmp_path / "missing.parquet")
    with pytest.raises(InvalidInputError):
        raquet.open([])


# -- requests -------------------------------------------------------------------------------------


def counted(path: Path, **how: Any) -> tuple[storage.CountingSource, raquet.RaquetFile]:
    source = storage.CountingSource(storage.open_source(path))
    return source, raquet.open(source, **how)


BLOBS = [framed(stored(noise(1)))]
LARGE = {(9, n % 89, n // 89): BLOBS for n in range(89 * 89)}
COSTS: dict[str, tuple[Mapping[Any, Any], Plan, dict[str, Any], int, list[int]]] = {
    "small": (TILES, Plan(), {}, 1, [1, 0, 1]),
    "larger than the first read": (LARGE, Plan(), {}, 2, [1, 0, 1]),
    "no document in the footer": (LARGE, Plan(in_footer=False), {}, 3, [1, 0, 1]),
    "no room in the cache": (TILES, Plan(), {"cache_bytes": 100}, 1, [1, 1, 1]),
    "no cache": (TILES, Plan(), {"cache_bytes": 0}, 1, [1, 1, 1]),
}
"""Tiles, layout, how it is opened; requests for that, for a tile, the same again, and another."""


@pytest.mark.parametrize("name", COSTS)
def test_what_opening_and_a_tile_cost(tmp_path: Path, name: str) -> None:
    tiles, plan, how, opening, each = COSTS[name]
    source, file = counted(write(tmp_path / "a.parquet", tiles, plan), **how)
    assert source.requests == opening
    first, other = list(tiles)[5:7]
    for tile, requests in zip((first, first, other), each, strict=True):
        source.reset()
        file.tile(*tile)
        assert source.requests == requests
    assert source.log[-1].size < 400


def test_a_chunk_is_read_once(tmp_path: Path) -> None:
    plan = Plan(dictionary=True, pages=False)
    source, file = counted(write(tmp_path / "a.parquet", LARGE, plan))
    source.reset()
    for x in range(20):
        file.tile(9, x, 0)
    assert source.requests <= 20  # as many row groups as Z-order passes through
    source.reset()
    for x in range(20):
        file.raw_blob(9, x, 0)
    assert source.requests == 0


def test_row_groups_come_together(tmp_path: Path) -> None:
    tiles = [(9, x, y) for x in range(30) for y in range(30)]
    blobs = {tile: [framed(stored(noise(n)))] for n, tile in enumerate(tiles)}
    path = write(tmp_path / "a.parquet", blobs, Plan(dictionary=True, pages=False))
    source, file = counted(path)
    source.reset()
    found = file.tiles(tiles[::7])
    assert source.round_trips == 1
    with raquet.open(path, cache_bytes=0) as forgetful:
        again = forgetful.tiles(tiles[::7])
    for number, one, other in zip(range(0, 900, 7), found, again, strict=True):
        np.testing.assert_array_equal(one[0], noise(number))
        np.testing.assert_array_equal(other[0], noise(number))


@pytest.mark.parametrize("codec", ["none", "snappy"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_tiles_that_share_a_page(tmp_path: Path, codec: str, dictionary: bool) -> None:
    tiles = {(6, x, y): [noise(x * 8 + y, "float32", (64, 64))] for x in range(8) for y in range(8)}
    plan = Plan(
        bands=[("band_1", "float32", None)],
        block=(64, 64),
        dictionary=dictionary,
        pages=False,
        codec=codec,
    )
    path = write(tmp_path / "a.parquet", tiles, plan)
    with raquet.open(path) as file:
        check_all(file, tiles)
        assert file.raw_blob(6, 1, 1, "band_1") == framed(tiles[6, 1, 1][0].tobytes())
    _, file = counted(path)
    check_all(file, tiles)


@pytest.mark.parametrize("where", ["http", "s3"])
def test_remote(
    tmp_path: Path, http_server: HttpServer, request: pytest.FixtureRequest, where: str
) -> None:
    path = write(tmp_path / "a.parquet", TILES)
    if where == "http":
        url, config = http_server.put("a.parquet", path.read_bytes()), None
    else:
        server: S3Server = request.getfixturevalue("s3_server")
        url, config = server.put("raquet/a.parquet", path.read_bytes()), server.config
    source = storage.CountingSource(storage.open_source(url, config=config))
    file = raquet.open(source)
    check_all(file, TILES)
    assert source.requests == 1 + len(TILES)

    async def concurrently() -> Any:
        opened = await raquet.open_async(url, config=config)
        return await asyncio.gather(*(opened.tile_async(*tile) for tile in TILES))

    for found, bands in zip(asyncio.run(concurrently()), TILES.values(), strict=True):
        np.testing.assert_array_equal(found, bands)


def test_a_file_that_is_changed_while_it_is_open(tmp_path: Path, http_server: HttpServer) -> None:
    path = write(tmp_path / "a.parquet", TILES)
    data = path.read_bytes()
    url = http_server.put("a.parquet", data)
    files = [raquet.open(path), raquet.open(url)]
    for file in files:
        file.tile(4, 4, 4)
    other = {key: [noise(77)] for key in TILES}
    http_server.put("a.parquet", write(path, other).read_bytes())
    for file in files:
        for ask in (lambda: file.tile(4, 5, 4), lambda: file.tiles([(4, 5, 4)])):  # noqa: B023
            with pytest.raises(ObjectChangedError):
                ask()


# -- what is broken -------------------------------------------------------------------------------


def test_no_raquet_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for data in (b"", b"PAR1", b"x" * 1000, b"\x10\0\0\0PAR1"):
        path.write_bytes(data)
        with pytest.raises((NotThisFormatError, InvalidMetadataError)):
            raquet.open(path)
    import pyarrow.parquet as pq

    for table in (
        {"a": [1]},
        {"block": [1]},
        {"block": ["1"], "metadata": ["{}"]},
        {"block": [1.0], "metadata": ["{}"]},
        {"block": [1], "metadata": [1]},
    ):
        pq.write_table(pa.table(table), path)
        with pytest.raises(NotThisFormatError):
            raquet.open(path)


BROKEN: dict[str, tuple[Plan, str]] = {
    "no metadata row": (Plan(metadata_at="none"), "no metadata row"),
    "two of them": (Plan(extra_rows=[{"block": 0, "metadata": "{}"}]), "several metadata rows"),
    "no JSON": (Plan(in_footer=False), "metadata"),
    "a block that is null": (Plan(extra_rows=[{"block": None}]), "block is NULL"),
    "a band without a column": (
        Plan(change={"bands": [{"name": "other", "type": "uint8"}]}),
        "has no column of bytes",
    ),
    "a band of times": (
        Plan(change={"bands": [{"name": "time_cf", "type": "uint8"}]}),
        "not a band name",
    ),
}


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("name", BROKEN)
def test_tables_that_are_broken(tmp_path: Path, name: str, pages: bool) -> None:
    plan, match = BROKEN[name]
    text = "{]" if name == "no JSON" else None
    path = write(tmp_path / "a.parquet", TILES, replace(plan, pages=pages), text)
    with pytest.raises(InvalidMetadataError, match=match):
        raquet.open(path)


def test_metadata_in_a_row_of_data(tmp_path: Path) -> None:
    extra = [{"block": cell((4, 9, 9)), "metadata": "{}"}]
    with pytest.raises(InvalidMetadataError, match="several rows"):
        raquet.open(write(tmp_path / "a.parquet", TILES, Plan(extra_rows=extra, pages=False)))


@pytest.mark.parametrize("pages", [False, True])
def test_a_tile_that_stands_twice_is_refused_when_it_is_asked_for(
    tmp_path: Path, pages: bool
) -> None:
    extra = [{"block": cell((4, 5, 4)), "band_1": framed(bytes(256))}]
    file = raquet.open(write(tmp_path / "a.parquet", TILES, Plan(extra_rows=extra, pages=pages)))
    for ask in (
        lambda: file.tile(4, 5, 4),
        lambda: file.raw_blob(4, 5, 4),
        lambda: file.tiles([(4, 4, 4), (4, 5, 4)]),
        lambda: file.read(zoom=4),
    ):
        with pytest.raises(InvalidMetadataError, match="twice"):
            ask()
    np.testing.assert_array_equal(file.tile(4, 4, 4), TILES[4, 4, 4])


def test_ids_that_are_no_cells_hurt_nobody(tmp_path: Path) -> None:
    extra = [{"block": 7}, {"block": 2**64 - 1}, {"block": cell((4, 5, 4)) - 1}]
    file = raquet.open(write(tmp_path / "a.parquet", TILES, Plan(extra_rows=extra)))
    check_all(file, TILES)


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize("blob", [framed(bytes(1 << 20)), b""])
def test_a_tile_that_does_not_decode_names_its_place(
    tmp_path: Path, blob: bytes, pages: bool
) -> None:
    tiles: dict[Any, Any] = {**TILES, (4, 9, 9): [blob]}
    file = raquet.open(write(tmp_path / "a.parquet", tiles, Plan(pages=pages)))
    place = rf"block {cell((4, 9, 9))}, band_1"
    for ask in (lambda: file.tile(4, 9, 9), lambda: file.read(zoom=4)):
        with pytest.raises(InvalidMetadataError, match=place):
            ask()
    check_all(file, TILES)


def test_a_page_over_the_limit_is_not_fetched(tmp_path: Path) -> None:
    tiles: dict[Any, Any] = {**TILES, (4, 9, 9): [b"\x1f\x8b" * 50_000]}
    path = write(tmp_path / "a.parquet", tiles)
    file = raquet.open(path, limits=Limits(tile_bytes=8_000))
    with pytest.raises(LimitExceededError):
        file.tile(4, 9, 9)
    check_all(file, TILES)


# -- lookup ---------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 26), st.data())
def test_cells_are_those_of_the_format(z: int, data: st.DataObject) -> None:
    side = 1 << z
    x, y = data.draw(st.integers(0, side - 1)), data.draw(st.integers(0, side - 1))
    assert cell_of(z, x, y) == cell((z, x, y))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=60),
    st.integers(0, 7),
    st.booleans(),
    st.booleans(),
)
def test_lookup_finds_what_a_list_finds(
    pairs: list[tuple[int, int]], step: int, timed: bool, ascending: bool
) -> None:
    step, pairs = step * timed, [(one, at * timed) for one, at in pairs]
    pairs = sorted(pairs) if ascending else pairs
    ids, steps = (np.array([pair[at] for pair in pairs], np.int64) for at in (0, 1))
    lookup = TileIndex(ids, steps if timed else None, "here")
    asked = np.array([one for one in range(22) if pairs.count((one, step)) < 2], np.int64)
    expected = [
        pairs.index((one, step)) if (one, step) in pairs else ABSENT for one in asked.tolist()
    ]
    assert [lookup.row(one, step) for one in asked.tolist()] == expected
    assert lookup.rows(asked, step).tolist() == expected
    assert lookup.between(3, 15).tolist() == sorted({one for one, _ in pairs if 3 <= one <= 15})
    for one in {one for one, _ in pairs if pairs.count((one, step)) > 1}:
        with pytest.raises(InvalidMetadataError, match="twice"):
            lookup.row(one, step)
        with pytest.raises(InvalidMetadataError, match="twice"):
            lookup.rows(np.array([one]), step)


# -- files of the existing writers ----------------------------------------------------------------

FIXTURES = SHARED / "fixtures" / "raquet"


def expected() -> dict[str, Any]:
    path = FIXTURES / "expected.json"
    found: dict[str, Any] = json.loads(path.read_text())["files"] if path.exists() else {}
    return found


def digest(pixels: Any) -> str:
    return hashlib.sha256(stored(pixels)).hexdigest()


@needs_shared
@pytest.mark.parametrize("name", expected())
def test_every_tile_of_every_writer(name: str) -> None:
    facts = expected()[name]
    file = raquet.open(FIXTURES / name)
    assert len(file.cells()) == len({key.partition("@")[0] for key in facts["tiles"]})
    for key, tile in facts["tiles"].items():
        block, _, time = key.partition("@")
        where = {"time": float(time)} if time else {}
        z, x, y = tile["zxy"]
        assert cell_of(z, x, y) == int(block)
        if "bands" in tile:
            _check_bands(file, (z, x, y), tile["bands"], where)
        else:
            blob = file.raw_blob(z, x, y)
            assert hashlib.sha256(blob or b"").hexdigest() == tile["blob"]
            _check_picture(file.tile(z, x, y), blob or b"")


def _check_bands(file: Any, tile: Any, hashes: list[str | None], where: dict[str, Any]) -> None:
    for index, expected_hash in enumerate(hashes):
        found = file.tile(*tile, bands=index + 1, **where)
        if expected_hash is None:
            assert file.tile(*tile, bands=index + 1, masked=True, **where).mask.all()
        else:
            assert digest(found[0]) == expected_hash


def _check_picture(found: Any, blob: bytes) -> None:
    import io

    from PIL import Image

    seen = np.atleast_3d(np.asarray(Image.open(io.BytesIO(blob)))).transpose(2, 0, 1)
    # Decoders differ in how they smooth colours: much in few pixels, little on the whole.
    assert np.abs(seen.astype(int) - found).mean() < 1


@needs_shared
def test_bytes_that_took_turns_are_undone() -> None:
    import rasterio

    name = FIXTURES / "raquet-io" / "v0.9.0" / "s_ms_il_gzip.parquet"
    with rasterio.open(FIXTURES / "src" / "s_ms_u16_4band_3857.tif") as source:
        pixels, bounds = source.read(), source.bounds
    right = raquet.open(name, byte_interleaved=True)
    column, row = _pixel(right, bounds.left, bounds.top)
    window = right.window(right.zooms[-1], column, row, pixels.shape[2], pixels.shape[1])
    np.testing.assert_array_equal(window.data, pixels)
    wrong = raquet.open(name)
    assert (wrong.window(10, column, row, pixels.shape[2], pixels.shape[1]).data != pixels).any()


def _pixel(file: raquet.RaquetFile, x: float, y: float) -> tuple[int, int]:
    grid = file.window(file.zooms[-1], 0, 0, 16, 16).transform
    return round((x - grid[2]) / grid[0]), round((y - grid[5]) / grid[4])


@needs_shared
def test_the_partitioned_set_of_another_writer() -> None:
    file = raquet.open(FIXTURES / "constructed" / "partitioned")
    assert len(file.cells()) == 8
    names = ["constructed/partitioned/z5_16_10.parquet", "constructed/partitioned/z5_17_10.parquet"]
    for name in names:
        for tile in expected()[name]["tiles"].values():
            assert [digest(band) for band in file.tile(*tile["zxy"])] == tile["bands"]


def test_the_copy_that_has_its_metadata_in_the_last_row(tmp_path: Path, monkeypatch: Any) -> None:
    """CARTO's online viewer takes it from there alone; the guide says how to make such a copy."""
    guide = Path("docs/raquet.md").read_text()
    statement = guide.partition("```sql\nCOPY")[2].partition("```")[0]
    tiles: Any = {
        (2, x, y): [np.full((16, 16), x + 2 * y, "uint8")] for x in (0, 1) for y in (0, 1)
    }
    write(tmp_path / "dem.parquet", tiles)
    monkeypatch.chdir(tmp_path)
    duckdb.execute("COPY" + statement)
    table = pq.read_table("dem-carto.parquet")
    assert table["block"][-1].as_py() == 0
    document = json.loads(table["metadata"][-1].as_py())
    assert document["bands"]
    blocks = table["block"].to_pylist()[:-1]
    assert blocks == sorted(blocks)
    with raquet.open("dem.parquet") as one, raquet.open("dem-carto.parquet") as other:
        for z, x, y in tiles:
            assert np.array_equal(one.tile(z, x, y), other.tile(z, x, y))
    assert raquet.check("dem-carto.parquet").ok
