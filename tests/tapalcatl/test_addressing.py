"""Arithmetic of both generations, with every vector that is known."""

from __future__ import annotations

import math
import zipfile
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError, InvalidMetadataError
from comal.tapalcatl import Generation1, Layout, Template, choose_layout
from comal.tapalcatl.addressing import (
    archive_bounds,
    column_ranges,
    tile_bounds,
    tile_hash,
    tile_range,
)
from comal.tapalcatl.layout import DIRECTORY_LIMIT, EntrySize, directory_bytes
from comal.tapalcatl.spec import WORLD


@pytest.mark.parametrize(
    ("tile", "hashes"),
    [
        ((0, 0, 0), ("0bd23", "df4c9", "638d1")),
        ((4, 0, 4), ("7b505", "c36dd", "02722")),
        ((7, 36, 49), ("c2700", "c0aa3", "f3cbc")),
    ],
)
def test_three_hashes(tile: tuple[int, int, int], hashes: tuple[str, str, str]) -> None:
    assert tuple(tile_hash(tile, kind) for kind in ("name", "file", "layer")) == hashes
    with pytest.raises(InvalidInputError):
        tile_hash(tile, "other")


def test_archives_of_tiles() -> None:
    layout = Layout((0, 4), 4)
    assert layout.archive(6, 10, 23) == (4, 0, 4)
    assert layout.archive(5, 10, 23) == (4, 4, 8)
    assert layout.archive(3, 5, 6) == (0, 0, 0)
    assert Layout((2, 4), 1).archive(1, 0, 0) is None
    assert archive_bounds((4, 0, 4), 4) == (-180, 0, -90, 66.51326044311186)
    assert archive_bounds((0, 0, 0), 4) == pytest.approx(WORLD)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 24), min_size=1, max_size=6, unique=True).map(sorted),
    st.sampled_from([1, 2, 4, 8]),
    st.lists(
        st.integers(0, 24).flatmap(
            lambda z: st.tuples(
                st.just(z), st.integers(0, (1 << z) - 1), st.integers(0, (1 << z) - 1)
            )
        ),
        min_size=1,
        max_size=10,
    ),
)
def test_arrays_agree_with_single_tiles(
    zooms: list[int], metatile: int, tiles: list[tuple[int, int, int]]
) -> None:
    layout = Layout(tuple(zooms), metatile)
    found = np.stack(layout.archives(*zip(*tiles, strict=True)), axis=1).tolist()
    for tile, archive in zip(tiles, found, strict=True):
        single = layout.archive(*tile)
        assert tuple(archive) == (single or (-1, -1, -1))
        if single is not None:
            z, *place = tile
            for along, first in zip(place, single[1:], strict=True):
                assert first % metatile == 0
                assert first <= along >> (z - single[0]) < first + metatile


@pytest.mark.parametrize("zooms", [(), (4, 0), (0, 0), (-1,), (31,)])
def test_layouts_that_cannot_be(zooms: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError):
        Layout(zooms, 1)
    with pytest.raises(InvalidInputError):
        Layout((0,), 3)


def test_templates() -> None:
    assert Template("s3://b/{h}/{z}/{x}/{y}.zip").address((4, 0, 4)) == "s3://b/7b505/4/0/4.zip"
    assert Template("{z}-{x}-{y}-{z}.zip").address((4, 0, 4)) == "4-0-4-4.zip"
    for text in ("", "{z}/{x}.zip", "{z}/{x}/{y}/{l}.zip", "{z}/{x}/{y}/{}.zip"):
        with pytest.raises(InvalidMetadataError):
            Template(text)


def test_bounds_of_tiles() -> None:
    assert tile_bounds(0, 0, 0) == pytest.approx(WORLD)
    assert tile_bounds(1, 1, 1) == pytest.approx((0, -85.0511287798066, 180, 0))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 20), st.data())
def test_a_tile_touches_itself_alone(z: int, data: st.DataObject) -> None:
    x, y = (data.draw(st.integers(0, (1 << z) - 1)) for _ in range(2))
    columns, rows = tile_range(tile_bounds(z, x, y), z)
    assert (columns, rows) == (range(x, x + 1), range(y, y + 1))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 12), st.floats(-180, 180), st.floats(-85, 85), st.floats(0, 40), st.floats(0, 40)
)
def test_the_tiles_of_a_box_hold_its_corners(
    z: int, west: float, south: float, width: float, height: float
) -> None:
    east, north = min(west + width, 180), min(south + height, 85)
    columns, rows = tile_range((west, south, east, north), z)
    first, last = tile_bounds(z, columns[0], rows[0]), tile_bounds(z, columns[-1], rows[-1])
    assert first[0] <= west + 1e-6
    assert last[2] >= east - 1e-6
    assert first[3] >= north - 1e-6
    assert last[1] <= south + 1e-6


def test_boxes_at_the_ends_of_the_world() -> None:
    assert tile_range(WORLD, 3) == (range(8), range(8))
    assert tile_range((170, -10, -170, 10), 3)[0] == range(8)
    assert tile_range((-500, -90, 500, 90), 2) == (range(4), range(4))
    assert tile_range((-20_037_508, -90, 20_037_508, 90), 2)[0] == range(4)
    assert tile_range((180, 90, 180, 90), 2) == (range(3, 4), range(1))
    assert math.isclose(tile_bounds(2, 0, 1)[1], 0, abs_tol=1e-9)


