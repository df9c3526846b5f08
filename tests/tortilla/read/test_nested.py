"""Files in files, and what frames of Tortillas alone do: items without a path for GDAL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import Limits, tortilla
from comal.errors import InvalidMetadataError, LimitExceededError, NotInContainerError
from comal.plan import run
from comal.tortilla import items as spans
from comal.tortilla import spec
from comal.tortilla.archive import Home, Part
from comal.tortilla.frame import TortillaFrame
from comal.tortilla.opening import open as open_frame
from comal.tortilla.wire import open_plan
from tests.fakes import MemorySource
from tests.tortilla import build
from tests.tortilla.build import Item, column, write

Tree = list[tuple[str, Any]]

leaf = st.binary(max_size=20)
trees = st.recursive(
    leaf,
    lambda children: st.lists(children, max_size=4).map(
        lambda found: [(f"n{number}", one) for number, one in enumerate(found)]
    ),
    max_leaves=12,
).map(lambda tree: tree if isinstance(tree, list) else [("only", tree)])


def made(tree: Tree) -> bytes:
    """The file of a tree."""
    return build.built(
        [
            Item(name, one if isinstance(one, bytes) else made(one), kind_of(one))
            for name, one in tree
        ]
    )


def kind_of(one: Any) -> str:
    return "BYTES" if isinstance(one, bytes) else "TORTILLA"


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Paths and bytes, depth first."""
    for name, one in tree:
        if isinstance(one, bytes):
            yield prefix + name, one
        else:
            yield from leaves(one, f"{prefix}{name}/")


@settings(max_examples=15, deadline=None)
@given(trees)
def test_all_ways_lead_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, tree: Tree
) -> None:
    path = write(tmp_path_factory.mktemp("laws"), made(tree))
    truth = list(leaves(tree))
    frame = tortilla.open(path)
    flat = frame.flatten()
    assert list(zip(flat[spec.PATH].to_pylist(), flat.read_bytes(), strict=True)) == truth
    whole = path.read_bytes()
    for (name, vsi), (expected_name, data) in zip(frame.walk(), truth, strict=True):
        assert name == expected_name
        span, _, outer = vsi.removeprefix("/vsisubfile/").partition(",")
        offset, _, size = span.partition("_")
        assert outer == str(path)
        assert whole[int(offset) : int(offset) + int(size)] == data
        assert frame.read(name) == data
        assert flat.read_bytes(name) == data
    assert tortilla.check(path).ok


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=8))
def test_overlaps_are_those_that_a_search_finds(pairs: list[tuple[int, int]]) -> None:
    offsets = np.array([one for one, _ in pairs], np.int64)
    lengths = np.array([one for _, one in pairs], np.int64)
    found = spans.overlaps(offsets, lengths)
    filled = {(at, at + size) for at, size in pairs if size}
    expected = any(
        one != other and one[0] < other[1] and other[0] < one[1]
        for one in filled
        for other in filled
    )
    assert bool(found) == expected
    for first, second in found:
        one, other = pairs[first], pairs[second]
        assert one != other
        assert one[0] < other[0] + other[1]
        assert other[0] < one[0] + one[1]


def test_one_request_opens_a_small_nested_file_and_brings_its_items() -> None:
    data = build.nested(
        *[(f"roi_{n}", [Item("image", bytes([n]) * 30_000), Item("m", b"m")]) for n in range(4)]
    )
    source = MemorySource.of(data)
    frame = opened(source)
    source.log.clear()
    child = frame.read("roi_2")
    assert (source.round_trips, source.requests) == (1, 1)
    assert child.read_bytes() == [b"\2" * 30_000, b"m"]
    assert frame.read_bytes("roi_2/m") == b"m"
    frame.read("roi_2")
    assert source.round_trips == 1


def opened(source: MemorySource, **how: Any) -> TortillaFrame:
    found = run(open_plan(source.href), source.fetch)
    home = Home([Part.of(source, found)], **how)  # as much of a source as is used
    whole = open_frame(source)
    return TortillaFrame(whole._table, home)


def test_a_large_nested_file_is_opened_by_its_ends() -> None:
    inner = [Item("image", bytes(1 << 21)), Item("m", b"m")]
    source = MemorySource.of(build.nested(("a", inner), ("b", inner)))
    frame = opened(source)
    source.log.clear()
    assert frame.read("b")[spec.ID].to_pylist() == ["image", "m"]
    assert (source.round_trips, source.requests) == (1, 2)
    assert source.bytes_read < 20_000


def test_a_footer_that_the_end_does_not_hold_takes_one_round_trip_more() -> None:
    many = [Item(f"item number {n} with a long name", b"x" * n) for n in range(3_000)]
    inner = build.built(many, compression="none"), build.built([Item("z", b"z")])
    source = MemorySource.of(
        build.built([Item(name, one, "TORTILLA") for name, one in zip("ab", inner, strict=True)])
    )
    frame = opened(source)
    source.log.clear()
    assert len(frame.read("a")) == 3_000
    source.log.clear()
    again = opened(source)
    source.log.clear()
    assert len(again.flatten()) == 3_001
    assert source.round_trips == 2


def test_as_deep_as_the_limit_and_no_deeper(tmp_path: Path) -> None:
    path = write(tmp_path, build.deep(18))
    name = "/".join(["in"] * 17 + ["leaf"])
    frame = tortilla.open(path)
    with pytest.raises(LimitExceededError):
        frame.read(name)
    with pytest.raises(LimitExceededError):
        frame.flatten()
    assert tortilla.check(path).counts == {"tortilla-depth": 1}
    deeper = Limits(tortilla_depth=17)
    frame = tortilla.open(path, limits=deeper)
    assert frame.read(name) == b"leaf"
    assert [one for one, _ in frame.walk()] == [name]
    assert tortilla.check(path, limits=deeper).ok


