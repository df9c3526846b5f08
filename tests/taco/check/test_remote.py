"""Checks over HTTP, which cannot list folders, and with servers that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from comal.errors import ObjectNotFoundError, StorageError
from comal.storage import StorageConfig
from comal.taco.checking import check
from tests.attacks.build import FLAT, NESTED, Index, Recipe, folder
from tests.servers.http import HttpServer

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
