"""Points as text, ``POINT (longitude latitude)``, in Arrow columns of strings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import arrowcompute as pc

Floats = npt.NDArray[np.float64]

_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_POINT = rf"^\s*(?i:POINT)\s*\(\s*(?P<x>{_NUMBER})\s+(?P<y>{_NUMBER})\s*\)\s*$"


def points_xy(texts: Any) -> tuple[Floats, Floats]:
    """Coordinates of points.

    Parameters
    ----------
    texts
        Arrow column of n strings, chunked or not.

    Returns
    -------
    x and y, arrays of n; NaN for null and for what is no point of two numbers.
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    parts = pc.extract_regex(texts, _POINT)
    x, y = (
        np.asarray(
            pc.cast(pc.struct_field(parts, name), pa.float64()).to_numpy(zero_copy_only=False),
            np.float64,
        )
        for name in ("x", "y")
    )
    return x, y
