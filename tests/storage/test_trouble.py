"""Servers that misbehave: what a source does, by HTTP, by addresses of a store and by obstore."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import pytest

from comal import storage
from comal.errors import (
    AccessDeniedError,
    ComalError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
)
from comal.plan import ByteRange, Head, Tail, Wanted, Whole
from comal.storage import Source, StorageConfig
from tests.servers.http import HttpServer
from tests.storage.places import noise

DATA = noise(200_000)
WANTED: list[Wanted] = [Head(10), Tail(10), ByteRange(50, 10), Whole(300_000)]
HTTP, ADDRESSES, OBSTORE = "http", "addresses", "obstore"
PATIENT: dict[str, Any] = {"idle_timeout": 30.0, "total_timeout": 30.0}
"""For tests that count requests: what a slow machine answers too late is asked for again."""


@dataclass(frozen=True)
class Server:
    """A range server with one object, and a way to read it."""

    http: HttpServer
    way: str
    config: StorageConfig

    def open(self, origin: str = "", **changes: Any) -> Source:
        """A new source of the object."""
        origin, config = origin or self.http.origin, replace(self.config, **changes)
        if self.way == HTTP:
            return storage.open_source(f"{origin}/bucket/k", config=config)
        keys = {"access_key_id": "a", "secret_access_key": "b", "region": "r"}
        # With a setting of its client obstore reads by itself.
        options = keys | {"endpoint": origin, "allow_invalid_certificates": self.way == OBSTORE}
        return storage.open_source("s3://bucket/k", config=replace(config, s3=options))

    def put(self, data: bytes, **named: Any) -> None:
        """Another version of the object."""
        self.http.put("bucket/k", data, **named)


@pytest.fixture(params=[HTTP, ADDRESSES, OBSTORE])
def server(request: pytest.FixtureRequest, http_server: HttpServer, hasty: StorageConfig) -> Server:
    made = Server(http_server, request.param, hasty)
    made.put(DATA)
    return made


def right(want: Wanted) -> bytes:
    if isinstance(want, ByteRange):
        return DATA[want.offset : want.end]
    if isinstance(want, Tail):
        return DATA[-want.size :]
    return DATA[: want.size] if isinstance(want, Head) else DATA


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("status", {"code": 503, "headers": {"Retry-After": "0"}}),
        ("status", {"code": 429}),
        ("status", {"code": 408}),
        ("status", {"code": 500}),
        ("reset", {}),
        ("short-body", {}),
        ("short-body", {"keep": 0}),
        ("stall", {"seconds": 0.7}),
    ],
)
def test_what_passes(server: Server, kind: str, options: dict[str, Any]) -> None:
    patient = {} if kind == "stall" else PATIENT
    for want in WANTED[2:3] if server.way == OBSTORE or kind == "stall" else WANTED:
        server.http.reset()
        server.http.behave(kind, times=1, **options)
        assert server.open(**patient).fetch([want])[0].data == right(want)
        # The server logs a stalled request only when it answers it.
        assert server.way == OBSTORE or len(server.http.requests) == (1 if kind == "stall" else 2)


@pytest.mark.parametrize(
    ("kind", "options", "found"),
    [
        ("status", {"code": 503}, "status 503"),
        ("status", {"code": 429}, "status 429"),
        ("reset", {}, ""),
        ("short-body", {}, ""),
        ("stall", {"seconds": 60}, ""),
    ],
)
def test_what_stays(server: Server, kind: str, options: dict[str, Any], found: str) -> None:
    server.http.behave(kind, **options)
    with pytest.raises(StorageError) as caught:
        server.open(tries=2).fetch([Head(1000)])
    assert caught.value.fields["tries"] == 2
    assert found in str(caught.value)
    if server.way == HTTP:
        assert type(caught.value) is (ShortReadError if kind == "short-body" else StorageError)


@pytest.mark.parametrize(
    ("kind", "seconds"), [("stall", 60), ("trickle", 0.1), ("trickle-header", 0.1)]
)
def test_a_slow_server_meets_the_deadline(
    http_server: HttpServer, hasty: StorageConfig, kind: str, seconds: float
) -> None:
    http_server.behave(kind, seconds=seconds)
    begin = time.monotonic()
    with pytest.raises(StorageError):
        storage.open_source(http_server.put("a", DATA), config=hasty).fetch([Head(1000)])
    assert time.monotonic() - begin < 10


def test_nobody_listens(server: Server) -> None:
    with pytest.raises(StorageError, match="4 tries") as caught:
        server.open("http://127.0.0.1:9").fetch([Head(1)])
    assert server.way != HTTP or "refused" in str(caught.value.found)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (404, ObjectNotFoundError),
        (410, ObjectNotFoundError),
        (401, AccessDeniedError),
        (403, AccessDeniedError),
        (400, StorageError),
        (304, StorageError),
        (204, StorageError),
    ],
)
def test_refusals_are_not_tried_again(server: Server, code: int, error: type[ComalError]) -> None:
    if server.way == OBSTORE and code in (410, 304, 204):
        error = ComalError  # it has its own ways with what no store answers
    server.http.behave("status", code=code)
    with pytest.raises(error):
        server.open(**PATIENT).fetch([Head(1)])
    assert code == 204 or len(server.http.requests) == 1


@pytest.mark.parametrize("want", WANTED)
def test_the_wrong_range_is_not_believed(server: Server, want: Wanted) -> None:
    server.http.behave("wrong-range", shift=-1 if isinstance(want, Tail) else 1)
    with pytest.raises(StorageError):
        server.open(tries=1).fetch([want])


@pytest.mark.parametrize("want", WANTED[:3])
@pytest.mark.parametrize("length", [False, True])
def test_ranges_that_are_ignored(server: Server, want: Wanted, length: bool) -> None:
    server.http.behave("ignore-range")
    if not length:
        server.http.behave("no-length")
    found = "Content-Length" if server.way == OBSTORE and not length else "ignores byte ranges"
    with pytest.raises(StorageError, match=found):
        server.open(whole_answer=len(DATA) - 1).fetch([want])
    if server.way == OBSTORE:
        return
    source = server.open()  # a small object is read whole then
    for _ in range(2):
        assert source.fetch([want])[0].data == right(want)
    assert source.fetch([WANTED[3]])[0].data == DATA
    assert source.stat().size == len(DATA)


@pytest.mark.parametrize("etag", ['"1"', ""])
def test_a_change_that_no_condition_tells(server: Server, etag: str) -> None:
    server.put(DATA, etag=etag)
    source = server.open()
    source.fetch([Head(1)])
    server.put(DATA[:100], etag=etag)
    for want in (ByteRange(500, 7), ByteRange(5, 7)):
        with pytest.raises(ObjectChangedError):
            source.fetch([want])
