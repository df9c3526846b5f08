"""How many bands rasters have, from the first bytes of each; no pixel and no GDAL.

Tortilla stores rows and columns of a raster, TACO 2.0 its bands as well. They are in the header of
the file, which lies in its first bytes, or, in a TIFF, where these say.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.convert.columns import integer_lists
from comal.convert.report import Notes
from comal.limits import KIB
from comal.plan import ByteRange
from comal.progress import Progress
from comal.samples.payloads import Spans
from comal.taco.model.levels import flat
from comal.tortilla import spec
from comal.tortilla.archive import Home, Level

Ints = npt.NDArray[np.int64]

_HEAD = KIB
_DIRECTORY = 2 * KIB
"""How much of a TIFF's directory is read: some 170 entries, or 100 of BigTIFF."""
_AT_ONCE = 256
"""Rasters whose heads are asked for at once; with the gaps between them at most 16 MiB."""

_WIDTH, _HEIGHT, _SAMPLES = 256, 257, 277
_INTEGERS = {1: "B", 3: "H", 4: "I", 16: "Q"}
"""TIFF types that are unsigned integers, by their codes."""
_PNG_BANDS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Bands by colour type, as GDAL has them."""
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""JPEG markers that begin a frame."""

Found = tuple[int, int, int]
"""Bands, rows, columns."""


def bands_of(
    depths: Sequence[Level],
    home: Home,
    given: int | None,
    notes: Notes,
    progress: Progress,
) -> list[Ints]:
    """Bands of the rasters of each depth, 0 where they are not known.

    `given` is how many every raster has, if the caller knows. A nested file has those of its first
    child, where it has its shape, as writers copy it.
    """
    if given is not None:
        return [np.full(len(depth), given, np.int64) for depth in depths]
    shapes = [_shapes(depth) for depth in depths]
    counts = []
    for number, (depth, own) in enumerate(zip(depths, shapes, strict=True)):
        found = np.zeros(len(depth), np.int64)
        if own is not None:
            rows = np.flatnonzero(_rasters(depth))
            found[rows], *sizes = band_counts(
                home.spans(depth.table, np.arange(len(depth))), rows, progress
            )
            _compare(own[rows], np.stack(sizes, axis=1), f"level {number}", notes)
        counts.append(found)
    for number in reversed(range(len(depths) - 1)):
        above, below = shapes[number : number + 2]
        if above is not None and below is not None:
            parents, first = np.unique(depths[number + 1].parents, return_index=True)
            same = ((above[parents] == below[first]) & (above[parents] != -1)).all(axis=1)
            counts[number][parents[same]] = counts[number + 1][first[same]]
    return counts


def _shapes(depth: Level) -> Ints | None:
    """Rows and columns of each raster as the table has them, -1 where it has not two numbers."""
    if spec.RASTER_SHAPE not in depth.table.column_names:
        return None
    column = integer_lists(flat(depth.table[spec.RASTER_SHAPE]))
    if column is None:
        return None
    pairs = np.asarray(pc.fill_null(pc.equal(pc.list_value_length(column), 2), False), bool)
    values = pc.fill_null(pc.list_flatten(column.filter(pa.array(pairs))), -1)
    found = np.full((len(depth), 2), -1, np.int64)
    found[pairs] = np.asarray(values).reshape(-1, 2)
    return found


def _rasters(depth: Level) -> Any:
    """Which items are files that have a shape."""
    shaped = depth.table[spec.RASTER_SHAPE].is_valid()
    raw = pc.is_in(depth.table[spec.FILE_FORMAT], pa.array([spec.BYTES, spec.TORTILLA]))
    return np.asarray(pc.and_not(shaped, raw))


def _compare(told: Ints, found: Ints, place: str, notes: Notes) -> None:
    """Report rasters whose header has other rows and columns than the table."""
    wrong = (found[:, 0] > 0) & (told != found).any(axis=1)
    if wrong.any() and (told != -1).all():
        message = "is not what the header of the raster says; kept"
        notes.tell("warning", place, spec.RASTER_SHAPE, message, int(np.count_nonzero(wrong)))


def band_counts(spans: Spans, rows: Ints, progress: Progress) -> tuple[Ints, Ints, Ints]:
    """Bands, rows and columns of rasters.

    Parameters
    ----------
    spans
        Where the bytes of all items lie.
    rows
        The items that are asked about.
    progress
        Told how far it is.

    Returns
    -------
    Three arrays like `rows`; 0 where the first bytes do not tell: another format than TIFF, PNG,
    JPEG or JPEG 2000, or a damaged one.
    """
    found = np.zeros((3, len(rows)), np.int64)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        heads = _fetch(spans, some, [(0, _HEAD)] * len(some))
        shapes = [shape_of(head) for head in heads]
        # A directory elsewhere in the file takes one request more.
        again = [n for n, shape in enumerate(shapes) if isinstance(shape, int)]
        if again:
            offsets = [shapes[n] for n in again]
            wanted = [(offset, _DIRECTORY) for offset in offsets if isinstance(offset, int)]
            pieces = _fetch(spans, some[again], wanted)
            for n, piece in zip(again, pieces, strict=True):
                shapes[n] = _tiff_shape(heads[n], piece)
        for n, shape in enumerate(shapes):
            if isinstance(shape, tuple):
                found[:, start + n] = shape
        progress(start + len(some), len(rows), "headers of rasters")
    return found[0], found[1], found[2]


