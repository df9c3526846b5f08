"""The TACO cases, with the reference packages. Runs in an environment of its own."""

from __future__ import annotations

import hashlib
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from harness import main_of_case

FIELDS = {
    "id": "bench",
    "dataset_version": "1.0.0",
    "description": "Made-up samples.",
    "licenses": ["CC0-1.0"],
    "tasks": ["classification"],
}


def payload(row: int) -> bytes:
    return row.to_bytes(8, "little") * 8


def _fresh(path: Path) -> Path:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


def _taco(samples: list[Any]) -> Any:
    from tacotoolbox.datamodel import Taco, Tortilla

    return Taco(
        tortilla=Tortilla(samples=samples),
        providers=[{"name": "bench", "roles": ["producer"]}],
        **FIELDS,
    )


def _create(samples: list[Any], output: Path) -> None:
    import tacotoolbox

    tacotoolbox.create(_taco(samples), str(output), split_size=None, consolidate=False)


def create_samples(directory: str, count: str) -> dict[str, Any]:
    from tacotoolbox.datamodel import Sample

    n = int(count)
    output = _fresh(Path(directory) / "peer_samples.tacozip")
    payloads = [payload(row) for row in range(n)]
    temporary = Path(directory) / "peer_tmp"
    temporary.mkdir(exist_ok=True)
    start = time.perf_counter()
    samples = [
        Sample(
            id=f"sample_{row:07d}",
            path=payloads[row],
            temp_dir=temporary,
            cloud_cover=float(row % 100),
            label=row % 10,
            split="test" if row % 2 else "train",
        )
        for row in range(n)
    ]
    _create(samples, output)
    return {"seconds": time.perf_counter() - start, "check": n}


create_table = create_samples  # the peer has no columnar way in
create_batches = create_samples


def create_files(directory: str, folder: str) -> dict[str, Any]:
    """Not the reference packages: a plain copy of the same files, and until it is on the disk."""
    target = _fresh(Path(directory) / "cp_files")
    count = len(list(Path(folder).iterdir()))
    start = time.perf_counter()
    subprocess.run(["cp", "-r", folder, str(target)], check=True)
    # comal does not publish an archive before it is on the disk.
    subprocess.run(["sync", "-f", str(target)], check=True)
    return {"seconds": time.perf_counter() - start, "check": count}


def create_files_unsynced(directory: str, folder: str) -> dict[str, Any]:
    """Not the reference packages: a plain copy of the same files, wherever they are by then."""
    target = _fresh(Path(directory) / "cp_files")
    count = len(list(Path(folder).iterdir()))
    start = time.perf_counter()
    subprocess.run(["cp", "-r", folder, str(target)], check=True)
    return {"seconds": time.perf_counter() - start, "check": count}


def _load(path: str) -> Any:
    import tacoreader

    return tacoreader.load(path)


def load(directory: str, path: str) -> dict[str, Any]:
    import tacoreader

    start = time.perf_counter()
    dataset = tacoreader.load(path)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "check": dataset.pit_schema.root["n"]}


def data(directory: str, path: str) -> dict[str, Any]:
    dataset = _load(path)
    start = time.perf_counter()
    frame = dataset.data
    return {"seconds": time.perf_counter() - start, "check": len(frame)}


_FILTER = 'SELECT * FROM l0 WHERE "l0:cloud_cover" < 10 AND "l0:split" = \'train\''


def sql(directory: str, path: str) -> dict[str, Any]:
    dataset = _load(path)
    start = time.perf_counter()
    answer = dataset.sql(_FILTER)
    return {"seconds": time.perf_counter() - start, "check": len(answer)}


def load_and_sql(directory: str, path: str) -> dict[str, Any]:
    import tacoreader

    start = time.perf_counter()
    answer = tacoreader.load(path).sql(_FILTER)
    return {"seconds": time.perf_counter() - start, "check": len(answer)}


def sql_again(directory: str, path: str) -> dict[str, Any]:
    dataset = _load(path)
    len(dataset.sql(_FILTER))
    start = time.perf_counter()
    answer = dataset.sql(_FILTER)
    return {"seconds": time.perf_counter() - start, "check": len(answer)}


def read_one(directory: str, path: str) -> dict[str, Any]:
    import numpy as np

    frame = _load(path).data
    rows = np.random.default_rng(0).integers(0, len(frame), 10_000).tolist()
    frame.read(0)
    start = time.perf_counter()
    paths = [frame.read(row) for row in rows]
    seconds = (time.perf_counter() - start) / len(rows)
    return {"seconds": seconds, "check": hashlib.sha256("".join(paths).encode()).hexdigest()}


def export_subset(directory: str, path: str) -> dict[str, Any]:
    import tacobridge

    output = _fresh(Path(directory) / "peer_export.tacozip")
    dataset = _load(path).sql("SELECT * FROM data WHERE label = 3")
    start = time.perf_counter()
    tacobridge.export(dataset, output, progress=False)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "check": len(_load(str(output)).data)}


def folder2zip(directory: str, folder: str) -> dict[str, Any]:
    import tacobridge

    output = _fresh(Path(directory) / "peer_folder2zip.tacozip")
    start = time.perf_counter()
    tacobridge.folder2zip(folder, output, progress=False)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "check": len(_load(str(output)).data)}


if __name__ == "__main__":
    random.seed(0)
    main_of_case(globals())
