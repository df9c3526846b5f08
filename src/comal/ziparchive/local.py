"""Local headers: the second record of every entry, read along with its payload.

The header directly precedes the payload, so one range covers both. Comparing them reveals swapped
spans, stale indexes and overlaps without another request.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import deflate
import numpy as np
from isal import igzip_lib, isal_zlib
from isal.isal_zlib import crc32

from comal.errors import InvalidMetadataError, shown, translated
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Fetch
from comal.ziparchive import wire
from comal.ziparchive.directory import Directory, extra_field

SLACK = 128
"""Room for extra fields between name and payload: 20 bytes for ZIP64, 67 for alignment by 64."""

_LOCAL = struct.Struct("<6xHH4xIIIH")
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
    """Bytes of the header with name and extra fields; the payload starts there."""

    @property
    def deferred(self) -> bool:
        """Whether sizes and checksum may be in a data descriptor behind the payload instead."""
        return bool(self.flags & wire.FLAG_DESCRIPTOR)


def parse_local(data: bytes, where: str) -> LocalHeader:
    """The local header at the start of `data`, which must hold all of it."""
    length = local_size(data, where)
    if length > len(data):
        raise InvalidMetadataError(
            "the local header is cut short",
            where=where,
            found=f"{len(data)} bytes",
            expected=f"{length}",
        )
    flags, method, crc, csize, size, name_size = _LOCAL.unpack_from(data)
    name = data[wire.LOCAL_SIZE : wire.LOCAL_SIZE + name_size]
    if wire.U32 in (csize, size):
        extra = data[wire.LOCAL_SIZE + name_size : length]
        # APPNOTE 4.5.3: in a local header the field holds both sizes.
        field = extra_field(extra, wire.ZIP64_ID)
        if field is not None and len(field) >= 16:
            size, csize = struct.unpack_from("<QQ", field)
    return LocalHeader(flags, method, crc, csize, size, name, length)


def local_size(data: bytes, where: str) -> int:
    """Size of the local header at the start of `data`, which may hold only its fixed part."""
    if len(data) < wire.LOCAL_SIZE or not data.startswith(_MARK):
        raise InvalidMetadataError(
            "no local header", where=where, found=data[:4].hex(), expected=_MARK.hex()
        )
    name_size, extra_size = struct.unpack_from("<HH", data, 26)
    return int(wire.LOCAL_SIZE + name_size + extra_size)


def differences(header: LocalHeader, directory: Directory, row: int) -> list[str]:
    """Descriptions of the differences between a local header and the directory."""
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
    """Bytes to read before a payload so that they include its local header."""
    return wire.LOCAL_SIZE + name_bytes + SLACK


def local_before(prefix: bytes, name: str, size: int, *, where: str) -> LocalHeader:
    """The local header that ends with `prefix`, of a stored entry with this name and size.

    For readers that know an entry's span from elsewhere than the directory.
    """
    encoded = name.encode()
    header = _ending(prefix, len(encoded))
    if header is None:
        raise InvalidMetadataError(
            "no local header in front of the payload",
            where=f"{where}, {shown(name)}",
            hint="the index does not fit the archive; 'comal check' tells where",
        )
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
            "the span is not the entry's payload",
            where=f"{where}, {shown(name)}",
            found="; ".join(wrong),
            expected=f"the local header of {size} stored bytes",
        )
    return header


def _ending(prefix: bytes, name_size: int) -> LocalHeader | None:
    """The header that ends with `prefix`; usually one without extra fields."""
    candidates = [len(prefix) - wire.LOCAL_SIZE - name_size]
    at = prefix.rfind(_MARK)
    while at >= 0:
        candidates.append(at)
        at = prefix.rfind(_MARK, 0, at + 3)
    for start in candidates:
        header = prefix[start:] if start >= 0 else b""
        whole = len(header) >= wire.LOCAL_SIZE and header.startswith(_MARK)
        if whole and local_size(header, "") == len(header):
            return parse_local(header, "")
    return None


# -- payloads --------------------------------------------------------------------------------------


_BROKEN: dict[type[BaseException], type[InvalidMetadataError]] = {
    deflate.DeflateError: InvalidMetadataError,
    igzip_lib.IsalError: InvalidMetadataError,  # type: ignore[dict-item]  # an instance, says the stub
    zlib.error: InvalidMetadataError,
}
_LARGE: Final = 1 << 20
"""From this size, content is inflated directly into the returned bytes, without a copy."""


def extracted(
    payload: bytes,
    *,
    method: int,
    size: int,
    crc: int | None,
    where: str,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """The content of an entry."""
    limits.check("leaf_bytes", size, where)
    if method == wire.STORE:
        data = payload
    elif method == wire.DEFLATE:
        with translated(_BROKEN, "the compressed entry is broken", where=where):
            data = _inflated(payload, size, where)
    else:
        raise InvalidMetadataError(
            "the compression method is not supported",
            where=where,
            found=method,
            expected=f"{wire.STORE} or {wire.DEFLATE}",
        )
    length, found = len(data), None if crc is None else crc32(data)
    if length == size and found == crc:
        return data
    # Whoever keeps the error keeps this frame, which must not keep maybe 64 MiB of zeros.
    del data
    if length != size:
        raise InvalidMetadataError(
            "the entry does not have the size that is stated",
            where=where,
            found=f"{length} bytes",
            expected=f"{size} bytes",
        )
    raise InvalidMetadataError(
        "checksum mismatch", where=where, found=f"crc {found:08x}", expected=f"{crc:08x}"
    )


def _inflated(payload: bytes, size: int, where: str) -> bytes:
    """At most ``size + 1`` bytes, or an error: no stream takes more memory than it states."""
    if 0 < size < _LARGE:  # without room, libdeflate reports nothing
        return bytes(deflate.deflate_decompress(payload, size))
    stream = isal_zlib.decompressobj(wbits=-15)
    data: bytes = stream.decompress(payload, size + 1)
    if len(data) <= size and not stream.eof:
        del data
        raise InvalidMetadataError(
            "the compressed entry is broken", where=where, found="the stream is cut short"
        )
    return data


# -- runs ------------------------------------------------------------------------------------------


GAP = 64 << 10
SIZE = 8 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """A read that covers several spans."""

    start: int
    stop: int
    rows: wire.Int64s
    """The covered spans, in the order of their starts."""


def runs(starts: wire.Int64s, stops: wire.Int64s, order: wire.Int64s) -> Iterator[Run]:
    """Group spans whose gaps are at most 64 KiB into reads of about 8 MiB."""
    if len(order) == 0:
        return
    ordered = starts[order]
    ends = np.maximum.accumulate(stops[order])
    apart = np.flatnonzero(ordered[1:] - ends[:-1] > GAP) + 1
    for begin, last in pairwise([0, *apart.tolist(), len(order)]):
        first = begin
        while first < last:
            until = int(np.searchsorted(ends[first:last], ordered[first] + SIZE, side="right"))
            stop = first + max(1, until)
            yield Run(int(ordered[first]), int(ends[stop - 1]), order[first:stop])
            first = stop


def read_payloads(
    fetch: Fetch,
    spans: tuple[wire.Int64s, wire.Int64s],
    sizes: wire.Int64s,
    check: Callable[[int, bytes, int], None],
    where: str,
) -> list[bytes]:
    """Stored bytes of many entries, without their local headers; neighbours share a read.

    `spans` are the offsets of local headers and the ends of the reads; `check` is called for each
    header with its row, the data, and the header's position in the data.
    """
    starts, stops = spans
    covers = list(runs(starts, stops, np.argsort(starts, kind="stable")))
    pieces = fetch([ByteRange(run.start, run.stop - run.start) for run in covers])
    values: list[bytes] = [b""] * len(starts)
    for run, piece in zip(covers, pieces, strict=True):
        for row in run.rows.tolist():
            at, size = int(starts[row]) - run.start, int(sizes[row])
            begin = at + local_size(piece.data[at : at + wire.LOCAL_SIZE], where)
            check(row, piece.data, at)
            if begin + size <= len(piece.data):
                values[row] = piece.data[begin : begin + size]
            else:  # the local extra field is longer than that in the directory
                values[row] = fetch([ByteRange(run.start + begin, size)])[0].data
    return values
