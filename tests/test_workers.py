"""Every long job gives the same bytes whoever does it: threads, processes, or a cluster of Dask."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from queue import LifoQueue
from typing import Any

import numpy as np
import pytest

from comal import convert, jobs, ml, raquet, taco, tapalcatl, tortilla
from comal.errors import InvalidInputError
from comal.ml import statistics as training
from comal.raquet.writing import job
from comal.raster import opening
from comal.taco.extensions.rasters import GeotiffStats
from comal.taco.writing import containers
from comal.tapalcatl.writing import building
from tests.convert.migrated import FIELDS
from tests.forked import forks
from tests.raquet.writing.sources import noise, on_grid, utm
from tests.support import command, digests, files_below
from tests.tapalcatl.making import sparse, write_mbtiles

Job = Callable[[Path, Path, Any], object]


def _statistics(home: Path, out: Path, executor: Any) -> None:
    samples = [taco.Sample(path.name, path=path) for path in sorted(home.glob("scenes/*/*.tif"))]
    table = taco.Tortilla([taco.Sample(f"s{n}", path=s.path) for n, s in enumerate(samples)])
    table.extend_with(GeotiffStats(executor=executor))
    out.write_text(str(table.export_metadata().to_pydict()["geotiff:stats"]))


def _planned(home: Path, out: Path, executor: Any) -> None:
    out.mkdir()
    plan = out.with_name("plan")
    jobs.plan_taco(home / "scenes", out / "a.tacozip", plan, split_size=1500, id="a")
    ran = jobs.run(plan, executor=executor)
    assert ran.made > 2
    assert not ran.failed
    jobs.merge(plan)
    shutil.rmtree(plan)


def _planned_tortilla(home: Path, out: Path, executor: Any) -> None:
    out.mkdir()
    plan = out.with_name("plan")
    jobs.plan_tortilla(home / "scenes", out / "a.tortilla", plan, chunk_size=1500)
    ran = jobs.run(plan, executor=executor)
    assert ran.made > 2
    assert not ran.failed
    shutil.rmtree(plan)


def _drawn(home: Path, out: Path, executor: Any) -> None:
    source = _once(home / "drawn.parquet", lambda path: raquet.write(home / "grid.tif", path))
    convert.draw(source, out, executor=executor)


def _once(path: Path, make: Callable[[Path], object]) -> Path:
    """A source that some jobs need."""
    if not path.exists():
        make(path)
    return path


def _scenes(home: Path, name: str) -> Path:
    room = tortilla if name.endswith(".tortilla") else taco
    return _once(home / name, lambda path: room.pack_folder(home / "scenes", path))


def _exported(home: Path, out: Path, executor: Any) -> None:
    with taco.load(_scenes(home, "scenes.tacozip")) as dataset:
        taco.export(dataset, out, subset_date="2026-01-01", executor=executor)


def _trained(home: Path, out: Path, executor: Any) -> None:
    fields = {"low": "a.tif", "high": "b.tif"}
    data = ml.dataset(_scenes(home, "scenes.tacozip"), fields)
    found = data.stats(executor=executor, save=out.with_name("saved"))
    assert found["high"].count.tolist() == [5 * 64]
    out.write_text(str(found.to_dict()))


SETS: Mapping[Any, tuple[str, str]] = {
    taco: ("__TACOCAT__", "*.tacozip"),
    tortilla: ("*", "*.tortilla"),
    raquet: ("*", "*.parquet"),
    tapalcatl: ("meta.json", "*.zip"),
}
"""What a check gets of a folder, and its archives."""


def _archives(room: Any, home: Path, folder: Path) -> None:
    folder.mkdir()
    if room is taco:
        taco.pack_folder(home / "scenes", folder / "a.tacozip", split_size=1500, id="a")
    elif room is tortilla:
        tortilla.pack_folder(home / "scenes", folder / "a.tortilla", chunk_size=1500)
    elif room is raquet:
        raquet.write(home / "grid.tif", folder / "a.parquet")
        raquet.write(home / "grid.tif", folder / "b.parquet")
    else:
        tapalcatl.build(home / "a.mbtiles", folder / "tiles")
    first = min(folder.rglob(SETS[room][1]))
    first.write_bytes(first.read_bytes()[:-20])


def _checked(room: Any, home: Path, out: Path, executor: Any) -> None:
    """The report of several archives, the first of which is cut off."""
    folder = _once(home / room.__name__, partial(_archives, room, home))
    name, found = SETS[room][0], sorted(folder.rglob(SETS[room][0]))
    report = room.check(found if name == "*" else found[0], executor=executor)
    assert report.errors
    out.write_text(str(report.to_dict()))


JOBS: Mapping[str, Job] = {
    **{f"check {room.__name__}": partial(_checked, room) for room in SETS},
    "raquet.parquet": lambda home, out, who: raquet.write(
        *(home / "utm.tif", out),
        block_size=64,
        spec_version="0.5.0",
        tile_statistics=True,
        executor=who,
    ),
    "packed.tacozip": lambda home, out, who: taco.pack_folder(home / "scenes", out, executor=who),
    "packed.tortilla": lambda home, out, who: tortilla.pack_folder(
        home / "scenes", out, executor=who
    ),
    "statistics": _statistics,
    "statistics for training": _trained,
    "tiles": lambda home, out, who: tapalcatl.build(home / "a.mbtiles", out, executor=who),
    "again": lambda home, out, who: tapalcatl.remetatile(
        home / "a.mbtiles", out, metatile=2, executor=who
    ),
    "drawn.mbtiles": _drawn,
    "planned": _planned,
    "planned tortilla": _planned_tortilla,
    "exported.tacozip": _exported,
    "unpacked": lambda home, out, who: taco.zip2folder(
        _scenes(home, "scenes.tacozip"), out, executor=who
    ),
    "packed again.tacozip": lambda home, out, who: taco.folder2zip(
        _scenes(home, "folder"), out, executor=who
    ),
    "migrated.tacozip": lambda home, out, who: convert.convert(
        _scenes(home, "scenes.tortilla"), out, **FIELDS, executor=who
    ),
    "converted.parquet": lambda home, out, who: convert.convert(
        home / "grid.tif", out, executor=who
    ),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources, which jobs cut into some pieces each."""
    monkeypatch.setattr(job, "_MOST_SIDE", 256)
    monkeypatch.setattr(opening, "_BATCH", 3)
    monkeypatch.setattr(containers, "_META_GROUP", 2)
    monkeypatch.setattr(building, "_TASK", 4)
    monkeypatch.setattr(training, "_BATCH", 1)
    monkeypatch.setattr(training, "_PART", 2)
    on_grid(tmp_path / "grid.tif", noise((1, 300, 400), "uint8"))
    utm(tmp_path / "utm.tif", noise((2, 300, 400), "float32"), nodata=0)
    for number in range(5):
        folder = tmp_path / "scenes" / f"s{number}"
        folder.mkdir(parents=True)
        utm(folder / "a.tif", np.full((1, 8, 8), number, np.uint8))
        utm(folder / "b.tif", noise((1, 8, 8), "float32", number))
    write_mbtiles(tmp_path / "a.mbtiles", sparse(400, 7, kind="json"))
    return tmp_path


