"""Tapalcatl 2 as dataclasses: the document of a tileset, and the comment of one archive.

Both are one JSON object, a subset of TileJSON with additions. Older writers left the version out,
gave the headers of a format as an object instead of a list, or put default headers of an archive
under ``headers``; all of these are read. comal writes the newest shape with keys in a fixed order,
as printable ASCII: existing readers decode an archive comment as CP437 and fail on line breaks.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from comal import strictjson
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    Problem,
    UnsupportedVersionError,
    shown,
)
from comal.geo.boxes import unturned
from comal.limits import DEFAULT_LIMITS, Limits
from comal.public import fits, warn

VERSION: Final = "2.0.0"
META: Final = "meta.json"
"""Name of a tileset's document, at the root of the tree by convention."""
VARIANTS: Final = "variants"
"""Key of the variants that archives hold: an object that maps each prefix to its description."""
MAX_COMMENT: Final = 65_535
MAX_ZOOM: Final = 30
"""Deepest zoom that fits into a 64-bit key; existing tilesets end below 24."""
LATITUDE_LIMIT: Final = 85.0511287798066
WORLD: Final = (-180.0, -LATITUDE_LIMIT, 180.0, LATITUDE_LIMIT)
CONTENT_TYPE: Final = "Content-Type"
CONTENT_ENCODING: Final = "Content-Encoding"
OCTETS: Final = "application/octet-stream"

Headers = tuple[tuple[str, str], ...]
"""Names and values of headers in order; a name may occur twice."""
Tile = tuple[int, int, int]
"""Zoom, column from the west, row from the north."""
Bounds = tuple[float, float, float, float]
"""West, south, east, north in degrees."""

MEDIA_TYPES: Final[Mapping[str, str]] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "avif": "image/avif",
    "gif": "image/gif",
    "tif": "image/tiff",
    "mvt": "application/vnd.mapbox-vector-tile",
    "pbf": "application/vnd.mapbox-vector-tile",
    "json": "application/json",
    "geojson": "application/geo+json",
    "topojson": "application/json",
    "mlt": "application/vnd.maplibre-tile",
    "npy": "application/x-npy",
    "terrain": "application/vnd.quantized-mesh",
}
"""Content types by extension, for tilesets that do not declare any."""

