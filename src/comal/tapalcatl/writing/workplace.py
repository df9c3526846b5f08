"""A tree that is built beside its place, can be gone on with, and appears whole.

The tree is built in a hidden folder beside the target. When the source fails or the build is
killed, its finished archives stay there, and the same build of the same source goes on with them;
any other build throws them away. A full disk, Ctrl-C and SIGTERM leave nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comal.errors import ComalError, InvalidInputError
from comal.storage import href_text
from comal.storage.kinds import Kind, check_target
from comal.storage.location import shown_path
from comal.storage.publish import discard, flush_file_system
from comal.storage.targetlock import BUILD, hidden, locked, write_errors
from comal.storage.targets import new_file, publish_folder, target_of
from comal.tapalcatl.containers.survey import Dealt
from comal.tapalcatl.kinds import ARCHIVE

_BUILD = "build.json"
_TREE = "tree"
Location = str | os.PathLike[str]


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
    path: str | os.PathLike[str],
    fingerprint: bytes,
    kind: Kind,
    sources: Any,
    *,
    overwrite: bool,
    durable: bool = True,
) -> Iterator[Workplace]:
    """Build a tree; it is published when the block ends without an error.

    Parameters
    ----------
    path
        The target, a folder that must not exist unless `overwrite`.
    fingerprint
        What this build is; finished archives of another one are not kept. Empty: nothing is kept
        after an error, either.
    kind, sources
        As for `comal.storage.targets.new_folder`.
    overwrite
        Whether an existing folder of this kind is replaced at the end.
    durable
        Whether all bytes are on the disk before the tree appears.

    Raises
    ------
    ConflictError
        The target exists, or somebody else is writing it.
    """
    target = target_of(path)
    with locked(target, keep=(BUILD,)):
        owns = check_target(target, kind, folder=True, overwrite=overwrite, sources=sources)
        folder = hidden(target, BUILD)
        going_on = _prepare(folder, fingerprint, target)
        try:
            yield Workplace(folder / _TREE, target, going_on)
            with write_errors("cannot write", target):
                if durable:
                    flush_file_system(folder)
                publish_folder(folder / _TREE, target, owns, overwrite=overwrite)
        except BaseException as error:  # also on Ctrl-C
            if fingerprint and _is_kept(error) and _holds_files(folder / _TREE):
                _tell(error, folder, target)
            else:
                _remove(folder)
            raise
        _remove(folder)


def _is_kept(error: BaseException) -> bool:
    """Whether to try again is likely: not when the disk is full or somebody quit."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return False
        cause = cause.__cause__
    return isinstance(error, Exception)


def _tell(error: BaseException, folder: Path, target: Path) -> None:
    if isinstance(error, ComalError):
        kept = (
            f"run it again to go on with what is kept in {folder.name}, or remove that by "
            f"'comal clean {shown_path(target)}'"
        )
        error.hint = f"{error.hint}; {kept}" if error.hint else kept


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


def _holds_files(tree: Path) -> bool:
    with suppress(OSError):
        return any(path.is_file() for path in tree.rglob("*.zip"))
    return False


def _remove(folder: Path) -> None:
    with suppress(OSError):
        discard(folder)


def is_archive(out: Location) -> bool:
    """Whether a target is one archive by its name; with a slash at its end it is a folder."""
    return href_text(out).lower().endswith(".zip")


def check_one(plan: Dealt, out: Location) -> None:
    """Refuse a layout that takes more than one archive.

    Raises
    ------
    InvalidInputError
        It takes several.
    """
    if len(plan.archives) > 1:
        raise InvalidInputError(
            "the layout takes several archives, and the target is a single one",
            where=os.fspath(out),
            found=f"{len(plan.archives)} archives",
            hint="leave out metatile and materialized zooms, or write to a folder",
        )


@contextmanager
def place_of_one(out: Location, *, overwrite: bool, source: Any) -> Iterator[Workplace]:
    """Where a single archive is written: a file beside its target, published when it is whole.

    Raises
    ------
    ConflictError
        The target exists, or somebody else is writing it.
    InvalidInputError
        It is a folder.
    """
    with new_file(out, overwrite, ARCHIVE, source) as file:
        # The archive is written by its path, and made durable by that.
        file.close()
        yield Workplace(Path(file.path.parent), file.target, going_on=False, name=file.path.name)
