"""Archives copied between disks and stores: the same afterwards, and readable at any moment."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest

import comal
from comal import formats, raquet, taco, tapalcatl
from comal.errors import (
    AccessDeniedError,
    ComalError,
    ConflictError,
    InvalidInputError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    UnsafeContentError,
)
from comal.limits import MIB
from comal.progress import silent
from comal.storage import StorageConfig, StorePath, storeobject, stores, syncing, targets, upload
from comal.storage.location import parse_href
from comal.storage.storeobject import StoreObject
from comal.storage.syncing import Amount, Synced
from comal.storage.targetlock import LeftoverWarning
from comal.storage.upload import rank_of
from tests.forked import forked
from tests.server.making import PNG, raquet_file, taco_file
from tests.servers.http import HttpServer
from tests.servers.s3 import BUCKET, S3Server
from tests.storage.boxes import KINDS, Box, box_of
from tests.support import command, files_below

Tree = dict[str, bytes]
FULL = "COMAL_FULL_SWEEP" in os.environ
BIG = 3000
"""Above this size, objects of these tests go in parts, or are copied by their store."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each kind that is more than a file."""
    top = tmp_path_factory.mktemp("archives")
    taco_file(top / "scenes.tacozip", 2)
    taco.zip2folder(top / "scenes.tacozip", top / "folder", quiet=True)
    (top / "cat").mkdir()
    for count, name in ((3, "a"), (2, "b")):
        taco_file(top / "cat" / f"{name}.tacozip", count)
    taco.create_tacocat([top / "cat/a.tacozip", top / "cat/b.tacozip"])
    tiles = [(z, x, y, PNG) for z in range(3) for x in range(1 << z) for y in range(1 << z)]
    tapalcatl.build(tiles, top / "tiles", ext="png")
    pixels = np.arange(128 * 128, dtype=np.int16).reshape(128, 128)
    raquet_file(top / "dem.parquet", {"height": pixels})
    raquet.partition(top / "dem.parquet", top / "parts", zoom=1)
    (top / "parts/index.json").write_text("{}")
    return top


@pytest.fixture
def tree(archives: Path) -> Tree:
    """The folder form of TACO, with an empty and a larger file."""
    return files_below(archives / "folder") | {
        "DATA/big": bytes(range(250)) * 40,
        "DATA/empty": b"",
    }


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storeobject, "SINGLE", BIG)
    monkeypatch.setattr(syncing, "_SMALL", BIG)


PAIRS = [
    (one, other)
    for one, other in product(KINDS, KINDS)
    if FULL or one == other or (one, other) in (("s3", "local"), ("gs", "s3")) or one == "local"
]
"""The ordinary run has each kind as source and as target, beside disks, itself and others."""


Two = Callable[[str, str], tuple[Box, Box]]


@pytest.fixture
def two(request: pytest.FixtureRequest, tmp_path: Path, hasty: StorageConfig) -> Iterator[Two]:
    """Makes somewhere to copy from and somewhere to copy to, of two kinds."""
    made = list[Box]()

    def make(*kinds: str) -> tuple[Box, Box]:
        for kind in kinds:
            folder = tmp_path / f"box{len(made)}"
            folder.mkdir()
            made.append(box_of(kind, request, folder, hasty))
        return made[-2], made[-1]

    yield make
    assert [path for box in made for path in box.scratch.iterdir()] == []


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, two: Two) -> tuple[Box, Box]:
    """Somewhere to copy from, and somewhere to copy to."""
    return two(*request.param)


def fill(box: Box, files: Tree, name: str = "x") -> Any:
    for one, data in files.items():
        box.put(f"{name}/{one}", data)
    return box.target(name)


def below(box: Box, name: str = "x") -> Tree:
    """Everything in the box, which must be below a name and not hidden."""
    files = box.files()
    assert [one for one in files if not one.startswith(f"{name}/")] == []
    return {one.removeprefix(f"{name}/"): data for one, data in files.items()}


def moved(found: Synced) -> list[int]:
    return [found.new.objects, found.replaced.objects, found.equal.objects, found.deleted.objects]


def problems(place: Any) -> list[str]:
    """What a check of an archive of any format reports, wherever it is."""
    adapter = formats.adapter_of(formats.sniff(place).format)
    return [one.code for one in adapter.check(place, level="full", progress=silent).problems]


