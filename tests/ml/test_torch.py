"""comal.ml beside torch and torchdata: their loaders take data sets and samplers of comal."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import numpy as np
import pytest
from rasterio.io import MemoryFile

from comal import ml, taco
from comal.errors import InvalidInputError, InvalidMetadataError
from comal.ml.order import Order
from tests.ml.made import Numbers, flat, nested, pack, pixels
from tests.servers.http import HttpServer
from tests.support import REPOSITORY

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server

pytestmark = pytest.mark.skipif(
    not (find_spec("torch") and find_spec("torchdata")) and os.environ.get("CI") != "true",
    reason="torch or torchdata is missing: run 'sh scripts/test'",
)


def _loader(data: Any, **options: Any) -> Any:
    """A DataLoader; torch is imported only by tests that run, as it takes seconds."""
    from torch.utils.data import DataLoader

    return DataLoader(data, **options)


def _stateful(data: Any, sampler: Any, workers: int = 0, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchdata uses what torch has deprecated
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(
            data, batch_sampler=sampler, num_workers=workers, collate_fn=_numbers, **options
        )


def _numbers(samples: Any) -> list[int]:
    return [int(one["n"][0]) for one in samples]


def _server() -> Any:
    """What starts processes with nothing of this one, and imports torch once for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torchdata.stateful_dataloader", __name__])
    return context


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (1, "forkserver")])
def test_a_batch_is_one_request(
    workers: int, method: str | None, tmp_path: Path, http_server: HttpServer
) -> None:
    flat(tmp_path)
    http_server.serve_folder(tmp_path)
    data = ml.dataset(http_server.url_for("flat.tacozip"), columns=["label"])
    _ = data[3]  # so that a forked worker inherits connections
    http_server.reset()
    collate = {"collate_fn": ml.collate} if method == "fork" else {}
    loader = _loader(
        data,
        batch_sampler=data.sampler(5),
        num_workers=workers,
        multiprocessing_context=_server() if method == "forkserver" else method,
        **collate,
    )
    assert len(loader) == 4
    batches = list(loader)
    assert len(http_server.requests) == 4
    for number, batch in enumerate(batches):
        rows = range(5 * number, 5 * number + 5)
        assert str(batch["data"].dtype) == "torch.uint16"
        assert np.array_equal(batch["data"].numpy(), np.stack([pixels(row) for row in rows]))
        assert batch["label"].tolist() == [row % 3 for row in rows]
        assert batch["id"] == [f"s{row:03d}.tif" for row in rows]


def test_a_shuffled_epoch_from_a_bucket(tmp_path: Path, s3_server: S3Server) -> None:
    """By threads of comal and by workers that inherit nothing; rasterio says what is right."""
    path = flat(tmp_path)
    right = {}
    with ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".tif"):
                with MemoryFile(archive.read(name)) as file, file.open() as image:
                    right[name.removeprefix("DATA/")] = image.read()
    with taco.load(s3_server.put("ml/x.tacozip", path.read_bytes()), config=s3_server.config) as it:
        data = ml.dataset(it, columns=["label"])
        order = {"batch_size": 3, "shuffle": True, "seed": 2}
        loaders = [
            data.loader(workers=2, to="torch", **order),
            _loader(
                data,
                batch_sampler=data.sampler(**order),
                num_workers=1,
                multiprocessing_context=_server(),
                collate_fn=ml.collate,
            ),
        ]
        for loader in loaders:
            seen = []
            for batch in loader:
                seen += batch["id"]
                pixels = np.stack([right[name] for name in batch["id"]])
                assert np.array_equal(batch["data"].numpy(), pixels)
                assert batch["label"].tolist() == [int(name[1:4]) % 3 for name in batch["id"]]
            rows = Order(20, shuffle=True, seed=2).at(np.arange(20))
            assert seen == [f"s{row:03d}.tif" for row in rows.tolist()] != sorted(right)


def test_arrays_of_every_type_become_tensors(tmp_path: Path) -> None:
    def npy(array: Any) -> bytes:
        file = io.BytesIO()
        np.save(file, array)
        return file.getvalue()

    types = [">u2", "<u4", ">f4", "u1", "?", ">i8", "c8", "f2"]
    samples = [
        taco.Sample(
            id=f"s{number}",
            path=taco.Tortilla(
                [
                    taco.Sample(id=f"a{place}", path=npy(np.arange(6).astype(one) * number))
                    for place, one in enumerate(types)
                ]
            ),
        )
        for number in range(4)
    ]
    path = pack(tmp_path / "types.tacozip", samples)
    data = ml.dataset(path)
    for collate in (None, ml.collate):
        (batch,) = _loader(data, batch_sampler=data.sampler(4), collate_fn=collate)
        for place, one in enumerate(types):
            right = np.stack([np.arange(6).astype(one) * number for number in range(4)])
            found = batch[f"a{place}"].numpy()
            assert found.dtype == right.dtype.newbyteorder("=")
            assert np.array_equal(found, right)


