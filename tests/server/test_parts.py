"""Parts that hold by law: expressions, weights of headers, ranges, rescaling, addresses."""

from __future__ import annotations

import itertools
import math
import operator
import time
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.server.cql2 import matching
from comal.server.http import best_type, encodings, parse_http_date
from comal.server.render import parse_expression, rescaled, terrain
from comal.server.sources import middle_tile, tile_meets
from comal.server.tilesets import archive_headers

FEW = settings(max_examples=60, deadline=None)


@pytest.mark.parametrize(
    "text",
    [
        "b1+b2*2",
        "-b1**2",
        "(b1-b2)/(b1+b2)",
        "b1//3%2",
        "sqrt(abs(b1))",
        "where(b1>b2,b1,-b2)",
        "max(b1,b2)-min(b1,b2)",
        "~(b1>1)&(b2<5)|(b1==b2)",
        "arctan2(b1,b2)",
        "b1>=2",
        "+b1",
    ],
)
def test_expressions_mean_what_numpy_means(text: str) -> None:
    rng = np.random.default_rng(1)
    bands = {1: rng.integers(0, 9, (4, 4)), 2: rng.integers(0, 9, (4, 4))}
    names = {"b1": bands[1].astype(float), "b2": bands[2].astype(float)}
    functions = {name: getattr(np, name) for name in ("sqrt", "abs", "where", "arctan2")}
    functions |= {"max": np.maximum, "min": np.minimum}
    with np.errstate(all="ignore"):
        if "~" in text:
            one, two = names["b1"], names["b2"]
            expected = (~(one > 1) & (two < 5)) | (one == two)
        else:
            expected = eval(text, {"__builtins__": {}}, {**names, **functions})
    assert np.array_equal(parse_expression(text).values(bands)[0], expected, equal_nan=True)


@pytest.mark.parametrize(
    ("value", "gzip", "identity"),
    [
        (None, False, True),
        (b"", False, True),
        (b"gzip", True, True),
        (b"GZIP;Q=0.1", True, True),
        (b"gzip;q=0", False, True),
        (b"gzip ; q = 0", False, True),
        (b"gzip;\tQ=0.000", False, True),
        (b"*;q=0", False, False),
        (b"*;q=0, gzip", True, False),
        (b"identity;q=0, gzip;q=1", True, False),
        (b"br;q=1.0, *;q=0.5", True, True),
        (b"gzip;q=x", False, True),
    ],
)
def test_accept_encoding(value: bytes | None, gzip: bool, identity: bool) -> None:
    found = encodings(value)
    assert (found.gzip, found.identity) == (gzip, identity)


def test_dates_are_in_utc_wherever_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Lima")
    time.tzset()
    parse_http_date.cache_clear()
    weekdays = (b"Sun, 06 Nov 1994 08:49:37 GMT", b"Sunday, 06-Nov-94 08:49:37 GMT")
    for text in (*weekdays, b"Sun Nov  6 08:49:37 1994"):
        assert parse_http_date(text) == 784_111_777
    monkeypatch.undo()
    time.tzset()


def test_accept() -> None:
    offers = ["image/png", "image/webp", "Text/html; charset=utf-8"]
    for value, expected in (
        (None, "image/png"),
        (b"", "image/png"),
        (b"*/*", "image/png"),
        (b"image/*;q=0.1, image/webp", "image/webp"),
        (b"image/png;q=0, image/*", "image/webp"),
        (b"text/*;q=0.2, */*;q=0.1", offers[2]),
        (b"text/html", offers[2]),
        (b"audio/ogg", None),
        (b"nonsense", None),
    ):
        assert best_type(value, offers) == expected
    assert best_type(b"*/*", []) is None


