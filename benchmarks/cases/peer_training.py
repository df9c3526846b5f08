"""The training cases, with the peers: each has a way to write its format and a way to read it."""

from __future__ import annotations

import io
import random
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import training_loop
from rasterio.io import MemoryFile
from training_loop import BATCH, batches

from harness import main_of_case

SHARD = 64 << 20
Decode = Callable[[bytes], Any]


def decode(data: bytes) -> Any:
    with MemoryFile(data) as file, file.open() as raster:
        return raster.read()


def keep(data: bytes) -> bytes:
    """The bytes; LitData gives a view of its chunk."""
    return bytes(data)


def collate(batch: list[Any]) -> Any:
    """One tensor; PyTorch's own way is quick in workers alone, where it has no threads to wake."""
    import torch

    if isinstance(batch[0], bytes):
        return batch
    if torch.utils.data.get_worker_info() is None:
        return torch.from_numpy(np.stack(batch))
    return torch.utils.data.default_collate(batch)


class Files:
    """Loose files, as PyTorch's own tutorials read them."""

    def __init__(self, paths: list[Path], decoded: Decode) -> None:
        self.paths, self.decoded = paths, decoded

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Any:
        if self.decoded is keep:
            return self.paths[row].read_bytes()
        with rasterio.open(self.paths[row]) as raster:
            return raster.read()


def folder(folder: Path, paths: list[Path], decoded: Decode, workers: int, mixed: bool) -> Any:
    return batches(Files(paths, decoded), workers, shuffle=mixed, collate_fn=collate)


def write_webdataset(paths: list[Path], folder: Path) -> None:
    shards = np.array_split(np.array(paths), 20)
    for number, shard in enumerate(shards):
        with tarfile.open(folder / f"{number:03}.tar", "w") as tar:
            for path in shard:
                tar.add(path, path.stem + ".data")


def webdataset(folder: Path, paths: list[Path], decoded: Decode, workers: int, mixed: bool) -> Any:
    import webdataset as wds

    shards = [str(path) for path in sorted(folder.iterdir())]
    data = wds.WebDataset(shards, shardshuffle=len(shards) if mixed else False)
    if mixed:
        data = data.shuffle(1000)
    data = data.map(lambda sample: decoded(sample["data"]))
    return batches(data.batched(BATCH, collation_fn=collate), workers, wds.WebLoader, None)


def write_litdata(paths: list[Path], folder: Path) -> None:
    from litdata import optimize

    optimize(Path.read_bytes, paths, str(folder), chunk_bytes=SHARD, num_workers=1)


def litdata(folder: Path, paths: list[Path], decoded: Decode, workers: int, mixed: bool) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset

    data = StreamingDataset(str(folder), shuffle=mixed, drop_last=False, transform=decoded)
    return batches(data, workers, StreamingDataLoader, collate_fn=collate)


def _without_torchvision() -> None:
    """mosaicml-streaming imports it for pictures, and it does not import beside this torch."""
    names = ("torchvision", "torchvision.datasets", "torchvision.transforms.functional")
    for name in names:
        stub = module_from_spec(ModuleSpec(name, None))
        vars(stub).update(VisionDataset=object, to_tensor=None)
        sys.modules[name] = stub


def write_mosaicml(paths: list[Path], folder: Path) -> None:
    _without_torchvision()
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"data": "bytes"}, size_limit=SHARD) as writer:
        for path in paths:
            writer.write({"data": path.read_bytes()})


def mosaicml(folder: Path, paths: list[Path], decoded: Decode, workers: int, mixed: bool) -> Any:
    _without_torchvision()
    from streaming import StreamingDataLoader, StreamingDataset

    class Decoded(StreamingDataset):
        def __getitem__(self, at: Any) -> Any:
            return decoded(super().__getitem__(at)["data"])

    data = Decoded(local=str(folder), shuffle=mixed, batch_size=BATCH)
    return batches(data, workers, StreamingDataLoader, collate_fn=collate)