def bomb(levels: int, width: int) -> bytes:
    """Files whose rows all name the same bytes: width to the power of levels leaves."""
    data = build.built([Item("x", b"x")])
    for _ in range(levels):
        same = {
            spec.FILE_FORMAT: pa.array(["TORTILLA"] * width),
            spec.OFFSET: pa.array([200] * width),
            spec.LENGTH: pa.array([len(data)] * width),
        }
        rows = [Item("s", data), *[Item(f"s{n}", b"") for n in range(width - 1)]]
        data = build.built(rows, table=partial(with_columns, same))
    return data


def with_columns(columns: dict[str, Any], table: pa.Table) -> pa.Table:
    for name, values in columns.items():
        table = column(name, values)(table)
    return table


def test_bombs_do_not_go_off(tmp_path: Path) -> None:
    path = write(tmp_path, bomb(12, 40))
    frame = tortilla.open(path, limits=Limits(table_rows=100_000))
    with pytest.raises(LimitExceededError):
        frame.flatten()
    with pytest.raises(LimitExceededError):
        next(frame.walk())
    report = tortilla.check(path)
    assert report.ok


@pytest.mark.parametrize("inner", [b"", b"#y", b"PK\3\4 something else", bytes(300)])
def test_an_item_that_is_no_nested_file(tmp_path: Path, inner: bytes) -> None:
    path = write(tmp_path, build.built([Item("a", inner, "TORTILLA"), Item("b", b"fine")]))
    frame = tortilla.open(path)
    with pytest.raises(InvalidMetadataError):
        frame.read("a")
    with pytest.raises(InvalidMetadataError):
        frame.flatten()
    assert frame.read("b") == b"fine"
    assert frame.read_bytes("a") == inner
    assert tortilla.check(path).counts["tortilla-nested"] == 1


def test_a_nested_file_cannot_name_bytes_around_it(tmp_path: Path) -> None:
    inner = build.built([Item("x", b"inside")], table=column(spec.LENGTH, pa.array([50_000])))
    path = write(tmp_path, build.built([Item("a", inner, "TORTILLA"), Item("b", bytes(99_000))]))
    with pytest.raises(InvalidMetadataError, match="outside"):
        tortilla.open(path).read("a")
    assert tortilla.check(path).counts["tortilla-span-bounds"] == 1


def test_columns_of_different_children_are_unified(tmp_path: Path) -> None:
    data = build.nested(
        ("a", [Item("x", b"1", more={"n": 1, "t": "text"})]),
        ("b", [Item("y", b"2", more={"n": None, "u": 2.5})]),
        ("c", [Item("z", b"3")]),
    )
    flat = tortilla.open(write(tmp_path, data)).flatten()
    assert flat["n"].to_pylist() == [1, None, None]
    assert flat["t"].to_pylist() == ["text", None, None]
    assert flat["u"].to_pylist() == [None, 2.5, None]


def test_columns_that_do_not_go_together(tmp_path: Path) -> None:
    data = build.nested(
        ("a", [Item("x", b"1", more={"n": 1})]), ("b", [Item("y", b"2", more={"n": "1"})])
    )
    frame = tortilla.open(write(tmp_path, data))
    with pytest.raises(InvalidMetadataError, match="cannot be combined"):
        frame.flatten()
    assert frame.flatten(columns=[]).read_bytes() == [b"1", b"2"]


def test_ids_with_slashes(tmp_path: Path) -> None:
    data = build.nested(("a", [Item("x", b"1")]), ("a/b", [Item("x", b"2")]))
    frame = tortilla.open(write(tmp_path, data))
    assert frame.read("a/x") == b"1"
    assert len(frame.read("a/b")) == 1
    with pytest.raises(NotInContainerError):
        frame.read("a/z")


def test_items_of_bytes_and_of_files(tmp_path: Path) -> None:
    inner = build.built([Item("x", b"inside", "GTiff"), Item("y", b"deep")])
    items = [Item("a", b"aaa", more={"n": 1}), Item("roi", inner, "TORTILLA", {"n": None})]
    path = build.write(tmp_path, build.built(items))
    frame = tortilla.open(path)
    assert frame["a"] == frame[0] == b"aaa"
    assert frame["roi/y"] == b"deep"
    assert frame["roi/x"] == f"/vsisubfile/{frame.leaf('roi/x').offset}_6,{path}"
    assert frame.vsi("a") == f"/vsisubfile/200_3,{path}"
    assert frame.leaf("roi").format == "TORTILLA"
    assert set(frame[["n"]].columns) == {"n", *spec.NAVIGATION[1:5], spec.SUBFILE}
    assert frame.tail(1).read("roi/y") == b"deep"
    assert frame.read("roi").read_bytes() == [b"inside", b"deep"]
    assert "1 nested" in repr(frame)
    deep = frame.flatten().where("\"internal:path\" = 'roi/y'")
    part = tortilla.open(tortilla.compile(deep, tmp_path / "part.tortilla"))
    assert (part[spec.ID].to_pylist(), part.read_bytes()) == (["y"], [b"deep"])

    async def everything() -> None:
        again = await tortilla.open_async(path)
        assert again.to_arrow().equals(frame.to_arrow())
        assert await again.read_async("roi/y") == b"deep"
        assert await again.read_bytes_async([0, "roi/y"]) == [b"aaa", b"deep"]
        assert (await again.flatten_async()).to_arrow().equals(frame.flatten().to_arrow())

    asyncio.run(everything())
