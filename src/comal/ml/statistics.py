"""Statistics of the pixels of a data set, by field and band, for normalising and weighting."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from comal import strictjson
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    counted,
    shown,
    shown_path,
    system_errors,
    translated,
)
from comal.limits import MIB, Limits
from comal.ml.decoding import images_of
from comal.ml.order import Order
from comal.parallel import Workers, results
from comal.progress import Progress, telling
from comal.public import check_fields, guarded, guarded_class, warn
from comal.raster.statistics import ValueSums, moments, ordered, quantiles
from comal.storage.location import local_path
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
_BATCH_BYTES, _BATCH, _PART = 4 * MIB, 32, 8
"""Bytes and samples that are decoded together, and how many times as many are read together."""
_CLASSES = 1 << 16
_KEPT, _KEPT_LEAST = 1 << 20, 1 << 13
"""Pixels of wide types that are kept for percentiles: of all bands together, of each at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsOptions:
    """Which statistics are computed of which samples.

    Parameters
    ----------
    classes
        Fields of integers that are classes, at most 65 536: pixels are counted by value.
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
        Threads that read and decode; the result does not depend on them.
    executor
        Does the work instead: any `concurrent.futures.Executor`, or a number of processes.
        Functions of fields and `on_error` are called there.
    progress
        Who is told; None for a bar on a terminal.
    """

    classes: Sequence[str] = ()
    sample: int | None = None
    seed: int = 0
    by: str | None = None
    percentiles: Sequence[float] = (1.0, 2.0, 5.0, 25.0, 50.0, 75.0, 95.0, 98.0, 99.0)
    save: str | os.PathLike[str] | None = None
    workers: int = 2
    executor: Workers = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.sample is not None and self.sample < 1:
            raise InvalidInputError("statistics of no samples", found=self.sample, expected=">= 1")
        if not all(0 <= q <= 100 for q in self.percentiles):
            raise InvalidInputError("percentiles are from 0 to 100", found=list(self.percentiles))


@dataclass(frozen=True, slots=True, eq=False)
class FieldStatistics:
    """Statistics of one field: arrays of one number a band.

    NaN where no pixel is valid, and for means and deviations whose sums are beyond all floats.
    """

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
    def of(cls, plain: Mapping[str, Any], where: str | None = None) -> Statistics:
        """From what `to_dict` gives; raises `InvalidMetadataError` for anything else.

        `where` is the name of its file, for the error.
        """
        with translated(_BROKEN, _CHANGED, where=where):
            known = {name: _field_of(one) for name, one in plain["fields"].items()}
            by = {value: cls.of(one, where) for value, one in plain["by"]}
            return cls(plain["samples"], known, by)

    @classmethod
    @guarded
    def load(cls, path: Location) -> Statistics:
        """From a file that `save` made; raises `InvalidMetadataError` if it is not finished."""
        document, where = _read(path), shown_path(path)
        if "found" not in document:
            raise InvalidMetadataError("statistics that are not finished", where=where)
        return cls.of(document["found"], where)


# -- files -----------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """A value as JSON can hold it; None stands for NaN, and for a sum beyond all floats."""
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return [one if math.isfinite(one) else None for one in value.tolist()]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return list(map(_plain, value)) if isinstance(value, list) else value


def _field_of(plain: Mapping[str, Any]) -> FieldStatistics:
    numbers = ("mean", "std", "min", "max")
    found: Any = {name: np.array(plain[name], np.float64) for name in numbers}
    for name, key in (("percentiles", float), ("classes", int)):
        found[name] = {key(one): np.array(v, key) for one, v in plain[name].items()}
    return FieldStatistics(count=np.array(plain["count"], int), exact=plain["exact"], **found)


def _read(path: Location) -> dict[str, Any]:
    if not os.fspath(path):
        raise InvalidInputError("no path of statistics", found=repr(path), expected="a file")
    with system_errors("statistics cannot be read", path, writing=False):
        data = Path(path).read_bytes()
    document = strictjson.loads(data, os.fspath(path), _LIMITS)
    if "statistics" not in document:
        raise InvalidMetadataError("not a file of statistics", where=shown_path(path))
    return document


def _write(path: Location, **document: Any) -> None:
    with new_file(local_path(path, "the target"), True, _KIND) as file:
        file.write(strictjson.dumps({"statistics": 1, **document}, indent=None))


