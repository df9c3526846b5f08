"""Everything that is wrong with an archive, by entry.

`problems` checks only the directory, `local_plan` the local headers and the gaps between entries,
`content_plan` every byte. `check_plan` does all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import igzip_lib, isal_zlib

from comal.errors import InvalidMetadataError, Problem, counted, shown
from comal.plan import ByteRange, Plan
from comal.ziparchive import wire
from comal.ziparchive.directory import MAX_PROBLEMS, Directory, label, slices
from comal.ziparchive.local import SIZE, SLACK, Run, differences, local_size, parse_local, runs

ZIP_RULES: Final[Mapping[str, str]] = {
    "zip-end": "no end record, or one that cannot be used",
    "zip-directory": "the central directory cannot be read",
    "zip-count": "the end record and the directory disagree about the number of entries",
    "zip-two-ends": "several end records are valid",
    "zip-trailing-bytes": "bytes follow the archive",
    "zip-zip64-locator": "the ZIP64 locator points nowhere",
    "zip-zip64-mismatch": "the plain and the ZIP64 end record disagree",
    "zip-zip64-field": "a ZIP64 field of an entry cannot be used",
    "zip-prefix": "offsets do not count bytes that stand before the archive",
    "zip-span": "an entry reaches outside the archive",
    "zip-overlap": "an entry overlaps another one",
    "zip-duplicate-name": "an entry name appears twice; the last one counts",
    "zip-name": "an entry name is not a safe path",
    "zip-name-encoding": "an entry name is not the UTF-8 that it claims to be",
    "zip-local-header": "an entry has no local header",
    "zip-local-mismatch": "a local header differs from the directory",
    "zip-method": "an entry has a compression method that is not supported",
    "zip-size": "a stored entry has two sizes",
    "zip-encrypted": "an entry is encrypted",
    "zip-symlink": "an entry is a symbolic link",
    "zip-content": "a compressed entry does not inflate to its content",
    "zip-crc": "the bytes of an entry do not match its checksum",
}
"""Meaning of each code that is an error in archives of any format, if it can occur there."""
_UNSAFE = r"^/|^[A-Za-z]:|\\|(^|/)\.\.?(/|$)|[\x00-\x1f\x7f]|^$"
_UNIX = 3
_SYMLINK = 0o120000
_DESCRIPTOR_SIZES = (12, 16, 20, 24)
_HOLE_PREFIX = 256


def check_plan(
    directory: Directory, *, href: str = "", content: bool = False, stored_only: bool = False
) -> Plan[list[Problem]]:
    """All problems of an archive."""
    found = problems(directory, stored_only=stored_only)
    offsets, local = yield from local_plan(directory, href=href)
    found += local
    if content:
        found += yield from content_plan(directory, offsets, href=href)
    return found


def problems(directory: Directory, *, stored_only: bool = False) -> list[Problem]:
    """The problems that the directory alone shows; makes no request."""
    names, flags, method = directory.names, directory.flags, directory.method
    encrypted = (flags & (wire.FLAG_ENCRYPTED | wire.FLAG_STRONG_ENCRYPTION | wire.FLAG_MASKED)) > 0
    mode = (directory.external >> 16) & 0o170000
    symlink = ((directory.made_by >> 8) == _UNIX) & (mode == _SYMLINK)
    stored = method == wire.STORE
    rules = [
        ("zip-encrypted", encrypted, "is encrypted", "error"),
        ("zip-symlink", symlink, "is a symbolic link", "error"),
        (
            "zip-method",
            ~(stored | (method == wire.DEFLATE)),
            "has a compression method that is not supported",
            "error",
        ),
        (
            "zip-size",
            stored & (directory.csize != directory.size),
            "is stored, but has two sizes",
            "error",
        ),
        ("zip-name", _matches(names, _UNSAFE), "has a name that is not a safe path", "error"),
        ("zip-shared-header", _shared(directory), "shares its local header", "warning"),
        ("zip-duplicate-name", _duplicates(directory), "has a name that appears twice", "error"),
    ]
    if stored_only:
        rules.append(("zip-compressed", ~stored, "is compressed", "error"))
        rules.append(("zip-folder-entry", _matches(names, "/$"), "is a folder entry", "warning"))
    found = list(directory.problems)
    for code, rows, message, severity in rules:
        found += _each(directory, code, np.flatnonzero(rows), message, severity)
    return found


def local_plan(directory: Directory, *, href: str = "") -> Plan[tuple[wire.Int64s, list[Problem]]]:
    """Read all local headers, compare them with the directory, and check gaps between entries.

    Neighbouring headers are read together.
    """
    starts = directory.header_offset
    order = np.argsort(starts, kind="stable")
    if directory.bad is not None:
        order = order[~directory.bad[order]]
    stops = starts + wire.LOCAL_SIZE + directory.name_size + SLACK
    np.minimum(stops, directory.start, out=stops)
    offsets = np.full(len(directory), -1, np.int64)
    found: list[Problem] = []
    for run in runs(starts, stops, order):
        (piece,) = yield [ByteRange(run.start, run.stop - run.start, href)]
        doubtful = _fast(directory, run, piece.data, offsets)
        for row in doubtful.tolist():
            at = int(starts[row]) - run.start
            data = piece.data[at : at + int(stops[row] - starts[row])]
            found += yield from _slow(directory, row, data, offsets, href)
    found += yield from _between(directory, offsets, order, href)
    return offsets, found[: 4 * MAX_PROBLEMS]


def _fast(directory: Directory, run: Run, data: bytes, offsets: wire.Int64s) -> wire.Int64s:
    """Compare the plain headers of a run at once; returns the rows that need a full check."""
    at = directory.header_offset[run.rows] - run.start
    rows = run.rows
    every = np.ndarray((len(data) - wire.LOCAL_SIZE + 1,), wire.LOCAL, data, strides=(1,))
    headers = every[at]
    same = headers["signature"] == wire.LOCAL_SIGNATURE
    same &= headers["name_size"] == directory.name_size[rows]
    for field in ("method", "crc", "flags"):
        same &= headers[field] == getattr(directory, field)[rows]
    for field in ("csize", "size"):
        same &= (headers[field] == getattr(directory, field)[rows]) & (headers[field] != wire.U32)
    same &= _apart(at, headers["name_size"], len(data))
    plain = np.flatnonzero(same)
    first = np.r_[True, np.diff(at[plain]) > 0] if len(plain) else np.zeros(0, bool)
    names = slices(data, at[plain[first]] + wire.LOCAL_SIZE, headers["name_size"][plain[first]])
    kept = rows[plain[first]]
    equal = pc.equal(names, directory.raw_names.take(pa.array(kept)).cast(names.type))
    good = plain[first][equal.to_numpy(zero_copy_only=False)]
    offsets[rows[good]] = (
        directory.header_offset[rows[good]]
        + wire.LOCAL_SIZE
        + headers["name_size"][good].astype(np.int64)
        + headers["extra_size"][good]
    )
    doubtful: wire.Int64s = np.setdiff1d(rows, rows[good])
    return doubtful


def _apart(at: wire.Int64s, name_sizes: Any, size: int) -> Any:
    """Which names are inside the data and start behind all earlier names; starts may repeat."""
    ends = at + wire.LOCAL_SIZE + name_sizes
    reach = np.maximum.accumulate(ends)
    distinct = np.flatnonzero(np.r_[True, np.diff(at) > 0])
    group = np.searchsorted(distinct, np.arange(len(at)), side="right") - 1
    before = np.r_[0, reach[distinct[1:] - 1]] if len(distinct) else np.zeros(0, np.int64)
    return (ends <= size) & (at >= before[group])


def dead_bytes(directory: Directory, offsets: wire.Int64s) -> int:
    """Bytes that belong to no entry, directory or end record."""
    order = np.argsort(directory.header_offset, kind="stable")
    _, gaps, holes = _gaps(directory, offsets, order[offsets[order] >= 0])
    return int(gaps[holes].sum())


def _gaps(
    directory: Directory, offsets: wire.Int64s, known: wire.Int64s
) -> tuple[wire.Int64s, wire.Int64s, wire.Int64s]:
    """Where each entry ends, the gap to the next, and which of these gaps are holes."""
    stops = np.maximum.accumulate(offsets[known] + directory.csize[known])
    begins = np.r_[directory.shift, stops]
    gaps = np.r_[directory.header_offset[known], directory.start] - begins
    described = np.r_[False, (directory.flags[known] & wire.FLAG_DESCRIPTOR) > 0]
    # A data descriptor may follow (APPNOTE 4.3.9); it is 12 to 24 bytes long.
    holes = np.flatnonzero((gaps > 0) & ~(described & np.isin(gaps, _DESCRIPTOR_SIZES)))
    return begins, gaps, holes


def _slow(
    directory: Directory, row: int, data: bytes, offsets: wire.Int64s, href: str
) -> Plan[list[Problem]]:
    place = label(directory.names, row)
    try:
        start, length = int(directory.header_offset[row]), local_size(data, place)
        if length > len(data):
            room = directory.start - start
            (piece,) = yield [ByteRange(start, min(length, room), href)]
            data = piece.data
        header = parse_local(data, place)
    except InvalidMetadataError as error:
        return [Problem("zip-local-header", place, error.what)]
    offsets[row] = start + header.length
    wrong = differences(header, directory, row)
    if not wrong and header.flags != directory.flags[row]:
        message = f"local header has flags {header.flags:#06x}, not {directory.flags[row]:#06x}"
        return [Problem("zip-local-mismatch", place, message, "warning")]
    if not wrong:
        return []
    message = "local header says " + "; ".join(wrong)
    return [Problem("zip-local-mismatch", place, message)]


def _between(
    directory: Directory, offsets: wire.Int64s, order: wire.Int64s, href: str
) -> Plan[list[Problem]]:
    """Overlaps and holes, and the beginnings of holes that hold an unlisted entry."""
    known = order[offsets[order] >= 0]
    starts = directory.header_offset[known]
    begins, gaps, holes = _gaps(directory, offsets, known)
    inside = (gaps[:-1] < 0) & np.r_[True, starts[1:] != starts[:-1]]
    outside = known[offsets[known] + directory.csize[known] > directory.start]
    found = _each(directory, "zip-span", outside, "reaches outside the archive")
    found += _each(directory, "zip-overlap", known[inside], "begins inside another entry")
    if len(known) < len(order):
        return found  # a hole next to an entry without header is no news
    holes = holes[:MAX_PROBLEMS]
    wanted = [
        ByteRange(int(begins[hole]), int(min(gaps[hole], _HOLE_PREFIX)), href) for hole in holes
    ]
    pieces = (yield wanted) if wanted else []
    for hole, piece in zip(holes.tolist(), pieces, strict=True):
        found.append(_hole(int(begins[hole]), int(gaps[hole]), piece.data))
    return found


def _hole(start: int, size: int, data: bytes) -> Problem:
    place = f"bytes {start}+{size}"
    if data.startswith(wire.LOCAL_SIGNATURE.to_bytes(4, "little")) and len(data) > wire.LOCAL_SIZE:
        name_size = int.from_bytes(data[26:28], "little")
        name = data[wire.LOCAL_SIZE : wire.LOCAL_SIZE + name_size].decode("utf-8", "replace")
        message = f"holds an entry that the directory does not list: {shown(name)}"
        return Problem("zip-undeclared-entry", place, message)
    return Problem("zip-hole", place, f"{counted(size, 'byte')} that belong to no entry", "warning")


def content_plan(
    directory: Directory, offsets: wire.Int64s, *, href: str = ""
) -> Plan[list[Problem]]:
    """Read every payload and check size and checksum; memory does not grow with the archive."""
    readable = (offsets >= 0) & ((directory.flags & wire.FLAG_ENCRYPTED) == 0)
    readable &= (directory.method == wire.STORE) | (directory.method == wire.DEFLATE)
    readable &= offsets + directory.csize <= directory.start
    rows = np.flatnonzero(readable)
    order = rows[np.argsort(offsets[rows], kind="stable")]
    found: list[Problem] = []
    for run in runs(offsets, offsets + directory.csize, order):
        if len(run.rows) == 1:
            found += yield from _large(directory, int(run.rows[0]), run, href)
            continue
        (piece,) = yield [ByteRange(run.start, run.stop - run.start, href)]
        data = memoryview(piece.data)
        at = (offsets[run.rows] - run.start).tolist()
        sizes = directory.csize[run.rows].tolist()
        for row, start, size in zip(run.rows.tolist(), at, sizes, strict=True):
            content = _Content(directory, row)
            content.feed(data[start : start + size])
            found += content.problems()
    return found[:MAX_PROBLEMS]


def _large(directory: Directory, row: int, run: Run, href: str) -> Plan[list[Problem]]:
    content = _Content(directory, row)
    for start in range(run.start, run.stop, SIZE):
        (piece,) = yield [ByteRange(start, min(SIZE, run.stop - start), href)]
        content.feed(memoryview(piece.data))
    return content.problems()


class _Content:
    """Size and checksum of the content of one entry, fed with its stored bytes."""

    def __init__(self, directory: Directory, row: int) -> None:
        self._directory, self._row = directory, row
        self._size, self._crc = 0, 0
        self._broken: str | None = None
        deflated = directory.method[row] == wire.DEFLATE
        self._inflate: Any = isal_zlib.decompressobj(wbits=-15) if deflated else None

    def feed(self, data: memoryview) -> None:
        for part in self._inflated(data) if self._inflate else [data]:
            self._crc = isal_zlib.crc32(part, self._crc)
            self._size += len(part)

    def _inflated(self, data: memoryview | bytes) -> Iterator[bytes]:
        """Inflated parts of bounded size, up to one byte more than the entry should have."""
        expected = int(self._directory.size[self._row])
        while len(data) and self._broken is None:
            if self._inflate.eof:
                self._broken = "bytes follow the compressed stream"
                return
            room = min(SIZE, expected + 1 - self._size)
            if room <= 0:
                self._broken = f"inflates to more than {expected} bytes"
                return
            try:
                part = self._inflate.decompress(data, room)
            except igzip_lib.IsalError as error:  # type: ignore[misc]  # the stub gives an instance
                self._broken = f"compressed stream is broken ({error})"
                return
            yield part
            data = self._inflate.unconsumed_tail or self._inflate.unused_data

    def problems(self) -> list[Problem]:
        directory, row = self._directory, self._row
        place = label(directory.names, row)
        if self._inflate is not None and self._broken is None and not self._inflate.eof:
            self._broken = "compressed stream is cut short"
        if self._broken is not None:
            return [Problem("zip-content", place, self._broken)]
        if self._size != directory.size[row]:
            message = f"holds {counted(self._size, 'byte')}, {directory.size[row]} are stated"
            return [Problem("zip-content", place, message)]
        if self._crc != directory.crc[row]:
            message = f"checksum {self._crc:08x}, {directory.crc[row]:08x} is stated"
            return [Problem("zip-crc", place, message)]
        return []


def _each(
    directory: Directory, code: str, rows: wire.Int64s, message: str, severity: str = "error"
) -> list[Problem]:
    return [
        Problem(code, label(directory.names, row), message, severity)
        for row in rows[:MAX_PROBLEMS].tolist()
    ]


def _matches(names: Any, pattern: str) -> Any:
    return pc.match_substring_regex(names, pattern).to_numpy(zero_copy_only=False)


def _shared(directory: Directory) -> Any:
    if (np.diff(directory.header_offset) > 0).all():
        return np.zeros(len(directory), bool)
    _, inverse, counts = np.unique(directory.header_offset, return_inverse=True, return_counts=True)
    return counts[inverse] > 1


def _duplicates(directory: Directory) -> Any:
    if directory.unique:
        return np.zeros(len(directory), bool)
    codes = directory.names.dictionary_encode().indices.to_numpy()
    return np.bincount(codes)[codes] > 1