# -- one law ---------------------------------------------------------------------------------------


def test_the_target_becomes_the_source(pair: tuple[Box, Box], tree: Tree) -> None:
    """Absent, equal, partly there, different and too much, from anywhere to anywhere."""
    source, target = fill(pair[0], tree), pair[1].target("x")
    count, size = len(tree), sum(map(len, tree.values()))
    assert comal.sync(source, target, dry_run=True).new == Amount(count, size)
    assert pair[1].files() == {}
    assert moved(comal.sync(source, target)) == [count, 0, 0, 0]
    assert below(pair[1]) == tree
    assert moved(comal.sync(source, target)) == [0, 0, count, 0]
    with taco.load(target) as data:
        assert len(data.data) == 2
    pair[0].put("x/DATA/big", bytes(10_000))  # as long, and other bytes
    pair[0].put("x/DATA/new", b"new")
    for dry_run in (False, True):
        with pytest.raises(ConflictError, match=r"DATA/big[\s\S]*overwrite=True"):
            comal.sync(source, target, dry_run=dry_run)
    assert below(pair[1]) == tree
    done = comal.sync(source, target, overwrite=True)
    assert (done.new, done.replaced) == (Amount(1, 3), Amount(1, 10_000))
    assert done.equal == Amount(count - 1, size - 10_000)
    pair[1].put("x/DATA/deep/er/more", b"more")
    tree |= {"DATA/big": bytes(10_000), "DATA/new": b"new"}
    assert below(pair[1]) == tree | {"DATA/deep/er/more": b"more"}
    assert moved(comal.sync(source, target, delete=True, dry_run=True)) == [0, 0, count + 1, 1]
    assert moved(comal.sync(source, target, delete=True)) == [0, 0, count + 1, 1]
    assert below(pair[1]) == tree == below(pair[0])
    if pair[1].kind == "local":
        assert not (Path(target) / "DATA/deep").exists()


OTHERS = [kind for kind in KINDS if kind != "s3"]
ARCHIVES = ("scenes.tacozip", "folder", "cat", "tiles", "dem.parquet", "parts")


# What is copied and where it lies do not depend on one another.
@pytest.mark.parametrize(
    ("kind", "name"),
    [*product(["s3"], ARCHIVES), *zip(OTHERS, ("cat", "tiles", "folder", "cat"), strict=False)],
)
def test_archives_are_whole_where_they_arrive(
    kind: str, name: str, archives: Path, request: pytest.FixtureRequest, tmp_path: Path,
    hasty: StorageConfig,
) -> None:  # fmt: skip
    box = box_of(kind, request, tmp_path, hasty)
    target = box.target(name)
    comal.sync(archives / name, target)
    back = tmp_path / name
    comal.sync(target, back)
    assert files_below(back) == files_below(archives / name) or back.is_file()
    assert back.is_dir() or back.read_bytes() == (archives / name).read_bytes()
    if name != "parts":  # several files, which are opened by their index
        assert problems(target) == problems(archives / name)
        comal.open(target)


def test_one_file_comes_over_http(
    http_server: HttpServer, archives: Path, tmp_path: Path, bucket: tuple[Box, S3Server]
) -> None:
    data = (archives / "scenes.tacozip").read_bytes()
    url = http_server.put("scenes.tacozip", data)
    for target in (tmp_path / "a.tacozip", bucket[0].target("a.tacozip")):
        assert moved(comal.sync(url, target)) == [1, 0, 0, 0]
        assert moved(comal.sync(url, target)) == [0, 0, 1, 0]
        with pytest.raises(ConflictError, match="differ"):
            comal.sync(archives / "cat/a.tacozip", target)
    assert (tmp_path / "a.tacozip").read_bytes() == data == bucket[0].files()["a.tacozip"]
    with pytest.raises(StorageError, match="cannot be listed"):
        comal.sync(http_server.url_for("") + "/", tmp_path / "b")


# -- what comes first, and what is replaced --------------------------------------------------------