@FEW
@given(
    st.sampled_from(["uint8", "int8", "uint16", "int16", "int32", "float32"]),
    st.floats(-1e4, 1e4),
    st.floats(1e-3, 1e5),
)
def test_tables_rescale_as_arithmetic_does(kind: str, low: float, width: float) -> None:
    high = low + width
    if not low < high:
        return
    rng = np.random.default_rng(1)
    values = (rng.random((8, 8)) * 300 - 100).astype(np.float32).astype(kind)
    expected = (np.clip(values.astype(float), low, high) - low) / (high - low) * 255.0
    assert np.array_equal(rescaled(values, low, high), expected.astype(np.uint8))


@FEW
@given(st.floats(-11_000, 9_000))
def test_terrain_comes_back(height: float) -> None:
    red, green, blue = terrain(np.array([[height]]), "terrarium")[:, 0, 0].astype(float)
    assert abs(red * 256 + green + blue / 256 - 32768 - height) <= 1 / 256
    if height >= -10_000:
        red, green, blue = terrain(np.array([[height]]), "terrainrgb")[:, 0, 0].astype(float)
        assert abs(-10000 + (red * 65536 + green * 256 + blue) * 0.1 - height) <= 0.0501


_DEGREES = st.floats(-85, 85).map(lambda one: round(one, 6))
"""What is nearer to an edge than that counts as on it."""


@FEW
@given(st.integers(0, 8), _DEGREES.map(lambda one: round(one * 2.1, 6)), _DEGREES)
def test_boxes_meet_the_tiles_of_their_points(z: int, lon: float, lat: float) -> None:
    from comal.grid import mercator

    x, y = mercator.lonlat_to_xy(lon, lat, z)
    side = (1 << z) - 1
    tile = min(int(x), side), min(int(y), side)
    assert tile_meets(z, *tile, (lon, lat, lon, lat))
    for world in ((-180, -90, 180, 90), (-200, -99, 181, 99)):
        assert tile_meets(z, *tile, world)
        assert middle_tile(world, z) == (z, side // 2, side // 2)
    assert tile_meets(z, *tile, (170, -90, -170, 90)) or -170 < lon < 170
    assert not tile_meets(5, 16, 16, (170, -90, -170, 90))
    assert middle_tile((0, 88, 1, 89), z)[2] == 0


def test_headers_of_strangers() -> None:
    plan = archive_headers(
        (
            ("Content-Type", "image/png"),
            ("content-type", "image/webp"),
            ("X-Fine", "a"),
            ("X-Split", "a\r\nSet-Cookie: b"),
            ("Bad Name", "x"),
            ("Set-Cookie", "x"),
            ("Transfer-Encoding", "chunked"),
            ("ETag", '"x"'),
            ("X-Unicode", "☃"),
        ),
        None,
    )
    assert dict(plan.pairs) == {
        b"content-type": b"image/webp",
        b"x-content-type-options": b"nosniff",
        b"x-fine": b"a",
    }
    assert archive_headers((("Content-Type", "a\nb"),), None).type == b"application/octet-stream"


# -- filters against SQL ---------------------------------------------------------------------------

_COMPARED = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_ATOMS = st.one_of(
    st.builds("n {} {}".format, _COMPARED, st.integers(-3, 3)),
    st.builds("x {} {}".format, _COMPARED, st.sampled_from(["-0.5", "0", "1.25", "2"])),
    st.builds("n {} x".format, _COMPARED),
    st.builds("{} {} x".format, st.sampled_from(["1", "-2", "1.25e0"]), _COMPARED),
    st.builds("t {} '{}'".format, _COMPARED, st.sampled_from(["", "a", "b'", "ü", "%"])),
    st.builds("t LIKE '{}'".format, st.sampled_from(["%", "_", "a%", "%b%", "a_"])),
    st.builds("n BETWEEN {} AND {}".format, st.integers(-3, 3), st.integers(-3, 3)),
    st.builds("n NOT IN ({}, {})".format, st.integers(-3, 3), st.integers(-3, 3)),
    st.sampled_from(["n IS NULL", "t IS NOT NULL", "c", "c = TRUE", "c=FALSE"]),
    st.sampled_from(["t IN ('a', 'ab')", "t not like 'a%'", "TRUE", "NOT NOT c", "x = x"]),
).map(lambda text: text.replace("b''", "b'''"))
_FILTERS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)
_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-3, 3),
            "x": st.none() | st.sampled_from([-0.5, 0.0, 1.25, 2.0]),
            "t": st.none() | st.sampled_from(["", "a", "ab", "b'", "ü", "A", "%"]),
            "c": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=12,
)
_SCHEMA = pa.schema({"n": pa.int64(), "x": pa.float64(), "t": pa.string(), "c": pa.bool_()})


