"""What a writer may replace: an archive of its own kind, and of a folder only the archive's files.

A writer hands `comal.storage.targets` a `Kind`: how its archives are recognised, and which files
of a folder they name. Everything else that stands in the place of a target is somebody's, stays,
and is named in a `ConflictError`.
"""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from comal.errors import AccessDeniedError, ComalError, ConflictError, InvalidInputError, shown
from comal.storage.location import local_path, shown_path
from comal.storage.replacing import state_of
from comal.storage.targetlock import CHANGE, Owns, named


@dataclass(frozen=True, slots=True)
class Kind:
    """What a writer makes, and how an earlier one is told from what is somebody's."""

    name: str
    """Of one, with its article: ``a RaQuet file``."""
    claim: Callable[[Path], Owns | None]
    """Which files below a folder are the archive's own, or None where it is no archive of this
    kind. Of a file only the second counts. Errors of comal mean the same as None."""


def file_kind(name: str, test: Callable[[BinaryIO], bool]) -> Kind:
    """The kind of files that pass a test of their bytes."""

    def claim(path: Path) -> Owns | None:
        with path.open("rb") as file:
            return _everything if test(file) else None

    return Kind(name, claim)


def magic_kind(name: str, *magics: bytes) -> Kind:
    """The kind of files that begin with one of these."""
    longest = max(map(len, magics))
    return file_kind(name, lambda file: file.read(longest).startswith(magics))


def _everything(_: str) -> bool:
    return True


NOTHING = Kind("nothing", lambda _: None)
"""Of a writer that replaces nothing but what is empty."""
ITSELF = Kind("the file that was read", lambda _: _everything)
"""Of a writer that writes anew what it has just read."""

