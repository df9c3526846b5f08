"""From a tile as it is stored to a response: codings, validators, headers. Nothing here waits.

An archive is a stranger's: it may name the type of its tiles and describe them, but not steer the
connection, the cache of the answer's length, cookies, or what pages of this origin may do.

A ZIP entry of method 8 is raw DEFLATE. Ten bytes before it and eight behind it make it gzip, so a
tile goes out compressed without having been compressed again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from isal.isal_zlib import crc32

from comal.errors import InvalidMetadataError
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
from comal.server.responses import (
    NOSNIFF,
    SANDBOX,
    VARY_ENCODING,
    Content,
    Refusal,
    Response,
    content_response,
)
from comal.tapalcatl.reading.tile import StoredTile, gunzipped
from comal.tapalcatl.spec import Headers as TileHeaders

_GZIP = (b"content-encoding", b"gzip")
_RANGES = (b"accept-ranges", b"bytes")
_STORED = 0
_NO_TIME = 315_532_800
"""1980-01-01T00:00:00Z."""


def tile_response(
    tile: StoredTile, headers: Headers, cache_control: str | None, *, verified: bool = False
) -> Response:
    """The answer to a GET for a tile; of `verified` bytes the checksum was compared before."""
    plan = archive_headers(tile.headers, cache_control)
    if tile.method == _STORED and not plan.coding and b"range" not in headers:
        return _plain(tile, plan, headers)
    client = encodings(headers.get(b"accept-encoding"))
    body, is_gzip, varies = _coded(tile, plan, client, verified)
    etag = _etag(tile, plan, gzip=is_gzip)
    if is_gzip and client.identity:
        asked = headers.get(b"if-none-match")
        other = _etag(tile, plan, gzip=False)
        # Who has the plain bytes and would take them need not fetch them as gzip.
        if asked is not None and not tag_matches(asked, etag) and tag_matches(asked, other):
            etag, is_gzip = other, False
    extra = list(plan.pairs[1:])
    if is_gzip:
        extra.append(_GZIP)
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
    """The tag of a tile that is sent as gzip or as it is without that.

    Of the bytes that the archive holds it is their checksum, whatever ZIP has made of them.
    """
    if gzip:
        return crc_etag(tile.crc, b"" if plan.coding == "gzip" else b"gzip")
    return crc_etag(tile.crc, b"identity" if plan.coding == "gzip" else b"")


def moment_of(tile: StoredTile) -> int | None:
    """When a tile was last changed, as far as its archive says.

    The first moment that ZIP can write stands in archives that are the same whenever they are
    written. Told as Last-Modified it would make old copies of a tile good for ever.
    """
    return None if tile.modified == _NO_TIME else tile.modified


def _plain(tile: StoredTile, plan: ArchiveHeaders, headers: Headers) -> Response:
    """The same for the usual tile: stored as it is sent."""
    payload = tile.payload
    if len(payload) != tile.size or crc32(payload) != tile.crc:
        raise _damaged()
    etag = crc_etag(tile.crc)
    pairs = [(b"etag", etag), *plan.pairs]
    modified = moment_of(tile)
    if is_refused(headers, etag, modified):
        return Response(412, [])
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
    verified: bool,  # noqa: FBT001 - passed on as it came
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
        406, "not-acceptable", "no content coding that there is, is accepted", (VARY_ENCODING,)
    )


def _damaged() -> InvalidMetadataError:
    return InvalidMetadataError("a tile's bytes do not have its checksum")


_DENIED = frozenset(
    {
        # about the connection, and the length and part that are sent
        *("connection", "content-length", "content-range", "keep-alive", "te", "trailer"),
        *("trailers", "transfer-encoding", "upgrade", "expect", "accept-ranges"),
        # said by the server itself
        *("etag", "last-modified", "date", "server", "age", "via", "vary", "status"),
        *("x-request-id", "x-content-type-options"),
        # users and where they go
        *("set-cookie", "set-cookie2", "www-authenticate", "authorization", "host"),
        *("location", "refresh", "clear-site-data", "alt-svc", "link", "no-vary-search"),
        # what pages may do
        *("service-worker-allowed", "public-key-pins", "strict-transport-security"),
        *("content-security-policy", "content-security-policy-report-only"),
        *("cross-origin-embedder-policy", "cross-origin-opener-policy"),
        *("cross-origin-resource-policy", "x-frame-options", "x-xss-protection"),
        *("permissions-policy", "report-to", "reporting-endpoints", "nel"),
        *("origin-agent-cluster", "speculation-rules"),
        # orders to a proxy before the server
        *("x-accel-redirect", "x-accel-buffering", "x-sendfile", "x-lighttpd-send-file"),
    }
)
_DENIED_BEGINNINGS = ("access-control-", "sec-", "proxy-", "content-digest", "repr-digest")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,80}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4096}")
_MOST = 64

_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,80}(\s*;[\x20-\x7e]{0,120})?", re.ASCII)
_ACTIVE = re.compile(r"html|xml|script|svg|pdf|multipart|x-mixed", re.IGNORECASE)
"""Types that a browser may run when such a tile is opened on its own."""
_UNKNOWN = b"application/octet-stream"


@dataclass(frozen=True, slots=True)
class ArchiveHeaders:
    """What all tiles with the same headers in the archive have in common."""

    type: bytes
    coding: str
    """Content coding of the bytes inside the archive's own compression; empty for none."""
    pairs: tuple[tuple[bytes, bytes], ...]
    """Content-Type, Cache-Control and the archive's own, in lower case."""


@lru_cache(maxsize=4096)
def archive_headers(headers: TileHeaders, cache_control: str | None) -> ArchiveHeaders:
    """The plan for a tile with these headers; of a repeated name the later wins."""
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
