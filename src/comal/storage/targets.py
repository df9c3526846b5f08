"""Writing a file, a folder or several files so that no name shows anything but a finished one.

The work is done under a hidden name in the same folder, made durable and published by one step
that does not replace what is there, or that replaces it as a whole when that was asked for and it
is an archive of the kind that is written (`comal.storage.kinds`). Any failure, Ctrl-C and SIGTERM
leave the target as it was and nothing beside it. What SIGKILL leaves has a name made from the
target's, and the next writer of the target removes it (`comal.storage.targetlock`).
"""

from __future__ import annotations

import atexit
import io
import os
import secrets
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from comal.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
)
from comal.limits import MIB
from comal.storage import location
from comal.storage.kinds import NOTHING, Kind, check_target, existing
from comal.storage.location import parse_href, shown_path
from comal.storage.replacing import settle, state_of
from comal.storage.targetlock import (
    ASIDE,
    CHANGE,
    JOURNAL,
    LOCK,
    OLD,
    PART,
    SPOOL,
    WORK,
    LeftoverWarning,
    Owns,
    discard,
    exchange,
    flush_file_system,
    hidden,
    is_free,
    is_hidden,
    leftovers,
    locked,
    next_versions,
    own_files,
    owner_of,
    publish_set,
    remove_left,
    remove_own,
    rename_new,
    set_aside,
    set_names,
    strangers,
    sync_file,
    sync_folder,
    write_error,
    write_errors,
)

__all__ = [
    "TargetFile",
    "TargetSet",
    "clean",
    "existing",
    "left_beside",
    "local_path",
    "new_file",
    "new_folder",
    "new_set",
    "publish_folder",
    "target_of",
]

_BUFFER = MIB


class TargetFile(io.BufferedRandom):
    """A file that gets its name when its block ends without an error; see `new_file`."""

    def __init__(self, raw: io.RawIOBase, path: Path, target: Path, scope: ExitStack) -> None:
        super().__init__(raw, _BUFFER)
        self.path = path
        """Where the bytes are until then."""
        self.target = target
        """The name that the file will have."""
        self._scope = scope

    def folder(self) -> Path:
        """A new folder for files that are only needed meanwhile; gone when the block ends."""
        work = hidden(self.target, WORK)
        self._scope.callback(_discard_quietly, work)
        with write_errors("cannot make a temporary folder", self.target):
            work.mkdir()
        return work

    def spool(self) -> BinaryIO:
        """A nameless temporary file on the same disk, closed and gone when the block ends."""
        self._scope.callback(_discard_quietly, hidden(self.target, SPOOL))
        with write_errors("cannot make a temporary file", self.path.parent):
            raw = _nameless(self.target)
        spooled = io.BufferedRandom(raw, _BUFFER)
        self._scope.callback(_close_quietly, spooled)
        return cast("BinaryIO", spooled)


_work: dict[tuple[int, Path], Path] = {}


def process_folder(place: Path) -> Path:
    """A hidden folder for files that are needed no longer than this process lives.

    It is locked and goes when the process ends. Those that killed processes have left in the same
    place are removed now, as by `clean`.
    """
    pid, place = os.getpid(), place.absolute()
    folder = _work.get((pid, place))
    if folder is not None and folder.is_dir():
        return folder
    with suppress(FileNotFoundError):
        _clean_work(place)
    owner = place / f"comal-{pid}-{secrets.token_hex(4)}"
    folder = hidden(owner, WORK)
    with ExitStack() as scope:
        scope.enter_context(locked(owner))
        with write_errors("cannot make a temporary folder", place):
            folder.mkdir(0o700)
        scope.callback(_discard_quietly, folder)
        atexit.register(_end, pid, scope.pop_all())
    _work[pid, place] = folder
    return folder


def _clean_work(place: Path) -> None:
    """Remove what `process_folder` made in a place for processes that were killed."""
    for left in place.glob(f".comal-*-*.comal-{WORK}"):
        owner = owner_of(left)
        if is_free(owner):
            # Of another user, or another process removes it just now.
            with suppress(AccessDeniedError, ConflictError, StorageError), locked(owner):
                pass


def _end(pid: int, scope: ExitStack) -> None:
    if pid == os.getpid():  # and not in a fork of it
        scope.close()


