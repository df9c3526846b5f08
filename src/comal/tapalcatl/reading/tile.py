"""Tiles as they are handed out: decoded, or exactly as they are stored."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Final, NamedTuple

from isal import igzip_lib, isal_zlib

from comal import ziparchive
from comal.errors import InvalidMetadataError, LimitExceededError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.tapalcatl.spec import CONTENT_ENCODING, CONTENT_TYPE, OCTETS, Headers
from comal.tapalcatl.wire import key_tile, suffix_of
from comal.ziparchive import DEFLATE

GZIP_HEADER: Final = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF))
"""RFC 1952: deflate, no flags, no time, unknown system."""
_TRAILER = struct.Struct("<II")


class Tile(NamedTuple):
    """One tile. A named tuple, because one of them is made for each read."""

    data: bytes
    """Its bytes, out of the archive. What `content_encoding` names is still on them."""
    headers: Headers
    """Headers of its format and of its own, those left out that a tile may not set."""
    crc: int
    """CRC-32 of `data`."""
    modified: int | None
    """Seconds since 1970, UTC; None where nothing is said."""
    ext: str
    scale: float

    def header(self, name: str) -> str | None:
        """The value of a header, whatever the case of its name; of several the last."""
        return _header(self.headers, name)

    @property
    def content_type(self) -> str:
        """What the bytes are."""
        return self.header(CONTENT_TYPE) or OCTETS

    @property
    def content_encoding(self) -> str | None:
        """What the bytes are wrapped in, such as ``gzip``."""
        return self.header(CONTENT_ENCODING)

    @property
    def etag(self) -> str:
        """The checksum as an entity tag, quoted."""
        return f'"{self.crc:08x}"'

    @property
    def last_modified(self) -> str | None:
        """The time of the last change as HTTP writes it."""
        return http_date(self.modified)

    def content(self, limits: Limits = DEFAULT_LIMITS) -> bytes:
        """The bytes without their content encoding.

        Raises
        ------
        InvalidMetadataError
            They are not what `content_encoding` says.
        LimitExceededError
            More than `Limits.tile_bytes`.
        """
        encoding = (self.content_encoding or "identity").lower()
        if encoding == "identity":
            return self.data
        if encoding == "gzip":
            return gunzipped(self.data, limits)
        raise InvalidMetadataError("content encoding is not supported", found=encoding)


@dataclass(frozen=True, slots=True)
class StoredTile:
    """One tile as the archive stores it; nothing is inflated and no checksum compared."""

    payload: bytes
    """The stored bytes."""
    method: int
    """How: 0 as they are, 8 as raw DEFLATE."""
    crc: int
    """CRC-32 of the tile's bytes, as the directory says."""
    size: int
    """How many bytes the tile has, as the directory says."""
    headers: Headers
    modified: int | None
    ext: str
    scale: float
    archive: str = ""
    """The archive, as messages call it."""
    key: int = 0
    """The `tile_key` of the entry."""

    @property
    def where(self) -> str:
        """What messages call it."""
        return tile_label(self.archive, self.key, suffix_of(self.scale, self.ext))

    @property
    def etag(self) -> str:
        """The checksum as an entity tag, quoted."""
        return f'"{self.crc:08x}"'

    @property
    def last_modified(self) -> str | None:
        """The time of the last change as HTTP writes it."""
        return http_date(self.modified)

    def data(self, *, verify: bool = True, limits: Limits = DEFAULT_LIMITS) -> bytes:
        """The tile's bytes.

        Raises
        ------
        InvalidMetadataError
            They have not the size that is stated or, with `verify`, not the checksum.
        """
        limits.check("tile_bytes", self.size, self.where)
        crc = self.crc if verify else None
        return ziparchive.extracted(
            self.payload, method=self.method, size=self.size, crc=crc, where=self.where
        )

    def as_gzip(self) -> bytes | None:
        """Raw DEFLATE as a gzip stream of the same bits, nothing compressed anew; else None.

        Nothing is checked: whoever inflates the stream compares size and checksum.
        """
        if self.method != DEFLATE:
            return None
        return GZIP_HEADER + self.payload + _TRAILER.pack(self.crc, self.size & 0xFFFFFFFF)

    def tile(self, *, verify: bool = True, limits: Limits = DEFAULT_LIMITS) -> Tile:
        """The same, decoded."""
        data = self.data(verify=verify, limits=limits)
        return Tile(data, self.headers, self.crc, self.modified, self.ext, self.scale)


def tile_label(archive: str, key: int, suffix: str) -> str:
    """What messages call a tile."""
    return f"{archive}, {'/'.join(map(str, key_tile(key)))}{suffix}"


def http_date(seconds: int | None) -> str | None:
    """Seconds since 1970 as an HTTP date."""
    if seconds is None:
        return None
    return format_datetime(datetime.fromtimestamp(seconds, UTC), usegmt=True)


def gunzipped(data: bytes, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The content of a gzip stream of one or more members, of bounded size.

    Raises
    ------
    InvalidMetadataError
        No gzip, or a broken or unfinished stream.
    LimitExceededError
        More than `Limits.tile_bytes`; found out before that much is held twice.
    """
    parts: list[bytes] = []
    room = limits.tile_bytes
    while data:
        stream = isal_zlib.decompressobj(wbits=31)
        try:
            part = stream.decompress(data, room + 1)
        except (igzip_lib.IsalError, zlib.error) as error:  # type: ignore[misc]  # an instance, says the stub
            raise InvalidMetadataError("not a gzip stream", found=str(error)) from error
        room -= len(part)
        if room < 0:
            raise LimitExceededError(
                "tile bytes over the limit",
                expected=f"at most {limits.tile_bytes}",
                hint="pass limits=Limits(tile_bytes=...) if the source is trusted",
                limit="tile_bytes",
            )
        if not stream.eof:
            raise InvalidMetadataError("gzip stream is cut short")
        parts.append(part)
        data = stream.unused_data
    if not parts:
        raise InvalidMetadataError("not a gzip stream", found="no bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _header(headers: Headers, name: str) -> str | None:
    wanted = name.lower()
    return next((value for key, value in reversed(headers) if key.lower() == wanted), None)
