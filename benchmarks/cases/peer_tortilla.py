"""The Tortilla cases, with pytortilla and tacoreader."""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytortilla
import tacoreader
from pytortilla.datamodel import Sample, Samples

from harness import main_of_case

warnings.simplefilter("ignore")


def create_files(directory: str) -> dict[str, Any]:
    paths = sorted((Path(directory) / "files").iterdir())
    output = Path(directory) / "peer.tortilla"
    output.unlink(missing_ok=True)
    with contextlib.redirect_stdout(sys.stderr):
        start = time.perf_counter()
        samples = [
            Sample(id=path.name, file_format="BYTES", path=path, data_split="train")
            for path in paths
        ]
        pytortilla.create(Samples(samples=samples), output, quiet=True)
        seconds = time.perf_counter() - start
    frame = tacoreader.load(str(output))
    return {"seconds": seconds, "check": digest([frame.read(0), frame.read(len(paths) - 1)])}


def load_rows(directory: str) -> dict[str, Any]:
    path = str(Path(directory) / "rows.tortilla")
    start = time.perf_counter()
    frame = tacoreader.load(path)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "check": [len(frame), frame["internal:subfile"].iloc[-1]]}


def read_all(directory: str) -> dict[str, Any]:
    frame = tacoreader.load(str(Path(directory) / "ours.tortilla"))
    total = 0
    start = time.perf_counter()
    for row in range(len(frame)):
        total += len(frame.read(row))
    seconds = time.perf_counter() - start
    check = [total, digest([frame.read(0), frame.read(len(frame) - 1)])]
    return {"seconds": seconds, "check": check}


def nested_write(directory: str, count: str) -> dict[str, Any]:
    """A tenth of the samples: each starts a pool of processes."""
    rows = max(3, int(count) // 100)
    folder = Path(directory) / "peer_nested"
    folder.mkdir(exist_ok=True)
    for number in range(3):
        (folder / f"x{number}").write_bytes(bytes([number + 1]) * 1_000)
    with contextlib.redirect_stdout(sys.stderr):
        start = time.perf_counter()
        outer = []
        for row in range(rows):
            inner = [
                Sample(id=f"x{n}", file_format="BYTES", path=folder / f"x{n}") for n in range(3)
            ]
            path = folder / f"roi{row:06}.tortilla"
            pytortilla.create(Samples(samples=inner), path, quiet=True)
            outer.append(Sample(id=f"roi{row:06}", file_format="TORTILLA", path=path))
        target = Path(directory) / "peer_nested.tortilla"
        pytortilla.create(Samples(samples=outer), target, quiet=True)
    return {"seconds": (time.perf_counter() - start) / rows, "check": None}


def digest(data: list[bytes]) -> str:
    return hashlib.sha256(b"".join(data)).hexdigest()


if __name__ == "__main__":
    main_of_case(
        {
            "create_files": create_files,
            "load_rows": load_rows,
            "read_all": read_all,
            "nested_write": nested_write,
        }
    )
