"""Sets of parts: cut by size or number, and published together or not at all."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comal import tortilla
from comal.errors import ConflictError, InvalidInputError
from comal.tortilla import Sample, create
from tests.support import files_below
from tests.tortilla.write.oracle import listing, read


def samples(count: int = 10, size: int = 100) -> list[Sample]:
    return [Sample(f"s{n}", path=bytes([n % 255 + 1]) * size) for n in range(count)]


def sizes(paths: Any) -> list[int]:
    return [len(read(path).ids) for path in paths]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("cut", "expected"),
    [
        ({"chunk_size": 300}, [3, 3, 3, 1]),
        ({"chunk_size": "0.3KB"}, [3, 3, 3, 1]),
        ({"chunk_size": 399}, [3, 3, 3, 1]),
        ({"chunk_size": 50}, [1] * 10),
        ({"chunk_size": "1GiB"}, [10]),
        ({"chunk_rows": 4}, [4, 4, 2]),
        ({"chunk_rows": 4, "chunk_size": 300}, [3, 3, 3, 1]),
    ],
)
def test_cuts(tmp_path: Path, cut: dict[str, Any], expected: list[int], stream: bool) -> None:
    source: Any = iter(samples()) if stream else samples()
    made = create(source, tmp_path / "soyuna.tortilla", **cut)
    if len(expected) == 1:
        assert listing(tmp_path) == ["soyuna.tortilla"]
    else:
        names = [f"soyuna.{n + 1:04}.part.tortilla" for n in range(len(expected))]
        assert listing(tmp_path) == names
        assert [path.name for path in made.paths] == names
    assert sizes(made.paths) == expected
    assert {read(path).parts for path in made.paths} == {len(expected)}
    frame = tortilla.open(made.path, siblings=True)
    expected_ids = [f"s{n}" for n in range(10)]
    assert frame["tortilla:id"].to_pylist() == expected_ids
    assert frame.read_bytes() == [bytes([int(name[1:]) + 1]) * 100 for name in expected_ids]


def test_names_of_parts(tmp_path: Path) -> None:
    create(samples(), tmp_path / "b.part.tortilla", chunk_rows=5)
    create(samples(), tmp_path / "c.taco", chunk_rows=5)
    create(samples(), tmp_path / "d.x", chunk_rows=5)
    assert listing(tmp_path) == [
        "b.0001.part.tortilla",
        "b.0002.part.tortilla",
        "c.0001.part.taco",
        "c.0002.part.taco",
        "d.x.0001.part.tortilla",
        "d.x.0002.part.tortilla",
    ]


def test_all_parts_have_all_columns(tmp_path: Path) -> None:
    def stream() -> Iterator[Any]:
        yield from samples(5_000, 1)
        yield Sample("last", path=b"1", late="x")

    made = create(stream(), tmp_path / "a.tortilla", chunk_rows=5_000)
    schemas = [read(path).table.schema for path in made.paths]
    assert schemas[0].equals(schemas[1])
    assert "late" in schemas[0].names


@pytest.mark.parametrize(
    ("cut", "match"),
    [
        ({"chunk_size": 0}, "chunk_size is not a size"),
        ({"chunk_size": "many"}, "chunk_size is not a size"),
        ({"chunk_size": True}, "chunk_size is not a size"),
        ({"chunk_rows": 0}, "chunk_rows is not a number of items"),
    ],
)
def test_cuts_that_cannot_be(tmp_path: Path, cut: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        create(samples(), tmp_path / "a.tortilla", **cut)
    assert listing(tmp_path) == []


def test_existing_files(tmp_path: Path) -> None:
    create(samples(), tmp_path / "a.tortilla", chunk_rows=3)
    before = files_below(tmp_path)
    with pytest.raises(ConflictError, match="another set"):
        create(samples(), tmp_path / "a.tortilla", chunk_rows=5, overwrite=True)
    assert files_below(tmp_path) == before
    create(samples(9), tmp_path / "a.tortilla", chunk_rows=2, overwrite=True)
    assert len(listing(tmp_path)) == 5
    part = tmp_path / "a.0002.part.tortilla"
    with pytest.raises(ConflictError, match="source"):
        create([Sample("x", path=part)], tmp_path / "a.tortilla", chunk_rows=1, overwrite=True)


def test_an_error_in_the_middle(tmp_path: Path) -> None:
    def stream() -> Iterator[Sample]:
        yield from samples(5_000, 1)
        raise KeyError("a mistake of the caller")

    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(KeyError):
        create(stream(), tmp_path / "a.tortilla", chunk_rows=1_000)
    assert listing(tmp_path) == []
    # Others in this process may let go of theirs meanwhile.
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
