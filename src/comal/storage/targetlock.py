"""One writer per target: an advisory lock that the system takes back when its holder dies.

All that a writer has beside its target has a name made from the target's, such as
``.out.zip.comal-part``. Whoever gets the lock next thus knows that a file of this name was left by
a writer that was killed, tells of it, and removes it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from comal.errors import (
    AccessDeniedError,
    ComalError,
    ConflictError,
    StorageError,
    counted,
    shown,
)
from comal.storage.location import shown_path
from comal.storage.publish import REPLACED, discard, undo, write_durably

_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
# A file name may have 255 bytes; dots, digits and suffix need 28 of them.
_NAME_BYTES = 200

PART, OLD, WORK, SPOOL, BUILD, OWN, LOCK = "part", "old", "work", "spool", "build", "own", "lock"
STALE = (PART, OLD, WORK, SPOOL, BUILD, OWN)
"""What a killed writer may leave: the new target, the old one on its way out, files that are only
needed meanwhile, a build that can be gone on with, and last the note of `note_own`. An empty lock
file says nothing."""
CHANGE = ".meta.json.change"
"""The journal of a change of several files, in the folder of these (`comal.storage.replacing`)."""
NEXT = r"\.[0-9a-f]{16}\.next"
_MADE = re.compile(rf"\.(.+)(?:\.comal-(?:{'|'.join((*STALE, LOCK))})|{NEXT})", re.DOTALL)


Owns = Callable[[str], bool]
"""Whether a file is the archive's own, by its path below the folder with ``/`` between names."""
_SHOWN = 3
_COUNTED = 1000


class LeftoverWarning(UserWarning):
    """A writer that was killed had left something, which is removed now."""


class KeptWarning(UserWarning):
    """In a folder that is replaced there was somebody's file, which is kept under another name."""


def hidden(target: Path, what: str) -> Path:
    """Where a writer of `target` has one of `STALE`, or its lock."""
    return target.with_name(f".{_stem(target.name)}.comal-{what}")


def next_name(name: str) -> str:
    """A fresh name for the next version of `name`, which nobody can guess."""
    return f".{_stem(name)}.{secrets.token_hex(8)}.next"


def next_versions(target: Path) -> list[Path]:
    """Next versions of a target that are begun, or were left by a writer that was killed."""
    fits = re.compile(re.escape(f".{_stem(target.name)}") + NEXT).fullmatch
    with suppress(OSError), os.scandir(target.parent) as entries:
        return [target.with_name(entry.name) for entry in entries if fits(entry.name)]
    return []


def is_hidden(name: str) -> bool:
    """Whether a file name is one that only writers give, and only until they are done."""
    return name == CHANGE or _MADE.fullmatch(name) is not None


def owner_of(path: Path) -> Path:
    """The target that a hidden file is named after, which has the lock; unless it was shortened."""
    made = _MADE.fullmatch(path.name)
    return path if made is None else path.with_name(made[1])


def _stem(name: str) -> str:
    data = os.fsencode(name)
    if len(data) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(data).hexdigest()[:16]
    return os.fsdecode(data[: _NAME_BYTES - 17]) + "-" + digest


@contextmanager
def locked(target: Path, keep: Collection[str] = ()) -> Iterator[bool]:
    """Hold the lock of a target; what a killed writer of it has left is removed, with a warning.

    Parameters
    ----------
    target
        What is to be written.
    keep
        Which of `STALE` the caller goes on with.

    Yields
    ------
    bool
        Whether the lock was left by a writer that was killed.

    Raises
    ------
    ConflictError
        When somebody else holds it, in this process or another.
    """
    path = hidden(target, LOCK)
    with write_errors("cannot write", target):
        left = os.path.lexists(path)
        descriptor, held = _acquire(path, target)
    try:
        if held:
            _clear(target, keep)
        yield held and left
    finally:
        # Removed while it is held: who opened it before sees that it is no longer the file there.
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


@contextmanager
def write_errors(what: str, where: object) -> Iterator[None]:
    """Make an error of the system ours, and say what to do about a full disk."""
    try:
        yield
    except ComalError:
        raise
    except PermissionError as error:
        raise AccessDeniedError(what, where=shown_path(where), found=error.strerror) from error
    except OSError as error:
        hint = None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "make room on the disk, or write to another one"
        raise StorageError(
            what, where=shown_path(where), found=error.strerror or str(error), hint=hint
        ) from error


def acquire(path: Path, target: Path) -> int:
    """A descriptor of the lock file at `path`, made where there is none, that nobody else holds.

    Raises
    ------
    ConflictError
        Somebody else holds it.
    """
    return _acquire(path, target)[0]


