"""TACO: a tortilla and what describes it as a dataset (TACO 2.0, 5.4 and 7.1.1)."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from comal.errors import InvalidInputError, Problem, shown
from comal.geo import times
from comal.public import guarded_class, warn
from comal.taco import spec
from comal.taco.model.columns import check_key
from comal.taco.model.extent import extent_of
from comal.taco.model.pit import check_pit
from comal.taco.model.sample import Sample, as_table
from comal.taco.model.tortilla import Tortilla
from comal.taco.spec import TacoWarning

__all__ = ["Sample", "Taco", "Tortilla"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionFields:
    """Fields of a collection that a caller may give; see `Taco`. None is what was not given."""

    id: str | None = None
    dataset_version: str | None = None
    description: str | None = None
    licenses: Sequence[str] | None = None
    providers: Sequence[Any] | None = None
    tasks: Sequence[str] | None = None
    title: str | None = None
    curators: Sequence[Any] | None = None
    keywords: Sequence[str] | None = None
    extent: Any = None

    @classmethod
    def split(cls, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments of a caller: fields that are not None, and all that is no field."""
        known = cls.__dataclass_fields__
        fields = {
            name: value for name, value in given.items() if name in known and value is not None
        }
        return fields, {name: value for name, value in given.items() if name not in known}


@guarded_class
class Taco:
    """A dataset: exactly one root tortilla and the fields of COLLECTION.json.

    Parameters
    ----------
    tortilla
        All samples.
    id
        Lower-case letters, digits, ``_`` and ``-``.
    dataset_version, description
        Texts.
    licenses, tasks
        At least one text each; SPDX names are recommended for licences.
    providers, curators
        Objects with a name or an organization, and email, role, roles, url, links as they are
        known; mappings or pydantic models. At least one provider.
    taco_version
        Version of the specification.
    title
        At most 250 characters.
    keywords
        Texts.
    extent
        ``{"spatial": [west, south, east, north], "temporal": [start, end] or None}`` in WGS84
        degrees and ISO 8601. Kept when given; else computed from STAC or ISTAC fields, the whole
        world where there are none. West > east crosses the antimeridian.

    Raises
    ------
    InvalidInputError
        Fields that the specification does not allow, all of them in `problems`; samples that
        differ in structure (PIT-1) or in their fields (PIT-2).
    """

    def __init__(
        self,
        tortilla: Tortilla,
        id: str,  # noqa: A002 - the name that the specification gives it
        dataset_version: str,
        description: str,
        licenses: Sequence[str],
        providers: Sequence[Any],
        tasks: Sequence[str],
        taco_version: str = spec.TACO_VERSION,
        title: str | None = None,
        curators: Sequence[Any] | None = None,
        keywords: Sequence[str] | None = None,
        extent: Any = None,
        **extra: Any,
    ) -> None:
        if not isinstance(tortilla, Tortilla):
            raise InvalidInputError(
                "dataset needs a Tortilla", found=type(tortilla).__name__, expected="Tortilla"
            )
        self.extra: dict[str, Any] = {}
        self.tortilla = tortilla
        self.id = id
        self.dataset_version = dataset_version
        self.description = description
        self.licenses = _plain(licenses)
        self.providers = _plain(providers)
        self.tasks = _plain(tasks)
        self.taco_version = taco_version
        self.title = title
        self.curators = _plain(curators)
        self.keywords = _plain(keywords)
        self.extent: dict[str, Any] | None = _extent(extent)
        self.extent_is_given = extent is not None
        self._check()
        if tortilla.stream is None:
            levels = tortilla.levels()
            check_pit(levels)
            if self.extent is None:
                self.extent = extent_of(levels)
        self.extend_with(extra)

    def _check(self) -> None:
        problems = [
            *spec.collection_problems(self.fields(), where="Taco"),
            *_unwritable(self.taco_version, self.extent),
        ]
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors:
            raise InvalidInputError("fields of the dataset are not valid", problems=errors)
        for problem in problems:
            warn(f"{problem.place}: {problem.message}", TacoWarning)

    def __getattr__(self, name: str) -> Any:
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]
        raise AttributeError(f"dataset has no field {name!r}")

    def __repr__(self) -> str:
        return f"Taco({self.id!r}, version {self.dataset_version!r}, {self.tortilla!r})"

    def fields(self) -> dict[str, Any]:
        """The core fields in the order in which COLLECTION.json has them."""
        return {key: getattr(self, key) for key in spec.CORE_FIELDS}

    def export_metadata(self) -> dict[str, Any]:
        """COLLECTION.json as far as it does not depend on the container.

        Core fields, then those of extensions. ``taco:pit_schema`` and ``taco:field_schema`` come
        with writing.
        """
        return {**self.fields(), **self.extra}

    def extend_with(self, extension: Any) -> Self:
        """Add fields to the collection.

        Parameters
        ----------
        extension
            A `TacoExtension`, a mapping, a table of one row, a pydantic model, or a function of
            the dataset that returns one of these.

        Returns
        -------
        Taco
            This dataset.

        Raises
        ------
        InvalidInputError
            A field with a bad name, one that is there already, or a value that JSON cannot hold.
        """
        for key, value in _extension_fields(self, extension).items():
            check_key(key)
            if key in spec.CORE_FIELDS or key.startswith("taco:") or key in self.extra:
                raise InvalidInputError(
                    f"field {shown(key)} of the dataset is there already or is reserved", field=key
                )
            self.extra[key] = json_value(value, key)
        return self


