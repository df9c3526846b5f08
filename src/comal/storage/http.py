"""HTTP(S) by urllib3: checked ranges, pinned versions, bounded redirects.

Servers need not support many ranges in one request (RFC 9110, 14.2). nginx, Apache and Caddy
answer all of them; others send the whole object, the first range only, or an error. So the first
such request to an origin is a trial, and its result is remembered for the life of the process.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import IncompleteRead
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urljoin

from urllib3.exceptions import (
    HTTPError,
    LocationValueError,
    NewConnectionError,
    ProtocolError,
    SSLError,
)
from urllib3.exceptions import (
    TimeoutError as PoolTimeoutError,
)

from comal.errors import ComalError, InvalidInputError, StorageError, shown
from comal.limits import KIB, MIB
from comal.plan import ByteRange, Wanted, Whole
from comal.storage import httpwire as answers
from comal.storage.config import ANY, PRIVATE, StorageConfig
from comal.storage.http_pool import kind_answered, send
from comal.storage.httpwire import NotFittingError, Span
from comal.storage.location import HTTP_SCHEMES, Location, no_secrets, parse_href
from comal.storage.remote import (
    Ask,
    Reply,
    TransientError,
    Transport,
    parse_retry_after,
    passes,
    retrying,
)
from comal.storage.source import changed, span_of, too_large

if TYPE_CHECKING:
    import urllib3

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Statuses that confirm a remembered redirect target; after any other, the origin is asked again.
_SETTLED = frozenset({200, 206, 412, 416})
_MOVED_FOR = 300.0
_MOST_MOVED = 4096
_BLOCK = 256 * KIB
_DRAIN = 64 * KIB
_MOST_TOLD = 4 * MIB
_TRIAL_TRIES = 2
_MOST_ORIGINS = 4096

# Whether an origin answers many ranges, once known; a thread that is trying it stores an object of
# its own. No lock, which a fork could leave held: `setdefault` is atomic.
_shown: dict[str, object] = {}


def forget() -> None:
    """Forget which servers answer many ranges."""
    _shown.clear()


def takes_many(at: Location) -> bool | None:
    """Whether a server answers many ranges at once; None if a trial may find out.

    A query may be a signature, and signed URLs lead to object stores, which support single ranges
    only: URLs with a query are not tried, but use what the origin has shown without one.
    """
    shown = _shown.get(at.origin)
    if shown is None and not at.query and len(_shown) < _MOST_ORIGINS:
        return None
    return shown is True


class Answer(NamedTuple):
    """What a server says to a request that is not for bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Way:
    """Where to request an object: its own URL, or the target of a redirect."""

    at: Location
    least: int
    """How public the address must be."""
    until: float = 0.0


