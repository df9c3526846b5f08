"""Every format behind one door: recognised by its bytes, opened by its own room.

The formats do not know one another; this module is where they meet.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, cast

from comal.errors import InvalidInputError, shown
from comal.formats.base import LEAF_COLUMNS, Adapter, Archive
from comal.formats.sniff import FORMATS, Evidence, Format, Found, recognise
from comal.storage import open_source

__all__ = [
    "FORMATS",
    "LEAF_COLUMNS",
    "Adapter",
    "Archive",
    "Evidence",
    "Format",
    "Found",
    "adapter_of",
    "of_band",
    "open_any",
    "recognise",
    "sniff",
]


def sniff(href: str | os.PathLike[str]) -> Found:
    """Which format lies at a path or a URL, and by what it was recognised."""
    with open_source(href) as source:
        return recognise(source)


def adapter_of(found: Format) -> Adapter:
    """The functions of a format that the generic commands use."""
    if found.adapter is None:
        raise AssertionError(f"{found.name} is refused before its adapter is asked for")
    return cast("Adapter", import_module(found.adapter))


def of_band(archive: Archive, band: str | None) -> Archive:
    """The archive with one band alone, where its format has bands.

    Raises
    ------
    InvalidInputError
        It has none, or none of that name.
    """
    if band is None:
        return archive
    with_band = getattr(archive, "with_band", None)
    if with_band is None:
        archive.close()
        raise InvalidInputError("the leaves of this format have no bands", found=shown(band))
    return cast("Archive", with_band(band))


def open_any(href: str | os.PathLike[str]) -> Any:
    """Open an archive with the reader of its format, which its bytes tell; see `comal.open`."""
    return adapter_of(sniff(href).format).reader(href)
