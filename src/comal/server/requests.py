"""Requests: path, query, headers and tile addresses, checked before anything is looked up.

A path is split into segments before percent-decoding, so that an encoded slash is a character of a
name and never a separator. Names are keys of tables, never paths of files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from comal.parallel import cached_property
from comal.server.http import Headers
from comal.server.responses import Refusal, Response, bad_request, not_found

ANY = "*/*"
"""The media type of content from archives."""
_MOST_PARAMETERS = 100
_MOST_SEGMENTS = 64


Handler = Callable[..., Awaitable[Response]]
"""Answers a request; an unbound method of the class that has the route.

A source that held bound methods would be in a reference cycle, and its files would stay open
until the next garbage collection.
"""


@dataclass(frozen=True, slots=True)
class Route:
    """A route: the only place that declares it.

    Requests are matched by it, and the OpenAPI document is generated from it.
    """

    path: str
    """Path with parameters in braces; paths below a source begin with ``/{source}``."""
    about: str
    handler: Handler | None = None
    """Answers all paths that begin with its first word; None if another route has it."""
    media: str = "application/json"
    query: tuple[str, ...] = ()
    """Names of its query parameters."""
    is_listed: bool = True
    """Whether the OpenAPI document lists it."""


def handlers(routes: Iterable[Route]) -> dict[str, Handler]:
    """Handlers by the first word of the path, or the first below the source."""
    return {
        route.path.removeprefix("/{source}").split("/")[1]: route.handler
        for route in routes
        if route.handler is not None
    }


@dataclass(frozen=True)
class Request:
    """One GET or HEAD."""

    segments: tuple[str, ...]
    """The path after the prefix, decoded; ``("",)`` is the root."""
    query_string: bytes
    headers: Headers
    base: str
    """Path before all routes: where the application is mounted, and its prefix."""
    public: str
    """As `base`, after the public URL of the server if the operator gave one."""
    head: bool = False
    """Whether it is a HEAD request."""

    @cached_property
    def query(self) -> Query:
        """The parameters."""
        return Query.parse(self.query_string)

    def link(self, path: str, parameters: Sequence[tuple[str, str]] = ()) -> str:
        """The URL of a path below the root, for documents."""
        text = "&".join(f"{quote(name)}={quote(value, safe=',/:')}" for name, value in parameters)
        return f"{self.public}/{path}" + ("?" + text if text else "")


class Query:
    """Parameters of a query; the last of repeated ones counts, `all` returns each."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = tuple(pairs)
        self._last = dict(pairs)

    @classmethod
    def parse(cls, text: bytes) -> Query:
        """The parameters of a query string."""
        try:
            pairs = parse_qsl(
                text.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MOST_PARAMETERS,
            )
        except (ValueError, UnicodeDecodeError) as error:
            raise bad_request("the query cannot be understood") from error
        if any("\0" in name or "\0" in value for name, value in pairs):
            raise bad_request("the query holds a NUL character")
        return cls(pairs)

    def all(self, name: str) -> list[str]:
        """Every value of a parameter, in order; without empty ones."""
        return [value for key, value in self.pairs if key == name and value != ""]

    def text(self, name: str) -> str | None:
        """The last value of a parameter, None if it is absent or empty."""
        return self._last.get(name) or None

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number between two bounds."""
        value = self.text(name)
        if value is None:
            return default
        if len(value) <= 12 and value.isascii() and value.isdigit() and least <= int(value) <= most:
            return int(value)
        raise bad_request(f"{name} must be a whole number from {least} to {most}")

    def flag(self, name: str, *, default: bool) -> bool:
        """``true`` or ``false``."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() in {"true", "1", "false", "0"}:
            return value.lower() in {"true", "1"}
        raise bad_request(f"{name} must be true or false")


