"""What is looked at to tell a format: both ends of a file, or the names in a folder."""

from __future__ import annotations

from dataclasses import dataclass

from comal.errors import InvalidMetadataError, NotThisFormatError, ObjectNotFoundError, StorageError
from comal.limits import KIB
from comal.plan import ByteRange, Head, Piece, Tail
from comal.storage import Source
from comal.table.thrift import BINARY, I32, LIST, STRUCT, CompactReader

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


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is looked at: both ends of a file, or the names in a folder."""

    href: str
    head: bytes = b""
    tail: bytes = b""
    names: frozenset[str] = frozenset()
    footer: bytes = b""
    """Of a Parquet file the start of its footer, which holds the schema."""

    @property
    def text(self) -> bytes:
        """The head without what may stand before a JSON document."""
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()

    @property
    def first_entry(self) -> bytes | None:
        """Name of the first entry of a ZIP, or None."""
        if not self.head.startswith(_LOCAL_FILE) or len(self.head) < 30:
            return None
        size = int.from_bytes(self.head[26:28], "little")
        return self.head[30 : 30 + size]


def read_evidence(source: Source) -> Evidence:
    """Read both ends of a file, or list a folder; where listing is impossible, try its names."""
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

    The schema stands in front of everything that grows with the file, so the first bytes of a
    footer of any size are enough; what is read before an end that comes too soon counts. Bytes
    that are no footer have no columns. Field numbers are those of ``parquet.thrift``.
    """
    reader = CompactReader(footer)
    found: dict[str, str] = {}
    try:
        for number, kind in reader.fields():
            if number == _SCHEMA and kind == LIST:
                _elements(reader, found)
                break
            reader.skip(kind)
    except (IndexError, InvalidMetadataError):
        pass
    return found


def _elements(reader: CompactReader, found: dict[str, str]) -> None:
    kind, size = reader.items()
    if kind != STRUCT or not size:
        return
    _element(reader)
    # Elements stand depth first: those below a column are passed over.
    below = 0
    for _ in range(size - 1):
        name, told, children = _element(reader)
        if below:
            below += children - 1
            continue
        found.setdefault(name, told)
        below = children


def _element(reader: CompactReader) -> tuple[str, str, int]:
    """SchemaElement: 1 type, 4 name, 5 number of children."""
    physical, name, children = -1, "", 0
    for number, kind in reader.fields():
        if number == 1 and kind == I32:
            physical = reader.integer()
        elif number == 4 and kind == BINARY:
            name = reader.binary().decode("utf-8", "replace")
        elif number == 5 and kind == I32:
            children = max(0, reader.integer())
        else:
            reader.skip(kind)
    return name, _KINDS.get(physical, "other") if not children else "other", children