@pytest.fixture(scope="module")
def sql() -> Iterator[Any]:
    with duckdb.connect() as connection:
        yield connection


_NUMBERS: dict[Any, list[float | None]] = {
    pa.int64(): [-(2**63), 2**60 + 1, 3, 2**63 - 1, None],
    pa.uint64(): [0, 3, 2**64 - 1],
    pa.int8(): [-128, 3, 127],
    pa.uint16(): [0, 3, 65_535, None],
    pa.float16(): [0.5, 3.0, 2048.0],
    pa.float32(): [0.5, 3.0, 1e8, math.inf, None],
    pa.float64(): [0.5, 3.0, 2.0**60, -math.inf],
}
_LITERALS = (
    *("3", "3.0", "0.5", "-0.5", "128", "-128.5", "2e8", "1e8", "100000000", "1152921504606846977"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e300"),
    *("18446744073709551615", "18446744073709551616"),
)
_OPERATORS = {"=": "eq", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


@pytest.mark.parametrize("kind", _NUMBERS, ids=str)
def test_numbers_are_compared_whatever_their_types(kind: Any) -> None:
    """Arrow by itself refuses numbers that the other type does not hold exactly."""
    values = _NUMBERS[kind]
    table = pa.table({"a": pa.array(values, kind)})
    for text, (sign, name) in itertools.product(_LITERALS, _OPERATORS.items()):
        literal: float = int(text) if text.lstrip("-").isdigit() else float(text)
        if pa.types.is_floating(kind):
            literal = float(literal)
        compare = getattr(operator, name)
        expected = [one is not None and compare(one, literal) for one in values]
        assert matching(f"a {sign} {text}", table).tolist() == expected, (text, sign)
    beside = table.append_column("b", pa.array([3.0] * len(values)))
    expected = [one is not None and one > 3 for one in values]
    assert matching("a > b", beside).tolist() == expected


@pytest.mark.parametrize(("left", "right"), [*itertools.combinations(_NUMBERS, 2)], ids=str)
def test_columns_of_any_two_types_are_compared(left: Any, right: Any) -> None:
    pairs: list[Any] = [*itertools.product(_NUMBERS[left], _NUMBERS[right])]
    first, second = zip(*pairs, strict=True)
    table = pa.table({"a": pa.array(first, left), "b": pa.array(second, right)})
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        pairs = [pair if None in pair else tuple(map(float, pair)) for pair in pairs]
    for sign, name in _OPERATORS.items():
        compare = getattr(operator, name)
        expected = [None not in pair and compare(*pair) for pair in pairs]
        assert matching(f"a {sign} b", table).tolist() == expected, sign


@given(text=_FILTERS, rows=_ROWS)
@settings(max_examples=60, deadline=None)
def test_any_filter_means_what_duckdb_means(
    sql: Any, text: str, rows: list[dict[str, Any]]
) -> None:
    """Three-valued logic included: a row counts only where the whole is true."""
    table = pa.Table.from_pylist(rows, _SCHEMA)
    sql.register("rows", table)
    found = sql.sql(f"SELECT coalesce({text}, FALSE) FROM rows").fetchall()
    expected = [one for (one,) in found]
    assert matching(text, table).tolist() == expected