def test_the_index_comes_last(tree: Tree, bucket: tuple[Box, S3Server], tmp_path: Path) -> None:
    box, server = bucket
    files = {f"part/{name}": data for name, data in tree.items()}
    files |= {
        "__TACOCAT__/COLLECTION.json": b"{}",
        "__TACOCAT__/level0.parquet": b"a",
        "a.html": b"",
    }
    files |= {"DATA/index.json": b"no index", "DATA/METADATA/x": b"none either"}
    for name, data in files.items():
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_bytes(data)
    del server.faults.seen[:]
    comal.sync(tmp_path / "x", box.target("x"))
    order = [one.partition("/x/")[2] for one in server.faults.seen if re.match(r"PUT [^?]*$", one)]
    order = [name for name in order if not name.rpartition("/")[2].startswith(".")]
    order = [name for name in order if len(files[name]) <= BIG]
    assert sorted(map(rank_of, order)) == [*map(rank_of, order)]
    last = [name for name in order if rank_of(name) != (0,)]
    assert last[0] == "part/METADATA/level1.parquet"
    assert last[-3] == "__TACOCAT__/level0.parquet"
    assert sorted(last[-2:]) == ["__TACOCAT__/COLLECTION.json", "a.html"]
    assert rank_of("part/METADATA/a") < rank_of("part/COLLECTION.json") < rank_of("METADATA/a")
    assert rank_of("METADATA/a") < rank_of("COLLECTION.json") == rank_of("index.json")
    assert rank_of("tiles/meta.json") != (0,)
    assert rank_of("DATA/index.json") == rank_of("DATA/METADATA/x") == rank_of("0/0/0.zip") == (0,)
    assert rank_of("__TACOCAT__") == rank_of("index.json")


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_data_set_grows(kind: str, tree: Tree, two: Two) -> None:
    """An index is replaced if the new one names all that is there; else it may be another's."""
    here, box = two("local", kind)
    source = fill(here, tree)
    comal.sync(source, box.target("x"))
    (source / "COLLECTION.json").write_bytes(b'{"more": 1}')
    (source / "DATA/more").write_bytes(b"more")
    assert moved(comal.sync(source, box.target("x"))) == [1, 1, len(tree) - 1, 0]
    (source / "COLLECTION.json").write_bytes(b'{"more": 2}')
    box.put("x/DATA/other", b"of another data set")
    before = box.files()
    with pytest.raises(ConflictError, match=r"COLLECTION.json[\s\S]*overwrite=True"):
        comal.sync(source, box.target("x"))
    assert box.files() == before


def test_one_file_is_replaced_by_its_kind(box_pair: tuple[Box, Box]) -> None:
    source, target = box_pair
    source.put("a", b"II*\0 new")
    target.put("a", b"II*\0 old")
    with pytest.raises(ConflictError, match="overwrite=True"):
        comal.sync(source.target("a"), target.target("a"))
    assert moved(comal.sync(source.target("a"), target.target("a"), overwrite=True)) == [0, 1, 0, 0]
    assert target.files() == {"a": b"II*\0 new"}
    target.put("a", b"a letter")
    with pytest.raises(ConflictError, match="another kind"):
        comal.sync(source.target("a"), target.target("a"), overwrite=True)
    assert target.files() == {"a": b"a letter"}


@pytest.fixture(params=["local-s3", "s3-local", "s3-s3", "local-local"])
def box_pair(request: pytest.FixtureRequest, two: Two) -> tuple[Box, Box]:
    """The same, of the two kinds that differ most."""
    one, other = request.param.split("-")
    return two(one, other)


def test_nothing_is_deleted_where_nothing_is_shared(box_pair: tuple[Box, Box]) -> None:
    source, target = box_pair
    fill(source, {"a": b"1"})
    fill(target, {"b": b"2"})
    with pytest.raises(ConflictError, match="shares no file"):
        comal.sync(source.target("x"), target.target("x"), delete=True)
    assert below(target) == {"b": b"2"}


# -- failures --------------------------------------------------------------------------------------


def state(box: Box, tree: Tree) -> None:
    """Whole files only, and no index without its data."""
    there = {name: data for name, data in box.files().items() if not _hidden(name)}
    there = {name.removeprefix("x/"): data for name, data in there.items()}
    assert there.items() <= tree.items()
    if any(rank_of(name) != (0,) for name in there):
        assert {name for name in tree if rank_of(name) == (0,)} <= there.keys()


def _hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith(".")


FAULTS = ("500 Oh", "503 Slow Down", "lost", "412 No", "403 No")
STRIKES = [(fault, False) for fault in FAULTS] + [("lost", True), ("403 No", True)]


