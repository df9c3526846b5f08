"""Overviews against the plain definition of each method."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError
from comal.raster.overviews import check_method, halved
from comal.raster.warping import Patch

KINDS = ["uint8", "int8", "int16", "uint32", "int64", "uint64", "float32", "float64"]


def _square(values: list[Any], covered: list[bool], dtype: str) -> Patch:
    mask = np.array(covered).reshape(2, 2)
    return Patch([np.array(values, dtype).reshape(2, 2)], None if mask.all() else mask)


def _valid(values: list[Any], covered: list[bool], nodata: Any) -> list[Any]:
    return [
        value
        for value, there in zip(values, covered, strict=True)
        if there and value != nodata and not _is_nan(value)
    ]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


@st.composite
def squares(draw: st.DrawFn) -> tuple[str, list[Any], list[bool], Any]:
    dtype = draw(st.sampled_from(KINDS))
    kind = np.dtype(dtype)
    if kind.kind == "f":
        one: Any = st.integers(-1000, 1000).map(float) | st.just(float("nan"))
    else:
        limits = np.iinfo(kind)
        near = st.integers(limits.min, limits.min + 3) | st.integers(limits.max - 3, limits.max)
        one = near | st.integers(int(limits.min), int(limits.max)) | st.integers(0, 3)
    values = draw(st.lists(one, min_size=4, max_size=4))
    covered = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    nodata = draw(st.none() | st.sampled_from(values))
    return dtype, values, covered, None if _is_nan(nodata) else nodata


@given(squares())
@settings(max_examples=60, deadline=None)
def test_the_average_is_exact_and_rounded_half_up(square: Any) -> None:
    dtype, values, covered, nodata = square
    made = halved(_square(values, covered, dtype), ("average",), (nodata,)).bands[0].item()
    valid = _valid(values, covered, nodata)
    if not valid:
        assert made == (0 if nodata is None else nodata)
        return
    mean = sum(map(Fraction, valid)) / len(valid)
    right: Any = float(mean)
    if np.dtype(dtype).kind in "iu":
        right = (mean + Fraction(1, 2)).__floor__()
        if nodata is not None and right == nodata:
            assert made in {nodata + 1, nodata - 1}
            return
        assert made == right
    elif nodata is None or np.dtype(dtype).type(right) != nodata:
        assert made == np.dtype(dtype).type(right)


@given(squares())
@settings(max_examples=100, deadline=None)
def test_mode_minimum_maximum_and_nearest(square: Any) -> None:
    dtype, values, covered, nodata = square
    patch = _square(values, covered, dtype)
    found = {
        method: halved(patch, (method,), (nodata,)).bands[0].item()
        for method in ("mode", "min", "max", "nearest")
    }
    valid = _valid(values, covered, nodata)
    fill = 0 if nodata is None else nodata
    if not valid:
        assert set(found.values()) == {fill}
        return
    top = max(valid.count(value) for value in valid)
    assert found["mode"] == min(value for value in valid if valid.count(value) == top)
    assert (found["min"], found["max"]) == (min(valid), max(valid))
    first = covered.index(True)
    corner = _valid(values[first : first + 1], [True], nodata)
    assert found["nearest"] == (corner[0] if corner else fill)


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), min_size=4, max_size=4))
@settings(max_examples=100, deadline=None)
def test_colours_are_weighted_and_chosen_by_alpha(pixels: list[tuple[int, int]]) -> None:
    colours = np.array([colour for colour, _ in pixels], np.uint8).reshape(2, 2)
    alphas = np.array([alpha for _, alpha in pixels], np.uint8).reshape(2, 2)
    patch = Patch([colours, alphas], None)
    made = halved(patch, ("average", "average"), (None, None), alpha=1)
    weight = sum(alpha for _, alpha in pixels)
    assert made.bands[1].item() == int(Fraction(weight, 4) + Fraction(1, 2))
    if weight:
        total = sum(colour * alpha for colour, alpha in pixels)
        assert made.bands[0].item() == int(Fraction(total, weight) + Fraction(1, 2))
    shown = [colour for colour, alpha in pixels if alpha] or [colour for colour, _ in pixels]
    most = max(shown.count(colour) for colour in shown)
    wanted = {"min": min(shown), "max": max(shown)}
    wanted["mode"] = min(colour for colour in shown if shown.count(colour) == most)
    for method, colour in wanted.items():
        assert halved(patch, (method, method), (None, None), alpha=1).bands[0].item() == colour


def test_what_is_covered_shrinks_too() -> None:
    covered = np.zeros((4, 4), bool)
    covered[0, 0] = True
    made = halved(Patch([np.ones((4, 4), np.uint8)], covered), ("average",), (None,))
    assert made.covered is not None
    assert made.covered.tolist() == [[True, False], [False, False]]
    assert made.bands[0].tolist() == [[1, 0], [0, 0]]


def test_unknown_methods() -> None:
    assert check_method("near") == "nearest"
    with pytest.raises(InvalidInputError, match="overview resampling"):
        check_method("sharpest")


def test_the_greatest_integers_are_weighed_too() -> None:
    most = 2**63 - 1
    patch = Patch([np.full((2, 2), most), np.full((2, 2), 9)], None)
    made = halved(patch, ("average", "average"), (None, None), alpha=1).bands[0]
    assert 0 <= most - int(made[0, 0]) < 2048
