"""Parsing and checking HTTP responses for objects and ranges; no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime

from comal.errors import AccessDeniedError, ComalError, ObjectNotFoundError, StorageError, shown
from comal.limits import KIB
from comal.plan import ByteRange, Tail, Wanted
from comal.storage.location import Location
from comal.storage.source import ObjectInfo, changed, same_version

_CONTENT_RANGE = re.compile(
    r"bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII | re.IGNORECASE
)
_UNSATISFIED = re.compile(r"bytes\s+\*/(\d{1,19})", re.ASCII | re.IGNORECASE)

_PAGES = (b"<!doctype", b"<html", b"<?xml")
PAGE = "a page or an XML document"
"""What a server sends for a listing of a folder or a login page."""
PAGE_HINT = "check that the URL leads to the file itself; that of a folder ends with /"

Headers = Mapping[str, str]
Span = tuple[int, int]
"""Offset and size."""


def is_page(head: bytes) -> bool:
    """Whether an object begins like a page."""
    return head.lstrip().lower().startswith(_PAGES)


def range_header(want: Wanted, size: int) -> str:
    """The ``Range`` header for `want`; except for a `ByteRange`, `size` bytes or at least one."""
    if isinstance(want, ByteRange):
        return f"bytes={want.offset}-{want.end - 1}"
    size = max(1, size)
    return f"bytes=-{size}" if isinstance(want, Tail) else f"bytes=0-{size - 1}"


def object_info(
    headers: Headers, size: int, location: Location, known: ObjectInfo | None
) -> ObjectInfo:
    """Size and version of an object from response headers, compared with the known version.

    A weak entity tag is ignored. Raises `ObjectChangedError` for another version.
    """
    etag = headers.get("ETag", "").strip()
    strong = etag if etag.startswith('"') and etag.endswith('"') and len(etag) > 2 else None
    info = ObjectInfo(location.href, size, strong, _modified(headers), variant=location.variant)
    check_version(known, info, location)
    return info


def _modified(headers: Headers) -> int | None:
    try:
        return int(parsedate_to_datetime(headers["Last-Modified"]).timestamp()) * 10**9
    except (KeyError, ValueError, OverflowError):
        return None


def check_version(known: ObjectInfo | None, info: ObjectInfo, location: Location) -> None:
    """Raise `ObjectChangedError` when a response has another version than the known one."""
    if known is not None and not same_version(known, info):
        raise changed(location, known, info)


def content_range(headers: Headers, location: Location) -> tuple[int, int, int]:
    """First byte, number of bytes and total of a 206 answer."""
    value = headers.get("Content-Range", "")
    found = parse_content_range(value)
    if found is None:
        raise StorageError(
            "the server sent a range without saying which",
            where=location.label,
            found=shown(value),
            expected="Content-Range: bytes first-last/total",
        )
    start, size, total = found
    if size < 1 or start + size > total:
        raise wrong_range(value, None, location)
    return found


def parse_content_range(value: str) -> tuple[int, int, int] | None:
    """First byte, number of bytes and total of a ``Content-Range`` value, not checked yet."""
    match = _CONTENT_RANGE.fullmatch(value.strip())
    if match is None or match[3] == "*":
        return None
    start = int(match[1])
    return start, int(match[2]) + 1 - start, int(match[3])


def wrong_range(found: str, expected: object, location: Location) -> StorageError:
    """The error for a server that returns another range than the requested one."""
    return StorageError(
        "the server sent a range that was not asked for",
        where=location.label,
        found=shown(found),
        expected=expected,
    )


def unsatisfied_total(headers: Headers) -> int | None:
    """Size of the object from a 416 response."""
    match = _UNSATISFIED.fullmatch(headers.get("Content-Range", "").strip())
    return int(match[1]) if match else None


def content_length(headers: Headers) -> int | None:
    """Length of the body, if the headers give it."""
    value = headers.get("Content-Length", "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None


def check_encoding(headers: Headers, location: Location) -> None:
    """Refuse a body that is not the object's own bytes."""
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise StorageError(
            "the server encoded the object although it was asked not to",
            where=location.label,
            found=shown(encoding),
            expected="no Content-Encoding",
            hint="switch compression off for this object on the server",
        )


