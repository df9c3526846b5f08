"""Targets are complete or not there, whatever fails, and nothing is left beside them."""

# What a block leaves when it fails part of the way is what is tested here.
# ruff: noqa: PT012, SIM117

from __future__ import annotations

import errno
import gc
import os
import resource
import shutil
import signal
import stat
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from comal import taco, tapalcatl
from comal.errors import (
    ConflictError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    system_errors,
)
from comal.storage import StorageConfig, targetlock, targets, upload
from comal.storage.targets import Kind
from tests.faults.harness import KILL, KINDS, Faults, Sweep, visible
from tests.forked import forked
from tests.support import files_below, in_child

OLD, NEW = b"old content", b"new content " * 1000


ANY = Kind("anything", lambda _: lambda _: True)


PORTABLE = pytest.mark.parametrize("portable", [False, True])
"""Also as on systems that can neither rename without replacing nor exchange names."""


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_appears_at_the_end(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "out.bin"
    with targets.new_file(target, overwrite, ANY) as file:
        file.write(NEW)
        assert not target.exists()
        assert all(name.startswith(".") for name in listing(tmp_path))
        file.seek(5)
        assert file.read(5) == NEW[5:10]
        file.seek(0)
        file.write(b"N")
        file.flush()
        assert file.path.read_bytes() == b"N" + NEW[1:]
    assert target.read_bytes() == b"N" + NEW[1:]
    assert listing(tmp_path) == ["out.bin"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


def test_targets_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(OLD)
    for overwrite in (False, True):
        for make, path, kind in (
            (targets.new_file, tmp_path / "folder", ConflictError),
            (targets.new_folder, tmp_path / "file", ConflictError),
            (targets.new_file, tmp_path / "absent" / "x", ObjectNotFoundError),
            (targets.new_folder, tmp_path / "file" / "x", ObjectNotFoundError),
            (targets.new_file, "https://example.org/x", InvalidInputError),
            (targets.new_file, "hf://datasets/a/b/x", InvalidInputError),
            (targets.new_file, "s3://bucket", InvalidInputError),
            (targets.new_file, "s3://bucket/", InvalidInputError),
            (targets.new_file, "/", InvalidInputError),
            (targets.new_file, "", InvalidInputError),
        ):
            with pytest.raises(kind), make(path, overwrite, ANY):
                raise AssertionError("not reached")
    assert listing(tmp_path) == ["file", "folder"]


@PORTABLE
def test_what_comes_into_the_old_folder_meanwhile_stays(
    tmp_path: Path, portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if portable:
        monkeypatch.setattr(targetlock, "_renameat2", lambda *_: False)
    target = tmp_path / "out"
    (target / "deep").mkdir(parents=True)
    (target / "deep/own").write_bytes(OLD)
    (tmp_path / "out.old").write_bytes(OLD)  # a name that is taken
    own = Kind("a folder of one", lambda _: "deep/own".__eq__)
    with pytest.raises(ConflictError, match="letter"), targets.new_folder(target, True, own):
        (target / "deep/letter").write_bytes(OLD)
    assert listing(target / "deep") == ["letter", "own"]
    (target / "deep/letter").unlink()
    publish = targetlock.publish_set

    def late(*args: Any) -> None:
        (target / "deep/letter").write_bytes(OLD)  # after the last look
        publish(*args)

    monkeypatch.setattr(targets, "publish_set", late)
    with pytest.raises(StorageError, match="new folder is in place") as caught:
        with targets.new_folder(target, True, own):
            pass
    assert (tmp_path / "out.old1/deep/letter").read_bytes() == OLD
    assert "out.old1" in str(caught.value)
    assert listing(tmp_path / "out.old1/deep") == ["letter"]
    assert listing(target) == []
    assert listing(tmp_path) == ["out", "out.old", "out.old1"]


def test_spools(tmp_path: Path) -> None:
    with targets.new_file(tmp_path / "out") as file:
        first, second, work = file.spool(), file.spool(), file.folder()
        (work / "whole").write_bytes(NEW)
        names = listing(tmp_path)
        first.write(NEW)
        second.write(OLD)
        first.seek(0)
        assert first.read() == NEW
        assert set(names) == {".out.comal-lock", ".out.comal-part"}
        second.close()
    assert first.closed
    assert listing(tmp_path) == ["out"]


def test_names_of_full_length(tmp_path: Path) -> None:
    name = "\u00fc" * 127
    with targets.new_file(tmp_path / name) as file:
        file.write(NEW)
    with targets.new_folder(tmp_path / (name[:-1] + "x")):
        pass
    assert len(listing(tmp_path)) == 2


@pytest.mark.parametrize("make", [targets.new_file, targets.new_folder])
def test_the_second_writer_is_told(tmp_path: Path, make: Callable[..., Any]) -> None:
    with make(tmp_path / "out"):
        for overwrite in (False, True):
            with (
                pytest.raises(ConflictError, match="another writer"),
                make(tmp_path / "out", overwrite, ANY),
            ):
                raise AssertionError("not reached")
        with make(tmp_path / "other"):
            pass
    assert listing(tmp_path) == ["other", "out"]


def test_many_writers_one_wins(tmp_path: Path) -> None:
    gate = threading.Barrier(8)
    outcomes: list[str] = []

    def write(number: int) -> None:
        gate.wait(10)
        try:
            with targets.new_file(tmp_path / "out") as file:
                file.write(bytes([number]) * 100_000)
        except ConflictError:
            outcomes.append("conflict")
        else:
            outcomes.append("done")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["conflict"] * 7 + ["done"]
    assert len(set((tmp_path / "out").read_bytes())) == 1
    assert listing(tmp_path) == ["out"]


@PORTABLE
def test_who_came_first_stays(
    tmp_path: Path, portable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who knows nothing of locks writes the same name in the meantime."""
    if portable:
        monkeypatch.setattr(targetlock, "_renameat2", lambda *_: False)
    with pytest.raises(ConflictError), targets.new_file(tmp_path / "file") as file:
        file.write(NEW)
        (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(ConflictError), targets.new_folder(tmp_path / "folder"):
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "old").write_bytes(OLD)
    with pytest.raises(ConflictError), targets.new_folder(tmp_path / "plain"):
        (tmp_path / "plain").write_bytes(OLD)
    with pytest.raises(ConflictError), targets.new_file(tmp_path / "mixed", True):
        (tmp_path / "mixed").mkdir()

    def late(old: Path, new: Path) -> None:
        new.write_bytes(OLD)  # after the last look
        targetlock.rename_new(old, new)

    monkeypatch.setattr(targets, "rename_new", late)
    with pytest.raises(ConflictError), targets.new_file(tmp_path / "late") as file:
        file.write(NEW)
    assert (tmp_path / "file").read_bytes() == (tmp_path / "late").read_bytes() == OLD
    assert listing(tmp_path / "folder") == ["old"]
    assert listing(tmp_path) == ["file", "folder", "late", "mixed", "plain"]


def test_a_lock_that_its_file_system_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*args: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def broken(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("fcntl.flock", unsupported)
    with targets.new_file(tmp_path / "out") as file:
        file.write(NEW)
    assert listing(tmp_path) == ["out"]
    # Whether its writer lives cannot be told.
    targetlock.hidden(tmp_path / "out", targetlock.LOCK).touch()
    with targetlock.locked(tmp_path / "out") as left:
        assert not left
    monkeypatch.setattr("fcntl.flock", broken)
    with pytest.raises(StorageError), targets.new_file(tmp_path / "out", True, ANY):
        pass


def test_a_lock_file_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking, its last holder removes the file."""
    is_at, calls = targetlock._is_at, []

    def removed(descriptor: int, path: Path) -> bool:
        calls.append(path)
        if len(calls) == 1:
            path.unlink()
        return is_at(descriptor, path)

    monkeypatch.setattr(targetlock, "_is_at", removed)
    held = list(Path("/proc/self/fd").iterdir())
    with targets.new_file(tmp_path / "out"):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == len(held)
    assert len(calls) == 2
    assert listing(tmp_path) == ["out"]


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("spool", [False, True])
@pytest.mark.parametrize("size", [4 << 20, 100_000])
def test_a_file_that_may_not_grow(tmp_path: Path, spool: bool, size: int) -> None:
    """The write that meets the limit tells, or the flush at the end."""
    (tmp_path / "out").write_bytes(OLD)
    with pytest.raises(StorageError, match="cannot write"), full_disk(50_000):
        with targets.new_file(tmp_path / "out", True, ANY) as file:
            out = file.spool() if spool else file
            out.write(b"x" * size)
            out.flush() if spool else None
    assert (tmp_path / "out").read_bytes() == OLD
    assert listing(tmp_path) == ["out"]


# -- a fault at each call --------------------------------------------------------------------------
# The operations of this module, each in a folder; one called ``portable`` is of a system that can
# neither rename without replacing nor exchange names.


RENAME = targetlock._renameat2


def step(folder: str) -> Path:
    portable = Path(folder).name == "portable"
    targetlock._renameat2 = (lambda *_: False) if portable else RENAME
    return Path(folder) / "out"


def a_file(folder: str) -> None:
    with targets.new_file(step(folder), True, ANY) as file:
        file.write(NEW)


def a_folder(folder: str) -> None:
    with targets.new_folder(step(folder), True, ANY) as part:
        with system_errors("cannot write", part):  # as writers do
            (part / "a").write_bytes(NEW)


def a_set(folder: str) -> None:
    with targets.new_set(step(folder), True) as made:
        for name in "abc":
            with made.file(name, ANY) as file:
                file.write(NEW)
        with system_errors("cannot write", made.target):
            made.add("d", ANY, folder=True).mkdir()
        if (Path(folder) / "e").exists():
            made.remove("e", ANY)
        made.publish()


BEFORE = {"a_file": ["out"], "a_folder": ["out/a"], "a_set": ["a", "b", "d/x", "e"]}
"""What there is of an older version."""


def prepared(folder: Path, paths: Sequence[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in paths:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(OLD)


@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize("system", ["linux", "portable"])
@pytest.mark.parametrize("older", [False, True])
def test_a_fault_at_each_call(
    faults: Faults, tmp_path: Path, name: str, system: str, older: bool
) -> None:
    """What is there then is the old or the new, nothing is beside it, and a second run succeeds.

    Systems differ in how names are given, not in how bytes are written.
    """
    folder, operation = tmp_path / system, f"{__name__}:{name}"
    prepare = partial(prepared, folder, BEFORE[name] if older else ())
    sweep = Sweep(faults, operation, folder, prepare, contents)
    old, new = sweep.old, sweep.new
    assert set(new.values()) == {NEW}
    ends = []
    for one in sweep.attempts(10, KINDS if system == "linux" else ("kill", "ENOSPC")):
        came, what = one.came, one.what
        assert one.kind != "ENOSPC" or came.how == "done" or "room" in came.text, what
        if came.how == "killed":
            if system == "linux" and name != "a_set":  # readers find it at any moment
                assert old.keys() <= one.left.keys(), what
            # By any name of the set, as by that of the target.
            left = [path for path in ("b", "out") if targets.left_beside(folder / path)]
            assert left or visible(one.left) in (old, new), what
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", targetlock.KeptWarning)
                for path in left[:1]:
                    assert targets.clean(folder / path), what
            assert not targets.left_beside(folder / "out"), what
        after = contents(folder)
        # What has been replaced is not removed by whoever cleans up; without an exchange of names
        # there is a moment in which neither the old nor the new folder has the name.
        kept = [path for path in after if ".old" in path]
        assert came.how == "killed" or not kept, what
        for path in kept:
            after.pop(path)
        absent = system == "portable" and kept and name == "a_folder"
        assert after in ((new,) if came.how == "done" else (old, new)) or absent, what
        ends.append(after == new)
        if one.kind == "kill":  # any other has left what was there before
            assert sweep.again(one).items() >= new.items(), what
    assert len(ends) > (20 if system == "linux" else 12)


@pytest.mark.parametrize("system", ["linux", "portable"])
def test_a_set_that_is_not_undone(faults: Faults, tmp_path: Path, system: str) -> None:
    """A step fails, and the writer dies while it undoes it, or cannot: `clean` makes it whole."""
    folder, told = tmp_path / system, 0
    prepare = partial(prepared, folder, BEFORE["a_set"])
    sweep = Sweep(faults, f"{__name__}:a_set", folder, prepare, contents)
    for one in sweep.undone("syncfs", "rename"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            targets.clean(folder / "out")
        after = {path: data for path, data in contents(folder).items() if ".old" not in path}
        assert after in (sweep.old, sweep.new), one.what
        told += "comal clean" in one.came.text
    assert told


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder but locks, which say nothing."""
    found = files_below(folder).items()
    return {name: data for name, data in found if not name.endswith("comal-lock")}


def test_the_next_writer_tells_what_was_left(tmp_path: Path) -> None:
    (tmp_path / ".out.comal-part").write_bytes(OLD)
    (tmp_path / ".out.comal-build").mkdir()
    (tmp_path / ".other.comal-part").write_bytes(OLD)
    (tmp_path / ".out.part").write_bytes(OLD)  # of another program
    with (
        pytest.warns(targetlock.LeftoverWarning, match="comal-"),
        targets.new_file(tmp_path / "out"),
    ):
        assert targets.left_beside(tmp_path / "out") == []  # it is being written
    assert listing(tmp_path) == [".other.comal-part", ".out.part", "out"]


OWN = Kind("a folder of one", lambda _: "data".__eq__)


def replace_folder(folder: Path, data: bytes) -> None:
    with targets.new_folder(folder / "out", True, OWN) as part:
        (part / "data").write_bytes(data)


def replace_set(folder: Path, data: bytes) -> None:
    with targets.new_set(folder / "set", True) as made:
        part = made.add("out", OWN, folder=True)
        part.mkdir()
        (part / "data").write_bytes(data)
        made.publish()


def replace_build(folder: Path, data: bytes) -> None:
    for z in range(3):
        (folder / f"tiles/{z}/0").mkdir(parents=True, exist_ok=True)
        (folder / f"tiles/{z}/0/0.bin").write_bytes(data)
        os.utime(folder / f"tiles/{z}/0/0.bin", (0, 0))
    tapalcatl.build(folder / "tiles", folder / "out", overwrite=True, metatile=1)


REPLACE = {"folder": replace_folder, "set": replace_set, "build": replace_build}


def write_old(folder: str) -> None:
    REPLACE[Path(folder).name](Path(folder), b"old")


def replace_and_die(folder: str) -> None:
    """Replace what is there by new, and be killed before the old is removed."""
    targets._remove_old = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    REPLACE[Path(folder).name](Path(folder), b"new")


def again(folder: Path) -> None:
    REPLACE[folder.name](folder, b"new")


def clean(folder: Path) -> None:
    targets.clean(folder / ("set" if folder.name == "set" else "out"))


@pytest.mark.parametrize("how", REPLACE)
@pytest.mark.parametrize("mend", [again, clean])
def test_a_letter_in_the_old_folder_of_a_killed_writer_stays(
    faults: Faults, tmp_path: Path, how: str, mend: Callable[[Path], None]
) -> None:
    """The writer is killed when the new folder is in place, and somebody writes into the old.

    Nor is that old folder taken for a build that can be gone on with.
    """
    folder = tmp_path / how
    folder.mkdir()
    # Not here: what this imports, the next one that the process runs finds.
    assert faults.run(f"{__name__}:write_old", folder).how == "done"
    old, inode = contents(folder / "out"), (folder / "out").stat().st_ino
    assert faults.run(f"{__name__}:replace_and_die", folder, KILL).how == "killed"
    new = contents(folder / "out")
    assert new.keys() == old.keys()
    assert new != old
    (left,) = (path for path in folder.rglob("*") if path.stat().st_ino == inode)
    (left / "letter").write_bytes(OLD)
    with pytest.warns(UserWarning, match="a writer was killed") as told:
        mend(folder)
    assert [str(one.message)[-15:] for one in told if one.category is targetlock.KeptWarning] == [
        "kept as out.old"
    ]
    assert contents(folder / "out") == new
    assert contents(folder / "out.old") == {**old, "letter": OLD}
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert all(name.endswith("comal-lock") for name in hidden), hidden


# -- folders for temporary files -------------------------------------------------------------------


def hold_temporary_files(line: Connection, folder: Path) -> None:
    """Have files in a scratch folder, and a sample with one."""
    with upload.scratch_folder(StorageConfig(scratch=str(folder))) as scratch:
        (scratch / "below").mkdir()
        (scratch / "below" / "a").write_bytes(OLD)
        sample = taco.Sample("a", NEW, temp_dir=folder)
        line.send(sample.path)
        line.recv()
    line.send("done")
    line.recv()


@pytest.mark.parametrize("killed", [False, True])
def test_temporary_files_of_others_go_when_they_are_killed(tmp_path: Path, killed: bool) -> None:
    (tmp_path / "comal-mine").write_bytes(OLD)
    with forked(hold_temporary_files, tmp_path) as other:
        path = Path(other.hear())
        assert path.read_bytes() == NEW
        held = files_below(tmp_path)
        assert targets.clean(tmp_path) == []
        assert files_below(tmp_path) == held
        if not killed:
            other.line.send("end")
            assert other.hear() == "done"
            assert sorted(files_below(tmp_path).values()) == sorted([b"", OLD, NEW])
            other.line.send("end")
            other.process.join(60)
            assert other.process.exitcode == 0
    if killed:
        assert files_below(tmp_path) == held
        hidden = sorted(tmp_path.glob(".*.comal-part"))
        assert len(hidden) == 2
        assert sorted(targets.clean(tmp_path)) == hidden
    assert files_below(tmp_path) == {"comal-mine": OLD}
    assert listing(tmp_path) == ["comal-mine"]


def test_a_fork_that_ends_removes_nothing_of_its_parent(tmp_path: Path) -> None:
    sample = taco.Sample("a", OLD, temp_dir=tmp_path)
    with upload.scratch_folder(StorageConfig(scratch=str(tmp_path))) as scratch:
        (scratch / "a").write_bytes(NEW)
        held = files_below(tmp_path)
        assert len(held) == 4  # each with its lock

        def end() -> None:
            vars(util)["_run_finalizers"]()  # as at the end of a process
            gc.collect()

        in_child(end)
        assert files_below(tmp_path) == held
    assert Path(str(sample.path)).read_bytes() == OLD


def test_what_older_versions_left_goes(tmp_path: Path) -> None:
    for name in (".x.comal-work", ".x.comal-spool", ".y.comal-work", ".comal-work", "x.comal-work"):
        (tmp_path / name).write_bytes(OLD)
    with targetlock.locked(tmp_path / "x", keep=targetlock.STALE):  # such a writer is at work
        with pytest.raises(ConflictError):
            targets.clean(tmp_path / "x")
    gone = [one.name for one in targets.clean(tmp_path / "x")]
    assert gone == [".x.comal-work", ".x.comal-spool"]
    assert listing(tmp_path) == [".comal-work", ".y.comal-work", "x.comal-work"]
