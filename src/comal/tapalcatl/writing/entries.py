"""Makes entries of archives from tiles: options, names, payloads, times and comments."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import deflate as libdeflate
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.geo.times import parse_instant
from comal.public import check_fields
from comal.table.columns import blobs_column, numbers_column, texts_column
from comal.tapalcatl.addressing import Generation1
from comal.tapalcatl.containers.base import UNKNOWN_TIME, Tiles, TileSource, binary, named
from comal.tapalcatl.containers.content import GZIP, compressed, gzipped, kinds_of
from comal.tapalcatl.spec import (
    CONTENT_ENCODING,
    KNOWN,
    Bounds,
    Headers,
    Tile,
    content_headers,
    entry_comment,
    header_pairs,
    parse_headers,
)
from comal.tapalcatl.wire import (
    Int64s,
    Keys,
    dos_of,
    new_variant,
    split_suffix,
    suffix_of,
    ut_field,
)
from comal.ziparchive import DEFLATE, STORE, Details
from comal.ziparchive.headermaking import FEW, checksums, payload_sizes

COMPRESSION: Final = ("auto", "store", "deflate")
FIXED: Final = "fixed"
SOURCE: Final = "source"
_SLASH, _NOTHING = texts_column(["/", ""])


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOptions:
    """How tiles become entries of archives.

    Raises
    ------
    InvalidInputError
        A value of the wrong type, or an invalid value.
    """

    ext: str | None = None
    """Extension of tiles whose source does not give one; detected from their bytes if None."""
    scale: float = 1
    """Scale of these tiles, 2 for tiles of 512 pixels that are shown at 256."""
    compression: str = "auto"
    """``auto``: DEFLATE unless the tile is compressed already; ``store``; ``deflate``."""
    level: int = 6
    """Level of DEFLATE, 1 to 12."""
    times: str | int | dt.datetime = FIXED
    """``fixed`` for 1980-01-01, ``source``, or one time for all entries."""
    exact_times: bool = False
    """Whether to write exact times to an extra field next to those of MS-DOS, which have a
    resolution of two seconds; odd seconds of a source are always written."""
    entry_headers: Mapping[Tile, Headers] | None = None
    """Headers of single tiles, by (z, x, y)."""
    variant: str | None = None
    """Prefix of the names of all tiles: they are only read with ``open(..., variant=...)``, and
    `put` adds further variants. Documents list it."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.compression not in COMPRESSION:
            raise InvalidInputError(
                "unknown compression", found=self.compression, expected=", ".join(COMPRESSION)
            )
        if not 1 <= self.level <= 12:
            raise InvalidInputError(
                "level of DEFLATE out of range", found=self.level, expected="1 to 12"
            )
        suffix_of(self.scale, self.ext or "")


_GENERATION_2: Final = (
    *("metatile", "materialized_zooms", "hash_in_path"),
    *("name", "description", "attribution", "bounds", "metadata"),
)
"""Options that Tapalcatl 1 has no place for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions(EntryOptions):
    """Options of a new tileset: its entries, its layout and its metadata."""

    metatile: int | None = None
    """Root tiles per side of an archive."""
    materialized_zooms: Sequence[int] | None = None
    """Zooms at which archives begin. If either of these two is not given, it is chosen so that a
    directory fits into a reader's first request of 64 KiB: every four zooms under two by two root
    tiles, see `choose_layout`."""
    version: int = 2
    """2, or 1 for archives of metatiles with relative names and no metadata inside."""
    generation1: Generation1 | None = None
    """For version 1: metatile size, tile size and layout of keys."""
    hash_in_path: bool = False
    """Whether keys begin with five hex digits of the MD5 of ``z/x/y``, as some stores prefer."""
    formats: Mapping[str, Any] | None = None
    """Content type by extension, or a list of (header, value) pairs; guessed if absent."""
    name: str | None = None
    """Overrides the source's metadata, as do the next four fields."""
    description: str | None = None
    attribution: str | None = None
    bounds: Bounds | None = None
    """West, south, east, north; widened to include all tiles."""
    metadata: Mapping[str, Any] | None = None
    """Other keys of TileJSON; None removes one."""

    def __post_init__(self) -> None:
        # With slots=True the class is recreated, so `super()` refers to the wrong one.
        EntryOptions.__post_init__(self)
        if self.version not in {1, 2}:
            raise InvalidInputError(
                "unknown version of Tapalcatl", found=self.version, expected="1 or 2"
            )
        lost = _GENERATION_2 if self.version == 1 else ("generation1",)
        given = [name for name in lost if np.ndim(one := getattr(self, name)) or one]
        if given:
            raise InvalidInputError(
                f"Tapalcatl {self.version} has no place for this",
                found=", ".join(given),
                hint="leave it out, or write the other version; the metatile of Tapalcatl 1 is a"
                " field of generation1",
            )
        own = sorted(KNOWN & (self.metadata or {}).keys())
        if own:
            raise InvalidInputError(
                "metadata are given that have an option of their own, or that tiles determine",
                found=", ".join(own),
                hint="pass name, description, bounds and formats beside metadata, and leave out"
                " the others",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRules(EntryOptions):
    """How tiles become entries: the caller's options and the source's properties."""

    hint: str | None = None
    """Extension of tiles whose names have none and whose bytes do not determine it."""
    encoding: str | None = None
    """Content encoding of all tiles, if the source declares one that bytes do not show."""
    formats: Mapping[str, Headers] = field(default_factory=dict)
    """Headers by extension, as given by the caller."""
    modified: int | None = None
    """Modification time of the source, for tiles without their own."""


def rules_of(tiles: TileSource, options: EntryOptions) -> EntryRules:
    """Rules for the entries of a source's tiles; a common time becomes seconds since 1970 UTC."""
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
        formats={ext: _headers_of(headers, ext) for ext, headers in (given or {}).items()},
        modified=tiles.modified,
    )


