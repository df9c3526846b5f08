"""One writer per target: its lock, its hidden names, and the atomic steps that publish it.

Everything that a writer puts beside its target has a name derived from the target's, such as
``.out.zip.comal-part``. So the next holder of the lock knows that a file of this name was left by a
killed writer, warns, and removes it. The lock is advisory; the system releases it when its holder
dies.

Linux can rename without replacing and can exchange two names; if the C library or the file system
cannot, the nearest portable step is taken. Several names are given one after the other: a journal
lists them, by which the next writer undoes an interrupted set.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from comal.errors import (
    ConflictError,
    counted,
    of_system,
    shown,
    shown_path,
    system_errors,
)
from comal.parallel import PerProcess

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_NO_STEP = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY, errno.EPERM)
_AT_FDCWD = -100
_NOREPLACE = 1
_EXCHANGE = 2
# A file name may have 255 bytes; dots, digits and suffix need 28 of them.
_NAME_BYTES = 200

PART, BUILD, LOCK = "part", "build", "lock"
STALE = (PART, BUILD, "work", "spool")
"""What a killed writer may leave: a folder with new and temporary files, and a build that can be
resumed; the last two are of older versions. An empty lock file does not count."""
CHANGE = ".meta.json.change"
"""The journal of a change of several files, in the folder of these (`comal.storage.replacing`)."""
JOURNAL = "comal-journal.json"
"""In a folder of new files, while they are published: their names, and those to remove."""
DONE = "comal-done.json"
"""The same journal when all are published: folders beside it are old ones, to be removed."""
NEXT = r"\.[0-9a-f]{16}\.next"
_MADE = re.compile(rf"\.(.+)(?:\.comal-(?:{'|'.join((*STALE, LOCK))})|{NEXT})", re.DOTALL)

Owns = Callable[[str], bool]
"""Whether a file is the archive's own, by its path below the folder with ``/`` between names."""
_SHOWN = 3
_COUNTED = 1000


class LeftoverWarning(UserWarning):
    """The leftovers of a killed writer were removed."""


class KeptWarning(UserWarning):
    """A killed writer left an old folder, into which others may have written; it is kept."""


def hidden(target: Path, what: str) -> Path:
    """The path of one of `STALE`, or of the lock, for writers of `target`."""
    return target.with_name(f".{_stem(target.name)}.comal-{what}")


def next_name(name: str) -> str:
    """A fresh name for the next version of `name`, which nobody can guess."""
    return f".{_stem(name)}.{secrets.token_hex(8)}.next"


def next_versions(target: Path) -> list[Path]:
    """Next versions of a target that are being written, or were left by a killed writer."""
    fits = re.compile(re.escape(f".{_stem(target.name)}") + NEXT).fullmatch
    with suppress(OSError), os.scandir(target.parent) as entries:
        return [target.with_name(entry.name) for entry in entries if fits(entry.name)]
    return []


def is_hidden(name: str) -> bool:
    """Whether a file name is a temporary name of writers."""
    return name == CHANGE or _MADE.fullmatch(name) is not None


def owner_of(path: Path) -> Path:
    """The target that a hidden file is named after, unless the name was shortened."""
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
    """Hold the lock of a target; yields whether a killed writer had left it.

    Leftovers of such a writer are removed with a warning, except those of `STALE` in `keep`. Raises
    `ConflictError` if somebody else holds the lock, in this process or another.
    """
    path, pid = hidden(target, LOCK), os.getpid()
    try:
        left = os.path.lexists(path)
        descriptor, held = acquire(path, target)
    except ConflictError:
        raise
    except OSError as error:
        raise of_system(error, "cannot write", shown_path(target), writing=True) from error
    try:
        if held:
            _clear(target, keep)
        yield held and left
    finally:
        # Removed while locked: whoever opened it before sees that it is no longer at this path.
        with suppress(OSError):
            if os.getpid() == pid:  # not by a forked process that ends
                path.unlink()
        os.close(descriptor)


@contextmanager
def scratch(within: Path) -> Iterator[Path]:
    """A folder for temporary files, which is removed with the block.

    It has the names and the lock of a writer, so `comal clean` of `within` removes what a killed
    process has left.
    """
    owner, pid = within / f"comal-{secrets.token_hex(8)}", os.getpid()
    with locked(owner):
        folder = hidden(owner, PART)
        with system_errors("cannot make a temporary folder", within):
            folder.mkdir(0o700)
        try:
            yield folder
        finally:
            if os.getpid() == pid:
                shutil.rmtree(folder, ignore_errors=True)


