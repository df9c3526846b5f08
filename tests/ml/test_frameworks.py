"""comal.ml beside Lightning and JAX, which the nightly run has in an environment of their own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import ml
from comal.ml.buffers import Buffers
from comal.ml.order import Order
from tests.ml.made import flat, pixels
from tests.ml.test_example import loaded

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("lightning")
    unet = loaded("train_unet")
    monkeypatch.setattr(unet, "SIZE", 16)
    monkeypatch.setitem(sys.modules, "train_unet", unet)
    unet.pack(tmp_path / "chips.tacozip", None, 30)
    return loaded("lightning_data")


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("stop", [(0, 2), (1, 6), (2, 0)])
def test_a_run_goes_on(module: Any, tmp_path: Path, processes: int, stop: tuple[int, int]) -> None:
    """From a checkpoint after a batch, the last batch of an epoch, and an epoch of 6 batches."""
    lightning: Any = pytest.importorskip("lightning")

    class Watch(lightning.Callback):  # type: ignore[misc] # not always there
        def __init__(self) -> None:
            self.seen: dict[int, list[str]] = {}

        def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
            _, _, batch, number = rest
            self.seen.setdefault(trainer.current_epoch, []).extend(batch["id"])
            self.save_at(trainer, trainer.current_epoch, number + 1)

        def on_train_epoch_end(self, trainer: Any, model: Any) -> None:
            self.save_at(trainer, trainer.current_epoch + 1, 0)

        def save_at(self, trainer: Any, *place: int) -> None:
            if place == stop:
                trainer.save_checkpoint(tmp_path / "here.ckpt")

    def run(**going_on: Any) -> Any:
        data, watch = module.Scenes(tmp_path / "chips.tacozip", 4, processes), Watch()
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        trainer = lightning.Trainer(
            **quiet,
            accelerator="cpu",
            callbacks=[watch],
            enable_checkpointing=False,
            max_epochs=3,
            use_distributed_sampler=False,
        )
        trainer.fit(module.Model(), datamodule=data, **going_on)
        return data.train.ids.to_pylist(), watch.seen

    ids, whole = run()
    orders = [Order(24, shuffle=True, seed=1).at(np.arange(24), epoch) for epoch in range(3)]
    right = {epoch: [ids[row] for row in rows] for epoch, rows in enumerate(orders)}
    assert whole == right
    epoch, batches = stop
    left = {epoch: right[epoch][4 * batches :], **{one: right[one] for one in range(epoch + 1, 3)}}
    _, rest = run(ckpt_path=tmp_path / "here.ckpt")
    assert rest == {one: names for one, names in left.items() if names}


@pytest.mark.parametrize(("workers", "processes"), [(0, False), (2, False), (1, True)])
def test_batches_of_jax_keep_their_pixels(tmp_path: Path, workers: int, processes: bool) -> None:
    jax: Any = pytest.importorskip("jax")

    data = ml.dataset(flat(tmp_path, 40), columns=["label"])
    total, kept, sums = jax.jit(lambda array: array.astype("float32").sum()), [], []
    options: Any = {"workers": workers, "processes": processes, "ahead_bytes": 1, "to": "jax"}
    for batch in data.loader(4, **options):
        assert isinstance(batch["data"], jax.Array)
        kept.append(batch["data"])
        sums.append(total(batch["data"]))  # not waited for
        assert batch["label"].tolist() == [int(name[1:4]) % 3 for name in batch["id"]]
    for number, (array, found) in enumerate(zip(kept, sums, strict=True)):
        right = np.stack([pixels(4 * number + place) for place in range(4)])
        assert array.dtype == np.uint16
        assert np.array_equal(array, right)
        assert float(found) == right.sum()


def test_memory_that_jax_shares_is_not_used_again() -> None:
    """As `device_put` does at multiples of 64 bytes, and any function may do."""
    jax: Any = pytest.importorskip("jax")

    for _ in range(1000):
        buffers = Buffers()
        place = buffers.take((4, 16, 16), np.dtype(np.uint16)).ctypes.data
        kept = buffers.take((4, 16, 16), np.dtype(np.uint16))
        kept[...] = 7
        shared = jax.device_put(kept, may_alias=True)
        if shared.unsafe_buffer_pointer() == kept.ctypes.data == place:
            break
    else:
        pytest.fail("JAX shares no memory")
    del kept
    other = buffers.take((4, 16, 16), np.dtype(np.uint16))
    other[...] = 9
    assert other.ctypes.data != place
    assert (np.asarray(shared) == 7).all()
    del shared
    jax.device_put(np.zeros(1))  # JAX drops what is gone with its next call
    assert buffers.take((4, 16, 16), np.dtype(np.uint16)).ctypes.data == place
