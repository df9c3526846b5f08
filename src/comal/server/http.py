"""Headers of requests (RFC 9110): conditions, ranges, Accept and Accept-Encoding."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache

Headers = dict[bytes, bytes]
"""Request headers, names in lower case; of repeated ones the last value, unless it is a list."""

LISTS = (b"accept", b"accept-encoding", b"if-match", b"if-none-match")
"""Headers whose repetitions form one list (RFC 9110, 5.3)."""

_TAG = re.compile(rb'(?:W/)?"([^"]*)"|([^\s,"]+)')
_STRONG = re.compile(rb'(W/)?("[^"]*")')
_RANGE = re.compile(rb"(?i:bytes)=(\d{0,19})-(\d{0,19})")


def folded(pairs: Sequence[tuple[bytes, bytes]]) -> Headers:
    """The headers of a request from its header lines."""
    found = dict(pairs)
    if len(found) != len(pairs):
        for name in LISTS:
            values = [value for key, value in pairs if key == name]
            if len(values) > 1:
                found[name] = b", ".join(values)
    return found


@lru_cache(maxsize=4096)
def http_date(seconds: int) -> bytes:
    """A time in seconds since 1970 as an HTTP date."""
    return formatdate(seconds, usegmt=True).encode()


@lru_cache(maxsize=256)
def parse_http_date(value: bytes) -> int | None:
    """Seconds since 1970, or None if it is no date: RFC 9110 says to ignore it."""
    try:
        moment = parsedate_to_datetime(value.decode("ascii"))
        # One of the three forms (RFC 9110, 5.6.7) names no zone; all are in UTC.
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, TypeError, OverflowError, UnicodeDecodeError):
        return None


def hash_etag(body: bytes) -> bytes:
    """A strong entity tag for bytes without a checksum."""
    return b'"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode()


def text_etag(body: bytes) -> bytes:
    """A weak entity tag for a text, independent of its content coding."""
    return b"W/" + hash_etag(body)


def crc_etag(crc: int, coding: bytes = b"") -> bytes:
    """The strong entity tag of bytes with this CRC-32.

    If they are sent in another content coding than they are stored in, the tag contains the name
    of the coding: bytes that differ only by their coding need different tags (8.8.3.3).
    """
    return b'"%08x-%b"' % (crc, coding) if coding else b'"%08x"' % crc


def tag_matches(value: bytes, etag: bytes, crc: int | None = None) -> bool:
    """Whether an If-None-Match holds the tag, compared weakly.

    The CRC as a decimal number, quoted or not, matches as well: other servers of the same tiles
    have sent it.
    """
    if value == etag:
        return True
    if value.strip() == b"*":
        return True
    wanted = {etag.removeprefix(b"W/").strip(b'"')}
    if crc is not None:
        wanted.add(b"%d" % crc)
    return any((quoted or bare) in wanted for quoted, bare in _TAG.findall(value))


def is_refused(headers: Headers, etag: bytes, modified: int | None) -> bool:
    """Whether 412 is the answer (13.2.2). If-Unmodified-Since counts only without If-Match."""
    tags = headers.get(b"if-match")
    if tags is not None:
        # Strongly: a weak tag never matches.
        found = (tag for weak, tag in _STRONG.findall(tags) if not weak)
        return tags.strip() != b"*" and etag not in found
    since = headers.get(b"if-unmodified-since")
    if since is None or modified is None:
        return False
    moment = parse_http_date(since)
    return moment is not None and modified > moment


def is_not_modified(
    headers: Headers, etag: bytes, modified: int | None, crc: int | None = None
) -> bool:
    """Whether 304 is the answer. If-Modified-Since counts only without If-None-Match."""
    tags = headers.get(b"if-none-match")
    if tags is not None:
        return tag_matches(tags, etag, crc)
    since = headers.get(b"if-modified-since")
    if since is None or modified is None:
        return False
    moment = parse_http_date(since)
    return moment is not None and modified <= moment


def wanted_range(
    headers: Headers, etag: bytes, modified: int | None, total: int
) -> tuple[int, int] | None:
    """First requested byte and the one after the last; None for the whole.

    Only one range is served. Malformed ranges, several ranges, and a range whose If-Range does not
    match are ignored, as RFC 9110 allows.
    """
    value = headers.get(b"range")
    if value is None or not _still_same(headers, etag, modified):
        return None
    match = _RANGE.fullmatch(value.strip())
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        count = int(match[2])
        if count == 0 or total == 0:
            raise ValueError(value)
        return max(0, total - count), total
    first = int(match[1])
    if match[2] and int(match[2]) < first:
        return None
    if first >= total:
        raise ValueError(value)
    return first, min(total, int(match[2]) + 1) if match[2] else total


def _still_same(headers: Headers, etag: bytes, modified: int | None) -> bool:
    condition = headers.get(b"if-range")
    if condition is None:
        return True
    if condition.endswith(b'"'):
        return condition == etag  # strongly: a weak tag never matches
    moment = parse_http_date(condition)
    return moment is not None and moment == modified


_LONGEST_KEPT = 300
"""Shorter values are parsed once; longer ones each time, so that they do not fill the cache."""


@dataclass(frozen=True, slots=True)
class Encodings:
    """Which content codings a client takes."""

    gzip: bool
    identity: bool
    named: frozenset[str]
    """Other codings that it names, such as ``br``."""

    def takes(self, coding: str) -> bool:
        """Whether bytes in this coding may be sent."""
        if coding == "gzip":
            return self.gzip
        return self.identity if coding in {"", "identity"} else coding in self.named


PLAIN = Encodings(gzip=False, identity=True, named=frozenset())
"""A client without the header: it surely understands bytes without a coding."""


def encodings(value: bytes | None) -> Encodings:
    """The codings that an Accept-Encoding allows."""
    if value is None:
        return PLAIN
    return _encodings(value) if len(value) > _LONGEST_KEPT else _kept_encodings(value)


def _encodings(value: bytes) -> Encodings:
    weights = dict(_weighted(value.decode("latin-1")))
    everything = weights.get("*", 0.0)
    gzip = weights.get("gzip", weights.get("x-gzip", everything)) > 0
    identity = weights.get("identity", 1.0 if "*" not in weights else everything) > 0
    named = frozenset(name for name, weight in weights.items() if weight > 0)
    return Encodings(gzip, identity, named)


_kept_encodings = lru_cache(maxsize=512)(_encodings)


def _weighted(text: str) -> list[tuple[str, float]]:
    found = []
    for part in text.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if name:
            found.append((name, _weight(parameters)))
    return found


def _weight(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.rstrip() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


def best_type(value: bytes | None, offers: Sequence[str]) -> str | None:
    """The offered media type that an Accept prefers; the first of equals, None if none fits."""
    weights = dict(_weighted((value or b"*/*").decode("latin-1")))

    def weight(offer: str) -> float:
        """The weight of the most specific media range that matches."""
        kind = offer.partition(";")[0].strip().lower()
        ranges = (kind, kind.partition("/")[0] + "/*", "*/*")
        return next((weights[name] for name in ranges if name in weights), 0.0)

    best = max(offers, key=weight, default=None)
    return best if best is not None and weight(best) > 0 else None
