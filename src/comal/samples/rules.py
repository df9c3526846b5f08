"""Rules that checks of several formats share: which rows hold a value that cannot be."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown
from comal.geo.crs import projection
from comal.lazy import pc

Mask = npt.NDArray[np.bool_]

_MOST_UNKNOWN = 20
"""CRS that are reported; PROJ looks for each by name for a quarter of a second."""


def crs_problem(name: str) -> str | None:
    """Why a text is no CRS; None where it is one."""
    try:
        projection(name)
    except InvalidInputError as error:
        return f"{error.what}: {shown(name)}"
    return None


def unknown_crs(column: Any) -> dict[int, str]:
    """The rows of an Arrow array of texts that name no CRS, and why."""
    encoded = pc.dictionary_encode(column)
    problems = (
        (code, reason)
        for code, name in enumerate(encoded.dictionary.to_pylist())
        if (reason := crs_problem(name)) is not None
    )
    reasons = dict(islice(problems, _MOST_UNKNOWN))
    codes = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False))
    rows = np.flatnonzero(np.isin(codes, list(reasons)))
    return {row: reasons[int(codes[row])] for row in rows.tolist()}


def good_lists(column: Any, least: int, most: int, *, positive: bool = False) -> Mask:
    """Null, or `least` to `most` finite numbers, and those positive where they must be."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(column), least))
    good: Mask = (lengths >= least) & (lengths <= most)
    values = pc.fill_null(pc.list_flatten(column), 0 if positive else np.nan)
    numbers = np.asarray(values.to_numpy(zero_copy_only=False), np.float64)
    wrong = ~np.isfinite(numbers) | (numbers <= 0 if positive else False)
    owners = np.asarray(pc.list_parent_indices(column))[wrong]
    good[owners] = False
    return good


def ends_before(start: Any, end: Any) -> Mask:
    """Which rows of two Arrow arrays of times end before they start."""
    return np.asarray(pc.fill_null(pc.greater(start, end), False))
