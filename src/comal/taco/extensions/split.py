"""Split: the part of a dataset that a sample belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.taco.extensions.base import SameForAll, column
from comal.taco.extensions.placing import require

SPLITS = ("train", "test", "validation")


@dataclass
class Split(SameForAll):
    """The part of the dataset: ``train``, ``test`` or ``validation``.

    Raises
    ------
    InvalidInputError
        On creation: another value.
    """

    split: str | None = None
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        require(self, "split")
        if self.split not in SPLITS and not self.schema_only:
            raise InvalidInputError(
                "unknown split", found=shown(self.split), expected=", ".join(SPLITS)
            )

    def get_schema(self) -> pa.Schema:
        """The column ``split``."""
        return pa.schema(
            [column("split", pa.string(), "Part of the dataset: train, test or validation")]
        )

    def _compute(self, sample: Any) -> pa.Table:
        del sample
        return pa.table({"split": [self.split]})
