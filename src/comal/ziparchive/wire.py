"""Records of a ZIP file: bytes and numbers, no I/O.

Names and layouts follow PKWARE's APPNOTE 6.3. Fixed parts are NumPy record types, so that headers
of a whole block of entries are packed or parsed in one step.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

LOCAL_SIGNATURE = 0x04034B50
CENTRAL_SIGNATURE = 0x02014B50
END_SIGNATURE = 0x06054B50
END64_SIGNATURE = 0x06064B50
LOCATOR64_SIGNATURE = 0x07064B50

STORE = 0
DEFLATE = 8

FLAG_ENCRYPTED = 0x0001
FLAG_DESCRIPTOR = 0x0008
FLAG_STRONG_ENCRYPTION = 0x0040
FLAG_UTF8 = 0x0800
FLAG_MASKED = 0x2000

VERSION_STORE = 10
VERSION_DEFLATE = 20
VERSION_ZIP64 = 45
MADE_BY = 0x033F
"""Unix, specification 6.3: the value that the existing TACO writers put."""
REGULAR_FILE = 0o100644 << 16
"""External attributes of a plain file that its owner may write."""

DOS_DATE_1980 = 0x0021
DOS_TIME_MIDNIGHT = 0x0000

U16 = 0xFFFF
U32 = 0xFFFFFFFF
ZIP64_ID = 0x0001

LOCAL_SIZE = 30
CENTRAL_SIZE = 46
END_SIZE = 22
END64_SIZE = 56
LOCATOR64_SIZE = 20
MAX_COMMENT = U16
MAX_NAME = U16

Records = npt.NDArray[np.void]
Int64s = npt.NDArray[np.int64]

LOCAL = np.dtype(
    [
        ("signature", "<u4"),
        ("version", "<u2"),
        ("flags", "<u2"),
        ("method", "<u2"),
        ("time", "<u2"),
        ("date", "<u2"),
        ("crc", "<u4"),
        ("csize", "<u4"),
        ("size", "<u4"),
        ("name_size", "<u2"),
        ("extra_size", "<u2"),
    ]
)
CENTRAL = np.dtype(
    [
        ("signature", "<u4"),
        ("made_by", "<u2"),
        ("version", "<u2"),
        ("flags", "<u2"),
        ("method", "<u2"),
        ("time", "<u2"),
        ("date", "<u2"),
        ("crc", "<u4"),
        ("csize", "<u4"),
        ("size", "<u4"),
        ("name_size", "<u2"),
        ("extra_size", "<u2"),
        ("comment_size", "<u2"),
        ("disk", "<u2"),
        ("internal", "<u2"),
        ("external", "<u4"),
        ("offset", "<u4"),
    ]
)
ENTRY = np.dtype(
    [
        ("offset", "<i8"),
        ("csize", "<i8"),
        ("size", "<i8"),
        ("crc", "<u4"),
        ("flags", "<u2"),
        ("method", "<u2"),
        ("name_size", "<u2"),
    ]
)
"""What a writer remembers of an entry besides its name; `offset` is that of the local header."""

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR64 = struct.Struct("<IIQI")


def local_header(
    name: bytes,
    *,
    crc: int,
    csize: int,
    size: int,
    method: int = STORE,
    extra: bytes = b"",
    dos_time: int = DOS_TIME_MIDNIGHT,
    dos_date: int = DOS_DATE_1980,
) -> bytes:
    """One local file header with its name and extra fields.

    An entry of 0xFFFFFFFF bytes or more gets the ZIP64 extra field, in front of `extra`.
    """
    zip64 = needs_zip64(csize, size)
    if zip64:
        extra = struct.pack("<HHQQ", ZIP64_ID, 16, size, csize) + extra
    fixed = _LOCAL.pack(
        LOCAL_SIGNATURE,
        version_needed(method, zip64=zip64),
        flags_of(name),
        method,
        dos_time,
        dos_date,
        crc,
        U32 if zip64 else csize,
        U32 if zip64 else size,
        len(name),
        len(extra),
    )
    return fixed + name + extra


def local_headers(
    entries: Records,
    extra_sizes: npt.ArrayLike,
    *,
    dos_time: npt.ArrayLike,
    dos_date: npt.ArrayLike,
) -> Records:
    """The fixed parts of local headers of `entries` (an array of `ENTRY`) below the ZIP64 limit."""
    headers = np.zeros(len(entries), LOCAL)
    headers["signature"] = LOCAL_SIGNATURE
    headers["version"] = np.where(entries["method"] == STORE, VERSION_STORE, VERSION_DEFLATE)
    for field in ("flags", "method", "crc", "csize", "size", "name_size"):
        headers[field] = entries[field]
    headers["time"] = dos_time
    headers["date"] = dos_date
    headers["extra_size"] = extra_sizes
    return headers


def central_header(
    name: bytes,
    *,
    offset: int,
    crc: int,
    csize: int,
    size: int,
    method: int = STORE,
    extra: bytes = b"",
    comment: bytes = b"",
    dos_time: int = DOS_TIME_MIDNIGHT,
    dos_date: int = DOS_DATE_1980,
) -> bytes:
    """One header of the central directory with its name, extra fields and comment."""
    large = needs_zip64(csize, size)
    zip64 = _zip64_field(size, csize, offset)
    fixed = _CENTRAL.pack(
        CENTRAL_SIGNATURE,
        MADE_BY,
        version_needed(method, zip64=bool(zip64)),
        flags_of(name),
        method,
        dos_time,
        dos_date,
        crc,
        U32 if large else csize,
        U32 if large else size,
        len(name),
        len(zip64) + len(extra),
        len(comment),
        0,
        0,
        REGULAR_FILE,
        min(offset, U32),
    )
    return b"".join((fixed, name, zip64, extra, comment))


def central_headers(
    entries: Records, *, dos_time: npt.ArrayLike, dos_date: npt.ArrayLike
) -> tuple[Records, npt.NDArray[Any], list[bytes]]:
    """Central directory headers of `entries` (an array of `ENTRY`).

    Times and dates are one for all, or one for each.
    """
    large = (entries["size"] >= U32) | (entries["csize"] >= U32)
    far = entries["offset"] >= U32
    headers = np.zeros(len(entries), CENTRAL)
    headers["signature"] = CENTRAL_SIGNATURE
    headers["made_by"] = MADE_BY
    headers["version"] = np.where(entries["method"] == STORE, VERSION_STORE, VERSION_DEFLATE)
    headers["version"][large | far] = VERSION_ZIP64
    for field in ("flags", "method", "crc", "name_size"):
        headers[field] = entries[field]
    headers["time"] = dos_time
    headers["date"] = dos_date
    headers["csize"] = np.where(large, U32, entries["csize"])
    headers["size"] = np.where(large, U32, entries["size"])
    headers["offset"] = np.where(far, U32, entries["offset"])
    headers["external"] = REGULAR_FILE
    # APPNOTE 4.5.3: only the values whose field says 0xFFFFFFFF, in this order.
    headers["extra_size"] = np.where(large | far, 4 + 16 * large + 8 * far, 0)
    rows = np.flatnonzero(large | far)
    return headers, rows, _zip64_fields(entries[rows])


def _zip64_fields(entries: Records) -> list[bytes]:
    fields = []
    columns = (entries["size"].tolist(), entries["csize"].tolist(), entries["offset"].tolist())
    for size, csize, offset in zip(*columns, strict=True):
        fields.append(_zip64_field(size, csize, offset))
    return fields


def _zip64_field(size: int, csize: int, offset: int) -> bytes:
    values = [size, csize] if needs_zip64(csize, size) else []
    if offset >= U32:
        values.append(offset)
    if not values:
        return b""
    return struct.pack(f"<HH{len(values)}Q", ZIP64_ID, 8 * len(values), *values)


def end_records(*, count: int, size: int, offset: int, comment: bytes = b"") -> bytes:
    """The end of central directory record, after the ZIP64 pair where a field is too small."""
    records = b""
    if count > U16 or size >= U32 or offset >= U32:
        records = _END64.pack(
            END64_SIGNATURE,
            END64_SIZE - 12,
            MADE_BY,
            VERSION_ZIP64,
            0,
            0,
            count,
            count,
            size,
            offset,
        ) + _LOCATOR64.pack(LOCATOR64_SIGNATURE, 0, offset + size, 1)
    short = min(count, U16)
    return (
        records
        + _END.pack(
            END_SIGNATURE, 0, 0, short, short, min(size, U32), min(offset, U32), len(comment)
        )
        + comment
    )


def flags_of(name: bytes) -> int:
    """General purpose flags of an entry: only the UTF-8 bit, only where it means something."""
    return 0 if name.isascii() else FLAG_UTF8


def needs_zip64(csize: int, size: int) -> bool:
    """Whether the sizes of an entry do not fit the 32-bit fields."""
    return csize >= U32 or size >= U32


def version_needed(method: int, *, zip64: bool) -> int:
    """The lowest version of the specification that can extract such an entry."""
    if zip64:
        return VERSION_ZIP64
    return VERSION_STORE if method == STORE else VERSION_DEFLATE
