"""Plans of tilesets: the same bytes as one build, from every source that can be cut."""

from __future__ import annotations

import json
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import obstore
import pytest

import comal
from comal import jobs, raquet, tapalcatl
from comal.convert import draw
from comal.errors import (
    ConflictError,
    InvalidInputError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from comal.jobs import running
from comal.storage import StorageConfig, targets
from comal.storage.cloud import memory_store
from comal.storage.source import Request, observed
from comal.storage.targetlock import LeftoverWarning
from comal.tapalcatl.writing import building
from tests.forked import forked
from tests.raquet.writing.sources import noise, utm
from tests.servers.s3 import S3Server
from tests.support import command, digests, files_below, objects
from tests.tapalcatl.making import (
    listed,
    names_and_data,
    pyramid,
    sparse,
    write_files,
    write_mbtiles,
    write_pmtiles,
)


def _mbtiles(folder: Path) -> Path:
    return write_mbtiles(folder / "a.mbtiles", pyramid(4))


def _small(folder: Path) -> Path:
    return write_mbtiles(folder / "a.mbtiles", pyramid(3))


def _pmtiles(folder: Path) -> Path:
    return write_pmtiles(folder / "a.pmtiles", sparse(150, 9))


def _folder(folder: Path) -> Path:
    """Tiles of two kinds, of which one part has but one, at two scales."""
    tiles = names_and_data(pyramid(4))
    tiles |= {name.replace(".png", "@2x.png"): data for name, data in list(tiles.items())[-80:]}
    return write_files(folder / "tree", tiles | names_and_data(pyramid(2, kind="mvt"), "mvt"))


def _tileset(folder: Path) -> Path:
    tapalcatl.build(listed(pyramid(4)), folder / "old", attribution="us", metatile=4)
    return folder / "old"


LAYOUT: dict[str, Any] = {"metatile": 4, "materialized_zooms": [0, 2, 4]}
SOURCES: list[tuple[Callable[[Path], Path], dict[str, Any]]] = [
    (_mbtiles, {**LAYOUT, "name": "A", "bounds": (-10, -10, 10, 10), "metadata": {"x": [1]}}),
    (_small, {"metatile": 1, "materialized_zooms": [0, 1, 2, 3], "hash_in_path": True}),
    (_mbtiles, {"version": 1}),
    (_pmtiles, LAYOUT),
    (_folder, {**LAYOUT, "times": "source", "attribution": "x" * 70_000}),
    (
        _tileset,
        {**LAYOUT, "compression": "deflate", "formats": {"png": [["Content-Type", "image/x"]]}},
    ),
]


@pytest.mark.filterwarnings("ignore:no room in comments")
@pytest.mark.parametrize(("make", "options"), SOURCES)
def test_a_plan_of_a_tileset_gives_what_one_build_gives(
    tmp_path: Path, make: Callable[[Path], Path], options: dict[str, Any]
) -> None:
    source, plan, out = make(tmp_path), tmp_path / "plan", tmp_path / "out"
    built = tapalcatl.build(source, tmp_path / "go", **options)
    wanted = digests(files_below(tmp_path / "go"))
    made = jobs.plan_tapalcatl(source, out, plan, split_size=5_000, **options)
    assert len(made.parts) > 2
    with ThreadPoolExecutor(2) as pool:
        jobs.run(plan, (1, 2), executor=pool)
    assert not (out / "meta.json").exists()
    with pytest.raises(InvalidInputError, match="lacking"):
        jobs.merge(plan)
    assert jobs.run(plan).kept == len(made.parts) // 2
    assert {one.state for one in jobs.status(plan)} == {"done"}
    told = jobs.merge(plan)
    assert digests(files_below(out)) == wanted
    assert (told["items"], told["size"]) == (built.tiles, built.size)
    assert jobs.run(plan).kept == len(made.parts)
    # What is damaged or lost is made again, and nothing else.
    first, second = sorted(out.rglob("*.zip"))[:2]
    first.write_bytes(first.read_bytes()[:-1] + b"\1")
    second.unlink()
    assert 1 <= jobs.run(plan).made <= 2
    jobs.merge(plan)
    assert digests(files_below(out)) == wanted


@pytest.mark.parametrize("options", [{}, {"bands": [2], "stretch": (10, 200), "metatile": 2}])
def test_a_raquet_file_is_drawn_in_parts(tmp_path: Path, options: dict[str, Any]) -> None:
    """The same pictures as of one call; tiles in which the chosen band has no value are none."""
    pixels = noise((2, 150, 550), "uint8", seed=1)
    pixels[1, :75] = pixels[:, 125:, 300:] = 0
    utm(tmp_path / "dem.tif", pixels, nodata=0)
    source = tmp_path / "dem.parquet"
    raquet.write(tmp_path / "dem.tif", source, block_size=32)
    built = draw(source, tmp_path / "go", **options)
    with raquet.open(source) as file:
        skipped = len(file.cells()) - built.tiles
    assert (skipped > 0) == bool(options)
    plan, place, out = tmp_path / "plan", str(source), str(tmp_path / "out")
    if options:
        bucket = uuid.uuid4().hex
        place, out = (f"memory://{bucket}/{name}" for name in ("dem.parquet", "out"))
        obstore.put(memory_store(bucket), "dem.parquet", source.read_bytes())
    made = jobs.plan_tapalcatl(place, out, plan, split_size=20_000, **options)
    assert len(made.parts) > 1
    assert sum(part.items for part in made.parts) == built.tiles
    assert jobs.run(plan, (1, 2)).failed == jobs.run(plan, (0, 2)).failed == {}
    assert jobs.merge(plan)["items"] == built.tiles
    found = objects(memory_store(bucket), "out/") if options else files_below(Path(out))
    assert found == files_below(tmp_path / "go")
    if not options:
        source.write_bytes(source.read_bytes() + b" ")
        with pytest.raises(ObjectChangedError):
            jobs.merge(plan)


def test_what_cannot_be_cut(tmp_path: Path) -> None:
    source, plan, out = _mbtiles(tmp_path), tmp_path / "plan", tmp_path / "out"
    cases: tuple[tuple[Any, Path, dict[str, Any], type[Exception], str], ...] = (
        (listed(pyramid(2)), out, {}, InvalidInputError, "not a path or URL"),
        (source, tmp_path / "one.zip", {}, InvalidInputError, "name of a folder"),
        (source, out, {"metatile": 3}, InvalidInputError, "power of two"),
        (source, out, {"colour": 3}, InvalidInputError, "unknown option"),
        (source, out, {"entry_headers": {(0, 0, 0): ()}}, InvalidInputError, "JSON"),
        ("https://me:secret@example.org/a.pmtiles", out, {}, InvalidInputError, "no secret"),
        (tmp_path / "none.mbtiles", out, {}, ObjectNotFoundError, "no such file"),
        (Path(__file__), out, {}, NotThisFormatError, "not a container of tiles"),
    )
    for given, target, options, error, text in cases:
        with pytest.raises(error, match=text):
            jobs.plan_tapalcatl(given, target, plan, **options)
        assert not plan.exists()
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(ConflictError, match="exists"):
        jobs.plan_tapalcatl(source, out, plan)


def _another_file(path: Path) -> None:
    path.unlink()
    write_mbtiles(path, pyramid(3))


def _one_in_the_log(path: Path) -> None:
    """Of a writer that is still at it."""
    base = LIVE.setdefault(path, sqlite3.connect(path))
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("INSERT INTO tiles VALUES (5, 0, 0, ?)", (b"\x89PNG\r\n\x1a\n one more",))
    base.commit()


LIVE: dict[Path, sqlite3.Connection] = {}


def _live(folder: Path) -> Path:
    path = _mbtiles(folder)
    _one_in_the_log(path)
    return path


@pytest.mark.parametrize(("make", "change"), [(_mbtiles, _another_file), (_live, _one_in_the_log)])
def test_a_source_that_changed_is_planned_again(
    tmp_path: Path, make: Callable[[Path], Path], change: Callable[[Path], None]
) -> None:
    source, plan = make(tmp_path), tmp_path / "plan"
    jobs.plan_tapalcatl(source, tmp_path / "out", plan, split_size=5_000)
    jobs.run(plan, (0, 2))
    change(source)
    ran = jobs.run(plan, (1, 2))
    assert ran.made == 0
    assert all("changed after it was planned" in reason for reason in ran.failed.values())
    with pytest.raises(ObjectChangedError):
        jobs.merge(plan, skip_missing=True)
    while LIVE:
        LIVE.popitem()[1].close()


@pytest.mark.parametrize("stored", [False, True])
def test_loose_tiles_are_those_that_were_listed(tmp_path: Path, stored: bool) -> None:
    own, plan, out = _folder(tmp_path), tmp_path / "plan", tmp_path / "out"
    tapalcatl.build(own, tmp_path / "go", **LAYOUT)
    bucket = uuid.uuid4().hex
    source = f"memory://{bucket}/tiles" if stored else own

    def put(name: str, data: bytes) -> None:
        if stored:
            obstore.put(memory_store(bucket), f"tiles/{name}", data)
            return
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_bytes(data)

    if stored:
        comal.sync(own, source)
    made = jobs.plan_tapalcatl(source, out, plan, split_size=5_000, **LAYOUT)
    put("5/0/0.png", b"\x89PNG\r\n\x1a\n one more")
    put("metadata.json", b'{"name": "another"}')
    seen: list[Request] = []
    with observed(seen.append):
        assert jobs.run(plan, (0, len(made.parts))).failed == {}
    assert [one.href for one in seen if one.kind == "list" and "/tiles" in one.href] == []
    put("4/15/15.png", b"\x89PNG\r\n\x1a\n another")
    ran = jobs.run(plan)
    assert list(ran.failed) == [made.parts[-1].name]
    assert "changed" in ran.failed[made.parts[-1].name]
    jobs.merge(plan, skip_missing=True)
    wanted, found = files_below(tmp_path / "go"), files_below(out)
    assert len(wanted) > len(found) > 1
    assert {name: wanted[name] for name in found} == found


def test_an_archive_of_a_tileset_that_changed_is_not_read(tmp_path: Path) -> None:
    source, plan = _tileset(tmp_path), tmp_path / "plan"
    jobs.plan_tapalcatl(source, tmp_path / "out", plan, split_size=5_000, **LAYOUT)
    # On another machine the same document has other numbers of device and file.
    Path(shutil.copy2(source / "meta.json", tmp_path / "copy")).replace(source / "meta.json")
    jobs.run(plan, (1, 2))
    tapalcatl.put(source, [(4, 15, 15, b"\x89PNG\r\n\x1a\n another")])
    reasons = jobs.run(plan).failed.values()
    assert reasons
    assert all("changed after its tiles were listed" in reason for reason in reasons)


def test_a_source_that_changes_while_it_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _small(tmp_path)
    probed = building.Job.probed

    def late(job: building.Job) -> Any:
        _another_file(source)
        return probed(job)

    monkeypatch.setattr(building.Job, "probed", late)
    with pytest.raises(ObjectChangedError):
        jobs.plan_tapalcatl(source, tmp_path / "out", tmp_path / "plan")
    assert not (tmp_path / "plan").exists()


def run_and_stay(line: Connection, plan: Any) -> None:
    """Give three files their names, and stay at the fourth."""
    give, given = targets.give, list[Any]()

    def slow(*more: Any, **named: Any) -> Any:
        if len(given) == 3:
            line.send("there")
            line.recv()
        given.append(more)
        return give(*more, **named)

    targets.give = slow
    running._THREADS = 1
    jobs.run(plan)


@pytest.mark.parametrize("remote", [False, True])
def test_a_killed_runner_of_a_tileset(
    tmp_path: Path, remote: bool, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With some archives of a part in place, and without a record of them."""
    for name, value in s3_server.config.s3.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    prefix, source = uuid.uuid4().hex, write_mbtiles(tmp_path / "a.mbtiles", pyramid(3))
    layout: dict[str, Any] = {"metatile": 1, "materialized_zooms": [0, 1, 2, 3]}
    place: Callable[[str], Any] = lambda name: tmp_path / name  # noqa: E731
    if remote:
        place = lambda name: s3_server.url_for(f"{prefix}/{name}")  # noqa: E731
    jobs.plan_tapalcatl(source, place("out"), place("plan"), split_size=15_000, **layout)
    with forked(run_and_stay, place("plan")) as runner:
        assert runner.hear() == "there"
        assert jobs.status(place("plan"))[0].state == "running"
        runner.process.kill()
    assert jobs.status(place("plan"))[0].state == "waiting"
    with nullcontext() if remote else pytest.warns(LeftoverWarning):
        ran = jobs.run(place("plan"))
    assert (ran.kept, ran.failed) == (0, {})
    jobs.merge(place("plan"))
    tapalcatl.build(source, tmp_path / "go", **layout)
    wanted = files_below(tmp_path / "go")
    found = s3_server.objects(f"{prefix}/out/") if remote else files_below(tmp_path / "out")
    assert found == wanted


def test_all_of_it_in_a_store(tmp_path: Path) -> None:
    bucket = uuid.uuid4().hex
    store, href = memory_store(bucket), f"memory://{bucket}"
    obstore.put(store, "a.pmtiles", _pmtiles(tmp_path).read_bytes())
    config = StorageConfig(scratch=str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    named: dict[str, Any] = {"split_size": 5_000, "config": config, **LAYOUT}
    made = jobs.plan_tapalcatl(f"{href}/a.pmtiles", f"{href}/out", f"{href}/plan", **named)
    with ThreadPoolExecutor(2) as pool:  # two runners of everything
        ran = list(pool.map(lambda _: jobs.run(f"{href}/plan", config=config), range(2)))
    assert [one.failed for one in ran] == [{}, {}]
    assert {one.state for one in jobs.status(f"{href}/plan")} == {"done"}
    assert jobs.run(f"{href}/plan").kept == len(made.parts)
    for _ in range(2):
        assert jobs.merge(f"{href}/plan")["output"] == [f"{href}/out/meta.json"]
    tapalcatl.build(tmp_path / "a.pmtiles", tmp_path / "go", **LAYOUT)
    wanted = files_below(tmp_path / "go")
    assert objects(store, "out/") == wanted
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_command_plans_a_tileset(tmp_path: Path) -> None:
    source, plan, out = _mbtiles(tmp_path), tmp_path / "plan", tmp_path / "out"
    words = ("--metatile", 4, "--materialized", "0,2,4", "--name", "A", "--level", 3)
    planned = command(
        "plan", "tapalcatl", source, out, "-o", plan, "--split-size", "5000", *words, "--json"
    )
    assert json.loads(planned.output)["parts"] > 2
    command("run", plan)
    command("merge", plan)
    command("tapalcatl", "create", source, tmp_path / "go", *words)
    assert digests(files_below(out)) == digests(files_below(tmp_path / "go"))
