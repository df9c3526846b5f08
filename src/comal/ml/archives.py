"""Samples by number, decoded: the face that a training loop sees."""

from __future__ import annotations

import hashlib
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal, Self, SupportsIndex

import numpy as np
import pyarrow as pa

import comal
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    NotInContainerError,
    NotThisFormatError,
    counted,
    shown,
)
from comal.limits import GIB
from comal.ml.batches import Fetched
from comal.ml.buffers import Buffers, buffers_of_worker
from comal.ml.cache import LeafCache, key_of
from comal.ml.decoding import Decoder, Field, enter, fields_of
from comal.ml.index import Branch, Index, Shared, index_of
from comal.ml.loader import Loader, LoaderOptions, order_of
from comal.ml.order import Sampler, SamplerOptions
from comal.ml.splits import column_of, rows_by_value, rows_of_parts
from comal.ml.statistics import Statistics, StatisticsOptions, statistics_of
from comal.public import guarded, guarded_class, options_of, takes, warn
from comal.samples.payloads import Ints
from comal.storage.source import Closing
from comal.taco import TacoDataset, concat, load
from comal.taco.copying.gather import leaf_levels
from comal.tortilla import TortillaFrame
from comal.tortilla import open as open_tortilla

Sample = dict[str, Any]
Location = str | os.PathLike[str]
OnError = Literal["raise", "skip", "warn"] | Callable[[ComalError], None]

_REQUESTS = 256
"""Requests in flight for the bytes of one batch."""


