"""Containers that are replaced, rewritten, shortened or removed while they are open.

Reads of them are errors, and never a mix.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from comal import taco, tortilla
from comal.errors import ComalError, ObjectChangedError, ObjectNotFoundError
from comal.taco.reading.dataset import TacoDataset
from tests.attacks.build import FLAT, Recipe
from tests.taco.write.small import dataset, flat


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(Recipe(dict.fromkeys(FLAT, b"other")).build())
    other.replace(path)


def rewritten(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"A" * 40)] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))


CHANGES: dict[str, tuple[Callable[[Path], Any], type[ComalError]]] = {
    "replaced": (replaced, ObjectChangedError),
    "rewritten in place": (rewritten, ObjectChangedError),
    "removed": (Path.unlink, ObjectNotFoundError),
    **{
        f"cut to {keep}": (partial(os.truncate, length=keep), ComalError)
        for keep in (0, 100, 157, 300, 3_000)
    },
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("kind", ["taco", "tortilla"])
def test_what_has_changed_is_an_error_and_never_mixed(kind: str, name: str, tmp_path: Path) -> None:
    change, error = CHANGES[name]
    path = tmp_path / f"x.{kind}"
    if kind == "taco":
        path.write_bytes(Recipe(FLAT).build())
        frame: Any = taco.load(path).data
    else:
        tortilla.create([tortilla.Sample(id=n, path=data) for n, data in FLAT.items()], path)
        frame = tortilla.open(path)
    assert frame.read_bytes(0) == FLAT["img_0.bin"]
    change(path)
    with pytest.raises(error):
        frame.read_bytes(1)


# -- a folder that is replaced ---------------------------------------------------------------------

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
