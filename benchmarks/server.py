"""comal serve against nginx, tileserver-gl-light and titiler, under wrk on the loopback.

    python benchmarks/server.py                   every case
    python benchmarks/server.py vector            the cases whose names begin so
    python benchmarks/server.py --size 4          seconds of each run

Needs Debian's wrk and nginx. The other two servers live beside the environments of the tests:

    npm install --prefix .interop/npm tileserver-gl-light
    python -m venv .interop/titiler && .interop/titiler/bin/pip install titiler.core uvicorn

Every server has one worker. A request is for a tile drawn at random; the list is the same for all.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "cases"))

from tiles import addresses, write_mbtiles

from harness import HERE, INTEROP, Measurement, Row, Side, run

OURS = Side("comal", sys.executable, HERE / "cases" / "ours_tapalcatl.py")
OURS_RAQUET = Side("comal", sys.executable, HERE / "cases" / "ours_raquet.py")
PEER_RAQUET = Side("peer", sys.executable, HERE / "cases" / "peer_raquet.py")
CONNECTIONS = 32
TILES = 21_845
TITILER = INTEROP / "titiler" / "bin" / "python"
TILESERVER = INTEROP / "npm" / "node_modules" / "tileserver-gl-light" / "src" / "main.js"

NGINX = """
worker_processes 1;
daemon off;
pid {work}/nginx.pid;
error_log {work}/nginx.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush off;
    open_file_cache max=50000 inactive=60s;
    keepalive_requests 1000000;
    types {{ application/vnd.mapbox-vector-tile mvt; }}
    server {{
        listen 127.0.0.1:{port};
        root {work}/loose;
        location / {{ add_header Content-Encoding gzip; }}
    }}
}}
"""

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


def memory_of(leader: int) -> float:
    """Megabytes of a process and of all that it started."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.getpgid(int(status.parent.name)) == leader:
                resident = re.search(r"VmRSS:\s+(\d+)", status.read_text())
                total += int(resident[1]) if resident else 0
        except (OSError, ProcessLookupError):
            continue
    return total / 1024


def load(port: int, paths: Sequence[str], seconds: int, work: Path, leader: int) -> Measurement:
    """Seconds a request under `CONNECTIONS`, with its percentiles as the note."""
    (work / "paths").write_text("\n".join(paths))
    (work / "load.lua").write_text(SCRIPT.format(paths=work / "paths"))
    options = [f"-c{CONNECTIONS}", "-t1", f"-d{seconds}s", "-s", str(work / "load.lua")]
    done = subprocess.run(
        ["wrk", *options, f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=True
    )
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    percentiles = re.search(r"p50 (\d+) p99 (\d+) bad (\d+)", done.stdout)
    assert found is not None, done.stdout
    assert percentiles is not None, done.stdout
    rate = float(found[1])
    note = {
        "requests_per_second": round(rate),
        "p50_ms": int(percentiles[1]) / 1000,
        "p99_ms": int(percentiles[2]) / 1000,
        "failed": int(percentiles[3]),
    }
    return Measurement(1 / rate, memory_of(leader), None, note)


def serve(source: Path, port: int) -> list[str]:
    comal = str(Path(sys.executable).parent / "comal")
    return [comal, "serve", str(source), "--port", str(port), "--workers", "1", "--quiet"]


def _row(case: str, ours: Measurement, peer: Measurement, target: str) -> Row:
    row = Row(case, ours, peer, target, (ours.seconds, ours.seconds))
    print(row.line(), flush=True)
    return row


def _paths(pattern: str) -> list[str]:
    tiles = list(addresses(TILES))
    random.Random(3).shuffle(tiles)
    return [pattern.format(*tile) for tile in tiles]


def _loose(work: Path) -> None:
    from tiles import payload

    for z, x, y in addresses(TILES):
        path = work / "loose" / str(z) / str(x) / f"{y}.mvt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(payload(z, x, y))


def vector(work: Path, seconds: int, repeats: int) -> Iterator[Row]:
    """Tiles of 12 KB from Tapalcatl 2, with one worker each."""
    del repeats
    write_mbtiles(work / "tiles.mbtiles", TILES)
    OURS.measure("prepare", [str(work), str(TILES)])
    port = free_port()
    with running(serve(work / "tiles", port), port, "/tiles/0/0/0.mvt", work) as leader:
        paths = _paths("/tiles/{}/{}/{}.mvt")
        load(port, paths, 2, work, leader)
        before = memory_of(leader)
        ours = load(port, paths, seconds, work, leader)
        asked = 0
        while asked < 200_000:
            asked += round(seconds / load(port, paths, seconds, work, leader).seconds)
        print(f"\nmemory: {before:.0f} MB, after {asked} requests {memory_of(leader):.0f} MB\n")
    _loose(work)
    port = free_port()
    (work / "nginx.conf").write_text(NGINX.format(work=work, port=port))
    words = ["nginx", "-p", str(work), "-c", str(work / "nginx.conf")]
    with running(words, port, "/0/0/0.mvt", work) as leader:
        paths = _paths("/{}/{}/{}.mvt")
        load(port, paths, 2, work, leader)
        peer = load(port, paths, seconds, work, leader)
    yield _row("12 KB tiles, nginx with loose files", ours, peer, "1 x")
    if TILESERVER.exists():
        port = free_port()
        words = ["node", str(TILESERVER), str(work / "tiles.mbtiles"), "-p", str(port)]
        with running([*words, "-b", "127.0.0.1"], port, "/data/tiles/0/0/0.pbf", work) as leader:
            paths = _paths("/data/tiles/{}/{}/{}.pbf")
            load(port, paths, 2, work, leader)
            peer = load(port, paths, seconds, work, leader)
        yield _row("12 KB tiles, tileserver-gl-light", ours, peer, "5 x")


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
    run({"vector": vector, "raster": raster}, size=8, unit="seconds of load", repeats=1)
