"""Requests that are answered before they are parsed, and answers that are kept for the next."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from comal import server
from comal.server.readyresponses import ReadyResponse, ReadyResponses, is_whole_head
from tests.server.asking import ask
from tests.server.making import GZIPPED, HTTP_TIME, PNG, VECTOR, crc, entry, tileset
from tests.server.serving import get
from tests.support import open_below

_HOST = b"Host: example.org\r\n"


def request(path: str, *headers: bytes, method: str = "GET", version: str = "1.1") -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return f"{method} {path} HTTP/{version}\r\n".encode() + _HOST + lines + b"\r\n"


def answered(app: Any, data: bytes, source: str = "tiles") -> bytes | None:
    """What the bytes are answered with at once, the source being open."""

    async def run() -> bytes | None:
        await app.mounts[source].get()
        parts = app.plain.answer(data)
        return None if parts is None else b"".join(parts)

    found: bytes | None = asyncio.run(run())
    return found


def split(answer: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(headers) == len(lines), "no header twice"
    return first, headers, body


# -- what is plain ---------------------------------------------------------------------------------


def long_way(app: Any, path: str, headers: dict[str, str]) -> tuple[str, dict[str, str], bytes]:
    reply = ask(app, path, headers={"X-Long": "x" * 9_000, **headers})
    return str(reply.status), reply.headers, reply.body


def short_way(app: Any, path: str, headers: dict[str, str]) -> tuple[str, dict[str, str], bytes]:
    lines = [f"{name}: {value}".encode() for name, value in headers.items()]
    answer = answered(app, request(path, *lines), path.split("/")[1])
    assert answer is not None, (path, headers)
    first, found, body = split(answer)
    assert found.pop("date").endswith(" GMT")
    return first.split()[1], found, body


def test_the_same_answer_as_the_long_way(app: Any) -> None:
    for ext, accepted in (
        ("png", None),
        ("png", "gzip"),
        ("mvt", "gzip, br"),
        ("txt", "gzip"),
        ("html", None),
    ):
        headers = {} if accepted is None else {"Accept-Encoding": accepted}
        expected = long_way(app, f"/tiles/0/0/0.{ext}", headers)
        assert expected[0] == "200"
        for _ in range(3):  # made, then kept
            assert short_way(app, f"/tiles/0/0/0.{ext}", headers) == expected


@pytest.mark.parametrize("path", ["/tiles/0/0/0.png", "/tiles/0/0/0.mvt", "/dem/0/0/0.png"])
def test_who_has_the_tile_is_told_so(app: Any, path: str) -> None:
    accept = {"Accept-Encoding": "gzip"}
    etag = ask(app, path, headers=accept).headers["etag"]
    bare = etag.strip('"')
    for tag in (etag, bare, f"W/{etag}", f"W/{bare}", f'"other", {etag}', "*", '"other"', "no tag"):
        headers = {**accept, "If-None-Match": tag}
        assert short_way(app, path, headers) == long_way(app, path, headers), tag


def test_drawn_tiles_are_answered_at_once_when_they_are_kept(app: Any) -> None:
    wanted = request("/dem/0/0/0.png")
    assert answered(app, wanted, "dem") is None
    reply = ask(app, "/dem/0/0/0.png")
    answer = answered(app, wanted, "dem")
    assert answer is not None
    assert split(answer)[2] == reply.body
    for other in ("/dem/0/0/0.webp", "/dem/0/0/0@2x.png", "/dem/0/0/0", "/dem/0/0/00.png"):
        assert answered(app, request(other), "dem") is None


HEADERS = (
    *(b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Expect: 100-continue"),
    *(b"Connection: close", b"Connection: Upgrade\r\nUpgrade: websocket", b"Upgrade: h2c"),
    *(b"iF-mODIFIED-sINCE: x", b"Range: bytes=0-1", b"If-Range: x", b"X : y", b" folded: y"),
    *(b"X: a\nRange: bytes=0-1", b"X: \xff", b"X: a\x00b", b"no colon", b"X: " + b"y" * 9_000),
    _HOST.strip(),  # two hosts
)
ADDRESSES = (
    *("/tiles/0/0/0.png?a=b", "/tiles/0/0/%30.png", "/tiles/0/0/0", "/tiles/0/0/9.png"),
    *("/tiles/0/0/0.gif", "/tiles/00/0/0.png", "/nobody/0/0/0.png", "/healthz"),
    *("//tiles/0/0/0.png", "http://example.org/tiles/0/0/0.png"),
    *("/tiles/2/0/0.png", "/tiles/2/3/3.png"),  # damaged, absent
)
PLAIN = request("/tiles/0/0/0.png")
NOT_PLAIN = (
    *(b"", b"GET", b"GET /tiles/0/0/0.png HTTP/1.1", b"GET /tiles/0/0/0.png HTTP/1.1\r\n"),
    *(PLAIN.replace(_HOST, b""), PLAIN.replace(b" HTTP/1.1", b""), PLAIN.replace(b"1.1", b"1.0")),
    *(PLAIN[:-1], PLAIN + b"G", PLAIN * 2, b"HEAD" + PLAIN[3:], b"POST" + PLAIN[3:]),
    *(request("/tiles/0/0/0.png", header) for header in HEADERS),
    *(request(address) for address in ADDRESSES),
)


def test_what_is_not_plain_is_left_alone(app: Any) -> None:
    for data in NOT_PLAIN:
        assert answered(app, PLAIN) is not None
        assert answered(app, data) is None, data


def test_without_gzip_the_long_way(app: Any) -> None:
    assert answered(app, request("/tiles/0/0/0.mvt", b"Accept-Encoding: gzip")) is not None
    for value in (b"identity", b"br", b"gzip;q=0", b"identity;q=0"):
        header = b"Accept-Encoding: " + value
        answer = answered(app, request("/tiles/0/0/0.mvt", header))
        assert answer is None or split(answer)[2] == VECTOR
        if value == b"identity;q=0":
            assert answer is None


def test_codings_and_the_prefix_decide_at_once_as_in_the_long_way(tmp_path: Path) -> None:
    folder = tileset(tmp_path / "set", formats={"txt": [{"Content-Encoding": "br"}]})
    app = server.app({"tiles": str(folder)}, log="none", prefix="/maps")
    for accepted in ("gzip, br", "gzip", "br", "br;q=0, gzip"):
        wanted = request("/maps/tiles/0/0/0.txt", b"Accept-Encoding: " + accepted.encode())
        assert (answered(app, wanted) is not None) == (accepted in {"gzip, br", "br"}), accepted
        assert answered(app, wanted.replace(b"/maps/", b"/maps-")) is None


def test_answers_that_differ_by_origin_are_not_made_so(archives: dict[str, Path]) -> None:
    app = server.app({"tiles": str(archives["tiles"])}, cors=["https://a.example"], log="none")
    assert answered(app, request("/tiles/0/0/0.png")) is None


def test_whole_heads() -> None:
    whole = request("/x")
    assert is_whole_head(whole)
    assert is_whole_head(request("/x", method="HEAD"))
    for bad in (
        whole[:-1],
        whole * 2,
        whole + b"x",
        request("/x", method="POST"),
        request("/x", b"content-length: 0"),
        request("/x", b"Transfer-Encoding: chunked"),
        request("/x", b"Upgrade: x"),
        b"\r\n" + whole,
    ):
        assert not is_whole_head(bad)


# -- over a socket ---------------------------------------------------------------------------------


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, head: bool = False) -> tuple[int, dict[str, str], bytes]:
        first = self.file.readline()
        assert first.startswith(b"HTTP/1.1 "), first
        headers = {}
        while line := self.file.readline().strip():
            name, _, value = line.decode("latin-1").partition(": ")
            headers[name.lower()] = value
        status = int(first.split()[1])
        size = 0 if head or status in {204, 304} else int(headers["content-length"])
        return status, headers, self.file.read(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()


TILE = request("/tiles/1/0/1.png")
BODY = PNG + b"1/0/1"
SINCE = b"If-Modified-Since: " + HTTP_TIME.encode()
TURNS: list[tuple[bytes, int, bytes]] = [
    (TILE, 200, BODY),
    (request("/tiles/1/0/1.png", SINCE), 304, b""),
    (request("/tiles/1/0/1.png", b"If-None-Match: " + crc(BODY).encode()), 304, b""),
    (TILE, 200, BODY),
    (request("/tiles/1/0/1.png", b"Range: bytes=2-4"), 206, BODY[2:5]),
    (request("/tiles/0/0/0.mvt", b"Accept-Encoding: gzip"), 200, GZIPPED),
    (request("/tiles/0/0/0.mvt"), 200, VECTOR),
    (request("/tiles/0/0/0.mvt", b"Accept-Encoding: gzip"), 200, GZIPPED),
    (request("/tiles/0/0/0.mvt"), 200, VECTOR),
    (request("/healthz"), 200, b'{"status":"ok"}'),
    (TILE, 200, BODY),
]


@pytest.mark.parametrize("how", ["one by one", "at once", "in two pieces", "byte by byte"])
def test_plain_and_other_requests_on_one_connection(port: int, how: str) -> None:
    with Client(port) as client:
        everything = b"".join(data for data, _, _ in TURNS)
        if how == "at once":
            client.send(everything)
        elif how == "byte by byte":
            client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(len(everything)):
                client.send(everything[number : number + 1])
        for data, status, body in TURNS:
            if how == "one by one":
                client.send(data)
            elif how == "in two pieces":
                client.send(data[:30])
                time.sleep(0.01)
                client.send(data[30:])
            found, _, content = client.answer()
            assert (found, content) == (status, body)


def test_a_plain_request_behind_one_that_is_worked_on(port: int) -> None:
    with Client(port) as client:
        client.send(request("/sources.json"))
        client.send(TILE)
        assert client.answer()[1]["content-type"] == "application/json"
        assert client.answer()[2] == BODY


def test_bytes_of_a_body_are_no_request(port: int) -> None:
    with Client(port) as client:
        size = b"Content-Length: %d" % len(TILE)
        client.send(request("/healthz", size))
        client.send(TILE)  # the body
        assert client.answer()[0] == 200
        client.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)


def test_connection_that_the_client_closes(port: int) -> None:
    with Client(port) as client:
        client.send(TILE)
        assert client.answer()[2] == BODY
        client.send(request("/tiles/1/0/1.png", b"Connection: close"))
        assert client.answer()[2] == BODY
        assert client.file.read() == b""


def test_a_busy_connection_is_not_idle(port: int) -> None:
    with Client(port) as client:
        for turn in range(8):  # more than twice the time that it may be idle
            client.send(TILE if turn else request("/healthz"))
            assert client.answer()[0] == 200
            time.sleep(0.4)


def test_idle_and_slow_clients_are_sent_away(port: int) -> None:
    """After nothing and after two kinds of answers, half a header, and half of a body.

    Silent, and with a byte now and then.
    """
    slow = b"GET /tiles/1/0/1.png HTTP/1.1\r\nX: " + b"y" * 100
    halves = (b"GET / HTTP/1.1\r\nHo", request("/healthz", b"Content-Length: 100") + b"half")
    with ExitStack() as stack:
        waiting = {}
        for before, pieces in itertools.product((b"", TILE, request("/healthz")), (b"", slow)):
            client = stack.enter_context(Client(port))
            if before:
                client.send(before)
                client.answer()
            waiting[client] = iter(pieces)
        for half in halves:
            client = stack.enter_context(Client(port))
            client.send(half)
            waiting[client] = iter(b"")
        for client in waiting:
            client.socket.setblocking(False)
        started = time.monotonic()
        while waiting:
            time.sleep(0.1)
            assert time.monotonic() - started < 4
            for client in [one for one in waiting if is_closed(one, waiting[one])]:
                assert time.monotonic() - started > 1
                del waiting[client]


def is_closed(client: Client, left: Iterator[int]) -> bool:
    """Whether the server has hung up, after one byte more."""
    try:
        for byte in itertools.islice(left, 1):
            client.send(bytes([byte]))
        return client.socket.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_who_takes_nothing_does_not_fill_the_memory(port: int) -> None:
    """Answers are not made for one whose buffers are full."""
    with Client(port) as client:
        client.socket.settimeout(1)
        sent = 0
        with suppress(TimeoutError):
            while sent < 200_000:
                client.socket.sendall(TILE)
                sent += 1
        assert sent < 200_000
    assert get(port, "/healthz")[0] == 200


# -- what is kept ----------------------------------------------------------------------------------


class _File:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]


class _Archive:
    checked = 0.0
    file = _File(b"0123456789" * 1000)


def _tile(archive: Any, size: int, *, placed: bool = True) -> ReadyResponse:
    from weakref import ref
    from zlib import crc32

    body = archive.file.read(5, size)
    mount: Any = None
    tile = ReadyResponse(mount, mount, None, b"", body, ref(archive))
    tile.place = (5, size, crc32(body)) if placed else None
    return tile


def test_bodies_go_before_answers() -> None:
    archive = _Archive()
    ready = ReadyResponses(200_000)
    for number in range(20):
        key = b"/%d" % number
        assert ready.wants(key, 9_000)
        ready.put(key, _tile(archive, 9_000))
    assert ready.size <= 200_000
    assert len(ready.entries) == 20
    assert 0 < sum(tile.body is None for tile in ready.entries.values()) < 20
    for tile in ready.entries.values():
        assert tile.content() == archive.file.read(5, 9_000)
    for number in range(100, 1_000):
        if ready.wants(b"/%d" % number, 9_000):
            ready.put(b"/%d" % number, _tile(archive, 9_000, placed=number % 2 == 0))
        assert ready.size <= 200_000
        filled = sum(len(tile.body or b"") for tile in ready.entries.values())
        assert ready.size == filled + 1_200 * len(ready.entries)
    for kept in list(ready.entries):
        ready.drop(kept)
    assert ready.size == 0


def test_bytes_that_have_changed_are_not_sent() -> None:
    archive = _Archive()
    tile = _tile(archive, 100)
    tile.body = None
    assert tile.content() is not None
    archive.file = _File(b"x" * 1000)
    assert tile.content() is None
    del archive
    gc.collect()
    assert tile.content() is None
    assert not tile.is_fresh(0.0)


@pytest.mark.parametrize("budget", [0, 1, 1_000])
def test_no_room(budget: int) -> None:
    ready = ReadyResponses(budget)
    assert not ready.wants(b"/a", 0)
    assert not ready.wants(b"/a", 10)


def test_kept_answers_keep_no_file_open(tmp_path: Path) -> None:
    """Of thousands of archives a few hundred are open, however many tiles of them are kept."""
    folder = tileset(tmp_path / "set", materializedZooms=[0, 5], maxzoom=5)
    count = 600
    for number in range(count):
        x, y = divmod(number, 32)
        place = folder / "5" / str(x)
        place.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(place / f"{y}.zip", "w") as archive:
            entry(archive, f"5/{x}/{y}.png", PNG)
    app = server.app({"tiles": {"href": str(folder)}}, log="none")

    async def run() -> None:
        await app.mounts["tiles"].get()
        for number in range(count):
            x, y = divmod(number, 32)
            assert app.plain.answer(request(f"/tiles/5/{x}/{y}.png")) is not None

    asyncio.run(run())
    assert len(app.plain.ready.entries) == count
    assert open_below(tmp_path) < 450
