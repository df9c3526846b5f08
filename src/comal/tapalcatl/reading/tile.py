"""Tiles returned by readers, decoded or exactly as stored, and how their bytes are found.

A record of the directory points to a local header, which the payload follows.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final, NamedTuple

from isal import igzip_lib, isal_zlib
from isal.isal_zlib import crc32

from comal.errors import InvalidMetadataError, LimitExceededError, shown
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange
from comal.tapalcatl.reading.archives import OpenArchive
from comal.tapalcatl.reading.index import BAD, ENCRYPTED, Fields, Record
from comal.tapalcatl.spec import CONTENT_ENCODING, CONTENT_TYPE, OCTETS, Headers
from comal.tapalcatl.wire import key_tile, suffix_of
from comal.ziparchive import DEFLATE, STORE, extracted
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.local import local_size

GZIP_HEADER: Final = bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF))
"""RFC 1952: deflate, no flags, no time, unknown system."""
_TRAILER = struct.Struct("<II")
Key = tuple[int, int, int]
"""Zoom, column and row of a tile."""


class Tile(NamedTuple):
    """One tile. A named tuple, because each read makes one."""

    data: bytes
    """Its bytes, decompressed from the archive but still in `content_encoding`."""
    headers: Headers
    """Headers of its format and its own, without those that a tile may not set."""
    crc: int
    """CRC-32 of `data`."""
    modified: int | None
    """Seconds since 1970 UTC; None if unknown."""
    ext: str
    scale: float

    def header(self, name: str) -> str | None:
        """The last value of a header, by its name in any case."""
        wanted = name.lower()
        return next((value for key, value in reversed(self.headers) if key.lower() == wanted), None)

    @property
    def content_type(self) -> str:
        """The content type."""
        return self.header(CONTENT_TYPE) or OCTETS

    @property
    def content_encoding(self) -> str | None:
        """The content encoding, such as ``gzip``."""
        return self.header(CONTENT_ENCODING)

    @property
    def etag(self) -> str:
        """The checksum as an entity tag, quoted."""
        return f'"{self.crc:08x}"'

    @property
    def last_modified(self) -> str | None:
        """The modification time as an HTTP date."""
        return http_date(self.modified)

    def content(self, limits: Limits = DEFAULT_LIMITS) -> bytes:
        """The bytes without their content encoding.

        Raises
        ------
        InvalidMetadataError
            The bytes are not in `content_encoding`, or that is not supported.
        LimitExceededError
            More than `Limits.tile_bytes`.
        """
        encoding = (self.content_encoding or "identity").lower()
        if encoding == "identity":
            return self.data
        if encoding == "gzip":
            return gunzipped(self.data, limits)
        raise InvalidMetadataError("the content encoding is not supported", found=encoding)


@dataclass(frozen=True, slots=True)
class StoredTile:
    """One tile as the archive stores it, without decompression or checksum verification."""

    payload: bytes
    """The stored bytes."""
    method: int
    """Compression method: 0 for stored, 8 for raw DEFLATE."""
    crc: int
    """CRC-32 of the tile's bytes according to the directory."""
    size: int
    """Size of the tile in bytes according to the directory."""
    headers: Headers
    modified: int | None
    ext: str
    scale: float
    archive: str = ""
    """The archive's name in messages."""
    key: int = 0
    """The `tile_key` of the entry."""

    @property
    def where(self) -> str:
        """The tile's name in messages."""
        name = entry_name(key_tile(self.key), suffix_of(self.scale, self.ext))
        return tile_label(self.archive, name)

    @property
    def etag(self) -> str:
        """The checksum as an entity tag, quoted."""
        return f'"{self.crc:08x}"'

    @property
    def last_modified(self) -> str | None:
        """The modification time as an HTTP date."""
        return http_date(self.modified)

    def data(self, *, verify: bool = True, limits: Limits = DEFAULT_LIMITS) -> bytes:
        """The tile's bytes.

        Raises
        ------
        InvalidMetadataError
            The size or, with `verify`, the checksum differs from the stated one.
        """
        where, crc = self.where, self.crc if verify else None
        limits.check("tile_bytes", self.size, where)
        return extracted(self.payload, method=self.method, size=self.size, crc=crc, where=where)

    def as_gzip(self) -> bytes | None:
        """Raw DEFLATE wrapped as gzip without recompression; None for other methods.

        Nothing is verified: clients compare size and checksum when they decompress the stream.
        """
        if self.method != DEFLATE:
            return None
        return GZIP_HEADER + self.payload + _TRAILER.pack(self.crc, self.size & 0xFFFFFFFF)

    def tile(self, *, verify: bool = True, limits: Limits = DEFAULT_LIMITS) -> Tile:
        """The decoded tile."""
        data = self.data(verify=verify, limits=limits)
        return Tile(data, self.headers, self.crc, self.modified, self.ext, self.scale)


def tile_label(archive: str, name: bytes) -> str:
    """The name of a tile in messages."""
    return f"{archive}, {name.decode(errors='replace')}"


def http_date(seconds: int | None) -> str | None:
    """Seconds since 1970 as an HTTP date."""
    if seconds is None:
        return None
    return format_datetime(datetime.fromtimestamp(seconds, UTC), usegmt=True)


