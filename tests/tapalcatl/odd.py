"""ZIP archives written byte by byte, sound and odd, with nothing of comal in them."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from typing import Any

from tests import zips

DATE, TIME = 0x4D5F, 0x994D
"""2018-10-31 19:10:26."""
METADATA = (
    b'{"tapalcatl":"2.0.0","name":"odd","minzoom":0,"maxzoom":1,'
    b'"bounds":[-180,-85.0511287798066,180,85.0511287798066],"formats":{"png":"image/png"},'
    b'"metatile":1,"root":"0/0/0"}'
)


@dataclass
class Entry:
    """One entry; what is None is derived from the data."""

    name: bytes
    data: bytes
    deflate: bool = False
    method: int | None = None
    crc: int | None = None
    size: int | None = None
    csize: int | None = None
    flags: int = 0
    local_name: bytes | None = None
    local_extra: bytes = b""
    extra: bytes = b""
    comment: bytes = b""
    descriptor: bool = False
    share: bool = False
    """No local record of its own: that of the entry before."""
    date: int = DATE
    time: int = TIME
    offset: int | None = None
    payload: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        self.payload = packer.compress(self.data) + packer.flush() if self.deflate else self.data


def tiles(**named: object) -> list[Entry]:
    """The five tiles of zooms 0 and 1, with the same fields for each."""
    names = ["0/0/0", "1/0/0", "1/1/0", "1/0/1", "1/1/1"]
    return [
        Entry(f"{name}.png".encode(), f"tile {name} ".encode() * 20, **named)  # type: ignore[arg-type]
        for name in names
    ]


def archive(
    entries: list[Entry],
    comment: bytes = METADATA,
    *,
    stub: bytes = b"",
    shifted: bool = False,
    gap: bytes = b"",
    behind: bytes = b"",
    count: int | None = None,
) -> bytes:
    """An archive of `entries`.

    `stub` stands before it, counted in its offsets when `shifted`; `gap` between entries and
    directory, `behind` after the end record.
    """
    body, central = bytearray(), bytearray()
    base = len(stub) if shifted else 0
    at = 0
    for entry in entries:
        method = (8 if entry.deflate else 0) if entry.method is None else entry.method
        crc = zlib.crc32(entry.data) if entry.crc is None else entry.crc
        size = len(entry.data) if entry.size is None else entry.size
        csize = len(entry.payload) if entry.csize is None else entry.csize
        flags = entry.flags | (8 if entry.descriptor else 0)
        how: dict[str, Any] = {
            "version": 20,
            "flags": flags,
            "method": method,
            "stamp": (entry.time, entry.date),
        }
        numbers = (crc, csize, size)
        if not entry.share:
            at = len(body)
            shown = entry.name if entry.local_name is None else entry.local_name
            told = (0, 0, 0) if entry.descriptor else numbers
            body += zips.local(shown, told, extra=entry.local_extra, **how)
            body += entry.payload
            if entry.descriptor:
                body += struct.pack("<4sIII", b"PK\7\x08", *numbers)
        offset = (base + at) if entry.offset is None else entry.offset
        notes: dict[str, Any] = {"extra": entry.extra, "comment": entry.comment}
        central += zips.central(entry.name, numbers, offset, **notes, **how)
    end = zips.end_record(
        count=len(entries) if count is None else count,
        size=len(central),
        offset=base + len(body) + len(gap),
        comment=comment,
    )
    return stub + bytes(body) + gap + bytes(central) + end + behind


def appended(
    first: bytes, more: list[Entry], kept: list[Entry], comment: bytes = METADATA
) -> bytes:
    """`first` with entries behind its end and a whole new directory; the old bytes stay."""
    new = archive(more, comment=b"")
    body_size = new.index(b"PK\1\2")
    body = new[:body_size]
    offsets: dict[bytes, int] = {}
    at = 0
    old = archive(kept)
    for entry in kept:
        offsets[entry.name] = old.index(b"PK\3\4", at)
        at = offsets[entry.name] + 4
    at = 0
    for entry in more:
        offsets[entry.name] = len(first) + new.index(b"PK\3\4", at)
        at = new.index(b"PK\3\4", at) + 4
    named = [replace(entry, offset=offsets[entry.name]) for entry in [*kept, *more]]
    whole = archive(named, comment)
    central = whole.index(b"PK\1\2")
    tail = bytearray(whole[central:])
    end = tail.rindex(b"PK\5\6")
    tail[end + 16 : end + 20] = struct.pack("<I", len(first) + len(body))
    return first + body + bytes(tail)
