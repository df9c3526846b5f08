"""A folder that is replaced while it is open: reads of it are errors, and never a mix."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from comal import taco
from comal.errors import ObjectChangedError
from comal.taco.reading.dataset import TacoDataset
from tests.taco.write.small import dataset, flat

READS: dict[str, Callable[[TacoDataset], Any]] = {
    "bytes": lambda opened: opened.data.read_bytes(0),
    "many": lambda opened: opened.data.read_bytes(),
}


def write(path: Path, count: int) -> None:
    taco.create(dataset(flat(count)), path, output_format="folder", overwrite=True)


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("copied", [False, True])
def test_another_version_is_not_mixed_in(tmp_path: Path, name: str, copied: bool) -> None:
    write(tmp_path / "a", 5)
    opened = taco.load(tmp_path / "a")
    rows = opened.data
    if copied:
        opened = pickle.loads(pickle.dumps(opened))
    write(tmp_path / "a", 6)
    with pytest.raises(ObjectChangedError):
        READS[name](opened)
    with pytest.raises(ObjectChangedError):
        rows.read_bytes(0)
    assert len(opened.data) == 5, "as they were read when it was opened"
    assert len(taco.load(tmp_path / "a").data) == 6


def test_a_copy_elsewhere_is_no_other_version(tmp_path: Path) -> None:
    write(tmp_path / "a", 5)
    opened = taco.load(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a/notes.txt").write_text("of somebody")
    assert opened.data.read_bytes(0) == b"payload 0"