def ignores_range(size: int | None, limit: int, location: Location) -> StorageError:
    """The error for a server that sends all of a large object instead of a range."""
    return StorageError(
        "the server ignores byte ranges",
        where=location.label,
        found="an answer of " + ("unknown size" if size is None else f"{size} bytes"),
        expected=f"status 206, or at most {limit} bytes",
        hint="use a server that supports ranges, or download the file first",
    )


def refusal(status: int, location: Location) -> ComalError:
    """The error for a status that no retry will change."""
    if status in (404, 410):
        return ObjectNotFoundError("no such object", where=location.label, status=status)
    if status in (401, 403, 407):
        return AccessDeniedError(
            "access denied", where=location.label, found=f"status {status}", status=status
        )
    return StorageError(
        "the server refused the request",
        where=location.label,
        found=f"status {status}",
        status=status,
    )


# -- many ranges ---------------------------------------------------------------------------------


_SLACK = 64 * KIB
_HEADERS = 2 * KIB
# As nginx, Apache, Caddy and others write it, some with brackets (RFC 2046, 5.1.1 allows fewer).
_BOUNDARY = re.compile(
    r"""multipart/byteranges[ \t]*;[ \t]*boundary=(?:"([^"\\]{1,70})"|([^\s;"]{1,70}))""",
    re.IGNORECASE,
)


class NotFittingError(Exception):
    """A response that does not match its request. It never leaves `comal.storage`."""


def ranges_header(spans: Sequence[Span]) -> str:
    """The ``Range`` header for many ranges (RFC 9110, 14.1.2)."""
    return "bytes=" + ",".join(f"{offset}-{offset + size - 1}" for offset, size in spans)


def most_bytes(spans: Sequence[Span]) -> int:
    """How long a multipart response to ranges may be, with headers and boundaries."""
    return sum(size for _, size in spans) + len(spans) * _HEADERS + _SLACK


def check_parts(headers: Headers, spans: Sequence[Span]) -> bytes:
    """The boundary of a multipart response; `NotFittingError` if its headers do not fit."""
    length = content_length(headers)
    if length is not None and length > most_bytes(spans):
        raise NotFittingError("an answer that is too long")
    if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise NotFittingError("an encoded answer")
    if "Content-Range" in headers:
        # A multipart response has no range of its own (RFC 9110, 15.3.7.2).
        raise NotFittingError("one range")
    kind = headers.get("Content-Type", "").strip()
    named = _BOUNDARY.fullmatch(kind)
    if named is None or not kind.isascii():
        raise NotFittingError("no boundary")
    return (named[1] or named[2]).encode("ascii")


def read_parts(body: bytes, boundary: bytes, spans: Sequence[Span], total: int) -> list[bytes]:
    """The bytes of each of `spans`, ascending and disjoint, of an object of `total` bytes.

    A multipart response must be as common servers write it: one part per range, in order, CRLF
    line endings, and nothing before, between or in the boundary lines. Anything else raises
    `NotFittingError`; then each range must be requested alone.
    """
    # The end of line before a delimiter belongs to it (RFC 2046, 5.1.1); the first may lack it.
    delimiter = b"\r\n--" + boundary
    at = 2 if body.startswith(b"\r\n") else 0
    if not body.startswith(delimiter[2:] + b"\r\n", at):
        raise NotFittingError("no boundary")
    at += len(delimiter)
    found: list[bytes] = []
    for number, span in enumerate(spans, 1):
        end = body.find(b"\r\n\r\n", at, at + _HEADERS)
        if end < 0 or _part_range(body[at:end], total) != span:
            raise NotFittingError("a part that was not asked for")
        start, stop = end + 4, end + 4 + span[1]
        found.append(body[start:stop])
        if not body.startswith(delimiter + (b"--" if number == len(spans) else b"\r\n"), stop):
            raise NotFittingError("a part longer than its range, or no boundary behind it")
        at = stop + len(delimiter) + 2
    return found


def _part_range(head: bytes, total: int) -> Span:
    """Offset and size of a part from its header fields."""
    found: tuple[int, int, int] | None = None
    for line in head.decode("latin-1").split("\r\n"):
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise NotFittingError("a part with a broken header")
        if name.lower() == "content-range":
            if found is not None:
                raise NotFittingError("a part with two ranges")
            found = parse_content_range(value)
            if found is None:
                raise NotFittingError("a part with a broken range")
    if found is None or found[2] != total:
        raise NotFittingError("a part of nothing that was asked for")
    return found[0], found[1]
