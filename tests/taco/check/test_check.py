"""What a report says, and how it counts; and checks over HTTP, which cannot list folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from comal.errors import InvalidInputError, ObjectNotFoundError, StorageError
from comal.storage import StorageConfig
from comal.taco.checking import check
from comal.taco.checking.archive import SHARE, some
from comal.taco.checking.document import covers, plain_type
from tests.attacks.build import FLAT, NESTED, Index, Recipe, folder, swapped_spans
from tests.attacks.corpus import zipped
from tests.servers.http import HttpServer


def test_report_is_plain_data(tmp_path: Path) -> None:
    recipe = Recipe(table=lambda depth, table: swapped_spans(table) if depth else table)
    report = check(zipped(recipe)(tmp_path))
    data = json.loads(json.dumps(report.to_dict()))
    assert data["ok"] is False
    assert data["container"] == "zip"
    assert data["total"] == data["errors"] + data["warnings"] == len(data["problems"])
    first = data["problems"][0]
    assert set(first) == {"code", "severity", "place", "message"}
    assert first["code"] == "taco-offset-mismatch"
    # Every wrong row is named: the level, the row and the path of the sample.
    assert "level 1, row 0 ('s2/imagery')" in {problem["place"] for problem in data["problems"]}


def test_what_is_no_taco_raises(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        check(tmp_path / "nothing.tacozip")
    with pytest.raises(InvalidInputError):
        check(zipped(Recipe(tree=FLAT))(tmp_path), level="thorough")


def test_progress_is_told(tmp_path: Path) -> None:
    steps: list[str] = []
    check(
        zipped(Recipe(tree=NESTED))(tmp_path), progress=lambda done, total, what: steps.append(what)
    )
    assert "local metadata" in steps
    assert "bytes" in steps


@pytest.mark.parametrize("count", [0, 1, SHARE, SHARE * SHARE, SHARE * SHARE + 1, 10_000])
def test_the_sample_is_a_share_and_never_nothing(count: int) -> None:
    chosen = some(count)
    assert len(chosen) == count
    assert chosen.sum() == count if count <= SHARE * SHARE else chosen.sum() >= count // SHARE - 1
    assert np.array_equal(chosen, some(count))


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ((0, 0, 10, 10), (1, 1, 9, 9), True),
        ((0, 0, 10, 10), (0, 0, 10, 10), True),
        ((0, 0, 10, 10), (1, 1, 9, 11), False),
        ((0, 0, 10, 10), (1, -1, 9, 9), False),
        ((0, 0, 10, 10), (0, 0, 10.5, 10), False),
        ((0, 0, 10, 10), (-1, 1, 9, 9), False),
        ((170, 0, -170, 10), (175, 1, -175, 9), True),
        ((170, 0, -170, 10), (160, 1, -175, 9), False),
        ((170, 0, -170, 10), (-179, 1, -170, 9), True),
        ((-10, 0, 10, 10), (5, 1, -5, 9), False),
        ((-180, -90, 180, 90), (170, 1, -170, 9), True),
        ((-180, -90, 180, 90), (-180, -90, 180, 90), True),
        ((0, 0, 10, 10), (-180, 0, 180, 10), False),
    ],
)
def test_boxes_are_compared_on_the_circle(
    outer: tuple[float, ...], inner: tuple[float, ...], expected: bool
) -> None:
    assert covers(outer, inner) is expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("list(int64)", "list<item: int64>"),
        ("list<element: double>", "list(float64)"),
        ("datetime(time_unit='us', time_zone=none)", "timestamp[us]"),
        ("String", "string"),
        ("boolean", "bool"),
        ("list<item: list<item: float>>", "list(list(float32))"),
        ("map<string, list<element: int8>>", "map<string, list<l: int8>>"),
    ],
)
def test_types_of_all_generations_are_one(first: str, second: str) -> None:
    assert plain_type(first) == plain_type(second)


# -- over HTTP, and with servers that fail ---------------------------------------------------------

FAST = StorageConfig(tries=2, backoff_first=0.01, backoff_limit=0.02)


def test_structure_does_not_read_the_data(http_server: HttpServer) -> None:
    big = bytes(2_000_000)
    url = http_server.put("x.tacozip", Recipe(tree={"a": big, "b": big, "c": big}).build())
    http_server.reset()
    assert check(url, level="structure").problems == ()
    asked = sum(_length(seen.range) for seen in http_server.requests if seen.range)
    assert asked < 1_000_000


def _length(text: str) -> int:
    start, _, end = text.removeprefix("bytes=").partition("-")
    return int(end) - int(start) + 1 if start and end else int(end or 0)


def test_folder(http_server: HttpServer, tmp_path: Path) -> None:
    place = folder(tmp_path / "set", NESTED)
    for path in place.rglob("*"):
        if path.is_file():
            http_server.put(f"set/{path.relative_to(place)}", path.read_bytes())
    url = http_server.url_for("set/")
    assert dict(check(url, config=FAST).counts) == {"taco-unlisted": 1}
    http_server.remove("set/DATA/s1/label.txt")
    assert check(url, config=FAST).counts["taco-file-missing"] == 1


def test_index_with_a_zip_that_cannot_be_reached(http_server: HttpServer, tmp_path: Path) -> None:
    parts = {"a.tacozip": Recipe(tree=FLAT), "b.tacozip": Recipe(tree=FLAT)}
    place = Index(parts).write(tmp_path)
    for name in ("a.tacozip", "b.tacozip", "__TACOCAT__"):
        http_server.put(name, (place / name).read_bytes())
    url = http_server.url_for("__TACOCAT__")
    assert check(url, config=FAST).problems == ()
    http_server.behave("status", path="b.tacozip", status=403)
    assert dict(check(url, config=FAST).counts) == {"taco-source-unchecked": 1}


def test_folder_of_an_index(http_server: HttpServer, tmp_path: Path) -> None:
    place = Index({"a.tacozip": Recipe(tree=FLAT)}).write(tmp_path, ("folder",))
    url = http_server.serve_folder(place, "cat")
    assert check(url, config=FAST).container == "tacocat-folder"
    assert check(url, config=FAST).problems == ()
    assert check(f"{url}/.tacocat", config=FAST, level="structure").ok


def test_failures_of_the_server_are_no_findings(http_server: HttpServer) -> None:
    with pytest.raises(ObjectNotFoundError):
        check(http_server.url_for("nothing.tacozip"), config=FAST)
    url = http_server.put("x.tacozip", Recipe(tree=FLAT).build())
    http_server.behave("status", status=500)
    with pytest.raises(StorageError):
        check(url, config=FAST)
