"""OpticalData: the spectral bands of a dataset."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.taco.extensions.base import TacoExtension, column, list_of
from comal.taco.extensions.placing import require
from comal.taco.extensions.records import dumped, records_of

_RECORD = pa.struct(
    [
        ("name", pa.string()),
        ("index", pa.int32()),
        ("common_name", pa.string()),
        ("description", pa.string()),
        ("unit", pa.string()),
        ("center_wavelength", pa.float64()),
        ("full_width_half_max", pa.float64()),
    ]
)
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


@dataclass
class OpticalData(TacoExtension):
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

    sensor: str | None = None
    bands: Sequence[Any] | None = None
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        require(self, "sensor")
        if self.bands is not None:
            self.bands = records_of(SpectralBand, self.bands)
        elif self.sensor is not None:
            self.sensor, self.bands = sensor_bands(self.sensor)

    def get_schema(self) -> pa.Schema:
        """The fields ``optical:sensor``, ``optical:bands``, ``optical:num_bands``."""
        return pa.schema(
            [
                column("optical:sensor", pa.string(), "Sensor"),
                column(
                    "optical:bands", list_of(_RECORD), "Spectral bands, in the order of the data"
                ),
                column("optical:num_bands", pa.int32(), "Number of spectral bands"),
            ]
        )

    def _compute(self, taco: Any) -> pa.Table:
        del taco
        bands = dumped(self.bands or [])
        rows = {
            "optical:sensor": [self.sensor],
            "optical:bands": [bands],
            "optical:num_bands": [len(bands)],
        }
        return pa.table(rows, schema=self.get_schema())


def sensors() -> tuple[str, ...]:
    """Names of the sensors with a built-in band table."""
    return tuple(_tables())


def sensor_bands(sensor: str) -> tuple[str, list[SpectralBand]]:
    """Name and bands of a sensor, or of the subset ``sensor[B1,B2]`` in that order.

    Raises
    ------
    InvalidInputError
        An unknown sensor or band, a band twice, or a subset without bands.
    """
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
