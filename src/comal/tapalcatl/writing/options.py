"""Options of `build` and `put`, and the rules for entries that follow from them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from comal.errors import InvalidInputError
from comal.geo.times import parse_instant
from comal.public import check_fields
from comal.tapalcatl.containers.base import TileSource
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.spec import Bounds, Headers, Tile, parse_headers
from comal.tapalcatl.wire import new_variant, suffix_of

COMPRESSION: Final = ("auto", "store", "deflate")
FIXED: Final = "fixed"
SOURCE: Final = "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOptions:
    """How tiles become entries of archives.

    Raises
    ------
    InvalidInputError
        A value that is not of its kind, or that cannot be.
    """

    ext: str | None = None
    """Extension of tiles whose source does not name any; by their first bytes if None."""
    scale: float = 1
    """Scale of such tiles, 2 for tiles of 512 pixels that are shown at 256."""
    compression: str = "auto"
    """``auto``: DEFLATE unless the tile is compressed already; ``store``; ``deflate``."""
    level: int = 6
    """Of DEFLATE, 1 to 12."""
    times: str | int | dt.datetime = FIXED
    """``fixed`` for 1980-01-01, ``source``, or one time for all entries."""
    exact_times: bool = False
    """Whether exact times go into an extra field beside those of MS-DOS, which count by two
    seconds; odd seconds of a source always do."""
    entry_headers: Mapping[Tile, Headers] | None = None
    """Headers of single tiles, by (z, x, y)."""
    variant: str | None = None
    """Prefix of the names of all tiles: they are only read when it is asked for
    (``open(..., variant=...)``), and `put` adds others beside them. Documents name it."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.compression not in COMPRESSION:
            raise InvalidInputError(
                "compression", found=self.compression, expected=", ".join(COMPRESSION)
            )
        if not 1 <= self.level <= 12:
            raise InvalidInputError("level of DEFLATE", found=self.level, expected="1 to 12")
        suffix_of(self.scale, self.ext or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions(EntryOptions):
    """What a tileset is to be: how its tiles become entries, how it is laid out, what it says."""

    metatile: int | None = None
    """Root tiles of an archive per side."""
    materialized_zooms: Sequence[int] | None = None
    """Zooms at which archives begin. What is not given of these two is chosen so that a directory
    comes with a reader's first request of 64 KiB: every four zooms under two by two root tiles, as
    `choose_layout` says."""
    version: int = 2
    """2, or 1 for archives of metatiles with relative names and nothing described inside."""
    generation1: Generation1 | None = None
    """For version 1: metatile size, tile size and layout of keys."""
    hash_in_path: bool = False
    """Whether keys begin with five hex digits of the MD5 of ``z/x/y``, as some stores like it."""
    tilejson: str | None = None
    """For version 1, which describes nothing itself: where tiles will be served, such as
    ``https://example.org/{z}/{x}/{y}.{fmt}``. Documents ``tilejson/mapbox.json`` (of mvt),
    ``geojson`` and ``topojson`` are written beside the archives."""
    formats: Mapping[str, Any] | None = None
    """Content type of extensions, or a list of pairs of header and value; guessed if absent."""
    name: str | None = None
    """Instead of what the source says, as the four that follow."""
    description: str | None = None
    attribution: str | None = None
    bounds: Bounds | None = None
    """West, south, east, north; widened where they miss a tile."""
    metadata: Mapping[str, Any] | None = None
    """Other keys of TileJSON; None removes one."""

    def __post_init__(self) -> None:
        # Of a class with slots `super()` is that of the class without them.
        EntryOptions.__post_init__(self)
        if self.version not in {1, 2}:
            raise InvalidInputError(
                "unknown version of Tapalcatl", found=self.version, expected="1 or 2"
            )
        if self.tilejson is not None and self.version != 1:
            raise InvalidInputError(
                "documents of Tapalcatl 1 for version 2",
                found=self.tilejson,
                hint="meta.json describes it; leave out tilejson",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRules(EntryOptions):
    """How tiles become entries: what was asked for, and what the source says."""

    hint: str | None = None
    """Extension of tiles whose names have none and whose bytes do not tell."""
    encoding: str | None = None
    """Content encoding of all tiles, where the source says one that bytes do not show."""
    formats: Mapping[str, Headers] = field(default_factory=dict)
    """Headers of extensions that are given."""
    modified: int | None = None
    """Time of the source, for tiles without one of their own."""


def rules_of(tiles: TileSource, options: EntryOptions) -> EntryRules:
    """Rules for the entries of a source's tiles; one time for all is in seconds since 1970 UTC."""
    given = options.formats if isinstance(options, BuildOptions) else None
    times, own = options.times, options.entry_headers or {}
    if times not in {FIXED, SOURCE} and not isinstance(times, int):
        times = parse_instant(times) // 1_000_000
    asked = {one.name: getattr(options, one.name) for one in fields(EntryOptions)}
    asked["times"] = times
    asked["entry_headers"] = {key: tuple(value) for key, value in own.items()}
    asked["variant"] = None if options.variant is None else new_variant(options.variant)
    return EntryRules(
        **asked,
        hint=tiles.hint,
        encoding=tiles.encoding,
        formats={ext: _headers_of(headers) for ext, headers in (given or {}).items()},
        modified=tiles.modified,
    )


def _headers_of(value: Any) -> Headers:
    if isinstance(value, str):
        return parse_headers(value, "formats")
    return tuple((str(name), str(text)) for name, text in value)