TIFF = magic_kind("a TIFF file", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

_HEAD = 512


def _signature(head: bytes) -> bytes:
    """What files of one kind have in common: how they begin, or that they are text."""
    return head[:3] if b"\0" in head else b"text"


def like(head: bytes) -> Kind:
    """The kind of bytes that come from somewhere else, by their beginning."""
    wanted = _signature(head[:_HEAD])
    return file_kind("a file of the same kind", lambda file: _signature(file.read(_HEAD)) == wanted)


# -- what stands there -----------------------------------------------------------------------------


def check_target(
    target: Path, kind: Kind, *, folder: bool, overwrite: bool, sources: Any = ()
) -> Owns:
    """Refuse a target that may not be replaced; which of the files below it may go.

    A `ConflictError` tells that it is a link, no archive of this kind, holds files of somebody, is
    a source or holds one, or that `overwrite` is False; an `AccessDeniedError` that it is
    read-only.
    """
    refuse_sources(target, sources)
    try:
        status = target.lstat()
    except FileNotFoundError:
        return _everything
    _refuse_form(target, status.st_mode, folder=folder)
    if not overwrite:
        raise existing(target)
    if not status.st_mode & 0o222:
        raise _read_only(target)
    if _is_empty(target, status):
        return _everything
    owns, found = None, ""
    try:
        owns = kind.claim(target)
    except PermissionError as error:
        raise AccessDeniedError(
            "the target cannot be read", where=shown_path(target), found=error.strerror
        ) from error
    except (ComalError, OSError, ValueError) as error:
        found = error.what if isinstance(error, ComalError) else str(error)
    if owns is None:
        if folder:
            found = f"{found}; it holds " * bool(found) + named(target, lambda _: False)
        raise ConflictError(
            "the target is not what would be written there",
            where=shown_path(target),
            found=found or "something else",
            expected=kind.name,
            hint="remove it yourself, or choose another name",
        )
    if folder:
        _refuse_changing(target)
        _refuse_strangers(target, owns)
    return owns


def existing(target: Path) -> ConflictError:
    """The error for a target that is there and may not be replaced."""
    return ConflictError(
        "the target exists",
        where=shown_path(target),
        hint="pass overwrite=True to replace it, or choose another name",
    )


def refuse_sources(target: Path, sources: Any, *, inside: bool = False) -> None:
    """Refuse to write over what is read, over a folder that holds it, or into it.

    Sources are a path or URL, what has one as its `href`, or a list of such; anything else passes.
    The target may lie `inside` of a folder that is read where whoever reads it leaves it out.
    """
    real = os.path.realpath(target)
    for path in _local(sources):
        what = ""
        if path == real or _is_same(path, real):
            what = "the target is the source"
        elif path.startswith(real + os.sep):
            what = "the target holds the source"
        elif not inside and real.startswith(path + os.sep) and os.path.isdir(path):  # noqa: PTH112 - a string
            what = "the target lies in the source"
        if what:
            raise ConflictError(
                what,
                where=shown_path(target),
                found=shown(path, 200),
                hint="what is read is never replaced; choose another name",
            )


def _local(source: Any) -> Iterator[str]:
    if isinstance(source, list | tuple):
        for one in source:
            yield from _local(one)
        return
    if not isinstance(source, str | os.PathLike):
        source = getattr(source, "href", None)
        yield from _local(source) if isinstance(source, list | tuple) else ()
    if isinstance(source, str | os.PathLike):
        text = os.fsdecode(source).removeprefix("file://")
        if text and "://" not in text:
            # What cannot be a path, such as with a NUL, is refused where it is read.
            with suppress(ValueError):
                yield os.path.realpath(text)


def _is_same(path: str, real: str) -> bool:
    """Whether two names are links to one file."""
    with suppress(OSError, ValueError):
        return Path(path).samefile(real)
    return False


def _refuse_form(target: Path, mode: int, *, folder: bool) -> None:
    if modes.S_ISLNK(mode):
        raise ConflictError(
            "the target is a link",
            where=shown_path(target),
            found=shown(os.readlink(target), 200),  # noqa: PTH115 - as it is written
            hint="name what it leads to, or remove the link",
        )
    if folder is modes.S_ISDIR(mode) and (folder or modes.S_ISREG(mode)):
        return
    what = "a folder" if modes.S_ISDIR(mode) else "a file" if modes.S_ISREG(mode) else "no file"
    raise ConflictError(
        f"the target is {what}",
        where=shown_path(target),
        expected="a folder" if folder else "a file",
        hint="choose another name",
    )


def _is_empty(target: Path, status: os.stat_result) -> bool:
    if modes.S_ISREG(status.st_mode):
        return status.st_size == 0
    with os.scandir(target) as entries:
        return next(entries, None) is None


def _read_only(target: Path) -> AccessDeniedError:
    return AccessDeniedError(
        "the target is read-only",
        where=shown_path(target),
        hint=f"allow it by chmod u+w {shown_path(target)}, or choose another name",
    )


def _refuse_changing(target: Path) -> None:
    if state_of(target / CHANGE) == "running":
        raise ConflictError(
            "somebody else is changing the target",
            where=shown_path(target),
            hint="wait until they are done, or choose another name",
        )


def _refuse_strangers(target: Path, owns: Owns) -> None:
    found = named(target, owns)
    if found:
        raise ConflictError(
            "the folder holds files that do not belong to the archive",
            where=shown_path(target),
            found=found,
            hint="move them away, or choose another name",
        )


_FORMATS: Final = {
    ".csv": "CSV",
    ".geojson": "GeoJSON",
    ".jp2": "JPEG 2000",
    ".jpeg": "JPEG",
    ".jpg": "JPEG",
    ".json": "JSON",
    ".mbtiles": "MBTiles",
    ".nc": "NetCDF",
    ".parquet": "Parquet",
    ".pmtiles": "PMTiles",
    ".png": "PNG",
    ".taco": "TACO 1",
    ".tacozip": "TACO",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".tortilla": "Tortilla",
    ".vrt": "GDAL VRT",
    ".webp": "WebP",
    ".zip": "ZIP",
}


def check_ending(target: str | os.PathLike[str], *own: str) -> None:
    """Refuse a target that is called like another format; other names are the caller's business.

    `own` is what the name may end in, such as ``.tif``; nothing for a folder.
    """
    path = local_path(target, "the target")
    ending = path.suffix.lower()
    if ending in own or ending not in _FORMATS:
        return
    raise InvalidInputError(
        "the name of the target says another format",
        where=shown_path(path),
        found=f"{ending} ({_FORMATS[ending]})",
        expected=" or ".join(own) if own else "the name of a folder",
        hint=f"choose another name, or what writes {_FORMATS[ending]}",
    )