_scratches: PerProcess[str, Path] = PerProcess()


def process_scratch(within: Path) -> Path:
    """The folder for temporary files in another one that this process keeps until its end."""

    def begun() -> Path:
        from multiprocessing import util  # noqa: PLC0415 - few need it

        scope = ExitStack()
        folder = scope.enter_context(scratch(within))
        # Also at the end of a child of `multiprocessing`, and not at that of a fork.
        util.Finalize(None, scope.close, exitpriority=0)
        return folder

    return _scratches.get(os.fspath(within), begun)


def acquire(path: Path, target: Path) -> tuple[int, bool]:
    """A descriptor of the lock file at `path`, and whether its file system has locks at all.

    Raises `ConflictError` if somebody else holds it.
    """
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
            "another writer is at work on the target",
            where=shown_path(target),
            hint="wait until it has finished, or choose another name",
        ) from error
    except OSError as error:
        # Some network file systems have no locks. The publishing step is safe without them.
        if error.errno not in _NO_LOCKS:
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


# -- leftovers -------------------------------------------------------------------------------------


def leftovers(target: Path) -> list[Path]:
    """Hidden files of a target's writers; they are stale if nobody is writing it."""
    return [path for what in STALE if os.path.lexists(path := hidden(target, what))]


def is_free(target: Path) -> bool:
    """Whether nobody is writing the target, judged by its lock."""
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
    for path in leftovers(target):
        begun = any((path / name).exists() for name in (JOURNAL, DONE))
        if begun or path not in {hidden(target, what) for what in keep}:
            remove_left(path, target)


def remove_left(path: Path, target: Path) -> None:
    """Remove the leftovers of a killed writer of a target, with a warning."""
    with system_errors("cannot remove what a killed writer left behind", path):
        undone = take_back(path)
        for folder, owner in _old_folders(path):
            kept = set_aside(folder, owner).name
            text = f"{shown_path(owner)}: a writer was killed after it had replaced the folder"
            warnings.warn(KeptWarning(f"{text}; the old one is kept as {kept}"), stacklevel=6)
        discard(path)
    did = "what it had begun is undone" if undone else "what it left behind is removed"
    warnings.warn(
        LeftoverWarning(f"{shown_path(target)}: a writer was killed; {did}: {path.name}"),
        stacklevel=6,
    )


def _old_folders(path: Path) -> list[tuple[Path, Path]]:
    """Replaced folders among the leftovers of a killed writer, each with its former path.

    They are kept: it is no longer known which of their files are not of the archive.
    """
    if not (path / DONE).exists():
        return []
    found = [(one, path.with_name(one.name.removesuffix(".old"))) for one in path.iterdir()]
    return [one for one in found if one[0].is_dir() and not one[0].is_symlink()]


# -- an old folder ---------------------------------------------------------------------------------


def set_aside(folder: Path, target: Path) -> Path:
    """Rename what is left of an old folder to a visible name, so that nobody overlooks it."""
    names = (target.with_name(f"{target.name}.old{number or ''}") for number in range(1000))
    kept = next(name for name in names if not os.path.lexists(name))
    return folder.rename(kept)


def named(folder: Path, owns: Owns) -> str:
    """A few of the files below a folder that are not the archive's own, by their names."""
    found = list(islice(strangers(folder, owns), _COUNTED))
    names = ", ".join(shown(name, 200) for name in sorted(found)[:_SHOWN])
    more = len(found) - _SHOWN
    return f"{names} and {counted(more, 'other')}" if more > 0 else names


def strangers(folder: Path, owns: Owns) -> Iterator[str]:
    """Files and links below a folder that are not the archive's own."""
    return (name for name in _files(folder) if not owns(name))


def own_files(folder: Path, owns: Owns) -> Owns:
    """The current own files of a folder, as a test by name for when it has been moved."""
    return {name for name in _files(folder) if owns(name)}.__contains__


def _files(folder: Path) -> Iterator[str]:
    """Files and links below a folder, except those with temporary names of writers."""
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


# -- steps -----------------------------------------------------------------------------------------


def rename_new(old: Path, new: Path) -> None:
    """Rename a file or folder; `FileExistsError` when the new name is taken."""
    if _renameat2(old, new, _NOREPLACE):
        return
    if old.is_dir():
        # A folder can only replace an empty one, so nothing is lost.
        _rename_folder(old, new)
    else:
        os.link(old, new, follow_symlinks=False)
        old.unlink()