def _headers_of(value: Any, ext: str) -> Headers:
    if isinstance(value, str):
        return parse_headers(value, "formats")
    return header_pairs(value, f"formats, {shown(ext)}")


_IDENTITY: Final = "identity"


@dataclass(frozen=True, slots=True)
class NewEntries:
    """Entries that are ready to write; columns of n rows."""

    names: Any
    """An Arrow string array, or a list if there are few."""
    payloads: list[bytes]
    details: Details
    suffixes: tuple[str, ...]
    """The text after the row in the names, such as ``@2x.png``."""
    formats: Mapping[str, Headers]
    """Headers of every extension that occurs, and of those known before."""


def new_entries(
    tiles: Tiles, inside: Keys, rules: EntryRules, formats: Mapping[str, Headers]
) -> NewEntries:
    """Entries for some tiles, in their order; `inside` are the numbers in their names.

    `formats` are headers of known extensions. Tiles with a different content encoding declare it
    in the comment of their entry.
    """
    kinds = kinds_of(tiles.payloads)
    stored = None if tiles.methods is None else tiles.methods == STORE
    if tiles.suffix is None:
        tiles = named(tiles, kinds, rules.hint, rules.ext, rules.scale)
    settled = dict(formats)
    tiles = _described(tiles, kinds, stored, rules, settled)
    payloads, details = _stored(tiles, kinds, stored, rules)
    stamps, extras = _times(tiles, rules)
    details = replace(details, comments=tiles.comments, stamps=stamps, extras=extras)
    names = _names_of(tiles, inside, rules.variant)
    assert tiles.suffix is not None
    # A subset of tiles shares the suffix table, but may not use all of it.
    suffixes = tuple(tiles.suffixes[code] for code in np.unique(tiles.suffix).tolist())
    return NewEntries(names, payloads, details, suffixes, settled)


def _names_of(tiles: Tiles, inside: Keys, variant: str | None) -> Any:
    """Names of entries; a list if there are few, which is cheaper."""
    assert tiles.suffix is not None
    if len(tiles) <= FEW:
        rows = zip(*(column.tolist() for column in (*inside, tiles.suffix)), strict=True)
        start = "" if variant is None else f"{variant}/"
        return [f"{start}{z}/{x}/{y}{tiles.suffixes[code]}" for z, x, y, code in rows]
    columns = [numbers_column(numbers).cast(pa.string()) for numbers in inside]
    if variant is not None:
        columns[0] = pc.binary_join_element_wise(texts_column([variant])[0], columns[0], _SLASH)
    if tiles.suffixes == ("",):
        return pc.binary_join_element_wise(*columns, _SLASH)
    last = texts_column(tiles.suffixes).take(numbers_column(tiles.suffix))
    columns[2] = pc.binary_join_element_wise(columns[2], last, _NOTHING)
    return pc.binary_join_element_wise(*columns, _SLASH)


def _described(
    tiles: Tiles,
    kinds: npt.NDArray[np.uint8],
    stored: npt.NDArray[np.bool_] | None,
    rules: EntryRules,
    settled: dict[str, Headers],
) -> Tiles:
    """Determine the headers of new extensions; tiles that differ get headers of their own.

    Payloads compressed by another archive are not inspected: their formats came with it.
    """
    assert tiles.suffix is not None
    zipped = gzipped(kinds)
    if stored is not None:
        zipped &= stored
    own: dict[int, tuple[tuple[str, str], ...]] = {}
    for code, suffix in enumerate(tiles.suffixes):
        rows = np.flatnonzero(tiles.suffix == code)
        if not len(rows):
            continue
        ext = split_suffix(suffix)[1]
        if ext not in settled:
            settled[ext] = _headers(ext, rules, zipped=bool(zipped[rows[0]]))
        if ext in rules.formats or rules.encoding is not None:
            continue
        expected = _encoding(settled[ext]) == GZIP
        odd = rows[zipped[rows] != expected]
        if stored is not None:
            odd = odd[stored[odd]]
        for row in odd.tolist():
            own[row] = ((CONTENT_ENCODING, GZIP if zipped[row] else _IDENTITY),)
    given = _given(tiles, rules)
    return _with_headers(tiles, own, given) if own or given else tiles


