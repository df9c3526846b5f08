"""HTTP: what goes over the wire, and servers that misbehave."""

from __future__ import annotations

import errno
import gc
import pickle
import shutil
import socket
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3

from comal import storage
from comal.errors import (
    LimitExceededError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
)
from comal.plan import ByteRange, Head, Tail, Whole
from comal.storage import StorageConfig
from tests.servers.http import HttpServer
from tests.storage.places import noise

DATA = noise(200_000)
LARGE = noise(9 << 20)
Version = tuple[bytes, str | None, float | None]


def test_construction_asks_nothing(http_server: HttpServer) -> None:
    source = storage.open_source(http_server.put("a", DATA))
    source.vsi()
    source.file()
    source.child("x").sibling("y")
    assert http_server.requests == []


def test_one_request_each_way(http_server: HttpServer) -> None:
    source = storage.open_source(http_server.put("a", DATA))
    source.fetch([Tail(100)])
    source.fetch([ByteRange(5, 10)])
    source.fetch([Whole(300_000)])
    seen = http_server.requests
    assert [request.range for request in seen] == ["bytes=-100", "bytes=5-14", "bytes=0-199999"]
    assert {request.headers["Accept-Encoding"] for request in seen} == {"identity"}
    assert "If-Match" not in seen[0].headers
    assert seen[1].headers["If-Match"].startswith('"')
    assert {request.method for request in seen} == {"GET"}


def test_a_large_object_comes_in_parts(http_server: HttpServer) -> None:
    url = http_server.put("a", LARGE)
    config = StorageConfig(max_request=1 << 20)
    for _ in range(2):
        source = storage.open_source(url, config=config)
        assert source.fetch([Whole(10 << 20)])[0].data == LARGE
        assert source.fetch([Whole(10 << 20)])[0].data == LARGE
    assert max(len(request.headers["Range"]) for request in http_server.requests) < 30
    assert len(http_server.requests) == 2 * (1 + 8 + 9)


def test_connections_are_used_again(http_server: HttpServer) -> None:
    source = storage.open_source(http_server.put("a", DATA))
    ports: set[int] = set()
    handle = http_server._server.get_request

    def counted() -> object:
        sock, address = handle()
        ports.add(address[1])
        return sock, address

    http_server._server.get_request = counted  # type: ignore[method-assign, assignment]
    for offset in range(20):
        source.fetch([ByteRange(offset, 10)])
    source.stat()
    with pytest.raises(ObjectNotFoundError):
        source.sibling("gone").stat()
    source.fetch([Tail(5)])
    assert len(ports) == 1


def test_a_server_that_hangs_up_at_once(
    http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = socket.socket.getpeername
    gone = [True]

    def getpeername(self: socket.socket) -> Any:
        if gone:
            gone.pop()
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return asked(self)

    monkeypatch.setattr(socket.socket, "getpeername", getpeername)
    source = storage.open_source(http_server.put("a", DATA))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        assert source.fetch([ByteRange(0, 10)])[0].data == DATA[:10]
        gc.collect()
    assert not gone
    assert not told


def test_no_more_in_flight_than_configured(http_server: HttpServer) -> None:
    config = StorageConfig(concurrency=5, coalesce_gap=0)
    source = storage.open_source(http_server.put("a", DATA), config=config)
    now, most, guard = [0], [0], threading.Lock()

    def enter() -> None:
        with guard:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.005)
        with guard:
            now[0] -= 1

    http_server.behave("call", function=enter)
    source.fetch([ByteRange(index * 1000, 10) for index in range(60)])
    assert len(http_server.requests) == 60
    assert 2 <= most[0] <= 5


def test_a_whole_large_object_without_ranges(http_server: HttpServer) -> None:
    http_server.behave("ignore-range")
    source = storage.open_source(http_server.put("a", LARGE))
    assert source.fetch([Whole(len(LARGE))])[0].data == LARGE
    with pytest.raises(LimitExceededError):
        storage.open_source(http_server.url_for("a")).fetch([Whole(len(LARGE) - 1)])
    http_server.behave("no-length")
    with pytest.raises(LimitExceededError):
        storage.open_source(http_server.url_for("a")).fetch([Whole(len(LARGE) - 1)])


@pytest.mark.parametrize(
    "value",
    ["", "bytes 0-9/*", "items 0-9/200000", "bytes 9-0/200000", "bytes 0-9/5", "bytes 0-8/200000"],
)
def test_content_range_must_make_sense(http_server: HttpServer, value: str) -> None:
    options: dict[str, Any] = {"Content-Range": value}
    http_server.behave("content-range", **options)
    with pytest.raises(StorageError):
        storage.open_source(http_server.put("a", DATA)).fetch([Head(10)])


