"""Targets on this machine and in stores: whole or not there, and nothing of others is lost."""

# What a block leaves when it fails part of the way is what is tested here.
# ruff: noqa: PT012, SIM117

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import obstore
import pytest

from comal import parallel
from comal.errors import (
    AccessDeniedError,
    ComalError,
    ConflictError,
    LimitExceededError,
    ObjectNotFoundError,
    StorageError,
)
from comal.progress import current, silent, telling
from comal.storage import StorageConfig, multipart, open_source, storeobject, targets, upload
from comal.storage.location import StorePath, parse_href
from comal.storage.multipart import Multipart
from comal.storage.replacing import changing_file
from tests.servers.s3 import S3Server
from tests.storage.boxes import KINDS, MINE, Box, box_of

ANY = targets.Kind("anything", lambda _: lambda _: True)
OLD, NEW, OTHER = b"mine: old", b"mine: new " * 1000, b"a letter"


@pytest.fixture(params=KINDS)
def box(request: pytest.FixtureRequest, tmp_path: Path, hasty: StorageConfig) -> Box:
    return box_of(request.param, request, tmp_path, hasty)


WAYS = {"one request": storeobject.SINGLE, "in parts": 1000, "in parts by obstore": 999}


@pytest.fixture(params=WAYS)
def single(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Above this size, objects go in parts."""
    monkeypatch.setattr(storeobject, "SINGLE", WAYS[request.param])
    if request.param == "in parts by obstore":
        monkeypatch.setattr(Multipart, "to", lambda *_: None)
    return WAYS[request.param]


# -- the same everywhere ---------------------------------------------------------------------------


def test_it_appears_at_the_end(box: Box, single: int) -> None:
    made: dict[str, bytes] = {}
    for old, data in product((None, OLD, b""), (NEW, b"")):
        name = f"x{len(made)}"
        if old is not None:
            box.put(name, old)
        before = box.files()
        with targets.new_file(box.target(name), old is not None, MINE) as file:
            file.write(data)
            file.flush()
            visible = {key: one for key, one in box.files().items() if not key.startswith(".")}
            assert visible == before
            file.seek(0)
            assert file.read() == data
        made[name] = data
        assert box.files() == made
        assert list(box.scratch.iterdir()) == []


def test_what_is_there_stays(box: Box) -> None:
    for data, overwrite, told in (
        (OLD, False, "overwrite=True"),
        (OTHER, False, "overwrite=True"),
        (OTHER, True, "another kind"),
    ):
        box.put("x", data)
        with pytest.raises(ConflictError, match=told):
            box.write("x", NEW, overwrite=overwrite)
        assert box.files() == {"x": data}
    box.put("folder/x", OTHER)
    for overwrite in (False, True):
        with pytest.raises(ConflictError, match="is a folder"):
            box.write("folder", NEW, overwrite=overwrite)
        with pytest.raises(ConflictError), targets.new_folder(box.target("folder"), overwrite):
            pass
        with pytest.raises(ConflictError, match="is a file"):
            with targets.new_folder(box.target("x"), overwrite):
                pass
    assert box.files() == {"x": OTHER, "folder/x": OTHER}


def test_an_error_of_the_caller_leaves_nothing(box: Box) -> None:
    box.put("x", OLD)
    box.put("folder/old", OLD)
    folder = box.target("folder" if box.kind == "local" else "new")
    for error in (ValueError, KeyboardInterrupt, SystemExit, OSError):
        with pytest.raises(error), targets.new_file(box.target("x"), True, MINE) as file:
            file.write(NEW)
            file.spool().write(NEW)
            (file.folder() / "y").touch()
            raise error
        for target in (folder, box.target("absent")):
            with pytest.raises(error), targets.new_folder(target, True, ANY) as part:
                (part / "x").mkdir()
                (part / "y").write_bytes(NEW)
                raise error
        assert box.files() == {"x": OLD, "folder/old": OLD}
        assert list(box.scratch.iterdir()) == []


def test_who_came_first_stays(box: Box, single: int) -> None:
    with pytest.raises(ConflictError), targets.new_file(box.target("x"), False, MINE) as file:
        file.write(NEW)
        box.put("x", OTHER)
    assert box.files() == {"x": OTHER}
    if box.kind == "local":  # where a lock keeps writers apart
        return
    box.put("x", OLD)
    with pytest.raises(ConflictError, match="another writer"):
        with targets.new_file(box.target("x"), True, MINE) as file:
            file.write(NEW)
            box.put("x", OTHER)
    assert box.files() == {"x": OTHER}


def test_a_change_is_made_as_a_whole(box: Box, single: int) -> None:
    box.put("x", OLD)
    target = box.target("x")
    with changing_file(target) as change:
        with change.edit(target) as version:
            assert version.path.read_bytes() == OLD
            version.file().write(NEW)
        with change.edit(target) as version:
            assert version.path.read_bytes() == OLD + NEW
            assert {name for name in box.files() if not name.startswith(".")} == {"x"}
            assert box.files()["x"] == OLD
    assert box.files() == {"x": OLD + NEW}
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), changing_file(target) as change:
            with change.edit(target) as version:
                version.file().write(NEW)
                raise error
    if box.kind != "local":
        with pytest.raises(ConflictError, match="another writer"), changing_file(target) as change:
            with change.edit(target) as version:
                version.file().write(NEW)
            box.put("x", OLD + NEW)
            box.put("x", OTHER)
        assert box.files() == {"x": OTHER}
    box.put("x", OLD)
    with changing_file(target) as change, change.edit(target) as version:
        box.put("x", OTHER)  # nothing is changed here
    assert box.files() == {"x": OTHER}
    assert list(box.scratch.iterdir()) == []


def test_a_source_is_not_replaced(box: Box) -> None:
    box.put("s/x", OLD)
    source = box.target("s/x")
    for name, given in (("s/x", source), ("s/x", [str(source)]), ("s", source), ("s/x/y", source)):
        if name == "s/x/y" and box.kind == "local":
            continue
        with pytest.raises(ConflictError, match="source"):
            with targets.new_file(box.target(name), True, MINE, given):
                pass
    with targets.new_file(box.target("s/y"), True, MINE, [source, "NETCDF://x", ""]):
        pass


def test_a_folder_and_its_index(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {"DATA/a/1": b"1", "DATA/2": b"2", "other": b"3", "index.json": b"{}"}

    def write(fails: str = "") -> None:
        with targets.new_folder(box.target("tree")) as folder:
            for name, data in content.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
            assert box.files() == {} or box.kind == "local"
            if fails:
                monkeypatch.setattr(obstore, "put", failing)

    real, put = obstore.put, list[str]()

    def failing(store: Any, key: str, *args: Any, **named: Any) -> Any:
        put.append(key.partition("tree/")[2])
        if put[-1] == "index.json" and len(put) == len(content):
            raise PermissionError
        return real(store, key, *args, **named)

    if box.kind != "local":
        with pytest.raises(AccessDeniedError, match="may write"):
            write("index.json")
        assert put[-1] == "index.json"
        assert sorted(put) == sorted(content)
        assert box.files() == {}
        monkeypatch.undo()
    write()
    assert box.files() == {f"tree/{name}": data for name, data in content.items()}
    assert list(box.scratch.iterdir()) == []


def test_several_appear_or_none(box: Box) -> None:
    announced: list[str] = []

    def write(overwrite: bool) -> list[Path]:
        with targets.new_set(box.target("x"), overwrite) as made:
            for name in ("a", "b"):
                with made.file(name, MINE) as file:
                    announced.append(name)
                    file.write(NEW)
            return made.publish()

    box.put("b", OLD)
    with pytest.raises(ConflictError):
        write(False)
    if box.kind != "local":
        with pytest.raises(ConflictError, match="replaced together"):
            write(True)
        assert box.files() == {"b": OLD}
        assert announced == ["a", "a"]
    else:
        assert [str(path) for path in write(True)] == [str(box.target("a")), str(box.target("b"))]
        assert box.files() == {"a": NEW, "b": NEW}


def test_uploads_are_told_of(box: Box, single: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who listens to the work hears of its bytes, too, in a store."""
    heard: list[tuple[int, int | None, str]] = []
    monkeypatch.setattr(upload, "_TOLD", 0)
    with telling(lambda *told: heard.append(told), quiet=False):
        box.write("x", NEW)
        box.change("x", OLD)
    size, old = len(NEW), len(OLD)
    last = {what: (done, total) for done, total, what in heard}
    expected = {"uploading bytes": (old, old), "fetching bytes": (size, size)}
    assert last == ({} if box.kind == "local" else expected)
    assert current() is silent


# -- a store that fails ----------------------------------------------------------------------------


STRIKES = [(("500 Oh", "503 Slow Down"), False), *((("lost",), ever) for ever in (False, True))]
STRIKES += [(("412 No",), False), *((("403 No",), ever) for ever in (False, True))]


FULL = "COMAL_FULL_SWEEP" in os.environ


HOW = ["new", "replaced", "changed"]
OFTEN = [("one request", "new"), ("in parts", "replaced")]
CASES = [
    (way, how, *strike)
    for way in WAYS
    for how in HOW
    for strike in (STRIKES if FULL or (way, how) in OFTEN else STRIKES[1:2])
    if FULL or how == "new" or "obstore" not in way
]
"""The ordinary run has all strikes for two ways, and for others one that leaves work to do."""


@pytest.mark.parametrize(("single", "how", "faults", "for_ever"), CASES, indirect=["single"])
def test_each_request_fails(
    bucket: tuple[Box, S3Server], single: int, how: str, for_ever: bool, faults: tuple[str, ...]
) -> None:
    each_request_fails(*bucket, how, faults, for_ever=for_ever)


@pytest.mark.parametrize(("faults", "for_ever"), STRIKES if FULL else STRIKES[1:3])
@pytest.mark.parametrize("how", HOW if FULL else ["new"])
@pytest.mark.parametrize("single", ["one request", "in parts by obstore"], indirect=True)
def test_each_request_of_google_fails(
    google_server: S3Server,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    hasty: StorageConfig,
    single: int,
    how: str,
    for_ever: bool,
    faults: tuple[str, ...],
) -> None:
    box = box_of("gs", request, tmp_path, hasty)
    each_request_fails(box, google_server, how, faults, for_ever=for_ever)


def each_request_fails(
    box: Box, server: S3Server, how: str, faults: tuple[str, ...], *, for_ever: bool
) -> None:
    """Once, or from then on; but what is removed can be, for else nothing could be."""
    old, top = None if how == "new" else OLD, parse_href(box.target("x")).path.removesuffix("x")

    def attempt(first: int) -> ComalError | None:
        server.remove(top)
        if old is not None:
            box.put("x", old)
        del server.faults.seen[:]

        def strike(number: int, request: str) -> str:
            struck = number >= first if for_ever else number == first
            removes = "delete" in request.lower()
            return faults[number % len(faults)] if struck and not removes else ""

        server.faults.fault = strike
        try:
            if how == "changed":
                box.change("x", NEW)
            else:
                box.write("x", NEW, overwrite=old is not None)
        except ComalError as error:
            return error
        finally:
            server.faults.fault = lambda *_: ""
        return None

    assert attempt(10**9) is None
    count = len(server.faults.seen)
    assert count >= 3
    for first in range(1, count + 1):
        error, before = attempt(first), {} if old is None else {"x": old}
        what = f"{faults} at {server.faults.seen[first - 1 :]}: {error}"
        assert box.files() in ([{"x": NEW}] if error is None else [before, {"x": NEW}]), what
        # Who does not hear the number of an upload, or too late, cannot give it up; it is empty.
        begun = [one for one in server.faults.seen if one.startswith("POST") and "?uploads" in one]
        unheard = faults == ("lost",) or len(begun) > len(set(begun))
        left = server.end_uploads(top)
        assert not any(left) if unheard else left == [], what
        if not for_ever and faults[0] in ("500 Oh", "lost"):
            assert error is None, what


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        ("403 No", AccessDeniedError, "may write there"),
        ("403 Only reading", AccessDeniedError, "may write there"),
        ("301 Elsewhere", StorageError, "region"),
        ("400 Bad", StorageError, "region"),
        ("404 Nothing", ObjectNotFoundError, "bucket of the target"),
    ],
)
def test_what_cannot_be_written_to_is_named_before_the_work(
    bucket: tuple[Box, S3Server], fault: str, kind: type[ComalError], told: str
) -> None:
    """Also where everything can be read, and nothing written."""
    box, server = bucket
    server.faults.fault = lambda _, request: (
        fault if "Only" not in fault or request.startswith(("PUT", "POST")) else ""
    )
    with pytest.raises(kind, match=told), targets.new_file(box.target("x"), False, MINE):
        raise AssertionError("not reached")


