"""Load a server for a long time while its sources are swapped, and watch what it holds.

    python scripts/soak.py --minutes 60

Clients ask for tiles, pixels, samples and pages, and one request in twenty is hostile. Every few
seconds each source is replaced by another version of itself, so that an answer that mixes two
versions shows. The run fails on a mix, on an answer that a request must not get, on a descriptor
that stays open, and on memory that grows; see the test plan's rows "soak" and "readers x swaps".
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import rasterio
from rasterio.transform import from_bounds

from comal import raquet, taco, tapalcatl

SAMPLE_BYTES = 200_000
SAMPLES = 50
ZOOM = 3
VERSIONS = (1, 2)
MIB = 1 << 20
TIMES = 10
"""Times that memory is looked at in a run, after the first third, in which caches fill."""


def main() -> int:
    """Run the soak, print what was seen, and return the exit code."""
    options = _options()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for version in VERSIONS:
            make_sources(folder / f"version{version}", version)
        shown = folder / "shown"
        shown.mkdir()
        swap(folder, shown, VERSIONS[0])
        with served(shown) as (port, process):
            seen = load(port, process.pid, folder, shown, options)
    return report(seen, options.minutes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Load a server for long while sources change.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=200, help="requests a second")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--swap-seconds", type=float, default=5)
    return parser.parse_args()


# -- sources -------------------------------------------------------------------------------------


def make_sources(folder: Path, version: int) -> None:
    """Write a raster, a tile archive and samples in which every value is `version`."""
    folder.mkdir(parents=True)
    profile = {
        "driver": "GTiff",
        "width": 1024,
        "height": 1024,
        "count": 1,
        "dtype": "uint8",
        "crs": "EPSG:3857",
        "transform": from_bounds(0, 0, 1_000_000, 1_000_000, 1024, 1024),
    }
    with rasterio.open(folder / "raster.tif", "w", **profile) as raster:
        raster.write(np.full((1, 1024, 1024), version, np.uint8))
    raquet.write(folder / "raster.tif", folder / "raster.parquet")
    (folder / "raster.tif").unlink()
    tiles = ((z, x, y, tile(z, x, y, version)) for z, x, y in places())
    tapalcatl.build(tiles, folder / "tiles.zip")
    data = bytes([version]) * SAMPLE_BYTES
    samples = [taco.Sample(id=f"s{number}", path=data) for number in range(SAMPLES)]
    taco.create(
        taco.Taco(
            tortilla=taco.Tortilla(samples=samples),
            id="soak",
            dataset_version="1.0.0",
            description="Samples of one value",
            licenses=["CC0-1.0"],
            providers=[{"name": "comal"}],
            tasks=["classification"],
        ),
        folder / "samples.tacozip",
    )


def places() -> list[tuple[int, int, int]]:
    """Every tile of zooms 0 to `ZOOM`."""
    return [(z, x, y) for z in range(ZOOM + 1) for x in range(1 << z) for y in range(1 << z)]


def tile(z: int, x: int, y: int, version: int) -> bytes:
    """The bytes of a tile: they tell where it belongs and of which version it is."""
    return b"\x89PNG\r\n\x1a\n" + f"{z}/{x}/{y}/".encode() + bytes([version]) * 12_000


def swap(folder: Path, shown: Path, version: int) -> None:
    """Put a version of every source in the place of what is shown, each at once."""
    for source in (folder / f"version{version}").iterdir():
        copy = shown / f".{source.name}.next"
        copy.write_bytes(source.read_bytes())
        copy.replace(shown / source.name)


# -- server --------------------------------------------------------------------------------------


@contextmanager
def served(shown: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """`comal serve` with one worker on a free port, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "comal", "serve", "--quiet", "--port", str(port)]
    sources = [str(shown / name) for name in ("raster.parquet", "tiles.zip", "samples.tacozip")]
    # Each change of a source is a line of the log.
    process = subprocess.Popen([*command, *sources], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                if (
                    ask(http.client.HTTPConnection("127.0.0.1", port, timeout=5), "/readyz")[0]
                    == 200
                ):
                    break
            except OSError:
                time.sleep(0.1)
        yield port, process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)  # a worker is given 30 seconds