class spdl:  # noqa: N801 - called like the functions of the other peers
    """Over loose files; threads instead of workers, and one of them at least."""

    def __init__(self, _: Path, paths: list[Path], decoded: Decode, workers: int, mixed: bool):
        self.files, self.threads, self.mixed = Files(paths, decoded), max(1, workers), mixed

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder

        rows = list(range(len(self.files)))
        if self.mixed:
            random.shuffle(rows)
        builder = PipelineBuilder().add_source(rows)
        builder = builder.pipe(self.files.__getitem__, concurrency=self.threads)
        builder = builder.aggregate(BATCH).pipe(collate).add_sink(3)
        pipeline = builder.build(num_threads=self.threads + 1)
        with pipeline.auto_stop():
            yield from pipeline


def write_grain(paths: list[Path], folder: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(folder / "data.array_record"), "group_size:1,uncompressed")
    for path in paths:
        writer.write(path.read_bytes())
    writer.close()


def grain(folder: Path, paths: list[Path], decoded: Decode, workers: int, mixed: bool) -> Any:
    """With threads instead of workers, too: its processes start anew with each epoch."""
    from grain import MapDataset, ReadOptions
    from grain.sources import ArrayRecordDataSource

    data = MapDataset.source(ArrayRecordDataSource(str(folder / "data.array_record")))
    if mixed:
        data = data.shuffle(seed=0)
    data = data.map(decoded).batch(BATCH, batch_fn=collate)
    return data.to_iter_dataset(ReadOptions(num_threads=workers, prefetch_buffer_size=2 * workers))


def samples(directory: str, kind: str, count: str, layout: str = "") -> dict[str, Any]:
    """The loose files of both kinds; chips are strips of 8 KB, as GDAL writes them, or one tile."""
    (Path(directory) / kind).mkdir(parents=True)
    profile = {"driver": "GTiff", "width": 256, "height": 256, "count": 4, "dtype": "uint16"}
    profile |= {"crs": "EPSG:32632", "transform": rasterio.Affine(10, 0, 6e5, 0, -10, 5e6)}
    if layout == "tiled":
        profile |= {"tiled": True, "blockxsize": 256, "blockysize": 256}
    for row in range(int(count)):
        path = Path(directory) / kind / f"{row:06}{training_loop.NAMES[kind][1:]}"
        if kind == "small":
            path.write_bytes(np.random.default_rng(row).bytes(1024))
            continue
        with rasterio.open(path, "w", **profile, compress="deflate", predictor=2) as file:
            file.write(training_loop.chip(row))
    return {"seconds": 0}


def prepare(directory: str, peer: str, kind: str) -> dict[str, Any]:
    folder = Path(directory) / f"{peer}-{kind}"
    folder.mkdir()
    write = globals().get(f"write_{peer}")
    with redirect_stdout(sys.stderr):
        if write is not None:  # else loose files, which are there
            write(training_loop.samples(directory, kind), folder)
    return {"seconds": 0}


def _loader(directory: str, peer: str, kind: str, workers: str, order: str) -> Iterable[Any]:
    decoded = decode if kind == "chips" else keep
    paths = training_loop.samples(directory, kind)
    read = globals()[peer]
    folder = Path(directory) / f"{peer}-{kind}"
    return read(folder, paths, decoded, int(workers), order == "random")


def epoch(*arguments: str) -> dict[str, Any]:
    with redirect_stdout(sys.stderr):
        return training_loop.epoch(_loader(*arguments))


def memory(*arguments: str) -> dict[str, Any]:
    with redirect_stdout(sys.stderr):
        return training_loop.memory(_loader(*arguments))


def decoder(directory: str, name: str, threads: str) -> dict[str, Any]:
    """Chips decoded from memory again and again: what no loader can be faster than."""
    import tifffile

    function = {"rasterio": decode, "tifffile": lambda one: tifffile.imread(io.BytesIO(one))}[name]
    data = [path.read_bytes() for path in training_loop.samples(directory, "chips")]
    return {"seconds": len(data) / training_loop.rate(function, data, int(threads))}


if __name__ == "__main__":
    main_of_case(globals())
