"""Which format some bytes are. Names and version strings decide nothing.

To add a format: a function that looks at the `Evidence`, and a line in `FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from comal.errors import NotThisFormatError, UnsupportedVersionError
from comal.formats.evidence import (
    COLLECTION,
    META,
    TACOCAT_FOLDER,
    Evidence,
    columns,
    read_evidence,
)
from comal.formats.unknown import unknown
from comal.storage import Source, parse_href

_TACOCAT = "__TACOCAT__"
_NUMBER = rb"(0|[1-9][0-9]{0,9})"
_TILE_NAME = re.compile(
    _NUMBER + rb"/" + _NUMBER + rb"/" + _NUMBER + rb"(@[0-9]+x)?(\.[0-9A-Za-z_+-]{1,32})?"
)
_TILESET_KEYS = (b'"source"', b'"formats"')


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
    other = unknown(evidence, parse_href(source.href))
    raise NotThisFormatError(
        "no format that comal knows",
        where=source.href,
        found=other.found,
        expected=", ".join(candidate.title for candidate in FORMATS if candidate.adapter),
        hint=other.hint,
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
    """RaQuet 0.1.0: columns block and metadata, and one or more of bytes."""
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
    # Documents of 2018 have no version; the template of the archives tells them.
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
