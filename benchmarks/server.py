"""comal serve against nginx, tileserver-gl-light and titiler, under wrk on the loopback.

    python benchmarks/server.py                   every case
    python benchmarks/server.py vector            the cases whose names begin so
    python benchmarks/server.py --size 4          seconds of each run

Needs Debian's wrk and nginx. The other two servers live beside the environments of the tests:

    npm install --prefix .interop/npm tileserver-gl-light
    python -m venv .interop/titiler && .interop/titiler/bin/pip install titiler.core uvicorn

Every server has one worker. The tiles are asked for in one shuffled order, the same for all, and
the sides take turns.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "cases"))

from tiles import addresses, write_mbtiles

from harness import HERE, INTEROP, Measurement, Row, Side, run

OURS = Side("comal", sys.executable, HERE / "cases" / "ours_tapalcatl.py")
OURS_RAQUET = Side("comal", sys.executable, HERE / "cases" / "ours_raquet.py")
PEER_RAQUET = Side("peer", sys.executable, HERE / "cases" / "peer_raquet.py")
CONNECTIONS = 32
TURNS = 5
REQUESTS = 200_000
# More than the server keeps in memory; fewer than a process may commonly hold open, so that nginx
# has all of its files open.
TILES = 16_000
TITILER = INTEROP / "titiler" / "bin" / "python"
TILESERVER = INTEROP / "npm" / "node_modules" / "tileserver-gl-light" / "src" / "main.js"

NGINX = """
user root;
worker_processes 1;
daemon off;
pid {work}/nginx.pid;
error_log {work}/nginx.log;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush off;
    open_file_cache max=18000 inactive=600s;
    open_file_cache_valid 60s;
    keepalive_requests 100000000;
    types {{ application/vnd.mapbox-vector-tile mvt; }}
    server {{
        listen 127.0.0.1:{port};
        root {work}/loose;
        location / {{
            add_header Content-Encoding gzip;
            add_header Vary Accept-Encoding;
            add_header Cache-Control "public, max-age=3600";
            add_header Access-Control-Allow-Origin "*";
            add_header Access-Control-Expose-Headers "*";
            add_header X-Content-Type-Options nosniff;
        }}
    }}
}}
"""

TILESERVER_CONFIG = {
    "options": {"paths": dict.fromkeys(("fonts", "styles", "sprites", "icons", "files"), "empty")},
    "styles": {},
    "data": {"tiles": {"mbtiles": "tiles.mbtiles"}},
}

SCRIPT = """
local paths = {{}}
for line in io.lines("{paths}") do paths[#paths + 1] = line end
local next = 0
request = function()
    next = next % #paths + 1
    return wrk.format("GET", paths[next], {{["Accept-Encoding"] = "gzip"}})
end
done = function(summary, latency)
    local bad = summary.errors.status + summary.errors.connect + summary.errors.read
        + summary.errors.write + summary.errors.timeout
    local p50, p99 = latency:percentile(50), latency:percentile(99)
    io.write(string.format("p50 %d p99 %d bad %d\\n", p50, p99, bad))
end
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(words: Sequence[str], port: int, first: str, work: Path) -> Iterator[int]:
    """A server, once its first tile has come; its process number."""
    with (work / "server.log").open("ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=work, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{first}").read()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise SystemExit(f"{words[0]} does not answer {first}") from None
                time.sleep(0.2)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def _processes(leader: int) -> Iterator[Path]:
    """A process and all that it started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) == leader:
                yield folder
        except ProcessLookupError:
            continue


def memory_of(leader: int) -> float:
    """Megabytes of a process and of all that it started."""
    total = 0
    for folder in _processes(leader):
        with suppress(OSError):
            resident = re.search(r"VmRSS:\s+(\d+)", (folder / "status").read_text())
            total += int(resident[1]) if resident else 0
    return total / 1024


def processor_of(leader: int) -> float:
    """Seconds of processor time that they have taken."""
    total = 0
    for folder in _processes(leader):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def load(
    port: int,
    paths: Sequence[str],
    seconds: int,
    work: Path,
    leader: int,
    connections: int = CONNECTIONS,
) -> Measurement:
    """Seconds a request, with the percentiles as the note."""
    (work / "paths").write_text("\n".join(paths))
    (work / "load.lua").write_text(SCRIPT.format(paths=work / "paths"))
    options = [f"-c{connections}", "-t1", f"-d{seconds}s", "--timeout", "30s"]
    before = processor_of(leader)
    done = subprocess.run(
        ["wrk", *options, "-s", str(work / "load.lua"), f"http://127.0.0.1:{port}"],
        capture_output=True,
        text=True,
        check=True,
    )
    taken = processor_of(leader) - before
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    asked = re.search(r"(\d+) requests in", done.stdout)
    percentiles = re.search(r"p50 (\d+) p99 (\d+) bad (\d+)", done.stdout)
    assert found is not None, done.stdout
    assert asked is not None, done.stdout
    assert percentiles is not None, done.stdout
    rate = float(found[1])
    note = {
        "requests_per_second": round(rate),
        "processor_us": round(1e6 * taken / int(asked[1]), 1),
        "p50_ms": int(percentiles[1]) / 1000,
        "p99_ms": int(percentiles[2]) / 1000,
        "failed": int(percentiles[3]),
    }
    return Measurement(1 / rate, memory_of(leader), None, note)


@dataclass(frozen=True)
class Contestant:
    """A server that runs, and what it is asked for."""

    name: str
    port: int
    leader: int
    paths: Sequence[str]

    def load(self, seconds: int, work: Path, connections: int = CONNECTIONS) -> Measurement:
        found = load(self.port, self.paths, seconds, work, self.leader, connections)
        if isinstance(found.note, dict) and found.note["failed"]:
            raise SystemExit(f"{self.name}: {found.note['failed']} requests failed")
        return found


def in_turn(
    contestants: Sequence[Contestant], seconds: int, work: Path
) -> dict[str, list[Measurement]]:
    """Each of them `TURNS` times, one after the other, when each has been warmed up."""
    for one in contestants:
        one.load(2, work)
    found: dict[str, list[Measurement]] = {one.name: [] for one in contestants}
    for _ in range(TURNS):
        for one in contestants:
            found[one.name].append(one.load(seconds, work))
    return found


def middle(measured: Sequence[Measurement]) -> Measurement:
    """The median; its note has the best rate, and medians of the rest.

    On a machine with other work the processor time of a request says more than the rate.
    """
    ordered = sorted(measured, key=lambda one: one.seconds)
    notes = [one.note for one in measured if isinstance(one.note, dict)]
    median = ordered[len(ordered) // 2]

    def median_of(name: str) -> float:
        return statistics.median(float(note[name]) for note in notes)

    note = {
        "best_per_second": max(note["requests_per_second"] for note in notes),
        "median_per_second": round(1 / median.seconds),
        "processor_us": median_of("processor_us"),
        "p99_ms": median_of("p99_ms"),
    }
    return Measurement(median.seconds, median.peak_mb, None, note)


def serve(source: Path, port: int) -> list[str]:
    comal = str(Path(sys.executable).parent / "comal")
    options = ["--port", str(port), "--workers", "1", "--quiet"]
    return [comal, "serve", str(source), *options]


def _row(
    case: str,
    ours: Measurement,
    peer: Measurement | None,
    target: str,
    spread: tuple[float, float] | None = None,
) -> Row:
    row = Row(case, ours, peer, target, spread or (ours.seconds, ours.seconds))
    print(row.line(), flush=True)
    return row


def _paths(pattern: str) -> list[str]:
    tiles = list(addresses(TILES))
    random.Random(3).shuffle(tiles)
    return [pattern.format(*tile) for tile in tiles]


def _prepare(work: Path) -> None:
    """The same tiles as MBTiles, as loose files and as Tapalcatl 2; they are gzip throughout."""
    write_mbtiles(work / "tiles.mbtiles", TILES)
    with sqlite3.connect(work / "tiles.mbtiles") as base:
        # Some servers look inside: the same noise, not compressed any further.
        base.create_function("as_gzip", 1, lambda data: gzip.compress(data[4:], 0, mtime=0))
        base.execute("UPDATE tiles SET tile_data = as_gzip(tile_data)")
        for z, x, row, data in base.execute("SELECT * FROM tiles"):
            path = work / "loose" / str(z) / str(x) / f"{(1 << z) - 1 - row}.mvt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    OURS.measure("prepare", [str(work), str(TILES)])


@contextmanager
def contestant(
    name: str, words: Sequence[str], port: int, pattern: str, work: Path
) -> Iterator[Contestant]:
    """A server that answers a tile as the loose file has it."""
    with running(words, port, pattern.format(0, 0, 0), work) as leader:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}" + pattern.format(5, 3, 3),
            headers={"Accept-Encoding": "gzip"},
        )
        with urllib.request.urlopen(request) as answer:
            found = gzip.decompress(answer.read())
        if found != gzip.decompress((work / "loose/5/3/3.mvt").read_bytes()):
            raise SystemExit(f"{name} serves something else")
        yield Contestant(name, port, leader, _paths(pattern))


def _ours(work: Path) -> AbstractContextManager[Contestant]:
    port = free_port()
    return contestant("comal", serve(work / "tiles", port), port, "/tiles/{}/{}/{}.mvt", work)


def _nginx(work: Path) -> AbstractContextManager[Contestant]:
    port = free_port()
    (work / "nginx.conf").write_text(NGINX.format(work=work, port=port))
    words = ["nginx", "-p", str(work), "-c", str(work / "nginx.conf")]
    return contestant("nginx", words, port, "/{}/{}/{}.mvt", work)


def _tileserver(work: Path) -> AbstractContextManager[Contestant]:
    port = free_port()
    (work / "empty").mkdir()
    paths = {**TILESERVER_CONFIG["options"]["paths"], "root": str(work), "mbtiles": str(work)}
    config = {**TILESERVER_CONFIG, "options": {"paths": paths}}
    (work / "tileserver.json").write_text(json.dumps(config))
    words = ["node", str(TILESERVER), "-c", str(work / "tileserver.json"), "-p", str(port)]
    pattern = "/data/tiles/{}/{}/{}.pbf"
    return contestant("tileserver", [*words, "-b", "127.0.0.1"], port, pattern, work)


def vector(work: Path, seconds: int, repeats: int) -> Iterator[Row]:
    """Tiles of 12 KB from Tapalcatl 2, with one worker each, in turn."""
    del repeats
    _prepare(work)
    with ExitStack() as stack:
        sides = [_ours(work), _nginx(work)]
        if TILESERVER.exists():
            sides.append(_tileserver(work))
        found = in_turn([stack.enter_context(side) for side in sides], seconds, work)
    for peer, target in (("nginx", "1 x"), ("tileserver", "5 x")):
        if peer in found:
            ours, theirs = middle(found["comal"]), middle(found[peer])
            seconds_each = [one.seconds for one in found["comal"]]
            spread = min(seconds_each), max(seconds_each)
            yield _row(f"12 KB tiles, {peer}", ours, theirs, target, spread)


def bounded(work: Path, seconds: int, repeats: int) -> Iterator[Row]:
    """Memory over many requests, and with a thousand connections."""
    del repeats
    _prepare(work)
    with _ours(work) as one:
        one.load(seconds, work)
        before, asked = memory_of(one.leader), 0
        while asked < REQUESTS:
            last = one.load(seconds, work)
            asked += round(seconds / last.seconds)
        yield _row(f"{asked} requests more, {before:.0f} MB before", last, None, "flat")
        yield _row("1 000 connections", one.load(seconds, work, 1_000), None, "no errors")


def raster(work: Path, seconds: int, repeats: int) -> Iterator[Row]:
    """PNG tiles drawn from RaQuet and from the COG of the same raster."""
    del repeats
    if not TITILER.exists():
        print("without titiler")
        return
    PEER_RAQUET.measure("prepare", [str(work), "rgb", "2048"])
    OURS_RAQUET.measure("prepare", [str(work), "rgb"])
    cog = work / "rgb_cog.tif"
    scheme = ["-co", "TILING_SCHEME=GoogleMapsCompatible", "-co", "COMPRESS=DEFLATE"]
    translate = ["gdal_translate", "-q", "-of", "COG", *scheme, str(work / "rgb.tif"), str(cog)]
    subprocess.run(translate, check=True)
    tiles = _tiles_of(work / "rgb.parquet")
    port = free_port()
    first = "/rgb/{}/{}/{}.png".format(*tiles[0])
    with running(serve(work / "rgb.parquet", port), port, first, work) as leader:
        paths = ["/rgb/{}/{}/{}.png".format(*tile) for tile in tiles]
        # Each tile once: what a cache of drawn tiles would give is not what is asked for.
        ours = load(port, _varied(paths), seconds, work, leader)
    port = free_port()
    words = [str(TITILER), "-m", "uvicorn", "titiler_app:app", "--port", str(port)]
    pattern = "/tiles/WebMercatorQuad/{}/{}/{}.png?url=" + str(cog)
    os.environ["PYTHONPATH"] = str(HERE / "cases")
    with running([*words, "--log-level", "error"], port, pattern.format(*tiles[0]), work) as leader:
        peer = load(port, [pattern.format(*tile) for tile in tiles], seconds, work, leader)
    yield _row("RaQuet PNG tiles, titiler", ours, peer, "5 x")


def _varied(paths: Sequence[str]) -> list[str]:
    """The tiles over and over with another stretch each time, so that every answer is drawn."""
    return [f"{path}?rescale=0,{255 - turn}" for turn in range(120) for path in paths]


def _tiles_of(path: Path) -> list[tuple[int, int, int]]:
    from comal import raquet
    from comal.grid import quadbin

    with raquet.open(path) as file:
        zooms, xs, ys = quadbin.tiles(file.cells())
    tiles = list(zip(zooms.tolist(), xs.tolist(), ys.tolist(), strict=True))
    random.Random(3).shuffle(tiles)
    return tiles


if __name__ == "__main__":
    cases = {"vector": vector, "bounded": bounded, "raster": raster}
    run(cases, size=4, unit="seconds of load", repeats=1)