@contextmanager
def new_file(
    path: str | os.PathLike[str],
    overwrite: bool = False,  # noqa: FBT001, FBT002
    kind: Kind = NOTHING,
    sources: Any = (),
) -> Iterator[TargetFile]:
    """Write a local file that appears complete or not at all; buffered, readable and seekable too.

    With `overwrite` an existing file of this `kind` is replaced, at the end and as a whole. None of
    `sources` is: a path or URL, what has one as its `href`, or a list of such.

    Raises
    ------
    ConflictError
        When the target exists and may not be replaced, or somebody else is writing it.
    AccessDeniedError
        When the target is read-only.
    InvalidInputError
        When the target is no local path.
    ObjectNotFoundError
        When the target's folder does not exist.
    StorageError
        When the disk is full or fails, from the write that meets it.
    """
    target = target_of(path)
    with ExitStack() as scope:
        scope.enter_context(locked(target))

        def check() -> None:
            check_target(target, kind, folder=False, overwrite=overwrite, sources=sources)

        check()
        part = hidden(target, PART)
        file = _opened(part, target, scope)
        yield file
        with write_errors("cannot write", target):
            _finish(file)
            check()  # it may have come meanwhile
            _publish_file(part, target)


def _opened(part: Path, target: Path, scope: ExitStack, *, keep: bool = False) -> TargetFile:
    with _creating(part, target):
        raw = _WatchedFile(_create(part), target)
    if not keep:
        scope.callback(_discard_quietly, part)
    file = TargetFile(raw, part, target, scope)
    scope.callback(_close_quietly, file)
    return file


