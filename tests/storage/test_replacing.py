"""Files that are replaced together: all of them or none, whoever dies on the way."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comal.errors import ConflictError, NotThisFormatError, StorageError
from comal.storage import replacing
from comal.storage.replacing import Change, changing_file, changing_files, settle, state_of
from comal.storage.targetlock import locked
from tests.support import files_below, in_child

OLD = {"a": b"old a", "b": b"old b"}
NEW = {"a": b"old a, longer", "b": b"new", "in/new/c": b"made"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in OLD.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def edit(change: Change, folder: Path) -> None:
    with change.edit(folder / "a") as version:
        version.file().write(b", long")
        assert os.pread(version.fileno(), 99, 0) == b"old a, long"
        with pytest.raises(ConflictError), locked(folder / "a"):
            pass
    with change.edit(folder / "a") as version:  # what was made ready is changed once more
        version.file().write(b"er")
    with change.write(folder / "b") as file:
        file.write(b"new")
        with pytest.raises(ConflictError), locked(folder / "b"):
            pass
    assert not change.has(folder / "in/new/c")
    with change.write(folder / "in/new/c") as file:
        file.write(b"made")
    assert change.has(folder / "in/new/c")
    assert (folder / "a").read_bytes() == OLD["a"]


def changed(folder: Path, then: Callable[[], Any] = int) -> None:
    with changing_files(folder / ".j", "comal mend it") as change:
        edit(change, folder)
        then()


@pytest.mark.parametrize("durable", [True, False])
def test_all_of_them(folder: Path, durable: bool) -> None:
    with changing_files(folder / ".j", "mend", durable=durable) as change:
        assert state_of(folder / ".j") == "running"
        edit(change, folder)
        with pytest.raises(ConflictError), changing_files(folder / ".j", ""):
            pass
    assert files_below(folder) == NEW


def test_what_is_on_disk_before_what(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All new bytes, then the decision, then the renames, and the names at the end."""
    fsync, replace, told = os.fsync, Path.replace, list[str]()

    def noted(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        told.append("names" if path.is_dir() else path.suffix or path.name)
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        told.append("rename")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "replace", renamed)
    changed(folder)
    assert told == [*[".next"] * 3, ".j", "names", *["rename"] * 3, *["names"] * 2]
    del told[:]
    with changing_file(folder / "a") as change, change.write(folder / "a") as file:
        file.write(b"!")
    assert told == [".next", "rename", "names"]


def test_none_of_them(folder: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        changed(folder, interrupt)
    assert files_below(folder) == OLD
    assert not (folder / "in").exists()


@pytest.mark.parametrize("step", ["decide", "finish", "_rename"])
def test_a_writer_that_dies(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Before the decision, after it, or when one file is in its place already."""
    real = replacing._rename

    def last(*_: Any, **__: Any) -> None:
        if step == "_rename":
            real(list(_[0][:1]), durable=False)
        os._exit(0)

    def write() -> None:
        where = replacing if step == "_rename" else Change
        monkeypatch.setattr(where, step, last)
        changed(folder)

    in_child(write)
    assert state_of(folder / ".j") == ("begun" if step == "decide" else "decided")
    found = settle(folder / ".j")
    assert found == {"decide": (0, 3), "finish": (3, 0), "_rename": (2, 0)}[step]
    assert files_below(folder) == (OLD if step == "decide" else NEW)
    assert settle(folder / ".j") == (0, 0)
    assert state_of(folder / ".j") == ""


def test_what_cannot_be_finished_says_how(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(replacing, "_rename", full)
        with pytest.raises(StorageError) as told:
            changed(folder)
    assert "comal mend it" in str(told.value.hint)
    # Whoever writes next finishes it first.
    with changing_files(folder / ".j", "mend") as change, change.edit(folder / "b") as version:
        assert (folder / ".j").read_bytes() == b""
        version.file().write(b"er")
    assert files_below(folder) == {**NEW, "b": b"newer"}


def test_what_somebody_else_has_written_stays(folder: Path) -> None:
    with pytest.raises(ConflictError, match="meanwhile"):
        changed(folder, lambda: (folder / "b").write_bytes(b"of somebody"))
    assert files_below(folder) == {**OLD, "b": b"of somebody"}
    in_child(lambda: _decided_and_dead(folder))
    (folder / "b").write_bytes(b"of somebody again")
    with pytest.raises(ConflictError, match="meanwhile") as told:
        settle(folder / ".j")
    assert state_of(folder / ".j") == "decided"
    for hidden in folder.glob(".b.*"):
        assert str(hidden)[-20:] in str(told.value.hint)
        hidden.unlink()
    settle(folder / ".j")
    assert files_below(folder) == {**NEW, "b": b"of somebody again"}


def _decided_and_dead(folder: Path) -> None:
    changed(folder, lambda: setattr(Change, "finish", lambda _: os._exit(0)))


HIDDEN = ".b.0123456789abcdef.next"
STRANGE: dict[str, list[Any]] = {
    "torn": ['[".b.0123456789abcdef.next", "b", nul'],
    "no names": [[HIDDEN], {}, [1, 2, 3, 4]],
    "another name": [["a", "b", None, False], ["decided", 1]],
    "another folder": [["../a/" + HIDDEN, "b", None, False], ["decided", 1]],
    "fewer than said": [[HIDDEN, "b", [5, 0], False], ["decided", 2]],
    "not text": ["\udc80\udcff", "\x00" * 100_000],
}


@pytest.mark.parametrize("name", STRANGE)
def test_journals_that_nobody_here_wrote(folder: Path, name: str) -> None:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in STRANGE[name]]
    (folder / ".j").write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    assert settle(folder / ".j") == (0, 0)
    assert files_below(folder) == OLD


@pytest.mark.parametrize("how", ["link", "pipe", "folder"])
def test_a_journal_that_is_no_file(folder: Path, how: str) -> None:
    in_child(lambda: _decided_and_dead(folder))
    assert state_of(folder / ".j") == "decided"
    journal = (folder / ".j").rename(folder / "journal")
    make = {"link": lambda at: at.symlink_to(journal), "pipe": os.mkfifo, "folder": Path.mkdir}
    make[how](folder / ".j")
    assert state_of(folder / ".j") == ""


def test_one_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(*_: Any) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    path = folder / "a"
    path.chmod(0o640)
    inode, held = path.stat().st_ino, path.open("rb")
    monkeypatch.setattr(os, "copy_file_range", elsewhere)
    with changing_file(path) as change, change.edit(path) as version:
        assert os.pread(version.fileno(), 9, 0) == OLD["a"]
        version.file().write(b"!")
        with pytest.raises(ConflictError), locked(path):
            pass
    assert files_below(folder) == {**OLD, "a": b"old a!"}
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_ino != inode
    with held:
        assert held.read() == OLD["a"]
    with changing_file(path) as change, change.edit(path):
        inode = path.stat().st_ino
    assert path.stat().st_ino == inode, "nothing was written"


@pytest.mark.parametrize(
    ("name", "error"), [("pipe", NotThisFormatError), ("link", StorageError), ("in", StorageError)]
)
def test_what_is_no_file(folder: Path, name: str, error: type[Exception]) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("a")
    with changing_file(folder / name) as change, pytest.raises(error):
        change.edit(folder / name).__enter__()
