"""The central directory of an archive: columns of its entries, and the plan that fetches it.

Headers form a chain, since each gives the start of the next. All positions with the signature are
candidates; if each candidate ends where the next begins, from the first byte to the last, the
candidates are the chain. Only if a name or comment also holds the signature is the chain followed
entry by entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidMetadataError, Problem, counted, shown
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import cached_property
from comal.plan import ByteRange, Piece, Plan, read_span, run
from comal.public import warn
from comal.ziparchive import wire
from comal.ziparchive.end import End, find_end

MAX_PROBLEMS = 1_000
_MARK = wire.CENTRAL_SIGNATURE.to_bytes(4, "little")


def headers(
    data: bytes, where: str, known: npt.NDArray[Any] | None = None
) -> tuple[wire.Int64s, wire.Records]:
    """All headers of a central directory; `known` are their starts, if `chain` has found them."""
    if known is not None:
        starts: wire.Int64s = known.astype(np.int64)
        return starts, records_at(data, starts)
    found = chain(data)
    if found is not None and found[2] == len(data):
        return found[:2]
    starts, position = _walk(data)
    if position != len(data):
        raise InvalidMetadataError(
            "the central directory is broken",
            where=f"{where}, byte {position} of the directory, entry {len(starts)}",
            found="no header that ends inside the directory",
            expected=f"headers that fill {len(data)} bytes exactly",
        )
    return starts, records_at(data, starts)


def chain(data: bytes) -> tuple[wire.Int64s, wire.Records, int] | None:
    """All headers whose fixed parts are complete, and where the last one ends.

    None if their signature also occurs elsewhere.
    """
    starts = _candidates(data)
    starts = starts[starts + wire.CENTRAL_SIZE <= len(data)]
    records = records_at(data, starts)
    ends = starts + _lengths(records)
    if len(starts) and starts[0] == 0 and (ends[:-1] == starts[1:]).all():
        return starts, records, int(ends[-1])
    return None


def whole_size(data: bytes, where: str) -> int:
    """Size of the complete headers at the beginning of a part of a directory."""
    found = chain(data)
    if found is not None:
        starts, _, end = found
        return end if end <= len(data) else int(starts[-1])
    _, position = _walk(data)
    left = data[position : position + wire.CENTRAL_SIZE]
    if len(left) == wire.CENTRAL_SIZE and not left.startswith(_MARK):
        raise InvalidMetadataError(
            "the central directory is broken", where=f"{where}, byte {position} of the directory"
        )
    return position


def _candidates(data: bytes) -> wire.Int64s:
    values = np.frombuffer(data, np.uint8)
    if len(values) < len(_MARK):
        return np.zeros(0, np.int64)
    first, *others = _MARK
    found: wire.Int64s = np.flatnonzero(values[: 1 - len(_MARK)] == first)
    for shift, byte in enumerate(others, 1):
        found = found[values[found + shift] == byte]
    return found


def _lengths(records: wire.Records) -> wire.Int64s:
    lengths: wire.Int64s = (
        wire.CENTRAL_SIZE
        + records["name_size"].astype(np.int64)
        + records["extra_size"]
        + records["comment_size"]
    )
    return lengths


def _walk(data: bytes) -> tuple[wire.Int64s, int]:
    """Starts of complete headers, found one by one, and the end of the last one."""
    starts = []
    position = 0
    sizes = struct.Struct("<I24xHHH")
    while position + wire.CENTRAL_SIZE <= len(data):
        signature, name, extra, comment = sizes.unpack_from(data, position)
        end = position + wire.CENTRAL_SIZE + name + extra + comment
        if signature != wire.CENTRAL_SIGNATURE or end > len(data):
            break
        starts.append(position)
        position = end
    return np.array(starts, np.int64), position


def records_at(data: bytes, starts: wire.Int64s) -> wire.Records:
    """The fixed parts of the headers at `starts`, which must be completely inside `data`."""
    if len(starts) == 0:
        return np.zeros(0, wire.CENTRAL)
    # As plain bytes, which are copied at once; of a record type, each field is copied separately.
    plain = np.dtype((np.void, wire.CENTRAL_SIZE))
    every = np.ndarray((len(data) - wire.CENTRAL_SIZE + 1,), plain, data, strides=(1,))
    records: wire.Records = every[starts].view(wire.CENTRAL)
    return records


def slices(data: bytes, starts: wire.Int64s, sizes: npt.NDArray[Any]) -> Any:
    """An Arrow array of the byte strings at ascending `starts` that do not overlap."""
    if len(starts) == 0:
        return pa.nulls(0, pa.binary())
    # Names and the gaps between them form one array, of which every other value is kept.
    wide = len(data) >= 2**31
    bounds = np.empty(2 * len(starts), np.int64 if wide else np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + sizes
    kind = pa.LargeBinaryArray if wide else pa.BinaryArray
    both = kind.from_buffers(
        pa.large_binary() if wide else pa.binary(),
        len(bounds) - 1,
        [None, pa.py_buffer(bounds), pa.py_buffer(data)],
    )
    rows = pa.py_buffer(np.arange(0, len(bounds) - 1, 2))
    return both.take(pa.Array.from_buffers(pa.int64(), len(starts), [None, rows]))


def text_names(names: Any, flags: npt.NDArray[np.uint16]) -> tuple[Any, list[Problem]]:
    """Names as Arrow strings.

    Bytes that are valid UTF-8 are decoded as such even without the flag, as existing writers forget
    it; other names are CP437 (APPNOTE, appendix D).
    """
    try:
        return names.cast(pa.large_string() if _is_wide(names) else pa.string()), []
    except pa.ArrowInvalid:
        pass
    texts, problems = [], []
    for row, name in enumerate(names.to_pylist()):
        try:
            texts.append(name.decode())
        except UnicodeDecodeError:
            texts.append(name.decode("cp437"))
            if flags[row] & wire.FLAG_UTF8:
                problems.append(
                    Problem(
                        "zip-name-encoding",
                        f"entry {row}",
                        "name is not the UTF-8 that it claims to be",
                    )
                )
    return pa.array(texts, pa.string()), problems[:MAX_PROBLEMS]


def _is_wide(values: Any) -> bool:
    return bool(pa.types.is_large_binary(values.type))


def apply_zip64(
    data: bytes,
    starts: wire.Int64s,
    records: wire.Records,
    where: str,
    problems: list[Problem] | None = None,
) -> tuple[wire.Int64s, wire.Int64s, wire.Int64s]:
    """Sizes and offsets, with the values of ZIP64 extra fields.

    With a list of `problems`, a broken field is added to it and its entry gets the offset -1;
    without one it raises `InvalidMetadataError`.
    """
    csize = records["csize"].astype(np.int64)
    size = records["size"].astype(np.int64)
    offset = records["offset"].astype(np.int64)
    rows = np.flatnonzero((csize == wire.U32) | (size == wire.U32) | (offset == wire.U32))
    for row in rows.tolist():
        start = int(starts[row]) + wire.CENTRAL_SIZE + int(records["name_size"][row])
        field = extra_field(data[start : start + int(records["extra_size"][row])], wire.ZIP64_ID)
        wanted = [column for column in (size, csize, offset) if column[row] == wire.U32]
        if field is None:
            continue  # 4 294 967 295 itself, checked against the archive like other values
        try:
            values = _zip64_values(field, len(wanted), f"{where}, entry {row}")
        except InvalidMetadataError as error:
            if problems is None:
                raise
            problems.append(Problem("zip-zip64-field", f"{where}, entry {row}", error.what))
            offset[row] = -1
            continue
        for column, value in zip(wanted, values, strict=True):
            column[row] = value
    return csize, size, offset


def _zip64_values(field: bytes, count: int, place: str) -> tuple[int, ...]:
    if len(field) < 8 * count:
        raise InvalidMetadataError(
            "a ZIP64 field of an entry is too short",
            where=place,
            found=f"{len(field)} bytes",
            expected=f"{8 * count} bytes",
        )
    values = struct.unpack_from(f"<{count}Q", field)
    if max(values) >= 2**63:
        raise InvalidMetadataError(
            "a ZIP64 value of an entry is beyond any file", where=place, found=max(values)
        )
    return values


def extra_field(extra: bytes, wanted: int) -> bytes | None:
    """The content of the first extra field with the id `wanted`, or None."""
    position = 0
    while position + 4 <= len(extra):
        kind, size = struct.unpack_from("<HH", extra, position)
        if position + 4 + size > len(extra):
            return None
        if kind == wanted:
            return extra[position + 4 : position + 4 + size]
        position += 4 + size
    return None


def label(names: Any, row: int) -> str:
    """The name of an entry in messages."""
    return f"entry {row} ({shown(names[row].as_py())})"


TAIL = 65_536


@dataclass(frozen=True)
class Directory:
    """The entries of an archive, one row each, in the order of the central directory.

    Arrays have shape (n,). Offsets count from the first byte of the object, even if other bytes
    precede the archive.
    """

    names: Any
    """Arrow string array; see `text_names` for the decoding."""
    raw_names: Any
    """The same as stored, Arrow binary array; shares its bytes with `names`."""
    method: npt.NDArray[np.uint16]
    flags: npt.NDArray[np.uint16]
    crc: npt.NDArray[np.uint32]
    csize: wire.Int64s
    """Stored bytes of each payload."""
    size: wire.Int64s
    """Bytes of each entry when extracted."""
    header_offset: wire.Int64s
    """Offset of each local header."""
    name_size: npt.NDArray[np.uint16]
    """Bytes of each name as stored."""
    made_by: npt.NDArray[np.uint16]
    external: npt.NDArray[np.uint32]
    """External attributes; Unix modes in the upper half."""
    time: npt.NDArray[np.uint16]
    """Times of the last change in MS-DOS format."""
    date: npt.NDArray[np.uint16]
    """Dates of the last change in MS-DOS format; 0 if there is none."""
    extras: Any
    """Arrow binary array of extra fields, or None if no entry has one."""
    comments: Any
    """Arrow binary array of entry comments, or None if no entry has one."""
    start: int
    """Offset of the directory."""
    end_offset: int
    """Offset of the first end record (the ZIP64 one if there is one)."""
    comment: bytes
    """Comment of the archive."""
    total: int
    """Bytes of the object."""
    shift: int
    """Bytes before the archive that its own offsets do not count."""
    problems: tuple[Problem, ...]
    """Oddities that leave no doubt about the result."""
    bad: npt.NDArray[np.bool_] | None = None
    """Entries that cannot be at their stated offset; only if read leniently, else None."""
    where: str = "archive"
    """The name of the archive in errors and warnings."""

    def __len__(self) -> int:
        return len(self.method)

    @cached_property
    def unique(self) -> bool:
        """Whether no name appears twice."""
        return bool(pc.count_distinct(self.names).as_py() == len(self))

    def find(self, name: str) -> int:
        """The row of an entry, or -1; the last of several with one name, as in other readers."""
        names = self.names if self.unique else self.names[::-1]
        row: int = pc.index(names, pa.scalar(name, names.type)).as_py()
        return row if self.unique or row < 0 else len(self) - 1 - row

    def find_many(self, names: Any) -> wire.Int64s:
        """The rows of many entries, or -1."""
        known = self.names if self.unique else self.names[::-1]
        found = pc.index_in(names.cast(known.type), value_set=known)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        rows: wire.Int64s = pc.fill_null(found, -1).to_numpy().astype(np.int64)
        if not self.unique:
            rows[rows >= 0] = len(self) - 1 - rows[rows >= 0]
        return rows

    def warn_of_twins(self, rows: wire.Int64s, category: type[Warning]) -> None:
        """Warn if the name of one of these entries appears more than once.

        Readers differ about which entry counts: most take the last, as `find` does, streaming ones
        the first.
        """
        if self.unique:
            return
        counts = pc.value_counts(self.names)
        names = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        given = self.names.take(rows[rows >= 0])
        twins = pc.unique(given.filter(pc.is_in(given, value_set=names))).to_pylist()
        if twins:
            more = f" and {len(twins) - 1} more" if len(twins) > 1 else ""
            verb = "stand" if more else "stands"
            message = f"{shown(twins[0])}{more} {verb} more than once; the last entry counts"
            warn(f"{self.where}: {message} ('comal check' lists them)", category)

    @cached_property
    def payload_offsets(self) -> wire.Int64s:
        """Offsets of payloads if local headers have no extra fields except ZIP64's.

        True of every archive without alignment; `check.local_plan` reads the real offsets.
        """
        zip64 = (self.size >= wire.U32) | (self.csize >= wire.U32)
        offsets: wire.Int64s = (
            self.header_offset + wire.LOCAL_SIZE + self.name_size + np.where(zip64, 20, 0)
        )
        return offsets


def directory_plan(
    href: str = "",
    tail: int = TAIL,
    limits: Limits = DEFAULT_LIMITS,
    known: Sequence[Piece] = (),
    *,
    where: str | None = None,
    lenient: bool = False,
    same_names: bool = True,
) -> Plan[Directory]:
    """Fetch and parse the central directory of an archive.

    Makes one request for the last `tail` bytes, and another only if they lack the directory.

    Parameters
    ----------
    href
        The archive, relative to the source that runs the plan.
    tail
        Bytes of the first request.
    limits
        `table_bytes` and `table_rows` cap the directory.
    known
        Pieces of the object that are fetched already; a tail among them saves the first request.
    where
        The name of the archive in errors.
    lenient
        Whether entries outside of the archive are marked in `Directory.bad` and reported, and
        overlapping ones reported, instead of failing the whole archive. The caller must then
        compare checksums.
    same_names
        Whether local headers must have room for the names of the directory; if False, their names
        may be shorter, and entries are valid that do not overlap with an empty name.

    Raises
    ------
    NotThisFormatError
        No end record.
    InvalidMetadataError
        The end record, the directory or an entry contradicts the archive.
    LimitExceededError
        A directory over the limits.
    """
    where = where or href or "archive"
    data, end = yield from directory_bytes_plan(href, tail, limits, known, where=where)
    return parse_directory(data, end, where, lenient=lenient, same_names=same_names)


def directory_bytes_plan(
    href: str = "",
    tail: int = TAIL,
    limits: Limits = DEFAULT_LIMITS,
    known: Sequence[Piece] = (),
    *,
    where: str,
) -> Plan[tuple[bytes, End]]:
    """As `directory_plan`, without parsing: the bytes of the directory, and the end record."""
    end, pieces = yield from find_end(href, tail, known, where)
    limits.check("table_rows", end.count, where)
    limits.check("table_bytes", end.size, where)
    data = b""
    if end.size:
        data = yield from read_span(pieces, end.start, end.size, href)
    return data, end


def parse_directory(
    data: bytes,
    end: End,
    where: str = "archive",
    *,
    lenient: bool = False,
    same_names: bool = True,
    known: npt.NDArray[Any] | None = None,
) -> Directory:
    """The columns of a central directory whose bytes are `data`; see `directory_plan`.

    The starts of its headers may be `known`, as in `RegularDirectory.starts`.
    """
    starts, records = headers(data, where, known)
    if len(starts) != end.count:
        end = _other_count(end, len(starts), where, lenient=lenient)
    doubts: list[Problem] | None = [] if lenient else None
    csize, size, offset = apply_zip64(data, starts, records, where, doubts)
    name_starts = starts + wire.CENTRAL_SIZE
    extra_starts = name_starts + records["name_size"]
    raw = slices(data, name_starts, records["name_size"])
    names, problems = text_names(raw, records["flags"])
    directory = Directory(
        names=names,
        raw_names=raw,
        method=records["method"].copy(),
        flags=records["flags"].copy(),
        crc=records["crc"].copy(),
        csize=csize,
        size=size,
        header_offset=offset + end.shift,
        name_size=records["name_size"].copy(),
        made_by=records["made_by"].copy(),
        external=records["external"].copy(),
        time=records["time"].copy(),
        date=records["date"].copy(),
        extras=_filled(data, extra_starts, records["extra_size"]),
        comments=_filled(data, extra_starts + records["extra_size"], records["comment_size"]),
        start=end.start,
        end_offset=end.position,
        comment=end.comment,
        total=end.total,
        shift=end.shift,
        problems=(*end.problems, *problems, *(doubts or ())),
        where=where,
    )
    if lenient:
        return _with_bad_marked(directory)
    _check_spans(directory, where, same_names=same_names)
    return directory


def _other_count(end: End, found: int, where: str, *, lenient: bool) -> End:
    place, what = f"{where}, byte {end.position}", "the end record and the directory disagree"
    if lenient:
        message = f"{what}: {counted(end.count, 'entry', 'entries')} stated, {found} there"
        return end.but(Problem("zip-count", place, message))
    raise InvalidMetadataError(
        f"{what} about the number of entries",
        where=place,
        found=counted(found, "entry", "entries"),
        expected=f"{end.count}",
    )


def _filled(data: bytes, starts: wire.Int64s, sizes: npt.NDArray[Any]) -> Any:
    """As `slices`; None if all are empty."""
    return slices(data, starts, sizes) if sizes.any() else None


def _check_spans(directory: Directory, where: str, *, same_names: bool) -> None:
    """Refuse entries that reach past the directory or partly into one another.

    Several names on one local header are legal; they are reported by `check.problems`.
    """
    starts = directory.header_offset
    outside = _outside(directory, directory.name_size.astype(np.int64) if same_names else 0)
    if outside.any():
        row = int(np.argmax(outside))
        raise InvalidMetadataError(
            "the entry reaches outside the archive",
            where=f"{where}, {label(directory.names, row)}",
            found=f"{directory.csize[row]} bytes behind a header at {starts[row]}",
            expected=f"an end at or before {directory.start}",
            problems=_outside_problems(directory, outside),
        )
    stops = directory.payload_offsets + directory.csize if same_names else _least_stops(directory)
    pairs = _overlaps(directory, np.arange(len(directory)), stops)
    if len(pairs[0]):
        first, second = int(pairs[0][0]), int(pairs[1][0])
        raise InvalidMetadataError(
            "the entries overlap",
            where=f"{where}, {label(directory.names, second)}",
            found=f"its header at {starts[second]}",
            expected=f"not inside {label(directory.names, first)}",
        )


def _outside(directory: Directory, name_sizes: wire.Int64s | int) -> npt.NDArray[np.bool_]:
    starts = directory.header_offset
    room = directory.start - wire.LOCAL_SIZE - name_sizes
    # Written so that nothing can overflow: csize may be anything below 2 ** 63.
    found: npt.NDArray[np.bool_] = (
        (starts < 0) | (starts > room) | (directory.csize > room - starts)
    )
    return found


def _with_bad_marked(directory: Directory) -> Directory:
    """The same directory with entries outside the archive marked.

    Of two overlapping entries one is wrong, but only their bytes can show which: they are reported.
    """
    bad = _outside(directory, 0)  # a local header may have a shorter name
    reported = _outside_problems(directory, bad)
    first, second = _overlaps(directory, np.flatnonzero(~bad), _least_stops(directory))
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    for one, other in pairs[:MAX_PROBLEMS]:
        message = f"reaches into {label(directory.names, other)}"
        reported.append(Problem("zip-overlap", label(directory.names, one), message))
    problems = (*directory.problems, *reported)
    return replace(directory, problems=problems, bad=bad if bad.any() else None)


def _outside_problems(directory: Directory, outside: npt.NDArray[np.bool_]) -> list[Problem]:
    return [
        Problem("zip-span", label(directory.names, row), "reaches outside the archive")
        for row in np.flatnonzero(outside)[:MAX_PROBLEMS].tolist()
    ]


def _least_stops(directory: Directory) -> wire.Int64s:
    """The earliest ends of entries, as their local headers may have other names."""
    stops: wire.Int64s = (
        directory.header_offset + wire.LOCAL_SIZE + np.minimum(directory.csize, directory.total)
    )
    return stops


def _overlaps(
    directory: Directory, rows: wire.Int64s, stops: wire.Int64s
) -> tuple[wire.Int64s, wire.Int64s]:
    """Neighbours of which the first ends behind the start of the second."""
    starts = directory.header_offset
    ordered = starts[rows]
    order = rows if (np.diff(ordered) >= 0).all() else rows[np.argsort(ordered, kind="stable")]
    first, second = order[:-1], order[1:]
    shared = (starts[first] == starts[second]) & (directory.csize[first] == directory.csize[second])
    bad = np.flatnonzero((stops[first] > starts[second]) & ~shared)
    return first[bad], second[bad]


_BLOCK = 4 << 20
_TAIL = 65_536 + 98
"""The longest comment and the end records before it."""
_HEADER = 46 + 3 * 65_535
"""The longest header."""


def entry_blocks(
    fetch: Callable[[Sequence[Any]], list[Piece]], where: str = "archive", block: int = _BLOCK
) -> Iterator[Directory]:
    """The entries of an archive in the order of its directory, some at a time."""
    end, _ = run(find_end("", _TAIL, (), where), fetch)
    position, stop, count, left = end.start, end.start + end.size, 0, b""
    while position < stop:
        size = min(max(block, _HEADER), stop - position)
        (piece,) = fetch([ByteRange(position, size)])
        position += size
        data = left + piece.data
        whole = whole_size(data, where)
        left = data[whole:]
        starts, _ = headers(data[:whole], where)
        yield parse_directory(data[:whole], replace(end, count=len(starts)), where)
        count += len(starts)
    if left or count != end.count:
        raise InvalidMetadataError(
            "the end record and the directory disagree about the number of entries",
            where=where,
            found=f"{count} entries",
            expected=f"{end.count}",
        )
