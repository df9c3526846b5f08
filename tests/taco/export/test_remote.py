"""Copying over HTTP: how many requests it takes, and what happens when the server misbehaves."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from comal.errors import ComalError, ObjectChangedError
from comal.storage import StorageConfig
from comal.taco.copying.exporting import export, folder2zip, zip2folder
from comal.taco.reading.dataset import load
from tests.attacks.build import FLAT, NESTED, Recipe, folder, leaves_of
from tests.servers.http import HttpServer
from tests.taco.export.test_export import check_archive, files_of
from tests.taco.read.scenes import write

MANY = {f"s{n:04}": bytes([n % 251]) * (50 + n % 7) for n in range(2_000)}
FAST = StorageConfig(tries=2, backoff_first=0.01, backoff_limit=0.02)


def test_neighbours_come_in_few_requests(tmp_path: Path, http_server: HttpServer) -> None:
    dataset = load(http_server.put("x.tacozip", Recipe(MANY).build()))
    part = dataset.sql("SELECT * FROM data WHERE id >= 's0500' AND id < 's1000'")
    assert len(part.data) == 500
    http_server.reset()
    path = export(part, tmp_path / "out.tacozip")
    # The rows of the view were read before; what is left is one range of 500 samples.
    assert len(http_server.requests) == 1
    wanted = {name: data for name, data in MANY.items() if "s0500" <= name < "s1000"}
    check_archive(path, wanted)


def test_no_more_than_limit_requests_at_once(tmp_path: Path, http_server: HttpServer) -> None:
    # Samples far apart, so that each takes a request of its own.
    tree = {f"s{n}": bytes([n]) * 70_000 for n in range(24)}
    dataset = load(http_server.put("x.tacozip", Recipe(tree).build()))
    part = dataset.sql("SELECT * FROM data WHERE CAST(id[2:] AS INTEGER) % 2 = 0")
    assert len(part.data) == 12
    busy, most, guard = 0, 0, threading.Lock()

    def enter() -> None:
        nonlocal busy, most
        with guard:
            busy += 1
            most = max(most, busy)
        threading.Event().wait(0.02)
        with guard:
            busy -= 1

    http_server.behave("call", function=enter)
    path = export(part, tmp_path / "out.tacozip", limit=3)
    assert 1 < most <= 3
    check_archive(path, {name: data for name, data in tree.items() if int(name[1:]) % 2 == 0})


def test_zip2folder_of_a_url(tmp_path: Path, http_server: HttpServer) -> None:
    url = http_server.put("x.tacozip", Recipe(NESTED).build())
    http_server.reset()
    path = zip2folder(url, tmp_path / "out")
    assert files_of(path) == dict(leaves_of(NESTED))
    # Header and end of the file, and one range with all samples.
    assert len(http_server.requests) <= 4


def test_a_folder_on_a_server(tmp_path: Path, http_server: HttpServer) -> None:
    tree = {"a": {"x": b"1", "empty": b""}, "b": {"x": b"2", "empty": b""}}
    root = http_server.serve_folder(folder(tmp_path / "x", tree), "x")
    check_archive(export(load(root), tmp_path / "a.tacozip"), dict(leaves_of(tree)))
    check_archive(folder2zip(root + "/", tmp_path / "b.tacozip"), dict(leaves_of(tree)))
    assert files_of(export(load(root), tmp_path / "c", limit=1)) == dict(leaves_of(tree))


def test_an_archive_that_is_replaced_meanwhile(tmp_path: Path, http_server: HttpServer) -> None:
    dataset = load(http_server.put("x.tacozip", Recipe(FLAT).build()), config=FAST)
    assert len(dataset.data) == 4
    http_server.put("x.tacozip", Recipe({**FLAT, "img_0.bin": b"new" * 10}).build())
    with pytest.raises(ObjectChangedError):
        export(dataset, tmp_path / "out.tacozip")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "how", [("status", {"code": 500}), ("short-body", {"keep": 10}), ("reset", {})]
)
def test_a_server_that_fails_leaves_nothing(
    tmp_path: Path, http_server: HttpServer, how: tuple[str, dict[str, Any]]
) -> None:
    tree = {f"s{n}": bytes([n]) * 200_000 for n in range(4)}
    dataset = load(http_server.put("x.tacozip", Recipe(tree).build()), config=FAST)
    assert len(dataset.data) == 4
    http_server.behave(how[0], **how[1])
    for output in ("out.tacozip", "out"):
        with pytest.raises(ComalError):
            export(dataset, tmp_path / output)
    assert list(tmp_path.iterdir()) == []


def test_large_samples_are_streamed(tmp_path: Path, http_server: HttpServer) -> None:
    tree = {"large": bytes(range(256)) * 50_000, "small": b"x"}
    data = Recipe(tree).build()
    dataset = load(http_server.put("x.tacozip", data))
    check_archive(export(dataset, tmp_path / "a.tacozip"), tree)
    assert files_of(export(dataset, tmp_path / "b")) == tree
    place = data.index(bytes(range(256))) + 9_000_000
    damaged = load(write(tmp_path, Recipe(tree, after=lambda d: _flipped(d, place))))
    for output in ("c.tacozip", "c"):
        with pytest.raises(ComalError, match="checksum"):
            export(damaged, tmp_path / output)


def _flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