@pytest.mark.parametrize("ignored", [False, True])
def test_an_encoded_body_is_refused(http_server: HttpServer, ignored: bool) -> None:
    http_server.behave("gzip")
    if ignored:
        http_server.behave("ignore-range")
    with pytest.raises(StorageError, match="encoded"):
        storage.open_source(http_server.put("a", DATA)).fetch([Head(10)])


def test_a_changed_etag_without_if_match(http_server: HttpServer) -> None:
    """A server that does not know If-Match tells by its answer."""
    source = storage.open_source(http_server.put("a", DATA))
    source.fetch([Head(10)])
    tag = source.known().etag  # type: ignore[union-attr]  # just fetched
    http_server.put("a", DATA[::-1], etag=tag)
    http_server.behave("content-range", ETag='"other"')
    with pytest.raises(ObjectChangedError):
        source.fetch([ByteRange(5, 5)])


def test_a_change_between_parallel_first_answers(http_server: HttpServer) -> None:
    config = StorageConfig(coalesce_gap=0, concurrency=1)
    source = storage.open_source(http_server.put("a", DATA), config=config)
    http_server.behave("call", skip=3, times=1, function=lambda: http_server.put("a", DATA[::-1]))
    with pytest.raises(ObjectChangedError):
        source.fetch([ByteRange(index * 1000, 10) for index in range(10)])


@pytest.mark.parametrize(
    ("first", "same", "other"),
    [
        # A weak tag says nothing, the size always counts.
        ((DATA, 'W/"1"', 1e9), (DATA, 'W/"2"', 1e9), (DATA + b"!", 'W/"2"', 1e9)),
        # Without tags the time does, to the second, and without any validator the size alone.
        ((DATA, "", 1e9), (DATA, "", 1e9 + 0.9), (DATA, "", 1e9 + 3600)),
        ((DATA, None, None), (DATA[::-1], None, None), (DATA[:-1], None, None)),
    ],
)
def test_what_tells_versions_apart(
    http_server: HttpServer, first: Version, same: Version, other: Version
) -> None:
    def put(version: Version) -> str:
        return http_server.put("a", version[0], etag=version[1], modified=version[2])

    if first[1] is None:
        http_server.behave("no-validators")
    source = storage.open_source(put(first))
    source.fetch([Head(10)])
    put(same)
    assert source.fetch([ByteRange(3, 3)])[0].data == same[0][3:6]
    assert not any("If-Match" in request.headers for request in http_server.requests)
    put(other)
    with pytest.raises(ObjectChangedError):
        source.fetch([ByteRange(3, 3)])


def test_suffixes_refused_by_the_server(http_server: HttpServer) -> None:
    http_server.behave(
        "status", times=1, code=416, headers={"Content-Range": f"bytes */{len(DATA)}"}
    )
    source = storage.open_source(http_server.put("a", DATA))
    assert source.fetch([Tail(10)])[0].data == DATA[-10:]
    assert [request.range for request in http_server.requests] == [
        "bytes=-10",
        "bytes=199990-199999",
    ]


def test_a_server_that_answers_416_to_everything_is_asked_twice(http_server: HttpServer) -> None:
    http_server.behave("status", code=416, headers={"Content-Range": f"bytes */{len(DATA)}"})
    source = storage.open_source(http_server.put("a", DATA))
    for want in (Tail(10), ByteRange(5, 5)):
        before = len(http_server.requests)
        with pytest.raises(StorageError):
            source.fetch([want])
        assert len(http_server.requests) - before <= 2


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("relative", [False, True])
def test_redirects_are_followed(http_server: HttpServer, code: int, relative: bool) -> None:
    url = http_server.put("to", DATA)
    http_server.behave("redirect", path="from", code=code, to="/to?x=1" if relative else url)
    source = storage.open_source(http_server.url_for("from"))
    assert source.fetch([Tail(10)])[0].data == DATA[-10:]
    assert source.href.endswith("/from")