@pytest.mark.parametrize("way", ["local-s3", "s3-local", "s3-s3"])
@pytest.mark.parametrize(("fault", "for_ever"), STRIKES if FULL else STRIKES[2::4])
def test_each_request_fails(
    way: str, fault: str, for_ever: bool, bucket: tuple[Box, S3Server], two: Two
) -> None:
    """Once, or from then on; the next run goes on. The ordinary run has each request in one way."""
    server = bucket[1]
    tree = {"DATA/a": b"a", "DATA/b": bytes(BIG + 1), "COLLECTION.json": b"{}"}
    for first in itertools.count(1 + for_ever * (not FULL), 1 if FULL else 2):
        here, there = two(*way.split("-"))
        source, target = fill(here, tree), there.target("x")
        del server.faults.seen[:]

        def strike(number: int, asked: str, first: int = first) -> str:
            struck = number >= first if for_ever else number == first
            return fault if struck and "delete" not in asked.lower() else ""

        server.faults.fault, error = strike, None
        try:
            comal.sync(source, target)
        except ComalError as failed:
            error = failed
        finally:
            server.faults.fault = lambda *_: ""
        state(there, tree)
        if not for_ever and fault in FAULTS[:3]:
            assert error is None, server.faults.seen[first - 1 :]
        assert list(there.scratch.iterdir()) == []
        over = first > len(server.faults.seen)
        comal.sync(source, target)
        files = {name: data for name, data in there.files().items() if not _hidden(name)}
        assert files == {f"x/{name}": data for name, data in tree.items()}
        if over:
            break
    assert first > 5


def test_an_interrupted_run_goes_on(box_pair: tuple[Box, Box], tree: Tree) -> None:
    source, target = fill(box_pair[0], tree), box_pair[1].target("x")
    told: list[int] = []

    def interrupt(done: int, total: int | None, what: str) -> None:
        del total
        if what == "copying bytes":
            told.append(done)
            if len(told) % 3 == 0:
                raise KeyboardInterrupt

    rounds = 0
    while True:
        try:
            comal.sync(source, target, progress=interrupt)
            break
        except KeyboardInterrupt:
            rounds += 1
            state(box_pair[1], tree)
            assert [name for name in box_pair[1].files() if _hidden(name)] == []
            assert list(box_pair[1].scratch.iterdir()) == []
    assert rounds > 1
    assert below(box_pair[1]) == tree


def sync_and_die(_: object, source: Path, target: Path) -> None:
    told = list[str]()

    def kill(done: int, total: int | None, what: str) -> None:
        del done, total
        told.append(what)
        if told.count("copying bytes") == 4:
            os.kill(os.getpid(), signal.SIGKILL)

    comal.sync(source, target, progress=kill)


def test_a_killed_run_goes_on(tree: Tree, tmp_path: Path) -> None:
    for name, data in tree.items():
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_bytes(data)
    with forked(sync_and_die, tmp_path / "x", tmp_path / "y") as runner:
        runner.process.join(60)
        assert runner.process.exitcode == -signal.SIGKILL
    there = {
        name: data for name, data in files_below(tmp_path / "y").items() if "comal-" not in name
    }
    assert there.items() <= tree.items()
    assert "COLLECTION.json" not in there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftoverWarning)
        comal.sync(tmp_path / "x", tmp_path / "y")
    left = targets.clean(tmp_path / "y")
    assert files_below(tmp_path / "y") == tree, left


