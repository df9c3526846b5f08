"""Sets of files: what names them, and how many there may be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import raquet, taco, tortilla
from comal.errors import ComalError, InvalidInputError
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


def _raquets(folder: Path) -> list[Path]:
    tiles: Any = {(4, x, 3): [np.full((16, 16), x + 1, "uint8")] for x in range(5)}
    write(folder / "r.parquet", tiles)
    made = raquet.partition(folder / "r.parquet", folder / "parts", zoom=4)
    return [Path(one.path) for one in made]


def _tortillas(folder: Path) -> list[Path]:
    samples = [tortilla.Sample(id=f"s{n}", path=b"x" * 45) for n in range(10)]
    return list(tortilla.create(samples, folder / "d.tortilla", chunk_size=100).paths)


def _error(call: Callable[[], Any]) -> ComalError | None:
    try:
        call()
    except ComalError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("make", "open_"),
    [(_raquets, raquet.open), (_tortillas, tortilla.open)],
    ids=["raquet", "tortilla"],
)
def test_a_damaged_file_of_a_set_is_refused_by_its_name_as_it_is_alone(
    make: Any, open_: Any, tmp_path: Path
) -> None:
    """What files of a set share is read once, and yet each is checked."""
    paths = make(tmp_path)
    assert len(paths) == 5
    damaged, whole = paths[3], paths[3].read_bytes()
    start = len(whole) - 600 if open_ is raquet.open else 0
    kinds = set()
    for at in [*range(max(0, start), len(whole), 23), *range(len(whole) - 8, len(whole))]:
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        # Others were opened before, and what they have is remembered.
        together = _error(lambda: open_(paths))
        alone = _error(lambda: open_([damaged]) if open_ is raquet.open else open_(damaged))
        if alone is None:
            continue
        assert together is not None, at
        assert (type(together), together.what) == (type(alone), alone.what), at
        assert damaged.name in str(together), at
        kinds.add(type(together))
    assert kinds
    damaged.write_bytes(whole)
    open_(paths)
