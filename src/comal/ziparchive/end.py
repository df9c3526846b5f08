"""The end of an archive: which end record is valid, and where the central directory is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from comal.errors import InvalidMetadataError, NotThisFormatError, Problem, counted
from comal.plan import ByteRange, Piece, Plan, Tail, read_span
from comal.ziparchive import wire

SEARCH: Final = wire.END_SIZE + wire.MAX_COMMENT
"""Largest distance from the start of an end record to the end of the archive."""
_MAX_CANDIDATES = 16
_CENTRAL = wire.CENTRAL_SIGNATURE.to_bytes(4, "little")
_END_MARK = wire.END_SIGNATURE.to_bytes(4, "little")
_END64_MARK = wire.END64_SIGNATURE.to_bytes(4, "little")
_LOCATOR64_MARK = wire.LOCATOR64_SIGNATURE.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class End:
    """The values of the end records, and the real position of the directory."""

    count: int
    start: int
    """Offset of the central directory in the object."""
    size: int
    position: int
    """Offset of the first end record, the ZIP64 one if there is one."""
    comment: bytes
    total: int
    shift: int = 0
    """Bytes before the archive that its offsets do not count."""
    problems: tuple[Problem, ...] = ()

    @property
    def stop(self) -> int:
        """Offset of the first byte behind the directory."""
        return self.start + self.size

    def but(self, problem: Problem) -> End:
        """A copy with one more problem."""
        return replace(self, problems=(*self.problems, problem))


def find_end(
    href: str, tail: int, known: Sequence[Piece], where: str
) -> Plan[tuple[End, list[Piece]]]:
    """Find the valid end record: the last whose comment reaches the end of the object.

    Other records, in a comment or left by an earlier update, are excluded by that and by the
    signature with which their directory must begin.
    """
    pieces = list(known)
    last = next((piece for piece in pieces if piece.end == piece.total), None)
    if last is None:
        (last,) = yield [Tail(tail, href)]
        pieces.append(last)
    whole, followed = _records(last)
    if not whole and last.offset > max(0, last.total - SEARCH):
        start = max(0, last.total - SEARCH - wire.LOCATOR64_SIZE - wire.END64_SIZE)
        (last,) = yield [ByteRange(start, last.total - start, href)]
        pieces.append(last)
        whole, followed = _records(last)
    candidates = whole or followed
    if not candidates:
        raise NotThisFormatError(
            "no end of central directory record",
            where=where,
            expected="a ZIP archive",
            hint="the file is not a ZIP archive, or its end was cut off",
        )
    end = yield from _first_valid(candidates, last, pieces, href, where)
    return end, pieces


def _records(tail: Piece) -> tuple[list[int], list[int]]:
    """Offsets of end records in the object, the last first.

    First those whose comment ends with the object, then those followed by other bytes.
    """
    whole: list[int] = []
    followed: list[int] = []
    lowest = max(0, tail.total - SEARCH - tail.offset)
    at = len(tail.data) - wire.END_SIZE + 1
    for _ in range(_MAX_CANDIDATES):
        at = tail.data.rfind(_END_MARK, 0, max(0, at + 3))
        if at < lowest:
            break
        comment = int.from_bytes(tail.data[at + 20 : at + 22], "little")
        left = tail.total - tail.offset - at - wire.END_SIZE - comment
        if left >= 0:
            (followed if left else whole).append(tail.offset + at)
    return whole, followed


def _first_valid(
    candidates: list[int], tail: Piece, pieces: list[Piece], href: str, where: str
) -> Plan[End]:
    reasons: list[InvalidMetadataError] = []
    valid: list[End] = []
    for position in candidates:
        try:
            record = yield from _record(position, tail, pieces, href, where)
            end = yield from _placed(record, pieces, href, where, sure=len(candidates) > 1)
        except InvalidMetadataError as error:
            reasons.append(error)
        else:
            valid.append(end)
    if not valid:
        raise reasons[0]
    # A record without entries is used only if there is no other: an archive with an end record in
    # its comment would otherwise open empty.
    end = next((end for end in valid if end.count), valid[0])
    if len(valid) > 1:
        places = ", ".join(str(other.position) for other in valid)
        end = end.but(Problem("zip-two-ends", where, f"several end records are valid: at {places}"))
    return end


def _record(position: int, tail: Piece, pieces: list[Piece], href: str, where: str) -> Plan[End]:
    """The end record at `position`, with the values of its ZIP64 pair; offsets not checked yet."""
    _, *disks, here, count, size, offset, comment_size = wire.END.unpack(
        tail.slice(position, wire.END_SIZE)
    )
    comment = tail.slice(position + wire.END_SIZE, comment_size)
    end = End(count, offset, size, position, comment, tail.total)
    stop = position + wire.END_SIZE + comment_size
    if stop < tail.total:
        message = f"{counted(tail.total - stop, 'byte')} after the end record"
        end = end.but(Problem("zip-trailing-bytes", f"{where}, byte {stop}", message))
    if position >= wire.LOCATOR64_SIZE:
        at = position - wire.LOCATOR64_SIZE
        locator = yield from read_span(pieces, at, wire.LOCATOR64_SIZE, href)
        if locator.startswith(_LOCATOR64_MARK):
            return (yield from _with_zip64(end, locator, pieces, href, where))
    if here != count or any(disks):
        raise InvalidMetadataError(
            "the archive is one of several volumes, which is not supported",
            where=f"{where}, byte {position}",
            found=f"disks {disks[0]} and {disks[1]}, {here} of {count} entries here",
        )
    return end


def _with_zip64(end: End, locator: bytes, pieces: list[Piece], href: str, where: str) -> Plan[End]:
    """Values that do not fit in the end record, from the ZIP64 one (APPNOTE 4.3.14)."""
    _, _, stated, _ = wire.LOCATOR64.unpack(locator)
    adjacent = end.position - wire.LOCATOR64_SIZE - wire.END64_SIZE
    found: tuple[int, bytes] | None = None
    for place in dict.fromkeys((stated, adjacent)):
        if 0 <= place <= adjacent:
            record = yield from read_span(pieces, place, wire.END64_SIZE, href)
            if record.startswith(_END64_MARK):
                found = place, record
                break
    place_name = f"{where}, byte {end.position - wire.LOCATOR64_SIZE}"
    if found is None:
        if end.count == wire.U16 or wire.U32 in (end.size, end.start):
            raise InvalidMetadataError(
                "the ZIP64 locator points to no ZIP64 end record", where=place_name, found=stated
            )
        message = "the ZIP64 locator points to no ZIP64 end record; the plain one is used"
        return end.but(Problem("zip-zip64-locator", place_name, message))
    position, record = found
    if position != stated:
        message = f"says {stated}, but the ZIP64 end record is at {position}"
        end = end.but(Problem("zip-zip64-locator", place_name, message))
    _, _, _, _, disk, first_disk, here, count, size, offset = wire.END64.unpack(record)
    if here != count or disk or first_disk:
        raise InvalidMetadataError(
            "the archive is one of several volumes, which is not supported", where=place_name
        )
    plain = (end.count, end.size, end.start)
    large = (count, size, offset)
    merged = [
        wide if short == sentinel else short
        for short, wide, sentinel in zip(plain, large, (wire.U16, wire.U32, wire.U32), strict=True)
    ]
    if merged != list(large):
        message = f"the plain end record says {plain}, the ZIP64 one {large}"
        end = end.but(Problem("zip-zip64-mismatch", place_name, message))
    return replace(end, count=merged[0], size=merged[1], start=merged[2], position=position)


def _placed(end: End, pieces: list[Piece], href: str, where: str, *, sure: bool) -> Plan[End]:
    """Check the directory's numbers and find its offset; with `sure`, check its signature too."""
    place = f"{where}, byte {end.position}"
    limit = end.position
    if end.size > limit or end.count * wire.CENTRAL_SIZE > end.size:
        raise InvalidMetadataError(
            "the end record cannot be right",
            where=place,
            found=f"{end.count} entries in a directory of {end.size} bytes",
            expected=f"at most {limit} bytes, at least {wire.CENTRAL_SIZE} for each entry",
        )
    adjacent = limit - end.size
    if end.size == 0:
        return replace(end, start=min(end.start, limit))
    if end.start == adjacent and not sure:
        return end
    # An offset that is too large means bytes missing before it: then nothing there is reliable.
    for start in dict.fromkeys((end.start, adjacent)) if end.start <= adjacent else ():
        signature = yield from read_span(pieces, start, 4, href)
        if signature == _CENTRAL:
            return _moved(end, start, adjacent, place)
    raise InvalidMetadataError(
        "no central directory where the end record says",
        where=place,
        found=f"directory of {end.size} bytes at {end.start}",
        expected=f"one that ends at {limit}",
    )


def _moved(end: End, start: int, adjacent: int, place: str) -> End:
    if start != end.start:
        message = (
            f"{counted(start - end.start, 'byte')} before the archive that its offsets do not count"
        )
        end = end.but(Problem("zip-prefix", place, message))
        return replace(end, shift=start - end.start, start=start)
    if start != adjacent:
        message = f"{adjacent - start} bytes between the directory and its end record"
        end = end.but(Problem("zip-gap", place, message))
    return end
