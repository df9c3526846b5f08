"""Plans of every kind in each store: S3, Google's, and Azure's where its emulator is installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import jobs, raquet, taco, tapalcatl, tortilla
from comal.storage import StorageConfig
from tests.raquet.writing.sources import noise, utm
from tests.storage.boxes import KINDS, Box, box_of
from tests.support import files_below
from tests.tapalcatl.making import names_and_data, pyramid, write_files, write_pmtiles

STORES = [kind for kind in KINDS if kind not in ("local", "memory")]
FIELDS: dict[str, Any] = {"id": "scenes", "licenses": ["CC0-1.0"], "providers": [{"name": "us"}]}


def _scenes(folder: Path) -> None:
    for number in range(5):
        (folder / f"s{number}").mkdir(parents=True)
        utm(folder / f"s{number}" / "a b.tif", np.full((1, 8, 8), number, np.uint8))
        (folder / f"s{number}" / "ü.txt").write_bytes(b"" if number == 2 else os.urandom(900))


def _rasters(folder: Path) -> None:
    folder.mkdir()
    for number in range(3):
        utm(folder / f"r{number}.tif", noise((1, 40, 60), "uint8", seed=number))


def _tiles(folder: Path) -> None:
    folder.mkdir()
    write_pmtiles(folder / "a.pmtiles", pyramid(3))


def _raquet(source: str, out: str, plan: str, config: StorageConfig) -> Any:
    sources = [f"{source}/r{number}.tif" for number in range(3)]
    return jobs.plan_raquet(sources, out, plan, config=config, block_size=32)


def _own_rasters(source: Path, out: Path) -> None:
    for path in source.iterdir():
        raquet.write(path, out / f"{path.stem}.parquet", block_size=32)


@dataclass(frozen=True)
class Job:
    """A kind of plan: its sources, the plan, and the one call that gives the same bytes."""

    fill: Callable[[Path], object]
    plan: Callable[[str, str, str, StorageConfig], Any]
    own: Callable[[Path, Path], object]


TILES: dict[str, Any] = {"metatile": 2, "materialized_zooms": [0, 1, 2, 3]}
JOBS = {
    "taco": Job(
        _scenes,
        lambda source, out, plan, config: jobs.plan_taco(
            source, f"{out}/all.tacozip", plan, split_size=2500, config=config, **FIELDS
        ),
        lambda source, out: taco.pack_folder(
            source, out / "all.tacozip", split_size=2500, **FIELDS
        ),
    ),
    "tortilla": Job(
        _scenes,
        lambda source, out, plan, config: jobs.plan_tortilla(
            source, f"{out}/all.tortilla", plan, chunk_size=2500, config=config
        ),
        lambda source, out: tortilla.pack_folder(source, out / "all.tortilla", chunk_size=2500),
    ),
    "raquet": Job(_rasters, _raquet, _own_rasters),
    "tapalcatl": Job(
        _tiles,
        lambda source, out, plan, config: jobs.plan_tapalcatl(
            f"{source}/a.pmtiles", out, plan, split_size=1000, config=config, **TILES
        ),
        lambda source, out: tapalcatl.build(source / "a.pmtiles", out, overwrite=True, **TILES),
    ),
    "loose tiles": Job(
        lambda folder: write_files(folder, names_and_data(pyramid(2))),
        lambda source, out, plan, config: jobs.plan_tapalcatl(
            source, out, plan, split_size=1000, config=config, **TILES
        ),
        lambda source, out: tapalcatl.build(source, out, overwrite=True, **TILES),
    ),
}

FULL = "COMAL_FULL_SWEEP" in os.environ
CASES = list(product(STORES, JOBS) if FULL else zip(cycle(STORES), JOBS, strict=False))
"""The ordinary run has each job in one store."""


@pytest.fixture
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    """A prefix of each store."""
    return box_of(request.param, request, tmp_path, StorageConfig())


@pytest.mark.parametrize(("box", "name"), CASES, indirect=["box"])
def test_all_of_a_plan_lies_in_one_bucket(tmp_path: Path, box: Box, name: str) -> None:
    job, home = JOBS[name], tmp_path / "files"
    job.fill(home)
    for path, data in files_below(home).items():
        box.put(f"files/{path}", data)
    (tmp_path / "go").mkdir()
    job.own(home, tmp_path / "go")
    wanted = files_below(tmp_path / "go")
    config = box.target("plan").config
    source, out, plan = (os.fspath(box.target(one)) for one in ("files", "out", "plan"))
    made = job.plan(source, out, plan, config)
    count = len(made.parts)
    assert count > 1
    assert {one.state for one in jobs.status(plan, config=config)} == {"waiting"}
    assert jobs.run(plan, (1, 2), config=config).made == count // 2
    if name == "taco":  # an index of some parts, which is replaced
        assert jobs.merge(plan, skip_missing=True, config=config)["parts"] == count // 2
    ran = jobs.run(plan, config=config)
    assert (ran.failed, ran.kept, ran.made) == ({}, count // 2, count - count // 2)
    assert {one.state for one in jobs.status(plan, config=config)} == {"done"}
    for _ in range(2):
        told = jobs.merge(plan, config=config)
        assert told["parts"] == count
        files = box.files()
        index = {"out/index.json"} if name == "raquet" else set()
        found = {path: files[path] for path in files if path.startswith("out/")}
        assert {f"out/{path}": data for path, data in wanted.items()} == {
            path: data for path, data in found.items() if path not in index
        }
    assert list(box.scratch.iterdir()) == []


@pytest.mark.parametrize(("box", "name"), CASES[:2], indirect=["box"])
def test_an_object_that_changed_since_the_plan_is_named(
    tmp_path: Path, box: Box, name: str
) -> None:
    """Listings and answers of a store tell the same version."""
    _scenes(home := tmp_path / "files")
    for path, data in files_below(home).items():
        box.put(f"files/{path}", data)
    config = box.target("plan").config
    source, out, plan = (os.fspath(box.target(one)) for one in ("files", "out", "plan"))
    made = JOBS[name].plan(source, out, plan, config)
    box.put("files/s0/a b.tif", (home / "s0" / "a b.tif").read_bytes()[:-1] + b"\1")
    ran = jobs.run(plan, config=config)
    assert list(ran.failed) == [made.parts[0].name]
    reason = ran.failed[made.parts[0].name]
    assert "s0/a b.tif" in reason
    assert "plan it again, for another folder" in reason
    assert ran.made == len(made.parts) - 1
