from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError
from comal.grid import deinterleave, interleave

words = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8)


def slow(x: int, y: int) -> int:
    return sum(((x >> i & 1) << (2 * i)) | ((y >> i & 1) << (2 * i + 1)) for i in range(31))


@given(words, st.integers(0, 2**31 - 1))
@settings(max_examples=60)
def test_bits_alternate(xs: list[int], y: int) -> None:
    codes = interleave(xs, y)
    assert codes.tolist() == [slow(x, y) for x in xs]
    across, down = deinterleave(codes)
    assert across.tolist() == xs
    assert set(down.tolist()) == {y}


@pytest.mark.parametrize("pair", [(-1, 0), (0, -1), (1 << 31, 0), (0, 1 << 40), (1.5, 0)])
def test_numbers_that_no_code_holds(pair: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError):
        interleave(*pair)
