"""Extensions whose values the author states: labels, publications, splits, scaling, bands."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, ClassVar, TypeVar, get_args, get_type_hints

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, shown, translated
from comal.taco.extensions.base import (
    FAULTS,
    StatedColumns,
    StatedFields,
    declared,
    list_of,
    require,
)

T = TypeVar("T")

_KINDS = {str: pa.string(), int: pa.int32(), float: pa.float64()}


def _record_of(kind: type[T], value: Any) -> T:
    """A record of dataclass `kind` from a record, a mapping, or an object with ``model_dump``."""
    if isinstance(value, kind):
        return value
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        value = dump()
    if not isinstance(value, Mapping):
        raise InvalidInputError(
            f"not a {kind.__name__}", found=type(value).__name__, expected="a record or a dict"
        )
    fields = {one.name: one for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(value) - set(fields))
    missing = [
        name
        for name, one in fields.items()
        if one.default is dataclasses.MISSING and value.get(name) is None
    ]
    if unknown or missing:
        raise InvalidInputError(
            f"invalid {kind.__name__}",
            found=", ".join(map(str, unknown)) or None,
            expected=", ".join(missing or fields),
        )
    return kind(**value)


def _records_of(kind: type[T], values: Iterable[Any]) -> list[T]:
    if isinstance(values, Mapping | str | bytes) or not isinstance(values, Iterable):
        raise InvalidInputError(f"not a list of {kind.__name__}", found=type(values).__name__)
    return [_record_of(kind, value) for value in values]


def _struct_of(kind: type) -> pa.DataType:
    """The Arrow type of a record; a union counts as its first type."""
    hints = get_type_hints(kind)
    return pa.struct(
        [(name, _KINDS[next(iter(get_args(hint)), hint)]) for name, hint in hints.items()]
    )


def _dumped(values: Iterable[Any] | None) -> list[dict[str, Any]]:
    return [dataclasses.asdict(value) for value in values or ()]


# -- labels ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LabelClass:
    """One class."""

    name: str
    """Readable name: ``Forest``."""
    category: str | int
    """Value in the labels: 3 or ``FOR``; written as text."""
    description: str | None = None


@dataclass
class Labels(StatedFields):
    """The classes of a dataset, as `LabelClass` or dicts of the same keys.

    Raises
    ------
    InvalidInputError
        On creation: a class without name or category, unknown keys, or two classes with the same
        category.
    """

    _columns: ClassVar[pa.Schema] = declared(
        ("labels:classes", list_of(_struct_of(LabelClass)), "Classes: name, category, description"),
        ("labels:description", pa.string(), "How the labels were made"),
        ("labels:num_classes", pa.int32(), "Number of classes"),
    )

    label_classes: Sequence[Any] | None = None
    label_description: str | None = None

    def __post_init__(self) -> None:
        require(self, "label_classes")
        classes = _records_of(LabelClass, self.label_classes or [])
        categories = [str(one.category) for one in classes]
        twice = sorted({one for one in categories if categories.count(one) > 1})
        if twice:
            raise InvalidInputError("two classes have the same category", found=", ".join(twice))
        self.label_classes = [
            LabelClass(one.name, text, one.description)
            for one, text in zip(classes, categories, strict=True)
        ]

    def _values(self) -> Sequence[Any]:
        classes = _dumped(self.label_classes)
        return classes, self.label_description, len(classes)


# -- publications ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publication:
    """One publication."""

    doi: str
    """Such as ``10.5069/G9028PQB``."""
    citation: str
    summary: str | None = None


@dataclass
class Publications(StatedFields):
    """Publications about a dataset, as `Publication` or dicts of the same keys.

    Raises
    ------
    InvalidInputError
        On creation: an entry without doi or citation, or with unknown keys.
    """

    _columns: ClassVar[pa.Schema] = declared(
        (
            "publications",
            list_of(_struct_of(Publication)),
            "Publications about the dataset: doi, citation, summary",
        )
    )

    publications: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        require(self, "publications")
        self.publications = _records_of(Publication, self.publications or [])

    def _values(self) -> Sequence[Any]:
        return (_dumped(self.publications),)


# -- split -----------------------------------------------------------------------------------------


SPLITS = ("train", "test", "validation")


@dataclass
class Split(StatedColumns):
    """The part of the dataset: ``train``, ``test`` or ``validation``.

    Raises
    ------
    InvalidInputError
        On creation: another value.
    """

    _columns: ClassVar[pa.Schema] = declared(
        ("split", pa.string(), "Part of the dataset: train, test or validation")
    )

    split: str | None = None

    def __post_init__(self) -> None:
        _check_choice(self, "split", "split", SPLITS)

    def _values(self) -> Sequence[Any]:
        return (self.split,)


# -- split strategy --------------------------------------------------------------------------------


STRATEGIES = ("random", "stratified", "manual", "other", "none", "unknown")


@dataclass
class SplitStrategy(StatedFields):
    """How train, test and validation were chosen; one of `STRATEGIES`.

    Raises
    ------
    InvalidInputError
        On creation: another value.
    """

    _columns: ClassVar[pa.Schema] = declared(
        ("split:strategy", pa.string(), f"How the split was made: {', '.join(STRATEGIES)}")
    )

    strategy: str | None = None

    def __post_init__(self) -> None:
        _check_choice(self, "strategy", "split strategy", STRATEGIES)

    def _values(self) -> Sequence[Any]:
        return (self.strategy,)


def _check_choice(extension: Any, name: str, what: str, known: Sequence[str]) -> None:
    require(extension, name)
    value = getattr(extension, name)
    if value not in known and not extension.schema_only:
        raise InvalidInputError(f"unknown {what}", found=shown(value), expected=", ".join(known))


# -- scaling ---------------------------------------------------------------------------------------


Number = float | Sequence[float]
_SIDES = "four integers: top, right, bottom, left"


@dataclass
class Scaling(StatedColumns):
    """Value = pixel * scale_factor + scale_offset, as in the CF conventions.

    Parameters
    ----------
    scale_factor, scale_offset
        A number, or one per band. If either is a list, both columns are lists and a single number
        applies to all bands. A factor is never 0.
    padding
        Pixels added around the image: top, right, bottom, left.

    Raises
    ------
    InvalidInputError
        On creation: a factor of 0, numbers that are not finite, lists of different length,
        padding that is not four integers.
    """

    scale_factor: Number | None = None
    scale_offset: Number | None = None
    padding: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name in ("scale_factor", "scale_offset"):
            value = getattr(self, name)
            numbers = _numbers(value)
            if not np.isfinite(numbers).all() or (name == "scale_factor" and 0 in numbers):
                raise InvalidInputError(
                    f"invalid {name}",
                    found=shown(value),
                    expected="numbers that are finite as float32, scale_factor not 0",
                )
        both = (self.scale_factor, self.scale_offset)
        if len({len(_numbers(part)) for part in both if _is_list(part)}) > 1:
            raise InvalidInputError("scale_factor and scale_offset differ in length")
        with translated(FAULTS, "invalid padding", found=shown(self.padding), expected=_SIDES):
            wrong = self.padding is not None and (
                len(self.padding) != 4 or any(int(part) != part for part in self.padding)
            )
        if wrong:
            raise InvalidInputError("invalid padding", found=shown(self.padding), expected=_SIDES)

    def get_schema(self) -> pa.Schema:
        """The three columns ``scaling:*``: numbers, or lists if a parameter is a list."""
        kind = list_of(pa.float32()) if self._has_lists() else pa.float32()
        text = "value = pixel * scale_factor + scale_offset"
        padding = "Pixels added around the image: top, right, bottom, left"
        return declared(
            ("scaling:scale_factor", kind, text),
            ("scaling:scale_offset", kind, text),
            ("scaling:padding", list_of(pa.int32()), padding),
        )

    def _values(self) -> Sequence[Any]:
        """Factor and offset, spread to the same number of bands, and the padding."""
        both = (self.scale_factor, self.scale_offset)
        bands = max(len(_numbers(part)) for part in both) if self._has_lists() else 0
        padding = None if self.padding is None else list(map(int, self.padding))
        return *(_spread(part, bands) for part in both), padding

    def _has_lists(self) -> bool:
        return _is_list(self.scale_factor) or _is_list(self.scale_offset)


def _is_list(value: Any) -> bool:
    return np.ndim(value) > 0


def _numbers(value: Number | None) -> list[float]:
    """The numbers as they are stored."""
    if value is None:
        return []
    what = "neither a number nor one per band"
    with translated(FAULTS, what, found=shown(value)), np.errstate(over="ignore"):
        if isinstance(value, str | bytes) or np.ndim(value) > 1:
            raise TypeError(type(value).__name__)
        found: list[float] = np.atleast_1d(np.asarray(value, np.float32)).tolist()
        return found


def _spread(value: Number | None, bands: int) -> list[float] | float | None:
    """The value for each of `bands`; as one number if there are none."""
    if value is None:
        return None
    numbers = _numbers(value)
    if _is_list(value):
        return numbers
    return numbers * bands if bands else numbers[0]


_SUBSET = re.compile(r"([^\[\]]+)\[([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class SpectralBand:
    """One band of a sensor."""

    name: str
    index: int | None = None
    """Position among the bands of the sensor, from 0."""
    common_name: str | None = None
    """As in the electro-optical extension of STAC: ``red``, ``nir08``, ``swir16``."""
    description: str | None = None
    unit: str | None = None
    """Unit of the two wavelengths: ``nm`` in the built-in tables."""
    center_wavelength: float | None = None
    full_width_half_max: float | None = None


@dataclass
class OpticalData(StatedFields):
    """Sensor and spectral bands of a dataset.

    Parameters
    ----------
    sensor
        One of `sensors`, a subset of its bands in the order of the data such as
        ``sentinel2msi[B04,B03,B02]``, or any name if `bands` are given.
    bands
        `SpectralBand` or dicts of the same keys; None uses the built-in table.

    Raises
    ------
    InvalidInputError
        On creation: an unknown sensor without bands, an unknown or repeated band.
    """

    _columns: ClassVar[pa.Schema] = declared(
        ("optical:sensor", pa.string(), "Sensor"),
        (
            "optical:bands",
            list_of(_struct_of(SpectralBand)),
            "Spectral bands, in the order of the data",
        ),
        ("optical:num_bands", pa.int32(), "Number of spectral bands"),
    )

    sensor: str | None = None
    bands: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        require(self, "sensor")
        if self.bands is not None:
            self.bands = _records_of(SpectralBand, self.bands)
        elif self.sensor is not None:
            self.sensor, self.bands = sensor_bands(self.sensor)

    def _values(self) -> Sequence[Any]:
        bands = _dumped(self.bands)
        return self.sensor, bands, len(bands)


def sensors() -> tuple[str, ...]:
    """Names of the sensors with a built-in band table."""
    return tuple(_tables())


def sensor_bands(sensor: str) -> tuple[str, list[SpectralBand]]:
    """Name and bands of a sensor, or of the subset ``sensor[B1,B2]`` in that order."""
    if not isinstance(sensor, str):
        raise InvalidInputError("the name of a sensor is not text", found=shown(sensor))
    text = "".join(sensor.split())
    subset = _SUBSET.fullmatch(text)
    name = subset[1] if subset else text
    if name not in _tables():
        raise InvalidInputError(
            "unknown sensor",
            found=shown(sensor),
            expected=", ".join(sensors()),
            hint="give the bands of another sensor with bands=[...]",
        )
    known = {band.name: band for band in _tables()[name]}
    if subset is None:
        return name, list(known.values())
    wanted = subset[2].split(",")
    wrong = [one for one in wanted if one not in known or wanted.count(one) > 1]
    if wrong:
        raise InvalidInputError(
            f"{name} has no such bands, or a band is named twice",
            found=", ".join(shown(one) for one in wrong),
            expected=", ".join(known),
        )
    return name, [known[one] for one in wanted]


@cache
def _tables() -> dict[str, list[SpectralBand]]:
    data = resources.files("comal.taco.extensions").joinpath("sensors.json").read_bytes()
    document = json.loads(data)
    return {
        name: [
            SpectralBand(band, index, common, text, document["unit"], centre, width)
            for index, (band, common, text, centre, width) in enumerate(sensor["bands"])
        ]
        for name, sensor in document["sensors"].items()
    }
