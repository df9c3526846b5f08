"""From a record of the directory to the tile's bytes, with the local header on the way."""

from __future__ import annotations

import re
import struct

from comal.errors import InvalidMetadataError, LimitExceededError, shown
from comal.limits import Limits
from comal.plan import ByteRange, Plan, run, run_async
from comal.tapalcatl.reading.archives import OpenArchive
from comal.tapalcatl.reading.index import BAD, ENCRYPTED, Fields, Record
from comal.tapalcatl.reading.tile import tile_label
from comal.tapalcatl.wire import key_tile
from comal.ziparchive import DEFLATE, STORE, extracted
from comal.ziparchive import wire as zip_wire

_LOCAL = struct.Struct("<I22xHH").unpack_from
"""Signature, length of the name, length of the extra field; every span holds a local header."""
_TILE_NAME = re.compile(rb"(?<![^/])\d{1,2}/\d{1,9}/\d{1,9}(?:@[^/]*)?(?:\.[^/]*)?\Z", re.DOTALL)


def read_payload(
    archive: OpenArchive, fields: Fields, limits: Limits, key: int, suffix: str
) -> bytes:
    """The stored bytes of a tile, by one read.

    Raises
    ------
    InvalidMetadataError
        The entry cannot be where it is said to be, is encrypted, or is compressed by something
        else than DEFLATE.
    LimitExceededError
        The tile is larger than `Limits.tile_bytes`.
    """
    offset, span, csize, _, _, _, method, _ = fields
    if (method != STORE and method != DEFLATE) or csize > limits.tile_bytes:  # noqa: PLR1714 - hot
        refuse(Record(*fields), limits, tile_label(archive.label, key, suffix))
    file = archive.file
    if file is not None:
        data = file.read(offset, span)
    else:
        (piece,) = archive.source.fetch([ByteRange(offset, span)])
        data = piece.data
    check_local_name(archive, offset, data, key, suffix)
    mark, name_size, extra_size = _LOCAL(data)
    start = zip_wire.LOCAL_SIZE + name_size + extra_size
    if mark == zip_wire.LOCAL_SIGNATURE and start + csize <= span:
        return data[start : start + csize]
    plan = payload_plan(archive, Record(*fields), data, tile_label(archive.label, key, suffix))
    return run(plan, archive.source.fetch)


async def read_payload_async(
    archive: OpenArchive, fields: Fields, limits: Limits, key: int, suffix: str
) -> bytes:
    """As `read_payload`. A local file is read at once: its pages are most often in memory."""
    if archive.file is not None:
        return read_payload(archive, fields, limits, key, suffix)
    record, where = Record(*fields), tile_label(archive.label, key, suffix)
    refuse(record, limits, where)
    (piece,) = await archive.source.fetch_async([ByteRange(record.offset, record.span)])
    check_local_name(archive, record.offset, piece.data, key, suffix)
    plan = payload_plan(archive, record, piece.data, where)
    return await run_async(plan, archive.source.fetch_async)


def entry_name(key: int, suffix: str) -> bytes:
    """How a tile is called in its archive, without the prefix of a variant."""
    z, x, y = key_tile(key)
    return f"{z}/{x}/{y}{suffix}".encode()


def check_local_name(
    archive: OpenArchive, offset: int, data: bytes, key: int, suffix: str, at: int = 0
) -> None:
    """Refuse a local header, `at` a place of the data, that calls its payload another tile.

    No checksum covers the names of a directory: a changed one would lead to the bytes of another
    tile. Names that are no tiles say nothing, and several entries may share one local header.

    Raises
    ------
    InvalidMetadataError
        The header is that of another tile, and of no other entry.
    """
    name = entry_name(key, suffix)
    begin = at + zip_wire.LOCAL_SIZE
    if data.startswith(name, begin):
        return
    local = other_tile(data, at, name)
    if local is None:
        return
    if int((archive.index.table["offset"] == offset).sum()) > 1:
        return
    raise InvalidMetadataError(
        "local header is that of another tile",
        where=tile_label(archive.label, key, suffix),
        found=shown(local.decode(errors="replace")),
        expected=name.decode(),
        hint="'comal check' lists what is wrong with the archive",
    )