def _acquire(path: Path, target: Path) -> tuple[int, bool]:
    """The descriptor, and whether its file system has locks at all."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            held = _try_lock(descriptor, target)
            if _is_at(descriptor, path):
                return descriptor, held
        except BaseException:  # also on Ctrl-C: the descriptor must not stay open
            os.close(descriptor)
            raise
        os.close(descriptor)


def _try_lock(descriptor: int, target: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConflictError(
            "somebody else is writing the target",
            where=shown_path(target),
            hint="wait until they are done, or choose another name",
        ) from error
    except OSError as error:
        # Some network file systems have no locks. The publishing step is safe without them.
        if error.errno not in _UNSUPPORTED:
            raise
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


# -- what was left ---------------------------------------------------------------------------------


def leftovers(target: Path) -> list[Path]:
    """What writers of a target have beside it now; of a target that nobody writes it is stale."""
    return [path for what in STALE if os.path.lexists(path := hidden(target, what))]


def is_free(target: Path) -> bool:
    """Whether nobody writes the target, as far as its lock tells."""
    try:
        descriptor = os.open(hidden(target, LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _clear(target: Path, keep: Collection[str]) -> None:
    kept = {hidden(target, what) for what in keep}
    for path in leftovers(target):
        if path not in kept:
            remove_left(path, target)
        else:  # a build that was killed when it was in place: what is there is the old folder
            _remove_noted(path, target)


def remove_left(path: Path, target: Path) -> None:
    """Remove what a killed writer of a target has left, and tell of it."""
    with write_errors("cannot remove what a killed writer has left", path):
        undone = undo(path)
        _remove_noted(path, target)
        discard(path)
    did = "took back what it had begun" if undone else "removed what it had left"
    warnings.warn(
        LeftoverWarning(f"{shown_path(target)}: a writer was killed; {did}: {path.name}"),
        stacklevel=6,
    )


# -- a folder on its way out -----------------------------------------------------------------------


def note_own(target: Path, folders: Mapping[Path, Owns]) -> dict[Path, Owns]:
    """Note which files below folders that get replaced are their archives' own.

    Whoever cleans up after a kill knows by it which folder is an old one, by its inode, and what
    of it may go. The note is to be removed with the old folders.

    Returns
    -------
    dict
        What the folders own as it is now, by name: to be asked when they stand elsewhere.
    """
    own = {
        folder: {name for name in _files(folder) if owns(name)} for folder, owns in folders.items()
    }
    noted = {folder.lstat().st_ino: [folder.name, sorted(own[folder])] for folder in folders}
    note = hidden(target, OWN)
    note.unlink(missing_ok=True)  # of a killed writer, where the file system has no locks
    write_durably(note, json.dumps(noted).encode())
    return {folder: names.__contains__ for folder, names in own.items()}


def _remove_noted(path: Path, target: Path) -> None:
    """Remove old folders, which are at `path` or in it; what is not noted is kept and named."""
    try:
        noted = json.loads(hidden(target, OWN).read_bytes())
    except (OSError, ValueError):
        return  # without a whole note nothing was replaced
    for folder in (path, *_folders(path), *_folders(path / REPLACED)):
        if not os.path.lexists(folder):
            continue
        name, names = noted.get(str(folder.lstat().st_ino), (None, ()))
        if name is not None:
            remove_own(folder, set(names).__contains__)
        if name is not None and os.path.lexists(folder):
            kept = set_aside(folder, target.with_name(name))
            left = named(kept, lambda _: False)
            text = f"{shown_path(kept)}: kept what is not of the archive that was replaced: {left}"
            warnings.warn(KeptWarning(text), stacklevel=7)


def set_aside(folder: Path, target: Path) -> Path:
    """Give what is left of an old folder a name that is not hidden, for hidden ones get lost."""
    names = (target.with_name(f"{target.name}.old{number or ''}") for number in range(1000))
    kept = next(name for name in names if not os.path.lexists(name))
    return folder.rename(kept)


def _folders(path: Path) -> list[Path]:
    with suppress(OSError), os.scandir(path) as entries:
        return [path / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def named(folder: Path, owns: Owns) -> str:
    """A few of the files below a folder that are not the archive's own, by their names."""
    found = list(islice(strangers(folder, owns), _COUNTED))
    names = ", ".join(shown(name, 200) for name in sorted(found)[:_SHOWN])
    more = len(found) - _SHOWN
    return f"{names} and {counted(more, 'other')}" if more > 0 else names


def strangers(folder: Path, owns: Owns) -> Iterator[str]:
    """Files and links below a folder that are not the archive's own."""
    return (name for name in _files(folder) if not owns(name))


def _files(folder: Path) -> Iterator[str]:
    """Files and links below a folder, but those with names that only writers give."""
    left = [""]
    while left:
        prefix = left.pop()
        with os.scandir(folder / prefix) as entries:
            for entry in entries:
                name = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    left.append(name + "/")
                elif not is_hidden(entry.name):
                    yield name


def remove_own(folder: Path, owns: Owns) -> None:
    """Remove the archive's own files, and the folders in which nothing else is left."""
    start = len(os.fspath(folder)) + 1
    for place, _, names in os.walk(folder, topdown=False):
        prefix = place[start:] + "/" if len(place) > start else ""
        for name in names:
            if owns(prefix + name) or is_hidden(name):
                with suppress(OSError):
                    os.unlink(f"{place}/{name}")  # noqa: PTH108 - strings, maybe a million
        with suppress(OSError):
            os.rmdir(place)  # noqa: PTH106 - as above