@pytest.mark.parametrize(
    ("single", "old"),
    [("one request", None), ("one request", OLD), ("in parts", OLD), ("in parts by obstore", None)],
    indirect=["single"],
)
def test_an_answer_that_comes_too_late(
    bucket: tuple[Box, S3Server], single: int, old: bytes | None
) -> None:
    """The object was written, and the writer does not know: it looks."""
    box, server = bucket
    if old is not None:
        box.put("x", old)
    server.faults.fault = lambda _, request: (
        "late" if re.match(r"PUT [^?]*$|POST .*/x\?uploadId", request) else ""
    )
    target = box.target("x")
    hasty = StorePath(str(target), replace(target.config, total_timeout=1.5))
    with targets.new_file(hasty, old is not None, MINE) as file:
        file.write(NEW)
    server.faults.fault = lambda *_: ""
    assert box.files() == {"x": NEW}


@pytest.mark.parametrize(("status", "told"), [("501 Not Implemented", "no conditions")])
def test_a_store_without_conditions(bucket: tuple[Box, S3Server], status: str, told: str) -> None:
    box, server = bucket
    server.faults.fault = lambda _, request: status if request.startswith("PUT") else ""
    with pytest.raises(StorageError, match=told):
        box.write("x", NEW)
    server.faults.fault = lambda *_: ""
    own = box.target("x")
    config = replace(own.config, s3={**own.config.s3, "conditional_put": "disabled"})
    with pytest.raises(StorageError, match=told):
        with targets.new_file(StorePath(str(own), config), False, MINE) as file:
            file.write(NEW)
    assert box.files() == {}


