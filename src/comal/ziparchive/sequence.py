"""A central directory gone through in blocks, for archives whose entries are compared once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from comal.errors import InvalidMetadataError
from comal.plan import ByteRange, Piece, run
from comal.ziparchive import parse
from comal.ziparchive.directory import Directory, parse_directory
from comal.ziparchive.end import find_end

_BLOCK = 4 << 20
_TAIL = 65_536 + 98
"""The longest comment and the end records in front of it."""
_HEADER = 46 + 3 * 65_535
"""The longest header."""


def entry_blocks(
    fetch: Callable[[Sequence[Any]], list[Piece]], where: str = "archive", block: int = _BLOCK
) -> Iterator[Directory]:
    """The entries of an archive in the order of its directory, some of them at a time.

    Parameters
    ----------
    fetch
        Gives ranges of the archive.
    where
        What errors call it.
    block
        Bytes of the directory that are held at once, at least one header.

    Raises
    ------
    NotThisFormatError
        No end record.
    InvalidMetadataError
        The end record, the directory or an entry contradicts the archive. Entries of different
        blocks that overlap are not found.
    """
    end, _ = run(find_end("", _TAIL, (), where), fetch)
    position, count, left = end.start, 0, b""
    while position < end.stop:
        size = min(max(block, _HEADER), end.stop - position)
        (piece,) = fetch([ByteRange(position, size)])
        position += size
        data = left + piece.data
        whole = parse.whole_size(data, where)
        left = data[whole:]
        starts, _ = parse.headers(data[:whole], where)
        yield parse_directory(data[:whole], replace(end, count=len(starts)), where)
        count += len(starts)
    if left or count != end.count:
        raise InvalidMetadataError(
            "end record and directory disagree about the number of entries",
            where=where,
            found=f"{count} entries",
            expected=f"{end.count}",
        )
