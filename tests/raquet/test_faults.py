"""Each call that changes files fails, or is the last one: nothing is torn, silent or lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from comal import raquet
from tests.faults import operations
from tests.faults.harness import (
    KILL,
    REMOVALS,
    Faults,
    chosen,
    faults,
    listing,
    visible,
)
from tests.raquet.writing.sources import noise, on_grid

HERE = "tests.faults.operations:"
OPERATIONS = {
    "write_raquet": 7,
    "replace_raquet": 6,
    "partition_raquet": 5,
    "export_raquet": 6,
}
"""With how many calls of each the fault happens."""


@dataclass
class Place:
    """A folder to write to, with sources beside it."""

    faults: Faults
    folder: Path

    def prepare(self, operation: str) -> dict[str, str]:
        """An empty folder, or one with what is to be replaced; what is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        if operation == "replace_raquet":
            shutil.copy(self.folder.parent / "whole.parquet", self.folder / "out.parquet")
        return listing(self.folder)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("faults")
    on_grid(root / "source.tif", noise((1, 300, 420), "uint16"))
    (root / "to").mkdir()
    operations.write_raquet(str(root / "to"))
    (root / "to" / "out.parquet").rename(root / "whole.parquet")
    with faults(root) as found:
        yield Place(found, root / "to")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_fault(place: Place, operation: str) -> None:
    old = place.prepare(operation)
    sources = {path: path.read_bytes() for path in place.folder.parent.glob("*.*")}
    good = place.faults.run(HERE + operation, place.folder)
    new = listing(place.folder)
    assert good.how == "done", good.text
    assert new == visible(new) != old
    for kind, number, at in chosen(good.calls, operation, OPERATIONS[operation]):
        place.prepare(operation)
        came = place.faults.run(HERE + operation, place.folder, number, at)
        what = f"{kind} at call {at} ({came.struck}): {came}"
        left = listing(place.folder)
        assert came.how in ({"killed"} if number == KILL else {"done", "error"}), what
        if came.how == "done":
            assert visible(left) == new, what
        else:
            assert visible(left) in (old, new), what
        if came.how == "error":
            assert came.error == "StorageError", what
            assert came.struck, what
        if came.how != "killed" and came.struck not in REMOVALS:
            assert left == visible(left), what
        if kind in ("EINTR", "short"):
            assert came.how == "done", what
        if visible(left) == old and kind in ("kill", "ENOSPC"):
            again = place.faults.run(HERE + operation, place.folder)
            assert again.how == "done", f"{what}\n{again}"
            assert visible(listing(place.folder)) == new, what
    assert {path: path.read_bytes() for path in sources} == sources
    assert not [path for path in place.folder.parent.iterdir() if path.name.startswith(".")]


def test_what_was_written_is_sound(place: Place) -> None:
    assert raquet.check(place.folder.parent / "whole.parquet").total == 0