def _extension_fields(taco: Taco, extension: Any) -> Mapping[str, Any]:
    if isinstance(extension, Mapping):
        return extension
    if hasattr(extension, "model_dump") and not callable(extension):
        dumped: Mapping[str, Any] = extension.model_dump()
        return dumped
    table = as_table(extension)
    if table is not None:
        if table.num_rows != 1:
            raise InvalidInputError(
                "table that extends a dataset must have one row", found=f"{table.num_rows} rows"
            )
        row: Mapping[str, Any] = table.to_pylist()[0]
        return row
    if callable(extension):
        result = extension(taco)
        if not callable(result):
            return _extension_fields(taco, result)
    raise InvalidInputError(
        "dataset cannot be extended with this",
        found=type(extension).__name__,
        expected="a TacoExtension, a mapping, a table of one row or a pydantic model",
    )


def json_value(value: Any, key: str) -> Any:
    """A value as JSON can hold it: times as ISO text, arrays as lists; NaN is refused."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, dt.datetime):
        return times.isoformat(times.parse_instant(value))
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): json_value(item, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item, f"{key}[{n}]") for n, item in enumerate(value)]
    raise InvalidInputError(
        f"field {shown(key)} of the dataset has a value that JSON cannot hold", found=shown(value)
    )


def _plain(values: Any) -> Any:
    """Lists of texts or contacts as JSON has them; what is wrong is left to the check."""
    if isinstance(values, tuple):
        values = list(values)
    if not isinstance(values, list):
        return values
    return [item.model_dump() if hasattr(item, "model_dump") else item for item in values]


def _extent(extent: Any) -> dict[str, Any] | None:
    if hasattr(extent, "model_dump"):
        extent = extent.model_dump()
    if not isinstance(extent, Mapping):
        return extent  # type: ignore[no-any-return]  # None, or refused by the check
    given = json_value(extent, "extent")
    given.setdefault("temporal", None)
    checked: dict[str, Any] = given
    return checked


def _unwritable(version: object, extent: object) -> Iterator[Problem]:
    """What may stand in a collection of others but not in a new one."""
    if not (isinstance(version, str) and spec.READABLE_VERSIONS.match(version)):
        text = f"must be a version 2.x.y, found {version!r}"
        yield Problem("taco-collection-field", "Taco: taco_version", text)
    temporal = extent.get("temporal") if isinstance(extent, Mapping) else None
    if not isinstance(temporal, list | tuple) or len(temporal) != 2:
        return  # nothing is known, or the type is wrong: told elsewhere
    try:
        start, end = map(times.parse_instant, temporal)
    except InvalidInputError as error:
        yield Problem("taco-extent", "Taco: extent.temporal", f"{error.what}: {error.found}")
        return
    if start > end:
        text = f"must begin before it ends, found {temporal[0]!r} to {temporal[1]!r}"
        yield Problem("taco-extent", "Taco: extent.temporal", text)
