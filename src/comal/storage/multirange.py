"""Many ranges of one object in one HTTP request: which servers answer that, and how.

Servers need not know it (RFC 9110, 14.2). nginx, Apache and Caddy answer each range; others answer
with the whole object, the first range only, or an error. So the first such request to an origin is
a trial, and what it shows is remembered as long as the process lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from comal.errors import StorageError
from comal.plan import ByteRange
from comal.storage import httpwire as answers
from comal.storage.config import StorageConfig
from comal.storage.httpwire import (
    NotFittingError,
    boundary_of,
    most_bytes,
    read_parts,
)
from comal.storage.location import Location
from comal.storage.remote import Ask, Reply
from comal.storage.retry import Tries, retrying

if TYPE_CHECKING:
    import urllib3

_MOST_ORIGINS = 4096
_TRIAL_TRIES = 2
_EPILOGUE = 4096

Origin = tuple[str, str]
Exchange = Callable[[float], list[Reply]]

# True or False once it is shown; a thread that tries it holds the place with an object of its own.
# No lock, which a fork could leave held: `setdefault` is one step.
_shown: dict[Origin, object] = {}


class ElsewhereError(Exception):
    """The object is to be asked for at another address. It never leaves `comal.storage`."""


def forget() -> None:
    """Forget what servers have shown."""
    _shown.clear()


def takes_many(at: Location) -> bool | None:
    """Whether a server answers many ranges at once; None when a trial may tell.

    A query may be a signature. Signed addresses lead to object stores, which know single ranges
    only: there nothing is tried, but what the origin has shown without a signature counts.
    """
    shown = _shown.get((at.scheme, at.root))
    if shown is None and not at.query and len(_shown) < _MOST_ORIGINS:
        return None
    return shown is True


def asked_together(
    asks: Sequence[Ask],
    at: Location,
    config: StorageConfig,
    exchange: Exchange,
) -> list[Reply] | None:
    """The answers to ranges of one object in one request; None where each is asked by itself.

    Trouble that passes is tried again as for any request. What else goes wrong is not judged here:
    single ranges, which every server knows, will succeed or say what is the matter.

    Parameters
    ----------
    asks
        Ranges of one known object, ascending and without overlap.
    at
        The address that will answer.
    config
        As for a single request.
    exchange
        Makes the request once, until a deadline.

    Raises
    ------
    ObjectChangedError
        The object is no longer the one that is known.
    StorageError
        A server that has answered such requests before fails for good.
    """
    origin = at.scheme, at.root
    mine = object()
    may = takes_many(at)
    trial = may is None and _shown.setdefault(origin, mine) is mine
    if not (may or trial):
        return None
    if trial:
        # A server may also fail, hang up or fall silent at many ranges.
        config = replace(config, tries=min(config.tries, _TRIAL_TRIES))
    tries = Tries(config, asks[0].location, sum(_span(ask)[1] for ask in asks))
    try:
        replies = retrying(tries, exchange)
        _shown[origin] = True
    except ElsewhereError:
        return None
    except NotFittingError:
        _shown[origin] = False
        return None
    except StorageError:
        if not trial:
            raise
        _shown[origin] = False
        return None
    finally:
        # Whatever else ended a trial has shown nothing.
        if _shown.get(origin) is mine:
            del _shown[origin]
    return replies


def range_header(asks: Sequence[Ask]) -> str:
    """The ``Range`` header for all ranges (RFC 9110, 14.1.2)."""
    spans = map(_span, asks)
    return "bytes=" + ",".join(f"{offset}-{offset + size - 1}" for offset, size in spans)


def replies_of(asks: Sequence[Ask], response: urllib3.BaseHTTPResponse) -> list[Reply]:
    """The answers in a 206, each checked against what was asked and the object that is known.

    Raises
    ------
    NotFittingError
        It cannot be what was asked.
    ObjectChangedError
        It is of another version of the object.
    """
    known, location = asks[0].known, asks[0].location
    assert known is not None
    headers = response.headers
    info = answers.object_info(headers, known.size, location)
    answers.check_version(known, info, location)
    spans = [_span(ask) for ask in asks]
    length = answers.content_length(headers)
    if length is not None and length > most_bytes(spans):
        raise NotFittingError("an answer that is too long")
    if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise NotFittingError("an encoded answer")
    if "Content-Range" in headers:
        # What has parts has no range of its own (RFC 9110, 15.3.7.2).
        raise NotFittingError("one range")
    boundary = boundary_of(headers.get("Content-Type", ""))
    found = read_parts(response.read1, boundary, spans, known.size)
    # What is read to its end gives its connection back.
    left = _EPILOGUE
    while left > 0 and (data := response.read1(left)):
        left -= len(data)
    return [Reply(data, offset, info) for data, (offset, _) in zip(found, spans, strict=True)]


def _span(ask: Ask) -> tuple[int, int]:
    assert isinstance(ask.want, ByteRange)
    return ask.want.offset, ask.want.size