class Dataset(ABC):
    """Samples in a fixed order, each a dict of arrays and values.

    It follows torch's protocol of map-style data sets (``__len__``, ``__getitem__`` and
    ``__getitems__``, which fetches a whole batch at once), can be pickled at the cost of kilobytes
    whatever its size, and works in forked and spawned workers.
    """

    on_error: OnError = "raise"
    transform: Callable[[Sample], Any] | None = None
    masks = False
    """Whether images are masked arrays, see `masked`."""
    _shared: Shared
    """What samples are known by, with its length and `take`; workers share it."""

    def __len__(self) -> int:
        return len(self._shared.value)

    @abstractmethod
    def nbytes(self, rows: Ints) -> int:
        """Bytes that reading some samples takes, at least about."""

    @abstractmethod
    def read(self, rows: Ints) -> Any:
        """What `decoded` needs of some samples, in one fetch."""

    @abstractmethod
    def decode(self, place: int, raw: Any, out: Mapping[str, Any]) -> Sample:
        """The sample at a place of what `read` gave.

        `out` has arrays to write the pixels of fields into.
        """

    @guarded
    def take(self, rows: Ints | Sequence[int]) -> Self:
        """A data set of some samples by number, in that order; raises as `fetch`."""
        made = copy(self)
        kept = Shared(self._shared.value.take(self._rows(rows)))
        made._shared = kept  # noqa: SLF001 - same class
        return made

    @guarded
    def part(self, rows: Ints | Sequence[int]) -> Self:
        """As `take` of consecutive rows, for a worker that may be on another machine."""
        made, value, chosen = copy(self), self._shared.value, self._rows(rows)
        part = value.part(chosen) if isinstance(value, Index) else value.take(chosen)
        made._shared = Shared(part, small=True)  # noqa: SLF001 - same class
        return made

    @property
    def ids(self) -> Any:
        """The id of each sample, an Arrow array; None if they are not listed."""
        return None

    @property
    def marks(self) -> Any:
        """What tells samples from others in the state of a run, an Arrow array or None."""
        return self.ids

    @property
    def columns(self) -> Any:
        """The columns that samples have, an Arrow table."""
        return pa.table({})

    @guarded
    def __getitem__(self, row: SupportsIndex) -> Any:
        """One sample.

        Parameters
        ----------
        row
            Its number; negative ones count from the end.

        Raises
        ------
        NotInContainerError
            There is no such sample.
        ComalError
            It cannot be read or decoded; the error names archive, sample and field.
        """
        sample = self.decode(0, self.read(self._rows([row])), {})
        return sample if self.transform is None else self.transform(sample)

    @guarded
    def fetch(self, rows: Sequence[int] | Ints) -> list[Any]:
        """Samples by number, in that order, in one coalesced fetch.

        Samples that fail are left out unless `on_error` is ``"raise"``. Raises as ``data[row]``.
        """
        chosen, change = self._rows(rows), self.transform
        samples = self.complete(chosen, self.attempt(chosen))
        return list(samples if change is None else map(change, samples))

    @guarded
    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        chosen, buffers = self._rows(rows), buffers_of_worker()
        raw, alone = self.attempt(chosen), buffers is None
        return Fetched.of(self, chosen, raw, buffers or Buffers(), alone=alone)

    @guarded
    @takes(LoaderOptions)
    def loader(self, batch_size: int = 32, **options: Any) -> Loader:
        """Batches of samples, read and decoded ahead.

        Parameters
        ----------
        batch_size
            Samples in a batch.
        **options
            Fields of `LoaderOptions`: ``shuffle`` and ``seed``, ``rank`` and ``ranks``, the rule
            for the rest, weights, workers, memory and more.
        """
        chosen = options_of(LoaderOptions, options)
        return Loader(self, order_of(self, batch_size, chosen), chosen)

    @guarded
    @takes(SamplerOptions)
    def sampler(self, batch_size: int = 32, **options: Any) -> Sampler:
        """What ``torch.utils.data.DataLoader(data, batch_sampler=...)`` takes.

        Parameters
        ----------
        batch_size
            Samples in a batch.
        **options
            Fields of `SamplerOptions`, which a loader has too.
        """
        chosen = options_of(SamplerOptions, options)
        return Sampler(order_of(self, batch_size, chosen), self.marks)

    @guarded
    def head(self, n: int = 5) -> list[Any]:
        """The first `n` samples."""
        return list(self.fetch(range(min(n, len(self)))))

    @guarded
    @takes(StatisticsOptions)
    def stats(self, **options: Any) -> Statistics:
        """Statistics of the pixels by field and band, before `transform`.

        Nodata, NaN and what a mask or an alpha band hides do not count.

        Parameters
        ----------
        **options
            Fields of `StatisticsOptions`: ``classes=["mask"]``, ``by="split"``, ``sample=1000``,
            ``save="stats.json"`` and more.

        Returns
        -------
        Statistics
            ``found["image"].mean`` is an array of one number a band.

        Raises
        ------
        ConflictError
            `save` has statistics of another data set or with other options.
        InvalidInputError
            Samples have no such field or column, or differ in bands or type.
        """
        return statistics_of(self, options_of(StatisticsOptions, options))

    @guarded
    def plot(self, row: int, **options: Any) -> Any:
        """A figure of one sample: its images and masks side by side; the options of `grid`."""
        return self.grid([row], **options)

    @guarded
    def grid(
        self,
        rows: Sequence[int] | Ints,
        *,
        bands: Mapping[str, Sequence[int]] | None = None,
        classes: Mapping[str, Mapping[int, str]] | None = None,
    ) -> Any:
        """A figure of some samples, before `transform`: their images and masks side by side.

        A band of few integers is drawn as classes, which have the same colours everywhere.
        Anything else is drawn in the colours of three bands, or in grey. Pixels without a value
        are left white.

        Parameters
        ----------
        rows
            Numbers of the samples.
        bands
            For a field the three bands for red, green and blue, or the one to draw, from 1. None
            for the first three, or the first if there are fewer.
        classes
            For a field the names of its classes, by value.

        Returns
        -------
        matplotlib.figure.Figure
            ``savefig`` writes it; notebooks show it. pyplot is not used.

        Raises
        ------
        MissingExtraError
            matplotlib is not installed: ``pip install 'comal[plot]'``.
        """
        from comal.ml.plotting import figure_of  # noqa: PLC0415 - needs an extra

        return figure_of(self.masked().fetch(rows), bands or {}, classes or {})

    def masked(self) -> Self:
        """The same samples without `transform`, with images as masked arrays of NumPy.

        What has no value is masked by the file: nodata, masks and alpha bands, NaN.
        """
        found = copy(self)
        found.transform, found.masks = None, True
        return found

    def digest(self) -> str:
        """A text that tells this data set from others."""
        return f"{len(self)} {self!r}"

    @guarded
    def attempt(self, rows: Ints) -> Any:
        """What `read` gives; if it fails and errors are not raised, sample by sample."""
        try:
            return self.read(rows)
        except ComalError:
            if self.on_error == "raise" or len(rows) == 1:
                raise
            return None

    def complete(
        self,
        rows: Ints,
        raw: Any,
        out: Callable[[int], Mapping[str, Any]] | None = None,
        first: int = 0,
        threads: Executor | None = None,
    ) -> Iterator[Sample]:
        """The samples of some rows, without those that fail.

        `raw` is of these rows after `first` others; None reads them one by one. `out(n)` has arrays
        for the sample after the next `n`. With `threads`, the first one tells the shape of arrays,
        and all others are decoded at once.
        """

        def tried(place: int, arrays: Mapping[str, Any]) -> Sample | ComalError:
            try:
                if raw is None:
                    return self.decode(0, self.read(rows[place : place + 1]), arrays)
                return self.decode(first + place, raw, arrays)
            except ComalError as error:
                return error

        into = out or (lambda _: {})
        alone = len(rows) if threads is None else 1
        for place in range(len(rows))[:alone]:
            yield from self._sound(tried(place, into(0)))
        if threads is not None:
            for found in threads.map(tried, range(alone, len(rows)), map(into, count())):
                yield from self._sound(found)

    def _sound(self, found: Sample | ComalError) -> Iterator[Sample]:
        """The sample, unless it failed and errors are not raised."""
        if not isinstance(found, ComalError):
            yield found
            return
        if self.on_error == "raise":
            raise found
        if self.on_error == "warn":
            warn(f"a sample is skipped: {found}", UserWarning)
        elif callable(self.on_error):
            self.on_error(found)

    def _rows(self, rows: Sequence[Any] | Ints) -> Ints:
        count = len(self)
        try:
            found = np.fromiter(map(operator.index, rows), np.int64, len(rows))
        except (TypeError, OverflowError) as error:
            raise InvalidInputError(
                "samples are asked for by number", found=shown(repr(rows)), expected="integers"
            ) from error
        bad = (found < -count) | (found >= count)
        if bad.any():
            raise NotInContainerError(
                "no such sample",
                found=int(found[bad][0]),
                expected=f"{-count} to {count - 1}" if count else "no samples",
            )
        return np.where(found < 0, found + count, found)


