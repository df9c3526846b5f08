"""PMTiles 3 without I/O: directories as columns, and tile ids along Hilbert curves.

The pmtiles library computes one id at a time, decodes a directory to an object per tile, and
decompresses gzip without a limit; a pyramid has millions of tiles.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from comal.errors import (
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    UnsupportedVersionError,
)
from comal.tapalcatl.wire import BASES, Keys

Int64s = npt.NDArray[np.int64]
_BASES = np.array(BASES, np.int64)


def tile_ids(z: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike) -> Int64s:
    """Ids of tiles; the coordinates are numbers or arrays that broadcast to one shape."""
    zs, xs, ys = (np.array(values, np.int64) for values in np.broadcast_arrays(z, x, y))
    along = np.zeros_like(xs)
    for level in range(int(zs.max(initial=0)) - 1, -1, -1):
        side = np.int64(1) << level
        right, down = (xs & side) > 0, (ys & side) > 0
        quarter = (3 * right.astype(np.int64)) ^ down
        along += np.where(level < zs, quarter << (2 * level), 0)
        xs, ys = _turned(side, xs & (side - 1), ys & (side - 1), right, down, zs > level)
    ids: Int64s = _BASES[zs] + along
    return ids


def tiles_of(ids: Int64s) -> Keys:
    """Zooms, columns and rows of ids."""
    z = np.searchsorted(_BASES, ids, side="right") - 1
    left = ids - _BASES[z]
    x, y = np.zeros_like(left), np.zeros_like(left)
    for level in range(int(z.max(initial=0))):
        side = np.int64(1) << level
        right = (left >> 1) & 1
        down = (left & 1) ^ right
        inside = level < z
        x, y = _turned(side, x, y, right > 0, down > 0, inside)
        x += np.where(inside, right << level, 0)
        y += np.where(inside, down << level, 0)
        left >>= 2
    return z.astype(np.int64), x, y


def _turned(
    side: np.int64,
    x: Int64s,
    y: Int64s,
    right: npt.NDArray[np.bool_],
    down: npt.NDArray[np.bool_],
    inside: npt.NDArray[np.bool_],
) -> tuple[Int64s, Int64s]:
    """Mirror the upper quarters, each along its own diagonal."""
    upper = inside & ~down
    flipped = upper & right
    x, y = np.where(flipped, side - 1 - x, x), np.where(flipped, side - 1 - y, y)
    return np.where(upper, y, x), np.where(upper, x, y)


HEADER_SIZE: Final = 127
GZIP: Final = 2
_COMPRESSIONS: Final = 4
_MAGIC, _VERSION = b"PMTiles", 3
_HEADER = struct.Struct("<7sB11Q6B4iB2i")
_FIELDS = (
    "root_offset", "root_length", "metadata_offset", "metadata_length",
    "leaf_directory_offset", "leaf_directory_length", "tile_data_offset", "tile_data_length",
    "addressed_tiles_count", "tile_entries_count", "tile_contents_count",
    "clustered", "internal_compression", "tile_compression", "tile_type", "min_zoom", "max_zoom",
    "min_lon_e7", "min_lat_e7", "max_lon_e7", "max_lat_e7",
    "center_zoom", "center_lon_e7", "center_lat_e7",
)  # fmt: skip
LARGEST: Final = 64 << 20
"""Maximum bytes of a decompressed directory; the pmtiles library writes some 30 KB."""
_LONGEST = 9  # bytes of a number below 2 ** 63


@dataclass(frozen=True, slots=True)
class PMDirectory:
    """Entries by tile id; arrays of shape (n,)."""

    ids: Int64s
    """Id of the first tile of each entry."""
    runs: Int64s
    """Number of consecutive tiles with the same content; 0 points to a leaf directory."""
    lengths: Int64s
    offsets: Int64s

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return 32 * len(self.ids)

    def part(self, start: int, stop: int) -> PMDirectory:
        """Some of the entries."""
        rows = slice(start, stop)
        return PMDirectory(self.ids[rows], self.runs[rows], self.lengths[rows], self.offsets[rows])


def inflated(data: bytes, limit: int, where: str) -> bytes:
    """Decompress gzip; raises `LimitExceededError` if the result is longer than `limit`."""
    stream = zlib.decompressobj(31)
    try:
        result = stream.decompress(data, limit)
    except zlib.error as error:
        raise InvalidMetadataError("gzip is broken", where=where, found=str(error)) from error
    if stream.unconsumed_tail:
        raise LimitExceededError(
            "the data are too large when decompressed", where=where, expected=limit
        )
    if not stream.eof:
        raise InvalidMetadataError("gzip is cut short", where=where)
    return result


def parse_directory(data: bytes, where: str) -> PMDirectory:
    """A directory from its decompressed bytes (PMTiles 3, section 4)."""
    values = _varints(data, where)
    count = int(values[0]) if len(values) else -1
    if count < 0 or len(values) != 1 + 4 * count:
        raise InvalidMetadataError(
            "the directory does not hold what it says",
            where=where,
            found=f"{len(values)} numbers",
            expected=f"{1 + 4 * max(count, 0)}",
        )
    steps, runs, lengths, offsets = values[1:].reshape(4, count)
    ids = np.cumsum(steps)
    if count and (
        (steps[1:] < np.maximum(runs[:-1], 1)).any() or ids[-1] < 0 or steps.max() > ids[-1]
    ):
        raise InvalidMetadataError("the entries are out of order", where=where)
    return PMDirectory(ids, runs, lengths, _offsets(offsets, lengths))


def _varints(data: bytes, where: str) -> Int64s:
    octets = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(octets < 0x80)
    starts = np.empty(len(last), np.int64)
    starts[:1] = 0
    starts[1:] = last[:-1] + 1
    sizes = last - starts + 1
    if (len(last) and sizes.max() > _LONGEST) or (len(octets) and octets[-1] >= 0x80):
        raise InvalidMetadataError("the number is cut short or too large", where=where)
    values = np.zeros(len(last), np.int64)
    for at in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > at)
        values[rows] |= (octets[starts[rows] + at].astype(np.int64) & 0x7F) << (7 * at)
    return values


def _offsets(stored: Int64s, lengths: Int64s) -> Int64s:
    """Decode offsets: a stored 0 means right after the previous entry, others are offset + 1."""
    if not len(stored):
        return stored
    ends = np.cumsum(lengths)
    known = stored > 0
    known[0] = True
    anchor = np.maximum.accumulate(np.where(known, np.arange(len(stored)), 0))
    begin = ends - lengths
    result: Int64s = np.maximum(stored, 1)[anchor] - 1 + begin - begin[anchor]
    return result


def pack_directory(directory: PMDirectory) -> bytes:
    """A directory as gzipped bytes (PMTiles 3, section 4)."""
    steps = np.diff(directory.ids, prepend=0)
    offsets = directory.offsets + 1
    ends = directory.offsets + directory.lengths
    offsets[1:][directory.offsets[1:] == ends[:-1]] = 0
    count = np.array([len(steps)])
    values = np.concatenate([count, steps, directory.runs, directory.lengths, offsets])
    return gzip.compress(_packed(values), mtime=0)


def _packed(values: Int64s) -> bytes:
    """Varints: seven bits per byte, the lowest first."""
    parts = (values[:, None] >> np.arange(0, 7 * _LONGEST, 7)) & 0x7F
    sizes = np.maximum(_LONGEST - np.argmax(parts[:, ::-1] > 0, axis=1), 1)
    sizes[values == 0] = 1
    place = np.arange(_LONGEST)
    octets = parts | np.where(place < sizes[:, None] - 1, 0x80, 0)
    return bytes(octets[place < sizes[:, None]].astype(np.uint8))


def parse_header(data: bytes, where: str) -> dict[str, int]:
    """The header of a file (PMTiles 3, section 3)."""
    if not data.startswith(_MAGIC):
        raise NotThisFormatError("not a PMTiles file", where=where)
    if len(data) < HEADER_SIZE or data[7] != _VERSION:
        raise UnsupportedVersionError(
            "unknown version of PMTiles",
            where=where,
            found=int(data[7]) if len(data) > 7 else None,
            expected="3",
        )
    header = dict(zip(_FIELDS, _HEADER.unpack_from(data)[2:], strict=True))
    if max(header["internal_compression"], header["tile_compression"]) > _COMPRESSIONS:
        raise InvalidMetadataError(
            "the header of PMTiles is broken", where=where, found="unknown compression"
        )
    if header["internal_compression"] not in {1, GZIP}:
        raise UnsupportedVersionError(
            "the directories are compressed by something other than gzip", where=where
        )
    return header


def pack_header(header: Mapping[str, int]) -> bytes:
    """The header as bytes."""
    return _HEADER.pack(_MAGIC, _VERSION, *(header[name] for name in _FIELDS))