def test_types_that_torch_does_not_know(tmp_path: Path) -> None:
    data = ml.dataset(flat(tmp_path, 4), {"x": ml.Field(decode=_texts)})
    numpy = partial(ml.collate, to="numpy")
    for workers in (0, 1):
        (batch,) = _loader(
            data, batch_sampler=data.sampler(4), num_workers=workers, collate_fn=numpy
        )
        assert batch["x"].tolist() == [["a", "bc"]] * 4
    with pytest.raises(InvalidInputError, match=r"(?s)no tensors of this type.*<U2.*to='numpy'"):
        next(iter(data.loader(4, to="torch")))


def _texts(data: bytes) -> Any:
    return np.array(["a", "bc"])


def test_tensors_share_the_memory_of_batches(tmp_path: Path) -> None:
    data = ml.dataset(nested(tmp_path), {"image": "image.tif", "series": "series/*.tif"})
    loader = data.loader(4, to="torch")
    kept = []
    for batch in loader:
        assert any(
            batch["image"].data_ptr() == array.__array_interface__["data"][0]
            for array in loader._buffers._arrays
        )
        kept.append(batch["image"])
    for number, tensor in enumerate(kept):  # nor is the memory of a tensor that lives used again
        assert np.array_equal(tensor[1].numpy(), pixels(4 * number + 1))
    listed = ml.collate([{"x": np.ones((1, 2))}, {"x": np.ones((2, 1))}], "list")
    assert [tuple(one.shape) for one in listed["x"]] == [(1, 2), (2, 1)]


def _with_parts(samples: Any) -> Any:
    """A batch, its address in the worker, and tensors that share its memory."""
    batch = ml.collate(samples)
    image = batch["image"]
    parts = {"again": image[:], "first": image[:1], "turned": image.mT}
    return {"whole": image, **parts, "at": image.data_ptr()}


def test_workers_use_memory_again_that_no_tensor_has(tmp_path: Path) -> None:
    """But never while a tensor lives that was sent with it, also in an earlier epoch."""
    data = ml.dataset(nested(tmp_path), {"image": "image.tif"})
    options: dict[str, Any] = {"num_workers": 1, "multiprocessing_context": "fork"}
    loader = _loader(data, batch_size=1, collate_fn=_with_parts, persistent_workers=True, **options)
    kept, places = [], []
    for _ in range(2):
        for number, batch in enumerate(loader):
            places.append(batch["at"])
            name = ("whole", "again", "first", "turned", "")[number % 5]
            if name:
                kept.append((number, name, batch[name]))
    assert len(places) == 2 * len(data)
    assert len(set(places)) < len(places)
    for number, name, tensor in kept:
        expected = pixels(number)[None]
        expected = expected.swapaxes(-1, -2) if name == "turned" else expected
        assert np.array_equal(tensor.numpy(), expected), (number, name)


@pytest.mark.parametrize(("workers", "places"), [(0, range(9)), (2, (1, 7, 8))])
def test_torchdata_continues_after_any_batch(workers: int, places: Any) -> None:
    """There are 7 batches; at place 8 the iteration also has told that it is over."""
    data = Numbers(20)
    whole = data.sampler(3, shuffle=True)
    epochs = [list(whole) for _ in range(3)]
    for place in places:
        loader = _stateful(data, data.sampler(3, shuffle=True), workers)
        _ = list(loader)
        iteration = iter(loader)
        taken = [one for _, one in zip(range(place), iteration, strict=False)]
        state = json.loads(json.dumps(loader.state_dict()))
        assert taken == epochs[1][:place]
        again = _stateful(data, data.sampler(3, shuffle=True), workers)
        again.load_state_dict(state)
        if place < 7:
            assert list(again) == epochs[1][place:]
        assert list(again) == epochs[2]
    loader = _stateful(data, data.sampler(3, shuffle=True), workers)
    _ = list(loader)
    again = _stateful(data, data.sampler(3, shuffle=True), workers)
    again.load_state_dict(loader.state_dict())
    assert list(again) == epochs[1]


