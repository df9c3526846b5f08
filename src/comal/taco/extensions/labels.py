"""Labels: the classes of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from comal.errors import InvalidInputError
from comal.taco.extensions.base import TacoExtension, column, list_of
from comal.taco.extensions.placing import require
from comal.taco.extensions.records import dumped, records_of

_RECORD = pa.struct(
    [("name", pa.string()), ("category", pa.string()), ("description", pa.string())]
)


@dataclass(frozen=True, slots=True)
class LabelClass:
    """One class."""

    name: str
    """For people: ``Forest``."""
    category: str | int
    """In the labels: 3 or ``FOR``; written as text."""
    description: str | None = None


@dataclass
class Labels(TacoExtension):
    """The classes of a dataset, as `LabelClass` or dicts of the same keys.

    Raises
    ------
    InvalidInputError
        On creation: a class without name or category, unknown keys, or two classes of one
        category.
    """

    label_classes: Sequence[Any] | None = None
    label_description: str | None = None
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        require(self, "label_classes")
        classes = records_of(LabelClass, self.label_classes or [])
        categories = [str(one.category) for one in classes]
        twice = sorted({one for one in categories if categories.count(one) > 1})
        if twice:
            raise InvalidInputError("two classes of one category", found=", ".join(twice))
        self.label_classes = [
            LabelClass(one.name, text, one.description)
            for one, text in zip(classes, categories, strict=True)
        ]

    def get_schema(self) -> pa.Schema:
        """The fields ``labels:classes``, ``labels:description``, ``labels:num_classes``."""
        return pa.schema(
            [
                column("labels:classes", list_of(_RECORD), "Classes: name, category, description"),
                column("labels:description", pa.string(), "How the labels were made"),
                column("labels:num_classes", pa.int32(), "Number of classes"),
            ]
        )

    def _compute(self, taco: Any) -> pa.Table:
        del taco
        classes = dumped(self.label_classes or [])
        rows = {
            "labels:classes": [classes],
            "labels:description": [self.label_description],
            "labels:num_classes": [len(classes)],
        }
        return pa.table(rows, schema=self.get_schema())