class HttpTransport(Transport):
    """Makes one checked request at a time, and retries transient failures.

    `least` is how public the address of the origin must be, such as of one that only an archive
    names.
    """

    def __init__(self, config: StorageConfig, least: int = ANY) -> None:
        self.config = config
        self.least = least
        self._moved: dict[str, _Way] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"config": self.config, "least": self.least, "_moved": {}}

    def get(self, ask: Ask) -> Reply:
        """Make one request; a `Whole` may be answered by its first `max_request` bytes."""
        size = ask.size(self.config.max_request)
        return retrying(self.config, ask.location, size, lambda deadline: self._get(ask, deadline))

    def takes_many(self, location: Location) -> bool | None:
        """Whether `get_many` works for an object; None if its first call will find out."""
        return takes_many(self._settled(location).at)

    def get_many(self, asks: Sequence[Ask]) -> list[Reply] | None:
        """Request ranges of one known object at once; None if each must be requested alone.

        Transient failures are retried as for any request. Other failures are not raised if the
        server has not answered such requests before: requests for single ranges, which every server
        supports, will succeed or raise the error.
        """
        way, known = self._settled(asks[0].location), asks[0].known
        assert known is not None
        origin, may, mine = way.at.origin, takes_many(way.at), object()
        trial = may is None and _shown.setdefault(origin, mine) is mine
        if not (may or trial):
            return None
        # Some servers fail, hang up or stop answering at many ranges.
        most = min(self.config.tries, _TRIAL_TRIES) if trial else self.config.tries
        config = replace(self.config, tries=most)
        spans = [ask.span(known.size, config.max_request) for ask in asks]
        size = sum(size for _, size in spans)
        try:
            replies = retrying(
                config,
                asks[0].location,
                size,
                lambda deadline: self._get_many(asks[0], spans, way, deadline),
            )
            if replies is not None:
                _shown[origin] = True
        except (NotFittingError, StorageError) as error:
            if isinstance(error, StorageError) and not trial:
                raise
            _shown[origin], replies = False, None
        finally:
            # A trial that ended in any other way has no result.
            if _shown.get(origin) is mine:
                del _shown[origin]
        return replies

    def names(self, location: Location) -> list[str]:
        """Not possible: HTTP has no listing."""
        raise StorageError(
            "a folder cannot be listed over HTTP",
            where=location.label,
            hint="name the object itself, or use the storage's own scheme (s3://, gs://, az://)",
        )

    def _get(self, ask: Ask, deadline: float) -> Reply:
        # HEAD is never used: a signed URL is signed for GET only, and some servers answer HEAD from
        # elsewhere.
        headers = _asking(ask, answers.range_header(ask.want, ask.size(self.config.max_request)))
        location = ask.location
        with _closing(self._follow(location, headers, deadline), location) as response:
            if response.status == 206:
                return self._partial(ask, response)
            if response.status == 200:
                return self._full(ask, response)
            if response.status == 416:
                return self._unsatisfied(ask, response, deadline)
            raise self._failure(ask, response)

    def _get_many(
        self, ask: Ask, spans: list[Span], way: _Way, deadline: float
    ) -> list[Reply] | None:
        """The replies for ranges of the object of `ask`; None if another URL may answer."""
        location, at, known = ask.location, way.at, ask.known
        assert known is not None
        headers = _asking(ask, answers.ranges_header(spans))
        with _closing(self._send(way, location, headers, deadline), location) as response:
            status = response.status
            if status == 206:
                info = answers.object_info(response.headers, known.size, location, known)
                boundary = answers.check_parts(response.headers, spans)
                body = _body(response, answers.most_bytes(spans), exact=False)
                found = answers.read_parts(body, boundary, spans, known.size)
                pairs = zip(found, spans, strict=True)
                return [Reply(data, offset, info) for data, (offset, _) in pairs]
            if status == 412 or passes(status):
                raise self._failure(ask, response)
            # Not even a 200 is read: it would be the whole object.
            _drain(response)
            if status in _REDIRECTS or (at is not location and status not in _SETTLED):
                # A request for a single range finds the new target.
                self._moved.pop(location.href, None)
                return None
            raise NotFittingError(f"status {status}")

    def _partial(self, ask: Ask, response: urllib3.BaseHTTPResponse) -> Reply:
        headers, location = response.headers, ask.location
        answers.check_encoding(headers, location)
        start, size, total = answers.content_range(headers, location)
        info = answers.object_info(headers, total, location, ask.known)
        if ask.is_question:
            _drain(response)
            return Reply(b"", 0, info)
        offset, expected = ask.span(total, self.config.max_request)
        length = answers.content_length(headers)
        if (start, size) != (offset, expected) or length not in (None, size):
            found = f"{headers.get('Content-Range')}, {length} bytes"
            raise answers.wrong_range(found, f"{offset}+{expected}", location)
        return Reply(_body(response, size, exact=True), offset, info)

    def _full(self, ask: Ask, response: urllib3.BaseHTTPResponse) -> Reply:
        headers, location, want = response.headers, ask.location, ask.want
        answers.check_encoding(headers, location)
        size = answers.content_length(headers)
        if size is not None:
            info = answers.object_info(headers, size, location, ask.known)
            if ask.is_question:
                return Reply(b"", 0, info)
        limit = self._acceptable(want, size, location)
        body = _body(response, limit if size is None else size, exact=size is not None)
        if len(body) > limit:
            raise self._over(want, None, limit, location)
        info = answers.object_info(headers, len(body), location, ask.known)
        offset, wanted = span_of(want, len(body), location)
        return Reply(body[offset : offset + wanted], offset, info)

    def _acceptable(self, want: Wanted, size: int | None, location: Location) -> int:
        """How long the body of a 200 may be, which is the whole object instead of a range."""
        limit = self.config.whole_answer
        if isinstance(want, Whole):
            limit = want.limit
        elif size is not None and span_of(want, size, location)[1] == size:
            limit = max(limit, size)
        if size is not None and size > limit:
            raise self._over(want, size, limit, location)
        return limit

    def _over(self, want: Wanted, size: int | None, limit: int, location: Location) -> ComalError:
        if isinstance(want, Whole):
            return too_large(location, size if size is not None else limit + 1, limit)
        return answers.ignores_range(size, limit, location)

    def _unsatisfied(self, ask: Ask, response: urllib3.BaseHTTPResponse, deadline: float) -> Reply:
        total = answers.unsatisfied_total(response.headers)
        _drain(response)
        if ask.known is not None:
            # The range was inside the opened object: this is another one.
            raise changed(ask.location, ask.known, None)
        if total is None:
            raise answers.refusal(416, ask.location)
        info = answers.object_info(response.headers, total, ask.location, None)
        offset, size = span_of(ask.want, total, ask.location)
        if size == 0:
            return Reply(b"", offset, info)
        if ask.want == ByteRange(offset, size):
            raise answers.refusal(416, ask.location)
        # Some stores refuse ranges from the end: now the size is known.
        return self._get(Ask(ask.location, ByteRange(offset, size), None), deadline)

    def _failure(self, ask: Ask, response: urllib3.BaseHTTPResponse) -> Exception:
        status = response.status
        _drain(response)
        if status == 412 and ask.known is not None:
            return changed(ask.location, ask.known, None)
        if passes(status):
            after = parse_retry_after(response.headers.get("Retry-After"))
            return TransientError(f"status {status}", status=status, retry_after=after)
        return answers.refusal(status, ask.location)

    def _follow(
        self, location: Location, headers: dict[str, str], deadline: float
    ) -> urllib3.BaseHTTPResponse:
        """The response of the object's own URL, or of the target of its redirects.

        Hosts of large files redirect each request to a signed URL, and following each redirect
        would double the requests. So a target that has answered is used first for some minutes.
        """
        way = self._settled(location)
        if way.at is not location:
            response = self._send(way, location, headers, deadline)
            if response.status in _SETTLED:
                return response
            _dismiss(response, location)
            self._moved.pop(location.href, None)
        way = _Way(location, self.least)
        for _ in range(self.config.max_redirects + 1):
            at = way.at
            response = self._send(way, location, headers, deadline)
            if response.status not in _REDIRECTS:
                settled = response.status in _SETTLED and len(self._moved) < _MOST_MOVED
                if at is not location and settled:
                    self._moved[location.href] = replace(way, until=time.monotonic() + _MOVED_FOR)
                return response
            kind = kind_answered(at)
            target = response.headers.get("Location")
            _dismiss(response, location)
            way = self._onward(way, _redirected(at, target, location), location, kind)
        raise StorageError(
            "too many redirects",
            where=location.label,
            expected=f"at most {self.config.max_redirects}",
        )

    def _onward(self, way: _Way, at: Location, location: Location, kind: int) -> _Way:
        """Where a redirect leads: never to a less public address, nor back into this machine."""
        if at.origin == location.origin:
            return _Way(at, self.least)
        if self.config.linked(at) is not None:
            return _Way(at, ANY)
        return _Way(at, max(way.least, kind, self.least, PRIVATE))

    def _settled(self, location: Location) -> _Way:
        """The URL that answered last, maybe the target of a redirect."""
        way = self._moved.get(location.href)
        if way is not None and time.monotonic() < way.until:
            return way
        return _Way(location, self.least)

    def ask(
        self,
        location: Location,
        method: str,
        headers: dict[str, str],
        blocks: Iterable[bytes],
        deadline: float,
    ) -> Answer:
        """Make one request of any method, once; raises `TransientError` if it may be repeated.

        Its body is sent block by block. Redirects are not followed.
        """
        sent = self._send(_Way(location, self.least), location, headers, deadline, method, blocks)
        with _closing(sent, location) as response:
            body = _body(response, _MOST_TOLD, exact=False)
            if passes(response.status):
                after = parse_retry_after(response.headers.get("Retry-After"))
                reason = f"status {response.status}"
                raise TransientError(reason, status=response.status, retry_after=after)
            return Answer(response.status, response.headers, body[:_MOST_TOLD])

    def _send(
        self,
        way: _Way,
        location: Location,
        headers: dict[str, str],
        deadline: float,
        *request: Any,
    ) -> urllib3.BaseHTTPResponse:
        """The response of one server; only the named origin gets credentials."""
        if self.config.withheld:
            raise no_secrets(location.label)
        if way.at.origin == location.origin:
            headers = {**self.config.http_headers, **headers}
            if location.userinfo:
                token = base64.b64encode(unquote(location.userinfo).encode()).decode()
                headers["Authorization"] = f"Basic {token}"
        with _network_errors(way.at):
            return send(way.at, self.config, way.least, headers, deadline, *request)