@contextmanager
def _creating(part: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        # The lock is ours, so that this is a file system without locks.
        raise ConflictError(
            "somebody else is writing the target, or was killed while writing it",
            where=shown_path(target),
            found=shown_path(part),
            hint="if nobody is, remove what was found",
        ) from error
    except OSError as error:
        raise write_error("cannot create", target, error) from error


@contextmanager
def new_folder(
    path: str | os.PathLike[str],
    overwrite: bool = False,  # noqa: FBT001, FBT002
    kind: Kind = NOTHING,
    sources: Any = (),
) -> Iterator[Path]:
    """Write a folder that appears complete or not at all: an empty hidden one, to be filled.

    With `overwrite` an existing folder is replaced at the end. It must be an archive of this
    `kind`, or empty, and hold no file that is not the archive's. All else, and errors, as for
    `new_file`.
    """
    target = target_of(path)
    with ExitStack() as scope:
        scope.enter_context(locked(target))
        owns = check_target(target, kind, folder=True, overwrite=overwrite, sources=sources)
        part = hidden(target, PART)
        with _creating(part, target):
            part.mkdir()
        scope.callback(_discard_quietly, part)
        yield part
        with write_errors("cannot write", target):
            flush_file_system(part)
            publish_folder(part, target, owns, overwrite=overwrite)


def publish_folder(part: Path, target: Path, owns: Owns, *, overwrite: bool) -> None:
    """Give a finished folder its name; of an old one only what it `owns` is removed.

    A `StorageError` tells where the new folder is in place, and of the old one something is left.
    """
    if not (overwrite and os.path.lexists(target)):
        _publish_new(part, target)
        return
    owns = own_files(target, owns)
    # Its name tells whoever comes after a kill that this may be the old folder.
    old = part.rename(hidden(target, OLD))
    try:
        exchange(old, target, hidden(target, ASIDE))
    except BaseException:  # also on Ctrl-C: a new folder must not pass for an old one
        old.rename(part)
        raise
    try:
        sync_folder(target.parent)
    finally:
        _remove_old(old, target, owns)


def _remove_old(old: Path, target: Path, owns: Owns) -> None:
    """Remove an old folder's own files; what came into it meanwhile is kept and named."""
    for _ in range(2):  # what hinders once may be gone then
        remove_own(old, owns)
        if not os.path.lexists(old):
            return
    has_strangers = next(strangers(old, owns), None) is not None
    kept = set_aside(old, target) if has_strangers else old
    raise StorageError(
        "the new folder is in place, but not all files of the old one could be removed",
        where=shown_path(target),
        found=shown_path(kept),
        hint="look through what is left there, and remove it",
    )


@dataclass(frozen=True, slots=True)
class _Member:
    kind: Kind
    folder: bool
    owns: Owns


class TargetSet:
    """Files and folders that get their names together; see `new_set`."""

    def __init__(self, folder: Path, target: Path, *, overwrite: bool, sources: Any) -> None:
        self.folder = folder
        """Where they are until then, under the names that they will have."""
        self.target = target
        self._overwrite, self._sources = overwrite, sources
        self._members: dict[str, _Member] = {}
        self._gone: dict[str, Kind] = {}

    def add(self, name: str, kind: Kind, *, folder: bool = False) -> Path:
        """Announce a file or folder; where it is to be written. Errors as for `new_file`."""
        self._members[name] = _Member(kind, folder, self.check(name, kind, folder=folder))
        return self.folder / name

    def file(self, name: str, kind: Kind) -> AbstractContextManager[TargetFile]:
        """As `add`, and opened for writing; on the disk when the block ends without an error."""
        return self._file(self.add(name, kind))

    @contextmanager
    def _file(self, part: Path) -> Iterator[TargetFile]:
        with ExitStack() as scope:
            file = _opened(part, self.folder.parent / part.name, scope, keep=True)
            yield file
            with write_errors("cannot write", file.target):
                _finish(file)

    def rename(self, file: TargetFile, name: str) -> None:
        """Give a file that is written another name than it was announced with."""
        members = list(self._members.items())
        at = next(n for n, (old, _) in enumerate(members) if old == file.target.name)
        kind = members[at][1].kind
        members[at] = (name, _Member(kind, False, self.check(name, kind)))
        self._members = dict(members)
        with write_errors("cannot write", self.target):
            file.path = file.path.rename(self.folder / name)
        file.target = file.target.with_name(name)

    def remove(self, name: str, kind: Kind) -> None:
        """Let a file of the old set go with it, unless it gets replaced."""
        self.check(name, kind)
        self._gone[name] = kind

    def publish(self) -> list[Path]:
        """Give all of them their names, in the order in which they were announced.

        A `StorageError` tells when that failed, and so did taking it back.
        """
        home, names = self.folder.parent, list(self._members)
        gone = [name for name in self._gone if name not in self._members]
        for name, member in self._members.items():
            self.check(name, member.kind, folder=member.folder)
        with write_errors("cannot write", self.target):
            old = {
                name: own_files(home / name, member.owns)
                for name, member in self._members.items()
                if member.folder and os.path.lexists(home / name)
            }
            try:
                self._publish(names, gone)
            except BaseException as error:
                if (self.folder / JOURNAL).exists():
                    raise self._half(error) from error
                raise
            for name, owns in old.items():
                _remove_old(self.folder / name, home / name, owns)
        return [home / name for name in names]

    def _publish(self, names: list[str], gone: list[str]) -> None:
        if len(names) > 1 or gone or self._members[names[0]].folder:
            flush_file_system(self.folder)
            publish_set(self.folder, names, gone)
            return
        _publish_file(self.folder / names[0], self.folder.parent / names[0])

    def _half(self, error: BaseException) -> StorageError:
        return StorageError(
            "the set is half in place, and could not be taken back",
            where=shown_path(self.target),
            found=str(error),
            hint=f"run 'comal clean {shown_path(self.target)}', or write it once more",
        )

    def check(self, name: str, kind: Kind, *, folder: bool = False) -> Owns:
        """Refuse what stands at a name, if it may not be replaced; see `check_target`."""
        return check_target(
            self.folder.parent / name,
            kind,
            folder=folder,
            overwrite=self._overwrite,
            sources=self._sources,
        )


@contextmanager
def new_set(
    path: str | os.PathLike[str],
    overwrite: bool = False,  # noqa: FBT001, FBT002
    sources: Any = (),
) -> Iterator[TargetSet]:
    """Write several files and folders side by side that appear together or not at all.

    They are named after a path, whose lock is that of the set, and appear by `TargetSet.publish`;
    without that, all is thrown away. `overwrite` and `sources` as for `new_file`.
    """
    target = target_of(path)
    with locked(target), ExitStack() as scope:
        part = hidden(target, PART)
        with _creating(part, target):
            part.mkdir()
        scope.callback(_discard_set, part)
        yield TargetSet(part, target, overwrite=overwrite, sources=sources)


def _discard_set(part: Path) -> None:
    if not (part / JOURNAL).exists():  # what could not be taken back is left for `clean`
        _discard_quietly(part)


def left_beside(path: str | os.PathLike[str]) -> list[Path]:
    """What killed writers have left of a local target: beside it, in it, or of a set it is in."""
    target = Path(path).absolute()
    if not is_free(target) or any(state_of(at) == "running" for at in _journals(target)):
        return []
    return _left(target)


def _journals(target: Path) -> list[Path]:
    """Where journals of changes of the target are: in it, or in a folder that holds it."""
    return [place / CHANGE for place in (target, *target.parents)]


def _left(target: Path) -> list[Path]:
    found = [*leftovers(target), *next_versions(target)]
    found += [journal for journal in _journals(target)[1:] if state_of(journal)]
    with suppress(OSError):
        parts = (one for one in target.parent.iterdir() if is_hidden(one.name))
        found += [one for one in parts if one not in found and target.name in set_names(one)]
    for place, folders, names in os.walk(target):
        hits = [name for name in (*folders, *names) if is_hidden(name)]
        paths = [Path(place) / name for name in hits if not name.endswith(LOCK)]
        found += [path for path in paths if is_free(owner_of(path))]
        folders[:] = [name for name in folders if name not in hits]
    return found


def clean(path: str | os.PathLike[str]) -> list[Path]:
    """Take back and remove what killed writers have left; the hidden paths that are gone.

    A change of several files that was decided is finished instead. A `ConflictError` tells that
    somebody is writing the target.
    """
    target = target_of(path)
    found = _left(target)
    for journal in found:
        if journal.name == CHANGE:
            settle(journal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftoverWarning)
        for left in found:
            own = left.parent == target.parent and not set_names(left)
            owner = target if own else owner_of(left)
            if os.path.lexists(left):
                with locked(owner):
                    remove_left(left, owner)
    return found


def local_path(path: str | os.PathLike[str]) -> Path:
    """The path of a target as the caller wrote it; `InvalidInputError` where it is not local."""
    hint = "write it here and copy it to the store when it is complete"
    return location.local_path(path, "the target", hint)


def target_of(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a target, which has a name, and whose folder exists."""
    target = Path(parse_href(local_path(path)).path)
    if not target.name:
        raise InvalidInputError("the target must have a name", where=shown_path(target))
    if not target.parent.is_dir():
        raise ObjectNotFoundError(
            "the folder of the target does not exist",
            where=shown_path(target.parent),
            hint="make it first, or write to one that is there",
        )
    return target


def _publish_file(part: Path, target: Path) -> None:
    """Give a finished file its name, which nothing has or what may be replaced."""
    if os.path.lexists(target):
        part.replace(target)
        sync_folder(target.parent)
    else:
        _publish_new(part, target)


def _publish_new(part: Path, target: Path) -> None:
    """Give `part` a name that nothing has."""
    try:
        rename_new(part, target)
    except FileExistsError as error:
        raise existing(target) from error
    try:
        sync_folder(target.parent)
    except OSError:
        # The caller is told that it failed, so that the name must not stay.
        target.rename(part)
        raise


class _WatchedFile(io.FileIO):
    """A raw file whose errors are ours, so that a full disk is told apart from other trouble."""

    def __init__(self, descriptor: int, target: Path) -> None:
        super().__init__(descriptor, "r+b")
        self._target = target

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise write_error("cannot write", self._target, error) from error

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            raise write_error("cannot write", self._target, error) from error


def _finish(file: TargetFile) -> None:
    """Make the bytes durable, also of a file that its user has closed."""
    if not file.closed:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        return
    sync_file(file.path)


def _create(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o666)


def _nameless(target: Path) -> _WatchedFile:
    # A file without a name where the system has such; else one that is unlinked at once.
    with suppress(OSError, AttributeError):
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        return _WatchedFile(os.open(target.parent, flags, 0o600), target)
    path = hidden(target, SPOOL)
    with suppress(FileNotFoundError):
        path.unlink()  # of a writer that was killed: the lock is ours
    raw = _WatchedFile(_create(path), target)
    _discard_quietly(path)
    return raw


def _close_quietly(file: io.IOBase) -> None:
    # What cannot be written any more is thrown away anyway.
    with suppress(OSError, ValueError):
        file.close()


def _discard_quietly(path: Path) -> None:
    with suppress(OSError):
        discard(path)
