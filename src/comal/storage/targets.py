"""Writing a file or a folder so that its name never shows anything but a finished one.

The work is done under a hidden name in the same folder, made durable and published by one step
that does not replace what is there, or that replaces it as a whole when that was asked for. Any
failure, and Ctrl-C, leaves the target as it was and nothing beside it. Only SIGKILL leaves the
hidden name behind.
"""

from __future__ import annotations

import io
import os
import shutil
import stat as modes
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from comal.errors import (
    ConflictError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
)
from comal.limits import MIB
from comal.storage import location
from comal.storage.location import parse_href, shown_path
from comal.storage.publish import exchange, flush_file_system, rename_new, sync_folder
from comal.storage.targetlock import hidden_name, locked, write_errors

_BUFFER = MIB


class TargetFile(io.BufferedRandom):
    """A file that gets its name when its block ends without an error; see `new_file`."""

    def __init__(self, raw: io.RawIOBase, path: Path, target: Path, scope: ExitStack) -> None:
        super().__init__(raw, _BUFFER)
        self.path = path
        """Where the bytes are until then."""
        self.target = target
        """The name that the file will have. Until the end it may be exchanged for another one in
        the same folder, such as the numbered name of a file that turns out to be the first of
        several."""
        self._scope = scope

    def spool(self) -> BinaryIO:
        """A nameless temporary file on the same disk, closed and gone when the block ends."""
        with write_errors("cannot make a temporary file", self.path.parent):
            raw = _nameless(self.target)
        spooled = io.BufferedRandom(raw, _BUFFER)
        self._scope.callback(_close_quietly, spooled)
        return cast("BinaryIO", spooled)


