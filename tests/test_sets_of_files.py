"""Sets of files: what names them, and how many there may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import raquet, taco, tortilla
from comal.errors import InvalidInputError
from comal.raquet.writing import copying
from comal.taco.writing import creating
from comal.tortilla import writing as partfiles
from tests.raquet.build import write
from tests.taco.write.small import dataset, flat


def _files(count: int) -> None:
    Path("in").mkdir(exist_ok=True)
    for number in range(count):
        (Path("in") / f"{number}.bin").write_bytes(b"x")


def _taco(out: Path, **how: Any) -> list[Path]:
    return taco.create(dataset(flat(4)), out / "d.tacozip", **how)


def _tortilla(out: Path, **how: Any) -> list[Path]:
    return list(tortilla.pack_folder("in", out / "d.tortilla", stac=False, **how).paths)


def _compiled(out: Path, **how: Any) -> list[Path]:
    tortilla.pack_folder("in", "all.tortilla", stac=False, overwrite=True)
    return list(tortilla.compile("all.tortilla", out / "d.tortilla", **how).paths)


def _raquet(out: Path, **how: Any) -> list[Path]:
    tiles: Any = {(2, x, y): [np.ones((16, 16), "uint8")] for x in (0, 1) for y in (0, 1)}
    write(Path("r.parquet"), tiles)
    return [Path(one.path) for one in raquet.partition("r.parquet", out / "parts", **how)]


WRITERS: list[tuple[Callable[..., list[Path]], dict[str, Any]]] = [
    (_taco, {"split_size": 1}),
    (_tortilla, {"chunk_size": 1}),
    (_compiled, {"chunk_rows": 1}),
    (_raquet, {"zoom": 2}),
]


@pytest.mark.parametrize(("make", "cut"), WRITERS)
def test_paths_of_a_set_are_written_as_the_output_was(
    make: Callable[..., list[Path]], cut: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    _files(4)
    for out in (Path("relative"), tmp_path / "absolute"):
        out.mkdir()
        made = make(out, **cut)
        assert len(made) >= 4
        assert {path.is_absolute() for path in made} == {out.is_absolute()}
        assert all(path.exists() and path.is_relative_to(out) for path in made)


@pytest.mark.parametrize(("make", "cut"), WRITERS)
def test_a_set_of_too_many_files_is_refused_and_leaves_nothing(
    make: Callable[..., list[Path]], cut: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    _files(4)
    for module, name in ((creating, "MOST"), (copying, "MOST"), (partfiles, "_MOST")):
        assert getattr(module, name) == 9_999
        monkeypatch.setattr(module, name, 3)
    (tmp_path / "out").mkdir()
    with pytest.raises(InvalidInputError, match="too many"):
        make(Path("out"), **cut)
    assert list((tmp_path / "out").iterdir()) == []
