"""Plans: the same bytes as in one go, whoever runs which share, after whatever went wrong."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
from rasterio.shutil import copy as rio_copy

from comal import jobs, raquet, taco
from comal.errors import (
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectNotFoundError,
    UnsupportedVersionError,
)
from comal.jobs import kinds, running
from comal.jobs.plans import Plan
from comal.storage.targetlock import LeftoverWarning, locked
from tests.forked import forked
from tests.raquet.writing.sources import noise, utm
from tests.support import command, digests, files_below

FIELDS: Mapping[str, Any] = {
    "id": "scenes",
    "licenses": ["CC0-1.0"],
    "providers": [{"name": "us"}],
    "extra": {"mine:field": [1, {"a": None}]},
}


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """Seven scenes of two files; the last has no raster, and its text is longer than a part."""
    for number in range(7):
        folder = tmp_path / "scenes" / f"s{number}"
        folder.mkdir(parents=True)
        if number < 6:
            utm(folder / "a.tif", np.full((1, 8, 8), number, np.uint8))
        else:
            (folder / "a.tif").write_bytes((folder.parent / "s0" / "a.tif").read_bytes())
        (folder / "b.txt").write_text("x" * (10 + 5000 * (number == 6)))
    return tmp_path / "scenes"


@pytest.fixture
def rasters(tmp_path: Path) -> list[Path]:
    """Four rasters of two bands, one with nodata."""
    paths = []
    for number, kind in enumerate(("uint8", "uint8", "float32", "float32")):
        path = tmp_path / f"r{number}.tif"
        utm(path, noise((2, 40, 60), kind, seed=number), nodata=0 if number % 2 else None)
        paths.append(path)
    return paths


def _planned(scenes: Path, out: Path, **options: Any) -> Path:
    """A plan of some parts of about two scenes each."""
    out.mkdir(exist_ok=True)
    plan = out.with_name(out.name + ".plan")
    jobs.plan_taco(scenes, out / "all.tacozip", plan, split_size=3000, **{**FIELDS, **options})
    return plan


def _in_one_go(scenes: Path, out: Path, **options: Any) -> dict[str, str]:
    out.mkdir()
    taco.pack_folder(scenes, out / "all.tacozip", split_size=3000, **{**FIELDS, **options})
    return digests(files_below(out))


def _nested_manifest(scenes: Path) -> Any:
    ids = [f"s{n}/{name}" for n in range(7) for name in ("a.tif", "b.txt")]
    return pa.table(
        {
            "id": [f"s{n}" for n in range(7)] + ids,
            "path": pa.array([None] * 7 + ids, pa.string()),
            "cloud": pa.array([*map(float, range(7)), *([None] * 14)]),
            "time_start": pa.array([*(f"2025-06-0{n + 1}" for n in range(7)), *([None] * 14)]),
            "nothing": pa.nulls(21),
        }
    )


def _flat_manifest(scenes: Path) -> Any:
    """Files without folders; a part of them has no raster."""
    paths = [f"s{n}/a.tif" for n in range(6)] + [f"s{n}/b.txt" for n in range(7)]
    return pa.table({"id": [p.replace("/", "_") for p in paths], "path": paths})


@pytest.mark.parametrize(
    ("manifest", "options"),
    [
        (None, {}),
        (None, {"stac": False, "compression": "none", "extent": None}),
        (_nested_manifest, {"keywords": ["a"]}),
        (_flat_manifest, {}),
    ],
)
def test_a_plan_of_taco_gives_what_one_call_gives(
    tmp_path: Path, scenes: Path, manifest: Callable[[Path], Any] | None, options: Any
) -> None:
    if manifest is not None:
        options = {**options, "manifest": manifest(scenes)}
    wanted = _in_one_go(scenes, tmp_path / "go", **options)
    assert len(wanted) >= 6
    plan = _planned(scenes, tmp_path / "out", **options)
    # Any order, by two shards, the second with threads of its own.
    with ThreadPoolExecutor(2) as pool:
        second = jobs.run(plan, (1, 2), executor=pool)
    states = [one.state for one in jobs.status(plan)]
    assert states == [("waiting", "done")[number % 2] for number in range(len(states))]
    with pytest.raises(InvalidInputError, match="lacking") as caught:
        jobs.merge(plan)
    assert "all_part0001.tacozip" in str(caught.value)
    first = jobs.run(plan, (0, 2))
    assert first.made + second.made == len(jobs.status(plan))
    told = jobs.merge(plan)
    assert digests(files_below(tmp_path / "out")) == wanted
    assert told["parts"] == first.made + second.made
    with taco.load(tmp_path / "out" / "__TACOCAT__") as dataset:
        assert told["items"] == len(dataset.data)
    jobs.merge(plan)
    assert digests(files_below(tmp_path / "out")) == wanted


def test_a_plan_is_read_by_people(tmp_path: Path, scenes: Path) -> None:
    plan = _planned(scenes, tmp_path / "out")
    document = json.loads((plan / "job.json").read_text())
    assert document["kind"] == "taco"
    assert document["output"] == str(tmp_path / "out")
    assert document["parts"][0]["name"] == "all_part0001.tacozip"
    assert sum(part["items"] for part in document["parts"]) == 7
    other = _planned(scenes, tmp_path / "other")
    text = (plan / "job.json").read_text().replace(str(tmp_path / "out"), str(tmp_path / "other"))
    assert (other / "job.json").read_text() == text
    tables = {path.name for path in (plan / "parts").iterdir()}
    assert len(tables) == 2 * len(document["parts"])


def test_what_is_there_and_right_is_not_made_again(
    tmp_path: Path, scenes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = _planned(scenes, tmp_path / "out")
    made = jobs.run(plan)
    parts = sorted((tmp_path / "out").iterdir())
    assert made.to_dict() == {
        "made": len(parts),
        "kept": 0,
        "empty": 0,
        "elsewhere": 0,
        "failed": {},
    }
    times = {path: path.stat().st_mtime_ns for path in parts}
    wanted = digests(files_below(tmp_path / "out"))
    assert jobs.run(plan).kept == len(parts)
    assert {path: path.stat().st_mtime_ns for path in parts} == times
    parts[0].unlink()
    damaged = bytearray(parts[1].read_bytes())
    damaged[60] ^= 1
    parts[1].write_bytes(damaged)
    (plan / "done" / f"{parts[2].name}.json").unlink()  # killed between the file and its record
    assert jobs.status(plan)[0].state == "waiting"
    again = jobs.run(plan)
    assert (again.made, again.kept, again.failed) == (2, len(parts) - 2, {})
    assert (plan / "done" / f"{parts[2].name}.json").exists()
    assert digests(files_below(tmp_path / "out")) == wanted
    assert jobs.run(plan).kept == len(parts)


def test_a_part_that_fails_says_why_and_stops_no_other(tmp_path: Path, scenes: Path) -> None:
    plan = _planned(scenes, tmp_path / "out")
    lost = scenes / "s2" / "a.tif"
    data, time_of = lost.read_bytes(), lost.stat().st_mtime_ns
    lost.write_bytes(b"no raster" + data[9:])
    os.utime(lost, ns=(time_of, time_of))  # else it would be another file than was planned
    ran = jobs.run(plan)
    ((name, reason),) = ran.failed.items()
    assert "a.tif" in reason
    states = {one.name: one for one in jobs.status(plan)}
    assert states[name].state == "failed"
    assert states[name].reason == reason
    assert ran.made == len(states) - 1
    lost.write_bytes(data)
    os.utime(lost, ns=(time_of, time_of))
    assert jobs.run(plan).made == 1
    assert {one.state for one in jobs.status(plan)} == {"done"}


def test_two_runners_of_one_share_do_no_harm(tmp_path: Path, scenes: Path) -> None:
    wanted = _in_one_go(scenes, tmp_path / "go")
    plan = _planned(scenes, tmp_path / "out")
    with ThreadPoolExecutor(3) as pool:
        ran = list(pool.map(lambda _: jobs.run(plan), range(3)))
    assert not any(one.failed for one in ran)
    parts = len(jobs.status(plan))
    assert all(one.made + one.kept + one.elsewhere == parts for one in ran)
    assert {one.state for one in jobs.status(plan)} == {"done"}
    jobs.merge(plan)
    assert digests(files_below(tmp_path / "out")) == wanted


def run_and_stay(line: Connection, plan: Path) -> None:
    """Make the first part, and stay at the second."""
    make = kinds.MAKE["taco"]

    def slow(plan: Any, part: Any, *more: Any) -> Any:
        if part.name.endswith("0002.tacozip"):
            line.send("there")
            signal.pause()
        return make(plan, part, *more)

    kinds.MAKE["taco"] = slow
    try:
        jobs.run(plan)
    except KeyboardInterrupt:
        line.send("interrupted")


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_run_goes_on(tmp_path: Path, scenes: Path, sent: signal.Signals) -> None:
    plan = _planned(scenes, tmp_path / "out")
    with forked(run_and_stay, plan) as runner:
        assert runner.hear() == "there"
        states = jobs.status(plan)
        assert [one.state for one in states][:3] == ["done", "running", "waiting"]
        assert str(runner.pid) in str(states[1].reason)
        other = jobs.run(plan, (1, len(states)))
        assert (other.made, other.kept, other.elsewhere) == (0, 0, 1)
        assert str(runner.pid) in str(jobs.status(plan)[1].reason)
        os.kill(runner.pid, sent)
        if sent == signal.SIGINT:
            assert runner.hear() == "interrupted"
    states = jobs.status(plan)
    assert states[1].state == "waiting"
    assert (states[1].reason is None) == (sent == signal.SIGINT)
    told = pytest.warns(LeftoverWarning) if sent == signal.SIGKILL else nullcontext()
    with told:
        ran = jobs.run(plan)
    assert (ran.kept, ran.made) == (1, len(states) - 1)
    jobs.merge(plan)
    assert digests(files_below(tmp_path / "out")) == _in_one_go(scenes, tmp_path / "go")


def test_rasters_without_data_and_merging_without_what_failed(
    tmp_path: Path, rasters: list[Path]
) -> None:
    plan, out = tmp_path / "plan", tmp_path / "out"
    utm(rasters[1], np.full((1, 8, 8), 7, np.uint8), nodata=7)
    sound = rasters[2].read_bytes()
    jobs.plan_raquet(rasters, out, plan)
    rasters[2].write_bytes(b"no raster")
    for made, kept in ((2, 0), (0, 2)):
        ran = jobs.run(plan)
        assert (ran.made, ran.kept, ran.empty, list(ran.failed)) == (made, kept, 1, ["r2.parquet"])
    found = jobs.status(plan)
    assert [one.state for one in found] == ["done", "empty", "failed", "done"]
    assert found[1].reason == "no pixel of the raster has data"
    with pytest.raises(InvalidInputError, match="1 part of the plan") as caught:
        jobs.merge(plan)
    assert "r2.parquet" in str(caught.value)
    told = jobs.merge(plan, skip_missing=True)
    assert (told["parts"], told["left_out"]) == (2, ["r1.parquet", "r2.parquet"])
    listed = command("merge", plan, "--skip-missing").output
    assert "2 left out" in listed
    rasters[2].write_bytes(sound)
    assert "1 without data" in command("run", plan).output
    assert jobs.merge(plan)["left_out"] == ["r1.parquet"]
    names = [one["name"] for one in json.loads((out / "index.json").read_text())["files"]]
    assert names == ["r0.parquet", "r2.parquet", "r3.parquet"]
    # By now it has data: who removes the record has it made.
    utm(rasters[1], np.full((1, 8, 8), 8, np.uint8), nodata=7)
    assert jobs.run(plan).empty == 1
    (plan / "done" / "r1.parquet.json").unlink()
    assert jobs.run(plan).made == 1
    assert jobs.merge(plan)["left_out"] == []
    jobs.plan_raquet(rasters, tmp_path / "none", tmp_path / "more")
    with pytest.raises(InvalidInputError, match="no part to make"):
        jobs.merge(tmp_path / "more", skip_missing=True)


def test_who_gives_no_sign_is_not_believed_to_run(
    tmp_path: Path, rasters: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, seen = tmp_path / "plan", set[str]()
    jobs.plan_raquet(rasters, tmp_path / "out", plan)
    monkeypatch.setattr(running, "_PERIOD", 0.02)
    monkeypatch.setattr(
        running, "_now", lambda now=running._now: f"{now()[:-6]}.{time.time_ns() % 1000:03}+00:00"
    )
    make, path = kinds.MAKE["raquet"], plan / "state" / "r0.parquet.json"

    def slow(*given: Any) -> dict[str, Any]:
        while len(seen) < 3:  # signs of life
            state = json.loads(path.read_text())
            assert state["state"] == "running"
            seen.add(state.get("seen", ""))
        return make(*given)

    monkeypatch.setitem(kinds.MAKE, "raquet", slow)
    assert jobs.run(plan).made == 4
    time.sleep(0.1)
    assert json.loads(path.read_text())["state"] == "done"
    path = plan / "state" / "r1.parquet.json"
    (tmp_path / "out" / "r1.parquet").unlink()
    now = dt.datetime.now(dt.UTC)
    state = {
        "state": "running",
        "host": "elsewhere",
        "pid": 17,
        "since": "2026-01-01T00:00:00+00:00",
    }
    for minutes, told in ((1, "running"), (4, "running"), (6, "waiting"), (None, "waiting")):
        if minutes is not None:
            state["seen"] = (now - dt.timedelta(minutes=minutes)).isoformat(timespec="seconds")
        else:
            del state["seen"]
        path.write_text(json.dumps(state))
        found = jobs.status(plan)[1]
        assert found.state == told
        assert "process 17 of elsewhere" in str(found.reason)
        if told == "waiting":
            assert str(found.reason).startswith("no sign of")
            assert str(found.reason).endswith(str(state.get("seen", state["since"])))
    path.write_text(json.dumps({**state, "seen": "yesterday"}))
    with pytest.raises(InvalidMetadataError, match="state is damaged"):
        jobs.status(plan)


@pytest.mark.parametrize("version", ["0.1.0", "0.5.0"])  # of which the second keeps no sums
def test_rasters_become_files_with_an_index(
    tmp_path: Path, rasters: list[Path], version: str
) -> None:
    plan, out = tmp_path / "plan", tmp_path / "out"
    rasters[0] = rasters[0].rename(tmp_path / "r0-T10:00.tif")
    named: Mapping[str, Any] = {"block_size": 32, "spec_version": version}
    jobs.plan_raquet(rasters, out, plan, **named, min_zoom=None)
    assert jobs.run(plan).made == 4
    for path in rasters:
        raquet.write(path, tmp_path / "own.parquet", **named, overwrite=True)
        made = out / f"{path.stem}.parquet"
        assert made.read_bytes() == (tmp_path / "own.parquet").read_bytes()
    told = jobs.merge(plan)
    index = json.loads((out / "index.json").read_text())
    assert told["output"] == [str(out / "index.json")]
    assert [one["name"] for one in index["files"]] == [f"{path.stem}.parquet" for path in rasters]
    for number, (name, found) in enumerate(index["bands"].items()):
        values = []
        for path in rasters:
            with raquet.open(out / f"{path.stem}.parquet") as file:
                if name in [band.name for band in file.bands]:  # or no alpha was added
                    pixels = file.read(bands=[name], masked=True).data[0]
                    values.append(pixels.compressed().astype(np.float64))
        every = np.concatenate(values)
        assert found["count"] == len(every), number
        assert (found["min"], found["max"]) == (every.min(), every.max())
        assert found["sum"] == pytest.approx(every.sum(), rel=1e-12)
        assert found["mean"] == pytest.approx(every.mean(), rel=1e-12)
        assert found["stddev"] == pytest.approx(every.std(), rel=1e-9)
    assert told["bands"] == index["bands"]
    jobs.merge(plan)
    (out / "index.json").write_text("mine")
    with pytest.raises(ConflictError):
        jobs.merge(plan)
    with rasterio.open(rasters[0]) as one:
        assert list(index["bands"])[:2] == [f"band_{n}" for n in one.indexes]


@pytest.mark.parametrize("source", ["N.nc", "NETCDF:N.nc:Band1", 'NETCDF:"./N.nc":Band1'])
def test_a_plan_is_run_from_any_folder(
    tmp_path: Path, rasters: list[Path], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rasterio.open(rasters[0]) as one:
        rio_copy(one, tmp_path / "N.nc", driver="netCDF")
    monkeypatch.chdir(tmp_path)
    jobs.plan_raquet([source], "out", "plan", bands=[1], variable="Band1")
    monkeypatch.chdir("/")
    assert jobs.run(tmp_path / "plan").failed == {}
    assert (tmp_path / "out" / "N.parquet").is_file()


@pytest.mark.parametrize("nodata", [np.float32("nan"), {"band_1": float("-inf")}, np.float64(-1)])
def test_numbers_that_json_does_not_have(tmp_path: Path, nodata: Any) -> None:
    """Neither as an option, nor as a sum of the pixels of one raster or of both."""
    paths = []
    for number, value in enumerate((1e308, 1e200, 1e154)):
        paths.append(tmp_path / f"{number}.tif")
        utm(paths[-1], np.full((1, 8, 8), value))
    jobs.plan_raquet(paths, tmp_path / "out", tmp_path / "plan", nodata=nodata)
    assert jobs.run(tmp_path / "plan").made == 3
    raquet.write(paths[0], tmp_path / "own.parquet", nodata=nodata)
    made = tmp_path / "out" / "0.parquet"
    assert made.read_bytes() == (tmp_path / "own.parquet").read_bytes()
    found = jobs.merge(tmp_path / "plan")["bands"]["band_1"]
    assert found["max"] == 1e308
    assert (found["sum"], found["mean"], found["stddev"]) == (None, None, None)


def test_what_cannot_be_planned(tmp_path: Path, scenes: Path, rasters: list[Path]) -> None:
    plan, out = tmp_path / "plan", tmp_path / "out"
    twin = tmp_path / "more" / rasters[0].name
    cases: tuple[tuple[Any, dict[str, Any], type[Exception], str], ...] = (
        ([], {}, InvalidInputError, "nothing is given"),
        ([rasters[0], twin], {}, InvalidInputError, "same name"),
        (["https://me:secret@example.org/a.tif"], {}, InvalidInputError, "no secret"),
        (rasters, {"block_size": 3}, InvalidInputError, "block size"),
        (rasters, {"colour": 3}, InvalidInputError, "unknown option"),
        ([tmp_path / ".r.tif"], {}, InvalidInputError, "no plain name"),
    )
    for sources, options, error, text in cases:
        with pytest.raises(error, match=text) as caught:
            jobs.plan_raquet(sources, out, plan, **options)
        assert "me:secret" not in str(caught.value)
    out.mkdir()
    (out / "r1.parquet").write_bytes(b"mine")
    with pytest.raises(ConflictError, match="exists"):
        jobs.plan_raquet(rasters, out, plan)
    (out / "r1.parquet").rename(out / "index.json")
    with pytest.raises(ConflictError, match="exists"):
        jobs.plan_raquet(rasters, out, plan)
    (out / "index.json").unlink()
    jobs.plan_raquet(rasters, out, plan)
    with pytest.raises(ConflictError, match="a plan is never replaced"):
        jobs.plan_raquet(rasters, out, plan)
    with locked(tmp_path / "busy"), pytest.raises(ConflictError) as busy:
        jobs.plan_raquet(rasters, out, tmp_path / "busy")
    assert "never replaced" not in str(busy.value)
    with pytest.raises(ObjectNotFoundError):
        jobs.plan_taco(tmp_path / "absent", out / "a.tacozip", tmp_path / "plan2")
    for shard in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(InvalidInputError, match="no such shard"):
            jobs.run(plan, shard)
    assert not (tmp_path / "plan2").exists()


def test_plans_of_strangers_are_refused(tmp_path: Path, rasters: list[Path]) -> None:
    plan = tmp_path / "plan"
    for look in (jobs.status, jobs.run, jobs.merge):
        with pytest.raises(ObjectNotFoundError, match=f"there is no plan: {plan}"):
            look(plan)
    jobs.plan_raquet(rasters, tmp_path / "out", plan)
    path = plan / "job.json"
    text = path.read_text()
    for old, new, error in (
        ('"name": "r1.parquet"', '"name": "a/r1.parquet"', InvalidMetadataError),
        ('"name": "r1.parquet"', '"name": ".r1.parquet"', InvalidMetadataError),
        ('"name": "r1.parquet"', '"nome": "r1.parquet"', InvalidMetadataError),
        ('"made_by": "', '"made_by": "0', UnsupportedVersionError),
        ('"comal:job": ', '"comal:job": 9', UnsupportedVersionError),
        ('"kind": "raquet"', '"kind": "else"', InvalidMetadataError),
        ('"options": {', '"options": [', InvalidMetadataError),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(error):
            jobs.run(plan)


def test_commands_plan_run_merge_and_tell(
    tmp_path: Path, scenes: Path, rasters: list[Path]
) -> None:
    out, plan = tmp_path / "out", tmp_path / "plan"
    out.mkdir()
    words: tuple[str, ...] = ("--id", "scenes", "--license", "CC0-1.0", "--provider", "us")
    text = tmp_path / "about.json"
    text.write_text(json.dumps(FIELDS["extra"]))
    words = (*words, "--collection", str(text), "--split-size", "3000")
    planned = command("plan", "taco", scenes, out / "all.tacozip", "-o", plan, *words, "--json")
    parts = json.loads(planned.output)["parts"]
    assert command("status", plan, "--quiet").output.count("waiting") == parts
    lost = scenes / "s2" / "a.tif"
    data, time_of = lost.read_bytes(), lost.stat().st_mtime_ns
    lost.write_bytes(b"no raster" + data[9:])
    os.utime(lost, ns=(time_of, time_of))  # else it would be another file than was planned
    ran = json.loads(command("run", plan, "--shard", "1/2", "--json", code=11).output)
    assert len(ran["failed"]) == 1
    assert command("status", plan, "--failed").output.count("all_part") == 1
    told = json.loads(command("status", plan, "--json").output)
    assert told["counts"]["failed"] == 1
    assert len(told["parts"]) == parts
    lost.write_bytes(data)
    os.utime(lost, ns=(time_of, time_of))
    command("merge", plan, code=2)
    command("run", plan, "--shard", "two", code=2)
    command("run", plan)
    assert "__TACOCAT__" in command("merge", plan).output
    assert digests(files_below(out)) == _in_one_go(scenes, tmp_path / "go")
    command("plan", "raquet", *rasters, out, "-o", tmp_path / "p2", "--block-size", 32)
    command("run", tmp_path / "p2")
    made = json.loads(command("merge", tmp_path / "p2", "--json").output)
    assert made["parts"] == made["items"] == 4


def test_damaged_records_are_told(tmp_path: Path, rasters: list[Path]) -> None:
    plan = tmp_path / "plan"
    jobs.plan_raquet(rasters, tmp_path / "out", plan)
    jobs.run(plan)
    path = plan / "done" / "r1.parquet.json"
    sound = json.loads(path.read_text())
    for name in ("size", "bands", "zooms"):
        path.write_text(json.dumps({key: sound[key] for key in sound if key != name}))
        with pytest.raises(InvalidMetadataError, match="damaged"):
            jobs.merge(plan)
    path.write_text("{")
    with pytest.raises(InvalidMetadataError):
        jobs.merge(plan)
    assert "JSON" in jobs.run(plan).failed["r1.parquet"]
    path.unlink()
    assert jobs.run(plan).kept == 4
    assert json.loads(path.read_text()) == sound


def test_what_somebody_edited_fails_its_part(tmp_path: Path, scenes: Path) -> None:
    plan = _planned(scenes, tmp_path / "out")
    path = plan / "parts" / "all_part0002.tacozip.1.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["path"]), path)
    ran = jobs.run(plan)
    assert list(ran.failed) == ["all_part0002.tacozip"]
    assert "cannot be made as planned" in ran.failed["all_part0002.tacozip"]
    assert ran.made == len(jobs.status(plan)) - 1


def test_a_task_is_sent_its_part_alone(
    tmp_path: Path, scenes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a plan of thousands of parts for each of them would take longer than the parts."""
    plan, read = _planned(scenes, tmp_path / "out"), Mock(side_effect=Plan.read)
    monkeypatch.setattr(Plan, "read", read)
    with ThreadPoolExecutor(2) as pool:
        assert jobs.run(plan, executor=pool).made > 2
    assert read.call_count == 1
