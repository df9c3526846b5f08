"""RaQuet against its reference converter, GDAL's COG writer, and other ways to read a tile.

    python benchmarks/raquet.py                   every case
    python benchmarks/raquet.py convert           the cases whose names begin so
    python benchmarks/raquet.py --size 25         a quick look: percent of the rasters' sides

Conversions are whole commands: wall time, processor time and peak memory of the process and of
what it starts. ``scripts/interop-envs`` makes the environment of the reference converter, which
runs on Debian's GDAL 3.6 as `gdal_translate` does. That of rio-cogeo is made so:

    python -m venv .interop/rio-cogeo && .interop/rio-cogeo/bin/pip install rio-cogeo==7.0.4
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from harness import HERE, INTEROP, Measurement, Row, Side, compare, run

OURS = Side("comal", sys.executable, HERE / "cases" / "ours_raquet.py")
PEER = Side("peer", sys.executable, HERE / "cases" / "peer_raquet.py")
REFERENCE = INTEROP / "raquet-0.9.0" / "bin" / "python"
RIO = INTEROP / "rio-cogeo" / "bin" / "rio"
SIDES = {"rgb": 4_096, "dem": 10_000}
THREADS = 2


def _command(words: list[str], output: Path) -> tuple[Measurement, float]:
    """Run a command: its wall time and peak memory, and the processor time of all its threads."""
    output.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not output.exists():
        raise SystemExit(f"{words[0]} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    size = output.stat().st_size / 1e6
    note = {"cpu_seconds": round(cpu, 1), "output_mb": round(size, 1)}
    return Measurement(seconds, usage.ru_maxrss / 1024, None, note), cpu


def _ours(source: Path, output: Path) -> list[str]:
    comal = str(Path(sys.executable).parent / "comal")
    return [comal, "raquet", "create", str(source), str(output), "--resampling", "bilinear"]


def _peers(source: Path, output: Path) -> dict[str, list[str]]:
    cog = ["-of", "COG", "-co", "TILING_SCHEME=GoogleMapsCompatible", "-co", "COMPRESS=DEFLATE"]
    threads = ["-co", f"NUM_THREADS={THREADS}", "-r", "bilinear"]
    words = [str(source), str(output)]
    return {
        "raquet-io": [
            str(REFERENCE), "-I", str(HERE / "cases" / "raquet_io.py"), "convert", "raster",
            *words, "--resampling", "bilinear",
        ],
        "gdal_translate COG": ["gdal_translate", "-q", *cog, *threads, *words],
        "rio-cogeo": [
            str(RIO), "cogeo", "create", "--web-optimized", "-q", "--resampling", "bilinear",
            "--overview-resampling", "bilinear", *words,
        ],
    }  # fmt: skip


def convert(work: Path, size: int, repeats: int) -> Iterator[Row]:
    for name, side in SIDES.items():
        PEER.measure("prepare", [str(work), name, str(side * size // 100)])
        source = work / f"{name}.tif"
        for peer, words in _peers(source, work / "peer_output").items():
            if shutil.which(words[0]) is None:
                print(f"without {peer}", file=sys.stderr)
                continue
            mine, theirs = [], []
            for _ in range(repeats):
                mine.append(_command(_ours(source, work / "ours.parquet"), work / "ours.parquet"))
                theirs.append(_command(words, work / "peer_output"))
            for what, pick in (("wall", 0), ("processor", 1)):
                yield _row(f"{name}: {what}, {peer}", mine, theirs, pick, peer)


def _row(
    case: str,
    mine: list[tuple[Measurement, float]],
    theirs: list[tuple[Measurement, float]],
    pick: int,
    peer: str,
) -> Row:
    """The median run of either side, by wall or by processor time."""

    def middle(runs: list[tuple[Measurement, float]]) -> Measurement:
        ordered = sorted(runs, key=lambda one: one[1] if pick else one[0].seconds)
        chosen, cpu = ordered[len(ordered) // 2]
        return Measurement(cpu if pick else chosen.seconds, chosen.peak_mb, None, chosen.note)

    times = [cpu if pick else one.seconds for one, cpu in mine]
    target = "2 x, < 400 MB" if peer == "raquet-io" else "not above, < 400 MB"
    row = Row(case, middle(mine), middle(theirs), target, (min(times), max(times)))
    print(row.line(), flush=True)
    return row


def memory(work: Path, size: int, repeats: int) -> Iterator[Row]:
    """Peak memory as the raster grows four-fold, twice."""
    del repeats
    for part in (25, 50, 100):
        PEER.measure("prepare", [str(work), "dem", str(SIDES["dem"] * part * size // 10_000)])
        found = _command(_ours(work / "dem.tif", work / "ours.parquet"), work / "ours.parquet")
        yield _row(f"memory, dem at {part} % of its side", [found], [found], 0, "raquet-io")


def read(work: Path, size: int, repeats: int) -> Iterator[Row]:
    for name, side in SIDES.items():
        PEER.measure("prepare", [str(work), name, str(side * size // 100)])
        OURS.measure("prepare", [str(work), name])
        PEER.measure("prepare_sqlite", [str(work), name])
        source = work / f"{name}.tif"
        peers = _peers(source, work / f"{name}_cog.tif")
        subprocess.run(peers["gdal_translate COG"], check=True)
        cases = [
            ("tiles_pyarrow", "20 x"),
            ("tiles_sqlite", "2 x"),
            ("together_sqlite", "2 x"),
            ("points_cog", "> 0.5"),
            ("window_cog", "> 0.5"),
        ]
        if REFERENCE.exists():
            words = _peers(source, work / f"{name}_reference.parquet")["raquet-io"]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            cases += [
                (f"{what}_{peer}", "ahead")
                for what in ("points", "window")
                for peer in ("duckdb", "pyarrow", "reference_duckdb", "reference_pyarrow")
            ]
            cases.append(("points_sql_duckdb", "reported"))
        for case, target in cases:
            row = compare(case, OURS, PEER, [str(work), name], repeats=repeats, target=target)
            yield replace(row, case=f"{name}: {case}")


if __name__ == "__main__":
    run({"convert": convert, "memory": memory, "read": read}, size=100, unit="percent of the side")
