"""The examples train, are stopped, and go on as if they had not been stopped."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from comal.ml.order import Order
from tests.support import REPOSITORY

NOTEBOOK = REPOSITORY / "examples" / "train_unet.ipynb"

if not os.environ.get("CI"):  # with CI=true its absence is a failure
    pytest.importorskip("torch")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return loaded("train_unet")


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.torch.set_num_threads(1)  # several wait for each other most of the time
    return module


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_a_run_that_is_stopped_ends_with_the_same_weights(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "SIZE", 32)
    archive = tmp_path / "chips.tacozip"
    example.pack(archive, None, 30)
    for name in ("whole", "stopped"):
        (tmp_path / name).mkdir()
    whole = example.train(archive, tmp_path / "whole", 2, 2)

    saved = example.save

    def stop(path: Path, state: Any) -> None:
        saved(path, state)
        if state["step"] == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(example, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            example.train(archive, tmp_path / "stopped", 2, 2)
    again = example.train(archive, tmp_path / "stopped", 2, 2)
    assert example.digest(again) == example.digest(whole)


def test_the_notebook_ran_without_an_error() -> None:
    """Its outputs are those of a whole run, and its functions are those of the example."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    text = "".join(line for cell in code for line in cell["source"])
    example = (REPOSITORY / "examples" / "train_unet.py").read_text()
    for name in set(re.findall(r"train_unet\.(\w+)\(", text)):
        assert f"def {name}(" in example, name


# -- Lightning -------------------------------------------------------------------------------------


@pytest.fixture
def scenes(example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The data module, over a base class that does nothing: Lightning takes seconds to import.

    `tests/ml/test_frameworks.py` runs it with the library itself.
    """
    parts = {name: ModuleType(name) for name in ("lightning", "lightning.pytorch.callbacks")}
    parts["lightning"].__dict__.update(LightningDataModule=object, LightningModule=object)
    parts["lightning.pytorch.callbacks"].__dict__["ModelCheckpoint"] = None
    for name, part in {**parts, "train_unet": example}.items():
        monkeypatch.setitem(sys.modules, name, part)
    monkeypatch.setattr(example, "SIZE", 16)
    example.pack(tmp_path / "chips.tacozip", None, 30)
    return loaded("lightning_data").Scenes


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("stop", [(0, 2), (1, 6), (2, 0)])
def test_a_run_of_lightning_goes_on(
    scenes: Any, tmp_path: Path, processes: int, stop: tuple[int, int]
) -> None:
    """After a batch, the last batch of an epoch, and an epoch; an epoch has 6 batches of 4."""
    archive = tmp_path / "chips.tacozip"
    epoch, batches = stop
    place = epoch, batches, epoch + (batches > 0)
    first = Fit(scenes(archive, 4, processes), (0, 0, 0))
    seen = list(islice(first, 6 * epoch + batches))
    again = Fit(scenes(archive, 4, processes), place, first.loader if batches else None)
    seen += list(again)
    rows = [Order(24, shuffle=True, seed=1).at(np.arange(24), epoch) for epoch in range(3)]
    names = np.array(again.data.train.ids.to_pylist())
    assert seen == names[np.concatenate(rows)].reshape(-1, 4).tolist()


class Fit:
    """The calls of a data module and its loader that release 2.6.6 makes, in that order.

    A loader is iterated before its first epoch is set, and is given a state only in an epoch.
    """

    def __init__(self, data: Any, place: tuple[int, int, int], saved: Any = None) -> None:
        self.data, (done, batches, ready) = data, place
        counts = SimpleNamespace(processed=done, ready=ready), SimpleNamespace(processed=batches)
        inner = SimpleNamespace(batch_progress=SimpleNamespace(current=counts[1]))
        outer = SimpleNamespace(epoch_progress=SimpleNamespace(current=counts[0]), epoch_loop=inner)
        data.trainer = SimpleNamespace(global_rank=0, world_size=1, fit_loop=outer)
        data.setup("fit")
        self.loader = data.train_dataloader()
        if hasattr(saved, "state_dict"):
            self.loader.load_state_dict(json.loads(json.dumps(saved.state_dict())))
        self.first = done + (batches == 6)

    def __iter__(self) -> Iterator[list[str]]:
        batches = iter(self.loader)
        for epoch in range(self.first, 3):
            getattr(self.loader, "batch_sampler", self.loader).sampler.set_epoch(epoch)
            if epoch > self.first:
                batches = iter(self.loader)
            for batch in batches:
                yield batch["id"]
