"""Data sets in several processes, and objects that change below them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
import tempfile
import threading
from collections.abc import Callable
from copy import copy
from importlib.util import find_spec
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from comal import ml
from comal.errors import ComalError, InvalidInputError, InvalidMetadataError, ObjectChangedError
from comal.ml import buffers as memory
from comal.ml import loader as loading
from comal.ml import processes
from comal.ml.archives import ArchiveDataset
from comal.ml.buffers import address
from comal.ml.index import Index, Shared
from comal.raster import imagebytes
from comal.samples.payloads import Spans
from comal.storage import as_source
from tests.ml.made import flat, pixels
from tests.servers.http import HttpServer

MIB = 1 << 20
KIND = "torch" if find_spec("torch") else "numpy"


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("remote", [False, True])
def test_an_object_that_changes_within_an_epoch_is_an_error(
    workers: int, remote: bool, tmp_path: Path, http_server: HttpServer
) -> None:
    path = flat(tmp_path)
    http_server.serve_folder(tmp_path)
    data = ml.dataset(http_server.url_for(path.name) if remote else path)
    batches = iter(data.loader(2, workers=workers, ahead_bytes=1))
    next(batches)
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)
    with pytest.raises(ObjectChangedError, match=path.name):
        _ = list(batches)
    assert len(list(ml.dataset(path).loader(2))) == 10


def test_workers_share_the_memory_of_a_large_index(tmp_path: Path) -> None:
    """Many samples: kilobytes are pickled, and four workers hold one copy."""
    count, workers = 300_000, 4
    archive = tmp_path / "data"
    archive.write_bytes(bytes(range(256)) * 4096)
    rows = np.arange(count)
    spans = Spans([as_source(archive)], np.zeros(count, np.int64), rows, np.ones(count, np.int64))
    digits = pc.utf8_lpad(pc.cast(rows, pa.string()), 7, "0")
    ids = pc.binary_join_element_wise("sample", digits, "-")
    columns = pa.table({"label": rows % 7})
    index = Index(ids, columns, {"x": rows}, spans, spans.sizes())
    data = ArchiveDataset(Shared(index), {"x": ml.Field("x.bin", decode="bytes")})
    text = pickle.dumps(data)
    assert len(text) < 8192
    context = multiprocessing.get_context("fork")
    barrier, told = context.Barrier(workers), context.Queue()
    running = [
        context.Process(target=_use, args=(text, number, barrier, told))
        for number in range(workers)
    ]
    for one in running:
        one.start()
    found = [told.get(timeout=60) for _ in running]
    for one in running:
        one.join()
    for mapped, shared, own in found:
        assert mapped > 9 * MIB
        assert shared < 1.5 * mapped / workers
        assert own < mapped / 2
    file = Path(data._shared._file[0])
    assert file.exists()
    del data
    assert not file.exists()


def _use(text: bytes, number: int, barrier: Any, told: Any) -> None:
    """Tell bytes of the index in memory, this process's part of them, and its own new ones."""
    before = _memory("/proc/self/smaps_rollup", "", "Anonymous")
    data = pickle.loads(text)
    row = 1000 * number + 77
    right = {"x": bytes([row % 256]), "label": row % 7, "id": f"sample-{row:07d}"}
    assert data[row] == right
    everything = [*data.index.leaves.values(), data.index.sizes, data.index.payloads.offsets]
    assert sum(int(one.sum()) for one in everything) > 0
    for buffer in data.ids.buffers()[1:]:
        assert np.frombuffer(buffer, np.uint8).max() > 0
    barrier.wait(60)
    pages = [_memory("/proc/self/smaps", "comal-index-", kind) for kind in ("Rss", "Pss")]
    own = _memory("/proc/self/smaps_rollup", "", "Anonymous") - before
    barrier.wait(60)
    told.put((*pages, own))