# -- sums ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """All samples so far, or those with one value of a column."""

    samples: int = 0
    fields: dict[str, list[ValueSums]] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    """The first sample that has a field, for messages."""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> _Group:
        known = {name: list(map(ValueSums.of, bands)) for name, bands in plain["fields"].items()}
        return cls(plain["samples"], known)


Groups = dict[tuple[Any, ...], _Group]
"""By the value of a column, as a tuple; the group () is of all samples."""


def sum_samples(batch: int, how: StatisticsOptions, data: Dataset) -> Groups:
    """The groups of some samples, which are read together and decoded `batch` at a time."""
    groups: Groups = {(): _Group()}
    rows = np.arange(len(data))
    raw = data.attempt(rows)
    for first in range(0, len(data), batch):
        _add(groups, data.complete(rows[first : first + batch], raw, first=first), how)
    return groups


def _add(groups: Groups, samples: Iterable[Any], how: StatisticsOptions) -> None:
    """Add some samples."""
    parts: dict[Any, list[list[Any]]] = defaultdict(list)
    for sample in samples:
        for name in {*how.classes, how.by} - {None, *sample}:
            expected = ", ".join(map(shown, sample))
            raise InvalidInputError(f"samples have no {shown(name)}", expected=expected)
        mine: list[Any] = [()] if how.by is None else [(), (_value(sample[how.by]),)]
        for group in mine:
            groups.setdefault(group, _Group()).samples += 1
        for name, images in images_of(sample):
            for planes in map(_planes, images):
                kinds, who = [plane.dtype.name for plane in planes], shown(sample.get("id"), 120)
                known = groups[()].fields.setdefault(name, list(map(ValueSums, kinds)))
                groups[()].first.setdefault(name, who)
                _check_kinds(who, name, kinds, [band.dtype for band in known], how)
                for group in mine:
                    parts[group, name].append(planes)
    for (group, name), found in parts.items():
        empty = [ValueSums(plane.dtype.name) for plane in found[0]]
        bands = groups[group].fields.setdefault(name, empty)
        for band, *pieces in zip(bands, *found, strict=True):
            most = _most(bands, groups)
            band.take(np.concatenate(pieces), most, all_counted=name in how.classes)


def _merge(groups: Groups, others: Groups, how: StatisticsOptions) -> None:
    """Add the groups of further samples."""
    for value, found in others.items():
        group = groups.setdefault(value, _Group())
        group.samples += found.samples
        for name, bands in found.fields.items():
            kinds = [band.dtype for band in bands]
            known = group.fields.setdefault(name, list(map(ValueSums, kinds)))
            who = found.first.get(name, "")
            _check_kinds(who, name, kinds, [band.dtype for band in known], how)
            for band, other in zip(known, bands, strict=True):
                band.join(other, _most(bands, groups))
                different = 0 if band.values is None else len(band.values)
                if name in how.classes and different > _CLASSES:
                    what = f"field {shown(name)} has too many values for classes"
                    raise InvalidInputError(what, found=different, expected=f"<= {_CLASSES}")


def _most(bands: Sequence[ValueSums], groups: Groups) -> int:
    """Pixels that a band keeps for percentiles."""
    return max(_KEPT // (len(bands) * len(groups)), _KEPT_LEAST)


def _planes(image: Any) -> list[Any]:
    """The pixels of each band that have a value, (n,)."""
    image = image.view(np.uint8) if image.dtype == np.bool_ else image
    planes = np.moveaxis(image, -3, 0) if image.ndim > 2 else [image]
    return [plane.compressed() for plane in planes]


def _value(value: Any) -> Any:
    """The value of a column, as JSON can hold it."""
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, str | int | None):
        what = "a column that tells samples apart has neither texts nor integers"
        raise InvalidInputError(what, found=shown(repr(value)))
    return value


def _check_kinds(
    who: str, name: str, kinds: list[str], known: list[str], how: StatisticsOptions
) -> None:
    """Refuse an image of sample `who` whose bands differ from those before, or are no classes."""
    if kinds != known:
        raise InvalidInputError(
            f"samples differ in {shown(name)}",
            where=f"sample {who}",
            found=f"{counted(len(kinds), 'band')} of {kinds[0]}",
            expected=f"{counted(len(known), 'band')} of {known[0]}",
            hint="choose samples that are alike by where=, or bands and a type by a field",
        )
    if name in how.classes and np.dtype(kinds[0]).kind not in "iu":
        what = f"field {shown(name)} has no classes"
        raise InvalidInputError(what, found=kinds[0], expected="integers")
    if np.dtype(kinds[0]).kind == "c":
        what, hint = f"no statistics of complex numbers in {shown(name)}", "decode to real ones"
        raise InvalidInputError(what, found=kinds[0], hint=hint)


