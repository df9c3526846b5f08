"""Names of entries, one by one and vectorised."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError
from comal.tapalcatl import wire

TILES = st.integers(0, 30).flatmap(
    lambda z: st.tuples(st.just(z), st.integers(0, (1 << z) - 1), st.integers(0, (1 << z) - 1))
)
ODD = [
    "",
    "/",
    "//",
    "0/0/0",
    "README",
    "a/b/c.png",
    "00/0/0.png",
    "1/00/0.png",
    "1/0/2.png",
    "1/2/0.png",
    "1/0/1@2x.png",
    "1/1/0.topojson",
    "../1/1/0.png",
    "1/1/0.an_extension_with_many_chars",
    "1/1/0.a.b",
    "1//0.png",
    "1/0/.png",
    "/1/0/0",
    "1/0/0/",
    "1/0/0.",
    "1/0/0@x.png",
    "1/0/0@2x",
    "1/0/0@0.5x.png",
    "31/0/0.png",
    "99/0/0.png",
    "5/99999999999/0.png",
    "-1/0/0.png",
    "1/0/0.p\u00e9g",
    "1\\0\\0.png",
    " 1/0/0.png",
    "1/0/0.png ",
    "1.5/0/0.png",
    "1/@/0.png",
]
NAMES = (
    st.sampled_from(ODD)
    | st.text("0123456789/@x.pngvt-", max_size=14)
    | TILES.map(lambda tile: "/".join(map(str, tile)) + ".mvt")
    | TILES.map(lambda tile: "/".join(map(str, tile)) + "@2x.topojson")
)


def parsed(names: list[str], prefix: bytes = b"") -> list[tuple[int, tuple[int, int, int], str]]:
    found = wire.parse_names(pa.array([name.encode() for name in names], pa.binary()), prefix)
    columns = (found.rows, found.z, found.x, found.y, found.suffix)
    return [
        (row, (z, x, y), found.suffixes[code])
        for row, z, x, y, code in zip(*(column.tolist() for column in columns), strict=True)
    ]


def scalar(names: list[str]) -> list[tuple[int, tuple[int, int, int], str]]:
    both = [(row, wire.parse_name(name)) for row, name in enumerate(names)]
    return [(row, *found) for row, found in both if found is not None]


@settings(max_examples=80, deadline=None)
@given(st.lists(NAMES, max_size=12))
def test_a_directory_is_parsed_as_its_names_are(names: list[str]) -> None:
    assert parsed(names) == scalar(names)


def test_odd_names_are_no_tiles() -> None:
    assert [ODD[row] for row, _, _ in scalar(ODD)] == [
        "0/0/0",
        "1/0/1@2x.png",
        "1/1/0.topojson",
        "1/1/0.an_extension_with_many_chars",
        "1/0/0@2x",
        "1/0/0@0.5x.png",
    ]
    assert parsed(ODD) == scalar(ODD)


def test_a_slice_of_names_and_text_are_taken_too() -> None:
    names = pa.array(["x", "1/0/1.png", "0/0/0.png"], pa.string()).slice(1)
    found = wire.parse_names(names)
    assert found.rows.tolist() == [0, 1]
    assert found.keys.tolist() == [wire.tile_key(1, 0, 1), 0]


def test_a_variant_is_asked_for_by_its_prefix() -> None:
    names = ["dark/1/0/1.png", "1/0/1.png", "light/1/0/1.png", "dark/", "dar", "dark/1/1/1.png"]
    assert parsed(names, b"dark/") == [(0, (1, 0, 1), ".png"), (5, (1, 1, 1), ".png")]
    assert parsed(names) == [(1, (1, 0, 1), ".png")]
    assert parsed([""], b"dark/") == []


@given(TILES)
def test_keys_come_back(tile: tuple[int, int, int]) -> None:
    key = wire.tile_key(*tile)
    assert wire.key_tile(key) == tile
    assert key < 2**62
    assert wire.tile_keys(*([value] for value in tile)).tolist() == [key]


@given(TILES, TILES)
def test_keys_are_ordered_by_zoom_column_and_row(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    assert (wire.tile_key(*one) < wire.tile_key(*other)) == (one < other)


def test_suffixes() -> None:
    assert wire.suffix_of(2, "png") == "@2x.png"
    assert wire.suffix_of(1, "") == ""
    assert wire.suffix_of(0.5, "png") == "@0.5x.png"
    for suffix in ("@2x.png", ".mvt", "", "@3x", "@0.5x.png"):
        assert wire.suffix_of(*wire.split_suffix(suffix)) == suffix
    for suffix in ("png", "@.png", "..", "@x"):
        with pytest.raises(InvalidInputError):
            wire.split_suffix(suffix)
    with pytest.raises(InvalidInputError):
        wire.suffix_of(-1, "png")
