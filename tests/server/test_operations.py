"""Slow clients, overload, several workers, memory, the log and the stop, on real sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import socket
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from comal import server
from comal.server.metrics import Counts, WorkerCounts
from comal.server.responses import refusal_of
from tests.server.asking import reply_of, scope_of
from tests.server.conftest import BIG
from tests.server.making import PNG, entry, raquet_file, tileset
from tests.server.serving import get, raw, serving
from tests.server.test_extremes import raster_file
from tests.tortilla.build import Item, built, column


@pytest.fixture(scope="module")
def impatient(big: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server that soon gives up on clients; its port."""
    folder = tileset(tmp_path_factory.mktemp("impatient") / "set")
    limits = {"stalled": 4, "streams": 1, "queue": 1, "seconds": 2}
    places = [(256 + x, 255 - y) for x in range(8) for y in range(8)]
    raster = raster_file(folder.parent / "a.parquet", 9, places, [0, 0, 5.6, 5.6])
    sources = {"big": str(big), "tiles": str(folder), "a": str(raster)}
    options = {"limits": limits}
    with serving(sources, idle_seconds=1, options=options) as (port, _):
        while any(get(port, f"/{name}")[0] != 200 for name in sources):
            time.sleep(0.1)  # a busy machine needs longer than the two seconds of a request
        yield port


# -- clients that take their time ------------------------------------------------------------------


def read_to_end(client: socket.socket) -> int:
    taken = 0
    with suppress(ConnectionResetError):
        while block := client.recv(1 << 20):
            taken += len(block)
    return taken


def test_slow_bodies_are_refused_before_they_come(impatient: int) -> None:
    with socket.create_connection(("127.0.0.1", impatient), timeout=60) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 405")


