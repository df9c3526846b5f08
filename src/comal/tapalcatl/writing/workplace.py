"""A tree that is built beside its place, can be gone on with, and appears whole.

The tree is built in a hidden folder beside the target. When a build fails or is killed, its
finished archives stay there, and the same build of the same source goes on with them; any other
build throws them away.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from comal.errors import InvalidInputError, StorageError
from comal.storage.location import shown_path
from comal.storage.publish import exchange, flush_file_system, rename_new, sync_folder
from comal.storage.targetlock import locked, write_errors
from comal.storage.targets import existing, target_of

_BUILD = "build.json"
_TREE = "tree"


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a tree is being built."""

    tree: Path
    target: Path
    going_on: bool
    """Whether there may be finished archives of the same build."""
    name: str = ""
    """Of the only archive in `tree`, where the target is one."""


@contextmanager
def workplace(
    path: str | os.PathLike[str], fingerprint: bytes, *, overwrite: bool, durable: bool = True
) -> Iterator[Workplace]:
    """Build a tree; it is published when the block ends without an error.

    Parameters
    ----------
    path
        The target, a folder that must not exist unless `overwrite`.
    fingerprint
        What this build is; finished archives of another one are not kept. Empty: nothing is kept
        after an error, either.
    overwrite
        Whether an existing folder is replaced at the end, with all that it holds.
    durable
        Whether all bytes are on the disk before the tree appears.

    Raises
    ------
    ConflictError
        The target exists, or somebody else is writing it.
    """
    target = target_of(path)
    with locked(target):
        _refuse(target, overwrite=overwrite)
        folder = target.parent / f".{target.name}.build"
        going_on = _prepare(folder, fingerprint, target)
        try:
            yield Workplace(folder / _TREE, target, going_on)
            with write_errors("cannot write", target):
                if durable:
                    flush_file_system(folder)
                _publish(folder / _TREE, target, overwrite=overwrite)
        except BaseException:  # also on Ctrl-C
            if not fingerprint or not _holds_files(folder / _TREE):
                _remove(folder)
            raise
        _remove(folder)


def _refuse(target: Path, *, overwrite: bool) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir() or target.is_symlink():
        raise InvalidInputError("the target is not a folder", where=shown_path(target))
    if not overwrite:
        raise existing(target)


def _prepare(folder: Path, fingerprint: bytes, target: Path) -> bool:
    with write_errors("cannot create", target):
        note = folder / _BUILD
        if fingerprint and note.is_file() and note.read_bytes() == fingerprint:
            for part in folder.rglob(".*.part"):
                part.unlink()
            (folder / _TREE).mkdir(exist_ok=True)
            return True
        _remove(folder)
        (folder / _TREE).mkdir(parents=True)
        if fingerprint:
            note.write_bytes(fingerprint)
    return False


def _publish(tree: Path, target: Path, *, overwrite: bool) -> None:
    if overwrite and os.path.lexists(target):
        old = exchange(tree, target)
        _remove(old)
        if old.exists():
            raise StorageError(
                "the new folder is in place, but the old one cannot be removed",
                where=shown_path(target),
                hint=f"remove {shown_path(old)}",
            )
    else:
        try:
            rename_new(tree, target)
        except FileExistsError as error:
            raise existing(target) from error
    sync_folder(target.parent)


def _holds_files(tree: Path) -> bool:
    with suppress(OSError):
        return any(path.is_file() for path in tree.rglob("*.zip"))
    return False


def _remove(folder: Path) -> None:
    # Twice, because what hinders once may be gone then.
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)
