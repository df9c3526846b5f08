"""Containers that are replaced, rewritten, shortened or removed while they are open."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from comal import taco, tortilla
from comal.errors import ComalError, ObjectChangedError, ObjectNotFoundError
from tests.attacks.build import FLAT, Recipe


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
