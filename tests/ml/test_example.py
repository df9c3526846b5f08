"""The example trains, is stopped, and ends with the weights of a run that was not stopped."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support import REPOSITORY

NOTEBOOK = REPOSITORY / "examples" / "train_unet.ipynb"

if not os.environ.get("CI"):  # with CI=true its absence is a failure
    pytest.importorskip("torch")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    place = REPOSITORY / "examples" / "train_unet.py"
    spec = importlib.util.spec_from_file_location("train_unet", place)
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
