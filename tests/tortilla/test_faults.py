"""Each call that changes files fails, or is the last one: the file is the old or the new one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from comal import tortilla
from tests.faults import operations
from tests.faults.harness import KILL, REMOVALS, Faults, chosen, faults, listing, visible
from tests.tortilla.write.oracle import read

CHANGES = ["append", "set_columns", "delete_rows", "compact_tortilla"]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    with faults(tmp_path_factory.mktemp("faults")) as found:
        yield found


@pytest.mark.parametrize("operation", CHANGES)
def test_changes(process: Faults, tmp_path: Path, operation: str) -> None:
    samples = [tortilla.Sample(f"s{n}", path=f"item {n}".encode(), n=n) for n in range(4)]
    made = tortilla.create(samples, tmp_path / "made.tortilla").path
    if operation == "compact_tortilla":
        tortilla.delete(made, ids=["s0"])
    folder, name = tmp_path / "to", f"tests.faults.operations:{operation}"

    def prepare() -> dict[str, str]:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(made, operations.tortilla_of(str(folder)))
        return listing(folder)

    old = prepare()
    good = process.run(name, folder)
    new = listing(folder)
    assert good.how == "done", good.text
    assert new == visible(new) != old
    assert read(operations.tortilla_of(str(folder))).items  # by pyarrow
    for kind, number, at in chosen(good.calls, operation, 4):
        prepare()
        came = process.run(name, folder, number, at)
        what = f"{kind} at call {at} ({came.struck}): {came}"
        left = listing(folder)
        assert came.how in ({"killed"} if number == KILL else {"done", "error"}), what
        assert came.how != "error" or came.error == "StorageError", what
        assert visible(left) in (old, new), what
        if came.how != "killed" and came.struck not in REMOVALS:
            assert left == visible(left), what
        if came.how == "done" or kind in ("EINTR", "short"):
            assert visible(left) == new, what
        if visible(left) == old:
            assert process.run(name, folder).how == "done", what
            assert visible(listing(folder)) == new, what
