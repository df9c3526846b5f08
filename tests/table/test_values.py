"""Columns of Python values and masks: the same as pyarrow makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.table.columns import flags_of, one_array, rows_where, values_column

KINDS: list[st.SearchStrategy[Any]] = [
    st.text(st.characters(codec="utf-8")),
    st.binary(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.integers(-5, 5) | st.floats(-2, 2),
    st.dates(),
    st.lists(st.integers(0, 9)),
]


@settings(deadline=None)
@given(st.data(), st.sampled_from(KINDS))
def test_values_are_those_of_pyarrow(data: st.DataObject, kind: st.SearchStrategy[Any]) -> None:
    values = data.draw(st.lists(st.none() | kind, max_size=20))
    found = values_column(values)
    found.validate(full=True)
    expected = pa.array(values)
    assert found.equals(expected)
    assert found.null_count == expected.null_count


def test_signs_and_nan_are_kept() -> None:
    found = values_column([-0.0, float("nan"), None])
    assert (str(found[0].as_py()), str(found[1].as_py()), found[2].as_py()) == ("-0.0", "nan", None)


@pytest.mark.parametrize("values", [[1, "a"], [b"x", 1.5], [2**70], ["\ud800"], [{1}, object()]])
def test_what_pyarrow_refuses_is_refused(values: list[Any]) -> None:
    kinds = (pa.ArrowException, TypeError, ValueError, OverflowError)
    with pytest.raises(kinds):
        pa.array(values)
    with pytest.raises(kinds):
        values_column(values)


@settings(deadline=None)
@given(st.lists(st.none() | st.booleans(), max_size=40), st.integers(0, 5))
def test_masks(values: list[bool | None], cut: int) -> None:
    wanted = np.array([value is True for value in values], bool)
    whole = pa.array(values, pa.bool_())
    for mask in (whole, pa.chunked_array([whole.slice(0, cut), whole.slice(cut)])):
        assert flags_of(mask).tolist() == wanted.tolist()
        assert rows_where(mask).tolist() == np.flatnonzero(wanted).tolist()
        assert one_array(mask).equals(whole)


def test_one_array_shares_what_is_one_already() -> None:
    column = pa.array([1, 2, 3])
    shared = one_array(pa.chunked_array([column]))
    assert shared.buffers()[1].address == column.buffers()[1].address
    assert one_array(pa.chunked_array([], pa.string())).equals(pa.array([], pa.string()))
