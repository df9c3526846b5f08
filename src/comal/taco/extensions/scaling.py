"""Scaling: how packed pixels become values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from comal.errors import InvalidInputError
from comal.taco.extensions.base import SameForAll, column, list_of

Number = float | Sequence[float]


@dataclass
class Scaling(SameForAll):
    """Value = pixel * scale_factor + scale_offset, as in the CF conventions.

    Parameters
    ----------
    scale_factor, scale_offset
        A number, or one for each band. When either is a list, both columns are lists and a single
        number stands for all bands. A factor is never 0.
    padding
        Pixels that were added around the image: top, right, bottom, left.

    Raises
    ------
    InvalidInputError
        On creation: a factor of 0, numbers that are not finite, lists of different length,
        padding that is not four integers.
    """

    scale_factor: Number | None = None
    scale_offset: Number | None = None
    padding: Sequence[int] | None = None
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("scale_factor", "scale_offset"):
            numbers = _numbers(getattr(self, name))
            if not all(map(math.isfinite, numbers)) or (name == "scale_factor" and 0 in numbers):
                raise InvalidInputError(
                    f"invalid {name}", found=getattr(self, name), expected="finite, factor not 0"
                )
        if len({len(_numbers(part)) for part in self._both() if _is_list(part)}) > 1:
            raise InvalidInputError("scale_factor and scale_offset differ in length")
        if self.padding is not None and (
            len(self.padding) != 4 or any(int(part) != part for part in self.padding)
        ):
            raise InvalidInputError(
                "invalid padding",
                found=list(self.padding),
                expected="four integers: top, right, bottom, left",
            )

    def get_schema(self) -> pa.Schema:
        """The three columns ``scaling:*``; numbers, or lists when a parameter is one."""
        kind = list_of(pa.float32()) if self._has_lists() else pa.float32()
        return pa.schema(
            [
                column("scaling:scale_factor", kind, "value = pixel * scale_factor + scale_offset"),
                column("scaling:scale_offset", kind, "value = pixel * scale_factor + scale_offset"),
                column(
                    "scaling:padding",
                    list_of(pa.int32()),
                    "Pixels added around the image: top, right, bottom, left",
                ),
            ]
        )

    def _compute(self, sample: Any) -> pa.Table:
        del sample
        factor, offset = self._both()
        if self._has_lists():
            bands = max(len(_numbers(part)) for part in (factor, offset))
            factor, offset = _spread(factor, bands), _spread(offset, bands)
        padding = None if self.padding is None else [int(part) for part in self.padding]
        rows = {
            "scaling:scale_factor": [factor],
            "scaling:scale_offset": [offset],
            "scaling:padding": [padding],
        }
        return pa.table(rows, schema=self.get_schema())

    def _both(self) -> tuple[Number | None, Number | None]:
        return self.scale_factor, self.scale_offset

    def _has_lists(self) -> bool:
        return any(map(_is_list, self._both()))


def _is_list(value: Number | None) -> bool:
    return value is not None and not isinstance(value, int | float)


def _numbers(value: Number | None) -> list[float]:
    if value is None:
        return []
    return [float(value)] if isinstance(value, int | float) else [float(part) for part in value]


def _spread(value: Number | None, bands: int) -> list[float] | None:
    if value is None:
        return None
    numbers = _numbers(value)
    return numbers if _is_list(value) else numbers * bands
