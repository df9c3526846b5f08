"""Each call that changes files fails, or is the last one: nothing is torn, silent or lost."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults import operations
from tests.faults.harness import Faults, fails_or_is_whole
from tests.raquet.writing.sources import noise, on_grid

HERE = "tests.faults.operations:"
OPERATIONS = {
    "write_raquet": 5,
    "replace_raquet": 5,
    "partition_raquet": 5,
    "export_raquet": 5,
}
"""With how many calls of each the fault happens."""


@dataclass
class Place:
    """A folder to write to, with sources beside it."""

    faults: Faults
    folder: Path

    def prepare(self, operation: str) -> None:
        """An empty folder, or one with what is to be replaced."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        if operation == "replace_raquet":
            shutil.copy(self.folder.parent / "whole.parquet", self.folder / "out.parquet")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, faults: Faults) -> Place:
    root = tmp_path_factory.mktemp("faults")
    on_grid(root / "source.tif", noise((1, 100, 140), "uint16"))
    (root / "to").mkdir()
    operations.write_raquet(str(root / "to"))
    (root / "to" / "out.parquet").rename(root / "whole.parquet")
    return Place(faults, root / "to")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_fault(place: Place, operation: str) -> None:
    sources = {path: path.read_bytes() for path in place.folder.parent.glob("*.*")}
    fails_or_is_whole(
        place.faults,
        HERE + operation,
        place.folder,
        OPERATIONS[operation],
        lambda: place.prepare(operation),
    )
    assert {path: path.read_bytes() for path in sources} == sources
