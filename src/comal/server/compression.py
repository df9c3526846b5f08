"""Documents and pages as gzip, for clients that take it."""

from __future__ import annotations

from isal import isal_zlib

from comal.server.http import Headers, encodings
from comal.server.responses import VARY_ENCODING, Pairs, Response
from comal.server.runtime import Runtime

_LEAST = 1_024
_LEVEL = 2
_GZIP = 31
_TYPES = (
    b"application/json",
    b"application/geo+json",
    b"application/schema+json",
    b"application/vnd.oai.openapi+json",
    b"application/manifest+json",
    b"text/html",
    b"text/css",
    b"text/javascript",
    b"text/plain",
    b"image/svg+xml",
)
"""Texts of the server's own. Tiles and samples have their own codings and are not touched."""


async def compressed(answer: Response, headers: Headers, runtime: Runtime) -> Response:
    """The answer, compressed where it is a long text and the client takes gzip.

    Its tag becomes a weak one, as it stands for the same text in other bytes.
    """
    if not _is_long_text(answer):
        return answer
    answer.headers.append(VARY_ENCODING)
    # A part is of the text as it is, so it keeps the tag of that.
    if answer.status == 206 or not encodings(headers.get(b"accept-encoding")).gzip:
        return answer
    tag = dict(answer.headers).get(b"etag")
    if answer.status == 304:
        # RFC 9110, 15.4.5: with the tag that the whole would have.
        return Response(304, _weakened(answer.headers))
    if tag is None:
        body = await runtime.run(_gzip, answer.body)
    else:
        key = ("gzip", dict(answer.headers)[b"content-type"], tag)
        text = answer.body
        body = await runtime.once(key, lambda: runtime.run(_gzip, text))
    dropped = {b"content-length", b"accept-ranges"}
    pairs = [pair for pair in _weakened(answer.headers) if pair[0] not in dropped]
    pairs += [(b"content-length", b"%d" % len(body)), (b"content-encoding", b"gzip")]
    return Response(200, pairs, body)


def _is_long_text(answer: Response) -> bool:
    """Whether what an answer gives, or is a part of, is sent compressed to who takes that."""
    given = dict(answer.headers)
    kind, size = given.get(b"content-type", b""), len(answer.body)
    if answer.about is not None:
        kind, size = answer.about.type, answer.about.size
    if answer.status not in {200, 206, 304} or answer.blocks is not None or size < _LEAST:
        return False
    return kind.partition(b";")[0] in _TYPES and b"content-encoding" not in given


def _weakened(pairs: Pairs) -> Pairs:
    return [
        (name, b"W/" + value if name == b"etag" and not value.startswith(b"W/") else value)
        for name, value in pairs
    ]


def _gzip(text: bytes) -> bytes:
    stream = isal_zlib.compressobj(_LEVEL, wbits=_GZIP)
    return bytes(stream.compress(text) + stream.flush())