def test_a_redirect_is_remembered(http_server: HttpServer) -> None:
    http_server.behave("redirect", path="from", to=http_server.put("to", DATA))
    source = storage.open_source(http_server.url_for("from"))
    for offset in range(5):
        assert source.fetch([ByteRange(offset, 10)])[0].data == DATA[offset : offset + 10]
    assert [request.path for request in http_server.requests] == ["from"] + ["to"] * 5
    # The address expires: the origin knows another one.
    http_server.well()
    http_server.behave("status", path="to", code=403)
    tag = source.known().etag  # type: ignore[union-attr]  # just fetched
    http_server.behave("redirect", path="from", to=http_server.put("next", DATA, etag=tag))
    assert source.fetch([ByteRange(7, 7)])[0].data == DATA[7:14]
    assert [request.path for request in http_server.requests][-3:] == ["to", "from", "next"]
    copy = pickle.loads(pickle.dumps(source))
    assert copy.fetch([Head(1)])[0].data == DATA[:1]
    assert [request.path for request in http_server.requests][-2:] == ["from", "next"]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("/from", "too many redirects"),
        ("file:///etc/passwd", "another scheme"),
        ("ftp://127.0.0.1/x", "another scheme"),
        ("gopher:x", "another scheme"),
        ("", "where to"),
        ("http://[x/", "not lead to a URL"),
        ("http://a b/", "not lead to a URL"),
    ],
)
def test_redirects_that_are_not_followed(http_server: HttpServer, target: str, text: str) -> None:
    http_server.behave("redirect", path="from", to=target)
    with pytest.raises(StorageError, match=text):
        storage.open_source(http_server.url_for("from")).fetch([Head(1)])
    assert len(http_server.requests) == (6 if target == "/from" else 1)


def test_user_and_password_are_sent_as_they_are_meant(http_server: HttpServer) -> None:
    url = http_server.put("a", DATA).replace("//", "//me:pa%20ss@")
    assert storage.open_source(url).fetch([Head(4)])[0].data == DATA[:4]
    assert http_server.requests[0].headers["Authorization"] == "Basic bWU6cGEgc3M="


def test_a_query_goes_with_the_object(http_server: HttpServer) -> None:
    http_server.put("a/b", DATA)
    source = storage.open_source(http_server.url_for("a") + "?sig=1")
    assert source.child("b").href.endswith("/a/b")
    assert source.fetch([Head(3, "b")])[0].data == DATA[:3]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?sig=1",
        "?X-Amz-Credential=AK%2F20260101%2Fs3&X-Amz-Signature=0a~-._",
        "?a=b?c=d/e:f@g!$'()*+,;",
        "?low=%2f%c3",
        "?space=a b",
        "?quoted=%zz",
        "?word=\u00e9\u4e2d",
        "?bracket=[1]|{2}^",
    ],
)
def test_a_query_is_sent_as_urllib3_sends_it(http_server: HttpServer, query: str) -> None:
    url = http_server.put("a b", b"x") + query
    assert storage.open_source(url).fetch([Head(1)])[0].data == b"x"
    urllib3.PoolManager().request("GET", url, headers={"Range": "bytes=0-0"})
    ours, theirs = http_server.requests
    assert ours.target == theirs.target


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """What a server needs, and the certificate that its clients must trust."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def test_after_an_error_the_others_stop(http_server: HttpServer, hasty: StorageConfig) -> None:
    http_server.put("a", DATA)
    http_server.behave("status", path="slow", code=503)
    source = storage.open_source(
        http_server.url_for(), config=replace(hasty, backoff_first=5.0, backoff_limit=5.0)
    )
    begin = time.monotonic()
    with pytest.raises(ObjectNotFoundError):
        source.fetch([Head(1, "gone"), *[Head(1, "slow")] * 3])
    assert time.monotonic() - begin < 3


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpServer]:
    """An HTTPS server whose certificate this process trusts."""
    context, cert = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    server = HttpServer(context)
    yield server
    server.close()


def test_https(secure: HttpServer, http_server: HttpServer) -> None:
    # Connections keep the certificates they were made with: a configuration of its own.
    config = StorageConfig(concurrency=7, linked_origins=[secure.origin])
    source = storage.open_source(secure.put("a", DATA), config=config)
    assert source.fetch([Tail(10)])[0].data == DATA[-10:]
    assert source.fetch([ByteRange(5, 10)])[0].data == DATA[5:15]
    secure.behave("redirect", path="from", to=http_server.put("a", DATA))
    with pytest.raises(StorageError, match="https to http"):
        source.sibling("from").fetch([Head(1)])
    http_server.behave("redirect", path="up", to=secure.url_for("a"))
    up = storage.open_source(http_server.url_for("up"), config=config)
    assert up.fetch([Head(5)])[0].data == DATA[:5]


def test_a_certificate_that_nobody_trusts(
    secure: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    config = StorageConfig(concurrency=8)
    with pytest.raises(StorageError, match="secure connection"):
        storage.open_source(secure.put("a", DATA), config=config).fetch([Head(1)])