def other_tile(data: bytes, at: int, name: bytes) -> bytes | None:
    """What a local header calls its payload, where that is another tile than `name`."""
    mark, name_size, _ = _LOCAL(data, at)
    begin = at + zip_wire.LOCAL_SIZE
    local = data[begin : begin + name_size]
    found = _TILE_NAME.search(local)
    known = mark != zip_wire.LOCAL_SIGNATURE or found is None or found[0] == name
    return None if known else local


def inflated(
    archive: OpenArchive,
    record: Record,
    payload: bytes,
    limits: Limits,
    key: int,
    suffix: str,
    *,
    verify: bool,
) -> bytes:
    """A tile's bytes from its stored ones, where more is to be done than to compare.

    Raises
    ------
    InvalidMetadataError
        They have not the size that is stated or, with `verify`, not the checksum.
    LimitExceededError
        The tile says that it is larger than `Limits.tile_bytes`.
    """
    where = tile_label(archive.label, key, suffix)
    limits.check("tile_bytes", record.size, where)
    crc = record.crc if verify else None
    return extracted(payload, method=record.method, size=record.size, crc=crc, where=where)


def payload_plan(archive: OpenArchive, record: Record, data: bytes, where: str) -> Plan[bytes]:
    """The payload out of `data`, which begins with the local header; more is asked for if need be.

    Only an extra field that is longer than `index.SLACK` in front of a gap needs that.
    """
    start, stop = payload_span(data, record, archive.index.end, where)
    if stop <= len(data):
        return data[start:stop]
    (piece,) = yield [ByteRange(record.offset + start, stop - start)]
    return piece.data


def payload_span(data: bytes, record: Record, end: int, where: str) -> tuple[int, int]:
    """Where in the bytes from the local header on the payload begins and ends.

    The directory is authoritative: of the local header only its own length counts, and its name
    where that is the name of another tile (`check_local_name`).
    """
    mark, name_size, extra_size = _LOCAL(data)
    if mark != zip_wire.LOCAL_SIGNATURE:
        raise InvalidMetadataError(
            "no local header",
            where=where,
            found=f"{mark:08x}",
            expected=f"{zip_wire.LOCAL_SIGNATURE:08x}",
        )
    start = zip_wire.LOCAL_SIZE + name_size + extra_size
    stop = start + record.csize
    if record.offset + stop > end:
        raise InvalidMetadataError(
            "entry reaches outside of the archive",
            where=where,
            found=f"{record.csize} bytes at {record.offset + start}",
            expected=f"an end at or before {end}",
        )
    return start, stop


def refuse(record: Record, limits: Limits, where: str) -> None:
    """Raise for a record that cannot be read."""
    if record.method & BAD:
        raise InvalidMetadataError(
            "entry cannot be where the directory says",
            where=where,
            found=f"{record.csize} bytes behind a header at {record.offset}",
            hint="'comal check' lists what is wrong with the archive",
        )
    if record.method & ENCRYPTED:
        raise InvalidMetadataError("entry is encrypted", where=where)
    if record.method not in {STORE, DEFLATE}:
        raise InvalidMetadataError(
            "compression method is not supported",
            where=where,
            found=record.method,
            expected=f"{STORE} or {DEFLATE}",
        )
    if record.csize > limits.tile_bytes:
        raise LimitExceededError(
            "tile bytes over the limit",
            where=where,
            found=record.csize,
            expected=f"at most {limits.tile_bytes}",
            hint="pass limits=Limits(tile_bytes=...) if the source is trusted",
            limit="tile_bytes",
        )
