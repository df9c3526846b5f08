"""Documents and pages as gzip, for clients that take it."""

from __future__ import annotations

from isal import isal_zlib

from comal.server.answers import Answer
from comal.server.conditions import Headers
from comal.server.negotiation import encodings
from comal.server.workshop import Workshop

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
_VARY = (b"vary", b"accept-encoding")


async def squeezed(answer: Answer, headers: Headers, workshop: Workshop) -> Answer:
    """The answer, compressed where it is a long text and the client takes gzip.

    Its tag becomes a weak one, as it stands for the same text in other bytes.
    """
    given = dict(answer.headers)
    kind = given.get(b"content-type", b"").partition(b";")[0]
    if answer.status != 200 or kind not in _TYPES or b"content-encoding" in given:
        return answer
    if answer.blocks is not None or len(answer.body) < _LEAST:
        return answer
    if not encodings(headers.get(b"accept-encoding")).gzip:
        answer.headers.append(_VARY)
        return answer
    tag = given.get(b"etag")
    if tag is None:
        body = await workshop.run(_gzip, answer.body)
    else:
        text = answer.body
        body = await workshop.once(("gzip", kind, tag), lambda: workshop.run(_gzip, text))
    dropped = {b"content-length", b"accept-ranges", b"etag"}
    pairs = [pair for pair in answer.headers if pair[0] not in dropped]
    pairs += [(b"content-length", b"%d" % len(body)), (b"content-encoding", b"gzip"), _VARY]
    if tag is not None:
        pairs.append((b"etag", tag if tag.startswith(b"W/") else b"W/" + tag))
    return Answer(200, pairs, body)


def _gzip(text: bytes) -> bytes:
    stream = isal_zlib.compressobj(_LEVEL, wbits=_GZIP)
    return bytes(stream.compress(text) + stream.flush())
