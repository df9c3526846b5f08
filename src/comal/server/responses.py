"""Responses: bytes with a validator, JSON, and problem documents that reveal nothing internal.

A problem document (RFC 9457) has a stable `code`, and the `id` of the request to find it in the
log. It never has a path, an upstream URL or a version.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from http import HTTPStatus
from typing import Any

from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectChangedError,
    UnsafeContentError,
    UnsupportedVersionError,
    compared,
)
from comal.server.http import (
    Headers,
    http_date,
    is_not_modified,
    is_refused,
    wanted_range,
)

Pairs = list[tuple[bytes, bytes]]

NOSNIFF = (b"x-content-type-options", b"nosniff")
LOOKED_AT = (b"cache-control", b"no-cache")
"""For documents that change with their archives."""
NOT_KEPT = (b"cache-control", b"no-store")
VARY_ACCEPT = (b"vary", b"accept")
VARY_ENCODING = (b"vary", b"accept-encoding")
GZIP = (b"content-encoding", b"gzip")
SANDBOX = (b"content-security-policy", b"default-src 'none'; sandbox")
"""For untrusted content that a browser may execute if it is opened by itself."""
JSON = b"application/json"
GEOJSON = b"application/geo+json"
PROBLEM = b"application/problem+json"


@dataclass(slots=True)
class Response:
    """Status, headers and either the body or an iterator of its blocks."""

    status: int
    headers: Pairs
    body: bytes = b""
    blocks: AsyncIterator[bytes] | None = None
    """If set, the body; `length` is its size."""
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes that support conditional and range requests."""

    type: bytes
    etag: bytes
    size: int
    read: Callable[[int, int], AsyncIterator[bytes]] | None = None
    """Yields the bytes from a start up to an exclusive end, in blocks."""
    body: bytes | None = None
    modified: int | None = None
    """Seconds since 1970."""
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())
    crc: int | None = None


def plain_response(status: int, kind: bytes, body: bytes, headers: Sequence[Any] = ()) -> Response:
    """A response with a length and without a validator."""
    pairs = [
        (b"content-type", kind),
        (b"content-length", b"%d" % len(body)),
        NOSNIFF,
        *headers,
    ]
    return Response(status, pairs, body)


def json_response(
    document: Any, *, status: int = 200, kind: bytes = JSON, headers: Sequence[Any] = ()
) -> Response:
    """A document as JSON. NaN and infinities become null."""
    return plain_response(status, kind, json_bytes(document), headers)


def json_bytes(document: Any) -> bytes:
    """A document as JSON in UTF-8; safe inside of HTML, as ``<`` is escaped."""
    try:
        text = json.dumps(document, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    except ValueError:
        text = json.dumps(plain(document), separators=(",", ":"), ensure_ascii=False)
    # Names in files can contain lone surrogates, which UTF-8 cannot encode.
    return text.replace("<", "\\u003c").encode("utf-8", "replace")


def plain(value: Any) -> Any:
    """A Python value as JSON can hold it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return plain(float(value))
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, bytes) else str(value)


def content_response(content: Content, headers: Headers) -> Response:
    """The answer to a GET for `content`: 200, 206 or 304; raises 412 and 416."""
    common: Pairs = [(b"etag", content.etag), *content.headers]
    is_text = content.etag.startswith(b"W/")
    if is_text:
        common.append(VARY_ENCODING)
    if content.modified is not None:
        common.append((b"last-modified", http_date(content.modified)))
    if is_refused(headers, content.etag, content.modified):
        raise Refusal(412, "precondition-failed")
    if is_not_modified(headers, content.etag, content.modified, content.crc):
        return Response(304, common)
    common += [NOSNIFF, (b"content-type", content.type)]
    if is_text:  # sent as a whole, and perhaps compressed
        common.append((b"content-length", b"%d" % content.size))
        return Response(200, common, content.body or b"")
    common.append((b"accept-ranges", b"bytes"))
    try:
        span = wanted_range(headers, content.etag, content.modified, content.size)
    except ValueError:
        size = (b"content-range", b"bytes */%d" % content.size)
        raise Refusal(416, "range-not-satisfiable", None, (size,)) from None
    first, last = span or (0, content.size)
    common.append((b"content-length", b"%d" % (last - first)))
    status = 200
    if span is not None:
        status = 206
        common.append((b"content-range", b"bytes %d-%d/%d" % (first, last - 1, content.size)))
    if content.body is not None:
        body = content.body if span is None else content.body[first:last]
        return Response(status, common, body)
    assert content.read is not None, "content has bytes or a way to them"
    return Response(status, common, b"", content.read(first, last), last - first)


RETRY_AFTER = (b"retry-after", b"1")
DAMAGED: tuple[type[ComalError], ...] = (
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    UnsafeContentError,
    UnsupportedVersionError,
)
"""Faults of the archive. On a server they are not the fault of the request, so they are 500."""


class Refusal(Exception):  # noqa: N818 - it is a response, raised by the parsers of requests
    """A request that is answered with a problem; `code` is stable, `detail` is for people.

    It contains nothing internal.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(detail or code)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers


def not_found(
    detail: str = "there is nothing here", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Refusal:
    """404."""
    return Refusal(404, "not-found", detail, headers)


def bad_request(detail: str) -> Refusal:
    """400."""
    return Refusal(400, "bad-request", detail)


def refusal_of(error: Exception) -> Refusal:
    """The refusal for an error; a foreign error is a bug and reveals nothing."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, TimeoutError) and not isinstance(error, ComalError):
        return Refusal(504, "timeout", "the request took too long")
    if isinstance(error, MemoryError):
        return Refusal(503, "overloaded", "there is not enough memory now", (RETRY_AFTER,))
    if not isinstance(error, ComalError):
        return Refusal(500, "internal", "the server failed")
    if isinstance(error, DAMAGED):
        return Refusal(
            500, "damaged", "the archive is damaged here, or holds something that is not allowed"
        )
    if isinstance(error, InvalidInputError):
        # What is wrong with the client's input may be quoted back.
        about = "; ".join([error.what, *compared(error)])[:400]
        return Refusal(error.http_status, error.code, about)
    headers = (RETRY_AFTER,) if isinstance(error, ObjectChangedError) else ()
    return Refusal(error.http_status, error.code, _title(error.http_status), headers)


def _title(status: int) -> str:
    # 499 is nginx's for clients that went away; only for the log and the counts.
    return "client closed request" if status == 499 else HTTPStatus(status).phrase.lower()


def problem_response(refusal: Refusal, request_id: str) -> Response:
    """The problem document of a refusal."""
    document = {
        "type": "about:blank",
        "title": _title(refusal.status),
        "status": refusal.status,
        "detail": refusal.detail or _title(refusal.status),
        "code": refusal.code,
        "id": request_id,
    }
    headers = [(b"x-request-id", request_id.encode()), *refusal.headers]
    if refusal.status >= 500 or refusal.status == 429:
        headers.append(NOT_KEPT)
    return json_response(document, status=refusal.status, kind=PROBLEM, headers=headers)
