"""Arrow columns from buffers: the same as pyarrow makes, and without pandas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from comal.errors import LimitExceededError
from comal.table.columns import (
    blobs_column,
    numbers_column,
    numbers_of,
    spans_column,
    texts_column,
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
