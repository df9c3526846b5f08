"""The compression that RaQuet calls ``gzip``: written in one way, read in all that exist.

RaQuet 0.1.0 says "zlib compressed" in one place and ``gzip`` in another. Files hold gzip members,
zlib streams, and ten bytes of a gzip header in front of a whole zlib stream.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import deflate
from isal import isal_zlib

from comal.errors import InvalidInputError, InvalidMetadataError

GZIP, ZLIB, HYBRID = "gzip", "zlib", "hybrid"

_HEADER = bytes.fromhex("1f8b08000000000000ff")  # no flags, no time, system unknown
_PLAIN_HEADER = b"\x1f\x8b\x08\x00"  # deflate, no flags: ten bytes, then the stream
_HEADER_SIZE, _TRAILER_SIZE = 10, 8
LEVEL = 6
FAST = 0
_ISAL_LEVEL = 1
_LEVELS = range(13)
_MOST_MEMBERS = 1024  # each leaves a copy of what is behind it


def compress(data: bytes | memoryview, level: int = LEVEL) -> bytes:
    """One gzip member, the same bytes for the same data and level.

    Parameters
    ----------
    data
        What to compress.
    level
        1 to 12 with libdeflate, the same on every machine; 0 is several times faster than 1 and
        some percent larger, by ISA-L, whose output can depend on the kind of processor.
    """
    if level not in _LEVELS:
        raise InvalidInputError("compression level out of range", found=level, expected="0 to 12")
    body: bytes | bytearray
    if level == FAST:
        body = isal_zlib.compress(data, _ISAL_LEVEL, -15)
    else:
        body = deflate.deflate_compress(data, level)
    size = len(data) if isinstance(data, bytes) else data.nbytes
    checksum = isal_zlib.crc32(data)
    trailer = checksum.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")
    return b"".join((_HEADER, body, trailer))


def decompress(blob: bytes, size: int, where: str) -> bytes | bytearray:
    """Exactly `size` bytes out of a blob in any framing.

    Never more than ``size + 1`` bytes are taken, whatever the blob promises.

    Raises
    ------
    InvalidMetadataError
        None of the framings, another size, a wrong checksum, or cut short.
    """
    if blob[:4] == _PLAIN_HEADER:
        fast = _one_member(blob, size)
        if fast is not None:
            return fast
    return unpack(blob, size, where).data


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What was in a blob."""

    data: bytes
    framing: str
    """``gzip``, ``zlib`` or ``hybrid``."""
    behind: int = 0
    """Bytes behind the end of the stream, which are no part of it."""


def _one_member(blob: bytes, size: int) -> bytearray | None:
    """The common case with nothing to spare; None for all that needs a closer look."""
    trailer = blob[-_TRAILER_SIZE:]
    if int.from_bytes(trailer[4:], "little") != size & 0xFFFFFFFF:
        return None
    try:
        data: bytearray = deflate.deflate_decompress(blob[_HEADER_SIZE:-_TRAILER_SIZE], size)
    except deflate.DeflateError:
        return None
    if len(data) != size or isal_zlib.crc32(data) != int.from_bytes(trailer[:4], "little"):
        return None
    return data


def unpack(blob: bytes, size: int, where: str) -> Unpacked:
    """As `decompress`, and how the blob is framed."""
    if blob[:2] == b"\x1f\x8b":
        try:
            return _members(blob, size, where)
        except zlib.error as error:
            # The rest of such a blob would be a stored block whose length is wrong at once.
            if not _is_zlib(blob[_HEADER_SIZE : _HEADER_SIZE + 2]) or blob[_HEADER_SIZE] != 0x78:
                raise _broken(where, str(error)) from error
        return _zlib_stream(blob, _HEADER_SIZE, size, where, HYBRID)
    if _is_zlib(blob[:2]):
        return _zlib_stream(blob, 0, size, where, ZLIB)
    raise InvalidMetadataError(
        "tile is not compressed as the metadata say",
        where=where,
        found=f"first bytes {blob[:4].hex(' ') or 'missing'}, {len(blob)} bytes",
        expected="a gzip member or a zlib stream",
    )


def _is_zlib(head: bytes) -> bool:
    """RFC 1950: method 8, and the two bytes are a multiple of 31."""
    return len(head) == 2 and head[0] & 0x0F == 8 and int.from_bytes(head, "big") % 31 == 0


def _members(blob: bytes, size: int, where: str) -> Unpacked:
    """RFC 1952: members one behind the other are one stream."""
    parts: list[bytes] = []
    left = size
    rest = blob
    for _ in range(_MOST_MEMBERS):
        stream = zlib.decompressobj(31)
        data = stream.decompress(rest, left + 1)
        if len(data) > left:
            raise _too_long(where, size)
        if not stream.eof:
            # The end may still be in what was not taken up, with nothing more to give.
            data += stream.decompress(stream.unconsumed_tail, left - len(data) + 1)
            if len(data) > left:
                raise _too_long(where, size)
        if not stream.eof:
            raise _cut_short(where)
        parts.append(data)
        left -= len(data)
        rest = stream.unused_data
        if rest[:2] != b"\x1f\x8b":
            return Unpacked(_whole(b"".join(parts), size, where), GZIP, len(rest))
    raise _broken(where, f"more than {_MOST_MEMBERS} gzip members")


def _zlib_stream(blob: bytes, at: int, size: int, where: str, framing: str) -> Unpacked:
    stream = zlib.decompressobj(15)
    try:
        data = stream.decompress(blob[at:], size + 1)
        if not stream.eof and len(data) <= size:
            data += stream.decompress(stream.unconsumed_tail, size - len(data) + 1)
    except zlib.error as error:
        raise _broken(where, str(error)) from error
    if len(data) > size:
        raise _too_long(where, size)
    if not stream.eof:
        raise _cut_short(where)
    return Unpacked(_whole(data, size, where), framing, len(stream.unused_data))


def _whole(data: bytes, size: int, where: str) -> bytes:
    if len(data) != size:
        raise InvalidMetadataError(
            "tile is too short", where=where, found=f"{len(data)} bytes", expected=size
        )
    return data


def _too_long(where: str, size: int) -> InvalidMetadataError:
    return InvalidMetadataError(
        "tile is too long", where=where, found=f"more than {size} bytes", expected=size
    )


def _cut_short(where: str) -> InvalidMetadataError:
    return InvalidMetadataError("tile is cut short", where=where, found="no end of the stream")


def _broken(where: str, reason: str) -> InvalidMetadataError:
    return InvalidMetadataError("tile does not decompress", where=where, found=reason)
