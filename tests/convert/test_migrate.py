"""The whole way: sources, targets, dry runs, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal import taco, tortilla
from comal.convert import migrate
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from tests.convert.migrated import FIELDS, assert_sound, collection, leaves, moved
from tests.servers.http import HttpServer
from tests.tortilla.build import Item, built, column, nested

ITEMS = [Item(f"s{n}", bytes([n]) * (n + 1)) for n in range(12)]
BYTES = {one.id: one.data for one in ITEMS}


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_items_that_share_bytes_or_have_none(tmp_path: Path) -> None:
    items = [Item("a", b"same"), Item("b", b""), Item("c", b"next")]
    shared = built(items, table=column("tortilla:offset", pa.array([200, 200, 200])))
    output, _ = moved(tmp_path, shared)
    assert leaves(output) == {"a": b"same", "b": b"", "c": b"same"}


def test_parts_by_name_list_pattern_and_frame(tmp_path: Path) -> None:
    for number in range(3):
        part = built(ITEMS[4 * number : 4 * number + 4], parts=3)
        written(tmp_path / f"x.{number + 1:04d}.part.tortilla", part)
    every = sorted(tmp_path.glob("*.part.tortilla"))
    sources: list[Any] = [
        every[1],
        every[::-1],
        str(tmp_path / "x.*.part.tortilla"),
        tortilla.open(every),
    ]
    for n, source in enumerate(sources):
        output = tmp_path / f"new{n}.tacozip"
        migrate(source, output, **FIELDS)
        assert list(leaves(output).items()) == list(BYTES.items())
    every[2].unlink()
    with pytest.raises((InvalidMetadataError, ObjectNotFoundError)):
        migrate(every[0], tmp_path / "half.tacozip", **FIELDS)
    assert not (tmp_path / "half.tacozip").exists()


def test_rows_of_a_frame(tmp_path: Path) -> None:
    source = written(tmp_path / "old.tortilla", built(ITEMS))
    frame = tortilla.open(source)
    migrate(frame[2:4], tmp_path / "new.tacozip", **FIELDS)
    assert list(leaves(tmp_path / "new.tacozip")) == ["s2", "s3"]
    assert frame.read_bytes("s5") == BYTES["s5"]  # the caller's frame stays open
    with pytest.raises(InvalidInputError, match="flattened"):
        migrate(frame.flatten(), tmp_path / "x.tacozip", **FIELDS)
    with pytest.raises(InvalidInputError, match="typed"):
        migrate(tortilla.open(source, typed=False), tmp_path / "x.tacozip", **FIELDS)


def test_hostile_ids(tmp_path: Path) -> None:
    ids = ["../../evil", "/abs", "a/b", "a:b", "a_b", "__meta__", "__TACOPAD__0", "", "x", "X"]
    items = [Item(name, name.encode() or b"empty") for name in ids]
    source = written(tmp_path / "old.tortilla", built(items))
    output = tmp_path / "new"
    report = migrate(source, output, **FIELDS)
    table = {row["old"]: row["new"] for row in report.ids.to_pylist()}
    assert table["../../evil"] == ".._.._evil"
    assert "x" not in table
    assert table["X"] == "X_2"
    found = {path.name: path.read_bytes() for path in (output / "DATA").iterdir()}
    assert found == {table.get(one.id, one.id): one.data for one in items}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old.tortilla"]
    with taco.load(output) as dataset:
        assert dataset.data["tortilla:id"].to_pylist() == ids  # the map is in the archive too
    assert_sound(output)


def test_a_null_id(tmp_path: Path) -> None:
    output, _ = moved(tmp_path, built([Item(None, b"1"), Item("a", b"2")]))
    assert leaves(output) == {"unnamed": b"1", "a": b"2"}


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    data = nested(("r/0", [Item("a", b"12")]), ("r1", [Item("a", b"345")]))
    source = written(tmp_path / "old.tortilla", data)
    report = migrate(source, tmp_path / "new.tacozip", dry_run=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old.tortilla"]
    assert (report.levels, report.leaves, report.bytes) == ((2, 2), 2, 5)
    assert report.ids.to_pylist() == [{"level": 0, "old": "r/0", "new": "r_0"}]
    assert not report.ok
    assert len(report.missing) == 6
    text = "\n".join(report.lines())
    assert "missing: licenses: is missing; give --license" in text
    assert "id: 'r/0' -> 'r_0'" in text
    real = migrate(source, tmp_path / "new.tacozip", **FIELDS)
    again = migrate(source, dry_run=True, **FIELDS)
    assert again.ok
    for name in ("levels", "leaves", "bytes", "changes", "padding"):
        assert getattr(real, name) == getattr(again, name)
    assert real.ids.equals(again.ids)


def test_from_a_server(http_server: HttpServer, tmp_path: Path) -> None:
    children = [Item(name, name.encode() * 5_000) for name in ("a", "b", "c")]
    data = nested(*((f"r{n}", children) for n in range(40)))
    url = http_server.put("old.tortilla", data)
    output = tmp_path / "new.tacozip"
    migrate(url, output, **FIELDS)
    asked = http_server.requests
    assert len(asked) <= 2 + 42 + 1  # header and footer; the children's footers; one run of bytes
    assert all(one.status == 206 and one.method == "GET" for one in asked)
    assert len(leaves(output)) == 120
    local = written(tmp_path / "old.tortilla", data)
    migrate(local, tmp_path / "local.tacozip", **FIELDS)
    assert output.read_bytes() == (tmp_path / "local.tacozip").read_bytes()


@pytest.mark.parametrize("rasters", [False, True])
def test_a_dry_run_reads_no_payload(
    http_server: HttpServer, tmp_path: Path, *, rasters: bool
) -> None:
    more = {"stac:raster_shape": [4, 5]} if rasters else {}
    items = [Item(f"s{n}", bytes(200_000), "GTiff", more) for n in range(10)]
    url = http_server.put("old.tortilla", built(items))
    report = migrate(url, dry_run=True, **FIELDS)
    assert report.bytes == 2_000_000
    assert len(http_server.requests) == (2 + 10 if rasters else 2)  # a head of each raster
    for one in http_server.requests:
        found = re.fullmatch(r"bytes=(?:(\d+)-(\d+)|-(\d+))", one.range or "")
        assert found is not None
        start, stop, tail = (int(part or 0) for part in found.groups())
        assert (tail or stop - start + 1) <= 65_536


def test_a_source_that_changes_is_noticed(http_server: HttpServer, tmp_path: Path) -> None:
    url = http_server.put("old.tortilla", built(ITEMS))
    frame = tortilla.open(url)
    http_server.put("old.tortilla", built(ITEMS[::-1]))
    with pytest.raises(ObjectChangedError):
        migrate(frame, tmp_path / "new.tacozip", **FIELDS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"output": None}, "nowhere to write"),
        ({"children": "name"}, "unknown value of children"),
        ({"bands": 0}, "bands"),
        ({"compresion": "zstd"}, "compresion"),
    ],
)
def test_arguments_that_cannot_be_used(tmp_path: Path, more: dict[str, Any], match: str) -> None:
    source = written(tmp_path / "old.tortilla", built(ITEMS))
    output = more.pop("output", tmp_path / "new.tacozip")
    with pytest.raises(InvalidInputError, match=match):
        migrate(source, output, **{**FIELDS, **more})


def test_a_collection_of_a_taco(tmp_path: Path) -> None:
    stored = {**FIELDS, "task": "regression", "taco_version": "0.4.0", "x y": 1}
    del stored["tasks"]
    source = written(tmp_path / "old.taco", built(ITEMS, collection=stored))
    migrate(source, tmp_path / "new.tacozip", keywords=["k"], extra={"mine:too": [1]})
    found = collection(tmp_path / "new.tacozip")
    assert (found["tasks"], found["keywords"], found["mine:too"]) == (["regression"], ["k"], [1])
    assert found["tortilla:x_y"] == 1
    assert_sound(tmp_path / "new.tacozip")


def test_a_large_item_comes_in_blocks(http_server: HttpServer, tmp_path: Path) -> None:
    large = bytes(range(256)) * (20 << 12)  # 20 MiB
    url = http_server.put("old.tortilla", built([Item("large", large), Item("small", b"1")]))
    migrate(url, tmp_path / "new.tacozip", **FIELDS)
    assert leaves(tmp_path / "new.tacozip") == {"large": large, "small": b"1"}
    for one in http_server.requests:
        start, _, stop = (one.range or "").removeprefix("bytes=").partition("-")
        assert not start or int(stop) - int(start) < 10 << 20