def test_who_takes_nothing_is_sent_away_and_makes_room(impatient: int) -> None:
    name = 'comal_sent_bytes_total{source="big"}'
    before = metrics(impatient)[name]
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", impatient))
        client.sendall(b"GET /big/data/big HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(15) == b"HTTP/1.1 200 OK"
        time.sleep(0.3)
        assert metrics(impatient)[name] == before, "what nobody takes is not made and kept"
        # The one place for long bodies is taken; all that is short goes on.
        assert get(impatient, "/tiles/0/0/0.png")[0] == 200
        status, headers, _ = get(impatient, "/big/data/big")
        assert (status, headers.get("retry-after")) == (503, "1"), "it has waited"
        until = time.monotonic() + 60
        while get(impatient, "/big/data/big")[0] != 200:
            assert time.monotonic() < until, "the place was not given back"
        client.settimeout(60)
        assert read_to_end(client) < BIG


# -- more than there is room for -------------------------------------------------------------------


def test_the_64_and_the_256(archives: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from comal.server.rasters import RasterSource
    from comal.server.responses import json_response

    go = asyncio.Event()

    async def slow(*_: Any) -> Any:
        await go.wait()
        return json_response({})

    monkeypatch.setattr(RasterSource, "tile", slow)
    app = server.app({"dem": str(archives["dem"])}, log="none")
    limits = app.settings.limits
    assert (limits.in_flight, limits.queue, limits.streams) == (64, 256, 64)

    async def overload() -> tuple[list[Any], list[int], Any]:
        await app.mounts["dem"].get()
        scope = scope_of("/dem/0/0/0.png")
        requests = [asyncio.ensure_future(reply_of(app, dict(scope))) for _ in range(400)]
        first = itertools.islice(asyncio.as_completed(requests), 80)
        early = [(await answered).status for answered in first]
        healthy = await reply_of(app, scope_of("/healthz"))
        go.set()
        return await asyncio.gather(*requests), early, healthy

    replies, early, healthy = asyncio.run(asyncio.wait_for(overload(), 60))
    statuses = [reply.status for reply in replies]
    assert (statuses.count(200), statuses.count(503)) == (64 + 256, 80)
    assert all(reply.headers["retry-after"] == "1" for reply in replies if reply.status == 503)
    assert early == [503] * 80, "nobody waits to be refused"
    assert healthy.status == 200, "who watches the server is not kept waiting"
    assert (app.gate.active, app.gate.waiting) == (0, 0)


def test_no_memory_is_503() -> None:
    refusal = refusal_of(MemoryError())
    assert (refusal.status, refusal.code) == (503, "overloaded")
    assert dict(refusal.headers) == {b"retry-after": b"1"}


def test_work_of_who_has_left_ends(impatient: int) -> None:
    slow = ";".join(["%2B".join(["b1**1.1"] * 8)] * 4)  # some seconds of work
    with socket.create_connection(("127.0.0.1", impatient)) as client:
        request = f"GET /a/statistics?expression={slow} HTTP/1.1\r\nHost: x\r\n\r\n"
        client.sendall(request.encode())
        time.sleep(0.2)
    name = 'comal_requests_total{route="statistics",source="a",status="499"}'
    until = time.monotonic() + 60
    while name not in metrics(impatient):
        assert time.monotonic() < until, "nobody notices"
        time.sleep(0.1)


# -- workers ---------------------------------------------------------------------------------------


def metrics(port: int) -> dict[str, float]:
    lines = get(port, "/metrics")[2].decode().splitlines()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if not line.startswith("#")
    }


def test_counts_of_all_workers_are_one(tmp_path: Path) -> None:
    sources = {"tiles": str(tileset(tmp_path / "set"))}
    name = 'comal_requests_total{route="tile",source="tiles",status="200"}'
    with serving(sources, workers=2) as (port, process):
        for _ in range(60):  # each on a connection of its own, so that both have some
            assert get(port, "/tiles/0/0/0.png")[2] == PNG + b"0/0/0"
        until = time.monotonic() + 60
        said: list[dict[str, float]] = []
        while len(said) < 10:  # in a row, so that both were asked
            assert time.monotonic() < until, "whoever is asked"
            found = metrics(port)
            agreed = found.get(name) == 60 and found["comal_workers"] == 2
            said = [*said, found] if agreed else []
            time.sleep(0 if agreed else 0.2)
        assert said[0]['comal_request_seconds_count{route="tile"}'] == 60
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 0


def test_counts_of_those_who_ended_stay(tmp_path: Path) -> None:
    ended = tmp_path / "99999999-x.json"
    own, other = WorkerCounts(tmp_path), WorkerCounts(tmp_path)
    counts = Counts()
    counts.count("a", "tile", 200, 30, 0.1)
    counts.reloaded("a", "ok")
    counts.gauges["comal_cache_bytes"] = 5.0
    other.post(counts)
    assert list(own.others()) == [counts]
    assert list(other.others()) == []
    (written,) = tmp_path.glob("*.json")
    written.rename(ended)
    (found,) = own.others()
    assert (found.samples, found.durations) == (counts.samples, counts.durations)
    assert found.gauges == {}


def test_worker_above_its_memory_is_replaced(tmp_path: Path) -> None:
    sources = {"tiles": str(tileset(tmp_path / "set"))}
    with serving(sources, max_memory=20) as (port, process):
        first = _children(process.pid)
        until = time.monotonic() + 60
        while _children(process.pid) & first:
            assert get(port, "/tiles/0/0/0.png")[0] == 200, "nobody notices"
            assert time.monotonic() < until
            time.sleep(0.05)
        assert get(port, "/tiles/0/0/0.png")[0] == 200


def _children(pid: int) -> set[str]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {
        child
        for task in tasks
        for child in task.read_text().split()
        if b"tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()
    }


def test_memory_has_an_end(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import numpy as np; from comal.server.process import limit_memory; limit_memory(600)\n"
        "np.ones(10_000_000)\n"
        "try: np.ones(200_000_000)\n"
        "except MemoryError: print('refused')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, cwd=tmp_path, check=True
    )
    assert done.stdout == b"refused\n", done.stderr


# -- the log ---------------------------------------------------------------------------------------


def test_log_is_a_line_of_json_each(tmp_path: Path) -> None:
    strange = tmp_path / "strange.tortilla"
    strange.write_bytes(built([Item("a", b"x")], table=column("stac:crs", pa.array([1]))))
    sources = {"tiles": str(tileset(tmp_path / "set")), "gone": str(tmp_path / "gone.parquet")}
    sources["strange"] = str(strange)
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        serving(sources, options={"log": "all"}, stderr=file) as (port, _),
    ):
        for data in (b"no request\r\n\r\n", b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"):
            raw(port, data)
        get(port, "/healthz", Connection="Upgrade", Upgrade="websocket")
        get(port, "/strange")  # of whose columns the reader warns
        get(port, "/tiles/0/0/0.png")
        get(port, "/tiles/2/0/0.png")  # its checksum is wrong
        get(port, "/nothing/%0a%22%7d")
        get(port, "/gone")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    requests = {line["path"]: line for line in lines if "path" in line}
    tile = requests["/tiles/0/0/0.png"]
    assert tile.keys() == {
        *("time", "level", "id", "method", "path", "source", "route", "status", "bytes", "ms"),
    }
    assert (tile["level"], tile["source"], tile["route"]) == ("info", "tiles", "tile")
    assert (tile["status"], tile["bytes"]) == (200, len(PNG) + 5)
    assert tile["ms"] > 0
    damaged = requests["/tiles/2/0/0.png"]
    assert (damaged["level"], damaged["status"]) == ("error", 500)
    assert "checksum" in damaged["failure"]
    assert requests["/gone"]["status"] == 404
    others = [line for line in lines if "path" not in line]
    said = {line["logger"]: line["message"] for line in others}
    assert said.keys() == {"py.warnings", "comal.server"}
    assert "stac:crs" in said["py.warnings"]
    assert said["comal.server"].startswith("source gone cannot be opened")


# -- what changes while it is served ---------------------------------------------------------------


def put_version(folder: Path, version: int) -> None:
    """The archive and then the document, each in one step, as careful writers do."""
    new = folder.parent / "new"
    with zipfile.ZipFile(new, "w") as archive:
        for name in ("0/0/0.png", "1/0/0.png"):
            # Of another length each time, so that places in the archive differ too.
            entry(archive, name, f"{version:06d}".encode() * (500 + version % 7 * 100))
    new.replace(folder / "0/0/0.zip")
    document = json.loads((folder / "meta.json").read_text()) | {"name": f"v{version:06d}"}
    new.write_text(json.dumps(document))
    new.replace(folder / "meta.json")


def is_whole(body: bytes) -> bool:
    return body == body[:6] * (len(body) // 6)


def wait_until_seen(port: int, path: str, text: bytes) -> None:
    until = time.monotonic() + 60
    while text not in get(port, path)[2]:
        assert time.monotonic() < until, f"{text!r} is never seen"
        time.sleep(0.1)


def test_no_answer_is_a_mix(tmp_path: Path) -> None:
    folder = tileset(tmp_path / "set")
    put_version(folder, 0)
    done = threading.Event()
    answers: list[tuple[int, bytes]] = []

    def ask(port: int, path: str) -> None:
        while not done.is_set():
            status, _, body = get(port, path)
            answers.append((status, body))

    with serving({"tiles": str(folder)}, options={"reload_seconds": 0.1}) as (port, _):
        paths = ["/tiles/0/0/0.png", "/tiles/1/0/0.png"] * 2
        readers = [threading.Thread(target=ask, args=(port, path)) for path in paths]
        for reader in readers:
            reader.start()
        for version in range(1, 11):
            put_version(folder, version)
            time.sleep(0.15)
        wait_until_seen(port, "/tiles/0/0/0.png", b"000010")
        wait_until_seen(port, "/sources.json", b"v000010")
        done.set()
        for reader in readers:
            reader.join(10)
    good = [body for status, body in answers if status == 200]
    assert all(map(is_whole, good))
    assert len({body[:6] for body in good}) > 3, "several versions were seen"
    assert {status for status, _ in answers} <= {200, 503}
    assert len(good) > 0.9 * len(answers)


def test_no_raster_is_a_mix(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ones = np.ones((128, 128), np.uint8)
    raquet_file(path, {"a": ones, "b": ones})
    app = server.app({"a": str(path)}, reload_seconds=0.01, log="none")

    async def ask() -> set[tuple[int, ...]]:
        values = set()
        for version in range(2, 10):
            raquet_file(tmp_path / "new.parquet", {"a": ones * version, "b": ones * version})
            (tmp_path / "new.parquet").replace(path)
            for _ in range(6):
                reply = await reply_of(app, scope_of("/a/point/10,10"))
                if reply.status != 503:
                    assert reply.status == 200, reply.body
                    values.add(tuple(reply.json()["values"]))
                await asyncio.sleep(0.005)
        return values

    values = asyncio.run(ask())
    assert all(a == b for a, b in values)
    assert len(values) > 3