def _asking(ask: Ask, ranges: str) -> dict[str, str]:
    """The headers that request ranges of one version."""
    headers = {"Accept-Encoding": "identity", "Range": ranges}
    if ask.known is not None and ask.known.etag is not None:
        headers["If-Match"] = ask.known.etag
    return headers


def _redirected(at: Location, target: str | None, origin: Location) -> Location:
    where = origin.label
    if not target:
        raise StorageError("the redirect does not say where to", where=where)
    try:
        url = urljoin(at.url, target)
    except ValueError as error:
        raise StorageError("the redirect does not lead to a URL", where=where) from error
    scheme = url.partition(":")[0].lower()
    if scheme not in HTTP_SCHEMES:
        raise StorageError("the redirect leads to another scheme", where=where, found=shown(scheme))
    if at.scheme == "https" and scheme == "http":
        raise StorageError(
            "the redirect leads from https to http",
            where=where,
            found=shown(url.partition("?")[0], 120),
        )
    try:
        followed = parse_href(url)
    except InvalidInputError as error:
        raise StorageError(
            "the redirect does not lead to a URL",
            where=where,
            found=shown(url.partition("?")[0], 120),
        ) from error
    # Keep a signed query, but not the user and password in a redirect.
    return Location(followed.scheme, followed.root, followed.path, followed.query)


