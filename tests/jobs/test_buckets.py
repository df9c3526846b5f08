"""Plans of which something lies in a store: the same bytes, and nothing torn, lost or twice."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from comal import jobs, raquet, taco
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    ObjectNotFoundError,
    UnsafeContentError,
)
from comal.jobs import kinds
from comal.jobs.plans import Plan
from comal.samples import copying
from comal.storage import StorageConfig
from comal.storage.cloud import memory_store
from comal.storage.source import Request, observed
from tests.forked import forked, pool
from tests.raquet.writing.sources import noise, utm
from tests.servers.s3 import S3Server
from tests.support import files_below, objects

FIELDS: dict[str, Any] = {"id": "scenes", "licenses": ["CC0-1.0"], "providers": [{"name": "us"}]}


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """Four scenes of a raster each."""
    for number in range(4):
        folder = tmp_path / "scenes" / f"s{number}"
        folder.mkdir(parents=True)
        utm(folder / "a.tif", np.full((1, 8, 8), number, np.uint8))
    return tmp_path / "scenes"


@pytest.fixture
def rasters(tmp_path: Path) -> list[Path]:
    """Three small rasters."""
    paths = [tmp_path / f"r{number}.tif" for number in range(3)]
    for number, path in enumerate(paths):
        utm(path, noise((1, 40, 60), "uint8", seed=number))
    return paths


def in_one_go(rasters: list[Path], out: Path) -> dict[str, bytes]:
    out.mkdir()
    for path in rasters:
        raquet.write(path, out / f"{path.stem}.parquet", block_size=32)
    return files_below(out)


@pytest.mark.parametrize("remote", ["plan", "out", "plan out"])
def test_plan_and_archives_may_lie_in_a_store(tmp_path: Path, scenes: Path, remote: str) -> None:
    bucket = uuid.uuid4().hex
    store, local = memory_store(bucket), tmp_path / "here"
    local.mkdir()
    (tmp_path / "go").mkdir()
    taco.pack_folder(scenes, tmp_path / "go" / "all.tacozip", split_size=2000, **FIELDS)

    def place(name: str) -> str:
        return f"memory://{bucket}/in/{name}" if name in remote else str(local / name)

    out, plan = place("out"), place("plan")
    (local / "out").mkdir()
    made = jobs.plan_taco(scenes, f"{out}/all.tacozip", plan, split_size=2000, **FIELDS)
    assert len(made.parts) > 1
    with pytest.raises(ConflictError):
        jobs.plan_taco(scenes, f"{out}/all.tacozip", plan, split_size=2000, **FIELDS)
    assert {one.state for one in jobs.status(plan)} == {"waiting"}
    with pytest.raises(InvalidInputError, match="lacking"):
        jobs.merge(plan)
    assert jobs.run(plan, (1, 2)).made + jobs.run(plan, (0, 2)).made == len(made.parts)
    assert {one.state for one in jobs.status(plan)} == {"done"}
    told = jobs.merge(plan)
    found = objects(store, "in/out/") if "out" in remote else files_below(local / "out")
    assert found == files_below(tmp_path / "go")
    assert told["size"] == sum(len(found[part.name]) for part in made.parts)
    assert jobs.run(plan).kept == len(made.parts)
    with taco.load(f"{out}/__TACOCAT__") as dataset:
        assert len(dataset.data) == told["items"] == 4
    if "out" in remote:  # a merge was ended after an object of its index
        obstore.delete(store, "in/out/.tacocat/COLLECTION.json")
    assert jobs.merge(plan) == told
    assert found == (objects(store, "in/out/") if "out" in remote else files_below(local / "out"))
    if "out" in remote:  # several objects are not replaced together
        obstore.put(store, "in/out/.tacocat/COLLECTION.json", b"{}")
        with pytest.raises(ConflictError, match="other bytes"):
            jobs.merge(plan)
    with pytest.raises(ConflictError, match="exists"):
        jobs.plan_taco(scenes, f"{out}/all.tacozip", place("plan") + "2", split_size=2000, **FIELDS)


def test_what_is_there_is_looked_at_again(tmp_path: Path, rasters: list[Path]) -> None:
    bucket = uuid.uuid4().hex
    store, plan = memory_store(bucket), f"memory://{bucket}/plan"
    wanted = in_one_go(rasters, tmp_path / "go")
    jobs.plan_raquet(rasters, f"memory://{bucket}/out", plan, block_size=32)
    assert jobs.run(plan).made == 3
    seen: list[Request] = []
    with observed(seen.append):
        assert jobs.run(plan).kept == 3
    assert sum(one.size for one in seen if "/out/" in one.href) == 0  # their tags tell enough
    obstore.delete(store, "plan/done/r0.parquet.json")  # killed between the file and its record
    damaged = bytearray(wanted["r1.parquet"])
    damaged[60] ^= 1
    obstore.put(store, "out/r1.parquet", bytes(damaged))
    obstore.put(store, "out/r2.parquet", wanted["r2.parquet"])  # copied: another tag
    ran = jobs.run(plan)
    assert (ran.made, ran.kept, ran.failed) == (1, 2, {})
    assert objects(store, "out/") == wanted
    obstore.put(store, "out/r2.parquet", wanted["r2.parquet"][:-1])
    with pytest.raises(InvalidInputError, match="changed"):
        jobs.merge(plan)
    obstore.put(store, "out/r2.parquet", b"a letter")
    assert "another kind" in jobs.run(plan).failed["r2.parquet"]
    assert objects(store, "out/")["r2.parquet"] == b"a letter"
    obstore.delete(store, "out/r2.parquet")
    assert jobs.status(plan)[2].state == "failed"
    jobs.run(plan)
    for _ in range(2):  # one object is replaced
        assert jobs.merge(plan)["items"] == 3
    assert [one["name"] for one in json.loads(objects(store, "out/")["index.json"])["files"]] == [
        "r0.parquet",
        "r1.parquet",
        "r2.parquet",
    ]


def test_status_asks_for_lists(tmp_path: Path) -> None:
    bucket = uuid.uuid4().hex
    store, plan = memory_store(bucket), f"memory://{bucket}/plan"
    sources = [f"s3://nowhere/r{number}.tif" for number in range(1000)]
    made = jobs.plan_raquet(sources, f"memory://{bucket}/out", plan)
    for part in made.parts[:900]:
        obstore.put(store, f"plan/done/{part.name}.json", b"{}")
        obstore.put(store, f"out/{part.name}", b"x")
    state = {"state": "failed", "host": "h", "pid": 1, "since": "now", "reason": "because"}
    obstore.put(store, f"plan/state/{made.parts[950].name}.json", json.dumps(state).encode())
    seen: list[Request] = []
    with observed(seen.append):
        found = jobs.status(plan)
    assert [one.kind for one in seen] == ["get", "list", "list", "list", "get"]
    assert [one.state for one in found].count("done") == 900
    assert (found[950].state, found[950].reason) == ("failed", "because")


# -- sources in a store ----------------------------------------------------------------------------


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[S3Server, str]]:
    """A server, and a prefix that nobody else uses; the environment knows its keys."""
    for name, value in s3_server.config.s3.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    yield s3_server, uuid.uuid4().hex
    s3_server.faults.fault = lambda *_: ""


def _filled(kind: str, request: pytest.FixtureRequest, folder: Path) -> tuple[Any, str, str]:
    """A store with the files of a folder, its prefix with a slash, and the URL of the prefix."""
    if kind == "memory":
        name = uuid.uuid4().hex
        store, prefix, top = memory_store(name), "", f"memory://{name}"
    else:
        server, key = request.getfixturevalue("bucket")
        store, prefix, top = server.store, f"{key}/", server.url_for(key)
    for name, data in files_below(folder).items():
        obstore.put(store, f"{prefix}scenes/{name}", data)
    return store, prefix, top


def _manifest(folder: str, local: Path | None = None) -> Any:
    """Nested samples out of order; the rasters of some come from elsewhere."""
    ids = [f"s{n}/{name}" for name in ("a.tif", "b.txt") for n in (2, 0, 3)]
    base = [f"{folder}/" if n % 2 else "" for n in range(6)]
    if local is not None:
        base[4] = f"{local}/"
    paths = [None, *(at + name for at, name in zip(base, ids, strict=True))]
    days = [f"2025-06-0{n + 1}" for n in range(7)]
    return pa.table({"id": ["s2", *ids], "path": paths, "time_start": days, "cloud": range(7)})


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("memory", "table"),
        ("memory", "csv"),
        ("memory", "parquet"),
        ("s3", "folder"),
    ],
)
def test_files_of_a_store_are_packed_like_those_of_a_disk(
    tmp_path: Path,
    scenes: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    listed: str,
) -> None:
    for number in range(4):
        (scenes / f"s{number}" / "b.txt").write_bytes(b"" if number == 2 else os.urandom(1000))
    (scenes / "s1" / "b.txt").write_bytes(bytes(range(256)) * 40)
    monkeypatch.setattr(copying, "STREAM_BYTES", 10_000)  # copied as a stream
    (scenes / ".hidden").mkdir()
    (scenes / ".hidden" / "c.txt").write_bytes(b"c")
    store, prefix, top = _filled(kind, request, scenes)
    obstore.put(store, f"{prefix}scenes/s0", b"")  # a mark of a folder
    far: dict[str, Any] = {"split_size": 2000, **FIELDS}
    near = dict(far)
    if listed != "folder":
        near["manifest"] = _manifest(str(scenes))
        far["manifest"] = table = _manifest(f"{top}/scenes", scenes)
    if listed == "csv":
        pa_csv.write_csv(table, path := tmp_path / "m.csv")
    elif listed == "parquet":
        pq.write_table(table, path := tmp_path / "m.parquet")
    if listed in {"csv", "parquet"}:
        obstore.put(store, f"{prefix}list/{path.name}", path.read_bytes())
        near["manifest"] = tmp_path / f"near.{listed}"
        (pa_csv.write_csv if listed == "csv" else pq.write_table)(
            _manifest(str(scenes)), near["manifest"]
        )
        far["manifest"] = f"{top}/list/{path.name}"
    for name in ("go", "again"):
        (tmp_path / name).mkdir()
    taco.pack_folder(scenes, tmp_path / "go" / "all.tacozip", **near)
    seen: list[Request] = []
    with observed(seen.append):
        taco.pack_folder(f"{top}/scenes", tmp_path / "again" / "all.tacozip", **far)
    wanted = files_below(tmp_path / "go")
    assert files_below(tmp_path / "again") == wanted
    asked = sum(one.kind == "get" and one.size == 0 for one in seen)
    assert asked == (0 if listed == "folder" else 5)  # those of a manifest, once each
    out, plan = f"{top}/out", f"{top}/plan"
    made = jobs.plan_taco(f"{top}/scenes", f"{out}/all.tacozip", plan, **far)
    assert len(made.parts) == (4 if listed == "folder" else 3)
    assert jobs.run(plan, (0, 2)).failed == jobs.run(plan, (1, 2)).failed == {}
    jobs.merge(plan)
    assert objects(store, f"{prefix}out/") == wanted


@pytest.mark.parametrize("kind", ["local", "memory", "s3"])
def test_a_file_that_changed_since_the_plan_is_named(
    tmp_path: Path, scenes: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    (scenes / "s3" / "b.txt").write_bytes(b"")
    home = str(scenes)
    if kind != "local":
        store, prefix, top = _filled(kind, request, scenes)
        home = f"{top}/scenes"

    def put(name: str, data: bytes | None) -> None:
        if kind == "local":
            (scenes / name).unlink()
        else:
            obstore.delete(store, f"{prefix}scenes/{name}")
        if data is None:
            return
        if kind != "local":
            obstore.put(store, f"{prefix}scenes/{name}", data)
            return
        (scenes / name).write_bytes(data)
        os.utime(scenes / name, (0, 0))

    plan = tmp_path / "plan"
    (tmp_path / "out").mkdir()
    options: dict[str, Any] = {"split_size": 1, "pad": True, **FIELDS}
    made = jobs.plan_taco(home, tmp_path / "out" / "all.tacozip", plan, **options)
    assert len(made.parts) == 4
    raster = (scenes / "s0" / "a.tif").read_bytes()
    put("s0/a.tif", raster[:-1] + b"\1")
    put("s1/a.tif", None)
    put("s3/b.txt", b"x")
    ran = jobs.run(plan)
    assert (ran.made, len(ran.failed)) == (1, 3)
    for part, name in ((0, "s0/a.tif"), (1, "s1/a.tif"), (3, "s3/b.txt")):
        reason = ran.failed[made.parts[part].name]
        assert f"{home}/{name}" in reason
        assert ("no such" if part == 1 else "changed") in reason.lower()


def test_what_cannot_be_packed_from_afar(
    tmp_path: Path, scenes: Path, request: pytest.FixtureRequest
) -> None:
    store, _, top = _filled("memory", request, scenes)
    obstore.put(store, "file", b"x")
    url = pa.table({"id": ["a"], "path": ["https://example.org/a.tif?key=secret"]})
    cases: tuple[tuple[str, dict[str, Any], type[ComalError], str], ...] = (
        (f"{top}/no", {}, ObjectNotFoundError, "no such folder"),
        (f"{top}/file", {}, InvalidInputError, "not a file"),
        (f"{top}/scenes", {"pattern": "*.q"}, InvalidInputError, "no files"),
        (f"{top}/scenes", {"pattern": []}, InvalidInputError, "no files"),
        ("http://localhost:1/a", {}, ComalError, "list"),
        (f"{top}/scenes", {"manifest": url}, InvalidInputError, "has a query"),
        (f"{top}/scenes", {"manifest": f"{top}/no.csv"}, ObjectNotFoundError, "no such object"),
    )
    for directory, options, kind, text in cases:
        with pytest.raises(kind, match=text) as caught:
            taco.pack_folder(directory, tmp_path / "a.tacozip", **options)
        assert "secret" not in str(caught.value)
    for path in ("../a.tif", "s9/a.tif"):
        manifest = pa.table({"id": ["a"], "path": [path]})
        with pytest.raises((UnsafeContentError, ObjectNotFoundError)):
            taco.pack_folder(f"{top}/scenes", tmp_path / "a.tacozip", manifest=manifest)
    for _ in range(2):  # the target is not one of its own samples
        taco.pack_folder(f"{top}/scenes", f"{top}/scenes/a.tacozip", overwrite=True, **FIELDS)
    taco.pack_folder(scenes, tmp_path / "a.tacozip", **FIELDS)
    assert objects(store, "scenes/")["a.tacozip"] == (tmp_path / "a.tacozip").read_bytes()
    with pytest.raises(ConflictError, match="holds the source"):
        taco.pack_folder(f"{top}/scenes/s1", f"{top}/scenes", **FIELDS)


# -- S3 --------------------------------------------------------------------------------------------


def run_slowly(line: Connection, plan: str) -> None:
    """Say which file is made, and wait before it gets its name."""
    make = kinds.MAKE["raquet"]

    def slow(plan: Any, part: Any, *more: Any) -> Any:
        made = make(plan, part, *more)
        line.send(part.name)
        line.recv()
        return made

    kinds.MAKE["raquet"] = slow
    line.send(jobs.run(plan).to_dict())


def test_two_runners_of_a_part_keep_the_first(
    tmp_path: Path, rasters: list[Path], bucket: tuple[S3Server, str]
) -> None:
    server, prefix = bucket
    wanted = in_one_go(rasters, tmp_path / "go")
    plan, out = (server.url_for(f"{prefix}/{name}") for name in ("plan", "out"))
    for path in rasters:  # sources lie there, too
        server.put(f"{prefix}/in/{path.name}", path.read_bytes())
    sources = [server.url_for(f"{prefix}/in/{path.name}") for path in rasters]
    jobs.plan_raquet(sources, out, plan, block_size=32)
    with forked(run_slowly, plan) as one, forked(run_slowly, plan) as other:
        for path in rasters:
            for runner in (one, other):  # both have made it before either gives it its name
                assert runner.hear() == f"{path.stem}.parquet"
            assert jobs.status(plan)[rasters.index(path)].state == "running"
            for runner in (one, other):
                runner.line.send("go on")
        told = [one.hear(), other.hear()]
    assert [one["failed"] for one in told] == [{}, {}]
    assert [sum(one[what] for one in told) for what in ("made", "kept", "elsewhere")] == [3, 3, 0]
    assert server.objects(f"{prefix}/out/") == wanted
    assert jobs.run(plan).kept == 3
    assert jobs.merge(plan)["parts"] == 3


def run_without_records(line: Connection, plan: str) -> None:
    """Stay where a part has its name, and no record yet."""

    def slow(*_: Any, **__: Any) -> None:
        line.send("there")
        line.recv()

    Plan.record = slow  # type: ignore[method-assign]  # in the process of this runner alone
    jobs.run(plan)


def test_a_runner_is_killed_before_its_record(
    tmp_path: Path, rasters: list[Path], bucket: tuple[S3Server, str]
) -> None:
    server, prefix = bucket
    wanted = in_one_go(rasters, tmp_path / "go")
    plan = server.url_for(f"{prefix}/plan")
    jobs.plan_raquet(rasters, server.url_for(f"{prefix}/out"), plan, block_size=32)
    del server.faults.seen[:]
    with forked(run_without_records, plan) as runner:
        assert runner.hear() == "there"
        runner.process.kill()
    asked = [one for one in server.faults.seen if "/state/" in one]
    assert [one.split()[0] for one in asked] == ["PUT"]  # a sign of life is one request
    assert list(server.objects(f"{prefix}/out/")) == ["r0.parquet"]
    assert [one.state for one in jobs.status(plan)] == ["waiting"] * 3
    ran = jobs.run(plan)
    assert (ran.made, ran.kept) == (2, 1)
    assert server.objects(f"{prefix}/out/") == wanted
    with pool(2) as workers:
        assert jobs.run(plan, executor=workers).kept == 3
    with pytest.raises(ObjectNotFoundError):
        jobs.status(server.url_for(f"{prefix}/no"))


FULL = "COMAL_FULL_SWEEP" in os.environ
FAULTS = ("500 Oh", "lost", "412 No", "403 No")


@pytest.mark.parametrize("fault", FAULTS if FULL else FAULTS[1:3])
def test_each_request_of_a_runner_fails(
    tmp_path: Path,
    rasters: list[Path],
    s3_server: S3Server,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever was answered wrongly, the next run ends it, and nothing is ever half there."""
    wanted = in_one_go(rasters[:1], tmp_path / "go")["r0.parquet"]
    config = StorageConfig(
        s3=s3_server.config.s3,
        backoff_first=0.01,
        backoff_limit=0.02,
        total_timeout=10.0,
        slowest=1 << 30,
    )
    # To make it takes longer than everything else.
    monkeypatch.setitem(
        kinds.MAKE,
        "raquet",
        lambda _plan, _part, path, _threads: path.write_bytes(wanted) and {"items": 1},
    )

    prefix = uuid.uuid4().hex
    plan, out = (s3_server.url_for(f"{prefix}/{name}") for name in ("plan", "out"))
    jobs.plan_raquet(rasters[:1], out, plan, config=config)
    planned = s3_server.objects(prefix)

    def attempt(first: int) -> bool:
        """Whether the fault was met."""
        s3_server.remove(prefix)
        for name, data in planned.items():
            s3_server.put(prefix + name, data)
        del s3_server.faults.seen[:]
        s3_server.faults.fault = lambda number, _: fault if number == first else ""
        try:
            ran = jobs.run(plan, config=config)
            made = not ran.failed
        except ComalError:
            made = False
        finally:
            s3_server.faults.fault = lambda *_: ""
        met = len(s3_server.faults.seen) >= first
        what = s3_server.faults.seen[first - 1 :]
        found = s3_server.objects(f"{prefix}/")
        assert found.get("out/r0.parquet", wanted) == wanted, what
        for name in found:
            if name.endswith(".json"):
                json.loads(found[name])
        assert made or fault in ("403 No", "412 No"), what
        again = jobs.run(plan, config=config)
        assert (again.failed, again.made + again.kept) == ({}, 1), what
        assert [one.state for one in jobs.status(plan, config=config)] == ["done"], what
        assert s3_server.objects(f"{prefix}/out/") == {"r0.parquet": wanted}, what
        return met

    # The ordinary run has each request in one of both ways.
    number = 1 if FULL else FAULTS.index(fault)
    while attempt(number):
        number += 1 if FULL else 2
    assert number > 10


def test_a_plan_has_no_credentials(
    tmp_path: Path, rasters: list[Path], s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    prefix = uuid.uuid4().hex
    keys = {**s3_server.config.s3, "secret_access_key": "tell-nobody"}
    config = replace(s3_server.config, s3=keys)
    plan, out = (s3_server.url_for(f"{prefix}/{name}") for name in ("plan", "out"))
    jobs.plan_raquet(rasters, out, plan, config=config)
    with pool(2) as workers:
        assert jobs.run(plan, config=config, executor=workers).made == 3
    assert {one.state for one in jobs.status(plan, config=config)} == {"done"}
    jobs.merge(plan, config=config)
    for path in rasters:
        s3_server.put(f"{prefix}/in/{path.name}", path.read_bytes())
    source = s3_server.url_for(f"{prefix}/in")
    jobs.plan_taco(source, f"{out}/a.tacozip", f"{plan}/2", split_size=1, config=config, **FIELDS)
    with pool(2) as workers:
        assert jobs.run(f"{plan}/2", config=config, executor=workers).made == 3
    for data in s3_server.objects(f"{prefix}/plan/").values():
        assert b"tell-nobody" not in data
