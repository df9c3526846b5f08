from __future__ import annotations

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comal import names

ILLEGAL = [
    "",
    ".",
    "..",
    "a/b",
    "a\\b",
    "a:b",
    "a\0b",
    "a\nb",
    "\u202e",
    "x\u200by",
    "__x",
    "__TACOPAD__",
]
RISKY = [
    "a.",
    "a ",
    "CON",
    "con.txt",
    "Lpt1",
    "com¹",
    "a<b",
    'a"b',
    "a|b",
    "a?",
    "a*",
    "a,b",
    "100%",
    "-rf",
    "~x",
    "scene.",
    "scene ",
    "x" * 256,
    "e\u0301",
]
FINE = [
    "a",
    "a.tif",
    "scene_000",
    "é",
    "日本",
    "__TACOPAD__0",
    "a b",
    ".hidden",
    "console",
    "x" * 255,
]


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        *((name, 1) for name in ILLEGAL),
        *((name, 2) for name in RISKY),
        *((name, None) for name in FINE),
    ],
)
def test_tiers(name: str, tier: int | None) -> None:
    assert (names.illegal(name) is not None) == (tier == 1)
    assert tier == 1 or (names.risky(name) is not None) == (tier == 2)
    found = [bad.tier for bad in names.bad_names(pa.array(["ok", name]))]
    assert found == ([] if tier is None else [tier])
    assert len([*names.bad_names(pa.array([name]), tier=1)]) == (tier == 1)


def test_null_is_reported_as_empty() -> None:
    assert [bad.row for bad in names.bad_names(pa.array(["a", None]))] == [1]


def test_kinds_of_arrow_strings() -> None:
    chunked = pa.chunked_array([["a"], ["a/b"]], pa.large_string())
    assert [bad.row for bad in names.bad_names(chunked)] == [1]


@given(st.lists(st.text(max_size=6), max_size=30))
def test_columns_agree_with_single_names(column: list[str]) -> None:
    column = [name for name in column if not any("\ud800" <= c <= "\udfff" for c in name)]
    found = {(bad.row, bad.tier) for bad in names.bad_names(pa.array(column, pa.string()))}
    expected = set()
    for row, name in enumerate(column):
        if names.illegal(name):
            expected.add((row, 1))
        elif names.risky(name):
            expected.add((row, 2))
    assert found == expected


def test_twins_by_case_and_by_compatibility_form() -> None:
    column = pa.array(["A", "b", "a", "ﬁ", "fi", "é", "e\u0301", "a"])
    assert names.twins(column) == [(0, 2), (0, 7), (3, 4), (5, 6)]
    assert names.twins(column, fold=False) == [(2, 7)]


def test_twins_only_among_siblings() -> None:
    column = pa.array(["a", "b", "a", "a"])
    assert names.twins(column, np.array([0, 0, 1, 0])) == [(0, 3)]


@given(st.lists(st.tuples(st.sampled_from("abcA"), st.integers(0, 3)), max_size=40))
def test_twins_agree_with_a_dictionary(rows: list[tuple[str, int]]) -> None:
    first: dict[tuple[str, int], int] = {}
    expected = []
    for row, (name, parent) in enumerate(rows):
        key = (name.lower(), parent)
        if key in first:
            expected.append((first[key], row))
        first.setdefault(key, row)
    found = names.twins(
        pa.array([name for name, _ in rows], pa.string()),
        np.array([parent for _, parent in rows], dtype=np.int64),
    )
    assert found == sorted(expected)


@given(
    st.lists(st.text(max_size=14), max_size=30),
    st.integers(0, 3),
    st.sampled_from([(0, 4), (0, 1 << 16), (1 << 14, 1 << 16)]),
)
def test_whether_names_are_all_distinct(
    texts: list[str], skipped: int, sizes: tuple[int, int]
) -> None:
    """However many they are, and in however many parts they are looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names, "_FEW", sizes[0])
        patch.setattr(names, "_PART", sizes[1])
        for kind in (pa.string(), pa.large_string()):
            column = pa.array(texts, kind)[skipped:]
            assert names.all_distinct(column) == (len(set(texts[skipped:])) == len(column))


@given(st.lists(st.none() | st.text(max_size=6), max_size=20), st.integers(0, 3))
def test_folding(texts: list[str | None], skipped: int) -> None:
    """Letters of ASCII become small; names with any other character are folded whole."""
    expected = [
        text
        if text is None
        else text.lower()
        if text.isascii()
        else unicodedata.normalize("NFKC", text).casefold()
        for text in texts[skipped:]
    ]
    found = names.folded(pa.array(texts, pa.string())[skipped:])
    found.validate(full=True)
    assert found.to_pylist() == expected