@contextmanager
def new_file(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[TargetFile]:  # noqa: FBT001, FBT002
    """Write a file that appears complete or not at all.

    Parameters
    ----------
    path
        The target, a local path whose folder exists.
    overwrite
        Whether an existing file is replaced, at the end and as a whole.

    Yields
    ------
    TargetFile
        A buffered binary file, readable and seekable too.

    Raises
    ------
    ConflictError
        When the target exists and may not be replaced, or somebody else is writing it.
    InvalidInputError
        When the target is a folder, or no local path.
    ObjectNotFoundError
        When the target's folder does not exist.
    StorageError
        When the disk is full or fails, from the write that meets it.
    """
    target = target_of(path)
    with ExitStack() as scope:
        scope.enter_context(locked(target))
        _refuse_existing(target, overwrite=overwrite, folder=False)
        part = target.parent / hidden_name(target.name, "part")
        scope.callback(_remove_file, part)
        with write_errors("cannot create", target):
            raw = _WatchedFile(_create(part), target)
        file = TargetFile(raw, part, target, scope)
        scope.callback(_close_quietly, file)
        yield file
        with write_errors("cannot write", target):
            _finish(file)
            _publish_file(part, file.target, overwrite=overwrite)


@contextmanager
def new_folder(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:  # noqa: FBT001, FBT002
    """Write a folder that appears complete or not at all.

    Parameters
    ----------
    path
        The target, a local path whose parent folder exists.
    overwrite
        Whether an existing folder is replaced at the end. **All that it holds is deleted** then.

    Yields
    ------
    pathlib.Path
        An empty hidden folder beside the target, to be filled.

    Raises
    ------
    ConflictError, InvalidInputError, ObjectNotFoundError, StorageError
        As `new_file`; `InvalidInputError` when the target is a file.
    """
    target = target_of(path)
    with ExitStack() as scope:
        scope.enter_context(locked(target))
        _refuse_existing(target, overwrite=overwrite, folder=True)
        part = target.parent / hidden_name(target.name, "part")
        scope.callback(_remove_folder, part)
        with write_errors("cannot create", target):
            part.mkdir()
        yield part
        with write_errors("cannot write", target):
            flush_file_system(part)
            _publish_folder(part, target, overwrite=overwrite)


def local_path(path: str | os.PathLike[str]) -> Path:
    """The path of a target as the caller wrote it; targets are local.

    Raises
    ------
    InvalidInputError
        It is a URL of something else, or no path.
    """
    hint = "write it here and copy it to the store when it is complete"
    return location.local_path(path, "the target", hint)


def target_of(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a target, whose folder exists.

    Raises
    ------
    InvalidInputError, ObjectNotFoundError
        It has no name, is no local path, or there is no such folder.
    """
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


def _refuse_existing(target: Path, *, overwrite: bool, folder: bool) -> None:
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    is_folder = modes.S_ISDIR(mode)
    if is_folder != folder:
        raise InvalidInputError(
            "the target is a folder" if is_folder else "the target is not a folder",
            where=shown_path(target),
        )
    if not overwrite:
        raise existing(target)


def existing(target: Path) -> ConflictError:
    """The error for a target that is there and may not be replaced."""
    return ConflictError(
        "the target exists",
        where=shown_path(target),
        hint="pass overwrite=True to replace it, or choose another name",
    )


def refuse_input(href: str, target: Path) -> None:
    """Refuse to write a mended copy over what it is a copy of.

    Raises
    ------
    ConflictError
        The target is what lies at `href`.
    """
    if "://" not in href and target.exists() and target.samefile(href):
        raise ConflictError(
            "the target is the input",
            where=shown_path(target),
            hint="a repair writes a copy; choose another name",
        )


def _publish_file(part: Path, target: Path, *, overwrite: bool) -> None:
    if overwrite:
        if target.is_dir() and not target.is_symlink():
            raise InvalidInputError("the target is a folder", where=shown_path(target))
        part.replace(target)
        sync_folder(target.parent)
        return
    _publish_new(part, target, _remove_file)


def _publish_folder(part: Path, target: Path, *, overwrite: bool) -> None:
    if overwrite and os.path.lexists(target):
        _remove_old(exchange(part, target), target)
        sync_folder(target.parent)
        return
    _publish_new(part, target, _remove_folder)


def _publish_new(part: Path, target: Path, remove: Callable[[Path], None]) -> None:
    """Give `part` a name that nothing has."""
    try:
        rename_new(part, target)
    except FileExistsError as error:
        raise existing(target) from error
    try:
        sync_folder(target.parent)
    except OSError:
        # The caller is told that it failed, so that the name must not stay.
        remove(target)
        raise


class _WatchedFile(io.FileIO):
    """A raw file whose errors are ours, so that a full disk is told apart from other trouble."""

    def __init__(self, descriptor: int, target: Path) -> None:
        super().__init__(descriptor, "r+b")
        self._target = target

    def write(self, data: Any, /) -> int:
        with write_errors("cannot write", self._target):
            return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        with write_errors("cannot write", self._target):
            return super().truncate(size)


def _finish(file: TargetFile) -> None:
    """Make the bytes durable, also of a file that its user has closed."""
    if not file.closed:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        return
    descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _create(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o666)


def _nameless(target: Path) -> _WatchedFile:
    descriptor, name = tempfile.mkstemp(prefix=".spool.", suffix=".part", dir=target.parent)
    try:
        os.unlink(name)  # noqa: PTH108 - a string already
        return _WatchedFile(descriptor, target)
    except BaseException:  # also on Ctrl-C: nobody else would close and remove it
        os.close(descriptor)
        _remove_file(Path(name))
        raise


def _close_quietly(file: io.IOBase) -> None:
    # What cannot be written any more is thrown away anyway.
    with suppress(OSError, ValueError):
        file.close()


def _remove_file(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _remove_folder(path: Path) -> None:
    # Twice, because what hinders once may be gone then.
    for _ in range(2):
        shutil.rmtree(path, ignore_errors=True)


def _remove_old(path: Path, target: Path) -> None:
    _remove_folder(path)
    if path.exists():
        raise StorageError(
            "the new folder is in place, but the old one cannot be removed",
            where=shown_path(target),
            hint=f"remove {shown_path(path)}",
        )
