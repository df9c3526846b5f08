"""TACO: a tortilla and its description as a dataset (TACO 2.0, 5.4, 5.6 and 7.1.1).

The extent of a dataset is computed from the metadata of its samples: the first level with
locations gives the spatial extent, the first with times the temporal one. Boxes are those of the
footprints, on the circle of longitudes: west is greater than east if the dataset crosses the
antimeridian.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, Problem, shown
from comal.geo import boxes as geo_boxes
from comal.geo import times
from comal.geo.places import GEOMETRY, Places, Way, ways_of
from comal.public import guarded_class, warn
from comal.taco import spec
from comal.taco.columns import check_key
from comal.taco.model.levels import check_pit
from comal.taco.model.sample import Sample, fields_of
from comal.taco.model.tortilla import Tortilla
from comal.taco.spec import TacoWarning

__all__ = ["Sample", "Taco", "Tortilla"]

_NAMESPACES = ("istac", "stac")

Boxes = tuple[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionFields:
    """Fields of a collection that a caller may pass; see `Taco`. None means not given."""

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
        """Split a caller's arguments into fields that are not None, and other arguments."""
        known = cls.__dataclass_fields__
        fields = {
            name: value for name, value in given.items() if name in known and value is not None
        }
        return fields, {name: value for name, value in given.items() if name not in known}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions(CollectionFields):
    """How a folder is packed; see `comal.taco.pack_folder`."""

    manifest: Any = None
    pattern: str | Sequence[str] = "*"
    stac: bool = True
    pad: bool = False
    extra: Mapping[str, Any] | None = None


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
        Strings.
    licenses, tasks
        At least one string each; SPDX names are recommended for licences.
    providers, curators
        Mappings or pydantic models with a name or an organization, and optionally email, role,
        roles, url, links. At least one provider.
    taco_version
        Version of the specification.
    title
        At most 250 characters.
    keywords
        Strings.
    extent
        ``{"spatial": [west, south, east, north], "temporal": [start, end] or None}`` in WGS84
        degrees and ISO 8601. None computes it from STAC or ISTAC fields, or gives the whole world
        if there are none. West > east crosses the antimeridian.

    Raises
    ------
    InvalidInputError
        Fields that the specification does not allow, all listed in `problems`; samples that
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
                "a dataset needs a Tortilla", found=type(tortilla).__name__, expected="Tortilla"
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
        if tortilla.stream is not None:
            refuse_alike(tortilla.stream.schema.names)
        else:
            levels = tortilla.levels()
            check_pit(levels)
            for level in levels:
                refuse_alike(level.table.column_names)
            if self.extent is None:
                self.extent = extent_of(level.table for level in levels)
        if extra:
            self.extend_with(extra)

    def _check(self) -> None:
        problems = spec.collection_problems(self.fields(), where="Taco")
        version: object = self.taco_version  # others are accepted when read, never written
        if not (isinstance(version, str) and spec.READABLE_VERSIONS.match(version)):
            text = f"must be a version 2.x.y, found {version!r}"
            problems.append(Problem("taco-collection-field", "Taco: taco_version", text))
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors:
            raise InvalidInputError("fields of the dataset are not valid", problems=errors)
        for key, value in self.fields().items():
            setattr(self, key, json_value(value, key))
        for problem in problems:
            warn(f"{problem.place}: {problem.message}", TacoWarning)

    def __getattr__(self, name: str) -> Any:
        extra = self.__dict__.get("extra", {})
        if name in extra:
            return extra[name]
        raise AttributeError(f"the dataset has no field {name!r}")

    def __repr__(self) -> str:
        return f"Taco({self.id!r}, version {self.dataset_version!r}, {self.tortilla!r})"

    def fields(self) -> dict[str, Any]:
        """The core fields in the order of COLLECTION.json."""
        return {key: getattr(self, key) for key in spec.CORE_FIELDS}

    def export_metadata(self) -> dict[str, Any]:
        """The part of COLLECTION.json that does not depend on the container.

        Core fields, then those of extensions. ``taco:pit_schema`` and ``taco:field_schema`` are
        added on writing.
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
            A field with an invalid name, one that exists already, or a value that JSON cannot hold.
        """
        for key, value, _ in fields_of(extension, self, "dataset"):
            check_key(key)
            if key in spec.CORE_FIELDS or key.startswith("taco:") or key in self.extra:
                raise InvalidInputError(
                    f"field {shown(key)} of the dataset exists already or is reserved", field=key
                )
            self.extra[key] = json_value(value, key)
        return self


def refuse_alike(fields: Sequence[str]) -> None:
    """Refuse fields whose names differ only in case, which queries cannot tell apart."""
    known: dict[str, str] = {}
    for name in fields:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(
                f"fields {shown(other)} and {shown(name)} are the same to SQL, which ignores case",
                hint="rename one of them",
                field=name,
            )


