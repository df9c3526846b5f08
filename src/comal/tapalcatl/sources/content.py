"""What a tile is by its first bytes: its content type, and whether it is compressed already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from comal.tapalcatl.spec import CONTENT_ENCODING, MEDIA_TYPES, Headers, content_headers

GZIP: Final = "gzip"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tile."""

    name: str
    ext: str | None
    """Its extension; None for what may hold anything."""
    compressed: bool


KINDS: Final = (
    Kind("unknown", None, compressed=False),
    Kind("png", "png", compressed=True),
    Kind("jpeg", "jpg", compressed=True),
    Kind("webp", "webp", compressed=True),
    Kind("avif", "avif", compressed=True),
    Kind("gif", "gif", compressed=True),
    Kind(GZIP, None, compressed=True),
    Kind("zstd", None, compressed=True),
    Kind("json", "json", compressed=False),
    Kind("tiff", "tif", compressed=False),
    Kind("pbf", "mvt", compressed=False),
)
_CODES = {kind.name: code for code, kind in enumerate(KINDS)}
_COMPRESSED = np.array([kind.compressed for kind in KINDS])

# The first bytes, then others with their place.
_MAGIC: Final[tuple[tuple[str, bytes, bytes, int], ...]] = (
    ("png", b"\x89PNG\r\n\x1a\n", b"", 0),
    ("jpeg", b"\xff\xd8\xff", b"", 0),
    ("webp", b"RIFF", b"WEBP", 8),
    # The size of the first box, which is never a large one.
    ("avif", b"\0", b"ftypavif", 4),
    ("avif", b"\0", b"ftypavis", 4),
    ("gif", b"GIF8", b"", 0),
    (GZIP, b"\x1f\x8b", b"", 0),
    ("zstd", b"\x28\xb5\x2f\xfd", b"", 0),
    ("json", b"{", b"", 0),
    ("json", b"[", b"", 0),
    ("tiff", b"II*\0", b"", 0),
    ("tiff", b"MM\0*", b"", 0),
    # A vector tile is a list of layers: field 3, with a length (vector tile specification 4.1).
    ("pbf", b"\x1a", b"", 0),
)
_SHORT: Final = 4
"""First bytes that tell most kinds, and in which the tiles of a pyramid are mostly alike."""
_LONG: Final = max(max(len(mark), at + len(second)) for _, mark, second, at in _MAGIC)
_OPEN: Final = 255
_BY_FIRST: dict[bytes, list[tuple[int, bytes, bytes, int]]] = {}
for _name, _mark, _second, _at in _MAGIC:
    _BY_FIRST.setdefault(_mark[:1], []).append((_CODES[_name], _mark, _second, _at))


def kinds_of(payloads: list[bytes]) -> npt.NDArray[np.uint8]:
    """For each payload its place in `KINDS`."""
    kinds = _by_head(payloads, _SHORT, _glimpsed)
    open_rows = np.flatnonzero(kinds == _OPEN)
    if len(open_rows):
        rest = [payloads[row] for row in open_rows.tolist()]
        kinds[open_rows] = _by_head(rest, _LONG, _kind)
    return kinds


def _by_head(
    payloads: list[bytes], length: int, kind: Callable[[bytes], int]
) -> npt.NDArray[np.uint8]:
    """What `kind` says of the first bytes, asked once for those that begin alike."""
    heads = [payload[:length] for payload in payloads]
    table = {head: kind(head) for head in set(heads)}
    return np.fromiter(map(table.__getitem__, heads), np.uint8, len(heads))


def _glimpsed(head: bytes) -> int:
    """What `_SHORT` bytes tell, `_OPEN` where more of them are needed."""
    for code, mark, second, _ in _BY_FIRST.get(head[:1], ()):
        if len(mark) <= _SHORT and not second and head.startswith(mark):
            return code
        if head.startswith(mark[:_SHORT]):
            return _OPEN
    return 0


def _kind(head: bytes) -> int:
    for code, mark, second, at in _BY_FIRST.get(head[:1], ()):
        if head.startswith(mark) and head.startswith(second, at):
            return code
    return 0


def compressed(kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which kinds gain nothing from another compression."""
    result: npt.NDArray[np.bool_] = _COMPRESSED[kinds]
    return result


def gzipped(kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which are gzip, of whatever."""
    result: npt.NDArray[np.bool_] = kinds == _CODES[GZIP]
    return result


def extension(kind: int, hint: str | None) -> str:
    """The extension of a kind; `hint` is what the source says its tiles are.

    Gzip without a hint is taken for vector tiles, the only tiles that are stored so.
    """
    found = KINDS[kind].ext
    if found == "mvt" and hint in {"pbf", "mlt"}:
        return hint
    if found is None:
        found = hint or ("mvt" if KINDS[kind].name == GZIP else "")
    return found


def headers_for(ext: str, encoding: str | None, formats: Mapping[str, Headers]) -> Headers:
    """Headers of an extension: those that are given, or what it is known for."""
    if ext in formats:
        return formats[ext]
    headers = content_headers(ext)
    return (*headers, (CONTENT_ENCODING, encoding)) if encoding else headers


def hinted(format_name: str | None) -> str | None:
    """The extension for a format as MBTiles names it."""
    if not format_name:
        return None
    text = format_name.strip().lower().removeprefix(".")
    by_type = {media: ext for ext, media in reversed(list(MEDIA_TYPES.items()))}
    text = by_type.get(text, text)
    names = {"jpeg": "jpg", "pbf": "mvt", "application/x-protobuf": "mvt"}
    text = names.get(text, text)
    return text if text in MEDIA_TYPES else None
