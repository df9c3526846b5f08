"""Extensions whose fields are what the author declares: splits, scaling, bands of a sensor."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib import resources
from typing import Any, ClassVar

import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.taco.extensions.base import StatedColumns, StatedFields, declared, list_of, require

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
        require(self, "split")
        if self.split not in SPLITS and not self.schema_only:
            raise InvalidInputError(
                "unknown split", found=shown(self.split), expected=", ".join(SPLITS)
            )

    def _values(self) -> Sequence[Any]:
        return (self.split,)


# -- scaling ---------------------------------------------------------------------------------------


Number = float | Sequence[float]


@dataclass
class Scaling(StatedColumns):
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

    def __post_init__(self) -> None:
        for name in ("scale_factor", "scale_offset"):
            numbers = _numbers(getattr(self, name))
            if not all(map(math.isfinite, numbers)) or (name == "scale_factor" and 0 in numbers):
                raise InvalidInputError(
                    f"invalid {name}", found=getattr(self, name), expected="finite, factor not 0"
                )
        both = (self.scale_factor, self.scale_offset)
        if len({len(_numbers(part)) for part in both if _is_list(part)}) > 1:
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
        text = "value = pixel * scale_factor + scale_offset"
        padding = "Pixels added around the image: top, right, bottom, left"
        return declared(
            ("scaling:scale_factor", kind, text),
            ("scaling:scale_offset", kind, text),
            ("scaling:padding", list_of(pa.int32()), padding),
        )

    def _values(self) -> Sequence[Any]:
        """Factor and offset, of as many bands as either has, and the padding."""
        factor, offset = self.scale_factor, self.scale_offset
        if self._has_lists():
            bands = max(len(_numbers(part)) for part in (factor, offset))
            factor, offset = _spread(factor, bands), _spread(offset, bands)
        return factor, offset, None if self.padding is None else list(map(int, self.padding))

    def _has_lists(self) -> bool:
        return _is_list(self.scale_factor) or _is_list(self.scale_offset)


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
    """Of the two wavelengths: ``nm`` in the built-in tables."""
    center_wavelength: float | None = None
    full_width_half_max: float | None = None


_BAND = pa.struct(
    [
        ("name", pa.string()),
        ("index", pa.int32()),
        *((part, pa.string()) for part in ("common_name", "description", "unit")),
        *((part, pa.float64()) for part in ("center_wavelength", "full_width_half_max")),
    ]
)


@dataclass
class OpticalData(StatedFields):
    """Sensor and spectral bands of a dataset.

    Parameters
    ----------
    sensor
        One of `sensors`, a subset of its bands in the order of the data such as
        ``sentinel2msi[B04,B03,B02]``, or any name when `bands` are given.
    bands
        `SpectralBand` or dicts of the same keys; taken from the built-in table when None.

    Raises
    ------
    InvalidInputError
        On creation: an unknown sensor without bands, an unknown or repeated band.
    """

    _columns: ClassVar[pa.Schema] = declared(
        ("optical:sensor", pa.string(), "Sensor"),
        (
            "optical:bands",
            list_of(_BAND),
            "Spectral bands, in the order of the data",
        ),
        ("optical:num_bands", pa.int32(), "Number of spectral bands"),
    )

    sensor: str | None = None
    bands: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        require(self, "sensor")
        if self.bands is not None:
            self.bands = list(map(_band_of, self.bands))
        elif self.sensor is not None:
            self.sensor, self.bands = sensor_bands(self.sensor)

    def _values(self) -> Sequence[Any]:
        bands = [asdict(band) for band in self.bands or ()]
        return self.sensor, bands, len(bands)


def _band_of(value: Any) -> SpectralBand:
    """A band from one, a mapping, or an object with ``model_dump``."""
    if isinstance(value, SpectralBand):
        return value
    value = value.model_dump() if hasattr(value, "model_dump") else value
    known = [part.name for part in fields(SpectralBand)]
    if not isinstance(value, Mapping) or not value.get("name") or set(value) - set(known):
        raise InvalidInputError(
            "no band of a sensor", found=shown(repr(value)), expected=", ".join(known)
        )
    return SpectralBand(**value)


def sensors() -> tuple[str, ...]:
    """Names of the sensors with a built-in band table."""
    return tuple(_tables())


def sensor_bands(sensor: str) -> tuple[str, list[SpectralBand]]:
    """Name and bands of a sensor, or of the subset ``sensor[B1,B2]`` in that order."""
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
            f"no such bands of {name}, or one twice",
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
