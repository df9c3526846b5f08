"""What the reference writer makes, read by comal: right bytes, also where its index is wrong."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import pytest

from comal.taco.copying.exporting import export, folder2zip, zip2folder
from comal.taco.reading.dataset import load
from comal.taco.spec import TacoWarning
from tests.interop.environments import LATEST, drive
from tests.support import digests
from tests.taco.write.small import Archive

pytestmark = pytest.mark.interop

NAMES = ["flat.tacozip", "sorted.tacozip", "swapped.tacozip", "folder", "parts"]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, str]]]:
    root = tmp_path_factory.mktemp("theirs")
    (answers,) = drive(LATEST, "write.py", root / "home", [str(root)])
    return root, answers


def leaves_of(dataset: Any) -> dict[str, bytes]:
    frame = dataset.data
    return {path: frame.read_bytes(path) for path, _ in frame.walk()}


@pytest.mark.parametrize("name", NAMES)
def test_every_leaf(theirs: tuple[Path, dict[str, dict[str, str]]], name: str) -> None:
    root, answers = theirs
    with warnings.catch_warnings():
        # The index of nested archives with such ids is known to be wrong.
        warnings.simplefilter("ignore", TacoWarning)
        dataset = load(root / name)
        assert digests(leaves_of(dataset)) == answers[name]
        deepest = dataset.flatten()
        for place in range(len(deepest)):
            row = {name: deepest.to_arrow()[name][place].as_py() for name in deepest.columns}
            data = deepest.read_bytes(place)
            ids = [row[f"l{n}:id"] for n in range(3) if f"l{n}:id" in row]
            assert hashlib.sha256(data).hexdigest() == answers[name]["/".join(ids)]


def test_the_index_of_unsorted_ids_is_wrong_and_comal_says_so(
    theirs: tuple[Path, dict[str, dict[str, str]]],
) -> None:
    root, answers = theirs
    wrong = Archive(root / "swapped.tacozip")
    assert digests(wrong.entries()) == answers["swapped.tacozip"]
    assert digests(wrong.leaves()) != answers["swapped.tacozip"]
    dataset = load(root / "swapped.tacozip")
    with pytest.warns(TacoWarning, match="not those of their samples"):
        found = leaves_of(dataset)
    assert digests(found) == answers["swapped.tacozip"]


@pytest.mark.parametrize("name", NAMES)
def test_exports_and_conversions_are_right(
    theirs: tuple[Path, dict[str, dict[str, str]]], name: str, tmp_path: Path
) -> None:
    root, answers = theirs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TacoWarning)
        path = export(load(root / name), tmp_path / "out.tacozip")
        made = [path]
        if name.endswith(".tacozip"):
            made.append(folder2zip(zip2folder(root / name, tmp_path / "f"), tmp_path / "b.zip"))
        elif name == "folder":
            made.append(folder2zip(root / name, tmp_path / "b.zip"))
    for path in made:
        archive = Archive(path)
        assert digests(archive.leaves()) == digests(archive.walked()) == answers[name]
