"""Directories of PMTiles as columns.

The library of that format decodes a directory to an object per tile, number by number, and takes
gzip without a limit. Here the numbers of a directory are found all at once.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidMetadataError, LimitExceededError

Int64s = npt.NDArray[np.int64]

LARGEST: Final = 64 << 20
"""Bytes of a directory that is taken, decompressed; the library writes some 30 KB."""
_LONGEST = 9  # bytes of a number below 2 ** 63


@dataclass(frozen=True, slots=True)
class PMDirectory:
    """Entries by tile id; arrays of shape (n,)."""

    ids: Int64s
    """The first tile of each."""
    runs: Int64s
    """Tiles of each that have one content; 0 for an entry that leads to a leaf directory."""
    lengths: Int64s
    offsets: Int64s

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return 32 * len(self.ids)


def inflated(data: bytes, limit: int, where: str) -> bytes:
    """Gzip undone, unless it becomes longer than `limit`."""
    stream = zlib.decompressobj(31)
    try:
        result = stream.decompress(data, limit)
    except zlib.error as error:
        raise InvalidMetadataError("gzip is broken", where=where, found=str(error)) from error
    if stream.unconsumed_tail:
        raise LimitExceededError("too large when decompressed", where=where, expected=limit)
    if not stream.eof:
        raise InvalidMetadataError("gzip is cut short", where=where)
    return result


def parse_directory(data: bytes, where: str) -> PMDirectory:
    """A directory from its bytes without compression (PMTiles 3, section 4).

    Raises
    ------
    InvalidMetadataError
        Numbers that are missing, too large, or out of order.
    """
    values = _varints(data, where)
    count = int(values[0]) if len(values) else -1
    if count < 0 or len(values) != 1 + 4 * count:
        raise InvalidMetadataError(
            "directory does not hold what it says",
            where=where,
            found=f"{len(values)} numbers",
            expected=f"{1 + 4 * max(count, 0)}",
        )
    steps, runs, lengths, offsets = values[1:].reshape(4, count)
    ids = np.cumsum(steps)
    if count and (
        (steps[1:] < np.maximum(runs[:-1], 1)).any() or ids[-1] < 0 or steps.max() > ids[-1]
    ):
        raise InvalidMetadataError("entries are out of order", where=where)
    return PMDirectory(ids, runs, lengths, _offsets(offsets, lengths))


def _varints(data: bytes, where: str) -> Int64s:
    octets = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(octets < 0x80)
    starts = np.empty(len(last), np.int64)
    starts[:1] = 0
    starts[1:] = last[:-1] + 1
    sizes = last - starts + 1
    if (len(last) and sizes.max() > _LONGEST) or (len(octets) and octets[-1] >= 0x80):
        raise InvalidMetadataError("number is cut short or too large", where=where)
    values = np.zeros(len(last), np.int64)
    for at in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > at)
        values[rows] |= (octets[starts[rows] + at].astype(np.int64) & 0x7F) << (7 * at)
    return values


def _offsets(stored: Int64s, lengths: Int64s) -> Int64s:
    """A stored 0 stands for 'right behind the entry before', others are one more than they say."""
    if not len(stored):
        return stored
    ends = np.cumsum(lengths)
    known = stored > 0
    known[0] = True
    anchor = np.maximum.accumulate(np.where(known, np.arange(len(stored)), 0))
    begin = ends - lengths
    result: Int64s = np.maximum(stored, 1)[anchor] - 1 + begin - begin[anchor]
    return result
