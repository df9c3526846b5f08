"""Recognises a file or folder by its bytes and names, never by its suffix alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from comal.errors import (
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedVersionError,
    shown,
)
from comal.limits import KIB
from comal.plan import ByteRange, Head, Piece, Tail
from comal.storage import Source
from comal.storage.httpwire import PAGE, PAGE_HINT, is_page
from comal.table.thrift import BINARY, I64, LIST, CompactReader, Wanted

COLLECTION = "COLLECTION.json"
TACOCAT_FOLDER = ".tacocat/"
META = "meta.json"
_HEAD = 4 * KIB
_TAIL = 16 * KIB
_FOOTER = 256 * KIB
_PARQUET = b"PAR1"
_LOCAL_FILE = b"PK\x03\x04"
_KINDS = {2: "int64", 6: "bytes"}
_SCHEMA = 2
_ELEMENT: Wanted = {1: I64, 4: BINARY, 5: I64}
"""SchemaElement: 1 type, 4 name, 5 number of children."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The basis of recognition: both ends of a file, or the names in a folder."""

    href: str
    head: bytes = b""
    tail: bytes = b""
    names: frozenset[str] = frozenset()
    footer: bytes = b""
    """The start of the footer of a Parquet file, which holds the schema."""

    @property
    def text(self) -> bytes:
        """The head without a byte order mark or white space before a JSON document."""
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()

    @property
    def first_entry(self) -> bytes | None:
        """Name of the first entry of a ZIP, or None."""
        if not self.head.startswith(_LOCAL_FILE) or len(self.head) < 30:
            return None
        size = int.from_bytes(self.head[26:28], "little")
        return self.head[30 : 30 + size]


def read_evidence(source: Source) -> Evidence:
    """Read both ends of a file, or list a folder; if listing is impossible, try known names."""
    try:
        head, tail = source.fetch([Head(_HEAD), Tail(_TAIL)])
    except (NotThisFormatError, ObjectNotFoundError) as error:
        names = _names(source)
        if not names:
            raise error from None
        return Evidence(source.href, names=names)
    return Evidence(source.href, head.data, tail.data, footer=_footer(source, tail))


def _footer(source: Source, tail: Piece) -> bytes:
    """The start of the footer of a Parquet file: with the tail, or by one more request."""
    if not tail.data.endswith(_PARQUET) or len(tail.data) < 12:
        return b""
    size = int.from_bytes(tail.data[-8:-4], "little")
    start = tail.total - 8 - size
    if start < len(_PARQUET):
        return b""
    wanted = min(size, _FOOTER)
    if tail.holds(start, wanted):
        return tail.slice(start, wanted)
    (piece,) = source.fetch([ByteRange(start, wanted)])
    return piece.data


def _names(source: Source) -> frozenset[str]:
    try:
        return frozenset(source.names())
    except ObjectNotFoundError:
        return frozenset()
    except StorageError:
        places = {
            COLLECTION: COLLECTION,
            TACOCAT_FOLDER: TACOCAT_FOLDER + COLLECTION,
            META: META,
        }
        return frozenset(name for name, href in places.items() if _is_there(source, href))


def _is_there(source: Source, href: str) -> bool:
    try:
        source.fetch([Head(1, href)])
    except ObjectNotFoundError:
        return False
    return True


# -- the schema of a Parquet file ----------------------------------------------------------------


