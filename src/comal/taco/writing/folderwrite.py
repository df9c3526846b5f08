"""The FOLDER container (TACO 2.0, 6.1 and 6.4): loose files below DATA/."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from comal import strictjson
from comal.limits import MIB
from comal.parallel import results
from comal.progress import Progress
from comal.samples.copying import STREAM_BYTES, blocks
from comal.samples.payloads import Files, Ints, Payloads
from comal.storage.manyfiles import changed_size, opened
from comal.storage.targetlock import write_errors
from comal.table import ParquetSettings
from comal.taco import spec
from comal.taco.model.levels import Levels, leaves, relative_paths
from comal.taco.writing.stored import meta_files, write_level
from comal.taco.writing.verify import check_folder

_BLOCK_ROWS = 2_048
_WORKERS = 2


def write_folder(
    root: Path,
    levels: Levels,
    document: dict[str, Any],
    parquet: ParquetSettings,
    *,
    progress: Progress,
    executor: Executor | None = None,
) -> None:
    """Write a dataset below `root`, an empty folder; COLLECTION.json comes last."""
    paths = relative_paths(levels)
    data = root / "DATA"
    new_parts(root)
    with _writing(root):
        for level, path in zip(levels, paths, strict=True):
            for name in path.filter(level.folders).to_pylist():
                os.mkdir(f"{data}/{name}")  # noqa: PTH102 - one string per folder, no Path
    files = leaves(levels, paths)
    copy_leaves(root, files.paths, files.payloads, progress)
    for depth in range(len(levels) - 1):
        for rows, contents in meta_files(levels, depth, None, executor):
            names = [f"{data}/{name}{spec.META}" for name in paths[depth].take(rows).to_pylist()]
            for name, content in zip(names, contents, strict=True):
                _write_new(name, content.as_buffer())
    for depth, level in enumerate(levels):
        with _writing(root), (root / spec.level_path(depth)).open("xb") as file:
            write_level(level, None, paths[depth], file, parquet)
    finish_folder(root, document, paths, progress)


def new_parts(root: Path) -> None:
    """Make the folders for data and metadata below `root`."""
    with _writing(root):
        (root / "DATA").mkdir()
        (root / "METADATA").mkdir()


def finish_folder(
    root: Path, document: dict[str, Any], paths: Sequence[Any], progress: Progress
) -> None:
    """Write COLLECTION.json and compare the folder with the paths of its rows, level by level."""
    _write_new(str(root / spec.COLLECTION), strictjson.dumps(document))
    progress(0, None, "verify")
    check_folder(root, document, paths)


def copy_leaves(root: Path, paths: Any, payloads: Payloads, progress: Progress) -> None:
    """Write payloads to paths below DATA/, an Arrow array of texts."""
    data = root / "DATA"
    sizes = payloads.sizes()
    done = 0
    jobs = (
        (data, paths.slice(start, stop - start), payloads, start, sizes[start:stop])
        for start, stop in blocks(sizes, rows=_BLOCK_ROWS)
    )
    for count in results(_WORKERS, lambda job: _copy_block(*job), jobs, 2 * _WORKERS):
        done += count
        progress(done, len(sizes), "samples")


def _copy_block(data: Path, paths: Any, payloads: Payloads, start: int, sizes: Ints) -> int:
    targets = [f"{data}/{name}" for name in paths.to_pylist()]
    if isinstance(payloads, Files) and payloads.paths.null_count == 0:
        sources = payloads.paths.slice(start, len(sizes)).to_pylist()
        for source, target, size in zip(sources, targets, sizes.tolist(), strict=True):
            _copy_file(source, target, size)
    elif len(sizes) == 1 and sizes[0] >= STREAM_BYTES:
        with payloads.open(start) as stream, _writing(targets[0]), Path(targets[0]).open("xb") as f:
            shutil.copyfileobj(stream, f, MIB)
            if f.tell() != sizes[0]:
                raise changed_size(payloads.place(start), f"{f.tell()} bytes", int(sizes[0]))
    else:
        rows = np.arange(start, start + len(sizes))
        for target, content in zip(targets, payloads.block(rows, sizes), strict=True):
            _write_new(target, content.as_buffer())
    return len(sizes)


def _copy_file(source: str, target: str, size: int) -> None:
    with opened(source) as (reading, _), _writing(target):
        writing = _create(target)
        try:
            done = 0
            while count := os.sendfile(writing, reading, None, 1 << 30):
                done += count
        finally:
            os.close(writing)
    if done != size:
        raise changed_size(source, f"{done} bytes", size)


def _write_new(target: str, content: Any) -> None:
    with _writing(target):
        descriptor = _create(target)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)


def _create(target: str) -> int:
    return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


@contextmanager
def _writing(where: object) -> Iterator[None]:
    with write_errors("cannot write", where):
        yield
