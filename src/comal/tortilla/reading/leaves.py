"""The bytes of items: exact ranges, neighbours together.

The specification advises one request with many ranges ("Why am I not getting expected performance
in online mode"). Its example is malformed, servers that follow RFC 9110 answer it with the whole
object, and object stores know single ranges only. So ranges that lie close together are merged, and
the rest go out side by side as single ranges, which every server knows and which take the same one
round trip. Where there are more than go out at once, the storage asks for many in one request, as
RFC 9110 writes it, of servers that have shown that they answer so (`comal.storage.multirange`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError
from comal.limits import MIB
from comal.plan import Piece
from comal.storage import RangeFile
from comal.tortilla.reading.home import Home, settled, together, together_async

Ints = npt.NDArray[np.int64]

_BLOCK = 4 * MIB


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where the bytes of one item lie."""

    part: int
    """Position of the file in its set."""
    offset: int
    """Where they start in the file."""
    size: int
    format: str = ""
    """What the footer says they are."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """Where the bytes of many items lie, as columns."""

    parts: Ints
    offsets: Ints
    sizes: Ints

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of(cls, leaves: Sequence[Leaf]) -> Leaves:
        """Some leaves one by one."""
        rows = [(leaf.part, leaf.offset, leaf.size) for leaf in leaves]
        return cls(*np.array(rows, np.int64).reshape(-1, 3).T)


def read_leaf(home: Home, leaf: Leaf) -> bytes:
    """The bytes of one item."""
    return read_leaves(home, Leaves.of([leaf]))[0]


def read_leaves(home: Home, leaves: Leaves, kept: Sequence[Piece] = ()) -> list[bytes]:
    """The bytes of items, in order; one round trip."""
    groups = _groups(home, leaves, kept)
    jobs = [
        lambda part=part, rows=rows: home.parts[part].source.fetch_spans(
            leaves.offsets[rows], leaves.sizes[rows]
        )
        for part, rows in groups
    ]
    return _dealt(leaves, kept, groups, together(jobs, remote=home.is_remote))


async def read_leaves_async(home: Home, leaves: Leaves, kept: Sequence[Piece] = ()) -> list[bytes]:
    """As `read_leaves`, without blocking the event loop."""
    groups = _groups(home, leaves, kept)
    jobs = [
        lambda part=part, rows=rows: home.parts[part].source.fetch_spans_async(
            leaves.offsets[rows], leaves.sizes[rows]
        )
        for part, rows in groups
    ]
    return _dealt(leaves, kept, groups, await together_async(jobs))


def _groups(home: Home, leaves: Leaves, kept: Sequence[Piece]) -> list[tuple[int, Ints]]:
    """The rows that must be fetched, by part."""
    if not len(leaves):
        return []
    largest = int(leaves.sizes.argmax())
    size = int(leaves.sizes[largest])
    if size > home.limits.leaf_bytes:
        leaf = Leaf(int(leaves.parts[largest]), int(leaves.offsets[largest]), size)
        home.limits.check("leaf_bytes", size, where_of(home, leaf))
    missing = np.ones(len(leaves), bool)
    for piece in kept:
        missing &= ~_holds(piece, leaves)
    rows = np.flatnonzero(missing)
    parts = leaves.parts[rows]
    return [(part, rows[parts == part]) for part in np.unique(parts).tolist()]


def _holds(piece: Piece, leaves: Leaves) -> npt.NDArray[np.bool_]:
    return (piece.offset <= leaves.offsets) & (leaves.offsets + leaves.sizes <= piece.end)


def _dealt(
    leaves: Leaves,
    kept: Sequence[Piece],
    groups: Sequence[tuple[int, Ints]],
    fetched: Sequence[list[bytes] | ComalError],
) -> list[bytes]:
    answers = settled(fetched)
    if len(answers) == 1 and len(answers[0]) == len(leaves):
        return answers[0]
    found = [b""] * len(leaves)
    for piece in kept:
        for row in np.flatnonzero(_holds(piece, leaves)).tolist():
            found[row] = piece.slice(int(leaves.offsets[row]), int(leaves.sizes[row]))
    for (_, rows), answer in zip(groups, answers, strict=True):
        for row, data in zip(rows.tolist(), answer, strict=True):
            found[row] = data
    return found


def leaf_file(home: Home, leaf: Leaf) -> RangeFile:
    """A seekable binary file over the bytes of one item."""
    return home.parts[leaf.part].source.file("", leaf.offset, leaf.size)


def leaf_blocks(home: Home, leaf: Leaf) -> Iterator[bytes]:
    """The bytes of one item in blocks of 4 MiB."""
    with leaf_file(home, leaf) as file:
        while block := file.read(_BLOCK):
            yield block


def where_of(home: Home, leaf: Leaf) -> str:
    """How messages call the bytes of an item."""
    return f"{home.where(leaf.part)} (bytes {leaf.offset}+{leaf.size})"
