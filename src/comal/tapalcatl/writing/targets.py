"""Targets of new tilesets, hidden until complete, and how existing ones are recognised."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from comal.errors import ComalError, InvalidInputError, shown_path, system_errors
from comal.storage import href_text
from comal.storage.location import stored
from comal.storage.targetlock import BUILD, Owns, discard, flush_file_system, hidden, locked
from comal.storage.targets import (
    Kind,
    check_target,
    file_kind,
    new_file,
    publish_folder,
    target_of,
)
from comal.tapalcatl.addressing import Generation1
from comal.tapalcatl.containers.survey import Survey
from comal.tapalcatl.spec import META
from comal.tapalcatl.wire import parse_name

_FIELD = re.compile(r"\{([^{}]*)\}")
_DIGITS = "(?:0|[1-9][0-9]{0,9})"
_HASH = "[0-9a-f]{5}"
_TAIL = 22 + 65_535
"""The end record of a ZIP and its comment."""
_HEADER, _LENGTH = 30, 26


def _template(text: str) -> re.Pattern[str]:
    """A pattern that matches paths of archives."""
    fields = {"z": _DIGITS, "x": _DIGITS, "y": _DIGITS, "h": _HASH, "hash": _HASH}
    parts = _FIELD.split("/".join(part for part in text.split("/") if part not in ("", ".")))
    pieces = [fields.get(part, "") if at % 2 else re.escape(part) for at, part in enumerate(parts)]
    return re.compile("".join(pieces))


def _claim_tree(path: Path) -> Owns | None:
    """Claims ``meta.json``, and archives that match its template."""
    if not (path / META).is_file() or DOCUMENT.claim(path / META) is None:
        return None
    source = json.loads((path / META).read_bytes()).get("source")
    if not isinstance(source, str) or "://" in source or source.startswith("/"):
        return META.__eq__
    fits = _template(source).fullmatch
    return lambda name: name == META or fits(name) is not None


def _is_document(file: BinaryIO) -> bool:
    # Documents of 2018 have no version; they are recognised by the archive template.
    document = json.load(file)
    return isinstance(document, dict) and ("tapalcatl" in document or "source" in document)


def first_generation(layout: Generation1) -> Kind:
    """The kind of Tapalcatl 1 trees with this layout."""
    fits = _template(layout.template).fullmatch

    def owns(name: str) -> bool:
        return fits(name) is not None

    def claim(path: Path) -> Owns | None:
        names = (one.relative_to(path).as_posix() for one in path.rglob("*.zip"))
        return owns if any(map(owns, names)) else None

    return Kind(f"a tileset of Tapalcatl 1 with the layout {layout.pattern}", claim)


def _is_archive(file: BinaryIO) -> bool:
    head = file.read(1024)
    size = file.seek(0, 2)
    file.seek(max(0, size - _TAIL))
    tail = file.read()
    end = tail.rfind(b"PK\5\6")
    if end < 0:
        return False
    if b'"tapalcatl"' in tail[end:]:
        return True
    length = int.from_bytes(head[_LENGTH : _LENGTH + 2], "little")
    name = head[_HEADER : _HEADER + length]
    return head.startswith(b"PK\3\4") and parse_name(name.decode("utf-8", "replace")) is not None


DOCUMENT: Final = file_kind(f"a {META} of Tapalcatl", _is_document)
TREE: Final = Kind("a tileset of Tapalcatl 2", _claim_tree)
ARCHIVE: Final = file_kind("an archive of Tapalcatl", _is_archive)
_BUILD = "build.json"
Location = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Workplace:
    """The folder in which a tree is built."""

    tree: Path
    target: Path
    going_on: bool
    """Whether finished archives of the same build may exist."""
    name: str = ""
    """Name of the only archive in `tree`, if the target is an archive."""
    store: Any = None
    """In a store: the `comal.storage.growing.GrowingFolder` that takes finished archives."""


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
    """Build a tree; it is published if the block ends without an error.

    The fingerprint identifies this build: finished archives of another one are removed. Without a
    fingerprint nothing is kept after an error. In a store archives appear as they are finished.
    """
    target = target_of(path)
    place = stored(target)
    if place is not None:
        # Local targets need none of its libraries.
        from comal.storage.growing import growing_folder  # noqa: PLC0415

        last = META if kind is TREE else ""
        with growing_folder(place, fingerprint, last, sources) as made:
            yield Workplace(made.folder, target, bool(made.kept), store=made)
        return
    with locked(target, keep=(BUILD,)):
        owns = check_target(target, kind, folder=True, overwrite=overwrite, sources=sources)
        folder = hidden(target, BUILD)
        going_on = _prepare(folder, fingerprint, target)
        try:
            yield Workplace(folder / target.name, target, going_on)
            with system_errors("cannot write", target):
                if durable:
                    flush_file_system(folder)
                # From here on the folder may hold the old tree, which must not be resumed.
                (folder / _BUILD).unlink(missing_ok=True)
                check_target(target, kind, folder=True, overwrite=overwrite, sources=sources)
                publish_folder(folder, target, owns)
        except BaseException as error:  # also on Ctrl-C
            kept = (folder / _BUILD).is_file() and _holds_files(folder / target.name)
            if kept and _is_kept(error):
                _tell(error, folder, target)
            else:
                _remove(folder)
            raise
        _remove(folder)


def _is_kept(error: BaseException) -> bool:
    """Whether a retry is likely: not if the disk is full or the user interrupted."""
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
    with system_errors("cannot create", target):
        note = folder / _BUILD
        if fingerprint and note.is_file() and note.read_bytes() == fingerprint:
            (folder / target.name).mkdir(exist_ok=True)
            return True
        _remove(folder)
        (folder / target.name).mkdir(parents=True)
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
    """Whether a target's name means a single archive; with a trailing slash it is a folder."""
    return href_text(out).lower().endswith(".zip")


def check_one(plan: Survey, out: Location) -> None:
    """Raise `InvalidInputError` for a layout that takes more than one archive."""
    if len(plan.archives) > 1:
        raise InvalidInputError(
            "the layout takes several archives, and the target is a single one",
            where=os.fspath(out),
            found=f"{len(plan.archives)} archives",
            hint="leave out metatile and materialized zooms, or write to a folder",
        )


@contextmanager
def place_of_one(out: Location, *, overwrite: bool, source: Any) -> Iterator[Workplace]:
    """Write a single archive: a hidden file beside its target, published when complete."""
    with new_file(out, overwrite, ARCHIVE, source) as file:
        # The archive is written, and made durable, by its path.
        file.close()
        yield Workplace(Path(file.path.parent), file.target, going_on=False, name=file.path.name)