def _result(group: _Group, how: StatisticsOptions) -> Statistics:
    known = {name: _of_bands(bands, how, name) for name, bands in group.fields.items()}
    return Statistics(group.samples, known)


def _of_bands(bands: Sequence[ValueSums], how: StatisticsOptions, name: str) -> FieldStatistics:
    numbers = np.full((4, len(bands)), np.nan)
    cuts = np.full((len(how.percentiles), len(bands)), np.nan)
    classes: dict[int, Any] = {}
    for at, band in enumerate(bands):
        values, sizes = ordered(band)
        if band.count:
            numbers[:, at] = *moments(band), band.low, band.high
            q = np.array(how.percentiles) / 100
            cuts[:, at] = quantiles(values.astype(np.float64), sizes, q)
        if name in how.classes:
            for value, size in zip(values.tolist(), sizes.tolist(), strict=True):
                classes.setdefault(value, np.zeros(len(bands), np.int64))[at] = size
    numbers[~np.isfinite(numbers)] = np.nan  # of sums beyond all floats
    mean, std, low, high = numbers
    count, exact = np.array([band.count for band in bands]), all(band.step == 1 for band in bands)
    percentiles = dict(zip(map(float, how.percentiles), cuts, strict=True))
    classes = dict(sorted(classes.items()))
    return FieldStatistics(count, mean, std, low, high, percentiles, exact, classes)


def statistics_of(data: Dataset, how: StatisticsOptions) -> Statistics:
    """Statistics of a data set: see `Dataset.stats`."""
    whole, drawn = data.masked(), None if how.sample is None else [how.sample, how.seed]
    if how.sample is not None and how.sample < len(data):
        rows = Order(len(data), shuffle=True, seed=how.seed).at(np.arange(how.sample))
        whole = whole.take(np.sort(rows))
    size = whole.nbytes(np.arange(min(len(whole), _BATCH)))
    batch = min(_BATCH, max(1, _BATCH_BYTES * _BATCH // max(1, size)))
    step = batch * _PART
    starts = range(0, len(whole), step)
    about = [data.digest(), drawn, sorted(how.classes), how.by, list(map(float, how.percentiles))]
    groups: Groups = {(): _Group()}
    if how.save is not None and target_of(local_path(how.save)).exists():
        known, where = _read(how.save), shown_path(how.save)
        if known.get("about") != about:
            raise ConflictError(
                "the file has statistics of another data set, or other ones",
                where=where,
                hint="choose another name, or remove the file",
            )
        if "found" in known:
            return Statistics.of(known["found"], where)
        with translated(_BROKEN, _CHANGED, where=where):
            starts = starts[starts.index(known["done"]) :]
            groups = {tuple(value): _Group.of(one) for value, one in known["groups"]}
    written = time.monotonic()
    task = partial(sum_samples, batch, replace(how, save=None, executor=None, progress=None))
    parts = (whole.part(np.arange(n, min(n + step, len(whole)))) for n in starts)
    with (
        telling(how.progress, quiet=False) as told,
        closing(results(how.executor, task, parts, threads=max(1, how.workers))) as made,
    ):
        for start, more in zip(starts, made, strict=True):
            _merge(groups, more, how)
            done = min(start + step, len(whole))
            told(done, len(whole), "reading samples")
            is_late = time.monotonic() - written > _EVERY and done < len(whole)
            if how.save is not None and is_late:
                so_far = [[list(value), _plain(group)] for value, group in groups.items()]
                _write(how.save, about=about, done=done, groups=so_far)
                written = time.monotonic()
    if failed := len(whole) - groups[()].samples:
        warn(f"{counted(failed, 'sample')} of the data set failed and were left out")
    (_, every), *others = ((value, _result(group, how)) for value, group in groups.items())
    found = replace(every, by={value[0]: one for value, one in others})
    if how.save is not None:
        _write(how.save, about=about, found=found.to_dict())
    return found
