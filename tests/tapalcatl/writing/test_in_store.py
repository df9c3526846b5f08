"""Building a tileset in a store: archives come as they are finished, and a killed build goes on."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from comal import tapalcatl
from comal.errors import ConflictError, StorageError
from comal.parallel import run_all
from comal.storage import StorageConfig, StorePath, growing, targets, upload
from tests.forked import Forked, forked, pool
from tests.servers.s3 import S3Server
from tests.support import files_below
from tests.tapalcatl.making import payload, picture, pyramid, write_files

LAYOUT: dict[str, Any] = {"metatile": 1, "materialized_zooms": [0, 2]}
FIRST: dict[str, Any] = {
    "version": 1,
    "generation1": tapalcatl.Generation1(metatile=4, layer="all"),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Tiles of which a few have an extension or a scale that no sample of them shows."""
    names = {f"{z}/{x}/{y}.png": picture(z + x + y) for z, x, y in pyramid(4)}
    names |= {"4/3/3.mvt": payload(4, 3, 3, "mvt"), "4/9/2@3x.png": picture(7)}
    return write_files(tmp_path / "source", names)


@pytest.fixture
def target(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StorePath]:
    """A key on a server that is asked to publish a few archives at a time."""
    monkeypatch.setattr(growing, "_FILES", 3)
    (tmp_path / "scratch").mkdir()
    config = StorageConfig(s3=s3_server.config.s3, scratch=str(tmp_path / "scratch"), tries=2)
    yield StorePath(s3_server.url_for(f"{uuid.uuid4().hex}/out"), config)
    s3_server.faults.fault = lambda *_: ""


def objects(server: S3Server, target: StorePath) -> dict[str, bytes]:
    """All that is at a target and beside it."""
    return server.objects(target.parent.location.path + "/")


def put(server: S3Server, since: int) -> list[str]:
    """Archives and documents that were put since a request, by their paths in the tileset."""
    asked = [one.split() for one in server.faults.seen[since:]]
    found = (key.partition("/out/")[2] for method, key in asked if method == "PUT")
    return sorted(name for name in found if name)


def run(line: Connection, source: Path, target: StorePath, options: dict[str, Any]) -> None:
    """Build, in a process of its own, which publishes one archive after the other."""
    growing._FILES = 3
    growing.run_all = partial(run_all, threads=1)  # type: ignore[attr-defined]
    line.send("begun")
    tapalcatl.build(source, target, **options)


def stopped_at(number: int, server: S3Server, builder: Forked) -> None:
    """Kill a builder at so many archives."""
    counted: list[str] = []

    def kill(_: int, request: str) -> str:
        if request.startswith("PUT") and "/out/" in request:
            counted.append(request)
            if len(counted) == number + 1:
                os.kill(builder.pid, signal.SIGKILL)
        return "503 Gone" if len(counted) > number else ""

    server.faults.fault = kill
    assert builder.hear() == "begun"
    builder.process.join(60)
    assert builder.process.exitcode == -signal.SIGKILL
    server.faults.fault = lambda *_: ""


@pytest.mark.parametrize(
    ("options", "number"),
    [*((LAYOUT, number) for number in (0, 1, 7, 16, 17)), *((FIRST, number) for number in (0, 9))],
)
def test_a_killed_build_goes_on(
    source: Path,
    target: StorePath,
    s3_server: S3Server,
    tmp_path: Path,
    options: dict[str, Any],
    number: int,
) -> None:
    (tmp_path / "go").mkdir()
    made = tapalcatl.build(source, tmp_path / "go" / "out", **options)
    wanted = files_below(tmp_path / "go")
    with forked(run, source, target, options) as builder:
        stopped_at(number, s3_server, builder)
    left = {name for name in objects(s3_server, target) if name.startswith("out/")}
    assert len(left) == number
    assert "out/meta.json" not in left
    with pytest.raises(ConflictError, match="has begun"):  # nothing is mixed
        tapalcatl.build(source, target, **{**options, "times": 1_541_013_026})
    before = len(s3_server.faults.seen)
    again = tapalcatl.build(source, target, **options)
    assert objects(s3_server, target) == wanted
    assert put(s3_server, before) == sorted(
        name.removeprefix("out/") for name in wanted if name not in left
    )
    assert replace(again, output=made.output, kept=0) == made
    assert again.kept == number
    with pytest.raises(ConflictError, match="exists"):
        tapalcatl.build(source, target, **options)
    assert objects(s3_server, target) == wanted


def test_the_disk_holds_a_few_archives(
    source: Path, target: StorePath, tmp_path: Path, s3_server: S3Server
) -> None:
    scratch, held = tmp_path / "scratch", list[int]()
    made = tapalcatl.build(
        source,
        target,
        executor=ThreadPoolExecutor(1),
        progress=lambda *_: held.append(len(list(scratch.rglob("*.zip")))),
        **LAYOUT,
    )
    assert made.archives == 17
    assert max(held) < 10
    assert list(scratch.iterdir()) == []


def test_processes_write_for_a_store(
    source: Path, target: StorePath, tmp_path: Path, s3_server: S3Server
) -> None:
    (tmp_path / "go").mkdir()
    tapalcatl.build(source, tmp_path / "go" / "out", **LAYOUT)
    with pool(2) as workers:
        tapalcatl.build(source, target, executor=workers, **LAYOUT)
    assert objects(s3_server, target) == files_below(tmp_path / "go")


@pytest.mark.parametrize("error", [StorageError("away"), KeyboardInterrupt()])
def test_an_error_leaves_nothing(
    source: Path, target: StorePath, s3_server: S3Server, error: BaseException
) -> None:
    def stop(done: int, total: int | None, what: str) -> None:
        if done > 5:
            assert len(objects(s3_server, target)) > 3
            raise error

    with pytest.raises(type(error)):
        tapalcatl.build(source, target, progress=stop, **LAYOUT)
    assert objects(s3_server, target) == {}


def test_without_resume_nothing_is_gone_on_with(
    source: Path, target: StorePath, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with forked(run, source, target, LAYOUT) as builder:
        stopped_at(7, s3_server, builder)
    left = objects(s3_server, target)
    with pytest.raises(ConflictError, match="comal clean"):
        tapalcatl.build(source, target, resume=False, **LAYOUT)
    assert objects(s3_server, target) == left
    assert targets.clean(target) == []
    monkeypatch.setattr(upload, "_LEFT", -upload._LEFT)
    assert {path.name for path in targets.clean(target)} > {"build.json"}
    assert objects(s3_server, target) == {}
    tapalcatl.build(source, target, resume=False, **LAYOUT)
    with tapalcatl.open(target) as tiles:
        assert tiles.max_zoom == 4
