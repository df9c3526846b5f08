"""What is opened and what is refused, and what a dataset says about itself.

Requests are counted in `samples/test_remote.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from comal.errors import (
    ComalError,
    InvalidInputError,
    LimitExceededError,
    NotThisFormatError,
    ObjectNotFoundError,
)
from comal.limits import Limits
from comal.taco.model.collection import Sample, Tortilla
from comal.taco.reading.dataset import load
from comal.taco.spec import TacoWarning
from comal.taco.writing.creating import create
from comal.taco.writing.tacocat import create_tacocat
from tests.attacks.build import FLAT, NESTED, Recipe
from tests.servers.http import HttpServer
from tests.taco.read.scenes import expected, read_all, scenes, write, write_folder
from tests.taco.write.small import dataset

SORTED = scenes("a", "b", "c")


def test_missing_and_foreign_files_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        load(tmp_path / "nowhere.tacozip")
    with pytest.raises(NotThisFormatError):
        load(tmp_path)
    other = tmp_path / "other"
    for data, word in (
        (b"", "empty"),
        (b"#y" + bytes(300), "Tortilla"),
        (b"WX" + bytes(300), "Tortilla"),
        (b"PAR1" + bytes(300), "Parquet"),
        (b"\x89PNG" + bytes(300), "not a TACO"),
        (b"PK\x03\x04", "not a TACO"),
    ):
        other.write_bytes(data)
        with pytest.raises(NotThisFormatError, match=word):
            load(other)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotThisFormatError):
        load(pipe)


def test_the_least_collection_is_enough(tmp_path: Path) -> None:
    def least(document: dict[str, Any]) -> dict[str, Any]:
        return {"id": document["id"], "taco:pit_schema": document["taco:pit_schema"]}

    dataset = load(write(tmp_path, Recipe(collection=least)))
    assert read_all(dataset.data) == expected(NESTED)
    assert dataset.extent == {}
    assert (dataset.title, dataset.providers, dataset.field_schema) == (None, [], {})
    assert "attack" in repr(dataset)
    assert "attack" in dataset._repr_html_()


def test_limits_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path, Recipe())
    for limits in (Limits(json_bytes=100), Limits(table_bytes=100), Limits(table_columns=2)):
        with pytest.raises(ComalError, match="limit"):
            load(path, limits=limits)
    with pytest.raises(ComalError, match="leaf bytes"):
        load(path, limits=Limits(leaf_bytes=1)).data.read_bytes("s2/label.txt")


def test_a_wrong_checksum_of_the_header_is_survived_with_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, Recipe(header_crc=1))
    with pytest.warns(TacoWarning, match="checksum"):
        dataset = load(path)
    assert read_all(dataset.data) == expected(NESTED)


def test_nested_reads_never_touch_local_metadata(http_server: HttpServer) -> None:
    recipe = Recipe(tree=SORTED, meta_bytes=lambda name, data: b"\0" * len(data))
    dataset = load(http_server.put("x.tacozip", recipe.build()))
    assert read_all(dataset.data) == expected(SORTED)


def test_folders_and_indexes_open_over_http(http_server: HttpServer, tmp_path: Path) -> None:
    write_folder(tmp_path, Recipe(tree=SORTED), "set")
    url = http_server.serve_folder(tmp_path / "set", "set")
    for place in (url, url + "/"):
        dataset = load(place)
        assert read_all(dataset.data) == expected(SORTED)
    assert dataset.data.read("a/label.txt") == f"/vsicurl/{url}/DATA/a/label.txt"
    with pytest.raises(ObjectNotFoundError):
        load(http_server.url_for("nothing/here"))


@pytest.mark.parametrize("name", ["nope.tacozip", "nope/", "nope/.tacocat", "nope/.tacocat/"])
def test_what_is_missing_is_what_the_caller_named(http_server: HttpServer, name: str) -> None:
    url = http_server.url_for(name)
    with pytest.raises(ObjectNotFoundError) as caught:
        load(url)
    assert caught.value.where == url


PAGE_TEXT = b"\n<!DOCTYPE html><html><title>Index of /set</title>" + b" " * 400


def test_the_page_of_a_server_that_lists_folders(http_server: HttpServer, tmp_path: Path) -> None:
    write_folder(tmp_path, Recipe(tree=SORTED), "set")
    http_server.put("set", PAGE_TEXT)
    url = http_server.serve_folder(tmp_path / "set", "set")
    with pytest.raises(NotThisFormatError, match="page") as caught:
        load(url)
    assert "ends with /" in str(caught.value.hint)
    assert read_all(load(url + "/").data) == expected(SORTED)


def test_lists(tmp_path: Path) -> None:
    one = write(tmp_path, Recipe(tree=scenes("a", "b")), "one.tacozip")
    two = write(tmp_path, Recipe(tree=scenes("c")), "two.tacozip")
    assert load([one, two]).data["id"].to_pylist() == ["a", "b", "c"]
    assert load([one]).data["id"].to_pylist() == ["a", "b"]
    with pytest.raises(InvalidInputError):
        load([])


def test_indexes_find_parts_with_odd_names(http_server: HttpServer, tmp_path: Path) -> None:
    """An index over one ZIP whose name is not a plain part of a URL."""
    create_tacocat([write(tmp_path, Recipe(tree=SORTED), "what? 1%&.tacozip")])
    for index in (load(tmp_path), load(http_server.serve_folder(tmp_path, "set") + "/.tacocat")):
        frame = index.data
        assert read_all(frame) == expected(SORTED)
        below = index.sql("SELECT * FROM level1").data
        assert frame.read("a/label.txt") in below["internal:gdal_vsi"].to_pylist()
        assert frame.read("a")["internal:gdal_vsi"][1].as_py() == frame.read("a/label.txt")
    assert frame.read("a/label.txt").endswith("/set/what%3F%201%25%26.tacozip")


def test_a_large_sample_is_streamed_though_it_is_not_held(tmp_path: Path) -> None:
    large = Tortilla([Sample(id="large", path=bytes(30_000))])
    (path,) = create(dataset(large), tmp_path / "large.tacozip")
    frame = load(path, limits=Limits(leaf_bytes=20_000)).data
    with pytest.raises(LimitExceededError):
        frame.read_bytes("large")
    with frame.open("large") as file:
        assert file.read() == bytes(30_000)


# -- what a dataset says about itself -----------------------------------------------------------


def test_html_is_escaped(tmp_path: Path) -> None:
    """Frames are asked by ``tests/samples/test_frames.py``."""
    bad = "<script>alert(1)</script>"

    def collection(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "title": bad, "description": bad, "tasks": [bad]}

    dataset = load(write(tmp_path, Recipe(tree=FLAT, collection=collection)))
    text = dataset._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "level 0: 4 rows" in repr(dataset)


def test_what_a_dataset_says_about_itself(tmp_path: Path) -> None:
    """And nothing that a caller gets is shared."""
    nested = load(write(tmp_path, Recipe()))
    nested.collection["id"] = "changed"
    nested.collection["providers"].append("x")
    nested.extent["spatial"] = None
    nested.tasks.append("x")
    assert nested.id == "attack"
    assert nested.providers == [{"name": "nobody", "roles": ["producer"]}]
    assert nested.tasks == ["other"]
    assert (nested.version, nested.dataset_version) == ("1.0.0", "1.0.0")
    assert nested.taco_version == "2.0.0"
    assert nested.licenses == ["CC-BY-4.0"]
    assert nested.pit_schema.depth == 2
    assert set(nested.field_schema) == {"level0", "level1", "level2"}
    assert nested.keywords == []
    assert nested.curators == []