@pytest.mark.parametrize(
    "bounds", [(170, -10, -170, 10), (170, -10, 190, 10), (-190, -10, -170, 10), (530, 0, -530, 1)]
)
def test_columns_across_the_antimeridian(bounds: tuple[float, float, float, float]) -> None:
    assert column_ranges(bounds, 0) == (range(1),)
    assert column_ranges(bounds, 1) == (range(2),)
    assert column_ranges(bounds, 4) == (range(1), range(15, 16))
    assert tile_range(bounds, 4)[0] == range(16)


def test_columns_of_other_boxes() -> None:
    assert column_ranges(WORLD, 3) == (range(8),)
    # What is beyond the edge by a rounding does not go round the world.
    assert column_ranges((170, -10, 180.0000001, 10), 4) == (range(15, 16),)
    assert column_ranges((200, -10, 210, 10), 4) == (range(2),)
    assert column_ranges((10, -10, 5, 10), 2) == (range(4),)


# -- Tapalcatl 1 ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metatile", "size", "max_detail", "tile", "archive", "offset"),
    [
        (2, 1, None, (12, 637, 936), (11, 318, 468), (1, 1, 0)),
        (8, 1, None, (12, 637, 935), (9, 79, 116), (3, 5, 7)),
        (8, 2, 13, (16, 37311, 18976), (13, 4663, 2372), (3, 7, 0)),
        (8, 2, None, (3, 2, 7), (1, 0, 1), (2, 2, 3)),
        (4, 4, 14, (17, 0, 0), (15, 0, 0), (2, 0, 0)),
        (4, 1, None, (1, 0, 1), (0, 0, 0), (1, 0, 1)),
        (128, 1, None, (7, 127, 127), (0, 0, 0), (7, 127, 127)),
        (1, 1, None, (5, 3, 4), (5, 3, 4), (0, 0, 0)),
    ],
)
def test_metatile_and_offset(
    metatile: int,
    size: int,
    max_detail: int | None,
    tile: tuple[int, int, int],
    archive: tuple[int, int, int],
    offset: tuple[int, int, int],
) -> None:
    config = Generation1(metatile=metatile, max_detail_zoom=max_detail)
    assert config.place(*tile, tile_size=size * 256) == (archive, offset)
    again = Generation1(metatile=metatile, max_detail_zoom=max_detail, tile_size=size * 256)
    assert again.place(*tile) == (archive, offset)


@pytest.mark.parametrize(
    ("layout", "prefix", "layer", "archive", "key"),
    [
        ("prefix-hash", "abc", "all", (13, 4008, 3973), "abc/c1315/all/13/4008/3973.zip"),
        ("hash-prefix", "180723", "", (10, 14, 719), "27584/180723/10/14/719.zip"),
        ("plain", "", "all", (13, 4008, 3973), "all/13/4008/3973.zip"),
        ("plain", "/20171221/", "all", (0, 0, 0), "20171221/all/0/0/0.zip"),
        (
            "/{prefix}/{hash}/{layer}/{z}/{x}/{y}.{fmt}",
            "prefix",
            "layer",
            (0, 0, 0),
            "prefix/fa9bb/layer/0/0/0.zip",
        ),
    ],
)
def test_keys_of_metatiles(
    layout: str, prefix: str, layer: str, archive: tuple[int, int, int], key: str
) -> None:
    assert Generation1(layout=layout, prefix=prefix, layer=layer).key(archive) == key


@pytest.mark.parametrize(
    "settings",
    [
        {"metatile": 3},
        {"metatile": 256},
        {"metatile": 0},
        {"metatile": 2, "tile_size": 1024},
        {"tile_size": 300},
        {"tile_size": 768},
        {"tile_size": 0},
        {"layout": "other"},
        {"layout": "{z}/{x}/{y}/{w}"},
    ],
)
def test_configurations_that_cannot_be(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        Generation1(**settings)  # type: ignore[arg-type]


# -- the layout that is chosen: directories come with the first request ----------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 22), st.integers(0, 22), st.integers(1, 12), st.integers(0, 200))
def test_chosen_layouts_fit_the_first_request(
    one: int, other: int, per_tile: int, extra: int
) -> None:
    low, high = sorted((one, other))
    layout = choose_layout(low, high, per_tile=per_tile, entry_extra=extra)
    size = EntrySize(per_tile=per_tile, entry_extra=extra)
    for zoom in layout.materialized_zooms:
        assert directory_bytes(layout, zoom, high, size) <= DIRECTORY_LIMIT
    assert layout.materialized_zooms[0] == low


def test_the_rule() -> None:
    assert choose_layout(0, 14).materialized_zooms == (0, 3, 7, 11)
    assert choose_layout(0, 14).metatile == 2
    assert choose_layout(0, 8).materialized_zooms == (0, 5)
    assert choose_layout(0, 3).materialized_zooms == (0,)
    assert choose_layout(5, 8).materialized_zooms == (5,)
    assert choose_layout(0, 14, per_tile=4).metatile == 1
    given_zooms = choose_layout(0, 12, materialized_zooms=[4, 0, 8], metatile=8)
    assert (given_zooms.materialized_zooms, given_zooms.metatile) == ((0, 4, 8), 8)


def test_directories_are_as_long_as_zipfile_writes_them() -> None:
    layout = choose_layout(3, 6)
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for z in range(3, 7):
            for x in range(2 << (z - 3)):
                for y in range(2 << (z - 3)):
                    high = (1 << z) - 1
                    archive.writestr(f"{z}/{high - x}/{high - y}.mvt", b"")
        start = archive.start_dir
    assert directory_bytes(layout, 3, 6) >= len(file.getvalue()) - start
    assert directory_bytes(layout, 3, 6) <= DIRECTORY_LIMIT


@pytest.mark.parametrize("zooms", [(-1, 3), (4, 3), (0, 31)])
def test_zooms_that_are_none(zooms: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError):
        choose_layout(*zooms)
