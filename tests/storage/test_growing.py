"""A folder in a store that grows: killed, broken and made by several, it is whole or not there."""

# What a block leaves when it fails part of the way is what is tested here.
# ruff: noqa: PT012

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import obstore
import pytest

from comal.errors import ComalError, ConflictError, InvalidMetadataError
from comal.storage import growing, targets, upload
from comal.storage.growing import GrowingFolder, growing_folder
from tests.servers.s3 import S3Server
from tests.storage.boxes import KINDS, Box, box_of

LAST, WORK = "meta.json", b"this work"
FILES = {f"{n}/{n}.zip": bytes([n]) * (1000 + n) for n in range(7)} | {LAST: b"{}"}
DATA = {name: data for name, data in FILES.items() if name != LAST}
Killing = Callable[[int], list[str]]
FULL = "COMAL_FULL_SWEEP" in os.environ


@pytest.fixture(params=[kind for kind in KINDS if kind != "local"])
def box(
    request: pytest.FixtureRequest, tmp_path: Path, hasty: Any, monkeypatch: pytest.MonkeyPatch
) -> Box:
    monkeypatch.setattr(growing, "_FILES", 2)
    return box_of(request.param, request, tmp_path, hasty)


one_store = pytest.mark.parametrize("box", ["memory"], indirect=True)


def fill(made: GrowingFolder, files: Mapping[str, bytes]) -> None:
    """Write what is not there yet."""
    for name, data in files.items():
        path = made.folder / name
        if name in made.kept:
            assert made.kept[name][:2] == (len(data), {"of": name})
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if name != LAST:
            made.add([name], len(data), {"of": name})


def make(
    box: Box, files: Mapping[str, bytes] = FILES, work: bytes = WORK, name: str = "out"
) -> set[str]:
    """Make the folder; returns which files were kept."""
    last = LAST if LAST in files else ""
    with growing_folder(box.target(name), work, last) as made:
        fill(made, files)
        return set(made.kept)


def below(box: Box, name: str = "out") -> dict[str, bytes]:
    """The objects of the folder."""
    found = box.files().items()
    return {key.removeprefix(f"{name}/"): one for key, one in found if key.startswith(f"{name}/")}


def beside(box: Box, name: str = "out") -> dict[str, bytes]:
    """The hidden objects beside it."""
    return {key: one for key, one in box.files().items() if key.startswith(f".{name}.comal-build")}


class KilledError(BaseException):
    """Nothing more is done."""


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Killing:
    """Let only so many requests through that change a store; returns a list of them."""
    left, seen = [999], list[str]()

    def limited(name: str) -> Any:
        real = getattr(obstore, name)

        def call(store: Any, key: str, *args: Any, **more: Any) -> Any:
            if left[0] <= 0:
                raise KilledError
            left[0] -= "use_multipart" not in more  # the try whether one may write at all
            seen.append(f"{name} {key}")
            return real(store, key, *args, **more)

        return call

    for name in ("put", "delete", "copy"):
        monkeypatch.setattr(obstore, name, limited(name))

    def set_limit(most: int) -> list[str]:
        left[0] = most
        seen.clear()
        return seen

    return set_limit


