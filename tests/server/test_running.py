"""A real server on a socket, and clients that behave badly."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from comal import tortilla
from comal.server import process
from tests.server.conftest import BIG
from tests.server.making import PNG, tileset
from tests.server.serving import free_port, get, raw, serving, wait_for
from tests.support import REPOSITORY


def test_large_body(port: int) -> None:
    whole = get(port, "/big/data/big")[2]
    assert len(whole) == BIG
    assert get(port, "/big/data/big", Range="bytes=5000000-")[2] == whole[5_000_000:]


def test_client_that_goes_away_in_the_middle(port: int) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /big/data/big HTTP/1.1\r\nHost: x\r\n\r\n")
            client.recv(1000)
    assert get(port, "/healthz")[0] == 200


NO_GOOD = (
    b"\0" * 1000,
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nBroken header\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
    b"GET /../../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT example.org:80 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\nabc",
    b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"GET /tiles/%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
)


def test_bytes_that_are_no_good_request(port: int) -> None:
    for data in NO_GOOD:
        answer = raw(port, data, seconds=3)
        assert b"root:" not in answer, data
        assert not answer.startswith((b"HTTP/1.1 500", b"HTTP/1.1 200")), data
    assert get(port, "/tiles/0/0/0.png")[0] == 200, "the server goes on"


@pytest.mark.parametrize("hosts", [b"", b"Host: a\r\nX-A: b\r\nhost: a\r\n"])
def test_one_host(port: int, hosts: bytes) -> None:
    """RFC 9112, 3.2; on the long way, the short way, and where a response was kept."""
    for path in (b"/healthz", *[b"/tiles/2/1/1.png"] * 3):
        answer = begun(port, b"GET %b HTTP/1.1\r\n%b\r\n" % (path, hosts))
        assert answer.startswith(b"HTTP/1.1 400 "), path
        assert get(port, path.decode())[0] == 200
    old = begun(port, b"GET /tiles/2/1/1.png HTTP/1.0\r\n%b\r\n" % hosts)
    assert old.split()[1] == (b"200" if hosts == b"" else b"400")


def test_other_versions_of_http(port: int) -> None:
    """RFC 9110, 15.6.6; such a request has no need of a Host, so nothing else refuses it."""
    answer = begun(port, b"GET / HTTP/9.9\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 505 ")


def begun(port: int, data: bytes) -> bytes:
    """The first bytes of an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data)
        return client.recv(1000)


def test_graceful_stop(big: Path, tmp_path: Path) -> None:
    """Idle connections do not hold it up; an answer that is under way is finished."""
    payload = tortilla.open(big).read_bytes(0)
    sources = {"tiles": {"href": str(tileset(tmp_path / "set"))}, "big": str(big)}
    said = tmp_path / "stderr"
    with (
        said.open("wb") as stderr,
        serving(sources, stderr=stderr) as (port, process),
        idle_connection(port),
        idle_connection(port),
    ):
        slow = HTTPConnection("127.0.0.1", port, timeout=60)
        slow.request("GET", "/big/data/big")
        answer = slow.getresponse()
        body = answer.read(1000)
        process.send_signal(signal.SIGTERM)
        wait_until_refused(port)
        while block := answer.read(1_000_000):
            body += block
        assert body == payload
        slow.close()
        assert process.wait(10) == 0
    assert said.read_bytes() == b""


def wait_until_refused(port: int) -> None:
    until = time.monotonic() + 60
    with suppress(ConnectionError):
        while get(port, "/healthz"):
            assert time.monotonic() < until, "it still takes connections"
            time.sleep(0.05)


@contextmanager
def idle_connection(port: int) -> Iterator[None]:
    """A connection that was used once and stays."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET /tiles/0/0/0.png HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        yield


def test_modules_that_the_command_line_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comal_hidden_module", None)
    process.unhide_modules()
    assert "comal_hidden_module" not in sys.modules
    assert None not in sys.modules.values()


def test_as_many_files_as_the_system_allows() -> None:
    import resource

    program = (
        "import resource; from comal.server.process import allow_files;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000)); allow_files();"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 3000
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split() == ["3000", "3000"]


def test_the_command_serves_from_its_first_request_on(tmp_path: Path) -> None:
    folder, port = tileset(tmp_path / "set"), free_port()
    words = ["serve", f"tiles={folder}", "--port", str(port), "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from comal.cli import main; main()", *words],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port, process)
        assert get(port, "/tiles/0/0/0.png")[2] == PNG + b"0/0/0"
    finally:
        process.terminate()
        process.wait(20)