def test_no_endpoint_and_too_large_for_s3(
    bucket: tuple[Box, S3Server], monkeypatch: pytest.MonkeyPatch, hasty: StorageConfig
) -> None:
    box, _ = bucket
    monkeypatch.setattr(storeobject, "SINGLE", 10)
    monkeypatch.setattr(storeobject, "COPIED", 100)
    monkeypatch.setattr(Multipart, "to", lambda *_: None)
    with pytest.raises(LimitExceededError, match="write several"):
        box.write("x", NEW)
    for size in (101, 60):
        with pytest.raises(LimitExceededError, match="split_size="):
            with targets.new_file(box.target("x"), False, MINE) as file:
                file.expect(size)
                file.write(bytes(size))
                file.flush()
                file.write(bytes(size))
                file.flush()
                raise AssertionError("not reached")
    assert box.files() == {}
    box.put("x", OLD)
    box.write("x", NEW, overwrite=True)
    nowhere = {**hasty.s3, "endpoint": "http://127.0.0.1:1", "access_key_id": "k"}
    config = replace(hasty, s3={**nowhere, "secret_access_key": "s"}, tries=2)
    with pytest.raises(StorageError, match="check the endpoint"):
        with targets.new_file(targets.target_path("s3://bucket/x", config), False, MINE):
            raise AssertionError("not reached")


