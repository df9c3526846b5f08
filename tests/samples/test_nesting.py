"""Id paths as levels, against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError, LimitExceededError
from comal.limits import DEFAULT_LIMITS
from comal.samples.intake import fields_at, levels_of

NAMES = st.sampled_from(["a", "b", "c", "A", "é", "aa", " ", "\n", "日本"])
ID_PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)


def levels(rows: list[tuple[Any, Any]], **options: Any) -> list[Any]:
    ids, paths = ([row[n] for row in rows] for n in (0, 1))
    return levels_of(pa.array(ids, pa.string()), pa.array(paths, pa.string()), **options)


def rebuilt(found: list[Any]) -> list[list[tuple[str, str | None, int]]]:
    """Id path, file and row of every sample, level by level, out of parents and names."""
    above: list[str] = [""]
    told: list[list[tuple[str, str | None, int]]] = []
    for level in found:
        names = [
            f"{above[parent]}/{name}".lstrip("/") if told else name
            for parent, name in zip(level.parents.tolist(), level.ids.to_pylist(), strict=True)
        ]
        told.append(list(zip(names, level.paths.to_pylist(), level.rows.tolist(), strict=True)))
        above = names
    return told


def fault(rows: list[tuple[str, str | None]]) -> str | None:
    """What is wrong with the rows."""
    names = [name for name, _ in rows]
    for number, name in enumerate(names):
        if name in names[:number]:
            return f"appears twice: manifest, row {number}"
    files = {name for name, path in rows if path is not None}
    for name in names:
        parts = name.split("/")
        if any("/".join(parts[:depth]) in files for depth in range(1, len(parts))):
            return "sample lies in what is not a folder"
    return None


def reference(rows: list[tuple[str, str | None]]) -> list[list[tuple[str, str | None, int]]]:
    """What the levels should be."""
    known = {name: (path, number) for number, (name, path) in enumerate(rows)}
    order: dict[str, None] = {}
    for name, _ in rows:
        parts = name.split("/")
        order |= {"/".join(parts[:depth]): None for depth in range(1, len(parts) + 1)}
    deepest = max((name.count("/") for name in order), default=-1)
    return [
        [(name, *known.get(name, (None, -1))) for name in order if name.count("/") == depth]
        for depth in range(deepest + 1)
    ]


@given(st.lists(st.tuples(ID_PATHS, st.sampled_from([None, "/f", "/g"])), max_size=12))
@settings(max_examples=100)
def test_levels_are_those_of_plain_python(rows: list[tuple[str, str | None]]) -> None:
    reason = fault(rows)
    if reason is None:
        assert rebuilt(levels(rows)) == reference(rows)
        return
    with pytest.raises(InvalidInputError, match=reason) as caught:
        levels(rows)
    if "twice" in reason:
        assert str(caught.value).endswith(reason)


def test_many_rows() -> None:
    random = np.random.default_rng(4)
    paths = {f"{a}/{b}/{c}": f"/{a}{b}{c}" for a, b, c in random.integers(0, 60, (40_000, 3))}
    paths |= {f"flat{n}": "/flat" for n in range(40_000)}
    rows: list[tuple[str, str | None]]
    rows = [(name, paths[name]) for name in random.permutation(sorted(paths)).tolist()]
    assert rebuilt(levels(rows)) == reference(rows)


def test_slashes_at_the_ends_do_not_count() -> None:
    assert rebuilt(levels([("/a/b/", "/f"), ("c/", None)])) == [
        [("a", None, -1), ("c", None, 1)],
        [("a/b", "/f", 0)],
    ]


def test_sliced_columns() -> None:
    ids = pa.array(["x/y", "a/b", "c", "d/e"]).slice(1, 2)
    paths = pa.array(["/x", "/b", None, "/e"]).slice(1, 2)
    assert rebuilt(levels_of(ids, paths)) == [
        [("a", None, -1), ("c", None, 1)],
        [("a/b", "/b", 0)],
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "/f"), (None, "/f")], "without an id: list, row 1"),
        ([("", "/f")], "without an id: list, row 0"),
        ([("//", "/f")], "without an id: list, row 0"),
        ([("a/b", "/f"), ("c", "/f"), ("/a/b", "/f")], r"id '/a/b' appears twice: list, row 2"),
        ([("b/c", "/f"), ("a", "/f"), ("a", "/f"), ("b/c", "/f")], r"id 'a' appears twice.* row 2"),
        ([("a", "/f"), ("a/b", "/f")], "not a folder: 'a/b'"),
        ([("a/b/c", "/f"), ("a/b", "/f")], "not a folder: 'a/b/c'"),
    ],
)
def test_what_is_no_tree(rows: list[tuple[Any, Any]], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        levels(rows, where="list")


def test_depth_is_refused_before_levels_are_made() -> None:
    def refuse(count: int) -> None:
        DEFAULT_LIMITS.check("tortilla_depth", count, "here")

    with pytest.raises(LimitExceededError, match="depth"):
        levels([("/".join("a" * 300_000), "/f")], check_depth=refuse)


def test_fields_of_a_level() -> None:
    fields = pa.table({"n": pa.array([1, None], pa.int8()), "none": pa.nulls(2, pa.float32())})
    assert fields_at(fields, np.array([-1, -1])) == {}
    assert set(fields_at(fields, np.array([-1, 1]))) == {"none"}
    found = fields_at(fields, np.array([-1, 0, 1]))
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "n": [None, 1, None],
        "none": [None] * 3,
    }
    assert [column.type for column in found.values()] == [pa.int8(), pa.float32()]
