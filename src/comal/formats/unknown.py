"""Files that are no archive: what they are, and what comal can make of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from comal.errors import shown
from comal.formats.evidence import Evidence, columns
from comal.storage.httpwire import PAGE, PAGE_HINT, is_page
from comal.storage.location import Location

_RASTERS = (
    ("TIFF", (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    ("PNG", (b"\x89PNG\r\n\x1a\n",)),
    ("JPEG", (b"\xff\xd8\xff",)),
    ("JPEG 2000", (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51")),
    ("netCDF or HDF5", (b"\x89HDF\r\n\x1a\n",)),
    ("netCDF", (b"CDF\x01", b"CDF\x02", b"CDF\x05")),
)
_PICTURES = (".tif", ".tiff", ".png", ".jpg", ".jpeg", ".jp2", ".webp")
_TILES = (
    ("a PMTiles file", b"PMTiles", ".pmtiles"),
    ("an SQLite database, as MBTiles is", b"SQLite format 3\0", ".mbtiles"),
)
_FOR_WHAT_IS_ELSE = "'comal convert --help' shows what can become an archive"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that is none of the formats."""

    found: str
    """What it is."""
    hint: str
    """What to do with it; a command stands at the end, behind a colon."""


def unknown(evidence: Evidence, location: Location) -> Unknown:
    """What lies at `location`, after no format was recognised there."""
    if evidence.names:
        return _folder(evidence.names, location)
    head = evidence.head
    if not head:
        return Unknown("an empty file", "see whether it was written or fetched to its end")
    for kind, suffix in _tiles(head):
        return _of_tiles(kind, suffix, location)
    for kind in _rasters(head):
        # `raquet create` goes by the bytes, while `convert` goes by the name.
        verb = "convert" if _suffix(location) in _PICTURES else "raquet create"
        making = _command(f"comal {verb}", location, ".parquet")
        return Unknown(f"a {kind} file", f"make it RaQuet: {making}")
    if evidence.footer:
        making = _command("comal convert", location, ".tacozip")
        return Unknown(
            f"a Parquet table with the columns {shown(', '.join(columns(evidence.footer)))}",
            f"if it has the columns id and path, pack the files that it lists: {making}",
        )
    if evidence.first_entry is not None:
        return Unknown(
            f"a ZIP whose first entry is {shown(evidence.first_entry.decode('latin-1'))}",
            "unpack it, and pack the folder: comal convert FOLDER OUT.tacozip",
        )
    if is_page(head):
        return Unknown(PAGE, PAGE_HINT)
    return Unknown(f"bytes {head[:8].hex(' ')}", _FOR_WHAT_IS_ELSE)


def _folder(names: frozenset[str], location: Location) -> Unknown:
    found = f"a folder with {shown(', '.join(sorted(names)[:3]))}"
    if any(name.rstrip("/").isdecimal() and name.endswith("/") for name in names):
        making = _command("comal convert", location, "-tiles")
        return Unknown(found, f"if it holds tiles z/x/y, make it Tapalcatl: {making}")
    if any(name.lower().endswith(_PICTURES) for name in names):
        making = _command("comal convert", location, ".tacozip")
        return Unknown(found, f"make the rasters samples of TACO: {making}")
    making = _command("comal tortilla create", location, ".tortilla")
    return Unknown(found, f"pack its files as they are: {making}")


def _of_tiles(kind: str, suffix: str, location: Location) -> Unknown:
    if _suffix(location) != suffix:
        return Unknown(kind, f"if it holds tiles, rename it to *{suffix} and convert it")
    making = _command("comal convert", location, "-tiles")
    return Unknown(kind, f"make it Tapalcatl: {making}")


def _tiles(head: bytes) -> Sequence[tuple[str, str]]:
    return [(kind, suffix) for kind, magic, suffix in _TILES if head.startswith(magic)]


def _rasters(head: bytes) -> Sequence[str]:
    webp = ["WebP"] if head.startswith(b"RIFF") and head[8:12] == b"WEBP" else []
    return webp + [kind for kind, magics in _RASTERS if head.startswith(magics)]


def _suffix(location: Location) -> str:
    return PurePosixPath(location.name).suffix.lower()


def _command(verb: str, location: Location, ending: str) -> str:
    """A command from `location` to a name like its own, as a shell takes it."""
    secret = location.query or location.userinfo
    source = location.href
    if secret or not source.isprintable():
        source = "SRC"
    target = PurePosixPath(location.name).stem + ending
    if not target.isprintable():
        target = "OUT" + ending
    return f"{verb} {shlex.quote(source)} {shlex.quote(target)}"