@pytest.fixture(scope="module")
def chips(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = flat(tmp_path_factory.mktemp("chips"), 23)
    decode = ml.Field(decode=_length_or_error, leaf="")
    return ml.dataset(path, {"x": "", "size": decode}, columns=["label"], on_error="skip")


def _length_or_error(data: bytes) -> int:
    """A decoder that fails for one sample."""
    if np.array_equal(imagebytes.image(data), pixels(9)):
        raise ValueError("nine")
    return len(data)


@pytest.fixture(scope="module")
def loader(chips: Any) -> Any:
    return chips.loader(4, shuffle=True, seed=3, processes=True, to=KIND)


@pytest.mark.filterwarnings("ignore:1 sample of the epoch failed")
def test_batches_of_processes_are_those_of_threads(chips: Any, loader: Any) -> None:
    threads = chips.loader(4, shuffle=True, seed=3, to=KIND)
    for _ in range(2):
        ours = list(loader)
        for one, other in zip(ours, list(threads), strict=True):
            assert np.array_equal(one["x"], other["x"])
            assert one["label"].tolist() == other["label"].tolist()
            assert (one["id"], one["size"].tolist()) == (other["id"], other["size"].tolist())
        assert sum(len(one["id"]) for one in ours) == 22
        assert loader.skipped == 1
    assert loader.processes
    assert not threads.processes


@pytest.mark.filterwarnings("ignore:1 sample of the epoch failed")
def test_an_epoch_in_processes_that_is_left_early(chips: Any, loader: Any) -> None:
    """It continues at its state in threads, and neither processes nor files are left."""
    loader.set_epoch(5)
    taken = iter(loader)
    ids = [*next(taken)["id"], *next(taken)["id"]]
    assert _spawned()
    threads = chips.loader(4, shuffle=True, seed=3)
    threads.load_state_dict(loader.state_dict())
    taken.close()
    assert not _spawned()
    ids += [one for batch in threads for one in batch["id"]]
    whole = chips.loader(4, shuffle=True, seed=3, workers=0)
    whole.set_epoch(5)
    assert ids == [one for batch in whole for one in batch["id"]]


def _spawned() -> list[Any]:
    """Processes as a loader starts them; those of tests are forked."""
    return [one for one in multiprocessing.active_children() if isinstance(one, SpawnProcess)]


def test_errors_of_processes_arrive(chips: Any) -> None:
    """That of a decoder with its traceback; one that is killed, within seconds."""
    strict = copy(chips)
    strict.on_error = "raise"
    with pytest.raises(InvalidMetadataError, match=r"(?s)s009.tif.*: nine") as caught:
        _ = list(strict.loader(4, processes=True, workers=1))
    assert "in _length_or_error" in "".join(caught.value.__notes__)
    before = set(multiprocessing.active_children())
    batches = iter(chips.loader(1, processes=True, workers=1))
    next(batches)
    (worker,) = set(multiprocessing.active_children()) - before
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(ComalError, match="exit code -9"):
        _ = list(batches)


def test_work_that_cannot_be_sent_is_refused(chips: Any) -> None:
    data = copy(chips)
    data.transform = lambda sample: sample
    with pytest.raises(InvalidInputError, match=r"(?s)given the work.*lambda.*of a module"):
        next(iter(data.loader(4, processes=True)))
    assert list(chips.take([]).loader(4, processes="auto")) == []


class UnpicklableError(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def test_an_error_that_cannot_be_pickled_is_told() -> None:
    assert processes._sendable(KeyError("x")).args == ("x",)
    assert "UnpicklableError: why" in str(processes._sendable(UnpicklableError("why")))


def test_memory_of_batches_is_on_disk_where_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "_MEMORY", str(tmp_path / "nowhere"))
    buffers = memory.SharedBuffers()
    array = buffers.take((2, 3), np.dtype("int16"))
    array[...] = 7
    described, (handle,) = processes._described({"x": array[:1], "n": [1]}, buffers)
    assert (described["x"].shape, described["n"]) == ((1, 3), [1])
    assert os.pread(handle, 12, 0) == bytes([7, 0]) * 6
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ComalError, match="cannot share the memory of a batch"):
        buffers.take((2, 3), np.dtype("int16"))


def test_memory_of_a_batch_is_used_again_once_nobody_holds_it() -> None:
    buffers = memory.SharedBuffers()

    def taken() -> Any:
        return buffers.take((2, 3), np.dtype("int16"))

    def sent(array: Any) -> Any:
        handle = buffers.lent(address(array))
        assert handle is not None
        return memory.received(os.dup(handle), array.shape, array.dtype)

    first, second = taken(), taken()
    first[...], place = 7, address(first)
    there = sent(first)
    assert buffers.lent(place) is None, "two that hold it would each give it back"
    del first
    others = [taken() for _ in range(3)]
    assert place not in map(address, [second, *others])
    assert (there == 7).all()
    if not (child := os.fork()):
        del there  # its own, and no sign that the array is free
        os._exit(0)
    os.waitpid(child, 0)
    assert address(taken()) != place
    del there
    again = taken()
    assert address(again) == place
    many = [taken() for _ in range(20)]
    del again, second, others
    assert len(buffers._files) == len(many)  # those that were forgotten are gone with their files


@pytest.mark.filterwarnings("ignore:1 sample of the epoch failed")
def test_batches_that_a_caller_keeps_are_not_written_to(chips: Any) -> None:
    loader = chips.loader(2, processes=True, workers=1, ahead_bytes=1)
    kept = [batch["x"] for _ in range(2) for batch in loader]
    copies = [one.copy() for one in kept[::3]]
    del kept[1::3]
    _ = list(loader)
    assert all(map(np.array_equal, kept[::2], copies))


@pytest.mark.parametrize(
    ("alone", "both", "expected"),
    [
        (0.09, 0.18, True),  # threads wait for each other
        (0.09, 0.09, False),  # they do not
        (0.0001, 0.0002, False),  # too fast to matter
    ],
)
def test_processes_are_taken_where_threads_wait_for_each_other(
    alone: float, both: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([alone, both])
    ran: list[int] = []

    def told(work: Callable[[], object]) -> float:
        work()
        return next(seconds)

    monkeypatch.setattr(processes, "_seconds", told)
    assert processes.pays(ran.append, 3) is expected
    assert sorted(ran) == [0, *sorted([0, 1, 2] * 3)]


def test_decoding_is_measured_before_the_first_batch(
    chips: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def pays(decode: Any, count: int) -> bool:
        decode(0)
        tried.append(count)
        return False

    monkeypatch.setattr(loading, "pays", pays)
    loader = chips.loader(4, processes="auto")
    assert loader.processes is None
    next(iter(loader))
    assert tried == [4]
    assert loader.processes is False


def _memory(source: str, name: str, kind: str) -> int:
    """Bytes of a kind, of the mappings whose line has a name."""
    total, counts = 0, False
    for line in Path(source).read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = name in line
        elif counts and line.startswith(f"{kind}:"):
            total += int(line.split()[1]) * 1024
    return total
