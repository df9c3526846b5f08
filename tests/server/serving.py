"""Servers in processes of their own, and requests to them over sockets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.support import REPOSITORY

_PROGRAM = """
import json, sys
from comal.server import RequestLimits, Settings, process
from comal.server.settings import ProcessSettings
given = json.loads(sys.argv[1])
options = given.pop("options")
options["limits"] = RequestLimits(**options.get("limits", {}))
process.run(ProcessSettings(settings=Settings(**options), **given))
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
