"""From tiles to entries of an archive: names, payloads, times and comments, a square at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import deflate as libdeflate
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.tapalcatl.containers.base import UNKNOWN_TIME, Tiles, binary
from comal.tapalcatl.containers.content import GZIP, compressed, extension, gzipped, kinds_of
from comal.tapalcatl.spec import (
    CONTENT_ENCODING,
    Headers,
    content_headers,
    entry_comment,
)
from comal.tapalcatl.wire import (
    Int64s,
    Keys,
    dos_of,
    split_suffix,
    suffix_of,
    ut_field,
)
from comal.tapalcatl.writing.options import FIXED, SOURCE, EntryRules
from comal.ziparchive import DEFLATE, STORE, Details
from comal.ziparchive.headermaking import checksums, payload_sizes

_IDENTITY: Final = "identity"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Entries that are ready to be written; arrays of shape (n,)."""

    tiles: Tiles
    """With a suffix for each."""
    payloads: list[bytes]
    details: Details
    formats: Mapping[str, Headers]
    """Headers of every extension that occurs."""


def prepared(tiles: Tiles, rules: EntryRules, formats: Mapping[str, Headers]) -> Prepared:
    """Entries for some tiles.

    Parameters
    ----------
    tiles
        In the order in which they will be written.
    rules
        How.
    formats
        Headers of extensions that are settled. Tiles whose content encoding is another one say so
        in the comment of their entry.
    """
    kinds = kinds_of(tiles.payloads)
    stored = None if tiles.methods is None else tiles.methods == STORE
    if tiles.suffix is None:
        tiles = _named(tiles, kinds, rules)
    settled = dict(formats)
    tiles = _described(tiles, kinds, stored, rules, settled)
    payloads, details = _stored(tiles, kinds, stored, rules)
    stamps, extras = _times(tiles, rules)
    details = replace(details, comments=tiles.comments, stamps=stamps, extras=extras)
    return Prepared(tiles, payloads, details, settled)


def names_of(tiles: Tiles, inside: Keys, variant: str | None) -> Any:
    """Names of entries, an Arrow string array; `inside` are the numbers in them."""
    columns = [pa.array(numbers).cast(pa.string()) for numbers in inside]
    if variant is not None:
        columns[0] = pc.binary_join_element_wise(variant, columns[0], "/")
    if tiles.suffixes == ("",):
        return pc.binary_join_element_wise(*columns, "/")
    suffixes = pa.array(tiles.suffixes, pa.string())
    last = suffixes.take(pa.array(tiles.suffix))
    columns[2] = pc.binary_join_element_wise(columns[2], last, "")
    return pc.binary_join_element_wise(*columns, "/")


def few_names(tiles: Tiles, inside: Keys, variant: str | None) -> list[str]:
    """As `names_of`, one by one, which costs less for a handful."""
    assert tiles.suffix is not None
    rows = zip(*(column.tolist() for column in (*inside, tiles.suffix)), strict=True)
    start = "" if variant is None else f"{variant}/"
    return [f"{start}{z}/{x}/{y}{tiles.suffixes[code]}" for z, x, y, code in rows]


def _named(tiles: Tiles, kinds: npt.NDArray[np.uint8], rules: EntryRules) -> Tiles:
    """Tiles without names get the extension that they are by their bytes, or that was asked for."""
    table: dict[str, int] = {}
    found = np.unique(kinds)
    codes = np.zeros(256, np.int32)
    for kind in found.tolist():
        ext = rules.ext if rules.ext is not None else extension(kind, rules.hint)
        codes[kind] = table.setdefault(suffix_of(rules.scale, ext), len(table))
    return replace(tiles, suffix=codes[kinds], suffixes=tuple(table))


def _described(
    tiles: Tiles,
    kinds: npt.NDArray[np.uint8],
    stored: npt.NDArray[np.bool_] | None,
    rules: EntryRules,
    settled: dict[str, Headers],
) -> Tiles:
    """Settle the headers of new extensions; tiles that differ from them get headers of their own.

    What lies compressed in another archive is not looked at: its formats came with it.
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
            # Tiles that bring headers of their own know best.
            comments[row] = entry_comment(own[row])
    return replace(tiles, comments=binary(comments))


def _stored(
    tiles: Tiles,
    kinds: npt.NDArray[np.uint8],
    stored: npt.NDArray[np.bool_] | None,
    rules: EntryRules,
) -> tuple[list[bytes], Details]:
    """Payloads as they will be stored. What is compressed in its archive already stays so."""
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
    """DOS times, and extra fields with exact ones."""
    seconds = _seconds(tiles, rules)
    if seconds is None:
        return None, None
    distinct, which = np.unique(seconds, return_inverse=True)
    pairs = [dos_of(second)[::-1] if second >= 0 else (0, 0x21) for second in distinct.tolist()]
    stamps = np.array(pairs, np.uint16)[which]
    # DOS times count every other second, from 1980 on.
    exact = (distinct >= 0) & (rules.exact_times | (distinct % 2 == 1))
    if not exact.any():
        return stamps, None
    fields = [
        ut_field(second) if wanted else b""
        for second, wanted in zip(distinct.tolist(), exact.tolist(), strict=True)
    ]
    return stamps, pa.array(fields, pa.binary()).take(pa.array(which))


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
