"""Containers that change, shrink or vanish while they are open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from comal.errors import ComalError, ObjectChangedError, ObjectNotFoundError
from comal.taco.reading.dataset import load
from tests.attacks.build import FLAT, NESTED, Recipe
from tests.attacks.corpus import zipped


def test_a_file_that_is_replaced_is_never_mixed(tmp_path: Path) -> None:
    path = zipped(Recipe(tree=FLAT))(tmp_path)
    dataset = load(path)
    other = tmp_path / "other"
    other.write_bytes(Recipe(tree={name: data[::-1] for name, data in NESTED_FLAT}).build())
    other.replace(path)
    with pytest.raises(ObjectChangedError):
        _ = dataset.data.read_bytes(0)


NESTED_FLAT = [(name, bytes(reversed(range(40 + n)))) for n, name in enumerate(FLAT)]


def test_a_file_that_is_rewritten_in_place_is_noticed(tmp_path: Path) -> None:
    path = zipped(Recipe(tree=FLAT))(tmp_path)
    frame = load(path).data
    assert frame.read_bytes(0) == FLAT["img_0.bin"]
    data = bytearray(path.read_bytes())
    data[data.index(b"A" * 40)] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ObjectChangedError):
        frame.read_bytes(0)


@pytest.mark.parametrize("keep", [0, 100, 157, 300, 3000])
def test_a_file_that_shrinks_is_an_error(tmp_path: Path, keep: int) -> None:
    path = zipped(Recipe(tree=NESTED))(tmp_path)
    frame = load(path).data
    os.truncate(path, keep)
    with pytest.raises(ComalError):
        frame.read("s2").read("imagery").read_bytes("before.bin")


def test_a_file_that_vanishes_is_an_error(tmp_path: Path) -> None:
    path = zipped(Recipe(tree=FLAT))(tmp_path)
    frame = load(path).data
    path.unlink()
    with pytest.raises(ObjectNotFoundError):
        frame.read_bytes(0)
