"""Spans of samples, and reading their bytes, verified by the directory and headers of the ZIP.

Existing writers assigned spans to rows by position after sorting folders by name, so that the level
tables of nested ZIPs whose folder ids are not in lexicographic order hold spans of *other* samples.
The central directory is right in all of them, and follows the metadata in the bytes that opening
has fetched anyway. So spans of level 1 and deeper are compared with it before they are used; if
they disagree, the directory wins.

The local header of an entry is right before its bytes, so it is fetched in the same request: its
name, size and checksum reveal a wrong span, an index that is older than its ZIP, and bit rot.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from comal import ziparchive
from comal.errors import InvalidMetadataError, ObjectNotFoundError, counted, shown
from comal.limits import MIB
from comal.plan import ByteRange, Piece, Plan, Wanted, Whole, run
from comal.public import warn
from comal.storage import RangeFile, Source
from comal.taco import spec
from comal.taco.spec import TacoWarning

if TYPE_CHECKING:
    from comal.taco.reading.container import Container
    from comal.taco.reading.level import Level

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_HUGE_DIRECTORY = 8 * MIB
_LOCAL_LENGTHS = struct.Struct("<HH")
_LOCAL_SIZE = 30


@dataclass(frozen=True, slots=True)
class Spans:
    """Right spans of all rows of a level; -1 if the container has no such entry."""

    offsets: Int64s
    sizes: Int64s

    @staticmethod
    def column(values: Int64s, rows: Int64s) -> Any:
        """`values` of some rows as an Arrow array with nulls."""
        chosen = values[rows]
        return pa.array(chosen, pa.int64(), mask=chosen < 0)


def stored_spans(level: Level) -> tuple[Int64s, Int64s]:
    """The spans that a level table holds, checked against the size of the object."""
    table = level.held([spec.OFFSET, spec.SIZE])
    total = None if level.container.is_index else level.container.source.stat().size
    return checked_spans(table.column(spec.OFFSET), table.column(spec.SIZE), total, level.where)


def checked_spans(offsets: Any, sizes: Any, total: int | None, where: str) -> tuple[Int64s, Int64s]:
    """Two Arrow columns as arrays; raises unless all spans are within `total` bytes."""
    starts = spec.int64s(offsets)
    lengths = spec.int64s(sizes)
    limit = np.iinfo(np.int64).max if total is None else total
    if _are_within(starts, lengths, limit):
        return starts, lengths
    bad = (
        (starts < 0) | (lengths < 0) | (starts > limit) | (lengths > limit - np.maximum(starts, 0))
    )
    if bad.any():
        row = int(np.argmax(bad))
        raise InvalidMetadataError(
            "a span lies outside the file",
            where=f"{where}, row {row}",
            found=f"bytes {offsets[row].as_py()}+{sizes[row].as_py()}",
            expected="a span within the file" if total is None else f"a span within {total} bytes",
        )
    return starts, lengths


def _are_within(starts: Int64s, lengths: Int64s, limit: int) -> bool:
    """Whether spans are sound even if the last is the longest: usual, and told without arrays."""
    least = min(int(starts.min(initial=0)), int(lengths.min(initial=0)))
    return least >= 0 and int(starts.max(initial=0)) + int(lengths.max(initial=0)) <= limit


def check_spans(table: Any, container: Container) -> None:
    """Refuse rows whose spans lie outside of the one ZIP that holds them."""
    names = table.column_names
    if spec.OFFSET not in names or spec.SIZE not in names or not table.num_rows:
        return
    offsets, sizes = table.column(spec.OFFSET), table.column(spec.SIZE)
    if pa.types.is_int64(offsets.type) and pa.types.is_int64(sizes.type):
        total = container.source.stat().size
        checked_spans(offsets, sizes, total, f"{container.source.href}: data")


def verified_spans(level: Level) -> Spans | None:
    """Right spans of a level of a ZIP or index; None if the stored ones are right."""
    if level.container.kind == "folder" or level.index == 0 or level.num_rows == 0:
        return None
    offsets, sizes = stored_spans(level)
    ascending = _ascend(level, offsets)
    if level.container.is_index:
        return _verified_parts(level, offsets, sizes, ascending)
    if ascending.all() and _directory_is_far(level):
        return None
    mended = _mended(level, offsets, sizes, np.arange(level.num_rows), None)
    return None if mended is None else Spans(*mended)


def _ascend(level: Level, offsets: Int64s) -> Bools:
    """Per ZIP, whether the offsets of its FILE rows ascend in row order.

    Of the writers with this fault, they ascend in every sound archive and in none with swapped
    spans, which spares fetching a large directory or those of many ZIPs.
    """
    files = ~level.folders
    codes = np.zeros(level.num_rows, np.int64) if level.codes is None else level.codes
    codes, starts = codes[files], offsets[files]
    order = np.argsort(codes, kind="stable")
    codes, starts = codes[order], starts[order]
    falls = (starts[1:] < starts[:-1]) & (codes[1:] == codes[:-1])
    result = np.ones(max(1, len(level.source_codes)), np.bool_)
    result[codes[1:][falls]] = False
    return result


def _directory_is_far(level: Level) -> bool:
    """Whether the directory is large, remote and not yet fetched by opening."""
    container = level.container
    header = container.opened.header
    if header is None or "://" not in container.source.href:
        return False
    size = container.source.stat().size - header.collection.end
    return size > _HUGE_DIRECTORY and not any(
        piece.holds(header.collection.end, size) for piece in container.opened.pieces
    )


def _verified_parts(level: Level, offsets: Int64s, sizes: Int64s, ascending: Bools) -> Spans | None:
    names = list(level.source_codes)
    changed = False
    for code in np.flatnonzero(~ascending).tolist():
        rows = np.flatnonzero(level.codes == code)
        try:
            mended = _mended(level, offsets, sizes, rows, names[code])
        except ObjectNotFoundError:
            # An index can be queried without its ZIPs; reading a sample then raises.
            continue
        if mended is not None:
            if not changed:
                offsets, sizes, changed = offsets.copy(), sizes.copy(), True
            offsets[rows], sizes[rows] = mended
    return Spans(offsets, sizes) if changed else None


def _mended(
    level: Level, offsets: Int64s, sizes: Int64s, rows: Int64s, source_file: str | None
) -> tuple[Int64s, Int64s] | None:
    """Right spans of some rows of one ZIP; None if all stored ones are right."""
    directory = level.container.directory(source_file)
    names = entry_names(level.paths(), level.folders).take(pa.array(rows))
    places = directory.find_many(names)
    directory.warn_of_twins(places, TacoWarning)
    starts, slack = entry_spans(directory)
    if not len(starts):
        raise InvalidMetadataError(
            "the ZIP directory is empty", where=level.where, expected=counted(len(rows), "sample")
        )
    wrong = ~_agree(offsets[rows], sizes[rows], places, starts, slack, directory.csize)
    if not wrong.any():
        return None
    plan = payloads_plan(directory, places[wrong], starts, slack)
    right = offsets[rows].copy(), sizes[rows].copy()
    right[0][wrong] = run(plan, level.container.part(source_file).fetch)
    right[1][wrong] = np.where(places[wrong] < 0, -1, directory.csize[places[wrong]])
    first = int(np.argmax(wrong))
    warn(
        f"{level.where}: {int(wrong.sum())} of {len(rows)} spans are not those of their samples "
        f"(first: {names[first].as_py()!a}); the ZIP directory is used instead. "
        "'comal check --repair' writes a mended copy",
        TacoWarning,
    )
    return right


def entry_names(paths: Any, folders: Bools) -> Any:
    """The names of ZIP entries for paths below DATA/; for a FOLDER its ``__meta__`` (6.2)."""
    tails = pc.if_else(pa.array(folders), "/" + spec.META, "")
    return pc.binary_join_element_wise(spec.DATA, paths, tails, "")


def entry_spans(directory: Any) -> tuple[Int64s, Int64s]:
    """Per entry the earliest start of its payload, and by how many bytes it may start later.

    A local header may hold an extra field that the directory lacks, such as one that aligns the
    payload; the gap before the next entry limits its size.
    """
    starts = np.asarray(directory.payload_offsets, np.int64)
    heads = np.sort(np.append(np.asarray(directory.header_offset, np.int64), directory.start))
    following = heads[np.searchsorted(heads, directory.header_offset, side="right")]
    return starts, np.clip(following - starts - directory.csize, 0, 0xFFFF)


def _agree(
    offsets: Int64s, sizes: Int64s, places: Int64s, starts: Int64s, slack: Int64s, csize: Int64s
) -> Bools:
    if not len(starts):
        return np.zeros(len(offsets), np.bool_)
    at = np.maximum(places, 0)
    shift = offsets - starts[at]
    result: Bools = (places >= 0) & (sizes == csize[at]) & (shift >= 0) & (shift <= slack[at])
    return result


def payloads_plan(directory: Any, places: Int64s, starts: Int64s, slack: Int64s) -> Plan[Int64s]:
    """Offsets of payloads; lengths in local headers are fetched if they are in doubt."""
    found = np.where(places < 0, -1, starts[np.maximum(places, 0)])
    doubtful = np.flatnonzero((places >= 0) & (slack[np.maximum(places, 0)] > 0))
    if not len(doubtful):
        return found
    heads = np.asarray(directory.header_offset, np.int64)[places[doubtful]]
    pieces = yield [ByteRange(head + 26, _LOCAL_LENGTHS.size) for head in heads.tolist()]
    lengths = [sum(_LOCAL_LENGTHS.unpack(piece.data)) for piece in pieces]
    found[doubtful] = heads + _LOCAL_SIZE + np.array(lengths, np.int64)
    return found


# -- bytes of samples ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaf:
    """The location of one sample's bytes."""

    container: Container
    source_file: str | None
    """The ZIP with the sample, if the container is an index."""
    path: str
    """Path below DATA/."""
    offset: int = 0
    size: int = -1
    """-1 in a folder, where the size is that of the file."""

    @property
    def entry(self) -> str:
        """The name of the ZIP entry, or the path of the file in the folder."""
        return spec.DATA + self.path

    @property
    def source(self) -> Source:
        """The object that holds the bytes, or the folder."""
        return self.container.part(self.source_file)

    @property
    def where(self) -> str:
        """The name and span of the leaf, for messages."""
        span = "" if self.size < 0 else f" (bytes {self.offset}+{self.size})"
        return f"sample {shown(self.path)} in {self.source.href}{span}"

    def vsi(self) -> str:
        """The GDAL path of the leaf."""
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
        """A seekable binary file over the bytes; call it on the result of `checked`."""
        if self.size < 0:
            return self.source.file(self.entry)
        return self.source.file("", self.offset, self.size)

    def checked(self) -> Leaf:
        """The leaf with a right span, verified by its local header."""
        return self if self.size < 0 else run(_checked_plan(self), self.source.fetch)

    def before(self) -> ByteRange:
        """The range before the bytes that holds their local header."""
        size = min(self.offset, ziparchive.prefix_size(len(self.entry.encode())))
        return ByteRange(self.offset - size, size)


