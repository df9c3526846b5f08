"""Each call that changes files fails, or is the last one, while a set is written or a file edited.

Afterwards the set is the old or the new one, or the command that the error or ``comal check`` names
makes it one of them; and the job succeeds when it is run again.
"""

from __future__ import annotations

import re
import shlex
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from comal import raquet, tortilla
from comal.cli import root
from tests.faults import operations
from tests.faults.harness import REMOVALS, Faults, Sweep, listing, visible
from tests.server.making import tiff
from tests.tortilla.write.oracle import read

HERE = "tests.faults.operations:"
Make = Callable[[str], None]


def _tortilla(folder: str) -> None:
    samples = [tortilla.Sample(f"s{n}", path=f"item {n}".encode(), n=n) for n in range(4)]
    tortilla.create(samples, operations.tortilla_of(folder))


def _tortilla_with_a_gap(folder: str) -> None:
    _tortilla(folder)
    tortilla.delete(operations.tortilla_of(folder), ids=["s0"])


SETS: dict[str, tuple[Make | None, str]] = {
    "append": (_tortilla, ""),
    "set_columns": (_tortilla, ""),
    "delete_rows": (_tortilla, ""),
    "compact_tortilla": (_tortilla_with_a_gap, ""),
    "tortilla_parts": (None, "a.tortilla"),
    "replace_tortilla_parts": (operations.tortilla_parts, "a.0001.part.tortilla"),
    "fewer_tortilla_parts": (operations.tortilla_parts, "a.0001.part.tortilla"),
    "taco_parts": (None, "a.tacozip"),
    "replace_taco_parts": (operations.taco_parts, "a_part0001.tacozip"),
    "fewer_taco_parts": (operations.taco_parts, "a_part0001.tacozip"),
    "raquet_parts": (None, "parts"),
    "replace_raquet_parts": (operations.raquet_parts, "parts"),
    "replace_taco_folder": (operations.taco_folder, "b"),
    "replace_taco_zip": (operations.create_taco, "a.tacozip"),
    "put": (operations.build, "out"),
}
"""What is there before, and a name to check; none where nothing may have to be mended."""
COMMAND = re.compile(r"'(comal (?:clean|tapalcatl recover) [^']+)'")


def entries_of(folder: Path) -> dict[str, str]:
    """As `listing`, with the entries of archives of tiles.

    A `put` that is finished and then run again leaves old entries behind, which do not count.
    """
    found = listing(folder)
    for path in folder.rglob("[!.]*.zip"):
        with zipfile.ZipFile(path) as archive:
            entries = {entry: archive.read(entry) for entry in sorted(archive.namelist())}
        found[path.relative_to(folder).as_posix()] = repr(entries)
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, faults: Faults) -> tuple[Faults, Path]:
    home = tmp_path_factory.mktemp("sets")
    heights = np.arange(256 * 256, dtype=np.uint8).reshape(1, 256, 256)
    (home / "whole.tif").write_bytes(tiff(heights))
    raquet.write(home / "whole.tif", home / "whole.parquet", block_size=32)
    operations.build(str(home))
    (home / "out").rename(home / "tiles")
    return faults, home / "to"


def mended(text: str, target: Path) -> None:
    """Run the command that an error names, or else the check."""
    told = COMMAND.search(text)
    if told is None:
        text = CliRunner().invoke(root, ["check", str(target)]).output
        told = COMMAND.search(" ".join(text.split()))
    assert told is not None, text
    done = CliRunner().invoke(root, shlex.split(told[1])[1:])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("operation", SETS)
def test_a_set_is_old_or_new(place: tuple[Faults, Path], operation: str) -> None:
    process, folder = place
    before, name = SETS[operation]
    seen = entries_of if operation == "put" else listing
    kept = folder.with_name(f"before-{operation}")
    kept.mkdir()
    if before is not None:
        before(str(kept))

    def prepare() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder)

    sweep = Sweep(process, HERE + operation, folder, prepare, seen)
    if (folder / "a.tortilla").exists():
        assert read(folder / "a.tortilla").items  # by pyarrow
    after_errors: set[str] = set()  # the files that were there: from them it is run once
    for one in sweep.attempts(5):
        came, left, what = one.came, one.left, one.what
        if came.how == "done" or one.kind in ("EINTR", "short"):
            assert visible(left) == sweep.new, what
        if came.how != "killed" and came.struck not in REMOVALS and not COMMAND.search(came.text):
            assert left == visible(left), what
        if visible(left) not in (sweep.old, sweep.new):
            assert name, what
            mended(came.text, folder / name)
            left = seen(folder)
            assert left in (sweep.old, sweep.new), what
        if visible(left) == sweep.old and repr(left) not in after_errors:
            assert sweep.again(one) == sweep.new, what
            if came.how == "error":
                after_errors.add(repr(left))
    shutil.rmtree(kept)
