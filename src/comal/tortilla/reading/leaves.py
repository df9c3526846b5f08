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

from comal.errors import ComalError
from comal.limits import MIB
from comal.plan import ByteRange, Piece
from comal.storage import RangeFile
from comal.tortilla.reading.home import Home
from comal.tortilla.reading.together import settled, together, together_async

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


def read_leaves(home: Home, leaves: Sequence[Leaf], kept: Sequence[Piece] = ()) -> list[bytes]:
    """The bytes of items, in order; one round trip."""
    groups = _groups(home, leaves, kept)
    jobs = [
        lambda part=part, rows=rows: home.parts[part].source.fetch(_ranges(leaves, rows))
        for part, rows in groups.items()
    ]
    return _dealt(leaves, kept, groups, together(jobs, remote=home.is_remote))


async def read_leaves_async(
    home: Home, leaves: Sequence[Leaf], kept: Sequence[Piece] = ()
) -> list[bytes]:
    """As `read_leaves`, without blocking the event loop."""
    groups = _groups(home, leaves, kept)
    jobs = [
        lambda part=part, rows=rows: home.parts[part].source.fetch_async(_ranges(leaves, rows))
        for part, rows in groups.items()
    ]
    return _dealt(leaves, kept, groups, await together_async(jobs))


def _groups(home: Home, leaves: Sequence[Leaf], kept: Sequence[Piece]) -> dict[int, list[int]]:
    """The rows that must be fetched, by part."""
    groups: dict[int, list[int]] = {}
    largest = None
    for row, leaf in enumerate(leaves):
        if largest is None or leaf.size > largest.size:
            largest = leaf
        if not kept or _held(leaf, kept) is None:
            rows = groups.get(leaf.part)
            if rows is None:
                rows = groups[leaf.part] = []
            rows.append(row)
    if largest is not None:
        home.limits.check("leaf_bytes", largest.size, where_of(home, largest))
    return groups


def _held(leaf: Leaf, kept: Sequence[Piece]) -> bytes | None:
    for piece in kept:
        if piece.holds(leaf.offset, leaf.size):
            return piece.slice(leaf.offset, leaf.size)
    return None


def _ranges(leaves: Sequence[Leaf], rows: Sequence[int]) -> list[ByteRange]:
    return [ByteRange(leaves[row].offset, leaves[row].size) for row in rows]


def _dealt(
    leaves: Sequence[Leaf],
    kept: Sequence[Piece],
    groups: dict[int, list[int]],
    fetched: Sequence[list[Piece] | ComalError],
) -> list[bytes]:
    answers = settled(fetched)
    if len(answers) == 1 and len(answers[0]) == len(leaves):
        return [piece.data for piece in answers[0]]
    found: dict[int, bytes] = {}
    for rows, pieces in zip(groups.values(), answers, strict=True):
        found.update((row, piece.data) for row, piece in zip(rows, pieces, strict=True))
    return [
        found[row] if row in found else _held(leaf, kept) or b"" for row, leaf in enumerate(leaves)
    ]


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
