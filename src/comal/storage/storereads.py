"""What obstore reads by itself: one request, checked as over plain HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import obstore

from comal.errors import ShortReadError
from comal.plan import ByteRange, Head, Tail, Wanted
from comal.storage.http_answer import answer_span, check_version, is_question
from comal.storage.remote import Ask, Reply
from comal.storage.source import ObjectInfo
from comal.storage.stores import OtherWayError, store_errors

if TYPE_CHECKING:
    from obstore.store import ObjectStore


@dataclass(frozen=True, slots=True)
class _Answer:
    meta: Mapping[str, Any]
    start: int = 0
    data: bytes = b""


def read(store: ObjectStore, ask: Ask, most: int) -> Reply:
    """Make one request; a `Whole` may be answered by its first `most` bytes.

    Raises
    ------
    TransientError
        For trouble that may pass; trying again is the caller's.
    """
    if is_question(ask.want):
        return Reply(b"", 0, _checked_info(ask, _head(store, ask)))
    try:
        with store_errors(ask):
            answer = _ranged(store, ask, _range(ask.want, most))
    except OtherWayError:
        # An empty object has no ranges, and Azure does not count from the end. Where ranges are
        # ignored altogether, the second attempt says so.
        return _read_by_size(store, ask, most)
    return _reply(ask, answer, most)


def _read_by_size(store: ObjectStore, ask: Ask, most: int) -> Reply:
    info = _checked_info(ask, _head(store, ask))
    offset, size = answer_span(ask.want, info.size, most, ask.location)
    if size == 0:
        return Reply(b"", offset, info)
    exact = Ask(ask.location, ByteRange(offset, size), info)
    with store_errors(exact, last=True):
        answer = _ranged(store, exact, (offset, offset + size))
    return _reply(exact, answer, most)


def _reply(ask: Ask, answer: _Answer, most: int) -> Reply:
    info = _checked_info(ask, answer)
    offset, size = answer_span(ask.want, info.size, most, ask.location)
    if (answer.start, len(answer.data)) != (offset, size):
        raise ShortReadError(
            "the store answers another range than the one asked for",
            where=ask.location.label,
            found=f"{answer.start}+{len(answer.data)}",
            expected=f"{offset}+{size}",
        )
    return Reply(answer.data, offset, info)


def _range(want: Wanted, most: int) -> tuple[int, int] | dict[str, int]:
    if isinstance(want, ByteRange):
        return want.offset, want.end
    if isinstance(want, Tail):
        return {"suffix": want.size}
    size = want.size if isinstance(want, Head) else min(want.limit, most)
    return 0, max(1, size)


def _head(store: ObjectStore, ask: Ask) -> _Answer:
    with store_errors(ask, last=True):
        return _Answer(cast("Mapping[str, Any]", obstore.head(store, ask.location.path)))


def _ranged(store: ObjectStore, ask: Ask, span: tuple[int, int] | dict[str, int]) -> _Answer:
    options: dict[str, Any] = {"range": span}
    if ask.known is not None and ask.known.etag is not None:
        options["if_match"] = ask.known.etag
    result = obstore.get(store, ask.location.path, options=cast("Any", options))
    data = bytes(result.bytes())
    return _Answer(cast("Mapping[str, Any]", result.meta), result.range[0], data)


def _checked_info(ask: Ask, answer: _Answer) -> ObjectInfo:
    meta = answer.meta
    etag = meta["e_tag"]
    modified = int(meta["last_modified"].timestamp()) * 10**9
    strong = etag if etag and not etag.startswith("W/") else None
    info = ObjectInfo(ask.location.href, meta["size"], strong or meta["version"], modified)
    check_version(ask.known, info, ask.location)
    return info
