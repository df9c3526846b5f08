"""Answers as ASGI takes them, and how bytes with a validator become one."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from comal.server.conditions import Headers, http_date, is_not_modified, is_refused, wanted_range

Pairs = list[tuple[bytes, bytes]]

NOSNIFF = (b"x-content-type-options", b"nosniff")
LOOKED_AT = (b"cache-control", b"no-cache")
"""Of documents that change with their archives."""
JSON = b"application/json"
GEOJSON = b"application/geo+json"
PROBLEM = b"application/problem+json"


@dataclass(slots=True)
class Answer:
    """Status, headers and either the bytes or what yields them in blocks."""

    status: int
    headers: Pairs
    body: bytes = b""
    blocks: AsyncIterator[bytes] | None = None
    """Where set, the bytes; `length` says how many."""
    length: int | None = None
    about: Content | None = None
    """Of what these are the bytes, or of what it says that it has not changed."""


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes that can be asked for conditionally and in part."""

    type: bytes
    etag: bytes
    size: int
    read: Callable[[int, int], AsyncIterator[bytes]] | None = None
    """Yields the bytes from a first one to the one before a last one, in blocks."""
    body: bytes | None = None
    modified: int | None = None
    """Seconds since 1970."""
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())
    crc: int | None = None


def plain_answer(status: int, kind: bytes, body: bytes, headers: Sequence[Any] = ()) -> Answer:
    """An answer with a length and without a validator."""
    pairs = [
        (b"content-type", kind),
        (b"content-length", b"%d" % len(body)),
        NOSNIFF,
        *headers,
    ]
    return Answer(status, pairs, body)


def json_answer(
    document: Any, *, status: int = 200, kind: bytes = JSON, headers: Sequence[Any] = ()
) -> Answer:
    """A document as JSON. What JSON cannot say (NaN, infinities) is null."""
    return plain_answer(status, kind, json_bytes(document), headers)


def json_bytes(document: Any) -> bytes:
    """A document as JSON in UTF-8; safe to stand in a page, as ``<`` is escaped."""
    try:
        text = json.dumps(document, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    except ValueError:
        text = json.dumps(_finite(document), separators=(",", ":"), ensure_ascii=False)
    # Lone surrogates can come out of names in files; UTF-8 has none.
    return text.replace("<", "\\u003c").encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def content_answer(content: Content, headers: Headers) -> Answer:
    """The answer to a GET for `content`: whole, in part, or that nothing has changed.

    412 and 416 have no body yet.
    """
    common: Pairs = [(b"etag", content.etag), *content.headers]
    if content.modified is not None:
        common.append((b"last-modified", http_date(content.modified)))
    if is_refused(headers, content.etag, content.modified):
        return Answer(412, [])
    if is_not_modified(headers, content.etag, content.modified, content.crc):
        return Answer(304, common, about=content)
    common += [NOSNIFF, (b"accept-ranges", b"bytes"), (b"content-type", content.type)]
    try:
        span = wanted_range(headers, content.etag, content.modified, content.size)
    except ValueError:
        # Nothing of the object itself is sent, so its type does not matter.
        return Answer(416, [(b"content-range", b"bytes */%d" % content.size)])
    first, last = span or (0, content.size)
    common.append((b"content-length", b"%d" % (last - first)))
    status = 200
    if span is not None:
        status = 206
        common.append((b"content-range", b"bytes %d-%d/%d" % (first, last - 1, content.size)))
    if content.body is not None:
        body = content.body if span is None else content.body[first:last]
        return Answer(status, common, body, about=content)
    assert content.read is not None, "content has bytes or a way to them"
    return Answer(status, common, b"", content.read(first, last), last - first, content)