@dataclass(frozen=True, slots=True)
class Raw:
    """What samples are decoded from, a list item a sample."""

    rows: list[int]
    ids: list[str]
    columns: dict[str, list[Any]]
    leaves: dict[str, list[Any]]
    """For each field the payload of each sample, or those of its series."""
    blobs: dict[int, memoryview]
    """Bytes by payload."""


@guarded_class
class ArchiveDataset(Dataset):
    """The samples of a TACO or Tortilla: fields are leaves, columns are metadata."""

    def __init__(
        self,
        index: Shared,
        fields: Mapping[str, Field],
        cache: LeafCache | None = None,
        version: str = "",
    ) -> None:
        self._shared, self.fields = index, dict(fields)
        self.cache, self._version = cache, version

    @property
    def index(self) -> Index:
        """Where the bytes are."""
        found: Index = self._shared.value
        return found

    @property
    def ids(self) -> Any:
        """The id of each sample, an Arrow array."""
        return self.index.ids

    @property
    def columns(self) -> Any:
        """The columns that were asked for, an Arrow table."""
        return self.index.columns

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={one.leaf!r}" for name, one in self.fields.items())
        return f"<Dataset: {counted(len(self), 'sample')}, {fields}>"

    def nbytes(self, rows: Ints) -> int:
        """Bytes of all leaves of some samples."""
        return self.index.nbytes(rows)

    def read(self, rows: Ints) -> Raw:
        """The bytes of all leaves of some samples, their ids and columns."""
        index = self.index
        chosen, columns = pa.array(rows, pa.int64()), index.columns
        return Raw(
            rows.tolist(),
            index.ids.take(chosen).to_pylist(),
            columns.take(chosen).to_pydict() if columns.num_columns else {},
            {name: leaves[rows].tolist() for name, leaves in index.leaves.items()},
            self._bytes(index.wanted(rows)),
        )

    def _bytes(self, payloads: Ints) -> dict[int, memoryview]:
        """The bytes of some payloads, from the cache if they are there."""
        index = self.index
        if self.cache is None:
            return index.read(payloads)
        keys = {one: key_of(self._version, index.payloads.place(one)) for one in payloads.tolist()}
        kept = self.cache.get(keys.values())
        found = {one: kept[key] for one, key in keys.items() if key in kept}
        missing = [one for one in keys if one not in found]
        if missing:
            read = index.read(np.array(missing, np.int64))
            self.cache.put({keys[one]: data for one, data in read.items()})
            found |= read
        return found

    def decode(self, place: int, raw: Raw, out: Mapping[str, Any]) -> Sample:
        """One sample: its fields, their extras, its columns and its id."""
        sample: Sample = {}
        masks = self.masks
        for name, field in self.fields.items():
            label, leaves = field.leaf or raw.ids[place], raw.leaves[name][place]
            try:
                if field.is_series:
                    blobs = [raw.blobs[leaf] for leaf in leaves if leaf >= 0]
                    keys: Sample = {}  # also of a sample without leaves
                    enter(keys, name, field, None, label, masks=masks)
                    every = [{**keys} for _ in blobs]
                    for found, data in zip(every, blobs, strict=True):
                        enter(found, name, field, data, label, masks=masks)
                    sample |= {key: stacked([one[key] for one in every]) for key in keys}
                else:
                    blob = raw.blobs.get(leaves)
                    enter(sample, name, field, blob, label, out.get(name), masks=masks)
            except ComalError as error:
                raise _named(error, self.index.place(raw.rows[place], name)) from error
            except Exception as error:  # a decoder of the caller may raise anything
                cause = f"{type(error).__name__}: {error}"
                broken = InvalidMetadataError("a leaf cannot be decoded", found=cause)
                raise _named(broken, self.index.place(raw.rows[place], name)) from error
        for name, values in raw.columns.items():
            sample[name] = values[place]
        sample["id"] = raw.ids[place]
        return sample

    def digest(self) -> str:
        """A text that tells this data set from others: by ids, columns, fields and sizes."""
        index = self.index
        found = hashlib.blake2b(digest_size=16)
        for name, field in self.fields.items():
            # The text of a function has its address, which is another one in each process.
            decode = getattr(field.decode, "__qualname__", str(field.decode))
            found.update(f"{name} {decode} {replace(field, decode='auto')!r}".encode())
        for table in (pa.table({"id": index.ids}), index.columns):
            for batch in table.to_batches():
                found.update(batch.serialize())
        for leaves in index.leaves.values():
            found.update(np.where(leaves < 0, -1, index.sizes[leaves]).tobytes())
        return found.hexdigest()

    def split(
        self,
        parts: Mapping[str, float],
        by: str | None = None,
        *,
        seed: int = 0,
        exact: bool = False,
        zoom: int = 8,
        gap: bool | int = False,
    ) -> dict[str, ArchiveDataset]:
        """Parts of the data set that have no sample in common.

        Which part a sample is in follows from `seed` and its id, or that of its group. So samples
        that are added move no others, and the order of samples does not matter.

        Parameters
        ----------
        parts
            Names and proportions, such as ``{"train": 0.8, "val": 0.2}``.
        by
            None: each sample by itself. A column: samples with the same value are in the same part,
            null is no value. ``"place"``, or a column of geometries: blocks, which are QUADBIN
            cells of `zoom`, by the centroid or the middle of the box of a sample. Columns are those
            that the data set was opened with; places are in ``stac:centroid``, ``istac:centroid``,
            ``istac:geometry`` or the columns of a raster's outline.
        seed
            Any integer from -2**63 to 2**63 - 1.
        exact
            Meet the proportions as well as groups allow. Samples that are added can then move
            groups. Without it, proportions are those of chance.
        zoom
            Zoom of blocks: at 8 they are 156 km wide at the equator.
        gap
            Leave out samples near a block of another part: those in cells that touch it, by an edge
            or a corner. The cells have this zoom; True is `zoom` + 3. Samples that are not wider
            than such a cell then touch none of another part.

        Raises
        ------
        InvalidInputError
            There is no such column, or no column with places; a proportion is not above 0.
        """
        found = rows_of_parts(
            *(self.ids, self.columns, parts, by), seed=seed, exact=exact, zoom=zoom, gap=gap
        )
        return {name: self.take(rows) for name, rows in found.items()}

    def splits(self, column: str) -> dict[Any, ArchiveDataset]:
        """The samples of each value of a column, such as ``"split"``; null is no value."""
        found = rows_by_value(column_of(self.columns, column))
        return {value: self.take(rows) for value, rows in found.items()}


