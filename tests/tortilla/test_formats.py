"""The generic commands over Tortilla and TACO v1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal.tortilla import spec
from tests.support import SHARED, command, needs_shared
from tests.tortilla import build
from tests.tortilla.build import Item, column, write

FIXTURES = SHARED / "fixtures" / "tortilla"


def run(*arguments: str | Path, code: int = 0) -> bytes:
    return command(*arguments, code=code).stdout_bytes


def info(path: Path) -> dict[str, Any]:
    return json.loads(run("info", path, "--json"))  # type: ignore[no-any-return]


def listed(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("ls", path, "--json").splitlines()]


@needs_shared
def test_bounds_and_profiles() -> None:
    told = info(FIXTURES / "flat_stac_rai.tortilla")
    west, south, east, north = told["bounds"]
    assert -3.01 < west < east < -2.93
    assert 40.64 < south < north < 40.66
    assert told["profiles"] == ["stac-tortilla", "rai-tortilla"]
    assert info(FIXTURES / "flat.taco")["bounds"] == [-3.1, 40.5, -2.9, 40.7]
    assert info(FIXTURES / "flat_plain.tortilla")["bounds"] is None


@pytest.mark.parametrize(
    ("how", "version"),
    [
        ({"parts": 3}, "0.5.0"),
        ({"layout": "v0.1"}, "0.1"),
        ({"layout": "v0.1", "parts": 3, "collection": {"id": "x"}, "magic": b"#y"}, "0.1"),
        ({"layout": "v0.0"}, "0.0.5"),
        ({"layout": "v0.0", "json_footer": True}, "0.0.1"),
        ({"collection": {"id": "x", "taco_version": "0.4.0"}, "parts": 2}, "0.4.0"),
        ({"collection": {"id": "x"}}, "0.5.0"),
    ],
)
def test_what_headers_of_all_generations_say(
    tmp_path: Path, how: dict[str, Any], version: str
) -> None:
    told = info(write(tmp_path, build.built([Item("a", b"a")], **how)))
    assert (told["version"], told["parts"]) == (version, how.get("parts", 1))
    assert told["id"] == ("x" if "collection" in how else None)


def test_keys_that_are_not_there_or_twice(tmp_path: Path) -> None:
    twice = column(spec.ID, pa.array(["a", "a", "b"]))
    path = write(tmp_path, build.built([Item(name, b"x") for name in "xyz"], table=twice))
    assert len(listed(path)) == 3
    run("get", path, "nobody", code=3)
    run("get", path, "a", code=6)
    assert run("get", path, "b") == b"x"
    run("check", path, code=1)
    run("check", path, "--repair", tmp_path / "y", code=2)


def test_shared_nested_files_are_counted_for_each_row(tmp_path: Path) -> None:
    inner = build.built([Item("x", b"x"), Item("y", b"y")])
    spans = column(spec.OFFSET, pa.array([200, 200, 200 + len(inner)]))
    items = [Item("a", inner, "TORTILLA"), Item("b", b"", "TORTILLA"), Item("c", b"c")]
    sizes = column(spec.LENGTH, pa.array([len(inner), len(inner), 1]))
    path = write(tmp_path, build.built(items, table=lambda table: sizes(spans(table))))
    assert info(path)["count"] == 5
    assert [one["key"] for one in listed(path)] == ["a/x", "a/y", "b/x", "b/y", "c"]


def test_broken_values_do_not_spoil_the_rest(tmp_path: Path) -> None:
    items = [
        Item(
            "a",
            b"a",
            more={spec.CRS: "nowhere", spec.GEOTRANSFORM: [0.0] * 6, spec.RASTER_SHAPE: [1, 1]},
        )
    ]
    path = write(tmp_path, build.built(items))
    assert info(path)["bounds"] is None
    run("check", path, code=1)
