"""Samples, tables and batches as columns: the input of all writers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, SupportsFloat

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, counted, shown
from comal.limits import DEFAULT_LIMITS, MIB
from comal.public import guarded_class
from comal.samples.payloads import Ints, Payloads, payload_of, payloads_of
from comal.samples.tables import (
    Names,
    no_column,
    payloads_in,
    refuse_lost,
    refuse_unread,
    table_of,
)
from comal.table.columns import numbers_column, plain_table, texts_column, valid_of
from comal.tortilla import spec
from comal.tortilla.archive import runs
from comal.tortilla.columns import check_extra, check_ids, check_values, column, normal


@dataclass(frozen=True, slots=True)
class STAC:
    """Place and time of a sample that is a raster.

    Fields that are None, except the times, are read from the raster when the sample is written.

    Parameters
    ----------
    crs
        Authority code, such as ``EPSG:32718``.
    raster_shape
        Rows and columns.
    geotransform
        Six numbers in GDAL order: x0, dx, rotation, y0, rotation, dy.
    time_start, time_end
        Seconds since 1970 UTC, datetimes (naive ones are UTC) or ISO 8601 texts.
    centroid
        WKT point in EPSG:4326; computed from the other fields when None.
    """

    crs: str | None = None
    raster_shape: Sequence[int] | None = None
    geotransform: Sequence[float] | None = None
    time_start: Any = None
    time_end: Any = None
    centroid: str | None = None

    def columns(self) -> dict[str, Any]:
        """Values by column."""
        return {name: getattr(self, name.removeprefix("stac:")) for name in spec.STAC}


@dataclass(frozen=True, slots=True)
class RAI:
    """Values of responsible AI, stored unchanged.

    Elevation is in metres; `cisi`, `hdi` and `gmi` are between 0 and 1. `ele` is another name of
    `elevation`.
    """

    elevation: float | None = None
    cisi: float | None = None
    gdp: float | None = None
    hdi: float | None = None
    gmi: float | None = None
    pop: float | None = None
    admin0: str | None = None
    admin1: str | None = None
    admin2: str | None = None
    ele: float | None = None

    def columns(self) -> dict[str, Any]:
        """Values by column."""
        elevation: Any = self.ele if self.elevation is None else self.elevation
        values = {name: getattr(self, name.removeprefix("rai:")) for name in spec.RAI_REQUIRED[1:]}
        if isinstance(elevation, SupportsFloat):
            # Metres are stored as integers; NaN and infinity are null, as in times.
            elevation = round(float(elevation)) if math.isfinite(elevation) else None
        return {spec.ELEVATION: elevation, **values}


@guarded_class
class Sample:
    r"""One item of a Tortilla.

    Parameters
    ----------
    id
        Unique among its siblings; without ``/ \ :`` and anything that a file system refuses.
    file_format
        Name of the GDAL driver, ``BYTES`` or ``TORTILLA``; found by the first bytes when None.
    path
        The payload: a local path or URL, bytes, or a `Slice` of another file; or samples (a
        `Samples` or a list), which make it a nested Tortilla.
    data_split
        ``train``, ``validation`` or ``test``.
    stac_data, rai_data
        `STAC` and `RAI`, or mappings with their fields.
    **extra
        Further columns. Pass names with a colon as ``**{"ml:score": 1.0}``.

    Raises
    ------
    InvalidInputError
        A payload has the wrong type, or a column is not allowed.
    """

    __slots__ = ("data_split", "file_format", "id", "metadata", "path", "samples")

    def __init__(
        self,
        id: str,  # noqa: A002 - the name of the column
        file_format: str | None = None,
        path: Any = None,
        data_split: str | None = None,
        stac_data: STAC | Mapping[str, Any] | None = None,
        rai_data: RAI | Mapping[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        if not isinstance(id, str):
            raise InvalidInputError(f"id {shown(id)} is not text", found=type(id).__name__)
        self.id = id
        self.data_split = data_split
        self.samples = _nested(path, id)
        self.path = None if self.samples is not None else payload_of(path)
        if self.samples is not None and file_format not in (None, spec.TORTILLA):
            raise InvalidInputError(
                f"a sample that holds samples cannot have the format {shown(file_format)}",
                where=f"sample {shown(id)}",
                expected=spec.TORTILLA,
            )
        self.file_format = spec.TORTILLA if self.samples is not None else file_format
        self.metadata: dict[str, Any] = {}
        for group, kind in ((stac_data, STAC), (rai_data, RAI)):
            if group is not None:
                self.metadata.update(_columns(group, kind))
        for name, value in extra.items():
            self.metadata[check_extra(name, f"sample {shown(id)}")] = value

    def __repr__(self) -> str:
        kind = self.file_format or "format not given"
        return f"Sample({self.id!r}, {kind}, {counted(len(self.metadata), 'column')})"


def _columns(group: Any, kind: type[STAC | RAI]) -> dict[str, Any]:
    if isinstance(group, Mapping):
        try:
            group = kind(**{str(key).partition(":")[2] or key: v for key, v in group.items()})
        except TypeError as error:
            raise InvalidInputError(
                f"the fields are not those of {kind.__name__}", found=error
            ) from error
    if not isinstance(group, kind):
        raise InvalidInputError(
            f"not a {kind.__name__}",
            found=type(group).__name__,
            expected=f"{kind.__name__} or a mapping",
        )
    return {name: value for name, value in group.columns().items() if value is not None}


def _nested(path: Any, name: str) -> list[Sample] | None:
    if isinstance(path, Samples):
        return list(path)
    if isinstance(path, list | tuple) and (not path or isinstance(path[0], Sample)):
        if not path:
            raise InvalidInputError(
                "a nested sample holds no samples", where=shown(name), expected="at least one"
            )
        return list(Samples(path))
    return None


class Samples:
    """Samples that belong together: a Tortilla before it is written.

    Parameters
    ----------
    samples
        At least one `Sample`.

    Raises
    ------
    InvalidInputError
        There is no sample, or something else than samples.
    """

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)
        if not self._samples:
            raise InvalidInputError("no samples", expected="at least one")
        for sample in self._samples:
            if not isinstance(sample, Sample):
                raise InvalidInputError(
                    "not a sample", found=type(sample).__name__, expected="Sample"
                )

    def __len__(self) -> int:
        return len(self._samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples)

    def __repr__(self) -> str:
        return f"Samples({counted(len(self), 'sample')})"


_BATCH_ROWS = 4_096
_BATCH_BYTES = 32 * MIB
"""Bytes of samples from an iterator that are held at once."""


@dataclass(frozen=True, slots=True)
class Below:
    """All items one level down, and the range of them in each item of the level above."""

    items: Prepared
    starts: Ints
    stops: Ints
    """Item i above has the rows ``starts[i]:stops[i]`` of `items`; if none, it is not nested."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """n items: their metadata, their bytes, and the items that are nested in them."""

    table: Any
    """Arrow table without offsets; ``tortilla:file_format`` may still be null or missing."""
    payloads: Payloads
    below: Below | None = None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def nested(self, start: int = 0, stop: int | None = None) -> Ints:
        """Rows from `start` to `stop` that are nested items."""
        if self.below is None:
            return np.zeros(0, np.int64)
        return start + np.flatnonzero(self.below.stops[start:stop] > self.below.starts[start:stop])

    def take(self, rows: Ints) -> Prepared:
        """The items of `rows`."""
        if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
            return self
        below = self.below
        if below is not None:
            below = replace(below, starts=below.starts[rows], stops=below.stops[rows])
        table = self.table.take(numbers_column(rows))
        return Prepared(table, self.payloads.take(rows), below)

    def sizes(self) -> Ints:
        """Known bytes of each item; nested ones without their footers."""
        sizes = np.maximum(self.payloads.sizes(), 0)
        if self.below is None:
            return sizes
        ends = np.concatenate([[0], np.cumsum(self.below.items.sizes())])
        within: Ints = ends[self.below.stops] - ends[self.below.starts]
        return sizes + within

    def holding(self, below: Prepared, parents: Ints) -> Prepared:
        """These items with `below` nested in them; `parents` are the rows of their parents."""
        order = np.argsort(parents, kind="stable")
        rows = np.arange(len(self))
        starts, stops = (
            np.searchsorted(parents[order], rows, side).astype(np.int64)
            for side in ("left", "right")
        )
        return replace(self, below=Below(below.take(order), starts, stops))

    def levels(self) -> Iterator[Prepared]:
        """These items and those nested in them, outermost level first."""
        level: Prepared | None = self
        while level is not None:
            yield level
            level = level.below.items if level.below is not None else None


def from_samples(samples: Sequence[Sample], where: str = "samples", depth: int = 1) -> Prepared:
    """Samples as columns; nested samples are collected over all of them."""
    DEFAULT_LIMITS.check("tortilla_depth", depth, where)
    table = _sample_table(samples)
    payloads = payloads_of([sample.path for sample in samples])
    children = [sample.samples or [] for sample in samples]
    if not any(children):
        return Prepared(table, payloads)
    stops = np.cumsum([len(one) for one in children])
    starts = np.concatenate([[0], stops[:-1]])
    items = from_samples(list(chain.from_iterable(children)), "nested samples", depth + 1)
    return Prepared(table, payloads, Below(items, starts, stops))


def _sample_table(samples: Sequence[Sample]) -> Any:
    def who(row: int) -> str:
        return samples[row].id

    columns = {
        spec.ID: texts_column([sample.id for sample in samples]),
        spec.FILE_FORMAT: column(spec.FILE_FORMAT, [s.file_format for s in samples], who),
    }
    if any(sample.data_split is not None for sample in samples):
        columns[spec.DATA_SPLIT] = column(spec.DATA_SPLIT, [s.data_split for s in samples], who)
    names = dict.fromkeys(chain.from_iterable(sample.metadata for sample in samples))
    for name in names:
        columns[name] = column(name, [sample.metadata.get(name) for sample in samples], who)
    table = pa.table(columns)
    refuse_lost(table.schema, "samples")
    return plain_table(table, lasting=True)


def from_table(data: Any, names: Names, where: str = "table") -> Prepared:
    """A table of items, one row each, without an object per item."""
    table = table_of(data, where)
    if names.path not in table.column_names:
        raise no_column(table, names.path, where, hint="name the column with path=")
    payloads = payloads_in(table, names, where)
    found = names.id if names.id in table.column_names else spec.ID
    if found not in table.column_names:
        raise no_column(table, names.id, where, hint="name the column with id=")
    empty = ~valid_of(table[names.path])
    if empty.any():
        row = int(empty.argmax())
        raise InvalidInputError(
            "an item has no payload",
            where=f"{where}, row {row}, id {shown(table[found][row].as_py())}",
            expected=f"a path or bytes in column {shown(names.path)}; b'' for an empty item",
        )
    rest = table.drop_columns([names.path])
    if found != spec.ID:
        rest = rest.rename_columns([spec.ID if n == found else n for n in rest.column_names])
    return Prepared(normal(rest, where), payloads)


Source = Samples | Iterable[Any] | Any


def batches_of(source: Source, names: Names) -> Iterator[Prepared]:
    """The user's samples as batches of columns; one batch if they are in memory already."""
    if isinstance(source, Prepared):
        yield source
    elif isinstance(source, Samples) or _begins_with_samples(source):
        yield from_samples(list(Samples(source)))
    elif isinstance(source, pa.Table | pa.RecordBatch) or _is_frame(source):
        yield from_table(source, names)
    elif isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
        yield from _from_stream(iter(source), names)
    else:
        raise InvalidInputError(
            "neither samples nor a table",
            found=type(source).__name__,
            expected="Samples or a table",
        )


