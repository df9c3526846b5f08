"""Records of a ZIP file: their layouts and numbers.

Names and layouts follow PKWARE's APPNOTE 6.3. Fixed parts are NumPy record types, so that headers
of a whole block of entries are packed or parsed in one step.
"""

from __future__ import annotations

import struct

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
"""Unix, specification 6.3: the value that the existing TACO writers use."""
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
"""What a writer keeps of an entry besides its name; `offset` is that of the local header."""

END = struct.Struct("<IHHHHIIH")
"""The end record: signature, disk, first disk, entries here and in all, size, offset, comment."""
END64 = struct.Struct("<IQHHIIQQQQ")
LOCATOR64 = struct.Struct("<IIQI")