def ask(connection: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    """Status and body of a GET."""
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def held(pid: int) -> tuple[int, int]:
    """Resident bytes and open descriptors of a process with its children."""
    memory = descriptors = 0
    for each in family(pid):
        status = Path(f"/proc/{each}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        memory += int(line.split()[1]) * 1024
        descriptors += len(list(Path(f"/proc/{each}/fd").iterdir()))
    return memory, descriptors


# -- requests ------------------------------------------------------------------------------------


def whole(body: bytes, *versions: bytes) -> bool:
    """Whether an answer is one of the versions and no mixture."""
    return body in versions


def get_tile(chance: random.Random) -> tuple[str, Callable[[int, bytes], bool]]:
    """A tile of the archive: the bytes of one version."""
    z, x, y = chance.choice(places())
    versions = [tile(z, x, y, version) for version in VERSIONS]
    return f"/tiles/{z}/{x}/{y}.png", lambda status, body: status == 200 and whole(body, *versions)


def get_pixels(chance: random.Random) -> tuple[str, Callable[[int, bytes], bool]]:
    """A tile of the raster as an array: one value, and 0 outside of the raster."""

    def right(status: int, body: bytes) -> bool:
        if status == 404:
            return True
        values = set(np.unique(np.load(io.BytesIO(body))[0]).tolist()) - {0}
        return status == 200 and values <= set(VERSIONS) and len(values) <= 1

    x, y = chance.randrange(128, 135), chance.randrange(121, 128)
    return f"/raster/8/{x}/{y}.npy", right


def get_sample(chance: random.Random) -> tuple[str, Callable[[int, bytes], bool]]:
    """The bytes of a sample: one value."""
    versions = [bytes([version]) * SAMPLE_BYTES for version in VERSIONS]
    number = chance.randrange(SAMPLES)
    return f"/samples/data/s{number}", lambda status, body: status == 200 and whole(body, *versions)


def get_page(chance: random.Random) -> tuple[str, Callable[[int, bytes], bool]]:
    """A document that is made from a query."""
    page = chance.choice(
        [
            "/sources.json",
            f"/samples/items?limit=20&offset={chance.randrange(SAMPLES)}",
            "/samples/table?filter=id%20LIKE%20%27s1%25%27",
            "/raster/statistics",
            "/raster/point/4.0,4.0",
            "/tiles.json",
        ]
    )
    return page, lambda status, body: status == 200 and isinstance(json.loads(body), dict)


def get_hostile(chance: random.Random) -> tuple[str, Callable[[int, bytes], bool]]:
    """What no honest client asks for: an error of the client, and no mistake of ours."""
    page = chance.choice(
        [
            "/tiles/99/0/0.png",
            "/tiles/1/-1/0.png",
            "/tiles/..%2f..%2fetc/passwd",
            "/raster/8/130/125.png?expression=__import__(1)",
            "/raster/8/130/125.png?rescale=nan,nan",
            "/samples/items?filter=1%3D1%3B%20DROP%20TABLE%20data",
            "/samples/data/..%2f..%2fsamples.tacozip",
            "/samples/items?bbox=1,2,3",
            "/raster/point/900,900",
            "/" + "x" * 9000,
        ]
    )
    return page, lambda status, _: 400 <= status < 500


REQUESTS = (
    *[get_tile] * 12,
    *[get_pixels] * 3,
    *[get_sample] * 2,
    *[get_page] * 2,
    get_hostile,
)
PASSING = {503}
"""A source that is replaced while it is read may ask to come again; nothing else may fail."""


@dataclass
class Seen:
    """What came of the run."""

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    swaps: int = 0


def load(port: int, pid: int, folder: Path, shown: Path, options: argparse.Namespace) -> Seen:
    """Ask until the time is over, swap the sources, and look at the server now and then."""
    seen = Seen()
    until = time.monotonic() + options.minutes * 60
    clients = [
        threading.Thread(target=client, args=(number, port, until, options, seen))
        for number in range(options.clients)
    ]
    for each in clients:
        each.start()
    began = time.monotonic()
    warm = began + (until - began) / 3
    looks = iter([warm + (until - warm) * part / TIMES for part in range(TIMES)])
    look = next(looks)
    while time.monotonic() < until:
        time.sleep(min(options.swap_seconds, max(0, until - time.monotonic())))
        seen.swaps += 1
        swap(folder, shown, VERSIONS[seen.swaps % len(VERSIONS)])
        if time.monotonic() >= look:
            memory, descriptors = held(pid)
            seen.memory.append(memory)
            seen.descriptors.append(descriptors)
            look = next(looks, until)
    for each in clients:
        each.join()
    return seen


def client(number: int, port: int, until: float, options: argparse.Namespace, seen: Seen) -> None:
    """Ask over one connection at an even pace."""
    chance = random.Random(number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    pause = options.clients / options.rate
    due = time.monotonic()
    while time.monotonic() < until:
        path, right = chance.choice(REQUESTS)(chance)
        try:
            status, body = ask(connection, path)
        except (OSError, http.client.HTTPException) as error:
            # The server may close a connection, but not without an answer.
            seen.wrong.append(f"{path[:80]}: {error!r}")
            connection.close()
            continue
        seen.statuses[status] += 1
        if status not in PASSING and not right(status, body):
            seen.wrong.append(f"{path[:80]}: {status} {body[:80]!r}")
        due += pause
        time.sleep(max(0, due - time.monotonic()))


# -- report --------------------------------------------------------------------------------------


def report(seen: Seen, minutes: float) -> int:
    """Print the figures and return 0 when all is well."""
    print(f"{sum(seen.statuses.values())} requests, {seen.swaps} swaps of all sources")
    print(
        "answers:", ", ".join(f"{count} x {code}" for code, count in sorted(seen.statuses.items()))
    )
    print("memory, MiB:", *(memory // MIB for memory in seen.memory))
    print("descriptors:", *seen.descriptors)
    for line in seen.wrong[:20]:
        print("wrong:", line)
    growth = slope(seen.memory) * TIMES * 1.5 / minutes * 60 / MIB
    print(f"memory grows by {growth:.1f} MiB an hour, as far as {minutes:g} minutes can tell")
    # Below an hour the noise of an allocator outweighs a leak of 1 MiB an hour.
    fault = len(seen.wrong) or max(seen.descriptors) > min(seen.descriptors) + 16
    leak = growth > 1 if minutes >= 60 else max(seen.memory) > seen.memory[0] + 32 * MIB
    return 1 if fault or leak else 0


def slope(values: list[int]) -> float:
    """What a straight line through evenly spaced values rises by a step."""
    return float(np.polyfit(np.arange(len(values)), values, 1)[0]) if len(values) > 1 else 0.0


if __name__ == "__main__":
    sys.exit(main())