def _fetch(spans: Spans, rows: Ints, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
    """Ranges that count from the beginning of each item, cut at its end."""
    found = [b""] * len(rows)
    by_source: dict[int, list[tuple[int, ByteRange]]] = {}
    for n, (row, (offset, size)) in enumerate(zip(rows.tolist(), wanted, strict=True)):
        size = min(size, int(spans.lengths[row]) - offset)  # noqa: PLW2901 - cut
        if size > 0:
            wanted_range = ByteRange(int(spans.offsets[row]) + offset, size)
            by_source.setdefault(int(spans.source[row]), []).append((n, wanted_range))
    for source, ranges in by_source.items():
        pieces = spans.sources[source].fetch([one for _, one in ranges])
        for (n, _), piece in zip(ranges, pieces, strict=True):
            found[n] = piece.data
    return found


def shape_of(head: bytes) -> Found | int | None:
    """The shape that the first bytes of a raster tell; or where its TIFF directory lies."""
    try:
        if head[:2] in (b"II", b"MM"):
            return _tiff(head)
        if head.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height, _, colour = struct.unpack_from(">IIBB", head, 16)
            return _sound(_PNG_BANDS.get(colour, 0), height, width)
        if head.startswith(b"\xff\xd8\xff"):
            return _jpeg(head)
        if head.startswith((b"\0\0\0\x0cjP  ", b"\xff\x4f\xff\x51")):
            return _jpeg_2000(head)
    except struct.error:
        pass  # cut short
    return None


def _sound(bands: int, rows: int, columns: int) -> Found | None:
    whole = 0 < bands < 65_536 and 0 < rows < 1 << 32 and 0 < columns < 1 << 32
    return (bands, rows, columns) if whole else None


def _tiff(head: bytes) -> Found | int | None:
    order = "<" if head[:2] == b"II" else ">"
    (version,) = struct.unpack_from(order + "H", head, 2)
    if version not in (42, 43):
        return None
    (offset,) = struct.unpack_from(
        order + ("I" if version == 42 else "Q"), head, 4 * (version - 41)
    )
    directory = head[offset:]
    if offset < 8:
        return None
    return _entries(directory, order, version) or int(offset)


def _tiff_shape(head: bytes, directory: bytes) -> Found | None:
    order = "<" if head[:2] == b"II" else ">"
    (version,) = struct.unpack_from(order + "H", head, 2)
    try:
        return _entries(directory, order, version)
    except struct.error:
        return None  # a value of a type that does not fit its place


def _entries(directory: bytes, order: str, version: int) -> Found | None:
    """The shape from a directory, None where it is cut before the tag that tells the bands."""
    count_code, size, start = ("H", 12, 2) if version == 42 else ("Q", 20, 8)
    if len(directory) < start:
        return None
    (count,) = struct.unpack_from(order + count_code, directory)
    tags = {_SAMPLES: 1}  # the value where a baseline TIFF leaves it out
    for n in range(min(count, (len(directory) - start) // size)):
        at = start + n * size
        tag, kind = struct.unpack_from(order + "HH", directory, at)
        if tag in (_WIDTH, _HEIGHT, _SAMPLES) and kind in _INTEGERS:
            (tags[tag],) = struct.unpack_from(
                order + _INTEGERS[kind], directory, at + size // 2 + 2
            )
        if tag >= _SAMPLES:
            return _sound(tags[_SAMPLES], tags.get(_HEIGHT, 0), tags.get(_WIDTH, 0))
    whole = count <= (len(directory) - start) // size
    return _sound(tags[_SAMPLES], tags.get(_HEIGHT, 0), tags.get(_WIDTH, 0)) if whole else None


def _jpeg(head: bytes) -> Found | None:
    at = 2
    while at + 10 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker in _FRAMES:
            rows, columns, bands = struct.unpack_from(">HHB", head, at + 5)
            return _sound(bands, rows, columns)
        (length,) = struct.unpack_from(">H", head, at + 2)
        at += 2 + length
    return None


def _jpeg_2000(head: bytes) -> Found | None:
    if head.startswith(b"\xff\x4f"):  # a bare codestream: the marker SIZ stands first
        right, lower, left, upper = struct.unpack_from(">IIII", head, 8)
        (bands,) = struct.unpack_from(">H", head, 40)
        return _sound(bands, lower - upper, right - left)
    box = head.find(b"ihdr")
    if box < 0:
        return None
    rows, columns, bands = struct.unpack_from(">IIH", head, box + 4)
    return _sound(bands, rows, columns)
