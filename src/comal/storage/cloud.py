"""Object stores by obstore: S3, Google Cloud Storage, Azure, and objects in memory.

obstore has no Retry-After and cannot be used in a forked child of a process that has used it over
the network (it would wait for ever), so that tries are made here and such a child gets an error.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import obstore
from obstore.exceptions import (
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, MemoryStore, ObjectStore, S3Store

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    shown,
)
from comal.plan import ByteRange, Head, Tail, Wanted, Whole
from comal.storage.config import StorageConfig
from comal.storage.http_answer import answer_span, check_version, ignores_range, is_question
from comal.storage.location import Location
from comal.storage.pins import changed
from comal.storage.process import PerProcess
from comal.storage.remote import Ask, RemoteSource, Reply
from comal.storage.retry import TransientError, Tries, passes, retrying, retrying_async
from comal.storage.source import ObjectInfo

_STATUS = re.compile(r"status(?: code)?: (\d{3})")
_BROKEN = ("error sending request", "HTTP error", "error decoding", "timed out", "connection")
# Where the store looks for credentials when none are named.
_METADATA_SERVICE = "169.254.169.254"

_stores: PerProcess[tuple[str, ...], ObjectStore] = PerProcess()
_memory: dict[str, MemoryStore] = {}
_networked: list[int] = []


def memory_store(name: str) -> MemoryStore:
    """The store behind ``memory://name/``, to be filled with ``obstore.put``."""
    return _memory.setdefault(name, MemoryStore())


