"""From stored bytes to content: inflated, of the size and checksum that the directory states."""

from __future__ import annotations

import zlib
from typing import Final

import deflate
from isal import igzip_lib, isal_zlib
from isal.isal_zlib import crc32

from comal.errors import InvalidMetadataError, translated
from comal.limits import DEFAULT_LIMITS, Limits
from comal.ziparchive import wire

_BROKEN: dict[type[BaseException], type[InvalidMetadataError]] = {
    deflate.DeflateError: InvalidMetadataError,
    igzip_lib.IsalError: InvalidMetadataError,  # type: ignore[dict-item]  # an instance, says the stub
    zlib.error: InvalidMetadataError,
}
_LARGE: Final = 1 << 20
"""From here on content is inflated into the bytes that are handed out, without a copy of them."""


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
            data = _inflated(payload, size, where)
    else:
        raise InvalidMetadataError(
            "compression method is not supported",
            where=where,
            found=method,
            expected=f"{wire.STORE} or {wire.DEFLATE}",
        )
    length, found = len(data), None if crc is None else crc32(data)
    if length == size and found == crc:
        return data
    # Who keeps the error keeps this frame, which must not keep what may be 64 MiB of zeros.
    del data
    if length != size:
        raise InvalidMetadataError(
            "entry has another size than stated",
            where=where,
            found=f"{length} bytes",
            expected=f"{size} bytes",
        )
    raise _mismatch(found, crc, where)


def check_crc(data: bytes, crc: int | None, where: str) -> None:
    """Raise `InvalidMetadataError` unless `data` has this CRC-32; None is not checked."""
    if crc is None:
        return
    found = crc32(data)
    if found != crc:
        raise _mismatch(found, crc, where)


def _mismatch(found: int | None, crc: int | None, where: str) -> InvalidMetadataError:
    return InvalidMetadataError(
        "checksum mismatch", where=where, found=f"crc {found:08x}", expected=f"{crc:08x}"
    )


def _inflated(payload: bytes, size: int, where: str) -> bytes:
    """At most one byte more than `size`, or an error: no stream takes more memory than it says."""
    if 0 < size < _LARGE:  # of no room libdeflate says nothing
        return bytes(deflate.deflate_decompress(payload, size))
    stream = isal_zlib.decompressobj(wbits=-15)
    data: bytes = stream.decompress(payload, size + 1)
    if len(data) <= size and not stream.eof:
        del data
        raise InvalidMetadataError(
            "compressed entry is broken", where=where, found="the stream is cut short"
        )
    return data
