"""Statistics of the pixels of a data set, by field and band, for normalising and weighting."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from comal import strictjson
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    shown,
    shown_path,
    system_errors,
    translated,
)
from comal.limits import MIB, Limits
from comal.ml.decoding import Masked
from comal.ml.order import Order
from comal.progress import Progress, telling
from comal.public import check_fields, guarded, guarded_class
from comal.raster.statistics import BandSums, is_counted, moments, ordered, quantiles, sums_of
from comal.storage.targets import magic_kind, new_file, target_of

if TYPE_CHECKING:
    from comal.ml.archives import Dataset

Location = str | os.PathLike[str]

_KIND = magic_kind("a file of statistics", b'{"statistics": 1,')
_LIMITS = Limits(json_bytes=1024 * MIB, json_digits=100)
_BROKEN: Mapping[type[BaseException], type[ComalError]] = dict.fromkeys(
    (LookupError, AttributeError, OverflowError, TypeError, ValueError), InvalidMetadataError
)
_CHANGED = "statistics that somebody changed"
_EVERY = 30.0
"""Seconds between two writes of what is known so far."""
_BATCH_BYTES, _BATCH, _AHEAD_BYTES = 4 * MIB, 32, 64 * MIB
_AT_ONCE, _PIECES = 1 << 19, 64
_KEPT, _KEPT_LEAST = 1 << 20, 1 << 13
"""Pixels of wide types that are kept for percentiles: of all bands together, of each at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """Which statistics are computed of which samples.

    Parameters
    ----------
    classes
        Fields of 8 or 16 bits whose values are classes: pixels are counted by value.
    sample, seed
        Number of samples drawn at random; None for all.
    by
        A column of the samples: one result more for each of its values.
    percentiles
        From 0 to 100.
    save
        A JSON file for the result. Every half minute it gets what is known so far, and the same
        call continues there.
    workers
        Threads that decode; the result does not depend on them.
    progress, quiet
        Who is told; None for a bar on a terminal, unless `quiet`.
    """

    classes: Sequence[str] = ()
    sample: int | None = None
    seed: int = 0
    by: str | None = None
    percentiles: Sequence[float] = (1.0, 2.0, 5.0, 25.0, 50.0, 75.0, 95.0, 98.0, 99.0)
    save: str | os.PathLike[str] | None = None
    workers: int = 2
    progress: Progress | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.sample is not None and self.sample < 1:
            raise InvalidInputError("statistics of no samples", found=self.sample, expected=">= 1")
        if not all(0 <= q <= 100 for q in self.percentiles):
            raise InvalidInputError("percentiles are from 0 to 100", found=list(self.percentiles))


@dataclass(frozen=True, slots=True, eq=False)
class FieldStatistics:
    """Statistics of one field: arrays of one number a band, NaN where no pixel is valid."""

    count: Any
    """Valid pixels."""
    mean: Any
    std: Any
    """Standard deviation of the population."""
    min: Any
    max: Any
    percentiles: Mapping[float, Any]
    """An array for each percentile."""
    exact: bool
    """Whether percentiles come from all pixels: those of types wider than 16 bits come from some
    pixels at regular distances where there are many."""
    classes: Mapping[int, Any]
    """For a field of classes an array for each value: the number of its pixels."""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> FieldStatistics:
        """From what `Statistics.to_dict` gives; raises as `Statistics.of`."""
        with translated(_BROKEN, _CHANGED):
            numbers = ("mean", "std", "min", "max")
            found = {name: np.array(plain[name], np.float64) for name in numbers}
            percentiles = {
                float(q): np.array(v, np.float64) for q, v in plain["percentiles"].items()
            }
            classes = {int(value): np.array(v) for value, v in plain["classes"].items()}
            count = np.array(plain["count"], np.int64)
            exact = plain["exact"]
        return cls(count, **found, percentiles=percentiles, exact=exact, classes=classes)


