"""A real server on a socket, and clients that behave badly."""

from __future__ import annotations

import json
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
from typing import Any

import numpy as np
import pytest

from comal import tortilla
from comal.errors import ConflictError
from comal.server import process
from tests.server.making import GZIPPED, PNG, VECTOR, crc, entry, tileset
from tests.support import REPOSITORY

_PROGRAM = """
import json, sys
from comal.server import RequestLimits, Settings, process
given = json.loads(sys.argv[1])
options = given.pop("options")
options["limits"] = RequestLimits(**options.get("limits", {}))
process.run(process.ProcessSettings(settings=Settings(**options), **given))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(sources: dict[str, Any], **plan: Any) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A server in processes of its own; its port."""
    port = plan.pop("port", None) or free_port()
    options = {"log": "none", **plan.pop("options", {})}
    stderr = plan.pop("stderr", subprocess.DEVNULL)
    document = {"sources": sources, "port": port, "options": options, **plan}
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps(document)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
    )
    try:
        wait_for(port, process)
        yield port, process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        try:
            if get(port, "/healthz")[0] == 200:
                return
        except OSError:
            time.sleep(0.05)
    pytest.fail("the server did not start")


def get(
    port: int, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, found, answer.read()
    finally:
        connection.close()


def raw(port: int, data: bytes, seconds: float = 10) -> bytes:
    """What comes back for some bytes until the server closes or falls silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as client:
        parts = []
        with suppress(OSError):  # it may hang up before it has heard everything
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while part := client.recv(65536):
                parts.append(part)
        return b"".join(parts)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("served")
    payload = np.random.default_rng(1).bytes(9_000_000)
    big = folder / "big.tortilla"
    tortilla.create([tortilla.Sample(id="big", path=payload, file_format="BYTES")], big)
    sources = {"tiles": {"href": str(tileset(folder / "set"))}, "big": str(big)}
    with serving(sources, idle_seconds=1) as (number, _):
        yield number


def test_a_tile_again_and_again(port: int) -> None:
    plain = PNG + b"1/0/1"
    for _ in range(3):  # the long way, the short way, the response that was kept
        status, headers, body = get(port, "/tiles/1/0/1.png")
        assert (status, body, headers["etag"]) == (200, plain, crc(plain))
        status, _, body = get(port, "/tiles/1/0/1.png", If_None_Match=crc(plain))
        assert (status, body) == (304, b"")
        status, headers, body = get(port, "/tiles/1/0/1.png", Range="bytes=2-4")
        assert (status, body) == (206, plain[2:5])
        since = headers["last-modified"]
        assert get(port, "/tiles/1/0/1.png", If_Modified_Since=since)[0] == 304
        status, headers, body = get(port, "/tiles/1/0/1.png", "HEAD")
        assert (status, headers["content-length"], body) == (200, str(len(plain)), b"")
        assert get(port, "/tiles/1/0/1.png", X_Long="x" * 18_000)[0] == 431
        assert get(port, "/tiles/1/0/1.png", "POST")[0] == 405


def test_kept_answers_are_for_those_who_take_them(port: int) -> None:
    for _ in range(4):
        status, headers, body = get(port, "/tiles/1/1/0.mvt", Accept_Encoding="gzip")
        assert (body, headers["content-encoding"]) == (GZIPPED, "gzip")
        status, headers, body = get(port, "/tiles/1/1/0.mvt")
        assert (status, body) == (200, VECTOR)
        assert "content-encoding" not in headers


def test_kept_answers_are_counted(port: int) -> None:
    for _ in range(5):
        get(port, "/tiles/1/1/1.png")
    text = get(port, "/metrics")[2].decode()
    (line,) = [
        one for one in text.splitlines() if 'route="tile",source="tiles",status="200"' in one
    ]
    assert float(line.rpartition(" ")[2]) >= 5


def test_large_body(port: int) -> None:
    whole = get(port, "/big/data/big")[2]
    assert len(whole) == 9_000_000
    assert get(port, "/big/data/big", Range="bytes=5000000-")[2] == whole[5_000_000:]


def test_client_that_goes_away_in_the_middle(port: int) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /big/data/big HTTP/1.1\r\nHost: x\r\n\r\n")
            client.recv(1000)
    assert get(port, "/healthz")[0] == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 1000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBroken header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
        b"GET /../../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT example.org:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        b"GET /tiles/%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ],
)
def test_bytes_that_are_no_good_request(port: int, data: bytes) -> None:
    answer = raw(port, data, seconds=3)
    assert b"root:" not in answer
    assert not answer.startswith(b"HTTP/1.1 500")
    assert get(port, "/tiles/0/0/0.png")[0] == 200, "the server goes on"


@pytest.mark.parametrize(
    "hosts", [b"", b"Host: a\r\nHost: b\r\n", b"Host: a\r\nX-A: b\r\nhost: a\r\n"]
)
def test_one_host(port: int, hosts: bytes) -> None:
    """RFC 9112, 3.2; on the long way, the short way, and where a response was kept."""
    for path in (b"/healthz", *[b"/tiles/2/1/1.png"] * 3):
        answer = begun(port, b"GET %b HTTP/1.1\r\n%b\r\n" % (path, hosts))
        assert answer.startswith(b"HTTP/1.1 400 "), path
        assert get(port, path.decode())[0] == 200
    old = begun(port, b"GET /tiles/2/1/1.png HTTP/1.0\r\n%b\r\n" % hosts)
    assert old.split()[1] == (b"200" if hosts == b"" else b"400")


def begun(port: int, data: bytes) -> bytes:
    """The first bytes of an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data)
        return client.recv(1000)


def test_silent_client_is_sent_away(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=8) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Half")
        started = time.monotonic()
        try:
            while client.recv(1000):
                pass
        except ConnectionResetError:
            pass
        assert time.monotonic() - started < 7


def test_replaced_archive_is_seen(tmp_path: Path) -> None:
    import zipfile

    folder = tileset(tmp_path / "set")
    with serving({"tiles": {"href": str(folder)}}) as (port, _):
        for _ in range(3):
            assert get(port, "/tiles/0/0/0.png")[2] == PNG + b"0/0/0"
        place = folder / "0/0/0.zip"
        with zipfile.ZipFile(tmp_path / "new.zip", "w") as archive:
            entry(archive, "0/0/0.png", PNG + b"another picture")
        (tmp_path / "new.zip").replace(place)
        until = time.monotonic() + 60
        while get(port, "/tiles/0/0/0.png")[2] != PNG + b"another picture":
            assert time.monotonic() < until, "the old picture is still served"
            time.sleep(0.1)


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_graceful_stop(tmp_path: Path, told: signal.Signals) -> None:
    """Idle connections do not hold it up; an answer that is under way is finished."""
    payload = np.random.default_rng(1).bytes(9_000_000)
    big = tmp_path / "big.tortilla"
    tortilla.create([tortilla.Sample(id="big", path=payload, file_format="BYTES")], big)
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
        process.send_signal(told)
        while len(body) < len(payload):
            time.sleep(0.05)
            body += answer.read(1_000_000)
        assert body == payload
        slow.close()
        process.wait(10)
        with pytest.raises(ConnectionRefusedError):
            get(port, "/healthz")
    assert said.read_bytes() == b""


@contextmanager
def idle_connection(port: int) -> Iterator[None]:
    """A connection that was used once and stays."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET /tiles/0/0/0.png HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        yield


def test_addresses_that_cannot_be_listened_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConflictError):
            process.run(process.ProcessSettings(sources={"a": "b"}, port=taken.getsockname()[1]))


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
