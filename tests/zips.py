"""Records of ZIP archives by struct alone (APPNOTE 4.3), so that each can say what it likes."""

from __future__ import annotations

import struct

_LARGEST = 0xFFFFFFFF


def local(
    name: bytes,
    numbers: tuple[int, int, int],
    *,
    version: int = 10,
    flags: int = 0,
    method: int = 0,
    stamp: tuple[int, int] = (0, 0x21),
    extra: bytes = b"",
) -> bytes:
    """The header before an entry; `numbers` are checksum, stored size and size."""
    fields = (b"PK\3\4", version, flags, method, *stamp, *(n & _LARGEST for n in numbers))
    return struct.pack("<4s5H3I2H", *fields, len(name), len(extra)) + name + extra


def central(
    name: bytes,
    numbers: tuple[int, int, int],
    offset: int,
    *,
    version: int = 10,
    flags: int = 0,
    method: int = 0,
    stamp: tuple[int, int] = (0, 0x21),
    extra: bytes = b"",
    comment: bytes = b"",
    external: int = 0o100644 << 16,
) -> bytes:
    """The header of an entry in the directory; `numbers` are as in `local`."""
    fields = (b"PK\1\2", 0x33F, version, flags, method, *stamp, *(n & _LARGEST for n in numbers))
    sizes = (len(name), len(extra), len(comment))
    packed = struct.pack("<4s6H3I5H2I", *fields, *sizes, 0, 0, external, offset)
    return packed + name + extra + comment


def end_record(
    *,
    count: int,
    size: int,
    offset: int,
    comment: bytes = b"",
    stated_comment: int | None = None,
    disk: int = 0,
) -> bytes:
    """An end of central directory record that says whatever a test wants."""
    long = len(comment) if stated_comment is None else stated_comment
    fields = (b"PK\5\6", disk, disk, count & 0xFFFF, count & 0xFFFF, size, offset, long)
    return struct.pack("<4s4H2IH", *fields) + comment


def with_zip64_end(
    data: bytes,
    *,
    disk: int = 0,
    first_disk: int = 0,
    here: int = 0,
    values: tuple[int, int, int] | None = None,
    stated: int | None = None,
    plain: bool = False,
) -> bytes:
    """The same archive with a ZIP64 end record and its locator (APPNOTE 4.3.14, 4.3.15).

    `here` is added to the number of entries on this disk; `values` are said instead of the true
    count, size and offset of the directory, `stated` instead of the place of the record. The
    short end record refers to the long one, unless it is `plain`.
    """
    at = data.rindex(b"PK\5\6")
    body, end = data[:at], data[at:]
    count, size, start = values or struct.unpack("<HII", end[10:20])
    record = struct.pack(
        "<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, disk, first_disk, count + here, count, size, start
    )
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, at if stated is None else stated, 1)
    return body + record + locator + (end if plain else end[:8] + b"\xff" * 12 + end[20:])