@guarded_class
@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """Statistics of samples: ``found["image"].mean`` is an array of one number a band."""

    samples: int
    fields: Mapping[str, FieldStatistics]
    by: Mapping[Any, Statistics] = field(default_factory=dict)
    """The same for each value of a column, if one was asked for."""

    def __getitem__(self, name: str) -> FieldStatistics:
        return self.fields[name]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts, lists and dicts, as JSON can hold them; None stands for NaN."""
        groups = [[value, one.to_dict()] for value, one in self.by.items()]
        return {"samples": self.samples, "fields": _plain(self.fields), "by": groups}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Statistics:
        """From what `to_dict` gives; raises `InvalidMetadataError` for anything else."""
        with translated(_BROKEN, _CHANGED):
            known = {name: FieldStatistics.of(one) for name, one in plain["fields"].items()}
            return cls(plain["samples"], known, {value: cls.of(one) for value, one in plain["by"]})

    def save(self, path: Location, *, overwrite: bool = False) -> None:
        """Write a JSON file; `overwrite` replaces older statistics, and nothing else.

        Raises
        ------
        ConflictError
            The file exists.
        """
        _write(path, {"found": self.to_dict()}, overwrite=overwrite)

    @classmethod
    @guarded
    def load(cls, path: Location) -> Statistics:
        """From a file; raises `InvalidMetadataError` if it is no other or not finished."""
        return _known(_read(path, "found"), path)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return [None if one != one else one for one in value.tolist()]  # noqa: PLR0124 - NaN
    if isinstance(value, list):
        return list(map(_plain, value))
    return value


def _read(path: Location, *keys: str) -> dict[str, Any]:
    if not os.fspath(path):
        raise InvalidInputError("no path of statistics", found=repr(path), expected="a file")
    with system_errors("statistics cannot be read", path, writing=False):
        data = Path(path).read_bytes()
    document = strictjson.loads(data, os.fspath(path), _LIMITS)
    if not document.keys() >= {"statistics", *keys}:
        what = "not a file of statistics, or one that is not finished"
        raise InvalidMetadataError(what, where=shown_path(path))
    return document


def _known(document: dict[str, Any], path: Location) -> Statistics:
    try:
        return Statistics.of(document["found"])
    except InvalidMetadataError as error:
        where, found = shown_path(path), error.found
        raise InvalidMetadataError(error.what, where=where, found=found) from error


def _write(path: Location, document: dict[str, Any], *, overwrite: bool = True) -> None:
    with new_file(path, overwrite, _KIND) as file:
        file.write(strictjson.dumps({"statistics": 1, **document}, indent=None))


@dataclass(slots=True)
class _Band(BandSums):
    """The pixels of one band so far."""

    step: int = 1
    """Distance of the valid pixels that are kept for percentiles; a power of 3, as powers of 2
    would meet the same columns in every image."""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> _Band:
        band = cls(**plain)
        kind = np.dtype(band.dtype)
        if band.values is not None:
            band.values = np.array(band.values, f"u{kind.itemsize}")
            band.counts = np.array(band.counts, np.int64)
        band.sample = [np.array(part, kind) for part in band.sample]
        return band

    def take(self, values: Any, most: int) -> None:
        """Add valid pixels, shape (n,), and keep at most `most` of all for percentiles."""
        for start in range(0, len(values), _AT_ONCE):
            part = values[None, start : start + _AT_ONCE]
            self.add(sums_of(part, None, step=self.step, x=self.count, y=self.step // 2))
            if len(self.sample) > _PIECES or sum(map(len, self.sample)) > most:
                joined = np.concatenate(self.sample)
                while len(joined) > most:
                    joined, self.step = joined[1::3].copy(), self.step * 3
                self.sample = [joined]


class _Sums:
    """The pixels of all samples so far, by group and field; the group () is of all."""

    def __init__(self, classes: Sequence[str], by: str | None) -> None:
        self._classes, self._by = classes, by
        self._samples: Counter[tuple[Any, ...]] = Counter()
        self._bands: dict[tuple[tuple[Any, ...], str], list[_Band]] = {}
        self._kinds: dict[str, list[str]] = {}

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        bands = [[list(group), name, _plain(known)] for (group, name), known in self._bands.items()]
        samples = [[list(group), number] for group, number in self._samples.items()]
        return {"samples": samples, "bands": bands, "kinds": self._kinds}

    def load(self, plain: Mapping[str, Any]) -> None:
        """Continue where `to_dict` was called."""
        self._kinds = plain["kinds"]
        self._samples.update({tuple(group): number for group, number in plain["samples"]})
        for group, name, known in plain["bands"]:
            self._bands[tuple(group), name] = list(map(_Band.of, known))

    def result(self, wanted: Sequence[float]) -> Statistics:
        """Statistics of all samples and of each group."""
        found: dict[Any, dict[str, FieldStatistics]] = {group: {} for group in self._samples}
        for (group, name), bands in self._bands.items():
            found[group][name] = _of_bands(bands, wanted, classes=name in self._classes)
        whole = Statistics(self._samples[()], found.pop((), {}))
        by = {group[0]: Statistics(self._samples[group], known) for group, known in found.items()}
        return replace(whole, by=by)

    def add(self, batch: Mapping[str, Any]) -> None:
        """Add the samples of a batch, which has a list or an array a field."""
        for name in {*self._classes, self._by} - {None, *batch}:
            known = ", ".join(map(shown, batch))
            raise InvalidInputError(f"samples have no {shown(name)}", expected=known)
        parts: dict[Any, list[list[Any]]] = defaultdict(list)
        for values in zip(*batch.values(), strict=True):
            sample = dict(zip(batch, values, strict=True))
            groups = [()] if self._by is None else [(), (_value(sample[self._by]),)]
            self._samples.update(groups)
            for name, value in sample.items():
                for one in value if isinstance(value, list) else [value]:
                    if isinstance(one, Masked | np.ndarray):
                        planes = self._planes(name, one, sample)
                        for group in groups:
                            parts[group, name].append(planes)
        for key, found in parts.items():
            new = [_Band(plane.dtype.name) for plane in found[0]]
            bands = self._bands.setdefault(key, new)
            most = max(_KEPT // (len(bands) * len(self._samples)), _KEPT_LEAST)
            for band, *pieces in zip(bands, *found, strict=True):
                band.take(np.concatenate(pieces), most)

    def _planes(self, name: str, array: Any, sample: Mapping[str, Any]) -> list[Any]:
        """The valid pixels of each band."""
        planes = (array if isinstance(array, Masked) else Masked(array)).planes()
        kinds = [plane.dtype.name for plane in planes]
        if name in self._classes and not (planes[0].dtype.kind in "iu" and is_counted(kinds[0])):
            what, expected = f"field {shown(name)} has no classes", "integers of 8 or 16 bits"
            raise InvalidInputError(what, found=kinds[0], expected=expected)
        known = self._kinds.setdefault(name, kinds)
        if kinds != known:
            raise InvalidInputError(
                f"samples differ in {shown(name)}",
                where=f"sample {shown(sample.get('id'), 120)}",
                found=f"{len(kinds)} bands of {kinds[0]}",
                expected=f"{len(known)} bands of {known[0]}",
            )
        return planes


def _value(value: Any) -> Any:
    """The value of a column, as JSON can hold it."""
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, str | int | None):
        what = "a column that tells samples apart has neither texts nor integers"
        raise InvalidInputError(what, found=shown(repr(value)))
    return value


def _of_bands(bands: Sequence[_Band], wanted: Sequence[float], *, classes: bool) -> FieldStatistics:
    rows = [
        (one.count, *moments(one), one.low, one.high) if one.count else (0, *[np.nan] * 4)
        for one in bands
    ]
    tables = list(map(ordered, bands))
    q, none = np.array(wanted) / 100, np.full(len(wanted), np.nan)
    cuts = [quantiles(v.astype(np.float64), n, q) if len(v) else none for v, n in tables]
    counts: dict[int, Any] = defaultdict(lambda: np.zeros(len(bands), np.int64))
    for band, table in enumerate(tables if classes else ()):
        for value, number in zip(*map(np.ndarray.tolist, table), strict=True):
            counts[value][band] = number
    count, *others = zip(*rows, strict=True)
    mean, std, low, high = (np.array(one, np.float64) for one in others)
    percentiles = dict(zip(wanted, np.transpose(cuts), strict=True))
    exact = all(band.step == 1 for band in bands)
    return FieldStatistics(
        np.array(count), mean, std, low, high, percentiles, exact, dict(sorted(counts.items()))
    )


def statistics_of(data: Dataset, how: StatisticsOptions) -> Statistics:
    """Statistics of a data set: see `Dataset.stats`."""
    whole = data.masked()
    if how.sample is not None and how.sample < len(data):
        rows = Order(len(data), True, how.seed).at(np.arange(how.sample))
        whole = whole.take(np.sort(rows))
    sums = _Sums(how.classes, how.by)
    size = whole.nbytes(np.arange(min(len(whole), _BATCH)))
    batch = min(_BATCH, max(1, _BATCH_BYTES * _BATCH // max(1, size)))
    ahead = {"workers": how.workers, "ahead_bytes": _AHEAD_BYTES}
    loader = whole.loader(batch, together="list", **ahead)
    percentiles = list(map(float, how.percentiles))
    drawn = None if how.sample is None else [how.sample, how.seed]
    about = [data.digest(), drawn, sorted(how.classes), how.by, percentiles]
    if how.save is not None and target_of(how.save).exists():
        known = _read(how.save)
        if known.get("about") != about:
            raise ConflictError(
                "the file has statistics of another data set, or other ones",
                where=shown_path(how.save),
                hint="choose another name, or remove the file",
            )
        if "found" in known:
            return _known(known, how.save)
        with translated(_BROKEN, _CHANGED, where=shown_path(how.save)):
            loader.load_state_dict(known["loader"])
            sums.load(known["sums"])
    written = time.monotonic()
    with telling(how.progress, quiet=how.quiet) as told:
        for one in loader:
            sums.add(one)
            state = loader.state_dict()
            told(state["done"], len(whole), "reading samples")
            is_late = time.monotonic() - written > _EVERY and state["done"] < len(whole)
            if how.save is not None and is_late:
                _write(how.save, {"about": about, "loader": state, "sums": sums.to_dict()})
                written = time.monotonic()
    found = sums.result(percentiles)
    if how.save is not None:
        _write(how.save, {"about": about, "found": found.to_dict()})
    return found
