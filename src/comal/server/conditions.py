"""Conditional and range requests (RFC 9110, 13 and 14), told from header values alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache

Headers = dict[bytes, bytes]
"""Request headers, names in lower case; of a repeated one the last, unless it is a list."""

LISTS = (b"accept", b"accept-encoding", b"if-match", b"if-none-match")
"""Headers that may come in pieces, which are one list (RFC 9110, 5.3)."""

_TAG = re.compile(rb'(?:W/)?"([^"]*)"|([^\s,"]+)')
_STRONG = re.compile(rb'(W/)?("[^"]*")')
_RANGE = re.compile(rb"(?i:bytes)=(\d{0,19})-(\d{0,19})")


def folded(pairs: Sequence[tuple[bytes, bytes]]) -> Headers:
    """The headers of a request from the lines that it has."""
    found = dict(pairs)
    if len(found) != len(pairs):
        for name in LISTS:
            values = [value for key, value in pairs if key == name]
            if len(values) > 1:
                found[name] = b", ".join(values)
    return found


@lru_cache(maxsize=4096)
def http_date(seconds: int) -> bytes:
    """A time in seconds since 1970 as headers show it."""
    return formatdate(seconds, usegmt=True).encode()


@lru_cache(maxsize=256)
def parse_http_date(value: bytes) -> int | None:
    """Seconds since 1970, or None for what is no date, which RFC 9110 tells to ignore."""
    try:
        return int(parsedate_to_datetime(value.decode("ascii")).timestamp())
    except (ValueError, TypeError, OverflowError, UnicodeDecodeError):
        return None


def crc_etag(crc: int, coding: bytes = b"") -> bytes:
    """The strong entity tag of bytes with this CRC-32.

    Where they are sent in another content coding than they were found in, the tag names that: of
    bytes that differ only by their coding each has a tag of its own (8.8.3.3).
    """
    return b'"%08x-%b"' % (crc, coding) if coding else b'"%08x"' % crc


def tag_matches(value: bytes, etag: bytes, crc: int | None = None) -> bool:
    """Whether an If-None-Match holds the tag, compared weakly.

    Beside the tag itself its CRC as a decimal number counts, quoted or not, which other servers of
    the same tiles have sent.
    """
    if value == etag:
        return True
    if value.strip() == b"*":
        return True
    wanted = {etag.strip(b'"')}
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
    """First byte and the byte behind the last one that are asked for; None for the whole.

    One range is served. What is no range, several of them, and a range whose If-Range does not
    match are ignored, as RFC 9110 allows.

    Raises
    ------
    ValueError
        The range lies outside of `total` bytes: 416.
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
