"""Arrow tables as polars data frames: the one place of the readers that needs polars."""

from __future__ import annotations

from typing import Any

import polars as pl


def from_arrow(table: Any) -> pl.DataFrame:
    """An Arrow table as a polars data frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
