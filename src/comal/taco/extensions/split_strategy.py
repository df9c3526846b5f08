"""SplitStrategy: how the parts of a dataset were chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.taco.extensions.base import TacoExtension, column
from comal.taco.extensions.placing import require

STRATEGIES = ("random", "stratified", "manual", "other", "none", "unknown")


@dataclass
class SplitStrategy(TacoExtension):
    """How train, test and validation were chosen; one of `STRATEGIES`.

    Raises
    ------
    InvalidInputError
        On creation: another value.
    """

    strategy: str | None = None
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        require(self, "strategy")
        if self.strategy not in STRATEGIES and not self.schema_only:
            raise InvalidInputError(
                "unknown split strategy", found=shown(self.strategy), expected=", ".join(STRATEGIES)
            )

    def get_schema(self) -> pa.Schema:
        """The field ``split:strategy``."""
        text = f"How the split was made: {', '.join(STRATEGIES)}"
        return pa.schema([column("split:strategy", pa.string(), text)])

    def _compute(self, taco: Any) -> pa.Table:
        del taco
        return pa.table({"split:strategy": [self.strategy]})
