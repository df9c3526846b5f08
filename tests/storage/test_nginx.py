"""Many ranges in one request to nginx, which knows nothing of this project."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from comal.plan import ByteRange, Head
from comal.storage import CountingSource, StorageConfig, http, open_source
from comal.storage.location import parse_href
from tests.storage.places import noise

# One process and no folder of its own: everything is below the temporary folder of the test.
CONFIG = """
daemon off;
master_process off;
pid {work}/nginx.pid;
error_log {work}/error.log;
events {{ worker_connections 256; }}
http {{
    access_log {work}/access.log;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {work}/root;
        location /none/ {{ alias {work}/root/; max_ranges 1; }}
        location /some/ {{ alias {work}/root/; max_ranges 100; }}
    }}
}}
"""
DATA = noise(2_000_000)
FEW = StorageConfig(concurrency=8, coalesce_gap=0)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with one file, ``a``."""
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if nginx is None:
        reason = "nginx is missing: run 'sh scripts/system-packages'"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    work = tmp_path_factory.mktemp("nginx")
    (work / "root").mkdir()
    (work / "root" / "a").write_bytes(DATA)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (work / "nginx.conf").write_text(CONFIG.format(work=work, port=port))
    words = [nginx, "-p", str(work), "-e", str(work / "error.log"), "-c", str(work / "nginx.conf")]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        try:
            _wait(port, process, work)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait(port: int, process: subprocess.Popen[bytes], work: Path) -> None:
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, (work / "error.log").read_text()
        time.sleep(0.02)
    raise AssertionError("nginx does not answer")


@pytest.fixture(autouse=True)
def unknown() -> None:
    http.forget()


def scattered(count: int, seed: int) -> list[ByteRange]:
    """Ranges all over the file, some of them side by side or one byte apart."""
    chance = random.Random(seed)
    cuts = sorted(chance.sample(range(len(DATA)), 2 * count))
    wanted = [ByteRange(a, b - a) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
    wanted += [ByteRange(len(DATA) - 1, 1), ByteRange(0, 1)]
    chance.shuffle(wanted)
    return wanted


@pytest.mark.parametrize("count", [9, 100, 1000])
def test_the_bytes_are_right(origin: str, count: int) -> None:
    source = CountingSource(open_source(f"{origin}/a", config=FEW))
    source.fetch([Head(1)])
    for turn in range(3):
        wanted = scattered(count, turn)
        source.reset()
        found = source.fetch(wanted)
        assert [one.data for one in found] == [DATA[w.offset : w.end] for w in wanted]
        assert source.requests <= 2 + count // 100
    assert http.takes_many(parse_href(origin)) is True


@pytest.mark.parametrize(("path", "trial"), [("none", 1), ("some", 1)])
def test_a_server_that_allows_few_ranges(origin: str, path: str, trial: int) -> None:
    """One range at most is a 206 of all or a 200; beyond a number of them nginx sends a 200."""
    source = CountingSource(open_source(f"{origin}/{path}/a", config=FEW))
    source.fetch([Head(1)])
    wanted = [ByteRange(index * 10_000, 100) for index in range(120)]
    for extra in (trial, 0):
        source.reset()
        found = source.fetch(wanted)
        assert [one.data for one in found] == [DATA[w.offset : w.end] for w in wanted]
        assert source.requests == 120 + extra
