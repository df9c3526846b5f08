"""Statistics: exact, and the same however the pixels are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.raquet.writing.creating import finished, histogram
from comal.raster.statistics import BandSums, lattice_step, sums_of
from tests.raquet.writing.sources import noise

KINDS = ["uint8", "int8", "uint16", "int16", "float16", "int32", "uint32", "int64", "uint64"]
KINDS += ["float32", "float64"]


@given(st.sampled_from(KINDS), st.integers(0, 63), st.integers(1, 64), st.integers(0, 5))
@settings(max_examples=80, deadline=None)
def test_pieces_add_up(dtype: str, cut: int, height: int, seed: int) -> None:
    pixels = noise((64, 8), dtype, seed)[:height]
    valid = np.random.default_rng(seed).random(pixels.shape) < 0.7
    whole, pieces = BandSums(dtype), BandSums(dtype)
    whole.add(sums_of(pixels, valid, step=1, x=0, y=0))
    for rows in (slice(None, cut), slice(cut, None)):
        if len(pixels[rows]):
            pieces.add(sums_of(pixels[rows], valid[rows], step=1, x=0, y=0))
    one, other = finished(whole, 512, step=1), finished(pieces, 512, step=1)
    assert one.count == other.count == int(valid.sum())
    if not one.count:
        return
    assert (one.min, one.max) == (other.min, other.max)
    assert one.quantiles == other.quantiles
    assert one.top_values == other.top_values
    assert one.mean == pytest.approx(other.mean, rel=1e-9, abs=1e-6)
    assert one.stddev == pytest.approx(other.stddev, rel=1e-9, abs=1e-6)
    if np.dtype(dtype).kind in "iu":
        exact = [int(value) for value in pixels[valid]]
        assert one.sum == other.sum == sum(exact)
        assert float(one.sum_squares or 0) == float(sum(value**2 for value in exact))
        assert one.sum_squares == other.sum_squares


def test_quantiles_and_top_values_by_their_definition() -> None:
    for dtype in KINDS:
        pixels = noise((40, 50), dtype, 9)
        found = finished(sums_of(pixels, None, step=1, x=0, y=0), None, step=1)
        assert found.quantiles is not None
        assert list(found.quantiles) == [str(parts) for parts in range(3, 20)]
        for parts in range(3, 20):
            right = np.quantile(pixels, np.arange(1, parts) / parts, method="lower")
            assert list(found.quantiles[str(parts)]) == right.tolist()
        assert found.top_values is not None
        if pixels.dtype.kind == "f":
            assert found.top_values == {}
            continue
        values, counts = np.unique(pixels, return_counts=True)
        ranked = sorted(zip((-counts).tolist(), values.tolist(), strict=True))[:100]
        assert list(found.top_values.items()) == [(str(value), -count) for count, value in ranked]


def test_wide_types_are_sampled_on_a_lattice_that_pieces_share() -> None:
    step = lattice_step(1 << 30, 1)
    assert step == 32
    assert lattice_step(1 << 18, 1) == 1
    pixels = noise((64, 64), "int32", 2)
    whole = finished(sums_of(pixels, None, step=4, x=0, y=0), None, step=4)
    pieces = BandSums("int32")
    for row in (0, 32):
        for column in (0, 32):
            part = pixels[row : row + 32, column : column + 32]
            pieces.add(sums_of(part, None, step=4, x=column, y=row))
    found = finished(pieces, None, step=4)
    assert found == whole
    assert found.approximated is True
    assert found.count == 4096


def test_histograms_count_every_pixel() -> None:
    for dtype in ("uint8", "int16", "float32"):
        pixels = noise((64, 64), dtype)
        for step in (1, 4):
            sums = sums_of(pixels, None, step=step, x=0, y=0)
            found = histogram(sums)
            assert found is not None
            assert found["buckets"] == len(found["counts"]) == 256
            assert sum(found["counts"]) == 4096
    assert histogram(BandSums("uint8")) is None
    wide = histogram(sums_of(np.array([[-1e308, 0, 1e308]]), None, step=1, x=0, y=0))
    assert wide is not None  # its range is beyond all floats
    assert np.flatnonzero(wide["counts"]).tolist() == [0, 128, 255]
