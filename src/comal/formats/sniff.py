"""Which format some bytes are. Names and version strings decide nothing.

To add a format: a function that looks at the `Evidence`, and a line in `FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from comal.errors import (
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedVersionError,
    shown,
)
from comal.limits import KIB
from comal.plan import Head, Tail
from comal.storage import Source

_HEAD = 4 * KIB
_TAIL = 16 * KIB
_LOCAL_FILE = b"PK\x03\x04"
_COLLECTION = "COLLECTION.json"
_TACOCAT_FOLDER = ".tacocat/"
_TACOCAT = "__TACOCAT__"
_TILE_NAME = re.compile(rb"[0-9]+/[0-9]+/[0-9]+(@[0-9]x)?\.[a-z]+")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is looked at: both ends of a file, or the names in a folder."""

    href: str
    head: bytes = b""
    tail: bytes = b""
    names: frozenset[str] = frozenset()

    @property
    def first_entry(self) -> bytes | None:
        """Name of the first entry of a ZIP, or None."""
        if not self.head.startswith(_LOCAL_FILE) or len(self.head) < 30:
            return None
        size = int.from_bytes(self.head[26:28], "little")
        return self.head[30 : 30 + size]


Rule = Callable[[Evidence], str | None]


@dataclass(frozen=True, slots=True)
class Format:
    """One format that comal can tell from others."""

    name: str
    """As ``comal info --json`` prints it."""
    title: str
    """As people call it."""
    rule: Rule
    """By what it was recognised, or None."""
    adapter: str | None = None
    """Module that is its `comal.formats.base.Adapter`; None while it cannot be read."""


@dataclass(frozen=True, slots=True)
class Found:
    """A format that was recognised, and by what."""

    format: Format
    how: str


def recognise(source: Source) -> Found:
    """The format of what lies at `source`.

    Raises
    ------
    NotThisFormatError
        No format that comal knows.
    UnsupportedVersionError
        A format that comal knows by name and cannot read.
    """
    evidence = gather(source)
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
    raise NotThisFormatError(
        "no format that comal knows",
        where=source.href,
        found=_first_impression(evidence),
        expected=", ".join(candidate.title for candidate in FORMATS if candidate.adapter),
    )


def gather(source: Source) -> Evidence:
    """Read both ends of a file, or list a folder; where listing is impossible, try its names."""
    try:
        head, tail = source.fetch([Head(_HEAD), Tail(_TAIL)])
    except (NotThisFormatError, ObjectNotFoundError) as error:
        names = _names(source)
        if not names:
            raise error from None
        return Evidence(source.href, names=names)
    return Evidence(source.href, head.data, tail.data)


def _names(source: Source) -> frozenset[str]:
    try:
        return frozenset(source.names())
    except ObjectNotFoundError:
        return frozenset()
    except StorageError:
        places = {_COLLECTION: _COLLECTION, _TACOCAT_FOLDER: _TACOCAT_FOLDER + _COLLECTION}
        return frozenset(name for name, href in places.items() if _is_there(source, href))


def _is_there(source: Source, href: str) -> bool:
    try:
        source.fetch([Head(1, href)])
    except ObjectNotFoundError:
        return False
    return True


def _first_impression(evidence: Evidence) -> str:
    if evidence.names:
        return f"a folder with {shown(', '.join(sorted(evidence.names)[:3]))}"
    if evidence.first_entry is not None:
        return f"a ZIP whose first entry is {shown(evidence.first_entry.decode('latin-1'))}"
    return f"bytes {evidence.head[:8].hex(' ')}" if evidence.head else "an empty file"


# -- one rule per format --------------------------------------------------------------------------


def _taco(evidence: Evidence) -> str | None:
    if evidence.first_entry in {b"TACO_HEADER", b"TACO_GHOST"}:
        return f"ZIP whose first entry is {evidence.first_entry.decode()}"
    if evidence.head.startswith(b"TACOCAT\0"):
        return "magic TACOCAT"
    if _TACOCAT_FOLDER in evidence.names:
        return "folder that holds .tacocat"
    if _TACOCAT in evidence.names:
        return "folder that holds __TACOCAT__"
    if _COLLECTION in evidence.names:
        return "folder that holds COLLECTION.json"
    return None


def _taco3(evidence: Evidence) -> str | None:
    return "ZIP whose first entry is __cozip__" if evidence.first_entry == b"__cozip__" else None


def _tortilla(evidence: Evidence) -> str | None:
    return "magic #y" if evidence.head.startswith(b"#y") else None


def _taco_v1(evidence: Evidence) -> str | None:
    return "magic WX" if evidence.head.startswith(b"WX") else None


def _raquet(evidence: Evidence) -> str | None:
    """A Parquet file with the columns of RaQuet; their names stand in the footer as they are."""
    footer = evidence.tail
    if not footer.endswith(b"PAR1") or not {b"block", b"metadata"} <= set(
        re.findall(rb"block|metadata", footer)
    ):
        return None
    return "Parquet with the columns block and metadata"


def _tapalcatl(evidence: Evidence) -> str | None:
    if evidence.first_entry is not None and b'"tapalcatl"' in evidence.tail:
        return "ZIP whose comment names tapalcatl"
    if evidence.first_entry is not None and _TILE_NAME.fullmatch(evidence.first_entry):
        return "ZIP whose first entry is a tile"
    if evidence.head.lstrip()[:1] == b"{" and b'"tapalcatl"' in evidence.head:
        return "JSON that names tapalcatl"
    return None


FORMATS: tuple[Format, ...] = (
    Format("taco", "TACO 2.0", _taco, "comal.formats.taco"),
    Format("taco-v3", "TACO 3", _taco3),
    Format("taco-v1", "TACO 1", _taco_v1, "comal.formats.tortilla"),
    Format("tortilla", "Tortilla", _tortilla, "comal.formats.tortilla"),
    Format("raquet", "RaQuet", _raquet),
    Format("tapalcatl", "Tapalcatl", _tapalcatl),
)
"""Every format that comal can name, in the order in which they are tried."""
