"""Atomic replacement of files by new versions, of one file or of several together.

The next version of a file is written under a hidden name beside it. It starts as a copy, which
shares blocks if the file system can, and is renamed when it is complete and on disk. Readers get
the old version or the new one, never a mix; a reader that has the old one open keeps it.

Several files are prepared first. A journal lists them; once its last line is on disk, the change is
decided. The next writer undoes a change that is not decided, and finishes the renames of one that
is. The journal is also the lock of the change.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import re
import stat as modes
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from comal.errors import (
    ComalError,
    ConflictError,
    NotThisFormatError,
    StorageError,
    shown_path,
    system_errors,
)
from comal.limits import KIB, MIB
from comal.storage.location import stored
from comal.storage.targetlock import (
    NEXT,
    acquire,
    flush_file_system,
    locked,
    next_name,
    next_versions,
    remove_left,
    sync,
)

State = Literal["", "running", "begun", "decided"]

_HIDDEN: Final = re.compile(rf"\..+{NEXT}", re.DOTALL)
_DECIDED: Final = "decided"
_LINE: Final = 64 * KIB
_FEW: Final = 16
"""Up to this many files or folders are synced one by one, more by syncing their file system."""
_NO_RANGES: Final = (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)


@dataclass(slots=True, eq=False)
class NextVersion:
    """An existing file, and its replacement once something is written."""

    path: Path
    """Where the newest bytes are."""
    _newest: io.FileIO
    _begin: Callable[[], tuple[Path, io.FileIO]] | None

    def fileno(self) -> int:
        """A descriptor of the newest bytes: of the existing file until `file` is called."""
        return self._newest.fileno()

    def file(self) -> io.FileIO:
        """The next version, unbuffered and positioned at its end; the first call creates it."""
        if self._begin is not None:
            self.path, self._newest = self._begin()
            self._begin = None
        self._newest.seek(0, os.SEEK_END)
        return self._newest


class _Staged(NamedTuple):
    """A new file under its hidden name."""

    path: Path
    target: Path
    was: list[int] | None
    """Size and time of the file that it replaces; None if there is none."""
    alone: bool
    """Whether its folder was created for it."""

    def waits(self) -> bool:
        """Whether it is still to be renamed; `ConflictError` if somebody wrote the target."""
        if not os.path.lexists(self.path):
            return False
        if _version_at(self.target) != self.was:
            raise ConflictError(
                "another writer has changed the target meanwhile",
                where=shown_path(self.target),
                hint=f"to keep what is there now, remove {shown_path(self.path)}",
            )
        return True


class Change:
    """Files that change together; see `changing_file` and `changing_files`."""

    def __init__(self, journal: _Journal | None, *, durable: bool, left: bool = False) -> None:
        self._journal, self._durable = journal, durable
        self._left = left
        """Whether a killed writer may have left a next version."""
        self._staged: dict[Path, _Staged] = {}

    def has(self, target: Path) -> bool:
        """Whether a file exists, or will."""
        return target in self._staged or target.is_file()

    @contextmanager
    def edit(self, target: Path) -> Iterator[NextVersion]:
        """An existing file, to be appended to or overwritten.

        Raises `ConflictError` if somebody else is writing it, `NotThisFormatError` if it is not a
        regular file.
        """
        with ExitStack() as scope:
            staged = self._staged.get(target)
            if staged is None:
                self._lock(target, scope)
            path = target if staged is None else staged.path
            with system_errors("cannot open for writing", target):
                newest = _opened(path, scope)

            def begin() -> tuple[Path, io.FileIO]:
                with system_errors("cannot write", target):
                    copy = self._stage(target, newest, scope)
                    _clone(newest.fileno(), copy.fileno())
                return self._staged[target].path, copy

            yield NextVersion(path, newest, begin if staged is None else None)

    @contextmanager
    def write(self, target: Path) -> Iterator[io.FileIO]:
        """A new or existing file, to be written from its beginning; unbuffered."""
        with ExitStack() as scope:
            with system_errors("cannot write", target):
                alone = not target.parent.is_dir()
                target.parent.mkdir(parents=True, exist_ok=True)
                self._lock(target, scope)
                old = _opened(target, scope) if os.path.lexists(target) else None
                file = self._stage(target, old, scope, alone=alone)
            yield file

    def _lock(self, target: Path, scope: ExitStack) -> None:
        # `changing_file` has locked its only file. Several are locked while they are prepared;
        # after that the journal keeps other writers out.
        if self._journal is not None:
            scope.enter_context(locked(target))

    def _stage(
        self, target: Path, old: io.FileIO | None, scope: ExitStack, *, alone: bool = False
    ) -> io.FileIO:
        status = None if old is None else os.fstat(old.fileno())
        path = target.parent / next_name(target.name)
        staged = _Staged(path, target, _version(status), alone)
        if self._journal is not None:
            self._journal.add(staged)
        for stale in next_versions(target) if self._left else ():
            remove_left(stale, target)
        self._staged[target] = staged
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        file = scope.enter_context(io.FileIO(os.open(path, flags, 0o666), "r+b"))
        if status is not None:
            _follow(status, file.fileno())
        return file

    def decide(self) -> None:
        """Make the new files durable and the change irrevocable; a single file is also renamed."""
        staged = list(self._staged.values())
        if not staged:
            return
        with system_errors("cannot write", staged[-1].target):
            if self._durable:
                _sync([one.path for one in staged])
            if not all(one.waits() for one in staged):
                raise ConflictError(
                    "another process has removed what was made ready",
                    where=shown_path(staged[-1].target.parent),
                    hint="run it again",
                )
            if len(staged) > 1:
                assert self._journal is not None, "several files need a journal"
                self._journal.decide(len(staged), durable=self._durable)
            else:
                _rename(staged, durable=self._durable)

    def finish(self) -> None:
        """Rename several files to their targets."""
        if self._journal is not None and len(self._staged) > 1:
            _rename(list(self._staged.values()), durable=self._durable)
            self._journal.needed = False

    def undo(self) -> None:
        """Remove the new files."""
        _remove(list(self._staged.values()))


@contextmanager
def changing_file(target: Path, *, durable: bool = True) -> Iterator[Change]:
    """Change one file, which is locked; it is replaced when the block ends without an error.

    Symbolic links in its path must be resolved already. If `durable`, new bytes are on disk before
    the rename, and the name is when the block ends. Raises `ConflictError` if somebody else is
    writing it.

    The target may be a key in a store: see `comal.storage.upload.StoreChange`.
    """
    place = stored(target)
    if place is not None:
        # Local files need none of its libraries.
        from comal.storage.upload import changing_objects  # noqa: PLC0415

        with changing_objects(place) as change:
            change.has(target)  # before anything is read
            yield change
        return
    with (
        locked(target) as left,
        _deciding(Change(None, durable=durable, left=left)) as change,
    ):
        yield change


@contextmanager
def changing_files(journal: Path, mend: str, *, durable: bool = True) -> Iterator[Change]:
    """Change several files, all or none; the change of a killed writer is settled first.

    `journal` is the path of the journal during the change, `mend` the command that finishes a
    change, for the error message. All else as for `changing_file`; in a store there is no journal.
    """
    place = stored(journal)
    if place is not None:
        from comal.storage.upload import changing_objects  # noqa: PLC0415 - as above

        with changing_objects(place) as change:
            yield change
        return
    with _held(journal) as book:
        book.settle()
        with _deciding(Change(book, durable=durable)) as change:
            yield change
        try:
            change.finish()
        except (ComalError, OSError) as error:
            raise StorageError(
                "the change is made, but not everything is in its place yet",
                where=shown_path(journal.parent),
                found=error,
                hint=f"run '{mend}' to finish it",
            ) from error


def settle(journal: Path) -> tuple[int, int]:
    """Finish or undo the change of a killed writer.

    Returns how many files were renamed to their targets, and how many hidden ones removed. Raises
    `ConflictError` if the writer is still running, or somebody else has changed a file since.
    """
    if not os.path.lexists(journal):
        return 0, 0
    with _held(journal) as book:
        return book.settle()


def state_of(journal: Path) -> State:
    """The state in a journal: no change, or one that is running, only begun, or decided."""
    try:
        descriptor = os.open(journal, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        if not modes.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        with suppress(OSError):  # file systems without locks
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return "running"
        with system_errors("cannot read", journal):
            staged, decided = _read(descriptor, journal)
    finally:
        os.close(descriptor)
    return "decided" if decided else "begun" if staged else ""


@dataclass(slots=True, eq=False)
class _Journal:
    """The files of a change, a line each, and a last line when it is decided."""

    path: Path
    _file: io.FileIO
    needed: bool = False
    """Whether the journal is needed to finish the change."""

    def add(self, staged: _Staged) -> None:
        """Note a file before it is created."""
        paths = (os.path.relpath(path, self.path.parent) for path in staged[:2])
        self._write([*paths, *staged[2:]])

    def decide(self, count: int, *, durable: bool) -> None:
        """Write the line that decides the change."""
        before = self._file.tell()
        try:
            self._write([_DECIDED, count])
            if durable:
                os.fsync(self._file.fileno())
                sync(self.path.parent)
        except BaseException:  # also on Ctrl-C: it is undone then, and must not look decided
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), before)
            raise
        self.needed = True

    def settle(self) -> tuple[int, int]:
        """Finish or undo the change; returns how many files were renamed, and how many removed."""
        with system_errors("cannot finish a change", self.path.parent):
            staged, decided = _read(self._file.fileno(), self.path)
            left = sum(os.path.lexists(one.path) for one in staged)
            self.needed = decided
            if decided:
                _rename(staged, durable=True)
            else:
                _remove(staged)
            self._file.seek(0)
            if os.fstat(self._file.fileno()).st_size:
                os.ftruncate(self._file.fileno(), 0)
            self.needed = False
        return (left, 0) if decided else (0, left)

    def _write(self, value: object) -> None:
        left = memoryview(json.dumps(value).encode() + b"\n")
        while left:
            left = left[self._file.write(left) :]


@contextmanager
def _held(path: Path) -> Iterator[_Journal]:
    """The journal, locked, and created if missing; removed afterwards unless it is needed."""
    with system_errors("cannot write", path.parent):
        descriptor, _ = acquire(path, path.parent)
    with io.FileIO(descriptor, "r+b") as file:
        journal = _Journal(path, file)
        try:
            yield journal
        finally:
            # Removed while locked: whoever opened it before sees that it is gone.
            with suppress(OSError):
                if not journal.needed:
                    path.unlink()


@contextmanager
def _deciding(change: Change) -> Iterator[Change]:
    try:
        yield change
        change.decide()
    except BaseException:  # also on Ctrl-C: nothing half done may stay
        change.undo()
        raise


def _read(descriptor: int, path: Path) -> tuple[list[_Staged], bool]:
    """The files that a journal names, and whether the change is decided.

    Reading stops at a line that is incomplete or not from this module. Hidden names have sixty-four
    random bits: a stranger's journal cannot name anything but its own files.
    """
    staged: list[_Staged] = []
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        for line in iter(partial(file.readline, _LINE), b""):
            one: Any = None
            with suppress(ValueError, TypeError):
                one = json.loads(line) if line.endswith(b"\n") else None
            if one == [_DECIDED, len(staged)]:
                return staged, True
            if not (isinstance(one, list) and len(one) == 4 and isinstance(one[0], str)):
                break
            hidden, target = (path.parent / str(text) for text in one[:2])
            if not _HIDDEN.fullmatch(hidden.name) or hidden.parent != target.parent:
                break
            staged.append(_Staged(hidden, target, one[2], bool(one[3])))
    return staged, False


def _rename(staged: Sequence[_Staged], *, durable: bool) -> None:
    for one in staged:
        if one.waits():
            one.path.replace(one.target)
    if durable:
        _sync(list(dict.fromkeys(one.target.parent for one in staged)))


def _remove(staged: Sequence[_Staged]) -> None:
    for one in reversed(staged):
        with suppress(OSError):
            one.path.unlink()
        if one.alone:
            with suppress(OSError):
                os.removedirs(one.path.parent)


def _sync(paths: Sequence[Path]) -> None:
    """Make files, or the names in folders, durable."""
    if len(paths) > _FEW:
        devices = {path.stat().st_dev: path for path in paths}
        for path in devices.values():
            flush_file_system(path if path.is_dir() else path.parent)
        return
    for path in paths:
        sync(path)


def _opened(path: Path, scope: ExitStack) -> io.FileIO:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = scope.enter_context(io.FileIO(os.open(path, flags), "r+b"))
    if not modes.S_ISREG(os.fstat(file.fileno()).st_mode):
        raise NotThisFormatError("not a regular file", where=shown_path(path))
    return file


def _version(status: os.stat_result | None) -> list[int] | None:
    return None if status is None else [status.st_size, status.st_mtime_ns]


def _version_at(path: Path) -> list[int] | None:
    try:
        return _version(path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None


def _follow(status: os.stat_result, descriptor: int) -> None:
    """Give a new file the owner and the mode of the one that it replaces."""
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.fchown(descriptor, status.st_uid, status.st_gid)
    os.fchmod(descriptor, modes.S_IMODE(status.st_mode))


def _clone(source: int, target: int) -> None:
    """Copy a file; both share their blocks if the file system can."""
    done, size = 0, os.fstat(source).st_size
    copy_range: Any = getattr(os, "copy_file_range", None)
    try:
        while copy_range is not None and done < size:
            count = copy_range(source, target, size - done, done, done)
            if not count:
                break
            done += count
    except OSError as error:
        if error.errno not in _NO_RANGES:
            raise
    while done < size:
        data = os.pread(source, MIB, done)
        if not data:
            raise OSError(errno.EIO, "the file ended while it was copied")
        done += os.pwrite(target, data, done)
