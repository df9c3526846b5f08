"""Ids made legal: the same old one is the same new one, and no two fall together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import names
from comal.convert.columns import Rule, legal_ids, mended
from comal.errors import InvalidInputError


def made(*ids: str, parents: list[int] | None = None, rule: Rule | None = None) -> list[str]:
    owner = None if parents is None else np.array(parents, np.int64)
    found: list[str] = legal_ids(pa.array(ids, pa.string()), owner, rule).to_pylist()
    return found


def test_legal_ids_stay() -> None:
    assert made("a", "b.tif", "ñ", "_x") == ["a", "b.tif", "ñ", "_x"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a/b", "a_b"),
        ("../../etc/passwd", ".._.._etc_passwd"),
        ("a\\b:c", "a_b_c"),
        ("__meta__", "_meta__"),
        ("__TACOPAD__0", "_TACOPAD__0"),
        ("line\nbreak\0", "line_break_"),
        ("\u202eright", "_right"),
        ("", "unnamed"),
        (".", "unnamed"),
        ("..", "unnamed"),
        ("CON", "_CON"),
        ("50%", "50_"),
    ],
)
def test_hostile_ids(old: str, new: str) -> None:
    assert made(old) == [new]


def test_what_falls_together_gets_numbers() -> None:
    # The one that was legal keeps its name, wherever it stands.
    assert made("a/b", "a:b", "a_b") == ["a_b_2", "a_b_3", "a_b"]
    assert made("x", "x", "x_2", "x") == ["x", "x_3", "x_2", "x_4"]
    assert made("A.tif", "a.tif") == ["A.tif", "a_2.tif"]


def test_the_same_id_is_the_same_below_every_parent() -> None:
    # Below the second parent they stand in another order.
    ids = made("a/b", "a:b", "a:b", "a/b", parents=[0, 0, 1, 1])
    assert ids == ["a_b", "a_b_2", "a_b_2", "a_b"]


def test_names_of_the_caller() -> None:
    ids = ("roi_0_image", "roi_1_image", "mask")
    rule = {"roi_0_image": "image", "roi_1_image": "image"}
    assert made(*ids, parents=[0, 1, 1], rule=rule) == ["image", "image", "mask"]
    shorter = made(*ids, parents=[0, 1, 1], rule=lambda name: name.rpartition("_")[2])
    assert shorter == ["image", "image", "mask"]
    assert made(*ids, rule=lambda name: None) == list(ids)


@pytest.mark.parametrize("name", ["a/b", "", "__x", "__TACOPAD__1", "CON", 5])
def test_the_caller_cannot_give_a_bad_name(name: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot be the new id"):
        made("a", rule={"a": name})


odd = st.text(st.sampled_from("aA_/.:\\ ~%\n\u200b\u0301é\x7f\ud7ff"), max_size=6) | st.text()


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_whatever_it_is_becomes_legal(name: str) -> None:
    new = mended(name)
    assert names.illegal(new) is None
    assert names.risky(new) is None
    assert not new.startswith("__")
    assert mended(new) == new


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(odd, st.integers(0, 2)), min_size=1, max_size=12))
def test_laws(rows: list[tuple[str, int]]) -> None:
    rows.sort(key=lambda row: row[1])
    parents = np.array([parent for _, parent in rows], np.int64)
    ids = pa.array([name for name, _ in rows], pa.string())
    new = legal_ids(ids, parents)
    assert list(names.bad_names(new)) == []
    assert names.twins(new, parents) == []
    assert new.equals(legal_ids(ids, parents))
    if not names.twins(ids, parents, fold=False):
        # Without true duplicates the map goes from name to name, and back.
        pairs = set(zip(ids.to_pylist(), new.to_pylist(), strict=True))
        assert len(pairs) == len({old for old, _ in pairs}) == len({one for _, one in pairs})