def read_leaves(leaves: Sequence[Leaf], *, verify: bool = True) -> list[bytes]:
    """The bytes of leaves, in order; adjacent ones share one request.

    Wrong spans are replaced by those of the directory; `verify` compares checksums.
    """
    groups: dict[tuple[int, str | None], list[int]] = {}
    for row, leaf in enumerate(leaves):
        groups.setdefault((id(leaf.container), leaf.source_file), []).append(row)
    results = [b""] * len(leaves)
    for rows in groups.values():
        plan = leaves_plan([leaves[row] for row in rows], verify=verify)
        for row, data in zip(rows, run(plan, leaves[rows[0]].source.fetch), strict=True):
            results[row] = data
    return results


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
    """The leaf's bytes, or None if they do not follow its local header."""
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
    """The leaves with spans from the central directory."""
    container, source_file = leaves[0].container, leaves[0].source_file
    if source_file is None:
        directory = container.directory()
    else:
        directory = yield from ziparchive.directory_plan(limits=container.limits)
    places = directory.find_many(pa.array([leaf.entry for leaf in leaves], pa.string()))
    for row in np.flatnonzero(places < 0)[:1].tolist():
        raise _not_there(leaves[row])
    directory.warn_of_twins(places, TacoWarning)
    offsets = yield from payloads_plan(directory, places, *entry_spans(directory))
    mended = []
    for leaf, place, offset in zip(leaves, places.tolist(), offsets.tolist(), strict=True):
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
        found="no local header of that name and size before the span",
        expected=f"entry {shown(leaf.entry)}",
        hint="'comal check' lists what else is wrong",
    )


def _checked_plan(leaf: Leaf) -> Plan[Leaf]:
    (piece,) = yield [leaf.before()]
    if _header(leaf, piece.data) is not None:
        return leaf
    (mended,) = yield from _relocated([leaf])
    return mended