def gunzipped(data: bytes, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The content of a gzip stream of one or more members, up to `Limits.tile_bytes`."""
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
            raise InvalidMetadataError("the gzip stream is cut short")
        parts.append(part)
        data = stream.unused_data
    if not parts:
        raise InvalidMetadataError("not a gzip stream", found="no bytes")
    return parts[0] if len(parts) == 1 else b"".join(parts)


_LOCAL = struct.Struct("<I22xHH").unpack_from
"""Signature, length of the name, length of the extra field; every span holds a local header."""
_LOCAL_SIZE: Final = zip_wire.LOCAL_SIZE
_TILE_NAME = re.compile(rb"(?<![^/])\d{1,2}/\d{1,9}/\d{1,9}(?:@[^/]*)?(?:\.[^/]*)?\Z", re.DOTALL)


def entry_name(tile: Key, suffix: str) -> bytes:
    """The entry name of a tile in its archive, without the prefix of a variant."""
    return b"%d/%d/%d%b" % (*tile, suffix.encode())


def read_content(
    archive: OpenArchive, fields: Fields, limits: Limits, name: bytes, *, verify: bool
) -> bytes:
    """The bytes of a tile, in one read."""
    offset, span, csize, size, crc, _, method, name_size = fields
    file = archive.file
    if (
        file is not None
        and method == STORE
        and csize == size <= limits.tile_bytes
        and span - csize == _LOCAL_SIZE + name_size
    ):
        # Only the name fits between local header and payload: the checksum confirms that,
        # and the name that it is this tile.
        if not verify:
            return file.read(offset + span - csize, csize)
        data = file.read(offset, span)
        if len(name) == name_size and data.startswith(name, _LOCAL_SIZE):
            data = data[_LOCAL_SIZE + name_size :]
            if crc32(data) == crc:
                return data
    data = read_payload(archive, fields, limits, name)
    if method != STORE or csize != size or (verify and crc32(data) != crc):
        where = tile_label(archive.label, name)
        limits.check("tile_bytes", size, where)
        wanted = crc if verify else None
        return extracted(data, method=method, size=size, crc=wanted, where=where)
    return data


def read_payload(archive: OpenArchive, fields: Fields, limits: Limits, name: bytes) -> bytes:
    """The stored bytes of a tile, in one read."""
    offset, span, csize, _, _, _, method, _ = fields
    if (method != STORE and method != DEFLATE) or csize > limits.tile_bytes:  # noqa: PLR1714 - hot
        refuse(Record(*fields), limits, tile_label(archive.label, name))
    file = archive.file
    if file is not None:
        data = file.read(offset, span)
    else:
        (piece,) = archive.source.fetch([ByteRange(offset, span)])
        data = piece.data
    return payload_in(data, archive, fields, name)


def payload_in(data: bytes, archive: OpenArchive, fields: Fields, name: bytes) -> bytes:
    """The stored bytes of a tile from its record's span, which begins with a local header.

    The directory is authoritative: from the local header only its length is used, and its name
    only to detect the name of another tile (`check_local_name`).
    """
    offset, _, csize, _, _, _, _, _ = fields
    index = archive.index
    check_local_name(data, 0, name, offset, index.offsets, archive.label)
    mark, name_size, extra_size = _LOCAL(data)
    start = _LOCAL_SIZE + name_size + extra_size
    if mark == zip_wire.LOCAL_SIGNATURE and start + csize <= len(data):
        return data[start : start + csize]
    where = tile_label(archive.label, name)
    start = offset + local_size(data, where)
    if start + csize > index.end:
        raise InvalidMetadataError(
            "the entry reaches outside the archive",
            where=where,
            found=f"{csize} bytes at {start}",
            expected=f"an end at or before {index.end}",
        )
    # Only needed if an extra field is longer than `index.SLACK` and a gap follows.
    (piece,) = archive.source.fetch([ByteRange(start, csize)])
    return piece.data


def check_local_name(
    data: bytes,
    at: int,
    name: bytes,
    offset: int,
    offsets: Callable[[], Any],
    archive: str,
) -> None:
    """Raise `InvalidMetadataError` if the local header at `at` in `data` names another tile.

    No checksum covers the names of a directory: a changed one would lead to the bytes of another
    tile. Names that are not tiles are ignored. Several entries may share one local header: then
    `offsets`, those of all entries, contain its `offset` more than once.
    """
    begin = at + _LOCAL_SIZE
    if data.startswith(name, begin):
        return
    mark, name_size, _ = _LOCAL(data, at)
    local = data[begin : begin + name_size]
    found = _TILE_NAME.search(local)
    if mark != zip_wire.LOCAL_SIGNATURE or found is None or found[0] == name:
        return
    if int((offsets() == offset).sum()) > 1:
        return
    raise InvalidMetadataError(
        "the local header is that of another tile",
        where=f"{archive}, {name.decode(errors='replace')}",
        found=shown(local.decode(errors="replace")),
        expected=name.decode(errors="replace"),
        hint="'comal check' lists what is wrong with the archive; put or delete the tile",
    )


def refuse(record: Record, limits: Limits, where: str) -> None:
    """Raise an error for a record that cannot be read."""
    if record.method & BAD:
        raise InvalidMetadataError(
            "the entry cannot be where the directory says",
            where=where,
            found=f"{record.csize} bytes behind a header at {record.offset}",
            hint="'comal check' lists what is wrong with the archive",
        )
    if record.method & ENCRYPTED:
        raise InvalidMetadataError("the entry is encrypted", where=where)
    if record.method not in {STORE, DEFLATE}:
        raise InvalidMetadataError(
            "the compression method is not supported",
            where=where,
            found=record.method,
            expected=f"{STORE} or {DEFLATE}",
        )
    limits.check("tile_bytes", record.csize, where)