def _done(home: Path, name: str, executor: Any, known: Mapping[str, Job] = JOBS) -> dict[str, str]:
    """Digests of what one of the jobs writes."""
    folder = home / f"made {time.monotonic_ns()}"
    folder.mkdir()
    known[name](home, folder / name, executor)
    return digests(files_below(folder))


LISTENING: Mapping[str, Job] = {
    "raquet": lambda home, out, tell: raquet.write(
        home / "utm.tif", out.with_suffix(".parquet"), block_size=64, progress=tell
    ),
    "tiles": lambda home, out, tell: tapalcatl.build(home / "a.mbtiles", out, progress=tell),
    "taco": lambda home, out, tell: taco.pack_folder(home / "scenes", out, progress=tell),
}


@pytest.mark.parametrize("name", LISTENING)
def test_who_listens_may_fail(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All work has ended then, also while somebody keeps the error, and so what it stopped at."""
    monkeypatch.setattr(containers, "_BLOCK_ROWS", 2)
    told: list[str] = []

    def tell(done: int, total: int | None, what: str) -> None:
        told.append(what)
        if [*threads()]:
            raise ZeroDivisionError(f"{done} {total}")

    def threads() -> list[str]:
        every = threading.enumerate()
        return [one.name for one in every if one.name.startswith("comal-work")]

    assert not threads()
    with pytest.raises(ZeroDivisionError) as caught:
        LISTENING[name](home, home / "out", tell)
    assert caught.type is ZeroDivisionError
    assert threads() == []
    assert [path.name for path in home.iterdir() if path.name.startswith("out")] == []


@contextmanager
def _cluster(**options: Any) -> Iterator[Any]:
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    forks()  # first, as Dask would have less imported
    method = {"distributed.worker.multiprocessing-method": "forkserver"}
    with warnings.catch_warnings(), dask.config.set(method):
        warnings.simplefilter("ignore")  # what a cluster says of ports and clocks is not ours
        named = {"n_workers": 2, "threads_per_worker": 1, "processes": True, **options}
        with (
            distributed.LocalCluster(dashboard_address=None, **named) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


class _Backwards(Executor):
    """One thread, which does the newest task first; all is pickled, as between processes."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1)
        self.thread._work_queue = LifoQueue()  # type: ignore[assignment]
        self.tasks = self.largest = 0

    def submit(self, function: Any, item: Any) -> Any:  # type: ignore[override]
        task = pickle.dumps((function, item))
        self.tasks, self.largest = self.tasks + 1, max(self.largest, len(task))
        return self.thread.submit(_unpickled, task)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.thread.shutdown(wait, cancel_futures=cancel_futures)


def _unpickled(task: bytes) -> Any:
    function, item = pickle.loads(task)
    return pickle.loads(pickle.dumps(function(item)))


@pytest.mark.parametrize("name", JOBS)
def test_the_order_of_ends_gives_the_same_bytes(home: Path, name: str) -> None:
    with _Backwards() as pool:
        assert _done(home, name, pool) == _done(home, name, None)
        assert pool.tasks > 1
        assert pool.largest < 20_000  # no pixels, and no index of all


def test_a_task_of_a_large_data_set_has_its_own_rows_alone(home: Path) -> None:
    leaves = taco.Tortilla([taco.Sample("a.txt", b"x", text="y" * 200)])
    samples = taco.Tortilla([taco.Sample(f"s{n}", leaves) for n in range(200)])
    with _Backwards() as pool:
        taco.create(taco.Taco(samples, **FIELDS), home / "large.tacozip", executor=pool)
        assert pool.tasks == 100
        assert pool.largest < 200 * 200 / 5


NIGHTLY = pytest.mark.skipif("COMAL_FULL_SWEEP" not in os.environ, reason="starts many; nightly")


@NIGHTLY
def test_processes_give_the_same_bytes(home: Path) -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for name in JOBS:
            assert _done(home, name, pool) == _done(home, name, None), name


def test_a_cluster_gives_the_same_bytes_with_a_worker_killed_in_the_middle(home: Path) -> None:
    with _cluster() as client, client.get_executor(retries=2) as executor:
        for name in JOBS:
            assert _done(home, name, executor) == _done(home, name, None), name
        with pytest.raises(InvalidInputError, match="iterable"):
            tapalcatl.build([(0, 0, 0, b"x")], home / "z", ext="png", executor=executor)
        _lose_a_worker(home, client, executor)
        address = client.scheduler_info()["address"]
        path, own = home / "x.parquet", home / "y.parquet"
        command("raquet", "create", home / "grid.tif", path, "--dask", address)
        raquet.write(home / "grid.tif", own)
        assert path.read_bytes() == own.read_bytes()
        broken = home / "z.parquet"
        broken.write_bytes(own.read_bytes()[:-40])
        for words, code in (
            ((own, broken, home / "absent"), 11),
            ((home / "comal.taco" / "__TACOCAT__",), 1),
        ):
            line = ("check", *words, "--json")
            there = command(*line, "--dask", address, code=code)
            assert there.output == command(*line, code=code).output


def _lose_a_worker(home: Path, client: Any, executor: Executor) -> None:
    pids = list(client.run(os.getpid).values())
    seen: list[int] = []

    def progress(done: int, total: int | None, what: str) -> None:
        if not seen:
            os.kill(pids[0], signal.SIGKILL)
        seen.append(done)

    def build(home: Path, out: Path, who: Any) -> None:
        raquet.write(
            home / "utm.tif",
            out,
            block_size=64,
            spec_version="0.5.0",
            executor=who,
            progress=progress if who else lambda *_: None,
        )

    known: Mapping[str, Job] = {"raquet.parquet": build}
    made = _done(home, "raquet.parquet", executor, known)
    assert made == _done(home, "raquet.parquet", None, known)
    assert seen == sorted(seen)
    assert len(seen) > 3


def test_commands_say_why_there_is_no_cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("raquet", "create", home / "grid.tif", home / "x.parquet")
    command(*words, "--dask", "nothing://there", code=7)
    command(*words, "--dask", "local", "--processes", 2, code=2)
    monkeypatch.setitem(sys.modules, "distributed", None)
    told = command(*words, "--dask", "local", code=8)
    assert "comal[dask]" in told.output
    assert not (home / "x.parquet").exists()


@NIGHTLY
def test_a_command_starts_a_cluster_of_its_own(home: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        command("raquet", "create", home / "grid.tif", home / "x.parquet", "--dask", "local")
    command("raquet", "create", home / "grid.tif", home / "y.parquet")
    assert (home / "x.parquet").read_bytes() == (home / "y.parquet").read_bytes()