def test_what_arrives_damaged_is_told_and_removed(
    tree: Tree, bucket: tuple[Box, S3Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, _ = bucket
    real = obstore.put

    def damaging(store: Any, key: str, data: Any, **named: Any) -> Any:
        wrong = b"?" + bytes(data)[1:] if key.endswith("DATA/a") else data
        return real(store, key, wrong, **named)

    source = tmp_path / "x"
    (source / "DATA").mkdir(parents=True)
    (source / "DATA/a").write_bytes(b"abc")
    (source / "index.json").write_bytes(b"{}")
    monkeypatch.setattr(obstore, "put", damaging)
    with pytest.raises(StorageError, match="other bytes"):
        comal.sync(source, box.target("x"))
    assert box.files() == {}
    monkeypatch.undo()
    comal.sync(source, box.target("x"))
    real(
        bucket[1].store,
        box.target("x/DATA/a").location.path,
        b"xyz",
        attributes={"sha256": "0" * 64},
    )
    # What a store says of its bytes is compared with them: here is nothing that proves either.
    there = syncing._Side(box.target("x").location, box.target("x").config)
    monkeypatch.setattr(storeobject, "proves", lambda *_: False)
    with pytest.raises(StorageError, match="other bytes"):
        comal.sync(box.target("x"), tmp_path / "back")
    assert there.files.keys() == {"DATA/a", "index.json"}
    assert not (tmp_path / "back/DATA/a").exists()


def put_in_parts(box: Box, server: S3Server, name: str, step: int, size: int) -> None:
    key, data = box.target(name).location.path, np.random.default_rng(1).bytes(size)
    obstore.put(server.store, key, data, use_multipart=True, chunk_size=step)


def asked(server: S3Server) -> list[str]:
    """Methods and names of the requests since the last time, without those of listings."""
    seen = [re.sub(r"/comal-tests/.*/", "", one) for one in server.faults.seen]
    del server.faults.seen[:]
    return [one.partition("?")[0] for one in seen if "?" not in one]


def test_what_was_uploaded_in_parts_is_copied_by_its_store(
    bucket: tuple[Box, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And read once; unless an upload has the same parts, for then nothing is read later on."""
    box, server = bucket
    put_in_parts(box, server, "a", 5 * MIB, 5 * MIB + 1)
    put_in_parts(box, server, "c", 8 * MIB, 8 * MIB + 1)
    asked(server)
    with monkeypatch.context() as patch:
        patch.setattr(StoreObject, "publish", None)
        comal.sync(box.target("a"), box.target("b"))
    assert [one for one in asked(server) if one.startswith("GET")] == ["GET a"]
    assert moved(comal.sync(box.target("a"), box.target("b"))) == [0, 0, 1, 0]
    assert [one for one in asked(server) if one.startswith("GET")] == ["GET a"]
    comal.sync(box.target("c"), box.target("d"))
    asked(server)
    assert moved(comal.sync(box.target("c"), box.target("d"))) == [0, 0, 1, 0]
    assert "GET" not in "".join(asked(server))
    files = box.files()
    assert (files["a"], files["c"]) == (files["b"], files["d"])
    box.put("b", files["a"][:-1] + b"?")
    with pytest.raises(ConflictError, match="differs"):
        comal.sync(box.target("a"), box.target("b"))


@pytest.mark.parametrize("size", [BIG + 1, 5 * MIB + 1])
def test_what_the_store_copies_is_compared(
    size: int, bucket: tuple[Box, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    box, server = bucket
    real = obstore.copy

    def damaging(store: Any, source: str, target: str, **named: Any) -> None:
        real(store, source, target, **named)
        server.put(target, b"?" + bytes(size - 1))

    put_in_parts(box, server, "a", 5 * MIB, size)
    monkeypatch.setattr(obstore, "copy", damaging)
    with pytest.raises(StorageError, match="other bytes"):
        comal.sync(box.target("a"), box.target("b"))
    assert box.files().keys() == {"a"}


@pytest.mark.parametrize("size", [10, BIG + 1])
def test_a_source_that_changes_is_an_error(
    box_pair: tuple[Box, Box], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = fill(box_pair[0], {"a": b"a" * size, "index.json": b"{}"})
    real = syncing._Run.copy

    def changing(run: Any, name: str) -> None:
        if name == "a":
            box_pair[0].put("x/a", b"b" * size)
        real(run, name)

    monkeypatch.setattr(syncing._Run, "copy", changing)
    with pytest.raises(ObjectChangedError):
        comal.sync(source, box_pair[1].target("x"))
    assert "x/index.json" not in box_pair[1].files()


def test_who_writes_the_target_meanwhile_stays(
    box_pair: tuple[Box, Box], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = box_pair
    real = syncing._Run.copy

    def changing(run: Any, name: str) -> None:
        target.put("a", b"theirs")
        real(run, name)

    monkeypatch.setattr(syncing._Run, "copy", changing)
    for old in (None, b"old"):
        source.put("a", b"ours")
        if old is not None:
            target.put("a", old)
        with pytest.raises((ConflictError, ObjectChangedError)):
            comal.sync(source.target("a"), target.target("a"), overwrite=old is not None)
        assert target.files() == {"a": b"theirs"}


# -- how equality is told --------------------------------------------------------------------------


def test_s3_is_compared_by_its_listing(
    tree: Tree, bucket: tuple[Box, S3Server], tmp_path: Path
) -> None:
    """Not a byte is read, also not of objects that were copied from a hidden key."""
    box, server = bucket
    for name, data in tree.items():
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_bytes(data)
    comal.sync(tmp_path / "x", box.target("x"))
    del server.faults.seen[:]
    assert moved(comal.sync(tmp_path / "x", box.target("x"))) == [0, 0, len(tree), 0]
    assert [one.partition(" ")[0] for one in server.faults.seen] == ["HEAD", "GET"]
    comal.sync(box.target("x"), box.target("y"))
    del server.faults.seen[:]
    assert moved(comal.sync(box.target("x"), box.target("y"))) == [0, 0, len(tree), 0]
    assert len(server.faults.seen) == 4


@pytest.mark.parametrize("kind", [one for one in KINDS if one not in ("local", "s3")])
def test_the_checksum_beside_an_object_is_compared(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, hasty: StorageConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An object of somebody else has none, and is read."""
    box = box_of(kind, request, tmp_path, hasty)
    (tmp_path / "a").write_bytes(bytes(BIG + 1))
    comal.sync(tmp_path / "a", box.target("a"))
    wanted = storeobject.digest_of(tmp_path / "a", "sha256").hex()
    assert StoreObject(box.target("a")).checksum() == wanted
    read: list[str] = []
    real = syncing._Side.reading

    def note(side: Any, name: str) -> Any:
        read.append(name)
        return real(side, name)

    monkeypatch.setattr(syncing._Side, "reading", note)
    assert moved(comal.sync(tmp_path / "a", box.target("a"))) == [0, 0, 1, 0]
    assert read == []
    box.put("a", bytes(BIG + 1))
    assert moved(comal.sync(tmp_path / "a", box.target("a"))) == [0, 0, 1, 0]
    assert bool(read) is (kind != "gs")  # whose ETags are MD5s
    box.put("a", bytes(BIG) + b"1")
    with pytest.raises(ConflictError):
        comal.sync(tmp_path / "a", box.target("a"))


def test_files_of_one_size_are_read(tmp_path: Path) -> None:
    for name, data in (("a", b"abc"), ("b", b"abd")):
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, (1, 1))
    with pytest.raises(ConflictError, match="differ"):
        comal.sync(tmp_path / "a", tmp_path / "b")


# -- what is refused, and what is left out ---------------------------------------------------------


def test_places_that_overlap(box_pair: tuple[Box, Box], tmp_path: Path) -> None:
    box = box_pair[0]
    fill(box, {"a/b": b"1"})
    for source, target in (("x", "x"), ("x", "x/a"), ("x/a", "x"), ("x/a/b", "x")):
        with pytest.raises(ConflictError, match="source"):
            comal.sync(box.target(source), box.target(target))
    assert box.files() == {"x/a/b": b"1"}


def test_places_that_nothing_is_copied_to(
    bucket: tuple[Box, S3Server], archives: Path, tmp_path: Path
) -> None:
    box, server = bucket
    one, config = archives / "scenes.tacozip", box.target("x").config
    with pytest.raises(InvalidInputError, match="must have a name"):
        comal.sync(one, f"s3://{BUCKET}", config=config)
    with pytest.raises(ConflictError, match="lies in the source"):
        comal.sync(f"s3://{BUCKET}", f"s3://{BUCKET}/x", config=config)
    for source in (one, archives / "folder"):
        with pytest.raises(ObjectNotFoundError, match="bucket does not exist"):
            comal.sync(source, "s3://comal-nowhere/a", config=config)
    with pytest.raises(ObjectNotFoundError, match="bucket does not exist"):
        comal.sync("s3://comal-nowhere/a", tmp_path / "a", config=config)
    with pytest.raises(InvalidInputError, match="another format"):
        comal.sync(one, tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="s3://"):
        comal.sync(one, "https://example.org/a.tacozip")
    for absent in (tmp_path / "no", f"s3://{BUCKET}/no", "memory://nowhere/a"):
        with pytest.raises(ObjectNotFoundError, match=r"no such (file or folder|object)"):
            comal.sync(absent, tmp_path / "a", config=config)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ObjectNotFoundError, match="nothing to copy"):
        comal.sync(tmp_path / "empty", tmp_path / "a")
    server.faults.fault = lambda _, asked: "403 No" if asked.startswith("PUT") else ""
    with pytest.raises(AccessDeniedError, match="may write"):
        comal.sync(one, box.target("a.tacozip"))
    for target in (box.target("y"), tmp_path / "y"):
        server.faults.fault = lambda *_: ""
        comal.sync(archives / "folder", target)
        with pytest.raises(ConflictError, match="the target is a folder"):
            comal.sync(one, target)
        comal.sync(one, target.with_name("z"))
        with pytest.raises(ConflictError, match="the target is a file"):
            comal.sync(archives / "folder", target.with_name("z"))


def test_links_hidden_files_and_others(tmp_path: Path) -> None:
    source, target = tmp_path / "x", tmp_path / "y"
    for name in ("a", "b/c", "T10:00", ".other", ".a.comal-lock", f".a.{16 * '0'}.next"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(name.encode())
    (source / "link").symlink_to("a")
    (source / "up").symlink_to("..")
    with pytest.warns(UserWarning, match="a link to a folder"):
        assert comal.sync(source, target).skipped == 2
    data = {name: name.encode() for name in ("a", "b/c", "T10:00", ".other")}
    assert files_below(target) == data | {"link": b"a"}
    assert not (target / "link").is_symlink()
    (source / "up").unlink()
    (target / "b/c").unlink()
    (target / "b").rmdir()
    (target / "b").symlink_to(tmp_path)
    with (
        pytest.raises(UnsafeContentError, match="leads out of the target"),
        pytest.warns(UserWarning, match="a link to a folder"),
    ):
        comal.sync(source, target)
    assert not (tmp_path / "c").exists()
    (target / "b").unlink()
    (tmp_path / "secret").write_bytes(b"secret")
    (source / "out").symlink_to(tmp_path / "secret")
    for place in (target, "memory://links/x"):
        with pytest.raises(UnsafeContentError, match="out of the folder"):
            comal.sync(source, place)
    (source / "out").unlink()
    os.mkfifo(source / "pipe")
    with pytest.raises(ComalError, match="not a regular file"):
        comal.sync(source, target)
    (source / "pipe").unlink()
    journal = f'[".a.{16 * "0"}.next", "a", null, false]\n'
    (source / ".meta.json.change").write_text(journal)
    with pytest.raises(ConflictError, match="comal clean"):
        comal.sync(source, target)


@pytest.mark.parametrize(("mine", "theirs"), [("a", "a/b"), ("c/a/b", "c/a")])
def test_a_file_where_the_other_has_a_folder(mine: str, theirs: str, tmp_path: Path) -> None:
    for name in (f"x/{mine}", "x/0", f"y/{theirs}"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    for dry_run in (True, False):
        with pytest.raises(ConflictError, match=r"a file and a folder[\s\S]*remove it"):
            comal.sync(tmp_path / "x", tmp_path / "y", overwrite=True, dry_run=dry_run)
    assert files_below(tmp_path / "y") == {theirs: b"1"}


def test_two_runs_at_a_time(tmp_path: Path, archives: Path) -> None:
    with (
        targets.new_folder(tmp_path / "x") as _,
        pytest.raises(ConflictError, match="another writer"),
    ):
        comal.sync(archives / "folder", tmp_path / "x")


def test_marks_of_folders_are_no_files(bucket: tuple[Box, S3Server], tmp_path: Path) -> None:
    import boto3

    box, server = bucket
    key = box.target("x").location.path
    client = boto3.client(
        "s3", endpoint_url=server.endpoint, region_name="us-east-1",
        aws_access_key_id="testing", aws_secret_access_key="testing",
    )  # fmt: skip
    names = {"a b#%20\u00e9+.x": b"1", "deep/er/c": b"2"}
    for name in ("", "deep/", "deep/er/"):
        client.put_object(Bucket=BUCKET, Key=f"{key}/{name}", Body=b"")
    for name, data in names.items():
        client.put_object(Bucket=BUCKET, Key=f"{key}/{name}", Body=data)
    comal.sync(box.target("x"), tmp_path / "x")
    assert files_below(tmp_path / "x") == names


def test_what_killed_runs_left_is_removed(
    bucket: tuple[Box, S3Server], archives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, _ = bucket
    left = [f"{at}.{16 * '0'}.next" for at in (".x", "x/.COLLECTION.json", "x/DATA/.a")]
    for name in left:
        box.put(name, b"half")
    box.put(f".y.{16 * '0'}.next", b"of another")
    comal.sync(archives / "folder", box.target("x"))
    assert comal.sync(archives / "folder", box.target("x"), dry_run=True).skipped == 2
    assert targets.clean(box.target("x")) == []  # somebody may be at work
    monkeypatch.setattr(upload, "_LEFT", -upload._LEFT)
    assert sorted(map(str, targets.clean(box.target("x")))) == sorted(
        str(box.target(one)) for one in left
    )
    assert {name for name in box.files() if _hidden(name)} == {f".y.{16 * '0'}.next"}
    assert problems(box.target("x")) == []


# -- how much at a time ----------------------------------------------------------------------------


def test_many_files_are_copied_at_once(bucket: tuple[Box, S3Server], tmp_path: Path) -> None:
    """One request for each, sixteen at a time, over one client."""
    box, server = bucket
    (tmp_path / "x").mkdir()
    for number in range(64):
        (tmp_path / f"x/{number}").write_bytes(bytes(number + 1))
    running, most, ready = 0, 0, threading.Barrier(16)
    lock = threading.Lock()

    def strike(_: int, asked: str) -> str:
        nonlocal running, most
        if asked.startswith("PUT"):
            with lock:
                running += 1
                most = max(most, running)
            ready.wait(20)
            with lock:
                running -= 1
        return ""

    del server.faults.seen[:]
    server.faults.fault, clients = strike, len(stores._opened._values)
    comal.sync(
        tmp_path / "x",
        StorePath(str(box.target("x")), replace(box.target("x").config, total_timeout=30.0)),
    )
    assert most == 16
    assert len(stores._opened._values) - clients <= 2  # with a limit of time, and without
    assert len(server.faults.seen) == 64 + 2


# -- the command -----------------------------------------------------------------------------------


def test_the_command(archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = archives / "cat", tmp_path / "copy"
    count = len(files_below(source))
    said = command("sync", source, target, "--dry-run").output
    assert re.fullmatch(rf"nothing copied; it would be: {count} new \(.*kB\)\n", said)
    assert not target.exists()
    assert f"{target}: {count} new" in command("sync", source, target, "--clean").output
    (target / "a.tacozip").write_bytes(b"PK\3\4")
    (target / "more").write_bytes(b"")
    assert "--overwrite to replace it" in command("sync", source, target, code=10).output
    said = command("sync", source, target, "--overwrite", "--delete", "--json").output
    assert '"replaced": {"objects": 1' in said
    assert files_below(target) == files_below(source)


def test_objects_say_what_they_are(bucket: tuple[Box, S3Server], tmp_path: Path) -> None:
    box, server = bucket
    (tmp_path / "a.html").write_bytes(b"<p>")
    comal.sync(tmp_path / "a.html", box.target("a.html"))
    comal.sync(box.target("a.html"), box.target("b.html"))
    for name in ("a.html", "b.html"):
        key = parse_href(box.target(name)).path
        assert obstore.get(server.store, key).attributes["Content-Type"] == "text/html"


def test_caches_are_told_what_does_not_change(
    bucket: tuple[Box, S3Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, server = bucket
    for name in ("meta.json", "__TACOCAT__/level0.parquet", "0/0/0.zip"):
        (tmp_path / "tiles" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tiles" / name).write_bytes(b"{}")
    for name, value in server.config.s3.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    url = parse_href(box.target("t")).href
    command("sync", tmp_path / "tiles", url, "--cache-control", "max-age=9")
    comal.sync(tmp_path / "tiles", box.target("u"))
    box.put("v", bytes(BIG + 1))
    command("sync", f"{url[:-1]}v", f"{url[:-1]}w", "--cache-control", "max-age=9")
    expected = {
        "w": "max-age=9",
        "t/meta.json": "no-cache",
        "t/__TACOCAT__/level0.parquet": "no-cache",
        "t/0/0/0.zip": "max-age=9",
        "u/0/0/0.zip": None,
    }
    for name, value in expected.items():
        key = parse_href(box.target(name)).path
        assert obstore.get(server.store, key).attributes.get("Cache-Control") == value, name
