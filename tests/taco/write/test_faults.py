"""Each call that changes files fails, or is the last one: a dataset is the old or the new one."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.faults import operations
from tests.faults.harness import KILL, REMOVALS, Faults, chosen, faults, listing, visible

HERE = "tests.faults.operations:"


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    with faults(tmp_path_factory.mktemp("faults")) as found:
        yield found


def by_others(folder: Path) -> int:
    """Rows of the folder, by pyarrow; zipfile reads the archive."""
    with zipfile.ZipFile(folder / "a.tacozip") as archive:
        assert archive.testzip() is None
    return int(pq.read_table(folder / "b/METADATA/level0.parquet").num_rows)


@pytest.mark.parametrize("operation", ["replace_taco_zip", "replace_taco_folder"])
def test_what_is_replaced(process: Faults, tmp_path: Path, operation: str) -> None:
    (tmp_path / "made").mkdir()
    operations.create_taco(str(tmp_path / "made"))
    folder = tmp_path / "to"

    def prepare() -> dict[str, str]:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "made", folder)
        return listing(folder)

    old = prepare()
    good = process.run(HERE + operation, folder)
    new = listing(folder)
    assert good.how == "done", good.text
    assert new == visible(new) != old
    for kind, number, at in chosen(good.calls, operation, 4):
        prepare()
        came = process.run(HERE + operation, folder, number, at)
        what = f"{kind} at call {at} ({came.struck}): {came}"
        left = listing(folder)
        assert came.how in ({"killed"} if number == KILL else {"done", "error"}), what
        assert came.how != "error" or came.error == "StorageError", what
        assert visible(left) in (old, new), what
        assert by_others(folder) == 3, what
        if came.how != "killed" and came.struck not in REMOVALS:
            assert left == visible(left), what
        if came.how == "done" or kind in ("EINTR", "short"):
            assert visible(left) == new, what
