"""Local headers: the second word on every entry, read along with its payload.

The header stands right before the payload, so one range brings both. Comparing them shows swapped
spans, stale indexes and overlaps at no extra request.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from comal.errors import InvalidMetadataError, shown
from comal.ziparchive import wire
from comal.ziparchive.directory import Directory
from comal.ziparchive.parse import extra_field, label

SLACK = 128
"""Room for extra fields between name and payload: 20 bytes for ZIP64, 67 for an alignment of 64."""

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_MARK = wire.LOCAL_SIGNATURE.to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class LocalHeader:
    """A local file header with its ZIP64 sizes resolved."""

    flags: int
    method: int
    crc: int
    csize: int
    size: int
    name: bytes
    length: int
    """Bytes of the header with name and extra fields: the payload begins there."""

    @property
    def deferred(self) -> bool:
        """Whether sizes and checksum may stand in a data descriptor behind the payload instead."""
        return bool(self.flags & wire.FLAG_DESCRIPTOR)


def parse_local(data: bytes, where: str) -> LocalHeader:
    """The local header at the start of `data`, which must hold all of it.

    Raises
    ------
    InvalidMetadataError
        No local header, or one that is longer than `data`.
    """
    if len(data) < wire.LOCAL_SIZE or not data.startswith(_MARK):
        raise InvalidMetadataError(
            "no local header", where=where, found=data[:4].hex(), expected=_MARK.hex()
        )
    _, _, flags, method, _, _, crc, csize, size, name_size, extra_size = _LOCAL.unpack_from(data)
    length = wire.LOCAL_SIZE + name_size + extra_size
    if length > len(data):
        raise InvalidMetadataError(
            "local header is cut short",
            where=where,
            found=f"{len(data)} bytes",
            expected=f"{length}",
        )
    name = data[wire.LOCAL_SIZE : wire.LOCAL_SIZE + name_size]
    if wire.U32 in (csize, size):
        extra = data[wire.LOCAL_SIZE + name_size : length]
        # APPNOTE 4.5.3: in a local header both sizes stand in the field.
        field = extra_field(extra, wire.ZIP64_ID)
        if field is not None and len(field) >= 16:
            size, csize = struct.unpack_from("<QQ", field)
    return LocalHeader(flags, method, crc, csize, size, name, length)


def local_size(data: bytes, where: str) -> int:
    """Bytes of the local header that `data` begins with, which may hold its fixed part only."""
    if len(data) < wire.LOCAL_SIZE or not data.startswith(_MARK):
        raise InvalidMetadataError(
            "no local header", where=where, found=data[:4].hex(), expected=_MARK.hex()
        )
    name_size, extra_size = struct.unpack_from("<HH", data, 26)
    return int(wire.LOCAL_SIZE + name_size + extra_size)


def check_local(data: bytes, directory: Directory, row: int, where: str = "archive") -> int:
    """Compare the local header that `data` begins with to its entry in the directory.

    Returns
    -------
    int
        Offset of the payload in the object.

    Raises
    ------
    InvalidMetadataError
        An encrypted entry, no local header, or one that says something else.
    """
    place = f"{where}, {label(directory.names, row)}"
    if directory.flags[row] & wire.FLAG_ENCRYPTED:
        raise InvalidMetadataError("entry is encrypted", where=place)
    header = parse_local(data, place)
    wrong = differences(header, directory, row)
    if wrong:
        raise InvalidMetadataError(
            "local header and directory disagree", where=place, found="; ".join(wrong)
        )
    offset = int(directory.header_offset[row]) + header.length
    if offset + int(directory.csize[row]) > directory.start:
        raise InvalidMetadataError(
            "entry reaches outside of the archive",
            where=place,
            found=f"{directory.csize[row]} bytes at {offset}",
            expected=f"an end at or before {directory.start}",
        )
    return offset


def differences(header: LocalHeader, directory: Directory, row: int) -> list[str]:
    """In words, what a local header says otherwise than the directory."""
    name = directory.raw_names[row].as_py()
    wrong = []
    if header.name != name:
        wrong.append(f"name {shown(header.name.decode('utf-8', 'replace'))}")
    if header.method != directory.method[row]:
        wrong.append(f"method {header.method}, not {directory.method[row]}")
    if (header.flags ^ int(directory.flags[row])) & wire.FLAG_ENCRYPTED:
        wrong.append("encryption flag")
    pairs = (
        ("compressed size", header.csize, int(directory.csize[row])),
        ("size", header.size, int(directory.size[row])),
        ("checksum", header.crc, int(directory.crc[row])),
    )
    for what, local, central in pairs:
        # With a data descriptor the local fields are zero (APPNOTE 4.4.4, bit 3).
        if local != central and not (header.deferred and local == 0):
            wrong.append(f"{what} {local}, not {central}")
    return wrong


def prefix_size(name_bytes: int) -> int:
    """How many bytes before a payload to read so that they hold its local header."""
    return wire.LOCAL_SIZE + name_bytes + SLACK


def local_before(prefix: bytes, name: str, size: int, *, where: str) -> LocalHeader:
    """The local header that ends where `prefix` ends, of a stored entry with this name and size.

    For readers that know an entry's span from elsewhere and not from the directory.

    Parameters
    ----------
    prefix
        At least `prefix_size` bytes that stand before the payload, fewer at the file's start.
    name, size
        What the entry must be called, and its bytes.
    where
        What an error calls it.

    Raises
    ------
    InvalidMetadataError
        The span is not that entry's payload.
    """
    encoded = name.encode()
    place = f"{where}, {shown(name)}"
    header = _ending(prefix, len(encoded), place)
    wrong = []
    if header.name != encoded:
        wrong.append(f"name {shown(header.name.decode('utf-8', 'replace'))}")
    if header.method != wire.STORE:
        wrong.append(f"method {header.method}, not {wire.STORE}")
    if header.flags & wire.FLAG_ENCRYPTED:
        wrong.append("encryption flag")
    if (header.csize, header.size) != (size, size) and not (header.deferred and not header.csize):
        wrong.append(f"size {header.csize}, not {size}")
    if wrong:
        raise InvalidMetadataError(
            "span is not the entry's payload",
            where=place,
            found="; ".join(wrong),
            expected=f"the local header of {size} stored bytes",
        )
    return header


def _ending(prefix: bytes, name_size: int, place: str) -> LocalHeader:
    """The header whose end is the end of `prefix`; most often one without extra fields."""
    candidates = [len(prefix) - wire.LOCAL_SIZE - name_size]
    at = prefix.rfind(_MARK)
    while at >= 0:
        candidates.append(at)
        at = prefix.rfind(_MARK, 0, at + 3)
    for start in candidates:
        header = prefix[start:] if start >= 0 else b""
        whole = len(header) >= wire.LOCAL_SIZE and header.startswith(_MARK)
        if whole and local_size(header, place) == len(header):
            return parse_local(header, place)
    raise InvalidMetadataError(
        "no local header in front of the payload",
        where=place,
        hint="the index points at another place than the archive; 'comal check' tells which",
    )
