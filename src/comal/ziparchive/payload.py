"""From stored bytes to content: inflated, of the size and checksum that the directory states."""

from __future__ import annotations

import deflate
from isal.isal_zlib import crc32

from comal.errors import InvalidMetadataError, translated
from comal.limits import DEFAULT_LIMITS, Limits
from comal.ziparchive import wire

_BROKEN: dict[type[BaseException], type[InvalidMetadataError]] = {
    deflate.DeflateError: InvalidMetadataError
}


def extracted(
    payload: bytes,
    *,
    method: int,
    size: int,
    crc: int | None,
    where: str,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """The content of an entry.

    Parameters
    ----------
    payload
        Its stored bytes.
    method
        `wire.STORE` or `wire.DEFLATE`.
    size, crc
        What it must be; a `crc` of None is not checked.
    where
        What an error calls it.
    limits
        `leaf_bytes` caps `size`, before memory is taken.

    Raises
    ------
    InvalidMetadataError
        Another method, a broken stream, another size or checksum.
    LimitExceededError
        Over the limit.
    """
    limits.check("leaf_bytes", size, where)
    if method == wire.STORE:
        data = payload
    elif method == wire.DEFLATE:
        with translated(_BROKEN, "compressed entry is broken", where=where):
            data = bytes(deflate.deflate_decompress(payload, size))
    else:
        raise InvalidMetadataError(
            "compression method is not supported",
            where=where,
            found=method,
            expected=f"{wire.STORE} or {wire.DEFLATE}",
        )
    if len(data) != size:
        raise InvalidMetadataError(
            "entry has another size than stated",
            where=where,
            found=f"{len(data)} bytes",
            expected=f"{size} bytes",
        )
    check_crc(data, crc, where)
    return data


def check_crc(data: bytes, crc: int | None, where: str) -> None:
    """Raise `InvalidMetadataError` unless `data` has this CRC-32; None is not checked."""
    if crc is None:
        return
    found = crc32(data)
    if found != crc:
        raise InvalidMetadataError(
            "checksum mismatch", where=where, found=f"crc {found:08x}", expected=f"{crc:08x}"
        )
