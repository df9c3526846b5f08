from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.grid.morton import z_order


def test_vectors() -> None:
    lon, lat = [0, -0.38, 151.21, -76.834], [0, 39.47, -33.87, -11.755]
    expected = [1099511627775, 2745913652041, 2008963142099, 977856315723]
    assert z_order(lon, lat).tolist() == expected


@given(st.floats(-180, 180), st.floats(-90, 90))
@settings(max_examples=80, deadline=None)
def test_bits_are_interleaved(lon: float, lat: float) -> None:
    x = int((lon + 180) / 360 * (2**21 - 1))
    y = int((lat + 90) / 180 * (2**21 - 1))
    slow = sum(((x >> i & 1) << 2 * i) | ((y >> i & 1) << (2 * i + 1)) for i in range(21))
    assert z_order(np.array([lon]), np.array([lat]))[0] == slow
