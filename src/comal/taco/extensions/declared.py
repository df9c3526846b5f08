"""Extensions whose fields are what the author declares: labels, publications, splits, scaling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.taco.extensions.base import SameForAll, TacoExtension, column, list_of
from comal.taco.extensions.placing import require
from comal.taco.extensions.records import dumped, records_of

# -- labels ----------------------------------------------------------------------------------------


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


# -- publications ----------------------------------------------------------------------------------


_PUBLICATION = pa.struct(
    [("doi", pa.string()), ("citation", pa.string()), ("summary", pa.string())]
)


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
        return pa.schema([column("publications", list_of(_PUBLICATION), text)])

    def _compute(self, taco: Any) -> pa.Table:
        del taco
        rows = {"publications": [dumped(self.publications or [])]}
        return pa.table(rows, schema=self.get_schema())


# -- split -----------------------------------------------------------------------------------------


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


# -- split strategy --------------------------------------------------------------------------------


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


# -- scaling ---------------------------------------------------------------------------------------


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
