"""Sets of parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comal import tortilla
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
)
from comal.tortilla import spec
from tests.tortilla import build
from tests.tortilla.build import Item


def written(folder: Path, count: int = 4, first: int = 1, *, taco: bool = False) -> list[Path]:
    """A set of parts of two items each."""
    paths = []
    for number in range(count):
        items = [Item(f"{number}{letter}", f"{number}{letter}".encode()) for letter in "ab"]
        name = f"set.{first + number:04d}.part.{'taco' if taco else 'tortilla'}"
        collection = {"id": "set"} if taco else None
        (folder / name).write_bytes(build.built(items, parts=count, collection=collection))
        paths.append(folder / name)
    return paths


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("taco", [False, True])
@pytest.mark.parametrize("which", range(4))
def test_one_part_finds_its_siblings(tmp_path: Path, first: int, which: int, *, taco: bool) -> None:
    paths = written(tmp_path, first=first, taco=taco)
    assert tortilla.open(paths[which])[spec.ID].to_pylist() == [f"{which}a", f"{which}b"]
    frame = tortilla.open(paths[which], siblings=True)
    assert frame[spec.ID].to_pylist() == ["0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b"]
    assert frame.files == [str(path) for path in paths]
    assert (frame.collection is not None) == taco


def test_patterns_and_lists_are_in_order(tmp_path: Path) -> None:
    paths = written(tmp_path, 12)
    expected = [name for n in range(12) for name in (f"{n}a", f"{n}b")]
    for path in (tmp_path / "set.*", str(tmp_path / "*.part.tortilla"), paths[::-1]):
        frame = tortilla.open(path)
        assert frame[spec.ID].to_pylist() == expected
        assert [one.decode() for one in frame.read_bytes()] == expected
        assert frame.read_bytes(["11b", "0a", 3]) == [b"11b", b"0a", b"1b"]


def test_two_sets_and_single_files_together(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    ones, twos = written(tmp_path), written(tmp_path / "two", 2)
    single = tmp_path / "z.tortilla"
    single.write_bytes(build.built([Item("z", b"z")]))
    frame = tortilla.open([single, twos[1], ones[2], twos[0], ones[3], ones[0], ones[1]])
    assert frame[spec.ID].to_pylist() == [
        *["z"],
        *["0a", "0b", "1a", "1b"],
        *["0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b"],
    ]
    assert frame.read_bytes("3b") == b"3b"
    with pytest.raises(InvalidInputError, match="2 rows"):
        frame.read("0a")


@pytest.mark.parametrize("missing", range(4))
def test_a_missing_part_is_an_error(tmp_path: Path, missing: int) -> None:
    paths = written(tmp_path)
    gone = paths.pop(missing)
    gone.unlink()
    with pytest.raises(InvalidMetadataError) as caught:
        tortilla.open(paths)
    assert [problem.code for problem in caught.value.problems] == ["tortilla-part-missing"]
    assert gone.name in caught.value.problems[0].message
    with pytest.raises(ObjectNotFoundError, match="part of the set is missing") as alone:
        tortilla.open(paths[0], siblings=True)
    assert gone.name in str(alone.value)
    assert "allow_partial" in str(alone.value)
    with pytest.warns(tortilla.TortillaWarning):
        assert len(tortilla.open(paths[0], siblings=True, allow_partial=True)) == 6
    assert tortilla.check(paths).counts["tortilla-part-missing"] == 1
    with pytest.warns(tortilla.TortillaWarning, match="missing"):
        frame = tortilla.open(paths, allow_partial=True)
    assert len(frame) == 6
    assert tortilla.check(paths[0]).counts == {}


def test_a_broken_part_is_an_error(tmp_path: Path) -> None:
    paths = written(tmp_path)
    paths[2].write_bytes(b"something else")
    with pytest.raises(NotThisFormatError):
        tortilla.open(paths)
    with pytest.warns(tortilla.TortillaWarning):
        assert len(tortilla.open(paths, allow_partial=True)) == 6


def test_files_that_are_no_set(tmp_path: Path) -> None:
    paths = written(tmp_path, 2)
    with pytest.raises(InvalidInputError, match="twice"):
        tortilla.open([paths[0], paths[0], paths[1]])
    assert tortilla.check([paths[0], paths[0]]).counts["tortilla-part-twice"] == 1
    stranger = tmp_path / "set.0007.part.tortilla"
    stranger.write_bytes(paths[0].read_bytes())
    assert "tortilla-part-count" in tortilla.check([*paths, stranger]).counts
    with pytest.raises(InvalidMetadataError):
        tortilla.open([*paths, stranger])
    renamed = [path.rename(tmp_path / f"{number}.tortilla") for number, path in enumerate(paths)]
    assert len(tortilla.open(renamed)) == 4
    with pytest.raises(InvalidMetadataError):
        tortilla.open([renamed[0]])
    with pytest.raises(InvalidInputError, match="names of the others"):
        tortilla.open(renamed[0], siblings=True)


def test_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        tortilla.open([])
    with pytest.raises(ObjectNotFoundError):
        tortilla.open(tmp_path / "*.tortilla")
    with pytest.raises(ObjectNotFoundError):
        tortilla.open(tmp_path / "x.tortilla")
    with pytest.raises(NotThisFormatError):
        tortilla.open(tmp_path)


def test_a_name_with_the_characters_of_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "a[1]*.tortilla"
    path.write_bytes(build.built([Item("z", b"z")]))
    assert tortilla.open(path).read("z") == b"z"


def test_parts_may_lack_the_type_of_a_column(tmp_path: Path) -> None:
    for number, value in enumerate([None, 2.5, None], 1):
        items = [Item(f"i{number}", b"x", more={"cloud": value})]
        (tmp_path / f"s.{number:04d}.part.tortilla").write_bytes(build.built(items, parts=3))
    assert tortilla.open(tmp_path / "s.*")["cloud"].to_pylist() == [None, 2.5, None]
    assert tortilla.check(tmp_path / "s.*").counts == {"tortilla-part-schema": 1}


def part(name: str, parts: int = 2, more: Any = None, **how: Any) -> bytes:
    return build.built([Item(name, b"x", more=more or {"cloud": 1})], parts=parts, **how)


WITHOUT: dict[str, Any] = {"table": lambda table: table.drop_columns([spec.ID])}
OTHERS: dict[str, tuple[bytes, dict[str, int]]] = {
    "another column": (part("i2", more={"wind": 1}), {"tortilla-part-schema": 1}),
    "no ids": (part("i2", **WITHOUT), {"tortilla-part-schema": 1, "tortilla-column-missing": 1}),
    "the same ids": (part("i1"), {"tortilla-id-twice": 1}),
    "cut": (part("i2")[:150], {"tortilla-header": 1, "tortilla-part-missing": 1}),
    "one part": (part("i2", parts=1), {"tortilla-name": 1, "tortilla-part-missing": 1}),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("first", [1, 2])
def test_a_part_that_does_not_fit(tmp_path: Path, name: str, first: int) -> None:
    data, expected = OTHERS[name]
    for number, one in ((first, part("i1")), (3 - first, data)):
        (tmp_path / f"s.{number:04d}.part.tortilla").write_bytes(one)
    report = tortilla.check(tmp_path / "s.*")
    assert report.counts == expected
    assert all(".part.tortilla" in problem.place for problem in report.problems), report.problems


def test_nested_files_of_parts(tmp_path: Path) -> None:
    for number in (1, 2):
        data = build.nested(("roi", [Item("x", f"x{number}".encode())]), parts=2)
        (tmp_path / f"s.{number:04d}.part.tortilla").write_bytes(data)
    frame = tortilla.open(tmp_path / "s.*")
    assert [frame.read(row).read("x") for row in (0, 1)] == [b"x1", b"x2"]
    flat = frame.flatten()
    assert flat.read_bytes() == [b"x1", b"x2"]
    assert flat[spec.PART].to_pylist() == [0, 1]
    assert "s.0002" in flat[spec.SUBFILE][1].as_py()
    assert tortilla.check(tmp_path / "s.*").counts == {"tortilla-id-twice": 1}