def json_value(value: Any, key: str) -> Any:
    """A value for JSON: times become ISO text, arrays lists; NaN is refused."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str) and value.encode(errors="ignore").decode() == value:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, dt.datetime):
        return times.isoformat(times.parse_instant(value))
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {
            json_value(str(name), key): json_value(item, f"{key}.{name}")
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [json_value(item, f"{key}[{n}]") for n, item in enumerate(value)]
    raise InvalidInputError(
        f"field {shown(key)} of the dataset has a value that JSON cannot hold", found=shown(value)
    )


def _plain(values: Any) -> Any:
    """Lists of strings or contacts for JSON; anything invalid is left to the check."""
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


# -- extent ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Coverage:
    """Accumulates the extent of rows that come in batches."""

    boxes: list[Boxes] = field(default_factory=list)
    start: int | None = None
    end: int | None = None

    def add(self, table: Any) -> None:
        """Add the rows of one table."""
        found = boxes(table)
        if found is not None:
            self.boxes.append(found)
            if len(self.boxes) > 64:
                self.boxes = [merged(self.boxes)]
        span = time_range(table)
        if span is not None:
            self.start = span[0] if self.start is None else min(self.start, span[0])
            self.end = span[1] if self.end is None else max(self.end, span[1])

    def spatial(self) -> list[float] | None:
        """The smallest box around all rows, or None if no row has a location."""
        if not self.boxes:
            return None
        box = geo_boxes.union_box(*merged(self.boxes))
        return None if box is None else [float(value) for value in box]

    def temporal(self) -> list[str] | None:
        """The first start and the last end, or None if no row has a time.

        An end may be before its start, as in what others wrote; an extent is always in order.
        """
        if self.start is None or self.end is None:
            return None
        return [times.isoformat(end) for end in sorted((self.start, self.end))]


def extent_of(tables: Iterable[Any], known: Any = None) -> dict[str, Any]:
    """The extent of a dataset: ``{"spatial": [...], "temporal": [...] or None}``.

    `tables` hold the metadata of its levels. `known`, an extent around it, fills in what no column
    gives; without any location the spatial extent is the whole world.
    """
    spatial: list[float] | None = None
    temporal: list[str] | None = None
    for table in tables:
        coverage = Coverage()
        coverage.add(table)
        spatial = spatial or coverage.spatial()
        temporal = temporal or coverage.temporal()
        if spatial and temporal:
            break
    if isinstance(known, Mapping):
        spatial = spatial or known.get("spatial")
        temporal = temporal or known.get("temporal")
    return finished(spatial, temporal)


def finished(spatial: list[float] | None, temporal: list[str] | None) -> dict[str, Any]:
    """An extent object; the whole world if no location is known."""
    return {"spatial": spatial or list(spec.GLOBAL_BBOX), "temporal": temporal}


def united(extents: Sequence[Any]) -> dict[str, Any]:
    """One extent around several; unknown ones are ignored."""
    given = [extent for extent in extents if isinstance(extent, Mapping)]
    places = [extent.get("spatial") for extent in given]
    known = [box for box in places if isinstance(box, list) and len(box) == 4]
    spatial = geo_boxes.union_box(*np.asarray(known, np.float64).T) if known else None
    spans = [span for span in map(_span_of, given) if span is not None]
    ends = (min(start for start, _ in spans), max(end for _, end in spans)) if spans else ()
    return finished(
        None if spatial is None else [float(value) for value in spatial],
        [times.isoformat(end) for end in ends] or None,
    )


def _span_of(extent: Mapping[str, Any]) -> tuple[int, int] | None:
    """The times of an extent in microseconds; None if they are missing or cannot be parsed."""
    pair = extent.get("temporal")
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    try:
        return times.parse_instant(pair[0]), times.parse_instant(pair[1])
    except InvalidInputError:
        return None


def boxes(table: Any) -> Boxes | None:
    """Boxes of the rows with a location as west, south, east, north arrays; None without any.

    Boxes of footprints, or of centroids for rows without a footprint.
    """
    ways = ways_of(table.schema)
    places = Places(table, ways)
    known = places.told_by >= 0
    if not known.any():
        return None
    warn_without_crs(ways)
    west, south, east, north = (side[known] for side in places.corners)
    return west, south, east, north


def merged(parts: Sequence[Boxes]) -> Boxes:
    """Fewer boxes that cover the same longitudes and reach as far south and north.

    Overlapping arcs become one, so that their number does not grow with the number of rows.
    """
    west, south, east, north = (np.concatenate(side) for side in zip(*parts, strict=True))
    west, east = geo_boxes.wrap_arcs(west, east)
    over = west > east
    starts = np.concatenate([west, np.full(int(over.sum()), -180.0)])
    ends = np.concatenate([np.where(over, 180.0, east), east[over]])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.r_[True, starts[1:] > ends[:-1]]
    last = np.r_[first[1:], True]
    count = int(first.sum())
    low, high = np.full(count, south.min()), np.full(count, north.max())
    return starts[first], low, ends[last], high


def time_range(table: Any) -> tuple[int, int] | None:
    """First start and last end of the rows in microseconds since 1970 UTC, or None.

    Also None if one is outside of the years 1 to 9999, which no document can express.
    """
    names = table.column_names
    for namespace in _NAMESPACES:
        start = f"{namespace}:time_start"
        if start not in names or not pa.types.is_timestamp(table.schema.field(start).type):
            continue
        firsts = table[start]
        end = f"{namespace}:time_end"
        usable = end in names and pa.types.is_timestamp(table.schema.field(end).type)
        lasts = pc.coalesce(table[end], firsts) if usable else firsts
        low, high = pc.min(firsts), pc.max(lasts)
        if low.is_valid:
            span = _micros(low), _micros(high)
            return span if min(span) >= times.FIRST and max(span) <= times.LAST else None
    return None


def _micros(value: Any) -> int:
    return int(value.cast(pa.timestamp("us"), safe=False).value)


def warn_without_crs(ways: Iterable[Way]) -> None:
    """Warn that geometries without a CRS are taken to be in degrees."""
    if any(way.columns == (GEOMETRY,) for way in ways):
        warn(f"{GEOMETRY} without istac:crs is taken to be in EPSG:4326", TacoWarning)
