"""The steps that make a finished file or folder appear under its name, each one atomic.

Linux can rename without replacing and can exchange two names; where the C library or the file
system cannot, the nearest portable step is taken. Several names are given one after the other; a
journal beside them tells until the last one how to take them back.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

JOURNAL = "comal-journal.json"
"""In a folder of new files: which of them take whose place, while they get their names."""
REPLACED = ".old"
"""In the same folder: what was replaced, where names cannot be exchanged."""
_AT_FDCWD = -100
_NOREPLACE = 1
_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY, errno.EPERM)


def rename_new(old: Path, new: Path) -> None:
    """Rename a file or folder; `FileExistsError` when the new name is taken."""
    if _renameat2(old, new, _NOREPLACE):
        return
    if old.is_dir():
        # A folder can only take the place of an empty one, in which nothing is lost.
        _rename_folder(old, new)
    else:
        os.link(old, new, follow_symlinks=False)
        old.unlink()


def exchange(new: Path, old: Path, aside: Path) -> Path:
    """Put `new` in the place of `old`.

    Parameters
    ----------
    new, old
        Two files or two folders.
    aside
        Where the old one may be put for a moment.

    Returns
    -------
    pathlib.Path
        Where the old one is now.
    """
    if _renameat2(new, old, _EXCHANGE):
        return new
    old.rename(aside)
    try:
        _rename_folder(new, old)
    except OSError:
        aside.rename(old)
        raise
    return aside


def publish_set(part: Path, names: Sequence[str], gone: Sequence[str]) -> None:
    """Give all files and folders in `part` their names beside it, and take the names of others.

    Any failure takes back what was done. After a kill `undo` does that; what was replaced lies in
    `part` until then.

    Parameters
    ----------
    part
        The folder in which they are, complete and on the disk.
    names
        Theirs, in the order in which they appear.
    gone
        Names beside `part` of what goes in the end.
    """
    home = part.parent
    new = {name: (part / name).lstat().st_ino for name in names}
    had = [name for name in names if os.path.lexists(home / name)]
    journal: dict[str, Any] = {"new": new, "had": had, "gone": list(gone)}
    (part / REPLACED).mkdir()
    write_durably(part / JOURNAL, json.dumps(journal).encode())
    try:
        for name in names:
            if name in had:
                exchange(part / name, home / name, part / REPLACED / name)
            else:
                rename_new(part / name, home / name)
        for name in gone:
            (home / name).rename(part / REPLACED / name)
        sync_folder(home)
        (part / JOURNAL).unlink()
        sync_folder(part)
    except BaseException:  # also on Ctrl-C: nothing half done may stay
        _take_back(part, journal)
        raise


def undo(part: Path) -> bool:
    """Take back what `publish_set` was killed in; whether there was anything."""
    try:
        journal = json.loads((part / JOURNAL).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False  # a journal that is no JSON was not complete when the kill came
    _take_back(part, journal)
    return True


def set_names(part: Path) -> list[str]:
    """The names that an unfinished `publish_set` is about; none where there is none."""
    try:
        journal = json.loads((part / JOURNAL).read_bytes())
    except (OSError, ValueError):
        return []
    return [*journal["new"], *journal["gone"]]


def replaced(part: Path, name: str) -> Path | None:
    """Where `publish_set` has put what had this name."""
    return next((at for at in (part / name, part / REPLACED / name) if os.path.lexists(at)), None)


def _take_back(part: Path, journal: dict[str, Any]) -> None:
    home = part.parent
    for name in (*journal["gone"], *journal["had"]):
        # Also where two steps took the place of an exchange, and the second did not come.
        old = part / REPLACED / name
        if os.path.lexists(old) and not os.path.lexists(home / name):
            old.rename(home / name)
    for name, inode in reversed(journal["new"].items()):
        target, staged, old = home / name, part / name, part / REPLACED / name
        if not os.path.lexists(target) or target.lstat().st_ino != inode:
            continue
        if name not in journal["had"]:
            target.rename(staged)
        elif os.path.lexists(old):
            target.rename(staged)
            old.rename(target)
        elif os.path.lexists(staged):
            exchange(staged, target, old)
    sync_folder(home)
    (part / JOURNAL).unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Remove a hidden file or folder of a writer."""
    if path.is_dir() and not path.is_symlink():
        for _ in range(2):  # what hinders once may be gone then
            shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            path.unlink()


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file, which is on the disk with its name afterwards."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems know no fsync of folders.
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
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
    """Whether the system could do it; its other errors are raised."""
    function = getattr(_library(), "renameat2", None)
    if function is None:
        return False
    names = os.fsencode(old), os.fsencode(new)
    if function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(flags)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(old), None, str(new))


@cache
def _library() -> Any:
    with suppress(OSError):
        return ctypes.CDLL(None, use_errno=True)
    return None  # pragma: no cover - a system without a C library of its own