def columns(footer: bytes) -> dict[str, str]:
    """Type of each top-level column of a Parquet file: ``int64``, ``bytes`` or ``other``.

    The schema precedes everything that grows with the file, so the first bytes of a footer of
    any size are enough; a footer that is cut off has the columns read so far. Bytes that are not
    a footer have no columns. Field numbers are those of ``parquet.thrift``.
    """
    reader = CompactReader(footer)
    found: dict[str, str] = {}
    with suppress(IndexError, InvalidMetadataError):
        for number, kind in reader.fields():
            if number != _SCHEMA or kind != LIST:
                reader.skip(kind)
                continue
            count, below = reader.count(), 0
            reader.struct(_ELEMENT)  # the root
            # Elements are in depth-first order: those below a column are skipped.
            for _ in range(count - 1):
                element = reader.struct(_ELEMENT)
                children = max(0, element.get(5) or 0)
                if below:
                    below += children - 1
                    continue
                name = (element.get(4) or b"").decode("utf-8", "replace")
                told = "other" if children else _KINDS.get(element.get(1, -1), "other")
                found.setdefault(name, told)
                below = children
            break
    return found


_RASTER = "make it RaQuet: comal raquet create FILE OUT.parquet"
_TILES = "if it holds tiles, make it Tapalcatl: comal convert FILE OUT-tiles, with a FILE called *"
_OTHERS: tuple[tuple[str, tuple[bytes, ...], str], ...] = (
    ("a TIFF file", (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), _RASTER),
    ("a PNG file", (b"\x89PNG\r\n\x1a\n",), _RASTER),
    ("a JPEG file", (b"\xff\xd8\xff",), _RASTER),
    ("a JPEG 2000 file", (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"), _RASTER),
    ("a netCDF or HDF5 file", (b"\x89HDF\r\n\x1a\n",), _RASTER),
    ("a netCDF file", (b"CDF\x01", b"CDF\x02", b"CDF\x05"), _RASTER),
    ("a PMTiles file", (b"PMTiles",), _TILES + ".pmtiles"),
    ("an SQLite database, as MBTiles is", (b"SQLite format 3\0",), _TILES + ".mbtiles"),
)
"""Other kinds of files by their first bytes, each with what can be done with it."""
_FOLDER = (
    "pack the rasters in it: comal convert FOLDER OUT.tacozip; any files: comal tortilla create "
    "FOLDER OUT.tortilla; tiles z/x/y: comal convert FOLDER OUT-tiles"
)


def _unknown(evidence: Evidence) -> tuple[str, str]:
    """What an unsupported source is, and what can be done with it."""
    head, entry = evidence.head, evidence.first_entry
    if evidence.names:
        return f"a folder with {shown(', '.join(sorted(evidence.names)[:3]))}", _FOLDER
    if not head:
        return "an empty file", "see whether it was written or fetched to its end"
    for what, magics, hint in _OTHERS:
        if head.startswith(magics):
            return what, hint
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "a WebP file", _RASTER
    if evidence.footer:
        return (
            f"a Parquet table with the columns {shown(', '.join(columns(evidence.footer)))}",
            "if it has the columns id and path, pack what it lists: comal convert FILE OUT.tacozip",
        )
    if entry is not None:
        return (
            f"a ZIP whose first entry is {shown(entry.decode('latin-1'))}",
            "unpack it, and pack the folder: comal convert FOLDER OUT.tacozip",
        )
    if is_page(head):
        return PAGE, PAGE_HINT
    return f"bytes {head[:8].hex(' ')}", "'comal convert --help' shows what can become an archive"


_TACOCAT = "__TACOCAT__"
_NUMBER = rb"(0|[1-9][0-9]{0,9})"
_TILE_NAME = re.compile(
    _NUMBER + rb"/" + _NUMBER + rb"/" + _NUMBER + rb"(@[0-9]+x)?(\.[0-9A-Za-z_+-]{1,32})?"
)
_TILESET_KEYS = (b'"source"', b'"formats"')


Rule = Callable[[Evidence], str | None]


@dataclass(frozen=True, slots=True)
class Format:
    """One format that comal can recognise."""

    name: str
    """As ``comal info --json`` prints it."""
    title: str
    """As people call it."""
    rule: Rule
    """Returns what it recognised the format by, or None."""
    adapter: str | None = None
    """Module with its `comal.formats.Archive`; None while it cannot be read."""


@dataclass(frozen=True, slots=True)
class Found:
    """A recognised format, and what it was recognised by."""

    format: Format
    how: str


def recognise(source: Source) -> Found:
    """The format of `source`.

    Raises
    ------
    NotThisFormatError
        No format that comal knows.
    UnsupportedVersionError
        A format that comal knows by name and cannot read.
    """
    evidence = read_evidence(source)
    for candidate in FORMATS:
        how = candidate.rule(evidence)
        if how is not None:
            if candidate.adapter is None:
                raise UnsupportedVersionError(
                    f"{candidate.title} cannot be read by this version of comal",
                    where=source.href,
                    found=how,
                    expected="TACO 2.0",
                )
            return Found(candidate, how)
    what, hint = _unknown(evidence)
    raise NotThisFormatError(
        "not a format that comal knows",
        where=source.href,
        found=what,
        expected=", ".join(candidate.title for candidate in FORMATS if candidate.adapter),
        hint=hint,
    )


# -- one rule per format --------------------------------------------------------------------------


def _taco(evidence: Evidence) -> str | None:
    if evidence.first_entry in {b"TACO_HEADER", b"TACO_GHOST"}:
        return f"ZIP whose first entry is {evidence.first_entry.decode()}"
    if evidence.head.startswith(b"TACOCAT\0"):
        return "magic TACOCAT"
    if TACOCAT_FOLDER in evidence.names:
        return "folder that holds .tacocat"
    if _TACOCAT in evidence.names:
        return "folder that holds __TACOCAT__"
    if COLLECTION in evidence.names:
        return "folder that holds COLLECTION.json"
    if evidence.text.startswith(b"{") and b'"taco_version"' in evidence.text:
        return "JSON that names taco_version"
    return None


def _taco3(evidence: Evidence) -> str | None:
    return "ZIP whose first entry is __cozip__" if evidence.first_entry == b"__cozip__" else None


def _tortilla(evidence: Evidence) -> str | None:
    return "magic #y" if evidence.head.startswith(b"#y") else None


def _taco_v1(evidence: Evidence) -> str | None:
    return "magic WX" if evidence.head.startswith(b"WX") else None


def _raquet(evidence: Evidence) -> str | None:
    """RaQuet 0.1.0: columns block and metadata, and at least one column of bytes."""
    if not evidence.footer:
        return None
    found = columns(evidence.footer)
    if found.get("block") != "int64" or found.get("metadata") != "bytes":
        return None
    if "bytes" not in {kind for name, kind in found.items() if name not in {"block", "metadata"}}:
        return None
    return "Parquet with the columns block, metadata and bands"


def _tapalcatl(evidence: Evidence) -> str | None:
    if META in evidence.names:
        return "folder that holds meta.json"
    if b"PK\x05\x06" in evidence.tail and b'"tapalcatl"' in evidence.tail:
        return "ZIP whose comment names tapalcatl"
    if evidence.first_entry is not None and _TILE_NAME.fullmatch(evidence.first_entry):
        return "ZIP whose first entry is a tile"
    text = evidence.text
    if text.startswith(b"{") and b'"tapalcatl"' in text:
        return "JSON that names tapalcatl"
    # Documents of 2018 have no version; the template of the archives identifies them.
    if text.startswith(b"{") and b"{z}" in text and all(key in text for key in _TILESET_KEYS):
        return "JSON with formats and a template of archives"
    return None


FORMATS: tuple[Format, ...] = (
    Format("taco", "TACO 2.0", _taco, "comal.formats.taco"),
    Format("taco-v3", "TACO 3", _taco3),
    Format("taco-v1", "TACO 1", _taco_v1, "comal.formats.tortilla"),
    Format("tortilla", "Tortilla", _tortilla, "comal.formats.tortilla"),
    Format("raquet", "RaQuet", _raquet, "comal.formats.raquet"),
    Format("tapalcatl", "Tapalcatl", _tapalcatl, "comal.formats.tapalcatl"),
)
"""Every format that comal can name, in the order in which they are tried."""
