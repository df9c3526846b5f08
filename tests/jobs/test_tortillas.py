"""Plans of Tortillas: the bytes of one call, whoever makes which part, and no part left out."""

from __future__ import annotations

import json
import os
import random
import signal
import uuid
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal import jobs, tortilla
from comal.errors import ConflictError, InvalidInputError
from comal.jobs import kinds
from comal.storage.cloud import memory_store
from comal.storage.source import Request, observed
from comal.storage.targetlock import LeftoverWarning
from tests.forked import forked
from tests.raster.rasters import write
from tests.support import command, files_below

UTM: dict[str, Any] = {"crs": "EPSG:32632", "affine": (600_000, 30, 0, 5_300_000, 0, -30)}
FAR = {**UTM, "affine": (1e12, 30, 0, 1e12, 0, -30)}
"""A place of which no longitude is known."""
PAYLOADS = ("placed.tif", "far.tif", "bare.tif", "text.txt", "empty.txt")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a file of each kind."""
    home = tmp_path / "files"
    home.mkdir()
    for name, place in (("placed", UTM), ("far", FAR), ("bare", {})):
        write(home / f"{name}.tif", np.ones((1, 8, 8), np.uint8), **place)
    (home / "text.txt").write_bytes(b"a text that is no raster")
    (home / "empty.txt").write_bytes(b"")
    return home


def manifest(seed: int, most: int = 8) -> Any:
    """Random samples, nested up to three deep, with columns that only some of them have."""
    chance = random.Random(seed)
    # Of few kinds of files, so that a level or a part often has no place.
    kinds_of = chance.choices(PAYLOADS, k=chance.randint(1, 3))
    ids, paths = [], []
    for number in range(chance.randint(1, most)):
        top = f"s{number}"
        below = [""] if chance.random() < 0.3 else [f"/{n}" for n in range(chance.randint(1, 3))]
        for one in below:
            deep = ["/x", "/y"] if one and chance.random() < 0.3 else [""]
            ids += [f"{top}{one}{more}" for more in deep]
            paths += chance.choices(kinds_of, k=len(deep))
    columns: dict[str, Any] = {"id": ids, "path": paths}
    if chance.random() < 0.4:
        columns["time_start"] = [chance.choice([None, "2025-06-01"]) for _ in ids]
    if chance.random() < 0.3:
        columns["stac:crs"] = [chance.choice([None, "EPSG:32633"]) for _ in ids]
    if chance.random() < 0.2:
        columns["stac:raster_shape"] = pa.array([[4, 4]] * len(ids), pa.list_(pa.int32()))
    if chance.random() < 0.4:
        columns["cloud"] = [chance.choice([None, 0.5, 1.0]) for _ in ids]
        columns["data_split"] = [chance.choice([None, "train", "test"]) for _ in ids]
    return pa.table(columns)


def in_one_go(folder: Any, out: Path, **how: Any) -> dict[str, bytes]:
    out.mkdir()
    tortilla.pack_folder(folder, out / "all.tortilla", **how)
    return files_below(out)


@pytest.mark.parametrize("seed", range(24 if "COMAL_FULL_SWEEP" in os.environ else 16))
def test_a_plan_gives_what_one_call_gives(tmp_path: Path, files: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = tmp_path / "samples.parquet"
    pq.write_table(manifest(seed), table)
    how: dict[str, Any] = {"manifest": table, "stac": chance.choice([True, True, None, False])}
    how["chunk_size"] = chance.choice([1, 500, 2000, "1MB"])
    if chance.random() < 0.3:
        how["chunk_rows"] = chance.randint(1, 5)
    wanted = in_one_go(files, tmp_path / "go", **how)
    out, plan = tmp_path / "out", tmp_path / "plan"
    out.mkdir()
    made = jobs.plan_tortilla(files, out / "all.tortilla", plan, **how)
    assert [part.name for part in made.parts] == sorted(wanted)
    shards = [(number, count) for count in [chance.randint(1, 4)] for number in range(count)]
    chance.shuffle(shards)
    assert sum(jobs.run(plan, shard).made for shard in shards) == len(wanted)
    assert files_below(out) == wanted
    told = jobs.merge(plan)
    assert told["output"] == [str(out / name) for name in sorted(wanted)]
    frame = tortilla.open(told["output"])
    assert told["items"] == len(frame)
    assert told["size"] == sum(map(len, wanted.values()))


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """Nine scenes of two files, of which only the fifth has a place."""
    for number in range(9):
        folder = tmp_path / "scenes" / f"s{number}"
        folder.mkdir(parents=True)
        write(folder / "a.tif", np.full((1, 8, 8), number), **(UTM if number == 4 else {}))
        (folder / "b.txt").write_text("x" * (10 + 1000 * (number == 8)))
    return tmp_path / "scenes"


def test_options_and_footers_of_many_rows(tmp_path: Path, files: Path) -> None:
    """Rows of several row groups; what `comal.tortilla.pack_folder` takes, a plan takes."""
    count = 700
    ids = [f"con{n}" if n else "CON" for n in range(count)]
    table = pa.table({"id": ids, "path": ["text.txt"] * (count - 1) + ["placed.tif"]})
    pq.write_table(table, path := tmp_path / "samples.parquet")
    how: dict[str, Any] = {
        "manifest": path,
        "chunk_size": None,
        "chunk_rows": 300,
        "row_group_size": 100,
        "compression": "zstd",
        "compression_level": 1,
        "allow_ids": True,
    }
    wanted = in_one_go(files, tmp_path / "go", **how)
    assert len(wanted) == 3
    (tmp_path / "out").mkdir()
    jobs.plan_tortilla(files, tmp_path / "out" / "all.tortilla", tmp_path / "plan", **how)
    jobs.run(tmp_path / "plan")
    assert files_below(tmp_path / "out") == wanted


def test_a_part_can_neither_be_left_out_nor_be_a_strangers(tmp_path: Path, scenes: Path) -> None:
    out, plan = tmp_path / "out", tmp_path / "plan"
    out.mkdir()
    jobs.plan_tortilla(scenes, out / "all.tortilla", plan, chunk_size=1000)
    jobs.run(plan, (0, 2))
    with pytest.raises(InvalidInputError, match="of the plan lacking") as caught:
        jobs.merge(plan)
    assert "'all.0002.part.tortilla' is waiting" in str(caught.value)
    assert "skip_missing" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="can be left out") as caught:
        jobs.merge(plan, skip_missing=True)
    assert "header" in str(caught.value)
    assert "plan it again" in str(caught.value)
    assert "can be left out" in command("merge", plan, "--skip-missing", code=2).output
    jobs.run(plan)
    wanted = files_below(out)
    assert jobs.merge(plan)["items"] == 9
    parts = sorted(out.iterdir())
    stranger = out / f"all.{len(parts) + 1:04}.part.tortilla"
    stranger.write_bytes(parts[0].read_bytes())
    with pytest.raises(ConflictError, match="another set"):
        jobs.merge(plan)
    stranger.unlink()
    damaged = bytearray(parts[0].read_bytes())
    damaged[-60] ^= 1
    parts[0].write_bytes(damaged)
    assert jobs.run(plan).made == 1
    assert files_below(out) == wanted
    parts[1].unlink()
    with pytest.raises(InvalidInputError, match="1 part of the plan"):
        jobs.merge(plan)


def run_and_stay(line: Connection, plan: Path) -> None:
    """Make the first part, and stay at the second."""
    make = kinds.MAKE["tortilla"]

    def slow(plan: Any, part: Any, *more: Any) -> Any:
        if ".0002." in part.name:
            line.send("there")
            signal.pause()
        return make(plan, part, *more)

    kinds.MAKE["tortilla"] = slow
    jobs.run(plan)


def test_a_killed_run_goes_on(tmp_path: Path, scenes: Path) -> None:
    out, plan = tmp_path / "out", tmp_path / "plan"
    out.mkdir()
    wanted = in_one_go(scenes, tmp_path / "go", chunk_size=1000)
    jobs.plan_tortilla(scenes, out / "all.tortilla", plan, chunk_size=1000)
    with forked(run_and_stay, plan) as runner:
        assert runner.hear() == "there"
        assert [one.state for one in jobs.status(plan)][:3] == ["done", "running", "waiting"]
        os.kill(runner.pid, signal.SIGKILL)
    with pytest.warns(LeftoverWarning):
        ran = jobs.run(plan)
    assert (ran.kept, ran.made) == (1, len(wanted) - 1)
    jobs.merge(plan)
    assert files_below(out) == wanted


def test_planning_reads_few_files(tmp_path: Path) -> None:
    """Those of a level are read until one has a place, and none without places."""
    bucket = uuid.uuid4().hex
    store = memory_store(bucket)
    write(tmp_path / "a.tif", np.ones((1, 8, 8), np.uint8), **UTM)
    data = (tmp_path / "a.tif").read_bytes()
    for number in range(500):
        obstore.put(store, f"in/{number:03}/a.tif", data)
    seen: list[Request] = []
    for stac, most in ((True, 64), (False, 0)):
        del seen[:]
        with observed(seen.append):
            jobs.plan_tortilla(
                f"memory://{bucket}/in",
                tmp_path / "all.tortilla",
                tmp_path / f"plan {stac}",
                stac=stac,
            )
        read = {one.href for one in seen if one.kind == "get"}
        assert len(read) == most


def test_what_cannot_be_planned(tmp_path: Path, scenes: Path) -> None:
    out, plan = tmp_path / "all.tortilla", tmp_path / "plan"
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"chunk_size": "much"}, "chunk_size is not a size"),
        ({"chunk_rows": 0}, "chunk_rows"),
        ({"colour": 3}, "colour"),
        ({"pattern": "*.q"}, "no files"),
    )
    for options, text in cases:
        with pytest.raises(InvalidInputError, match=text):
            jobs.plan_tortilla(scenes, out, plan, **options)
    with pytest.raises(InvalidInputError, match="another format"):
        jobs.plan_tortilla(scenes, tmp_path / "all.tacozip", plan)
    for name in ("all.tortilla", "all.0001.part.tortilla", "all.0017.part.tortilla"):
        (tmp_path / name).write_bytes(b"#y")
        with pytest.raises(ConflictError):
            jobs.plan_tortilla(scenes, out, plan)
        (tmp_path / name).unlink()
    (scenes / "CON").write_bytes(b"x")
    with pytest.raises(InvalidInputError, match="allow_ids=True"):
        jobs.plan_tortilla(scenes, out, plan)
    assert not plan.exists()
    many = pa.table({"id": [f"{n}" for n in range(10_000)], "path": ["s0/b.txt"] * 10_000})
    pq.write_table(many, path := tmp_path / "many.parquet")
    with pytest.raises(InvalidInputError, match="too many parts"):
        jobs.plan_tortilla(scenes, out, plan, manifest=path, chunk_rows=1)


def test_the_command(tmp_path: Path, scenes: Path) -> None:
    out, plan = tmp_path / "out", tmp_path / "plan"
    out.mkdir()
    words = ("--rows", 2, "--pattern", "*.tif")
    planned = command("plan", "tortilla", scenes, out / "all.tortilla", "-o", plan, *words)
    assert "5 parts" in planned.output
    command("run", plan)
    assert "all.0005.part.tortilla" in command("merge", plan).output
    wanted = in_one_go(scenes, tmp_path / "go", chunk_rows=2, pattern="*.tif")
    assert files_below(out) == wanted
    assert json.loads((plan / "job.json").read_text())["kind"] == "tortilla"