def split_root(scope: Mapping[str, Any], prefix: str) -> tuple[str, bytes] | None:
    """The base path of the application with its prefix, and the raw path after it.

    None if the path is not below the prefix. Frameworks that mount an application leave the full
    path unchanged and put their part in `root_path`; older ones cut it off.
    """
    raw = scope.get("raw_path")
    path = raw.partition(b"?")[0] if raw else quote(scope["path"], safe="/%:@!$&'()*+,;=~").encode()
    if b"://" in path and not path.startswith(b"/"):
        # Clients of a proxy send the whole address (RFC 9112, 3.2.2).
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    root = scope.get("root_path", "").rstrip("/")
    encoded = quote(root).encode()
    if encoded and path.startswith(encoded) and path[len(encoded) :][:1] in {b"", b"/"}:
        path = path[len(encoded) :]
    before = prefix.encode()
    if not path.startswith(before) or path[len(before) :][:1] not in {b"", b"/"}:
        return None
    return root + prefix, path[len(before) :]


def segments_of(path: bytes) -> tuple[str, ...]:
    """The decoded segments of a raw path that begins with a slash."""
    parts = path[1:].split(b"/")
    if len(parts) > _MOST_SEGMENTS:
        raise bad_request("the path is too deep")
    try:
        segments = tuple(unquote_to_bytes(part).decode("utf-8") for part in parts)
    except UnicodeDecodeError as error:
        raise bad_request("the path is not UTF-8") from error
    if any(ord(character) < 32 for segment in segments for character in segment):
        raise bad_request("the path holds a control character")
    return segments


def check_head(scope: Mapping[str, Any], url_bytes: int, header_bytes: int) -> None:
    """Raise for an unknown version of HTTP, a URL or headers over the limits, and several Hosts.

    A missing Host is accepted (RFC 9112, 3.2): servers check that themselves, and events of other
    systems have none.
    """
    if not scope.get("http_version", "1.1").startswith(("1", "2", "3")):
        raise Refusal(505, "http-version", "the server speaks HTTP 1 to 3")
    address = len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
    if address > url_bytes:
        raise Refusal(414, "uri-too-long", f"the address is longer than {url_bytes} bytes")
    size = hosts = 0
    for name, value in scope["headers"]:
        size += len(name) + len(value) + 4
        hosts += name == b"host"
    if size > header_bytes:
        raise Refusal(431, "headers-too-large", f"the headers are longer than {header_bytes} bytes")
    if hosts > 1:
        raise bad_request("a request needs exactly one Host")


DEEPEST = 26
_LONGEST = 8  # digits of 2 ** 26


@dataclass(frozen=True, slots=True)
class Address:
    """One tile: XYZ scheme, y down."""

    z: int
    x: int
    y: int
    scale: int = 1
    ext: str = ""
    size: int | None = None
    """Pixels of a side, if the URL names them, as URLs of Tapalcatl 1 do."""


def parse_address(z: str, x: str, last: str) -> Address:
    """The address from ``z``, ``x`` and ``y[@2x][.ext]``."""
    name, _, ext = last.partition(".")
    y, at, scale = name.partition("@")
    factor = _scale(scale) if at else 1
    zoom, column, row = number(z), number(x), number(y)
    if zoom > DEEPEST or column >> zoom or row >> zoom:
        raise not_found("there is no such tile in the matrix")
    if len(ext) > 16 or not all(c.isascii() and (c.isalnum() or c in "._-") for c in ext):
        raise not_found("there is no such format")
    return Address(zoom, column, row, factor, ext)


@lru_cache(maxsize=8192)
def number(text: str) -> int:
    """A whole number written without sign and leading zeros."""
    right = text.isascii() and text.isdigit() and (text[0] != "0" or text == "0")
    if not right:
        raise bad_request("a tile needs three whole numbers: z/x/y")
    if len(text) > _LONGEST:
        raise not_found("there is no such tile in the matrix")
    return int(text)


def _scale(text: str) -> int:
    if len(text) == 2 and text[1] == "x" and text[0] in "123456789":
        return int(text[0])
    raise not_found("there is no such scale")