def _begins_with_samples(source: Any) -> bool:
    return isinstance(source, list | tuple) and any(isinstance(one, Sample) for one in source[:1])


def _is_frame(source: Any) -> bool:
    """Whether this is a table of another library, and not a reader of batches."""
    reader = isinstance(source, pa.RecordBatchReader)
    return hasattr(source, "__arrow_c_stream__") and not reader


def _from_stream(items: Iterator[Any], names: Names) -> Iterator[Prepared]:
    waiting: list[Sample] = []
    held = 0
    for number, item in enumerate(items):
        if not isinstance(item, Sample):
            if waiting:
                raise InvalidInputError("samples and tables are mixed", where=f"item {number}")
            yield from_table(item, names, f"batch {number}")
            continue
        waiting.append(item)
        held += _held(item)
        if len(waiting) == _BATCH_ROWS or held > _BATCH_BYTES:
            yield from_samples(waiting)
            waiting, held = [], 0
    if waiting:
        yield from_samples(waiting)


def _held(sample: Sample) -> int:
    if sample.samples is not None:
        return sum(map(_held, sample.samples))
    return len(sample.path) if isinstance(sample.path, bytes) else 0


def check(prepared: Prepared, where: str, *, tier: int = 2, keeps: bool = False) -> None:
    """Raise for ids and values that are not allowed, at every level."""
    parents: Ints | None = None
    for depth, level in enumerate(prepared.levels()):
        place = where if depth == 0 else f"{where}, nested {depth} deep"
        check_ids(level.table[spec.ID], place, parents, tier=tier, keeps=keeps)
        check_values(level.table, place)
        made = [(name, pa.int64()) for name in (spec.OFFSET, spec.LENGTH)]
        refuse_unread(pa.schema([*level.table.schema, *made]), place)
        if level.below is not None:
            counts = level.below.stops - level.below.starts
            parents = np.zeros(len(level.below.items), np.int64)
            parents[runs(level.below.starts, counts)] = np.repeat(np.arange(len(counts)), counts)


def mapped(prepared: Prepared, change: Callable[[Prepared], Prepared]) -> Prepared:
    """Change every level, the innermost first."""
    if prepared.below is not None:
        below = replace(prepared.below, items=mapped(prepared.below.items, change))
        prepared = replace(prepared, below=below)
    return change(prepared)
