"""The index of a TACO in a store is replaced by one of more parts, and readers are never wrong."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest

from comal import jobs, taco
from comal.errors import ComalError, ConflictError, ObjectChangedError, ObjectNotFoundError
from comal.storage import StorageConfig
from comal.storage.cloud import memory_store
from comal.storage.source import observed
from tests.raquet.writing.sources import utm
from tests.servers.s3 import S3Server
from tests.support import files_below, objects

FIELDS: dict[str, Any] = {"id": "scenes", "licenses": ["CC0-1.0"], "providers": [{"name": "us"}]}
Rows = dict[str, bytes]


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """Two scenes of two files."""
    for number in range(2):
        folder = tmp_path / "scenes" / f"s{number}"
        folder.mkdir(parents=True)
        utm(folder / "a.tif", np.full((1, 8, 8), number, np.uint8))
        (folder / "b.txt").write_text(f"scene {number}")
    return tmp_path / "scenes"


def planned(scenes: Path, top: str, config: StorageConfig | None = None) -> str:
    """A plan with a part for each scene, of which one is made and merged."""
    plan = f"{top}/plan"
    how: dict[str, Any] = {"split_size": 1, "config": config, **FIELDS}
    jobs.plan_taco(scenes, f"{top}/out/all.tacozip", plan, **how)
    assert jobs.run(plan, (1, 2), config=config).made == 1
    assert jobs.merge(plan, skip_missing=True, config=config)["parts"] == 1
    return plan


def in_one_go(scenes: Path, out: Path) -> dict[str, bytes]:
    out.mkdir()
    taco.pack_folder(scenes, out / "all.tacozip", split_size=1, **FIELDS)
    return files_below(out)


def rows(place: str, config: StorageConfig | None = None) -> Rows:
    """All files of a dataset with their bytes, by their paths."""
    with taco.load(place, config=config) as dataset:
        ids = dataset.data.to_arrow()["id"].to_pylist()
        frame = dataset.flatten()
        paths = frame.to_arrow()["internal:relative_path"].to_pylist()
        found = dict(zip(paths, frame.read_bytes(), strict=True))
    assert {path.split("/")[0] for path in found} == set(ids)
    return found


def test_what_is_not_the_plans_own_is_kept(scenes: Path) -> None:
    bucket = uuid.uuid4().hex
    store, url = memory_store(bucket), f"memory://{bucket}"
    plan = planned(scenes, url)
    jobs.run(plan)
    before = objects(store, "out/")
    # An index of others, in one of both forms: neither is touched.
    taco.pack_folder(scenes, f"{url}/out/other.tacozip", **FIELDS)
    taco.create_tacocat([f"{url}/out/other.tacozip"], f"{url}/other")
    others = objects(store, "other/")
    for form in ("__TACOCAT__", ".tacocat/"):
        mine = {name: data for name, data in others.items() if name.startswith(form)}
        for name, data in mine.items():
            obstore.put(store, f"out/{name}", data)
        with pytest.raises(ConflictError, match="other bytes"):
            jobs.merge(plan)
        assert {name: objects(store, "out/")[name] for name in mine} == mine
        for name in mine:
            obstore.put(store, f"out/{name}", before[name])
    assert jobs.merge(plan)["parts"] == 2
    obstore.delete(store, "out/all_part0002.tacozip")
    with pytest.raises(ConflictError, match="other bytes"):  # an index does not shrink
        jobs.merge(plan, skip_missing=True)
    with taco.load(f"{url}/out") as dataset:
        assert len(dataset.data) == 2


def states(scenes: Path, server: S3Server) -> list[dict[str, bytes]]:
    """What lies in the output before each request of a merge that replaces the index, and after."""
    prefix = uuid.uuid4().hex
    plan = planned(scenes, server.url_for(prefix), server.config)
    jobs.run(plan, config=server.config)
    found: list[dict[str, bytes]] = []

    def note(_number: int, _request: str) -> str:
        found.append(server.objects(f"{prefix}/out/"))
        return ""

    server.faults.fault = note
    try:
        jobs.merge(plan, config=server.config)
    finally:
        server.faults.fault = lambda *_: ""
    found.append(server.objects(f"{prefix}/out/"))
    return [one for one, last in zip(found, [{}, *found], strict=False) if one != last]


class Moment:
    """A store that shows one state after the other; what is equal stays, with its version."""

    def __init__(self) -> None:
        self.bucket = uuid.uuid4().hex
        self.store = memory_store(self.bucket)
        self.now: dict[str, bytes] = {}

    def show(self, state: dict[str, bytes]) -> None:
        for name in self.now.keys() - state.keys():
            obstore.delete(self.store, f"out/{name}")
        for name, data in state.items():
            if self.now.get(name) != data:
                obstore.put(self.store, f"out/{name}", data)
        self.now = state

    def rows(self, place: str, number: int = 0, later: dict[str, bytes] | None = None) -> Rows:
        """As `rows`, with a `later` state before a request of this number; nothing without it."""
        seen = 0

        def change(_: Any) -> None:
            nonlocal seen
            seen += 1
            if later is not None and seen == number:
                self.show(later)

        with observed(change):
            found = rows(f"memory://{self.bucket}/{place}")
        return found if seen >= number else {}


def test_readers_at_any_moment_get_the_old_or_the_new(scenes: Path, s3_server: S3Server) -> None:
    """They open at any moment; then any later moment comes before any of their requests."""
    found, moment = states(scenes, s3_server), Moment()
    assert len(found) >= 5  # the file, no document, two levels, the document
    answers = []
    for state in (found[0], found[-1]):
        moment.show(state)
        answers.append(moment.rows("out"))
    assert [len(one) for one in answers] == [2, 4]
    for state in found:
        moment.show(state)
        assert moment.rows("out") in answers
        assert moment.rows("out/__TACOCAT__") in answers
        with (
            nullcontext()
            if "/COLLECTION.json" in "".join(state)
            else pytest.raises(ObjectNotFoundError)
        ):
            assert moment.rows("out/.tacocat") in answers
    refused = 0
    for place, (first, later) in product(("out", "out/.tacocat"), combinations(found, 2)):
        for number in range(1, 20):
            moment.show(first)
            try:
                answer = moment.rows(place, number, later)
            except (ObjectChangedError, ObjectNotFoundError):
                refused += 1
                continue
            if not answer:
                break
            assert answer in answers
    assert refused  # so changes were met


@pytest.fixture
def hasty(s3_server: S3Server) -> Iterator[StorageConfig]:
    yield StorageConfig(
        s3=s3_server.config.s3,
        backoff_first=0.01,
        backoff_limit=0.02,
        total_timeout=10.0,
        slowest=1 << 30,
    )
    s3_server.faults.fault = lambda *_: ""


@pytest.mark.parametrize("killed", [True, False])
def test_each_request_of_the_merge_fails(
    tmp_path: Path, scenes: Path, s3_server: S3Server, hasty: StorageConfig, killed: bool
) -> None:
    """Alone, or with all that follow, as for a merge that is killed: the next one ends it.

    The full sweep has all requests; else those that change something, each in one of both ways.
    """
    every = "COMAL_FULL_SWEEP" in os.environ
    wanted = in_one_go(scenes, tmp_path / "go")
    prefix = uuid.uuid4().hex
    plan = planned(scenes, url := s3_server.url_for(prefix), hasty)
    old = rows(f"{url}/out", hasty)
    jobs.run(plan, config=hasty)
    before = s3_server.objects(prefix)
    new = {f"s{n}/{name}" for n in range(2) for name in ("a.tif", "b.txt")}
    first, struck = 0 if every or killed else -1, [""]
    while struck:
        first += 1 if every else 2
        struck = list[str]()
        s3_server.remove(prefix)
        for name, data in before.items():
            s3_server.put(prefix + name, data)

        def strike(_: int, asked: str, first: int = first, struck: list[str] = struck) -> str:
            counts = every or asked.startswith(("PUT", "DELETE", "POST"))
            struck.extend([asked] if counts else [])
            is_first = counts and len(struck) == first
            return "403 No" if is_first or (killed and len(struck) >= first) else ""

        s3_server.faults.fault = strike
        with suppress(ComalError):
            jobs.merge(plan, config=hasty)
        s3_server.faults.fault = lambda *_: ""
        struck = struck[first - 1 :]
        found = rows(f"{url}/out", hasty)
        assert found == old or found.keys() == new, struck
        jobs.merge(plan, config=hasty)
        assert s3_server.objects(f"{prefix}/out/") == wanted, struck
    assert first > 5


@pytest.mark.parametrize("killed", [True, False])
def test_of_two_merges_at_a_time_one_gives_way(
    tmp_path: Path, scenes: Path, s3_server: S3Server, hasty: StorageConfig, killed: bool
) -> None:
    """One has put all but its document, when another one of more parts begins, and may die."""
    shutil.copytree(scenes / "s0", scenes / "s2")
    wanted = in_one_go(scenes, tmp_path / "go")
    prefix = uuid.uuid4().hex
    plan = planned(scenes, url := s3_server.url_for(prefix), hasty)
    jobs.run(plan, (0, 3), config=hasty)
    struck: list[str] = []

    def strike(_: int, asked: str) -> str:
        if struck:  # requests of the other one
            struck.append(asked)
            levels = [one for one in struck if one.startswith("PUT") and "/level" in one]
            return "403 No" if killed and len(levels) > 1 else ""
        if asked.startswith("PUT") and asked.endswith("/COLLECTION.json"):
            struck.append(asked)
            jobs.run(plan, config=hasty)
            with pytest.raises(ComalError) if killed else nullcontext():
                jobs.merge(plan, config=hasty)
            s3_server.faults.fault = lambda *_: ""
        return ""

    s3_server.faults.fault = strike
    patient = replace(hasty, total_timeout=120.0, idle_timeout=120.0)  # it waits for the other one
    with pytest.raises(ConflictError):
        jobs.merge(plan, skip_missing=True, config=patient)
    assert len(struck) > 10
    assert len(rows(f"{url}/out", hasty)) == 6
    if killed:
        with pytest.raises(ObjectNotFoundError):
            rows(f"{url}/out/.tacocat", hasty)
        assert jobs.merge(plan, config=hasty)["parts"] == 3
    assert s3_server.objects(f"{prefix}/out/") == wanted