def _headers(ext: str, rules: EntryRules, *, zipped: bool) -> Headers:
    if ext in rules.formats:
        return rules.formats[ext]
    encoding = GZIP if zipped else rules.encoding
    headers = content_headers(ext)
    return (*headers, (CONTENT_ENCODING, encoding)) if encoding else headers


def _encoding(headers: Headers) -> str:
    values = [value.lower() for name, value in headers if name.lower() == CONTENT_ENCODING.lower()]
    return values[-1] if values else _IDENTITY


def _given(tiles: Tiles, rules: EntryRules) -> dict[int, Headers]:
    own = rules.entry_headers
    if not own:
        return {}
    keys = zip(tiles.z.tolist(), tiles.x.tolist(), tiles.y.tolist(), strict=True)
    found = ((row, own.get(key)) for row, key in enumerate(keys))
    return {row: tuple(headers) for row, headers in found if headers}


def _with_headers(tiles: Tiles, own: Mapping[int, Headers], given: Mapping[int, Headers]) -> Tiles:
    comments = [b""] * len(tiles) if tiles.comments is None else tiles.comments.to_pylist()
    for row in sorted({*own, *given}):
        if row in given:
            comments[row] = entry_comment((*own.get(row, ()), *given[row]))
        elif not comments[row]:
            # Headers that a tile brings along take precedence.
            comments[row] = entry_comment(own[row])
    return replace(tiles, comments=binary(comments))


def _stored(
    tiles: Tiles,
    kinds: npt.NDArray[np.uint8],
    stored: npt.NDArray[np.bool_] | None,
    rules: EntryRules,
) -> tuple[list[bytes], Details]:
    """Payloads as they will be stored; payloads compressed by their archive are kept."""
    plain = np.ones(len(tiles), np.bool_) if stored is None else stored
    if rules.compression == "store":
        wanted = np.zeros(len(tiles), np.bool_)
    elif rules.compression == "deflate":
        wanted = plain
    else:
        wanted = plain & ~compressed(kinds)
    if stored is None and not wanted.any():
        return tiles.payloads, Details(crcs=tiles.crcs)
    sizes = payload_sizes(tiles.payloads) if tiles.sizes is None else tiles.sizes
    crcs = checksums(tiles.payloads) if tiles.crcs is None else tiles.crcs
    methods = np.where(plain, np.uint16(STORE), np.uint16(DEFLATE))
    if not wanted.any():
        return tiles.payloads, Details(methods=methods, sizes=sizes, crcs=crcs)
    values = list(tiles.payloads)
    for row in np.flatnonzero(wanted).tolist():
        packed = bytes(libdeflate.deflate_compress(values[row], rules.level))
        if len(packed) < len(values[row]) or rules.compression == "deflate":
            values[row] = packed
            methods[row] = DEFLATE
    return values, Details(methods=methods, sizes=sizes, crcs=crcs)


def _times(tiles: Tiles, rules: EntryRules) -> tuple[npt.NDArray[np.uint16] | None, Any]:
    """DOS times, and extra fields with exact times."""
    seconds = _seconds(tiles, rules)
    if seconds is None:
        return None, None
    distinct, which = np.unique(seconds, return_inverse=True)
    pairs = [dos_of(second)[::-1] if second >= 0 else (0, 0x21) for second in distinct.tolist()]
    stamps = np.array(pairs, np.uint16)[which]
    # DOS times have a resolution of two seconds and begin in 1980; exact ones end in 2038.
    exact = (distinct >= 0) & (rules.exact_times | (distinct % 2 == 1)) & (distinct < 1 << 31)
    if not exact.any():
        return stamps, None
    fields = [
        ut_field(second) if wanted else b""
        for second, wanted in zip(distinct.tolist(), exact.tolist(), strict=True)
    ]
    return stamps, blobs_column(fields).take(numbers_column(which))


def _seconds(tiles: Tiles, rules: EntryRules) -> Int64s | None:
    if rules.times == FIXED:
        return None
    if rules.times != SOURCE:
        assert isinstance(rules.times, int)
        return np.full(len(tiles), rules.times, np.int64)
    default = UNKNOWN_TIME if rules.modified is None else rules.modified
    if tiles.modified is None:
        return np.full(len(tiles), default, np.int64)
    return np.where(tiles.modified == UNKNOWN_TIME, default, tiles.modified)