def stacked(arrays: Sequence[Any]) -> Any:
    """Arrays of one shape as one with a first axis; otherwise the list."""
    shapes = {one.shape if type(one) is np.ndarray else None for one in arrays}
    if len(shapes) == 1 and shapes != {None}:
        return np.stack(arrays)
    return list(arrays)


def _named(error: ComalError, where: str) -> ComalError:
    """The same error, with the sample where it happened."""
    return type(error)(
        error.what,
        where=where if error.where is None else f"{where}, {error.where}",
        found=error.found,
        expected=error.expected,
        hint=error.hint,
        problems=error.problems,
        **error.fields,
    )


# -- opening ---------------------------------------------------------------------------------------


def dataset(
    source: Location | TacoDataset | TortillaFrame | Sequence[Location],
    fields: Mapping[str, str | Field] | None = None,
    *,
    columns: Sequence[str] = (),
    where: str | None = None,
    decode: Decoder = "auto",
    transform: Callable[[Sample], Any] | None = None,
    on_error: OnError = "raise",
    cache: Location | None = None,
    cache_bytes: int = 10 * GIB,
) -> ArchiveDataset:
    """The samples of an archive for training, without a copy of the data.

    Parameters
    ----------
    source
        Path or URL of a TACO, an index of TACOs or a Tortilla, several of them, or an open data
        set, which may be filtered.
    fields
        Names of what a sample holds, each with the ids of its leaf below the sample
        (``"s2.tif"``, ``"t1/image.tif"``, ``"*.tif"`` for a series) or a `Field` with more
        options. None: the sample itself as ``data`` where samples are files, else every leaf of
        the first sample that is directly below it, by its id.
    columns
        Metadata columns that a sample has too.
    where
        A condition in SQL over the columns, such as ``"split = 'train'"``.
    decode
        How leaves are decoded: see `Field`.
    transform
        Called with each sample; what it returns takes the sample's place.
    on_error
        What happens with a sample that cannot be read or decoded: ``"raise"``, ``"skip"`` it,
        ``"warn"`` and skip it, or skip it and call a function with the error.
    cache, cache_bytes
        A folder on a fast disk that keeps leaves of remote archives, for all processes of a host,
        and how large it may grow.

    Returns
    -------
    ArchiveDataset
        ``data[7]`` and ``data.fetch([3, 1, 4])`` read samples; ``data.loader(...)`` gives batches.

    Raises
    ------
    InvalidInputError
        No sample has a leaf of a field; there is no such column.
    NotThisFormatError
        The source is neither TACO nor Tortilla.
    """
    check_on_error(on_error)
    found = opened(source)
    if where is not None:
        found = filtered(found, where)
    for name in columns:
        if name not in found.columns:
            expected = ", ".join(shown(one) for one in found.columns[:40])
            raise InvalidInputError(f"no column {shown(name)}", expected=expected)
    if isinstance(found, TacoDataset):
        branches, table = _of_taco(found, columns)
        sources = [one.source for one in found.home.containers]
    else:
        branches, table = _of_tortilla(found, columns)
        sources = found.home.sources
    place = ", ".join(source.href for source in sources)
    known = fields_of(fields if fields is not None else _default(branches), decode)
    _check_names(known, columns)
    index = index_of(branches, table, known, place)
    kept = None if cache is None else LeafCache(cache, cache_bytes)
    seen = [info for source in sources for info in source.pins.seen()]
    # Without a version, what an earlier opening kept may be of another object.
    version = key_of(*seen, b"" if all(info.has_version for info in seen) else os.urandom(16))
    made = ArchiveDataset(Shared(index), known, kept, version)
    made.on_error, made.transform = on_error, transform
    return made


