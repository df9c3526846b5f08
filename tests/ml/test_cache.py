"""The cache of leaves: shared, checked, bounded, and out of the way when it fails."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import signal
import sqlite3
from pathlib import Path
from typing import Any

import diskcache
import numpy as np
import pytest

from comal import ml, taco
from comal.errors import ComalError
from comal.ml.cache import LeafCache
from tests.ml.made import nested, pack, pixels
from tests.servers.http import HttpServer

FIELDS = {"image": "image.tif", "mask": "mask.tif"}


def served(http_server: HttpServer, folder: Path) -> str:
    path = nested(folder)
    http_server.put("a.tacozip", path.read_bytes())
    return http_server.url_for("a.tacozip")


def test_what_was_read_is_not_fetched_again(http_server: HttpServer, tmp_path: Path) -> None:
    href = served(http_server, tmp_path)
    data = ml.dataset(href, FIELDS, cache=tmp_path / "cache")
    first = data.fetch(range(12))
    asked = len(http_server.requests)
    again = pickle.loads(pickle.dumps(data)).fetch([3, 1])
    data.masked().fetch([3, 1])  # as statistics, figures and TorchGeo's adapter do
    assert len(http_server.requests) == asked
    assert np.array_equal(again[0]["image"], first[3]["image"])
    assert np.array_equal(again[0]["image"], pixels(3))
    # Another opening of the same object finds it, too.
    other = ml.dataset(href, FIELDS, cache=tmp_path / "cache")
    asked = len(http_server.requests)
    assert np.array_equal(other[5]["mask"], pixels(5, bands=1))
    assert len(http_server.requests) == asked


def test_another_version_of_the_object_has_leaves_of_its_own(
    http_server: HttpServer, tmp_path: Path
) -> None:
    href = served(http_server, tmp_path)
    assert ml.dataset(href, FIELDS, cache=tmp_path / "cache")[0]["image"][0, 0, 0] == 0
    (tmp_path / "b").mkdir()
    path = nested(tmp_path / "b", 13)
    http_server.put("a.tacozip", path.read_bytes())
    data = ml.dataset(href, FIELDS, cache=tmp_path / "cache")
    asked = len(http_server.requests)
    assert len(data) == 13
    assert data[0]["image"][0, 0, 0] == 0
    assert len(http_server.requests) > asked


def test_what_has_no_version_is_kept_for_one_opening(
    http_server: HttpServer, tmp_path: Path
) -> None:
    http_server.behave("no-validators")
    for letter in (b"a", b"b"):  # two objects of the same size
        path = pack(tmp_path / "a.tacozip", [taco.Sample(id="x", path=letter * 99)], overwrite=True)
        href = http_server.put("a.tacozip", path.read_bytes())
        data = ml.dataset(href, cache=tmp_path / "cache")
        assert data[0]["data"] == letter * 99
        asked = len(http_server.requests)
        assert data[0]["data"] == letter * 99
        assert len(http_server.requests) == asked


def test_damaged_and_foreign_values_count_as_absent(tmp_path: Path) -> None:
    cache = LeafCache(tmp_path / "c")
    big = os.urandom(100_000)
    cache.put({"a": memoryview(b"small"), "b": memoryview(big)})
    assert bytes(cache.get(["b"])["b"]) == big
    (file,) = (tmp_path / "c").rglob("*.val")
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    file.write_bytes(data)
    with diskcache.Cache(tmp_path / "c") as plain:
        plain["a"] = {"a": "pickle"}
        plain["x"], plain["text"], plain["number"] = b"??", "of somebody", 7
    assert cache.get(["a", "b", "x", "text", "number", "nothing"]) == {}


def test_a_file_is_no_folder_for_a_cache(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("x")
    for folder in (tmp_path / "c", tmp_path / "c" / "d"):
        with pytest.raises(ComalError, match=r"cache.*/c"):
            LeafCache(folder)


def test_it_does_not_grow_over_its_size(tmp_path: Path) -> None:
    cache = LeafCache(tmp_path / "c", 2_000_000)
    for number in range(60):
        cache.put({f"{number}": memoryview(os.urandom(100_000))})
    held = sum(file.stat().st_size for file in (tmp_path / "c").rglob("*.val"))
    assert held < 3_000_000
    assert "59" in cache.get(["59"])


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        sqlite3.OperationalError("full"),
        diskcache.Timeout(),  # another process holds the lock
    ],
)
def test_a_full_disk_is_told_once(tmp_path: Path, error: Any) -> None:
    cache = LeafCache(tmp_path / "c")

    def full(*_: Any, **__: Any) -> None:
        raise error

    kept = cache._cache
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept, "set", full)
        with pytest.warns(UserWarning, match="nothing more is kept"):
            cache.put({"a": memoryview(b"x")})
    cache.put({"b": memoryview(b"x")})  # no second warning, which would be an error here
    assert cache.get(["a", "b"]) == {}


def test_a_killed_process_leaves_a_sound_cache(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_fill, args=(tmp_path / "c",))
    process.start()
    while len(list((tmp_path / "c").rglob("*.val"))) < 20:
        assert process.is_alive()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    found = LeafCache(tmp_path / "c").get(map(str, range(1000)))
    assert len(found) >= 10
    assert all(bytes(value) == key.encode() * 40_000 for key, value in found.items())


def _fill(folder: Path) -> None:
    cache = LeafCache(folder)
    for number in range(1000):
        cache.put({str(number): memoryview(str(number).encode() * 40_000)})
