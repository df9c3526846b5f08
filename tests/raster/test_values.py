"""The law of values, on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comal.raster import values

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("dtype", "pixels", "nodata", "wanted"),
    [
        ("uint8", [0, 1, 255], None, None),
        ("uint8", [0, 1, 255], 7, None),
        ("uint8", [0, 1, 255], 255, [1, 1, 0]),
        ("uint8", [0, 1, 255], 255.0, [1, 1, 0]),
        ("uint8", [0, 1, 255], -1, None),
        ("uint8", [0, 1, 255], 0.5, None),
        ("uint8", [0, 1, 255], NAN, None),
        ("int64", [2**53, 2**53 + 1], 2**53 + 1, [1, 0]),
        ("uint64", [2**64 - 1, 2**64 - 2], 2**64 - 1, [0, 1]),
        ("float32", [0.1, 1, 2], 0.1, [0, 1, 1]),
        ("float32", [0, 1, 2], None, None),
        ("float32", [0, NAN, INF, -INF], None, [1, 0, 0, 0]),
        ("float64", [0, NAN, INF, -INF], 0, [0, 0, 0, 0]),
        ("float32", [0, 3.4e38, INF], 1e39, [1, 1, 0]),
        ("float16", [0, NAN, 1], NAN, [1, 0, 1]),
    ],
)
def test_a_pixel_has_a_value(dtype: str, pixels: Any, nodata: Any, wanted: Any) -> None:
    found = values.valid_mask(np.array(pixels, dtype), nodata)
    assert (None if found is None else found.tolist()) == (wanted and list(map(bool, wanted)))


def test_alpha_hides_all_bands_but_itself() -> None:
    planes = [np.array([0, 5, 5], np.uint8), np.array([5, 5, 5], np.uint8)]
    alpha = np.array([255, 0, 1], np.uint8)
    covered = np.array([True, True, False])
    found = values.valid_masks([*planes, alpha], [0, None, None], covered, 2)
    assert [mask is not None and mask.tolist() for mask in found] == [
        [False, False, False],
        [True, False, False],
        [True, True, False],
    ]
    shown = values.seen(found[:2])
    assert shown is not None
    assert shown.tolist() == [True, False, False]
    assert values.seen([found[0], None]) is None


@pytest.mark.parametrize(
    ("colours", "at", "shown"),
    [
        (["alpha"], None, (1,)),
        (["alpha", None], 0, (2,)),
        (["gray", "alpha", "gray"], 1, (1,)),
        (["alpha", "gray", None, "gray"], 0, (2, 3, 4)),
        (["red", "green", "blue"] * 2, None, (1, 2, 3)),
    ],
)
def test_which_bands_are_alpha_and_which_are_shown(
    colours: list[str | None], at: int | None, shown: tuple[int, ...]
) -> None:
    assert (values.alpha_at(colours), values.default_bands(colours)) == (at, shown)
