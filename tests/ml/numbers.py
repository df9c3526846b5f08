"""Samples that are numbers, without an archive."""

from __future__ import annotations

from typing import Any

import numpy as np

from comal.ml.archives import Dataset


class Numbers(Dataset):
    """Samples that are their own number; counts what is read."""

    def __init__(self, count: int, size: int = 8) -> None:
        self.count, self.size = count, size
        self.reading: list[int] = []

    def __len__(self) -> int:
        return self.count

    def nbytes(self, rows: Any) -> int:
        return len(rows) * self.size

    def read(self, rows: Any) -> Any:
        self.reading += rows.tolist()
        return rows

    def decode(self, place: int, raw: Any, out: Any) -> Any:
        return {"n": np.full(1, raw[place])}

    def take(self, rows: Any) -> Any:
        raise NotImplementedError