def cloud_source(location: Location, config: StorageConfig) -> RemoteSource:
    """The source of a place in an object store."""
    return RemoteSource(location, config, None, CloudTransport(config))


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of obstore: what the object is, or bytes of it."""

    options: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class _Answer:
    meta: Mapping[str, Any]
    start: int = 0
    data: bytes = b""


class CloudTransport:
    """Makes one request at a time to the store of a location."""

    def __init__(self, config: StorageConfig) -> None:
        self.config = config

    def get(self, ask: Ask, stop: threading.Event | None = None) -> Reply:
        """Make one request; a `Whole` may be answered by its first `max_request` bytes."""
        store, path = self._object(ask.location)
        tries = Tries(self.config, ask.location, self._size(ask.want), stop=stop)
        return retrying(tries, lambda _: self._get(store, path, ask))

    async def get_async(self, ask: Ask) -> Reply:
        """As `get`, without blocking the event loop."""
        store, path = self._object(ask.location)
        tries = Tries(self.config, ask.location, self._size(ask.want))
        return await retrying_async(
            tries, lambda _: self._get_async(store, path, ask), asyncio.sleep
        )

    def stat(self, ask: Ask) -> ObjectInfo:
        """What an object is, or that objects have this prefix."""
        location = ask.location
        if location.path:
            try:
                return self.get(ask).info
            except ObjectNotFoundError:
                if not self.names(location):
                    raise
        else:
            self.names(location)
        return ObjectInfo(location.href, 0, is_dir=True)

    def names(self, location: Location) -> list[str]:
        """Names directly below a prefix; prefixes end in ``/``."""
        store = _store(location, self.config)
        tries = Tries(self.config, location)
        listed = retrying(tries, lambda _: _list(store, location))
        skipped = len(location.path) + 1 if location.path else 0
        names = [prefix[skipped:] + "/" for prefix in listed["common_prefixes"]]
        names += [entry["path"][skipped:] for entry in listed["objects"]]
        return sorted(name for name in names if name not in ("", "/"))

    def _object(self, location: Location) -> tuple[ObjectStore, str]:
        if not location.path:
            raise NotThisFormatError("not an object", where=location.label, found="a whole bucket")
        return _store(location, self.config), location.path

    def _size(self, want: Wanted) -> int:
        if isinstance(want, Whole):
            return min(want.limit, self.config.max_request)
        return want.size

    def _get(self, store: ObjectStore, path: str, ask: Ask) -> Reply:
        steps = self._steps(ask)
        call = next(steps)
        while True:
            try:
                answer = _call(store, path, call)
            except (BaseError, OSError, ValueError) as error:
                call = steps.throw(error)
            else:
                try:
                    call = steps.send(answer)
                except StopIteration as stop:
                    return cast("Reply", stop.value)

    async def _get_async(self, store: ObjectStore, path: str, ask: Ask) -> Reply:
        steps = self._steps(ask)
        call = next(steps)
        while True:
            try:
                answer = await _call_async(store, path, call)
            except (BaseError, OSError, ValueError) as error:
                call = steps.throw(error)
            else:
                try:
                    call = steps.send(answer)
                except StopIteration as stop:
                    return cast("Reply", stop.value)

    def _steps(self, ask: Ask) -> Generator[_Call, _Answer, Reply]:
        """The calls that an answer takes: one, unless the store cannot do what is asked."""
        if is_question(ask.want):
            with _store_errors(ask):
                answer = yield _Call(_options(ask, None))
            return Reply(b"", 0, _checked_info(ask, answer))
        try:
            with _store_errors(ask):
                answer = yield _Call(_options(ask, _range(ask.want, self.config.max_request)))
        except _OtherWayError:
            # An empty object has no ranges, and Azure does not count from the end. Where ranges
            # are ignored altogether, the second attempt says so.
            return (yield from self._by_size(ask))
        return self._reply(ask, answer)

    def _by_size(self, ask: Ask) -> Generator[_Call, _Answer, Reply]:
        with _store_errors(ask):
            answer = yield _Call(None)
        info = _checked_info(ask, answer)
        offset, size = answer_span(ask.want, info.size, self.config.max_request, ask.location)
        if size == 0:
            return Reply(b"", offset, info)
        exact = Ask(ask.location, ByteRange(offset, size), info)
        with _store_errors(exact, last=True):
            answer = yield _Call(_options(exact, (offset, offset + size)))
        return self._reply(exact, answer)

    def _reply(self, ask: Ask, answer: _Answer) -> Reply:
        info = _checked_info(ask, answer)
        most = self.config.max_request
        offset, size = answer_span(ask.want, info.size, most, ask.location)
        if (answer.start, len(answer.data)) != (offset, size):
            raise ShortReadError(
                "the store answers another range than the one asked for",
                where=ask.location.label,
                found=f"{answer.start}+{len(answer.data)}",
                expected=f"{offset}+{size}",
            )
        return Reply(answer.data, offset, info)


class _OtherWayError(Exception):
    """The store cannot answer this kind of range."""


def _range(want: Wanted, most: int) -> tuple[int, int] | dict[str, int]:
    if isinstance(want, ByteRange):
        return want.offset, want.end
    if isinstance(want, Tail):
        return {"suffix": want.size}
    size = want.size if isinstance(want, Head) else min(want.limit, most)
    return 0, max(1, size)


def _options(ask: Ask, span: tuple[int, int] | dict[str, int] | None) -> dict[str, Any] | None:
    if span is None:
        return None
    options: dict[str, Any] = {"range": span}
    if ask.known is not None and ask.known.etag is not None:
        options["if_match"] = ask.known.etag
    return options


def _call(store: ObjectStore, path: str, call: _Call) -> _Answer:
    if call.options is None:
        return _Answer(cast("Mapping[str, Any]", obstore.head(store, path)))
    result = obstore.get(store, path, options=cast("Any", call.options))
    data = bytes(result.bytes())
    return _Answer(cast("Mapping[str, Any]", result.meta), result.range[0], data)


async def _call_async(store: ObjectStore, path: str, call: _Call) -> _Answer:
    if call.options is None:
        return _Answer(cast("Mapping[str, Any]", await obstore.head_async(store, path)))
    result = await obstore.get_async(store, path, options=cast("Any", call.options))
    data = bytes(await result.bytes_async())
    return _Answer(cast("Mapping[str, Any]", result.meta), result.range[0], data)


def _list(store: ObjectStore, location: Location) -> Any:
    with _store_errors(Ask(location, Head(0), None), last=True):
        return obstore.list_with_delimiter(store, location.path or None)


def _checked_info(ask: Ask, answer: _Answer) -> ObjectInfo:
    meta = answer.meta
    etag = meta["e_tag"]
    modified = int(meta["last_modified"].timestamp()) * 10**9
    strong = etag if etag and not etag.startswith("W/") else None
    info = ObjectInfo(ask.location.href, meta["size"], strong or meta["version"], modified)
    check_version(ask.known, info, ask.location)
    return info


@contextmanager
def _store_errors(ask: Ask, *, last: bool = False) -> Iterator[None]:
    try:
        yield
    except ComalError:
        raise
    except (BaseError, OSError, ValueError) as error:
        raise _translation(error, ask, last=last) from error


def _translation(error: Exception, ask: Ask, *, last: bool) -> Exception:
    location = ask.location
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError("no such object", where=location.label)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return AccessDeniedError("access denied", where=location.label)
    if isinstance(error, PreconditionError) and ask.known is not None:
        return changed(location, ask.known, None)
    if isinstance(error, NotSupportedError) or "non-partial response" in str(error):
        return ignores_range(None, 0, location) if last else _OtherWayError()
    if isinstance(error, ValueError) and not isinstance(error, BaseError):
        return InvalidInputError("not a key", where=location.label, found=_first_line(error))
    return _generic(error, ask, last=last)


def _generic(error: Exception, ask: Ask, *, last: bool) -> Exception:
    text = _first_line(error)
    match = _STATUS.search(text)
    status = int(match[1]) if match else None
    if status == 416 or "Invalid range" in text:
        if ask.known is not None:
            # The range was inside the object that was opened: this is another one.
            return changed(ask.location, ask.known, None)
        if not last:
            return _OtherWayError()
    if status is not None and passes(status):
        return TransientError(f"status {status}", status=status)
    if status is None and any(sign in text for sign in _BROKEN):
        return TransientError(text)
    hint = None
    if _METADATA_SERVICE in text or "credential" in text.lower():
        hint = "name credentials, or read a public bucket unsigned: AWS_NO_SIGN_REQUEST=YES"
    return StorageError(
        "the store failed", where=ask.location.label, found=text, hint=hint, status=status
    )


def _first_line(error: Exception) -> str:
    # obstore appends its own innards, which may hold signed URLs.
    return shown(str(error).partition("\n")[0], 200)[1:-1]


def _store(location: Location, config: StorageConfig) -> ObjectStore:
    if location.scheme == "memory":
        return memory_store(location.root)
    _refuse_forked()
    options = _store_options(location.scheme, config)
    named = (location.scheme, location.root, repr(sorted(options.items())), repr(config))
    return _stores.get(named, lambda: _open_store(location, options, config))


def _refuse_forked() -> None:
    if not _networked:
        _networked.append(os.getpid())
    if _networked[0] != os.getpid():
        raise StorageError(
            "an object store cannot be read in a forked process whose parent has used one",
            hint="start the process with the 'spawn' or 'forkserver' method",
        )


def _store_options(scheme: str, config: StorageConfig) -> dict[str, Any]:
    options = dict({"s3": config.s3, "gs": config.gcs, "az": config.azure}[scheme])
    unsigned = os.environ.get("AWS_NO_SIGN_REQUEST", "").upper() in ("YES", "TRUE", "1", "ON")
    if scheme == "s3" and unsigned:
        # The name that GDAL and its users have for what obstore calls skip_signature.
        options.setdefault("skip_signature", True)
    return options


def _open_store(location: Location, options: dict[str, Any], config: StorageConfig) -> ObjectStore:
    container, _, account = location.root.partition("@")
    endpoint = str(options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", ""))
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=config.connect_timeout),
        "read_timeout": timedelta(seconds=config.idle_timeout),
        "timeout": timedelta(seconds=config.deadline(config.max_request)),
        "allow_http": endpoint.startswith("http://") or bool(options.pop("allow_http", False)),
    }
    named: dict[str, Any] = {"client_options": client, "retry_config": {"max_retries": 0}}
    if config.credential_provider is not None:
        named["credential_provider"] = config.credential_provider
    if account:
        options.setdefault("account_name", account.partition(".")[0])
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[location.scheme]
    try:
        return cast("ObjectStore", kind(container, config=options, **named))
    except (BaseError, ValueError, TypeError) as error:
        raise InvalidInputError(
            "the store cannot be configured", where=location.label, found=_first_line(error)
        ) from error
