"""One writer per target: an advisory lock that the system takes back when its holder dies."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from comal.errors import (
    AccessDeniedError,
    ComalError,
    ConflictError,
    StorageError,
)
from comal.storage.location import shown_path

_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
# A file name may have 255 bytes; dots, digits and suffix need 28 of them.
_NAME_BYTES = 200


def hidden_name(name: str, suffix: str) -> str:
    """A fresh name for what will become `name`: ``.name.<random>.suffix``."""
    return f".{_stem(name)}.{secrets.token_hex(8)}.{suffix}"


def _stem(name: str) -> str:
    data = os.fsencode(name)
    if len(data) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(data).hexdigest()[:16]
    return os.fsdecode(data[: _NAME_BYTES - 17]) + "-" + digest


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of a target.

    Raises
    ------
    ConflictError
        When somebody else holds it, in this process or another.
    """
    path = target.parent / f".{_stem(target.name)}.lock"
    with write_errors("cannot write", target):
        descriptor = acquire(path, target)
    try:
        yield
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
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            if _try_lock(descriptor, target) and _is_at(descriptor, path):
                return descriptor
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
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