def test_what_was_written_can_be_read_by_its_path(box: Box) -> None:
    with targets.new_file(box.target("a.x"), False, MINE) as file:
        file.write(NEW)
    place = box.target("b.y").with_name("a.x")
    assert (place.name, place.stem, place.suffix) == ("a.x", "a", ".x")
    assert place == box.target("a.x") == place.parent / "a.x"
    with open_source(place) as source:
        assert source.stat().size == len(NEW)
    assert [path.name for path in targets.beside(place)] == ["a.x"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is heard, as it is not by what a shell runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_an_upload(
    bucket: tuple[Box, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does."""
    box, server = bucket
    waiting, told = threading.Event(), threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, *how: Any, **named: Any) -> None:
            told.set()
            super().shutdown(*how, **named)

    def strike(_: int, request: str) -> str:
        if "partNumber" in request:
            waiting.set()
            told.wait(20)
        return ""

    def interrupt() -> None:
        waiting.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(storeobject, "SINGLE", 1000)
    monkeypatch.setattr(storeobject, "_AT_ONCE", 2)
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(multipart, "_STEP", 5 << 20)
    del server.faults.seen[:]
    server.faults.fault = strike
    killer = threading.Thread(target=interrupt)
    killer.start()
    target = box.target("x")
    patient = StorePath(str(target), replace(target.config, total_timeout=60.0))
    with pytest.raises(KeyboardInterrupt), targets.new_file(patient, False, MINE) as file:
        file.write(b"mine" + bytes(60 << 20))
    killer.join()
    parts = [request for request in server.faults.seen if "partNumber" in request]
    server.faults.fault = lambda *_: ""
    assert box.files() == {}
    assert server.end_uploads(parse_href(str(target)).path) == []
    assert len(parts) < 6  # of 13


def test_what_replaced_ours_stays(bucket: tuple[Box, S3Server], single: int) -> None:
    """Between the last request of the writer and its look at the object."""
    box, server = bucket
    written: list[str] = []

    def strike(_: int, request: str) -> str:
        final = request.startswith("PUT" if single > 1000 else "POST") and "/x" in request
        if final and not (single <= 1000 and "uploadId" not in request):
            written.append(request)
        elif written and request.startswith("HEAD"):
            server.faults.fault = lambda *_: ""
            box.put("x", OTHER)
        return ""

    server.faults.fault = strike
    with pytest.raises(ConflictError, match="another writer"):
        box.write("x", NEW)
    assert box.files() == {"x": OTHER}


def test_what_an_equal_writer_made_is_not_ours(box: Box) -> None:
    """Two jobs of the same bytes: the second is told, and takes away nothing."""
    if box.kind == "local":
        return
    with (
        pytest.raises(ConflictError, match="exists"),
        targets.new_folder(box.target("x")) as folder,
    ):
        for name in ("a/1", "b.json"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(NEW)
        box.put("x/b.json", NEW)
    assert box.files() == {"x/b.json": NEW}


def test_of_many_writers_one_wins(box: Box, single: int) -> None:
    """All look before any writes, and none takes the place of another."""
    if box.kind == "local":  # where a lock lets in one
        return
    ready = threading.Barrier(6)

    def write(number: int) -> bool:
        try:
            with targets.new_file(box.target("x"), False, MINE) as file:
                file.write(NEW + bytes([number]))
                ready.wait(20)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        won = list(pool.map(write, range(6)))
    assert sum(won) == 1
    assert box.files() == {"x": NEW + bytes([won.index(True)])}
