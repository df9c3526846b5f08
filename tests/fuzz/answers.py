"""What a server of archives answers, byte for byte over a connection."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from functools import cache

from comal.plan import ByteRange, Head, Tail, Wanted, Whole
from comal.storage import StorageConfig, open_source
from comal.storage.httpwire import NotFittingError, check_parts, read_parts
from comal.storage.remote import parse_retry_after
from tests.fuzz.base import Target

_CONFIG = StorageConfig(tries=1, max_redirects=0, connect_timeout=1, idle_timeout=1)
_BODY = bytes(range(100))
_WANTED: tuple[Wanted, ...] = (ByteRange(10, 20), Head(30), Tail(30), Whole(1_000), Tail(0))


class _Server:
    """Answers every request with the same bytes, and hangs up."""

    def __init__(self) -> None:
        self.answer = b""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/object"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                try:
                    connection.recv(1 << 16)
                    connection.sendall(self.answer)
                except OSError:
                    continue


@cache
def _server() -> _Server:
    return _Server()


def _http(data: bytes) -> None:
    """The first byte says what is asked for; bytes of the object are those of the answer."""
    server = _server()
    server.answer = data[1:]
    want = _WANTED[(data[0] if data else 0) % len(_WANTED)]
    parse_retry_after(data.decode("latin-1"))
    with open_source(server.url, config=_CONFIG) as source:
        (piece,) = source.fetch([want])
        info = source.stat()
    assert info.size == piece.total
    assert piece.offset + len(piece.data) <= piece.total
    if isinstance(want, ByteRange):
        assert (piece.offset, len(piece.data)) == (want.offset, want.size)


def _parts(data: bytes) -> None:
    """A line with the type, then a body of many ranges."""
    said, _, body = data.partition(b"\n")
    spans = [(10, 20), (40, 5), (60, 30)]
    try:
        boundary = check_parts({"Content-Type": said.decode("latin-1")}, spans)
        found = read_parts(body, boundary, spans, 100)
    except NotFittingError:  # as its docstring says
        return
    for (_, size), part in zip(spans, found, strict=True):
        assert len(part) == size
        assert part in body


def _bodies() -> Iterator[bytes]:
    for boundary in ("x", "[a b]", "--"):
        parts = "".join(
            f"--{boundary}\r\nContent-Type: a/b\r\nContent-Range: bytes {start}-{last}/100\r\n\r\n"
            f"{'z' * (last + 1 - start)}\r\n"
            for start, last in ((10, 29), (40, 44), (60, 89))
        )
        named = f'multipart/byteranges; charset=a; boundary="{boundary}"\n'
        yield f"{named}{parts}--{boundary}--\r\n".encode()
    yield (
        b"multipart/byteranges;boundary=x\n\r\n"
        b"--x\nContent-Range: bytes 10-44/100\n\n" + bytes(35) + b"\n--x--\n"
    )


def _answers() -> Iterator[bytes]:
    for number, (first, last) in enumerate(((10, 29), (0, 29), (70, 99), (0, 99), (99, 99))):
        head = (
            "HTTP/1.1 206 Partial Content\r\n"
            f"Content-Range: bytes {first}-{last}/100\r\nContent-Length: {last + 1 - first}\r\n"
            'ETag: "abc"\r\nLast-Modified: Wed, 31 Oct 2018 19:10:26 GMT\r\n\r\n'
        )
        yield bytes([number]) + head.encode() + _BODY[first : last + 1]
    yield b"\0HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + _BODY
    yield (
        b"\0HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n" + _BODY + b"\r\n0\r\n\r\n"
    )
    yield b"\2HTTP/1.1 416 No\r\nContent-Range: bytes */100\r\nContent-Length: 0\r\n\r\n"
    yield b"\0HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/other?x=1\r\n\r\n"
    yield b"\0HTTP/1.1 503 Busy\r\nRetry-After: Wed, 31 Oct 2018 19:10:26 GMT\r\n\r\n"
    yield b"\0HTTP/1.0 404 Not Found\r\n\r\n"


TARGETS = {"http": Target(_http, _answers), "http-parts": Target(_parts, _bodies)}
