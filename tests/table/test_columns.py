"""Arrow columns from buffers: the same as pyarrow makes, and without pandas."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from comal.errors import LimitExceededError
from comal.table.columns import (
    blobs_column,
    flags_of,
    numbers_column,
    numbers_of,
    one_array,
    rows_equal,
    rows_where,
    spans_column,
    texts_column,
    valid_of,
    values_column,
)

NUMBERS = st.sampled_from(
    [np.dtype(name) for name in ("bool", "uint8", "int16", "uint32", "int64", "f4", "f8", "M8[us]")]
)


@settings(deadline=None)
@given(st.data(), NUMBERS)
def test_numbers(data: st.DataObject, dtype: np.dtype[Any]) -> None:
    # With a step the values do not lie one behind the other.
    values = data.draw(hnp.arrays(dtype, st.integers(0, 40)))[:: data.draw(st.integers(1, 3))]
    valid = data.draw(st.none() | hnp.arrays(bool, len(values)))
    found = numbers_column(values, valid=valid)
    found.validate(full=True)
    expected = pa.array(values, mask=None if valid is None else ~valid, from_pandas=False)
    assert found.type == expected.type
    # NaT is a number here, which pyarrow takes for null.
    as_numbers = pa.int64() if dtype.kind == "M" else found.type
    assert found.is_valid().to_pylist() == ([True] * len(values) if valid is None else list(valid))
    kept = slice(None) if valid is None else valid
    plain = found.cast(as_numbers).drop_null().to_numpy(zero_copy_only=False)
    np.testing.assert_array_equal(plain, values[kept].astype(plain.dtype))


@settings(deadline=None)
@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"))))
def test_texts_and_blobs(texts: list[str | None]) -> None:
    for kind in (pa.string(), pa.large_string()):
        found = texts_column(texts, kind)
        found.validate(full=True)
        assert found.equals(pa.array(texts, kind))
    blobs = [None if text is None else text.encode() for text in texts]
    assert blobs_column(blobs).equals(pa.array(blobs, pa.binary()))


def _cut(data: st.DataObject, array: Any) -> Any:
    """A part of an array, as it is or in chunks."""
    start = data.draw(st.integers(0, len(array)))
    part = array.slice(start, data.draw(st.integers(0, len(array))))
    if data.draw(st.booleans()):
        return part
    middle = data.draw(st.integers(0, len(part)))
    return pa.chunked_array([part.slice(0, middle), part.slice(middle)], array.type)


@settings(deadline=None)
@given(st.data(), st.lists(st.sampled_from([True, False, None]), max_size=40))
def test_flags_and_rows_of_a_mask(data: st.DataObject, values: list[bool | None]) -> None:
    mask = _cut(data, pa.array(values, pa.bool_()))
    expected = [value is True for value in mask.to_pylist()]
    assert flags_of(mask).tolist() == expected
    assert rows_where(mask).tolist() == [row for row, value in enumerate(expected) if value]
    assert rows_where(mask).dtype == np.int64


KINDS = st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])


@settings(deadline=None)
@given(st.data(), st.lists(st.none() | st.sampled_from(["", "a", "b", "ab", "\xe9"])), KINDS)
def test_rows_of_a_text(data: st.DataObject, texts: list[str | None], kind: Any) -> None:
    column = _cut(data, pa.array(texts, pa.string()).cast(kind))
    for text in ("", "a", "ab", "\xe9", "c"):
        assert rows_equal(column, text).tolist() == [one == text for one in column.to_pylist()]
    assert valid_of(column).tolist() == [one is not None for one in column.to_pylist()]


def test_null_columns_hold_nothing() -> None:
    nothing = pa.nulls(3)
    assert valid_of(nothing).tolist() == [False] * 3
    assert rows_equal(nothing.cast(pa.string()), "").tolist() == [False] * 3
    assert flags_of(pa.chunked_array([], pa.bool_())).tolist() == []


def test_numbers_of_a_part() -> None:
    column = pa.array([1, 2, 3, 4], pa.int16()).slice(1, 2)
    assert numbers_of(column).tolist() == [2, 3]
    assert numbers_of(column.slice(2)).tolist() == []
    assert numbers_of(numbers_column(np.arange(3.0))).tolist() == [0, 1, 2]


def test_times_out_of_numbers() -> None:
    found = numbers_column(np.array([0, 1], np.int64), pa.timestamp("us"))
    assert found.equals(pa.array([0, 1], pa.timestamp("us")))


def test_too_long_for_offsets_of_32_bits() -> None:
    with pytest.raises(LimitExceededError):
        spans_column(b"", np.array([1 << 31]))


def test_pandas_stays_out() -> None:
    code = (
        "import sys, numpy as np\n"
        "from comal.table.columns import *\n"
        "from comal.table import columns as c\n"
        "c.numbers_of(c.numbers_column(np.arange(3), valid=np.array([True, False, True])))\n"
        "c.texts_column(['a', None])[0], c.blobs_column([b'', None])\n"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


VALUES: list[st.SearchStrategy[Any]] = [
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
@given(st.data(), st.sampled_from(VALUES))
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


def test_one_array_shares_what_is_one_already() -> None:
    column = pa.array([1, 2, 3])
    shared = one_array(pa.chunked_array([column]))
    assert shared.buffers()[1].address == column.buffers()[1].address
    assert one_array(pa.chunked_array([], pa.string())).equals(pa.array([], pa.string()))


FINE = np.datetime64("2020-01-01T00:00:00.000000001", "ns")
NOON = dt.datetime(2020, 1, 1, 12)


@pytest.mark.parametrize(
    "nested",
    [lambda one: one, lambda one: {"a": one}, lambda one: [one], lambda one: [{"a": [one]}]],
)
def test_times_keep_what_they_are_in_values_of_any_depth(nested: Callable[[Any], Any]) -> None:
    fine, whole = nested(pd.Timestamp(FINE)), nested(pd.Timestamp(NOON))
    assert "ns" in str(values_column([fine, None, whole]).type)
    assert values_column([fine, None, whole]).to_pylist() == [fine, None, whole]
    assert "us" in str(values_column([whole]).type)
    for one, other in ((NOON.date(), NOON), (NOON, NOON.date()), (NOON.time(), 5), (NOON, 5)):
        with pytest.raises((TypeError, pa.ArrowInvalid)):
            values_column([nested(one), nested(other)])


def test_empty_arrays_have_the_type_of_the_others() -> None:
    """With arrays of floats, as they are by default, pyarrow ends the process for times."""
    empty = np.array([])
    for array in (np.array([1, 2]), np.array(["a"]), np.array([FINE]), np.array([1.5])):
        found = values_column([empty, array, None, empty])
        assert found.type.value_type == pa.array(array).type
        assert found.to_pylist() == [[], pa.array(array).to_pylist(), None, []]
    assert values_column([empty]).type == pa.list_(pa.float64())
