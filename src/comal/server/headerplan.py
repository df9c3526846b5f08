"""Which headers of an archive go out with a tile, and in what form.

An archive is a stranger's: it may name the type of its tiles and describe them, but not steer the
connection, the cache of the answer's length, cookies, or what pages of this origin may do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from comal.server.answers import NOSNIFF

Texts = tuple[tuple[str, str], ...]

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
_SANDBOX = (b"content-security-policy", b"default-src 'none'; sandbox")
_UNKNOWN = b"application/octet-stream"


@dataclass(frozen=True, slots=True)
class HeaderPlan:
    """What all tiles with the same headers in the archive have in common."""

    type: bytes
    coding: str
    """Content coding of the bytes inside the archive's own compression; empty for none."""
    pairs: tuple[tuple[bytes, bytes], ...]
    """Content-Type, Cache-Control and the archive's own, in lower case."""


@lru_cache(maxsize=4096)
def header_plan(headers: Texts, cache_control: str | None) -> HeaderPlan:
    """The plan for a tile with these headers.

    Parameters
    ----------
    headers
        Those of the format and of the entry; of a repeated name the later wins.
    cache_control
        Used when the archive does not say.
    """
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
        pairs.append(_SANDBOX)
    return HeaderPlan(media, "" if coding == "identity" else coding, tuple(pairs))


def _is_denied(name: str) -> bool:
    return name in _DENIED or name.startswith(_DENIED_BEGINNINGS)