def exchange(new: Path, old: Path, aside: Path) -> None:
    """Exchange two files or two folders; if the system cannot, `old` is missing for a moment."""
    if _renameat2(new, old, _EXCHANGE):
        return
    old.rename(aside)
    try:
        _rename_folder(new, old)
        try:
            aside.rename(new)
        except OSError:
            old.rename(new)
            raise
    except OSError:
        aside.rename(old)
        raise


def publish_set(part: Path, names: Sequence[str], gone: Sequence[str]) -> None:
    """Move all of `names` out of `part` to beside it, and move `gone` into `part`.

    The files and folders are complete and on disk, and appear in the order of `names`; `gone` are
    moved last. Replaced ones are in `part` afterwards. Any failure undoes the moves; after a kill
    `take_back` does.
    """
    home = part.parent
    journal = {"new": {name: _inode(part / name) for name in names}, "gone": list(gone)}
    try:
        write_durably(part / JOURNAL, json.dumps(journal).encode())
    except BaseException:  # also on Ctrl-C: nothing has its name yet, and nothing is to be undone
        (part / JOURNAL).unlink(missing_ok=True)
        raise
    try:
        for name in names:
            if os.path.lexists(home / name):
                exchange(part / name, home / name, part / f"{name}.old")
            else:
                rename_new(part / name, home / name)
        for name in gone:
            (home / name).rename(part / name)
        sync(home)
        (part / JOURNAL).rename(part / DONE)
        sync(part)
    except BaseException:  # also on Ctrl-C: nothing half done may stay
        take_back(part)
        raise


def take_back(part: Path) -> bool:
    """Undo an interrupted `publish_set`; returns whether there was one."""
    new, gone = _journal(part)
    home = part.parent
    for name in gone:
        if os.path.lexists(part / name) and not os.path.lexists(home / name):
            (part / name).rename(home / name)
    for name, inode in reversed(new.items()):
        here, there, aside = part / name, home / name, part / f"{name}.old"
        if _inode(there) == _inode(here) == inode:
            there.unlink()  # `rename_new` had linked it and was killed
        elif _inode(there) == inode and not os.path.lexists(here):
            there.rename(here)
        # Where an exchange takes three steps, it may have ended after one or two of them.
        if os.path.lexists(aside) and not os.path.lexists(there):
            aside.rename(there)
        if _inode(there) == inode:
            exchange(here, there, aside)
    if new:
        sync(home)
        (part / JOURNAL).unlink(missing_ok=True)
    return bool(new)


def set_names(part: Path) -> list[str]:
    """The names in an unfinished `publish_set`; empty if there is none."""
    new, gone = _journal(part)
    return [*new, *gone]


def _journal(part: Path) -> tuple[dict[str, int], list[str]]:
    """New names with their inodes, and names to remove; empty without a complete journal."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        journal = json.loads((part / JOURNAL).read_bytes())
        new, gone = dict(journal["new"]), list(journal["gone"])
        if not any(os.sep in name for name in (*new, *gone)):
            return new, gone
    return {}, []


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def discard(path: Path) -> None:
    """Remove a hidden file or folder of a writer."""
    with suppress(OSError):
        path.rmdir()  # if all of it is published
        return
    if path.is_dir() and not path.is_symlink():
        for _ in range(2):  # a second try, as an obstacle may be gone by then
            shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            path.unlink()


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file, and sync it and its folder."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)


def sync(path: Path) -> None:
    """Make the bytes of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems know no fsync of folders.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP) or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def flush_file_system(folder: Path) -> None:
    """Make all that was written below a folder durable, by one call for its file system."""
    syncfs = getattr(_library(), "syncfs", None)
    if syncfs is None:  # pragma: no cover - C libraries without it
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(descriptor)


def _rename_folder(old: Path, new: Path) -> None:
    try:
        old.rename(new)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new)) from error
        raise


def _renameat2(old: Path, new: Path, flags: int) -> bool:
    """Rename by the system call; False if it is not supported, its other errors are raised."""
    function = getattr(_library(), "renameat2", None)
    if function is None:
        return False
    names = os.fsencode(old), os.fsencode(new)
    if function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(flags)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_STEP:
        return False
    raise OSError(code, os.strerror(code), str(old), None, str(new))


@cache
def _library() -> Any:
    with suppress(OSError):
        return ctypes.CDLL(None, use_errno=True)
    return None  # pragma: no cover - a system without a C library of its own
