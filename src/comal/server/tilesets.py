"""Tapalcatl 1 and 2: tiles from archives, sent as they are stored if possible.

A ZIP entry of method 8 is raw DEFLATE. With ten bytes before it and eight after it, it is gzip, so
a compressed tile is sent without compressing it again.

Archives are not trusted: one may name the type of its tiles and describe them, but not control the
connection, the length of the answer, cookies, or the permissions of pages of this origin.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from isal.isal_zlib import crc32

from comal.errors import ComalError, InvalidMetadataError, NotThisFormatError
from comal.limits import KIB
from comal.server.http import (
    Encodings,
    Headers,
    crc_etag,
    encodings,
    http_date,
    is_not_modified,
    is_refused,
    tag_matches,
)
from comal.server.requests import ANY, Address, Request, Route, number, parse_address
from comal.server.responses import (
    GZIP,
    LOOKED_AT,
    NOSNIFF,
    SANDBOX,
    VARY_ENCODING,
    Content,
    Refusal,
    Response,
    content_response,
    json_response,
    not_found,
)
from comal.server.runtime import Runtime
from comal.server.sources import TILES, ServedSource, file_name, middle_tile, short_text, tile_meets
from comal.storage import parse_href
from comal.tapalcatl import spec
from comal.tapalcatl.reading.tile import StoredTile, gunzipped
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import Headers as TileHeaders
from comal.ziparchive.wire import LOCAL_SIZE

_AT_ONCE = 256 * KIB
"""Larger tiles are inflated in a thread, so that other requests need not wait."""
_MOST_VERIFIED = 50_000
_VECTOR = ("mvt", "pbf", "mlt", "geojson", "topojson", "json")
_DEEPEST = 24


def serve(
    name: str, title: str, reader: Any, kind: str, runtime: Runtime, version: str
) -> TilesetSource:
    """A tileset."""
    if not isinstance(reader, TileSet):
        raise NotThisFormatError("not a reader of tiles", where=kind, found=type(reader).__name__)
    return TilesetSource(name, title or file_name(reader.href), reader, runtime, version)


class TilesetSource(ServedSource):
    """A tileset under a name."""

    kind: ClassVar[str] = "tiles"
    format = "tapalcatl"

    def __init__(
        self, name: str, title: str, tiles: TileSet, runtime: Runtime, version: str
    ) -> None:
        super().__init__(name, title, runtime, version)
        self.tiles = tiles
        with suppress(ComalError):  # the request for a damaged archive reports it
            tiles.learn_formats()
        self._cache_control = runtime.settings.cache_control
        self._is_local = parse_href(tiles.source.href).scheme == "file" and _is_local(tiles)
        self._verified: set[tuple[Any, ...]] = set()
        self._opened: dict[str, TilesetSource] = {}
        """Variants that were requested."""

    @property
    def _formats(self) -> Collection[str]:
        """Extensions; for Tapalcatl 1, each archive that is opened may add some."""
        return self.tiles.metadata.formats

    # -- documents ---------------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """Name, extent, zooms."""
        tiles, name = self.tiles, self.name
        template = self._template()
        return {
            "name": name,
            "title": tiles.metadata.name or self.title,
            "description": short_text(tiles.metadata.description),
            "format": self.format,
            "kind": self.kind,
            "bounds": list(tiles.bounds),
            "minzoom": tiles.min_zoom,
            "maxzoom": min(tiles.max_zoom, _DEEPEST),
            "attribution": short_text(tiles.metadata.extra.get("attribution")),
            "tile_type": self._type,
            "tilesize": self._size,
            "media_types": {ext: self._media(ext) for ext in tiles.formats},
            **({"variants": list(tiles.variants)} if tiles.variants else {}),
            "links": {
                "self": name,
                "tilejson": f"{name}/tilejson.json" if self._is_variant else f"{name}.json",
                "tiles": template.replace("{scale}", self._scales[0][1]).replace(
                    "{ext}", self._extensions[0]
                ),
            },
        }

    async def details(self) -> dict[str, Any]:
        """Formats, layers, layout."""
        metadata = self.tiles.metadata
        extra = metadata.extra
        return {
            "version": "1" if self.tiles.version == 1 else metadata.version,
            "type": self._type,
            "formats": {
                ext: {
                    "content_type": self._media(ext),
                    "headers": [list(pair) for pair in self.tiles.headers(ext)],
                }
                for ext in self.tiles.formats
            },
            "scales": [scale for scale, _ in self._scales],
            "tile_sizes": list(self.tiles.tile_sizes),
            "vector_layers": extra.get("vector_layers"),
            "center": extra.get("center"),
            "materialized_zooms": list(metadata.materialized_zooms),
            "metatile": metadata.metatile,
            "tiles": {
                "template": self._template(),
                "extensions": self._extensions,
                "scales": [scale for scale, _ in self._scales],
            },
            "python": (
                "from comal import tapalcatl\n\n"
                f"tiles = tapalcatl.open({self.title!r})\n"
                f"tile = tiles.tile{middle_tile(self.tiles.bounds, self.tiles.min_zoom)}"
            ),
        }

    def tilejson(self, request: Request) -> dict[str, Any]:
        """TileJSON 3.0; ``ext=`` chooses one of several formats."""
        ext = request.query.text("ext") or self._extensions[0]
        if ext not in self._formats:
            raise not_found("there is no such format")
        template = self._template().replace("{scale}", self._scales[0][1])
        dot = "" if ext == "" else f".{ext}"
        address = request.link(template.replace(".{ext}", dot))
        more = {spec.VARIANTS: found} if (found := self._listed(request)) else {}
        return self.tiles.tilejson([address], maxzoom=min(self.tiles.max_zoom, _DEEPEST), **more)

    @property
    def _extensions(self) -> list[str]:
        return list(self.tiles.formats) or [""]

    @property
    def _type(self) -> str:
        return "vector" if set(self._formats) & set(_VECTOR) else "raster"

    @property
    def _scales(self) -> list[tuple[int, str]]:
        """Integer scales, each with its suffix in a URL."""
        low, high = self.tiles.metadata.min_scale, self.tiles.metadata.max_scale
        whole = [scale for scale in range(1, 10) if low <= scale <= high] or [1]
        return [(scale, "" if scale == 1 else f"@{scale}x") for scale in whole]

    @property
    def _size(self) -> int:
        if self.tiles.tile_sizes:
            return self.tiles.tile_sizes[0]
        return 512 if self._type == "vector" else 256

    def _template(self) -> str:
        return f"{self.name}/{{z}}/{{x}}/{{y}}{{scale}}.{{ext}}"

    def _media(self, ext: str) -> str:
        return archive_headers(self.tiles.headers(ext), None).type.decode("latin-1")

    # -- variants ----------------------------------------------------------------------------------

    @property
    def _is_variant(self) -> bool:
        return "/" in self.name

    def _listed(self, request: Request) -> dict[str, dict[str, str]]:
        """Each variant with the URL of its TileJSON, which has that of its tiles."""
        home = self.name.partition("/")[0]
        links = {one: f"{home}/variants/{one}/tilejson.json" for one in self.tiles.variants}
        return {one: {"tilejson": request.link(link)} for one, link in links.items()}

    async def _variants(self, request: Request, rest: Sequence[str]) -> Response:
        """The list of variants; below the name of a variant, the same routes as below a source."""
        if not rest:
            return json_response({"variants": self._listed(request)}, headers=(LOOKED_AT,))
        # Names may contain slashes, and one may be a prefix of another.
        for name in () if self._is_variant else sorted(self.tiles.variants, key=len, reverse=True):
            parts = name.split("/")
            if list(rest[: len(parts)]) == parts:
                if name not in self._opened:
                    place = f"{self.name}/variants/{name}"
                    tiles = self.tiles.variant(name)
                    self._opened[name] = TilesetSource(
                        place, self.title, tiles, self.runtime, self.version
                    )
                return await self._opened[name].answer(request, tuple(rest[len(parts) :]))
        raise not_found("there is no such variant")

    # -- tiles -------------------------------------------------------------------------------------

    async def answer(self, request: Request, rest: Sequence[str]) -> Response:
        """Also answers the URLs of Tilezen: ``{pixels}/{z}/{x}/{y}.{ext}``."""
        if len(rest) == 4 and rest[0] not in self.handlers:
            size = number(rest[0])
            if self.tiles.version != 1 or size == 0 or size % 256:
                raise not_found("there are no tiles of this size")
            return await self.preferred(request, replace(parse_address(*rest[1:]), size=size))
        return await super().answer(request, rest)

    async def tile(self, request: Request, address: Address) -> Response:
        """One tile, by its coordinates."""
        ext = address.ext
        if ext not in self._formats:
            raise not_found("there is no such format")
        scale = None if address.scale == 1 else address.scale
        stored = await self.tiles.stored_tile_async(
            address.z, address.x, address.y, scale=scale, ext=ext, size=address.size
        )
        if stored is None:
            raise self._missing(address)
        if stored.size > _AT_ONCE:
            headers, control = request.headers, self._cache_control
            return await self.runtime.run(tile_response, stored, headers, control)
        return tile_response(stored, request.headers, self._cache_control)

    def _missing(self, address: Address) -> Refusal:
        """404, or the status that the operator chose within zooms and bounds."""
        tiles = self.tiles
        inside = tiles.min_zoom <= address.z <= tiles.max_zoom and tile_meets(
            address.z, address.x, address.y, tiles.bounds
        )
        low, high = tiles.metadata.min_scale, tiles.metadata.max_scale
        inside = inside and (address.scale == 1 or low <= address.scale <= high)
        if inside and address.size is None and self.runtime.settings.missing == 204:
            return Refusal(204, "no-tile", None, self.cache_control)
        return not_found("there is no such tile", self.cache_control)

    def local_response(self, parts: Sequence[str], headers: Headers) -> Response | None:
        """The answer for a tile of a local archive: one short read, without a thread."""
        if not self._is_local:
            return None
        try:
            address = parse_address(*parts[1:])
            if address.ext not in self._formats:
                return None
            scale = None if address.scale == 1 else address.scale
            stored = self.tiles.stored_tile(
                address.z, address.x, address.y, scale=scale, ext=address.ext
            )
            if stored is None or (stored.method != 0 and stored.size > _AT_ONCE):
                return None
            # Deflated bytes are sent as stored; they were inflated and compared once.
            key = (*parts, stored.crc, len(stored.payload))
            verified = stored.method != 0 and key in self._verified
            answer = tile_response(stored, headers, self._cache_control, verified=verified)
        except Exception:  # noqa: BLE001 - the regular way tries again and answers with the error
            return None
        if stored.method != 0 and not verified:
            if len(self._verified) >= _MOST_VERIFIED:
                self._verified.clear()
            self._verified.add(key)
        return answer

    def place_of(self, parts: Sequence[str]) -> tuple[Any, tuple[int, int, int] | None] | None:
        """The open archive of a tile, and offset, size and CRC-32 in it if it is uncompressed."""
        y = parts[3].partition(".")[0].partition("@")[0]
        spot = self.tiles.layout.find(number(parts[1]), number(parts[2]), number(y))
        archive = None if spot is None else self.tiles.archives.get(spot[0])
        if spot is None or archive is None:
            return None
        record = archive.index.lookup(parts[3][len(y) :], spot[1])
        if record is None or archive.file is None:
            return archive, None
        offset, span, csize, size, crc, _, method, name_size = record[0]
        # Only if the name alone separates local header and data (APPNOTE 4.3.7).
        if method != 0 or csize != size or span - csize != LOCAL_SIZE + name_size:
            return archive, None
        return archive, (offset + span - csize, csize, crc)

    def close(self) -> None:
        """Close the archives."""
        for variant in self._opened.values():
            variant.tiles.archives.clear()
        self.tiles.close()

    routes: ClassVar[tuple[Route, ...]] = (
        *TILES,
        Route("/{source}/variants", "Variants of the tiles", _variants),
        Route(
            "/{source}/variants/{variant}/tilejson.json",
            "TileJSON 3.0 of a variant",
            query=("ext",),
        ),
        Route("/{source}/variants/{variant}/{z}/{x}/{y}.{ext}", "A tile of a variant", media=ANY),
    )

    def listed(self) -> Iterator[Route]:
        """Lists variants only if there are any."""
        of_variants = self.tiles.variants
        found = super().listed()
        return (route for route in found if of_variants or "/variants" not in route.path)


def _is_local(tiles: TileSet) -> bool:
    return parse_href(tiles.files.base.href).scheme == "file"


# -- from a stored tile to a response -------------------------------------------------------------


_RANGES = (b"accept-ranges", b"bytes")
_STORED = 0
_NO_TIME = 315_532_800
"""1980-01-01T00:00:00Z."""


def tile_response(
    tile: StoredTile, headers: Headers, cache_control: str | None, *, verified: bool = False
) -> Response:
    """The answer to a GET for a tile; the checksum of `verified` bytes was already compared."""
    plan = archive_headers(tile.headers, cache_control)
    if tile.method == _STORED and not plan.coding and b"range" not in headers:
        return _plain(tile, plan, headers)
    client = encodings(headers.get(b"accept-encoding"))
    body, is_gzip, varies = _coded(tile, plan, client, verified)
    etag = _etag(tile, plan, gzip=is_gzip)
    if is_gzip and client.identity:
        asked = headers.get(b"if-none-match")
        other = _etag(tile, plan, gzip=False)
        # A client that has the plain bytes, and takes them, need not fetch them as gzip.
        if asked is not None and not tag_matches(asked, etag) and tag_matches(asked, other):
            etag, is_gzip = other, False
    extra = list(plan.pairs[1:])
    if is_gzip:
        extra.append(GZIP)
    elif plan.coding not in {"", "gzip"}:
        extra.append((b"content-encoding", plan.coding.encode("latin-1")))
    if varies:
        extra.append(VARY_ENCODING)
    content = Content(
        plan.type,
        etag,
        len(body),
        body=body,
        modified=moment_of(tile),
        headers=tuple(pair for pair in extra if pair[0] != b"x-content-type-options"),
        crc=tile.crc,
    )
    return content_response(content, headers)


def _etag(tile: StoredTile, plan: ArchiveHeaders, *, gzip: bool) -> bytes:
    """The entity tag of a tile that is sent with or without gzip.

    For the bytes that the archive holds it is their checksum, whatever their ZIP compression.
    """
    if gzip:
        return crc_etag(tile.crc, b"" if plan.coding == "gzip" else b"gzip")
    return crc_etag(tile.crc, b"identity" if plan.coding == "gzip" else b"")


def moment_of(tile: StoredTile) -> int | None:
    """When a tile was last changed, according to its archive.

    The earliest time that ZIP can store is in archives whose bytes must be reproducible. As
    Last-Modified it would keep old copies of a tile valid forever.
    """
    return None if tile.modified == _NO_TIME else tile.modified


def _plain(tile: StoredTile, plan: ArchiveHeaders, headers: Headers) -> Response:
    """As `tile_response`, for the usual tile: stored as it is sent."""
    payload = tile.payload
    if len(payload) != tile.size or crc32(payload) != tile.crc:
        raise InvalidMetadataError("the bytes of a tile do not match its checksum")
    etag = crc_etag(tile.crc)
    pairs = [(b"etag", etag), *plan.pairs]
    modified = moment_of(tile)
    if is_refused(headers, etag, modified):
        raise Refusal(412, "precondition-failed")
    if modified is not None:
        pairs.append((b"last-modified", http_date(modified)))
    if is_not_modified(headers, etag, modified, tile.crc):
        return Response(304, [pair for pair in pairs if pair[0] != b"content-type"])
    pairs += (_RANGES, (b"content-length", b"%d" % len(payload)))
    return Response(200, pairs, payload)


def _coded(
    tile: StoredTile,
    plan: ArchiveHeaders,
    client: Encodings,
    verified: bool,  # noqa: FBT001 - passed on
) -> tuple[bytes, bool, bool]:
    """The bytes to send, whether they are gzip, and whether that depends on the client."""
    if plan.coding == "" and client.gzip and (packed := tile.as_gzip()) is not None:
        if not verified:
            tile.data()  # compares size and checksum
        return packed, True, True
    data = tile.data()
    if client.takes(plan.coding):
        return data, plan.coding == "gzip", tile.method != _STORED or plan.coding != ""
    if plan.coding == "gzip" and client.identity:
        return gunzipped(data), False, True
    raise Refusal(
        406,
        "not-acceptable",
        "the request accepts no content coding of this tile",
        (VARY_ENCODING,),
    )


_DENIED = frozenset(
    {
        # about the connection, and the length and range of the body
        *("connection", "content-length", "content-range", "keep-alive", "te", "trailer"),
        *("trailers", "transfer-encoding", "upgrade", "expect", "accept-ranges"),
        # set by the server itself
        *("etag", "last-modified", "date", "server", "age", "via", "vary", "status"),
        *("x-request-id", "x-content-type-options"),
        # credentials, cookies and redirects
        *("set-cookie", "set-cookie2", "www-authenticate", "authorization", "host"),
        *("location", "refresh", "clear-site-data", "alt-svc", "link", "no-vary-search"),
        # permissions of pages
        *("service-worker-allowed", "public-key-pins", "strict-transport-security"),
        *("content-security-policy", "content-security-policy-report-only"),
        *("cross-origin-embedder-policy", "cross-origin-opener-policy"),
        *("cross-origin-resource-policy", "x-frame-options", "x-xss-protection"),
        *("permissions-policy", "report-to", "reporting-endpoints", "nel"),
        *("origin-agent-cluster", "speculation-rules"),
        # commands to a proxy in front of the server
        *("x-accel-redirect", "x-accel-buffering", "x-sendfile", "x-lighttpd-send-file"),
    }
)
_DENIED_BEGINNINGS = ("access-control-", "sec-", "proxy-", "content-digest", "repr-digest")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,80}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4096}")
_MOST = 64

_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,80}(\s*;[\x20-\x7e]{0,120})?", re.ASCII)
_ACTIVE = re.compile(r"html|xml|script|svg|pdf|multipart|x-mixed", re.IGNORECASE)
"""Types that a browser may execute if such a tile is opened by itself."""
_UNKNOWN = b"application/octet-stream"


@dataclass(frozen=True, slots=True)
class ArchiveHeaders:
    """Prepared response headers of all tiles with the same headers in the archive."""

    type: bytes
    coding: str
    """Content coding of the bytes inside of the ZIP compression; empty for none."""
    pairs: tuple[tuple[bytes, bytes], ...]
    """Content-Type, Cache-Control and the archive's own, in lower case."""


@lru_cache(maxsize=4096)
def archive_headers(headers: TileHeaders, cache_control: str | None) -> ArchiveHeaders:
    """The plan for a tile with these headers; the last of repeated names wins."""
    found: dict[str, str] = {}
    for name, value in headers[:_MOST]:
        lower = name.lower()
        if _NAME.fullmatch(name) and _VALUE.fullmatch(value) and not _is_denied(lower):
            found[lower] = value.strip()
    kind = found.pop("content-type", "")
    coding = found.pop("content-encoding", "").lower()
    if cache_control is not None:
        found.setdefault("cache-control", cache_control)
    media = kind.encode("latin-1") if _TYPE.fullmatch(kind) else _UNKNOWN
    pairs = [(b"content-type", media), NOSNIFF]
    pairs += [(name.encode(), value.encode("latin-1")) for name, value in found.items()]
    if _ACTIVE.search(kind):
        pairs.append(SANDBOX)
    return ArchiveHeaders(media, "" if coding == "identity" else coding, tuple(pairs))


def _is_denied(name: str) -> bool:
    return name in _DENIED or name.startswith(_DENIED_BEGINNINGS)
