"""The files below a folder as columns: the one way in which folders are walked to be packed."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    LimitExceededError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.public import warn
from comal.table.columns import texts_column

_READING: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
}
_HELD = 1 << 16
"""Ids that stand as Python objects before they become a column."""


def files_below(
    root: Path,
    patterns: Sequence[str],
    *,
    target: Path,
    warning: type[UserWarning] = UserWarning,
) -> tuple[Any, Any]:
    """All files below a folder whose names match.

    Names are walked in their order, those that begin with a dot left out. Letters of patterns
    match in their case on every system. What is written and lies below the folder, such as the
    output of an earlier run, is left out.

    A link to a file is followed. A link to a folder is left out with a warning: it can lead back to
    a folder above, or bring the same files twice under two ids, which nobody would see in the
    outcome. Whoever wants what it leads to names it in a manifest.

    Parameters
    ----------
    root
        The folder.
    patterns
        Names of files as in a shell, such as ``*.tif``.
    target
        What will be written.
    warning
        Category of the warnings.

    Returns
    -------
    ids, paths
        Arrow strings: id paths (``scene_1/before.tif``) and absolute paths of the files, depth
        first. Folders are those that the ids imply, so that one without a file has no row.

    Raises
    ------
    InvalidInputError
        Something that matches is no regular file, or has a name that is no UTF-8.
    ObjectNotFoundError, AccessDeniedError, StorageError
        A folder cannot be read.
    """
    fits = re.compile("|".join(map(fnmatch.translate, patterns))) if patterns else None
    top = str(root.absolute())
    chunks: list[Any] = []
    links: list[str] = []
    held: list[str] = []
    with translated(_READING, "folder cannot be read", where=shown(root, 200)):
        for name in _walk(top, fits, _Target.of(target), links):
            held.append(name)
            if len(held) == _HELD:
                chunks.append(_texts(held, top))
                held = []
    for link in links:
        warn(f"a link to a folder is left out: {shown(link, 200)}", warning)
    chunks.append(_texts(held, top))
    with translated({pa.ArrowException: LimitExceededError}, "names are too long for one column"):
        ids = pa.concat_arrays(chunks)
    return ids, absolute(ids, root)


def absolute(paths: Any, root: Path) -> Any:
    """Paths against a folder, an Arrow array of strings; absolute ones and nulls stay."""
    base, slash = texts_column([str(root.absolute()).rstrip("/"), "/"])
    with translated({pa.ArrowException: LimitExceededError}, "paths are too long for one column"):
        joined = pc.binary_join_element_wise(base, paths, slash)
        is_absolute = pc.starts_with(paths, "/")
        return pc.if_else(is_absolute, paths, joined) if pc.any(is_absolute).as_py() else joined


class _Target:
    """What is written, if it is there already."""

    def __init__(self, real: str) -> None:
        self._real, self._below = real, real.rstrip("/") + "/"

    @classmethod
    def of(cls, target: Path) -> _Target | None:
        return cls(os.path.realpath(target)) if os.path.lexists(target) else None

    def holds(self, path: str) -> bool:
        """Whether a real path is the target, or lies below it."""
        return path == self._real or path.startswith(self._below)


def _walk(
    top: str, fits: re.Pattern[str] | None, target: _Target | None, links: list[str]
) -> Iterator[str]:
    """Id paths of the files. Folders wait on a list, as they may be nested to any depth."""
    real = os.path.realpath(top).rstrip("/")
    if fits is None or (target is not None and target.holds(real)):
        return
    waiting = [("", iter(_entries(top)))]
    while waiting:
        above, entries = waiting[-1]
        entry = next(entries, None)
        if entry is None:
            waiting.pop()
            continue
        name = above + entry.name
        if target is not None and target.holds(_real(entry, f"{real}/{name}")):
            continue
        if entry.is_dir(follow_symlinks=False):
            waiting.append((f"{name}/", iter(_entries(entry.path))))
        elif entry.is_dir():
            links.append(entry.path)
        elif fits.match(entry.name):
            _refuse_no_file(entry)
            yield name


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What a folder holds, without what is hidden, in the order of names."""
    with os.scandir(folder) as scan:
        found = [entry for entry in scan if not entry.name.startswith(".")]
    found.sort(key=lambda entry: entry.name)
    return found


def _real(entry: os.DirEntry[str], path: str) -> str:
    """The real path of an entry of a real folder; only a link must be asked."""
    return os.path.realpath(path) if entry.is_symlink() else path


def _refuse_no_file(entry: os.DirEntry[str]) -> None:
    """A file that was asked for and is not there is never left out in silence."""
    if not entry.is_file():
        raise InvalidInputError(
            "no regular file",
            where=shown(entry.path, 200),
            found="a link that leads nowhere" if entry.is_symlink() else "a pipe, socket or device",
            hint="remove it, or name the files to pack by a pattern",
        )


def _texts(names: list[str], top: str) -> Any:
    try:
        return texts_column(names)
    except UnicodeEncodeError as error:
        odd = next(name for name in names if not _is_utf8(name))
        raise InvalidInputError(
            "name of a file is no UTF-8", where=shown(f"{top}/{odd}", 200), hint="rename it"
        ) from error


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
