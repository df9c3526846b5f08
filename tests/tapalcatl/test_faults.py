"""Each call that changes files fails, or is the last one: nothing is torn, silent or lost."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from comal import tapalcatl
from tests.faults import operations
from tests.faults.foreign import Foreign
from tests.faults.harness import REMOVALS, Faults, Sweep, fails_or_is_whole, listing, visible
from tests.tapalcatl.making import read_pmtiles, write_mbtiles

HERE = "tests.faults.operations:"
WHOLE = {"build": 5, "build_from_file": 5, "replace_tileset": 5, "to_mbtiles": 4, "to_pmtiles": 4}
"""What appears as a whole, and with how many calls of each a fault happens."""
CHANGES = {"put": 7, "put_into_archive": 6, "delete": 5, "compact": 6, "edit": 5}
Content = dict[str, Any]


@dataclass
class Place:
    """A folder to write to, with sources beside it."""

    faults: Faults
    folder: Path

    def prepare(self, operation: str) -> None:
        """An empty folder, or one with what is to be changed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        if operation in CHANGES or operation == "replace_tileset":
            kind = "used" if operation == "compact" else "tiles"
            shutil.copytree(self.folder.parent / kind, self.folder / "out")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, faults: Faults) -> Place:
    root = tmp_path_factory.mktemp("faults")
    write_mbtiles(root / "source.mbtiles", operations.TILES)
    (root / "to").mkdir()
    operations.build(str(root / "to"))
    shutil.copytree(root / "to" / "out", root / "tiles")
    operations.put(str(root / "to"))
    operations.delete(str(root / "to"))
    (root / "to" / "out").rename(root / "used")
    return Place(faults, root / "to")


@pytest.mark.parametrize("operation", WHOLE)
def test_what_appears_as_a_whole(place: Place, operation: str) -> None:
    fails_or_is_whole(
        place.faults,
        HERE + operation,
        place.folder,
        WHOLE[operation],
        lambda: place.prepare(operation),
        resumes=operation == "build_from_file",
    )


def archives(tree: Path) -> dict[str, Content]:
    """Entries of each archive by CPython's zipfile, and the document."""
    found: dict[str, Content] = {"meta.json": json.loads((tree / "meta.json").read_bytes())}
    for path in sorted(tree.rglob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            content: Content = {name: archive.read(name) for name in archive.namelist()}
            content["comment"] = archive.comment
        found[path.relative_to(tree).as_posix()] = content
    return found


@pytest.mark.parametrize("operation", CHANGES)
def test_changes(place: Place, operation: str) -> None:
    place.prepare(operation)
    tree = place.folder / "out"
    old = archives(tree)
    sweep = Sweep(place.faults, HERE + operation, place.folder, lambda: place.prepare(operation))
    new = archives(tree)
    assert new != old or operation == "compact"
    readers, both = Foreign(), {**old, **new}
    for one in sweep.attempts(CHANGES[operation]):
        came, what = one.came, one.what
        if came.how == "done" and came.struck not in REMOVALS:
            assert one.left == visible(one.left), what
        if one.kind in ("EINTR", "short"):
            assert came.how == "done", what
        # Nothing is mended before others read it.
        readers.read(tree.rglob("[!.]*.zip"), what)
        now = archives(tree)
        if came.how == "done":
            assert now == new, what
        for name in both.keys() | now.keys():
            assert now.get(name) in (old.get(name), new.get(name)), f"{name}: {what}"
        tapalcatl.recover(tree)
        if operation != "compact":  # whose archives are replaced one by one
            assert archives(tree) in (old, new), what
        left = listing(place.folder)
        if came.how == "error" and came.struck not in REMOVALS:
            assert left == visible(left), what
        if came.how != "done" and one.kind != "EIO":
            sweep.again(one)
            assert archives(tree) == new, what


def test_what_is_exported_is_right(place: Place) -> None:
    place.prepare("to_pmtiles")
    assert place.faults.run(HERE + "to_pmtiles", place.folder).how == "done"
    assert read_pmtiles(place.folder / "out.pmtiles") == operations.TILES