@pytest.fixture
def rested(monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Let an hour pass."""
    return lambda: monkeypatch.setattr(upload, "_LEFT", -abs(upload._LEFT))


def until_done(box: Box, killing: Killing, files: Mapping[str, bytes], look: Any) -> None:
    """Kill a writer after ever more changes, and look at what it left, until it is done.

    In memory after each; on a server, which takes longer, the full sweep tries those in between.
    """
    for changes in range(0, 99, 1 if FULL or box.kind == "memory" else 3):
        name = f"out{changes}"
        killing(changes)
        try:
            make(box, files, name=name)
        except KilledError:
            killing(999)
            look(name)
        else:
            assert changes > len(files) + 4  # the note, its end, and records
            assert below(box, name) == files
            return
    raise AssertionError("it never ends")


# -- alone -----------------------------------------------------------------------------------------


def test_it_grows_and_leaves_the_disk(box: Box) -> None:
    with growing_folder(box.target("out"), WORK, LAST) as made:
        for name, data in FILES.items():
            fill(made, {name: data})
            assert sum(path.is_file() for path in made.folder.rglob("*")) <= 2
            assert LAST not in below(box)
        assert len(below(box)) == 6
    assert (below(box), beside(box)) == (FILES, {})
    assert list(box.scratch.iterdir()) == []
    for work in (WORK, b""):
        with pytest.raises(ConflictError, match="exists"):
            make(box, work=work)
    assert (below(box), beside(box)) == (FILES, {})


@pytest.mark.parametrize(
    ("box", "files"),
    [("memory", FILES), ("memory", DATA), ("s3", FILES), *([("s3", DATA)] if FULL else [])],
    indirect=["box"],
)
def test_the_same_work_goes_on_after_each_kill(
    box: Box, files: Mapping[str, bytes], killing: Killing
) -> None:
    def go_on(name: str) -> None:
        left, hidden = below(box, name), beside(box, name)
        assert LAST not in left or left == files
        if hidden:
            with pytest.raises(ConflictError, match="has begun"):
                make(box, files, b"other work", name=name)
            assert (below(box, name), beside(box, name)) == (left, hidden)
        seen = killing(999)
        if left == files and (LAST in files or not hidden or is_finished(hidden)):
            with pytest.raises(ConflictError, match="exists"):
                make(box, files, name=name)
        else:
            assert make(box, files, name=name) == {*left}
            put = sorted(one.partition(f"/{name}/")[2] for one in seen if f"/{name}/" in one)
            assert put == sorted({*files} - {*left})
        assert (below(box, name), beside(box, name)) == (files, {})

    until_done(box, killing, files, go_on)


@one_store
@pytest.mark.parametrize("files", [FILES, DATA], ids=["a document", "none"])
def test_clean_leaves_all_or_nothing_after_each_kill(
    box: Box, files: Mapping[str, bytes], killing: Killing, rested: Any, monkeypatch: Any
) -> None:
    def clean(name: str) -> None:
        left, hidden = below(box, name), beside(box, name)
        assert targets.clean(box.target(name)) == []  # somebody may be at work
        assert (below(box, name), beside(box, name)) == (left, hidden)
        with monkeypatch.context() as later:
            later.setattr(upload, "_LEFT", -upload._LEFT)
            gone = targets.clean(box.target(name))
        assert sorted(map(str, gone)) == sorted(str(box.target(one)) for one in hidden)
        whole = left == files and (LAST in files or is_finished(hidden))
        assert (below(box, name), beside(box, name)) == (files if whole else {}, {})

    until_done(box, killing, files, clean)


def is_finished(hidden: Mapping[str, bytes]) -> bool:
    return any(b'"finished": true' in data for data in hidden.values())


@one_store
def test_killed_while_it_gives_up(box: Box, killing: Killing, rested: Any) -> None:
    """`clean` ends what a failed writer, or another `clean`, has begun."""
    for changes in range(99):
        name = f"out{changes}"
        killing(999)
        try:
            with growing_folder(box.target(name), WORK, LAST) as made:
                fill(made, DATA)
                killing(changes)
                raise ValueError
        except ValueError:
            assert changes > len(DATA)
            assert (below(box, name), beside(box, name)) == ({}, {})
            break
        except KilledError:
            killing(999)
            rested()
            targets.clean(box.target(name))
            assert (below(box, name), beside(box, name)) == ({}, {}), changes
    else:
        raise AssertionError("it never ends")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_nothing(box: Box, error: type[BaseException]) -> None:
    with pytest.raises(error), growing_folder(box.target("out"), WORK, LAST) as made:
        fill(made, DATA)
        raise error
    assert box.files() == {}
    assert list(box.scratch.iterdir()) == []


@one_store
def test_an_error_removes_what_was_kept(box: Box, killing: Killing) -> None:
    killing(6)
    with pytest.raises(KilledError):
        make(box)
    killing(999)
    with pytest.raises(LookupError), growing_folder(box.target("out"), WORK, LAST) as made:
        assert made.kept
        raise LookupError
    assert box.files() == {}


FAULTS = ["403 Forbidden", *(["400 Bad Request"] if FULL else [])]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("killed", [False, True])
def test_a_request_that_fails(
    bucket: tuple[Box, S3Server],
    fault: str,
    killed: bool,
    killing: Killing,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each in turn, or each third: all or nothing is there, or what the same work knows of."""
    monkeypatch.setattr(growing, "_FILES", 2)
    box, server = bucket
    files = dict([*DATA.items()][:3]) | {LAST: FILES[LAST]}
    for number in range(0, 99, 1 if FULL else 3):
        name = f"out{number}"
        if killed:
            killing(4)
            with pytest.raises(KilledError):
                make(box, files, name=name)
            killing(999)
        start, old = len(server.faults.seen), below(box, name)
        at = start + number + 1
        server.faults.fault = lambda n, _, at=at: fault if n == at else ""  # type: ignore[misc]
        error = None
        try:
            make(box, files, name=name)
        except ComalError as failed:
            error = failed
        done = len(server.faults.seen) - start <= number
        server.faults.fault = lambda *_: ""
        left, hidden = below(box, name), beside(box, name)
        assert (left == files) if error is None else (LAST not in left)
        assert (hidden == {}) or left in ({}, old, files), number
        if left != files:
            assert error is not None
            assert left in ({}, old), (number, left.keys())
            make(box, files, name=name)
        assert below(box, name) == files
        if done:
            assert error is None
            return
    raise AssertionError("it never ends")


# -- others ----------------------------------------------------------------------------------------


def test_who_goes_on_owns_the_folder(box: Box) -> None:
    """The first is not dead: it fails, and removes nothing of the second."""
    target = box.target("out")
    with pytest.raises(ConflictError, match="another writer"):  # noqa: SIM117 - as one sees it
        with growing_folder(target, WORK, LAST) as first:
            fill(first, DATA)
            with growing_folder(target, WORK, LAST) as second:
                assert {*second.kept} == {*list(DATA)[:6]}
                fill(second, FILES)
                fill(first, {LAST: b"other"})
                with pytest.raises(ConflictError, match="another writer"):
                    first.finish()
                assert LAST not in below(box)
            assert below(box) == FILES
    assert (below(box), beside(box)) == (FILES, {})


@one_store
def test_the_first_ends_after_all(box: Box) -> None:
    """Who went on with it when it was almost whole removes nothing, whatever happens."""
    for error in (ConflictError, LookupError):
        target = box.target(error.__name__)
        with pytest.raises(error), growing_folder(target, WORK, LAST) as second:
            with growing_folder(target, WORK, LAST) as first:
                fill(first, FILES)
                first._publish()
                first._own(finished=True)
                second.begin()
                assert {*second.kept} == {*DATA}
                first._publish_one(LAST)
                if error is LookupError:
                    raise error
            fill(second, FILES)
        assert below(box, error.__name__) == FILES


@one_store
@pytest.mark.parametrize("name", [LAST, "note.txt", "1/1.zip", "1/a/1.zip"])
def test_what_others_put_there_stays(box: Box, killing: Killing, name: str) -> None:
    killing(6)
    with pytest.raises(KilledError):
        make(box)
    killing(999)
    box.put(f"out/{name}", b"a letter")
    with pytest.raises(ConflictError):
        make(box)
    assert below(box)[name] == b"a letter"


@one_store
def test_notes_that_are_damaged(box: Box, killing: Killing) -> None:
    killing(6)
    with pytest.raises(KilledError):
        make(box)
    killing(999)
    left = box.files()
    records = [name for name in beside(box) if not name.endswith("build.json")]
    for name, data in (
        (".out.comal-build/build.json", b"{"),
        (".out.comal-build/build.json", b"[]"),
        (records[0], b'[[{}, [["1/1.zip", "x"]]]]'),
        (records[0], b"nothing"),
    ):
        box.put(name, data)
        with pytest.raises(InvalidMetadataError, match="damaged"):
            make(box)
        box.put(name, left[name])
        assert below(box) == {k.removeprefix("out/"): v for k, v in left.items() if k[0] != "."}


@one_store
def test_a_target_that_is_a_source(box: Box) -> None:
    target = box.target("out")
    with pytest.raises(ConflictError, match="source"), growing_folder(target, WORK, "", target):
        raise AssertionError("not reached")
    assert box.files() == {}