def test_a_new_process_continues_until_a_worker_is_killed() -> None:
    """What torchdata restores must have as many workers; batches that are counted need not.

    Torch raises the error of a killed worker from a handler of signals, wherever the process is.
    """
    data = Numbers(40)
    first = data.sampler(3, shuffle=True, seed=9)
    loader = _stateful(data, first, 2)
    iteration = iter(loader)
    seen = [next(iteration) for _ in range(5)]
    state = loader.state_dict()
    right = list(data.sampler(3, shuffle=True, seed=9))
    with pytest.raises(AssertionError):
        iter(_restored(data, state, 1))
    here, there = _server().Pipe()
    process = _server().Process(target=_continue, args=(state, there))
    process.start()
    assert here.poll(60)
    exact, counted, told = here.recv()
    process.join(60)
    assert process.exitcode == 0
    assert seen + exact == right
    assert seen + counted == right
    assert re.search(_KILLED, told)


def _restored(data: Any, state: Any, workers: int) -> Any:
    loader = _stateful(data, data.sampler(3, shuffle=True, seed=9), workers)
    loader.load_state_dict(state)
    return loader


def _continue(state: Any, there: Any) -> None:
    """Take the rest of an epoch in two ways, then lose all workers."""
    data = Numbers(40)
    exact = list(_restored(data, json.loads(json.dumps(state)), 2))
    sampler = data.sampler(3, shuffle=True, seed=9)
    sampler.set_epoch(0, 5)
    counted = list(_loader(data, batch_sampler=sampler, collate_fn=_numbers, num_workers=1))
    slow = Slow(100)
    batches = iter(_loader(slow, batch_sampler=slow.sampler(5), num_workers=2))
    next(batches)
    signal.alarm(20)  # ends the process with another code
    try:
        for worker in batches._workers:
            os.kill(worker.pid, signal.SIGKILL)
        for _ in batches:
            pass
    except (RuntimeError, OSError, EOFError) as error:
        there.send((exact, counted, f"{type(error).__name__}: {error}"))


class Slow(Numbers):
    def decode(self, place: int, raw: Any, out: Any) -> Any:
        if raw[place] > 20:
            time.sleep(30)
        return super().decode(place, raw, out)


def test_an_error_of_a_worker_names_the_sample(tmp_path: Path) -> None:
    data = ml.dataset(flat(tmp_path, 6), {"x": ml.Field(decode=_broken)})
    loader = _loader(data, batch_sampler=data.sampler(2), num_workers=1)
    with pytest.raises(InvalidMetadataError, match=r"sample 's000.tif' \(row 0\)") as caught:
        _ = list(loader)
    assert "in _broken" in str(caught.value)


def _broken(data: bytes) -> Any:
    return {0: "nothing"}[len(data)]


def test_an_interrupt_leaves_nothing(tmp_path: Path, short_folder: Path) -> None:
    flat(tmp_path, 20)
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, tmp_path / "flat.tacozip"],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(short_folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    watch = threading.Timer(60, process.kill)
    watch.start()
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    assert list(short_folder.glob("comal-index-*"))
    os.killpg(process.pid, signal.SIGINT)
    told = process.communicate(timeout=30)[1]
    watch.cancel()
    assert process.returncode == -signal.SIGINT, told
    until = time.monotonic() + 20
    while _lives(process.pid) and time.monotonic() < until:
        time.sleep(0.05)  # Python's own tracker of resources ends after all others
    assert not _lives(process.pid)
    # A worker of torch may leave the folder of a socket, which multiprocessing made for it.
    assert not [one for one in short_folder.iterdir() if not one.name.startswith("pymp-")]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """For multiprocessing's sockets, whose paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="c-") as name:
        yield Path(name)


_KILLED = (
    r"RuntimeError: DataLoader worker .*(Killed|exited)|Connection(Reset|Refused)Error|EOFError"
)
"""What torch says of a killed worker, also while it takes the memory of a batch from it."""


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


_INTERRUPTED = """
import sys, time
from comal import ml
from comal.ml import index
from torch.utils.data import DataLoader

index._SMALL = 0

def begun(data, method, workers):
    loader = DataLoader(data, batch_sampler=data.sampler(2), num_workers=workers,
                        multiprocessing_context=method, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    return batches

if __name__ == "__main__":
    data = ml.dataset(sys.argv[1])
    own = iter(data.loader(2))
    next(own)
    kept = begun(data, "spawn", 1), begun(data, "fork", 2)
    print("running", flush=True)
    time.sleep(60)
"""