DENIED: Final = frozenset(
    {
        "connection",
        "content-length",
        "content-range",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "set-cookie",
        "set-cookie2",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that a tile may not set: they are about a connection, a length or a user."""

_VERSION = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?(?:\.\d{1,9})?(?:[-+][0-9A-Za-z.+-]*)?", re.ASCII)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
KNOWN: Final = frozenset(
    {
        "tapalcatl",
        "name",
        "description",
        "minzoom",
        "maxzoom",
        "bounds",
        "formats",
        "minscale",
        "maxscale",
        "metatile",
        "materializedZooms",
        "source",
        "root",
        "headers",
    }
)
"""Keys of the format; all others are extra."""
TILEJSON: Final = "3.0.0"
_OWN = frozenset({"tilejson", "tiles", "scheme", "basename", "filesize", "format", "type"})
"""Keys of foreign documents that would contradict the TileJSON written here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Fields that the document of a tileset and the comment of an archive share."""

    formats: Mapping[str, Headers] = field(default_factory=dict)
    """Headers by extension, without its dot; the empty one is for names without extension."""
    min_zoom: int | None = None
    max_zoom: int | None = None
    bounds: Bounds | None = None
    metatile: int = 1
    """Root tiles per side of an archive, a power of two."""
    materialized_zooms: tuple[int, ...] = ()
    """Zooms at which archives begin, ascending; in a comment only those that it lists."""
    name: str | None = None
    description: str | None = None
    min_scale: float = 1
    max_scale: float = 1
    version: str = VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)
    """All other keys, such as ``vector_layers`` and ``attribution``, unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileSetMetadata(Described):
    """``meta.json``: what a tileset holds, and where its archives are."""

    materialized_zooms: tuple[int, ...] = (0,)
    source: str | None = None
    """URL template of the archives with ``{z}``, ``{x}``, ``{y}`` and optionally ``{h}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMetadata(Described):
    """The comment of an archive: the tileset's document, narrowed to what the archive holds."""

    root: Tile | None = None
    """Zoom, column and row of the north-western root tile: the archive's name."""
    headers: Headers = ()
    """Headers of every tile, which only the oldest archives have."""


Said = TypeVar("Said", TileSetMetadata, ArchiveMetadata)


def shared(said: Described) -> dict[str, Any]:
    """The fields that documents and comments share, except the version."""
    return {one.name: getattr(said, one.name) for one in fields(Described) if one.name != "version"}


# -- reading --------------------------------------------------------------------------------------


def parse_tileset(data: bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> TileSetMetadata:
    """``meta.json`` from its bytes."""
    document = strictjson.loads(data, where, limits)
    return TileSetMetadata(
        **_shared(document, where),
        materialized_zooms=_materialized(document, where),
        source=_text(document, "source", where),
    )


def parse_archive(data: bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> ArchiveMetadata:
    """The comment of an archive from its bytes."""
    document = strictjson.loads(data, where, limits)
    return ArchiveMetadata(
        **_shared(document, where),
        root=_root(document, where),
        materialized_zooms=_materialized(document, where)
        if "materializedZooms" in document
        else (),
        headers=parse_headers(document.get("headers", []), f"{where}, headers"),
    )


def read_comment(
    data: bytes, where: str, limits: Limits = DEFAULT_LIMITS
) -> tuple[ArchiveMetadata | None, list[Problem]]:
    """The comment of an archive, or None and the problems found; never raises."""
    if not data.strip():
        return None, []
    try:
        return parse_archive(data, where, limits), []
    except ComalError as error:
        found = "" if error.found is None else f": {error.found}"
        code = "comment-version" if isinstance(error, UnsupportedVersionError) else "comment-json"
        return None, [Problem(code, error.where or where, f"{error.what}{found}")]


def parse_headers(value: Any, where: str, ext: str | None = None) -> Headers:
    """Headers from any of their shapes: a content type, a list of objects, or one object.

    `where` is safe to print; `ext`, the extension they belong to, may hold anything.
    """
    if isinstance(value, str):
        return ((CONTENT_TYPE, value),)
    where = where if ext is None else f"{where}, {shown(ext)}"
    objects = value if isinstance(value, list) else [value]
    found: list[tuple[str, str]] = []
    for item in objects:
        if not isinstance(item, dict):
            raise InvalidMetadataError(
                "the headers are not a list of objects", where=where, found=shown(item)
            )
        found += [(name, _header_value(name, text, where)) for name, text in item.items()]
    return tuple(found)


def header_pairs(value: Any, where: str) -> Headers:
    """Pairs of name and value that a caller gave, in any sequence."""
    if not fits(value, Sequence[tuple[str, str]]):
        raise InvalidInputError(
            "the headers cannot be used",
            where=where,
            found=shown(value),
            expected="pairs of name and value, such as [('X-Source', 'survey')]",
        )
    return tuple((name, text) for name, text in value)


def is_old_shape(value: Any) -> bool:
    """Whether headers are neither text nor a list of one-key objects: existing readers fail."""
    if isinstance(value, list):
        return not all(isinstance(item, dict) and len(item) == 1 for item in value)
    return not isinstance(value, str)


def parse_entry_comment(data: bytes) -> Headers | None:
    """Headers in the comment of an entry; None if it holds none."""
    if data[:1] not in (b"[", b"{"):
        return None
    try:
        # The strict parser takes objects only.
        document = strictjson.loads(b'{"headers":' + data + b"}", "entry comment")
        return parse_headers(document["headers"], "entry comment") if len(document) == 1 else None
    except ComalError:
        return None


def safe_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """The headers that a tile may set and that are well-formed."""
    return tuple(
        (name, value)
        for name, value in headers
        if name.lower() not in DENIED and _TOKEN.fullmatch(name) and _VALUE.fullmatch(value)
    )


def content_headers(extension: str) -> Headers:
    """Default headers of an extension."""
    return ((CONTENT_TYPE, MEDIA_TYPES.get(extension.lower(), OCTETS)),)


def folded(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers as a mapping; names are compared without case, and the last of each wins."""
    last: dict[str, tuple[str, str]] = {}
    for name, value in headers:
        last[name.lower()] = (name, value)
    return dict(last.values())


def is_newer(version: str) -> bool:
    """Whether a readable version may have features that comal does not know."""
    match = _VERSION.fullmatch(version)
    return match is not None and int(match[2] or 0) > 0


def warn_if_newer(version: str, where: str) -> None:
    """Warn about a version that may have features that comal does not know."""
    if is_newer(version):
        text = (
            f"{where}: Tapalcatl {shown(version)} may say more than comal understands, which is 2.0"
        )
        warn(TapalcatlWarning(text))


def _version(document: Mapping[str, Any], where: str) -> str:
    """The version of a document: absent in the oldest, a number from careless writers."""
    value = document.get("tapalcatl")
    if value is None:
        return VERSION
    number = isinstance(value, int | float) and not isinstance(value, bool)
    text = str(value) if number else _text(document, "tapalcatl", where)
    match = _VERSION.fullmatch(text or "")
    if match is None or int(match[1]) != 2:
        raise UnsupportedVersionError(
            "unknown version of Tapalcatl",
            where=f"{where}, tapalcatl",
            found=shown(text),
            expected="2.x",
            hint="Tapalcatl 1 has no document: pass version=1 and how its keys are built"
            if match is not None and int(match[1]) < 2
            else None,
        )
    return str(text)


def _header_value(name: str, value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidMetadataError(
            "the header is not text", where=f"{where}, {shown(name)}", found=shown(value)
        )
    return str(value)


def _shared(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {
        "version": _version(document, where),
        "name": _text(document, "name", where),
        "description": _text(document, "description", where),
        "min_zoom": _zoom(document.get("minzoom"), f"{where}, minzoom"),
        "max_zoom": _zoom(document.get("maxzoom"), f"{where}, maxzoom"),
        "bounds": _bounds(document.get("bounds"), f"{where}, bounds"),
        "formats": _formats(document.get("formats"), f"{where}, formats"),
        "min_scale": _scale(document.get("minscale"), f"{where}, minscale"),
        "max_scale": _scale(document.get("maxscale"), f"{where}, maxscale"),
        "metatile": _metatile(document.get("metatile"), f"{where}, metatile"),
        "extra": {key: value for key, value in document.items() if key not in KNOWN},
    }


def _text(document: Mapping[str, Any], key: str, where: str) -> str | None:
    value = document.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidMetadataError("not text", where=f"{where}, {key}", found=shown(value))
    return value


def _integer(value: Any) -> int | None:
    """A whole number, which some writers give as 4.0; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if value == value // 1 else None


def _zoom(value: Any, where: str) -> int | None:
    if value is None:
        return None
    zoom = _integer(value)
    if zoom is None or not 0 <= zoom <= MAX_ZOOM:
        raise InvalidMetadataError(
            "not a zoom", where=where, found=shown(value), expected=f"0 to {MAX_ZOOM}"
        )
    return zoom


def _bounds(value: Any, where: str) -> Bounds | None:
    if value is None:
        return None
    numbers = value if isinstance(value, list) else []
    valid = len(numbers) == 4 and all(
        isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
        for number in numbers
    )
    if not valid or numbers[1] > numbers[3]:
        raise InvalidMetadataError(
            "not a box", where=where, found=shown(value), expected="[west, south, east, north]"
        )
    west, south, east, north = (float(number) for number in numbers)
    return west, south, east, north


def _formats(value: Any, where: str) -> dict[str, Headers]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidMetadataError("the formats are not an object", where=where, found=shown(value))
    return {ext: parse_headers(one, where, ext) for ext, one in value.items()}


def _scale(value: Any, where: str) -> float:
    if value is None:
        return 1
    whole = _integer(value)
    if whole is not None and whole >= 1:
        return whole
    number = isinstance(value, float) and math.isfinite(value) and value > 0
    if not number:
        raise InvalidMetadataError("not a scale", where=where, found=shown(value))
    return float(value)


def _metatile(value: Any, where: str) -> int:
    if value is None:
        return 1
    side = _integer(value)
    if side is None or side < 1 or side & (side - 1) or side > 1 << MAX_ZOOM:
        raise InvalidMetadataError(
            "not a metatile size",
            where=where,
            found=shown(value),
            expected=f"a power of two, at most 2 ** {MAX_ZOOM}",
        )
    return side


def _materialized(document: Mapping[str, Any], where: str) -> tuple[int, ...]:
    value = document.get("materializedZooms")
    place = f"{where}, materializedZooms"
    if value is None:
        return (_zoom(document.get("minzoom"), place) or 0,)
    if not isinstance(value, list) or not value:
        raise InvalidMetadataError("not a list of zooms", where=place, found=shown(value))
    zooms = [_zoom(zoom, place) for zoom in value]
    return tuple(sorted({zoom for zoom in zooms if zoom is not None}))


def _root(document: Mapping[str, Any], where: str) -> Tile | None:
    text = _text(document, "root", where)
    if text is None:
        return None
    match = re.fullmatch(r"/?(\d{1,2})/(\d{1,10})/(\d{1,10})", text, re.ASCII)
    root = (int(match[1]), int(match[2]), int(match[3])) if match else None
    if root is None or root[0] > MAX_ZOOM or max(root[1:]) >= 1 << root[0]:
        raise InvalidMetadataError("not a root tile", where=f"{where}, root", found=shown(text))
    return root


def checked(parse: Callable[[bytes, str], Said], document: Mapping[str, Any], where: str) -> Said:
    """Parse a document that is to be written; its faults are errors of a caller's arguments."""
    try:
        return parse(ascii_line(document), where)
    except (InvalidMetadataError, UnsupportedVersionError) as error:
        raise InvalidInputError(
            error.what,
            where=error.where,
            found=error.found,
            expected=error.expected,
            hint=error.hint,
        ) from error


# -- writing --------------------------------------------------------------------------------------


def headers_value(headers: Headers) -> Any:
    """Headers in JSON: a content type alone as text, else a list of objects."""
    if len(headers) == 1 and headers[0][0].lower() == CONTENT_TYPE.lower():
        return headers[0][1]
    return [{name: value} for name, value in headers]


def entry_comment(headers: Headers) -> bytes:
    """The comment of an entry that sets these headers; empty without headers."""
    if not headers:
        return b""
    if safe_headers(headers) != headers:
        bad = next(header for header in headers if not safe_headers([header]))
        raise InvalidInputError("a tile cannot set this header", found=shown(bad[0]))
    data = ascii_line([{name: value} for name, value in headers])
    if len(data) > MAX_COMMENT:
        raise InvalidInputError(
            "the headers are too long for an entry",
            found=len(data),
            expected=f"at most {MAX_COMMENT}",
        )
    return data


def tileset_document(metadata: TileSetMetadata) -> dict[str, Any]:
    """``meta.json`` as plain data, keys in their fixed order."""
    return {
        **_leading(metadata),
        "metatile": metadata.metatile,
        "materializedZooms": list(metadata.materialized_zooms),
        "source": metadata.source,
        **_others(metadata.extra),
    }


def archive_document(metadata: ArchiveMetadata) -> dict[str, Any]:
    """The comment of an archive as plain data, keys in their fixed order."""
    root, zooms = metadata.root, list(metadata.materialized_zooms)
    return {
        **_leading(metadata),
        "metatile": metadata.metatile,
        **({"materializedZooms": zooms} if zooms else {}),
        **({"root": "/".join(map(str, root))} if root is not None else {}),
        **({"headers": [{n: v} for n, v in metadata.headers]} if metadata.headers else {}),
        **_others(metadata.extra),
    }


def tileset_json(metadata: TileSetMetadata) -> bytes:
    """The bytes of ``meta.json``: one line of ASCII that ends with a line break."""
    return ascii_line(tileset_document(metadata)) + b"\n"


def archive_comment(metadata: ArchiveMetadata) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of an archive's comment, and the keys that had to be left out.

    A comment has at most 65 535 bytes. A longer document keeps only the fields of the format;
    long lists of layers belong in ``meta.json``.
    """
    document = archive_document(metadata)
    data = ascii_line(document)
    if len(data) <= MAX_COMMENT:
        return data, ()
    cut = tuple(key for key in document if key not in KNOWN)
    data = ascii_line({key: value for key, value in document.items() if key in KNOWN})
    if len(data) > MAX_COMMENT:
        raise InvalidInputError(
            "the metadata do not fit into the comment of an archive",
            found=f"{len(data)} bytes",
            expected=f"at most {MAX_COMMENT}",
            hint="shorten the name, the description or the headers of the formats",
        )
    return data, cut


def ascii_line(value: Any) -> bytes:
    """JSON as one line of printable ASCII."""
    try:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "the metadata cannot be written as JSON", found=str(error)
        ) from error
    # DEL is ASCII but not printable, and the encoder does not escape it.
    return text.replace("\x7f", "\\u007f").encode("ascii")


def _leading(metadata: Described) -> dict[str, Any]:
    scaled = metadata.min_scale != 1 or metadata.max_scale != 1
    optional: dict[str, Any] = {
        "name": metadata.name,
        "description": metadata.description,
        "minzoom": metadata.min_zoom,
        "maxzoom": metadata.max_zoom,
        "bounds": None if metadata.bounds is None else list(metadata.bounds),
    }
    return {
        "tapalcatl": metadata.version,
        **{key: value for key, value in optional.items() if value is not None},
        "formats": {ext: headers_value(headers) for ext, headers in metadata.formats.items()},
        **({"minscale": metadata.min_scale, "maxscale": metadata.max_scale} if scaled else {}),
    }


def _others(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in extra.items() if key not in KNOWN}


def variants_of(extra: Mapping[str, Any]) -> tuple[str, ...]:
    """The variants that a document or a comment names (proposal, "variants (by prefix)")."""
    named = extra.get(VARIANTS)
    return tuple(map(str, named)) if isinstance(named, Mapping | list) else ()


def with_variant(extra: Mapping[str, Any], variant: str | None) -> Mapping[str, Any]:
    """The same keys with one more variant; existing variants keep their descriptions."""
    if variant is None or variant in variants_of(extra):
        return extra
    known = extra.get(VARIANTS)
    known = dict(known) if isinstance(known, Mapping) else {key: {} for key in variants_of(extra)}
    return {**extra, VARIANTS: {**known, variant: {}}}


def tilejson(metadata: TileSetMetadata, tiles: Sequence[str], **more: Any) -> dict[str, Any]:
    """TileJSON 3.0 of a tileset."""
    foreign: Mapping[str, Any] = metadata.extra
    document: dict[str, Any] = {"tilejson": TILEJSON, "tiles": list(tiles)}
    if metadata.name is not None:
        document["name"] = metadata.name
    if metadata.description is not None:
        document["description"] = metadata.description
    document["scheme"] = "xyz"
    document["minzoom"] = metadata.min_zoom or 0
    if metadata.max_zoom is not None:
        document["maxzoom"] = metadata.max_zoom
    document["bounds"] = unturned(metadata.bounds or WORLD)
    document.update({key: value for key, value in foreign.items() if key not in _OWN})
    document.update(more)
    return document


class TapalcatlWarning(UserWarning):
    """Some content is wrong or was left out, but what is returned or written is correct."""
