"""Many tiles of local archives: archives and entries are found with arrays, a block at a time.

Of a tile that lies in its archive as it is, a block says what one read needs; everything else is
left to those who read tiles one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from isal.isal_zlib import crc32

from comal.tapalcatl.reading.archives import Archives, OpenArchive
from comal.tapalcatl.reading.index import Fields
from comal.tapalcatl.reading.places import Locator
from comal.tapalcatl.reading.tile import entry_name
from comal.tapalcatl.wire import Int64s, key_tile
from comal.ziparchive import STORE
from comal.ziparchive.wire import LOCAL_SIZE

ABSENT: Final = -2
"""Of a tile that the tileset cannot have or whose archive is not there."""
UNSURE: Final = -1
"""Of a tile that must be looked for by itself."""
_BLOCK: Final = 4_096
_MOST_ARCHIVES: Final = 32
"""Archives of one block, which stay open as long as it is read."""
_LEAST_TILES: Final = 8
"""Tiles of an archive in one block from which on arrays are faster."""


@dataclass(slots=True)
class Block:
    """Some tiles, in the order asked for. Lists, as each is looked at once and by itself."""

    places: list[tuple[int, int, int]]
    """Zoom, column and row."""
    keys: list[int]
    """The `tile_key` of each entry."""
    numbers: list[int]
    """The number of the record in its archive's index, `ABSENT` or `UNSURE`."""
    owners: list[int]
    """Which of `archives` it is in."""
    starts: list[int]
    """Where the bytes of a tile begin; -1 where its local header has to be read for that."""
    heads: list[int]
    """Bytes of local header and name in front of that."""
    sizes: list[int]
    crcs: list[int]
    times: list[int]
    """Seconds since 1970, 0 where nothing is said."""
    archives: list[OpenArchive]
    reads: list[Callable[[int, int], bytes]]
    """How each archive is read."""
    suffixes: list[str]
    """What the names of the tiles of each archive end with."""

    def data(self, at: int, *, verify: bool) -> bytes | None:
        """The bytes of a tile by one read; None where there is more to do, or to find out.

        With `verify` the local header must hold the name of this tile, and the checksum be right.
        """
        start = self.starts[at]
        if start < 0:
            return None
        read, size = self.reads[self.owners[at]], self.sizes[at]
        if not verify:
            return read(start, size)
        head, name = self.heads[at], entry_name(self.keys[at], self.suffixes[self.owners[at]])
        data = read(start - head, head + size)
        if LOCAL_SIZE + len(name) != head or not data.startswith(name, LOCAL_SIZE):
            return None
        data = data[head:]
        return data if crc32(data) == self.crcs[at] else None

    def found(self, at: int) -> tuple[OpenArchive, Fields, bytes | None, str, int]:
        """Archive, record, comment, suffix and key of a tile."""
        owner = self.owners[at]
        archive = self.archives[owner]
        fields, comment = archive.index.record(self.numbers[at])
        return archive, fields, comment, self.suffixes[owner], self.keys[at]


def blocks(
    rows: Int64s,
    size: int | None,
    locator: Locator,
    archives: Archives,
    suffix_in: Callable[[OpenArchive], str | None],
    most: int,
) -> Iterator[Block]:
    """Tiles of shape (n, 3) as blocks that cover them in order; archives are opened on the way.

    Parameters
    ----------
    size
        See `TileSet.tile`.
    suffix_in
        The suffix that is asked for in an archive.
    most
        Bytes that a tile may have.
    """
    for at in range(0, len(rows), _BLOCK):
        part = rows[at : at + _BLOCK]
        roots, keys = locator.find_many(part, size)
        yield _found(part, roots, keys, archives, suffix_in, most)


def _found(
    rows: Int64s,
    roots: Int64s,
    keys: Int64s,
    archives: Archives,
    suffix_in: Callable[[OpenArchive], str | None],
    most: int,
) -> Block:
    numbers = np.where(roots < 0, ABSENT, UNSURE)
    owners, starts = np.zeros(len(rows), np.int64), np.full(len(rows), -1, np.int64)
    told = np.zeros((4, len(rows)), np.int64)
    opened: list[OpenArchive] = []
    reads: list[Callable[[int, int], bytes]] = []
    suffixes: list[str] = []
    for root in _often(roots):
        mine = np.flatnonzero(roots == root)
        archive = archives.get(key_tile(root))
        if archive is None:
            numbers[mine] = ABSENT
            continue
        suffix = suffix_in(archive)
        found = None if suffix is None else archive.index.numbers(suffix, keys[mine])
        if suffix is None or found is None or archive.file is None:
            continue
        there = found >= 0
        mine = mine[there]
        numbers[mine], owners[mine] = found[there], len(opened)
        starts[mine], told[:, mine] = _told(archive, found[there], most)
        opened.append(archive)
        reads.append(archive.file.read)
        suffixes.append(suffix)
    heads, sizes, crcs, times = told.tolist()
    return Block(
        [(z, x, y) for z, x, y in rows.tolist()],
        keys.tolist(),
        numbers.tolist(),
        owners.tolist(),
        starts.tolist(),
        heads,
        sizes,
        crcs,
        times,
        opened,
        reads,
        suffixes,
    )


def _often(roots: Int64s) -> list[int]:
    """Roots of the archives that hold many of these tiles."""
    found, counts = np.unique(roots[roots >= 0], return_counts=True)
    best = np.argsort(-counts, kind="stable")[:_MOST_ARCHIVES]
    often: list[int] = found[best[counts[best] >= _LEAST_TILES]].tolist()
    return often


def _told(archive: OpenArchive, numbers: Int64s, most: int) -> tuple[Int64s, Any]:
    """Where tiles begin that are stored as they are, else -1; heads, sizes, checksums and times."""
    index = archive.index
    records = index.table[numbers]
    span = records["span"].astype(np.int64)
    csize = records["csize"].astype(np.int64)
    heads = LOCAL_SIZE + records["name_size"].astype(np.int64)
    # As `TileSet.tile` has it: nothing but the name fits between local header and payload.
    plain = (records["method"] == STORE) & (records["csize"] == records["size"])
    plain &= (csize <= most) & (span - csize == heads)
    if index.comments:
        plain &= ~np.isin(numbers, list(index.comments))
    starts = np.where(plain, records["offset"].astype(np.int64) + span - csize, -1)
    return starts, (heads, csize, records["crc"], records["modified"])