def check_on_error(chosen: Any) -> None:
    """Refuse what would leave out samples by mistake."""
    if not callable(chosen) and chosen not in ("raise", "skip", "warn"):
        expected = "'raise', 'skip', 'warn' or a function"
        raise InvalidInputError("unknown value of on_error", found=repr(chosen), expected=expected)


def opened(source: Any) -> Any:
    """The data set of a path, of several, or one that is open."""
    found = _opened(source) if isinstance(source, str | os.PathLike) else source
    if isinstance(found, TacoDataset | TortillaFrame):
        return found
    if found is not source or isinstance(found, Closing):
        raise NotThisFormatError(
            "no data set of samples",
            where=shown(source, 200),
            found=type(found).__name__,
            expected="a TACO or a Tortilla",
            hint="comal.ml.chips reads chips of a RaQuet and tiles of a Tapalcatl",
        )
    every = [opened(one) for one in source]
    if every and all(isinstance(one, TacoDataset) for one in every):
        return concat(every)
    return open_tortilla(list(source))


def _opened(source: Location) -> Any:
    if os.fspath(source).endswith(".tacozip"):
        with suppress(NotThisFormatError):
            return load(source)  # a round trip less than finding the format first
    return comal.open(source)


def filtered(found: Any, where: str) -> Any:
    """The samples of an open data set for which a condition holds."""
    if isinstance(found, TacoDataset):
        # The condition is the caller's own SQL; the engine accepts only one SELECT.
        return found.sql(f"SELECT * FROM data WHERE ({where}\n)")  # noqa: S608
    return found.where(where)


