"""Containers whose ids are paths: nothing is written outside of the target."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from comal.errors import ComalError
from comal.taco.copying.exporting import export, folder2zip, zip2folder
from comal.taco.copying.repairing import repair
from comal.taco.reading.dataset import load
from tests.attacks.build import FLAT, NESTED, Recipe, leaves_of
from tests.attacks.corpus import ATTACKS, Attack, first, foldered, set_column, zipped
from tests.support import files_below
from tests.taco.write.small import Archive

EVIL = ("../evil", "/tmp/evil-of-comal", "..", "a/../../evil", "C:\\evil", "a\0b", "__meta__")


def _tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


@pytest.mark.parametrize("name", EVIL)
def test_ids_are_never_paths(name: str, tmp_path: Path) -> None:
    path = zipped(Recipe(tree=FLAT, table=set_column(0, "id", first(name))))(tmp_path)
    before = _tree(tmp_path)
    writers: list[Callable[[Path], Path]] = [
        lambda target: export(load(path), target, "folder"),
        lambda target: export(load(path), target, "zip"),
        lambda target: zip2folder(path, target),
        lambda target: repair(path, target),
    ]
    for write in writers:
        with pytest.raises(ComalError):
            write(tmp_path / "out")
        assert _tree(tmp_path) == before
    assert not Path("/tmp/evil-of-comal").exists()


@pytest.mark.parametrize("name", EVIL)
def test_paths_of_rows_are_never_paths_of_files(name: str, tmp_path: Path) -> None:
    recipe = Recipe(table=set_column(2, "internal:relative_path", first(name)))
    for form, make in (("zip", zipped(recipe)), ("folder", foldered(recipe))):
        place = tmp_path / form
        place.mkdir()
        path = make(place)
        before = _tree(tmp_path)
        target = tmp_path / "out"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if path.is_dir():
                    folder2zip(path, target.with_suffix(".tacozip"))
                else:
                    zip2folder(path, target)
            except ComalError:
                assert _tree(tmp_path) == before
                continue
        # The parents told where the row belongs; then all samples are there and nothing else is.
        made = _tree(tmp_path) - before
        assert all(part.startswith("out") for part in made)
        if target.is_dir():
            for leaf, data in leaves_of(NESTED):
                assert (target / "DATA" / leaf).read_bytes() == data
            target.rename(place / "done")


OPENED = [attack for attack in ATTACKS if attack.check_raises is None]
STRICT = ("zip-", "taco-id-", "taco-entry-undeclared", "taco-header-entry", "taco-source-")
"""Codes of what reads right, and a conversion refuses: more than the tables say, an index."""
PARTIAL = {"taco-pit-1", "taco-extent-column"}
"""Codes of what reads right, and an export refuses: no tree, places that are none."""


def _convert(path: Path, target: Path) -> Path:
    if path.is_dir():
        return folder2zip(path, target.with_suffix(".tacozip"))
    return zip2folder(path, target)


_OWN = re.compile("__meta__$|__TACOPAD__")


@pytest.mark.parametrize("attack", OPENED, ids=[attack.name for attack in OPENED])
def test_a_copy_has_right_bytes_or_there_is_none(attack: Attack, tmp_path: Path) -> None:
    path = attack.make(tmp_path)
    before = _tree(tmp_path)
    truth = {name: data for name, data in leaves_of(attack.tree) if "__TACOPAD__" not in name}
    strict = any(code.startswith(STRICT) for code in attack.codes)
    copies: list[tuple[Callable[[], Path], bool]] = [
        (lambda: export(load(path), tmp_path / "copy.tacozip"), not attack.codes & PARTIAL),
        (lambda: _convert(path, tmp_path / "b"), not strict),
    ]
    for copy, whole in copies:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = copy()
            except ComalError:
                assert not (attack.reads == "right" and whole)
                assert _tree(tmp_path) == before
                continue
        assert attack.reads != "refused"
        found = Archive(made).entries() if made.is_file() else files_below(made / "DATA")
        found = {name: data for name, data in found.items() if not _OWN.search(name)}
        assert found == truth
        before = _tree(tmp_path)