def _body(response: urllib3.BaseHTTPResponse, size: int, *, exact: bool) -> bytes:
    """The body of `size` bytes, or up to one byte more than `size` when it is not `exact`."""
    parts: list[bytes] = []
    left = size if exact else size + 1
    while left > 0:
        # What is known to come is read into its place at once.
        data = response.read(left if exact else min(left, _BLOCK))
        if not data:
            break
        parts.append(data)
        left -= len(data)
    if exact and left:
        raise TransientError(f"{size - left} of {size} bytes", status=response.status, short=True)
    if not response.closed:
        # One more read tells the connection that the response is complete.
        response.read1(1)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def _closing(
    response: urllib3.BaseHTTPResponse, location: Location
) -> Iterator[urllib3.BaseHTTPResponse]:
    try:
        with _network_errors(location):
            yield response
    finally:
        # A response read to its end has released its connection; any other cannot be reused.
        response.close()
        response.release_conn()


def _dismiss(response: urllib3.BaseHTTPResponse, location: Location) -> None:
    """Discard a response."""
    with _closing(response, location):
        _drain(response)


def _drain(response: urllib3.BaseHTTPResponse) -> None:
    """Read the rest of a small response, so that its connection can be used again."""
    length = answers.content_length(response.headers)
    if length is not None and length <= _DRAIN:
        response.read(_DRAIN)


@contextmanager
def _network_errors(location: Location) -> Iterator[None]:
    try:
        yield
    except (ComalError, TransientError):
        raise
    except SSLError as error:
        raise StorageError(
            "cannot make a secure connection", where=location.label, found=shown(str(error), 200)
        ) from error
    except LocationValueError as error:
        raise StorageError("not a URL", where=location.label, found=shown(str(error))) from error
    except NewConnectionError as error:
        # Before the timeouts: urllib3 derives it from one. Its text begins with the object.
        reason = str(error).partition(": ")[2] or str(error)
        raise TransientError(f"no connection: {reason}") from error
    except PoolTimeoutError as error:
        raise TransientError("no answer in time") from error
    except ProtocolError as error:
        for cause in error.args:
            if isinstance(cause, ComalError):
                raise cause from None
        short = any(isinstance(cause, IncompleteRead) for cause in error.args)
        reason = "the answer ended early" if short else f"the connection broke: {error}"
        raise TransientError(reason, short=short) from error
    except (HTTPError, OSError) as error:
        raise TransientError(f"the connection broke: {error}") from error