def _of_taco(found: TacoDataset, columns: Sequence[str]) -> tuple[list[Branch], Any]:
    levels, table = leaf_levels(found, _REQUESTS, columns)
    return [
        Branch(level.ids, level.parent, ~level.folders, level.payloads) for level in levels
    ], table


def _of_tortilla(found: TortillaFrame, columns: Sequence[str]) -> tuple[list[Branch], Any]:
    branches = []
    for level in found.levels():
        spans = found.home.spans(level.table, np.arange(len(level)))
        branches.append(Branch(level.ids, level.parents, ~level.folders, spans))
    return branches, found.to_arrow().select(list(columns))


def _check_names(fields: Mapping[str, Field], columns: Sequence[str]) -> None:
    """Refuse entries of samples that would take the place of others."""
    entries = [f"{name}{end}" for name, field in fields.items() for end in field.endings]
    for name in entries:
        if name == "id" or name in columns or entries.count(name) > 1:
            raise InvalidInputError(
                f"two entries of a sample are called {shown(name)}",
                expected="fields whose names differ from columns, extras and 'id'",
            )


def _default(branches: Sequence[Branch]) -> dict[str, str]:
    if len(branches) == 1 or not len(branches[0].ids):
        return {"data": ""}
    below = branches[1]
    mine = (below.parents == 0) & below.leaves
    return {name: name for name in below.ids.filter(pa.array(mine)).to_pylist()}
