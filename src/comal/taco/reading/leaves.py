"""Reading samples by byte range, each checked against what the container says of it.

In a ZIP the local header of an entry stands right before its bytes, so it comes along in the same
request: name, size and checksum show a wrong span, an index that is older than its ZIP and rot of
the storage, without any request more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from isal import isal_zlib

from comal import ziparchive
from comal.errors import InvalidMetadataError, shown
from comal.plan import ByteRange, Piece, Plan, Wanted, Whole, run
from comal.public import warn
from comal.storage import RangeFile, Source
from comal.taco import spec
from comal.taco.reading.spans import entry_spans
from comal.taco.spec import TacoWarning

if TYPE_CHECKING:
    from comal.taco.reading.container import Container

_HEADER = 30


@dataclass(frozen=True, slots=True)
class Leaf:
    """One sample's bytes."""

    container: Container
    source_file: str | None
    """The ZIP of an index that holds it."""
    path: str
    """Path below DATA/."""
    offset: int = 0
    size: int = -1
    """-1 in a folder, where the file itself says how long it is."""

    @property
    def entry(self) -> str:
        """The name of the ZIP entry, or of the file relative to the container."""
        return spec.DATA + self.path

    @property
    def source(self) -> Source:
        """The object that holds the bytes, or the folder."""
        return self.container.part(self.source_file)

    @property
    def where(self) -> str:
        """The leaf as messages call it."""
        span = "" if self.size < 0 else f" (bytes {self.offset}+{self.size})"
        return f"sample {shown(self.path)} in {self.source.href}{span}"

    def vsi(self) -> str:
        """The path by which GDAL opens it."""
        if self.size < 0:
            return self.source.vsi(self.entry)
        return f"/vsisubfile/{self.offset}_{self.size},{self.source.vsi()}"

    def wanted(self) -> Wanted:
        """The range with the bytes and, in a ZIP, the local header before them."""
        if self.size < 0:
            return Whole(self.container.limits.leaf_bytes, self.entry)
        self.container.limits.check("leaf_bytes", self.size, self.where)
        before = self.before()
        return ByteRange(before.offset, before.size + self.size)

    def file(self) -> RangeFile:
        """A seekable binary file over the bytes, as `checked` found them to lie."""
        if self.size < 0:
            return self.source.file(self.entry)
        return self.source.file("", self.offset, self.size)

    def checked(self) -> Leaf:
        """The leaf with a right span: its local header is read and compared."""
        return self if self.size < 0 else run(_checked_plan(self), self.source.fetch)

    def before(self) -> ByteRange:
        """The range before the bytes that holds their local header."""
        size = min(self.offset, ziparchive.prefix_size(len(self.entry.encode())))
        return ByteRange(self.offset - size, size)


def read_leaves(leaves: Sequence[Leaf], *, verify: bool = True) -> list[bytes]:
    """The bytes of leaves, in order; neighbours come in one request.

    Raises
    ------
    InvalidMetadataError
        A span is not that of the sample and the directory does not know it, or with `verify` a
        checksum is wrong.
    """
    results: list[bytes | None] = [None] * len(leaves)
    for source, rows in _by_source(leaves):
        found = run(leaves_plan([leaves[row] for row in rows], verify=verify), source.fetch)
        for row, data in zip(rows, found, strict=True):
            results[row] = data
    return [data for data in results if data is not None]


def _by_source(leaves: Sequence[Leaf]) -> Iterable[tuple[Source, list[int]]]:
    groups: dict[tuple[int, str | None], list[int]] = {}
    for row, leaf in enumerate(leaves):
        groups.setdefault((id(leaf.container), leaf.source_file), []).append(row)
    return [(leaves[rows[0]].source, rows) for rows in groups.values()]


def leaves_plan(leaves: Sequence[Leaf], *, verify: bool = True) -> Plan[list[bytes]]:
    """Fetch leaves of one object, or of one folder.

    Spans that turn out to be wrong are looked up in the central directory and fetched again.
    """
    pieces = yield [leaf.wanted() for leaf in leaves]
    found = [
        _payload(leaf, piece, verify=verify) for leaf, piece in zip(leaves, pieces, strict=True)
    ]
    lost = [row for row, data in enumerate(found) if data is None]
    if lost:
        mended = yield from _relocated([leaves[row] for row in lost])
        again = yield [leaf.wanted() for leaf in mended]
        for row, leaf, piece in zip(lost, mended, again, strict=True):
            found[row] = _payload(leaf, piece, verify=verify)
            if found[row] is None:
                raise _not_there(leaves[row])
    return [data for data in found if data is not None]


def _payload(leaf: Leaf, piece: Piece, *, verify: bool) -> bytes | None:
    """The leaf's bytes, or None when what stands before them is not its local header."""
    if leaf.size < 0:
        return piece.data
    before = leaf.offset - piece.offset
    header = _header(leaf, piece.data[:before])
    if header is None:
        return None
    data = piece.data[before:]
    if verify and not header.deferred and isal_zlib.crc32(data) != header.crc:
        raise InvalidMetadataError(
            "checksum mismatch",
            where=leaf.where,
            found=f"crc {isal_zlib.crc32(data):08x}",
            expected=f"{header.crc:08x}",
            hint="the file is damaged; fetch it again",
        )
    return data


def _header(leaf: Leaf, before: bytes) -> ziparchive.LocalHeader | None:
    try:
        return ziparchive.local_before(before, leaf.entry, leaf.size, where=leaf.source.href)
    except InvalidMetadataError:
        return None


def _relocated(leaves: Sequence[Leaf]) -> Plan[list[Leaf]]:
    """The leaves with the spans that the central directory gives them."""
    container, source_file = leaves[0].container, leaves[0].source_file
    if source_file is None:
        directory = container.directory()
    else:
        directory = yield from ziparchive.directory_plan(limits=container.limits)
    starts, slack = entry_spans(directory)
    mended = []
    for leaf in leaves:
        place = directory.find(leaf.entry)
        if place < 0:
            raise _not_there(leaf)
        directory.warn_of_twins(np.array([place]), TacoWarning)
        offset = int(starts[place])
        if slack[place]:
            (lengths,) = yield [ByteRange(int(directory.header_offset[place]) + 26, 4)]
            sizes = np.frombuffer(lengths.data, "<u2")
            offset = int(directory.header_offset[place]) + _HEADER + int(sizes.sum())
        right = replace(leaf, offset=offset, size=int(directory.csize[place]))
        if right == leaf or directory.method[place] != ziparchive.STORE:
            raise _not_there(leaf)
        mended.append(right)
    warn(
        f"{leaves[0].where}: the span is not that of the sample; the ZIP directory is used instead",
        TacoWarning,
    )
    return mended


def _not_there(leaf: Leaf) -> InvalidMetadataError:
    return InvalidMetadataError(
        "the span is not that of the sample",
        where=leaf.where,
        found="no local header of that name and size before it",
        expected=f"entry {shown(leaf.entry)}",
        hint="'comal check' lists what else is wrong",
    )


def _checked_plan(leaf: Leaf) -> Plan[Leaf]:
    (piece,) = yield [leaf.before()]
    if _header(leaf, piece.data) is not None:
        return leaf
    (mended,) = yield from _relocated([leaf])
    return mended
