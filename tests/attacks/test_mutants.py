"""Containers mutated by chance: right bytes or an error of ours, whatever comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import NotThisFormatError, UnsupportedVersionError
from comal.taco import checking
from tests.attacks.build import COLLECTION, FLAT, NESTED, Recipe, Tree, header_payload, replaced
from tests.attacks.reading import checked, read_everything

_NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, -1, 41, 157, 2**31, 2**32 - 1, 2**63 - 1]),
    st.none(),
)
_COLUMNS = st.sampled_from(
    ["internal:offset", "internal:size", "internal:parent_id", "internal:current_id"]
)


def _try(path: Path, tree: Tree) -> None:
    readings = read_everything(path, tree)
    assert readings.wrong == []
    report = checked(checking, path, (NotThisFormatError, UnsupportedVersionError))
    assert report is None or report.total or not readings.errors


@settings(max_examples=12)
@given(level=st.integers(0, 2), column=_COLUMNS, values=st.lists(_NUMBERS, min_size=6, max_size=6))
def test_numbers_of_the_level_tables(
    tmp_path: Path, level: int, column: str, values: list[int | None]
) -> None:
    def change(depth: int, table: Any) -> Any:
        if depth != level:
            return table
        return replaced(table, column, values[: table.num_rows], pa.int64())

    path = tmp_path / "mutant.tacozip"
    path.write_bytes(Recipe(table=change).build())
    _try(path, NESTED)


@settings(max_examples=12)
@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
        | st.tuples(st.integers(0, 40_000), st.integers(0, 40_000)),
        min_size=4,
        max_size=4,
    ),
    keep=st.lists(st.booleans(), min_size=4, max_size=4),
    count=st.integers(0, 255) | st.just(4),
)
def test_slots_of_the_header(
    tmp_path: Path, pairs: list[tuple[int, int]], keep: list[bool], count: int
) -> None:
    def header(honest: list[tuple[int, int]]) -> bytes:
        mixed = [
            one if kept else other for one, other, kept in zip(honest, pairs, keep, strict=True)
        ]
        return header_payload(mixed, count)

    path = tmp_path / "mutant.tacozip"
    path.write_bytes(Recipe(header=header).build())
    _try(path, NESTED)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=12)
@given(
    key=st.sampled_from([*COLLECTION, "taco:pit_schema", "taco:field_schema", "taco:sources"]),
    value=JSON,
)
def test_any_value_in_the_collection(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "mutant.tacozip"
    path.write_bytes(Recipe(tree=FLAT, collection=lambda d: {**d, key: value}).build())
    _try(path, FLAT)


@settings(max_examples=12)
@given(names=st.lists(st.text(max_size=12), min_size=4, max_size=4))
def test_any_text_as_an_id(tmp_path: Path, names: list[str]) -> None:
    def change(depth: int, table: Any) -> Any:
        return replaced(table, "id", names)

    path = tmp_path / "mutant.tacozip"
    recipe = Recipe(tree=FLAT, table=change)
    path.write_bytes(recipe.build())
    # Names that lie about the entries: nothing but the container's own samples may come.
    readings = read_everything(path, {})
    assert all("which is not a sample" in text for text in readings.wrong)
    assert checking.check(path).total or set(names) == set(FLAT)
