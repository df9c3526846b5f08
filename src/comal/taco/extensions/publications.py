"""Publications: what was published about a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from comal.taco.extensions.base import TacoExtension, column, list_of
from comal.taco.extensions.placing import require
from comal.taco.extensions.records import dumped, records_of

_RECORD = pa.struct([("doi", pa.string()), ("citation", pa.string()), ("summary", pa.string())])


@dataclass(frozen=True, slots=True)
class Publication:
    """One publication."""

    doi: str
    """Such as ``10.5069/G9028PQB``."""
    citation: str
    summary: str | None = None


@dataclass
class Publications(TacoExtension):
    """Publications about a dataset, as `Publication` or dicts of the same keys.

    Raises
    ------
    InvalidInputError
        On creation: an entry without doi or citation, or with unknown keys.
    """

    publications: Sequence[Any] | None = None
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        require(self, "publications")
        self.publications = records_of(Publication, self.publications or [])

    def get_schema(self) -> pa.Schema:
        """The field ``publications``."""
        text = "Publications about the dataset: doi, citation, summary"
        return pa.schema([column("publications", list_of(_RECORD), text)])

    def _compute(self, taco: Any) -> pa.Table:
        del taco
        rows = {"publications": [dumped(self.publications or [])]}
        return pa.table(rows, schema=self.get_schema())
