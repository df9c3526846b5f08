"""Content codings of tiles: gzip around DEFLATE bits as they are, and the way back.

A ZIP entry of method 8 is raw DEFLATE. Ten bytes before it and eight behind it make it gzip, so a
tile goes out compressed without having been compressed again.
"""

from __future__ import annotations

import zlib

from isal import igzip_lib, isal_zlib

from comal.errors import InvalidMetadataError, LimitExceededError

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW, _GZIP = -15, 31


def as_gzip(deflated: bytes, crc: int, size: int) -> bytes:
    """Raw DEFLATE bits as gzip (RFC 1952); `crc` and `size` are of what they hold."""
    tail = crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")
    return b"".join((_GZIP_HEADER, deflated, tail))


def crc_of(data: bytes) -> int:
    """CRC-32."""
    return int(isal_zlib.crc32(data))


def inflated(deflated: bytes, size: int) -> bytes:
    """Exactly `size` bytes out of raw DEFLATE bits.

    Raises
    ------
    InvalidMetadataError
        The bits are broken, or hold fewer or more.
    """
    data = _decompressed(deflated, _RAW, size)
    if len(data) != size:
        raise InvalidMetadataError("a tile is not as long as it says", expected=f"{size} bytes")
    return data


def gunzipped(data: bytes, limit: int) -> bytes:
    """What gzip bytes hold.

    Raises
    ------
    InvalidMetadataError
        They are broken.
    LimitExceededError
        They hold more than `limit` bytes.
    """
    plain = _decompressed(data, _GZIP, limit)
    if len(plain) > limit:
        raise LimitExceededError("a tile is larger than allowed", expected=f"at most {limit}")
    return plain


def _decompressed(data: bytes, kind: int, most: int) -> bytes:
    """At most one byte more than `most`; the stream must have an end unless there is more."""
    stream = isal_zlib.decompressobj(wbits=kind)
    try:
        plain: bytes = stream.decompress(data, most + 1)
    except (igzip_lib.IsalError, zlib.error) as error:  # type: ignore[misc] # an instance, says the stub
        raise InvalidMetadataError("compressed bytes are broken") from error
    if len(plain) <= most and not stream.eof:
        raise InvalidMetadataError("compressed bytes end early")
    return plain
