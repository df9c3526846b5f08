"""Loading for training: comal beside WebDataset, LitData, MosaicML, SPDL, Grain and loose files.

    python benchmarks/training.py                          every group
    python benchmarks/training.py chips decoder            the groups whose names begin so
    python benchmarks/training.py --size 200 --repeats 1   a quick look
    python benchmarks/training.py --only folder grain      only these sides
    python benchmarks/training.py chips --tiled            chips of one tile, not of 64 strips

All sides read the same GeoTIFFs of 256 x 256 x 4 uint16 (deflate, predictor 2) or bytes of 1 KB in
batches of 32; peers decode by rasterio. The first epoch is compared, the second is timed. comal
runs in this environment, which needs torch; ``scripts/training-envs`` makes those of the peers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import HERE, INTEROP, Measurement, Side, machine, work_directory

OWN = ("comal", "comal in DataLoader")
PEERS = ("folder", "webdataset", "litdata", "mosaicml", "spdl", "grain")
RIVALS = ("webdataset", "litdata", "mosaicml")
"""Those whose best is the measure."""
COLUMNS = [(workers, order) for workers in ("0", "2") for order in ("sequential", "random")]
SMALL = 10
"""So many small samples for one chip."""

Sides = Mapping[str, Side]


def peer(name: str) -> Side:
    python = INTEROP / f"train-{name}" / "bin" / "python"
    return Side(name, str(python), HERE / "cases" / "peer_training.py")


def there(only: Sequence[str]) -> Sides:
    """The sides that have been made, of those that are asked for."""
    ours = HERE / "cases" / "ours_training.py"
    found = {name: Side(name, sys.executable, ours) for name in OWN}
    for side in map(peer, PEERS):
        if Path(side.python).exists():
            found[side.name] = side
        else:
            print(f"without {side.name}, for train-{side.name} has not been made\n")
    return {name: side for name, side in found.items() if not only or name in only}


def race(
    sides: Sides, case: str, arguments: Mapping[str, Sequence[str]], repeats: int
) -> Mapping[str, Measurement]:
    """All sides in turn; the median of each, and a stop when their answers differ."""
    turns: dict[str, list[Measurement]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            turns[name].append(side.measure(case, arguments[name]))
    checks = {name: found[0].check for name, found in turns.items()}
    if any(check != next(iter(checks.values())) for check in checks.values()):
        raise SystemExit(f"{case}: the sides disagree: {checks}")
    middle = repeats // 2
    return {n: sorted(found, key=lambda m: m.seconds)[middle] for n, found in turns.items()}


def table(headings: Sequence[str], rows: Mapping[str, Sequence[object]]) -> None:
    print("|", " | ".join(headings), "|")
    print("|---" + "|---:" * (len(headings) - 1) + "|")
    for name, cells in rows.items():
        print("|", " | ".join([name, *map(str, cells)]), "|")
    print(flush=True)


def epochs(work: str, sides: Sides, kind: str, count: int, repeats: int) -> None:
    """Samples a second, the ratio to the best rival, and microseconds of processor for each."""
    rows: dict[str, list[str]] = {name: [] for name in sides}
    for column in COLUMNS:
        arguments = {name: [work, name, kind, *column] for name in sides}
        found = race(sides, "epoch", arguments, repeats)
        best = min((one.seconds for name, one in found.items() if name in RIVALS), default=0)
        for name, one in found.items():
            used = float(str(one.note)) / count * 1e6
            speed = f"{count / one.seconds:.0f} ({best / one.seconds:.2f} x)"
            rows[name].append(f"{speed} {used:.0f} us")
    table([f"{kind} a second", *(f"{w} workers, {o}" for w, o in COLUMNS)], rows)


def chips(work: str, sides: Sides, size: int, repeats: int) -> None:
    epochs(work, sides, "chips", size, repeats)


def small(work: str, sides: Sides, size: int, repeats: int) -> None:
    epochs(work, sides, "small", size * SMALL, repeats)


def memory(work: str, sides: Sides, size: int, repeats: int) -> None:
    """The largest worker in each of three epochs: of two, and of eight beside torch alone."""
    many = {name: sides["comal"] for name in (OWN[1], "torch alone") if "comal" in sides}
    for workers, chosen in (("2", sides), ("8", many)):
        rows = {}
        for name, side in chosen.items():
            note = side.measure("memory", [work, name, "chips", workers, "random"]).note
            assert isinstance(note, list)
            rows[name] = [" ".join(str(epoch[part]) for epoch in note) for part in range(3)]
        headings = ["main process", f"the largest of {workers} workers", "shared with no one"]
        table(["MB in three epochs", *headings], rows)


def decoder(work: str, sides: Sides, size: int, repeats: int) -> None:
    decoders = {"rasterio": "folder", "tifffile": "folder", "comal": "comal"}
    chosen = {name: sides[side] for name, side in decoders.items() if side in sides}
    rows: dict[str, list[str]] = {name: [] for name in chosen}
    for threads in ("1", "2"):
        arguments = {name: [work, name, threads] for name in chosen}
        for name, one in race(chosen, "decoder", arguments, repeats).items():
            rows[name].append(f"{size / one.seconds:.0f}")
    table(["chips a second from memory", "1 thread", "2 threads"], rows)


def alone(work: str, sides: Sides, cases: Sequence[str], repeats: int) -> None:
    """What is asked of comal alone."""
    rows = {}
    for case in cases if "comal" in sides else ():
        name, *arguments = case.split()
        found = race({"comal": sides["comal"]}, name, {"comal": [work, *arguments]}, repeats)
        one = found["comal"]
        rows[case] = [f"{one.seconds:.3f}", f"{one.peak_mb:.0f}", one.note or ""]
    table(["comal alone", "s", "MB", ""], rows)


def remote(work: str, sides: Sides, size: int, repeats: int) -> None:
    """Chips over HTTP with 30 ms latency, loops with a step, and S3 as moto makes it."""
    cases = ["bound", "remote bytes 0", "remote bytes 2", "remote chips 2"]
    cases += ["waiting bytes", "waiting chips"]
    cases += ["remote_bucket bytes 96"]
    alone(work, sides, cases, repeats)


def first(work: str, sides: Sides, size: int, repeats: int) -> None:
    if "comal" in sides:
        sides["comal"].measure("prepare_million", [work, str(size * 500)])
    alone(work, sides, ["first_batch local", "first_batch remote"], repeats)


def order(work: str, sides: Sides, size: int, repeats: int) -> None:
    """How well each order mixes and what it asks of a store; a permutation of ten million."""
    if "comal" not in sides:
        return
    rows: dict[str, list[object]] = {}
    blocks = ["64 32", "16 32", "4 32", "2 16", "64 128", "64 8", "4 8", "8 4"]
    for shuffle in ("full", *blocks, "archive"):
        found = sides["comal"].measure("order", [work, *shuffle.split()]).note
        assert isinstance(found, dict)
        rows[shuffle], headings = list(found.values()), list(found)
    table(["block, window", *headings], rows)
    alone(work, sides, ["permutation 10000000"], repeats)


GROUPS = {
    "chips": (chips, ["chips"]),
    "small": (small, ["small"]),
    "memory": (memory, ["chips"]),
    "decoder": (decoder, []),
    "remote": (remote, ["chips", "small"]),
    "first": (first, ["small"]),
    "order": (order, []),
}
"""What is measured, and the samples that have to be written in all formats for it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; all if none is given")
    parser.add_argument("--only", nargs="+", default=[], help="these sides")
    parser.add_argument("--size", type=int, default=2000, help="chips; 2000 by default")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tiled", action="store_true", help="chips of one tile each")
    options = parser.parse_args()
    sides, prepared = there(options.only), set()
    print(f"{machine()}; {options.size} chips, {options.size * SMALL} small samples\n", flush=True)
    with work_directory() as folder:
        work = str(folder)
        maker = Side("samples", sys.executable, HERE / "cases" / "peer_training.py")
        for kind, count in (("chips", options.size), ("small", options.size * SMALL)):
            maker.measure("samples", [work, kind, str(count), *["tiled"][: options.tiled]])
        for name, (group, kinds) in GROUPS.items():
            if options.groups and not name.startswith(tuple(options.groups)):
                continue
            for side in sides.values():
                for kind in kinds:
                    if (kind, side.name) not in prepared and side.name != OWN[1]:
                        side.measure("prepare", [work, side.name, kind])
                    prepared.add((kind, side.name))
            group(work, sides, options.size, options.repeats)


if __name__ == "__main__":
    main()
