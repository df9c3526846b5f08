"""From a tile as it is stored to the answer: codings, validators, headers.

The hot path of the server. Nothing here waits.
"""

from __future__ import annotations

from typing import Protocol

from comal.errors import InvalidMetadataError
from comal.limits import DEFAULT_LIMITS
from comal.server import coding
from comal.server.answers import Answer, Content, content_answer
from comal.server.conditions import (
    Headers,
    crc_etag,
    http_date,
    is_not_modified,
    is_refused,
    tag_matches,
)
from comal.server.headerplan import HeaderPlan, Texts, header_plan
from comal.server.negotiation import Encodings, encodings
from comal.server.problems import Refusal

_GZIP = (b"content-encoding", b"gzip")
_VARY = (b"vary", b"accept-encoding")
_RANGES = (b"accept-ranges", b"bytes")
_STORED, _DEFLATED = 0, 8
_NO_TIME = 315_532_800
"""1980-01-01T00:00:00Z."""


class StoredTile(Protocol):
    """A tile exactly as its archive holds it."""

    @property
    def payload(self) -> bytes:
        """The stored bytes."""
        ...

    @property
    def method(self) -> int:
        """0 stored, 8 raw DEFLATE."""
        ...

    @property
    def crc(self) -> int:
        """CRC-32 of the bytes before DEFLATE."""
        ...

    @property
    def size(self) -> int:
        """How many those are."""
        ...

    @property
    def headers(self) -> Texts:
        """Headers of the format and of the entry."""
        ...

    @property
    def modified(self) -> int | None:
        """Seconds since 1970, None when the archive does not say."""
        ...


def tile_answer(
    tile: StoredTile, headers: Headers, cache_control: str | None, *, verified: bool = False
) -> Answer:
    """The answer to a GET for a tile.

    Parameters
    ----------
    tile
        As stored.
    headers
        Those of the request.
    cache_control
        Where the archive has none.
    verified
        Whether the checksum of exactly these bytes has been compared before.

    Raises
    ------
    InvalidMetadataError
        The bytes are not those that the directory describes.
    Refusal
        406 when the client takes no coding that there is.
    """
    plan = header_plan(tile.headers, cache_control)
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
        extra.append(_VARY)
    content = Content(
        plan.type,
        etag,
        len(body),
        body=body,
        modified=moment_of(tile),
        headers=tuple(pair for pair in extra if pair[0] != b"x-content-type-options"),
        crc=tile.crc,
    )
    return content_answer(content, headers)


def _etag(tile: StoredTile, plan: HeaderPlan, *, gzip: bool) -> bytes:
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


def _plain(tile: StoredTile, plan: HeaderPlan, headers: Headers) -> Answer:
    """The same for the usual tile: stored as it is sent."""
    payload = tile.payload
    if len(payload) != tile.size or coding.crc_of(payload) != tile.crc:
        raise _damaged()
    etag = crc_etag(tile.crc)
    pairs = [(b"etag", etag), *plan.pairs]
    modified = moment_of(tile)
    if is_refused(headers, etag, modified):
        return Answer(412, [])
    if modified is not None:
        pairs.append((b"last-modified", http_date(modified)))
    if is_not_modified(headers, etag, modified, tile.crc):
        return Answer(304, [pair for pair in pairs if pair[0] != b"content-type"])
    pairs += (_RANGES, (b"content-length", b"%d" % len(payload)))
    return Answer(200, pairs, payload)


def _coded(
    tile: StoredTile,
    plan: HeaderPlan,
    client: Encodings,
    verified: bool,  # noqa: FBT001 - passed on as it came
) -> tuple[bytes, bool, bool]:
    """The bytes to send, whether they are gzip, and whether that depends on the client."""
    if tile.method == _DEFLATED and plan.coding == "" and client.gzip:
        if not verified:
            _check(tile, coding.inflated(tile.payload, tile.size))
        return coding.as_gzip(tile.payload, tile.crc, tile.size), True, True
    data = tile.payload if tile.method == _STORED else coding.inflated(tile.payload, tile.size)
    _check(tile, data)
    if client.takes(plan.coding):
        return data, plan.coding == "gzip", tile.method != _STORED or plan.coding != ""
    if plan.coding == "gzip" and client.identity:
        return coding.gunzipped(data, DEFAULT_LIMITS.tile_bytes), False, True
    raise Refusal(406, "not-acceptable", "no content coding that there is, is accepted", (_VARY,))


def _check(tile: StoredTile, data: bytes) -> None:
    if len(data) != tile.size or coding.crc_of(data) != tile.crc:
        raise _damaged()


def _damaged() -> InvalidMetadataError:
    return InvalidMetadataError("a tile's bytes do not have its checksum")
