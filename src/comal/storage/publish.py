"""The steps that make a finished file or folder appear under its name, each one atomic.

Linux can rename without replacing and can exchange two names; where the C library or the file
system cannot, the nearest portable step is taken.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from comal.storage.targetlock import hidden_name

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


def exchange(new: Path, old: Path) -> Path:
    """Put the folder `new` in the place of the folder `old`.

    Returns
    -------
    pathlib.Path
        Where the old folder is now.
    """
    if _renameat2(new, old, _EXCHANGE):
        return new
    aside = old.parent / hidden_name(old.name, "old")
    old.rename(aside)
    try:
        _rename_folder(new, old)
    except OSError:
        aside.rename(old)
        raise
    return aside


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
