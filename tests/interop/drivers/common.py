"""What drivers of several packages do alike; imported by the interpreters of those packages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def content(vsi: str) -> bytes:
    """The bytes that a GDAL string names, without GDAL."""
    offset, size, path = "0", "-1", vsi
    if vsi.startswith("/vsisubfile/"):
        span, _, path = vsi.removeprefix("/vsisubfile/").partition(",")
        offset, _, size = span.partition("_")
    with open(path, "rb") as file:  # noqa: PTH123 - as small as it can be
        file.seek(int(offset))
        return file.read(int(size))


def digest(data: bytes) -> str:
    """What stands for bytes in an answer."""
    return hashlib.sha256(data).hexdigest()


def digests(leaves: Mapping[str, bytes]) -> dict[str, str]:
    """The digest of each leaf by its path."""
    return {path: digest(data) for path, data in leaves.items()}
