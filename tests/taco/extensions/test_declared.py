"""Extensions that write what they are told: Split, Scaling and those of the collection."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pydantic
import pytest

from comal.errors import InvalidInputError
from comal.taco.extensions import (
    LabelClass,
    Labels,
    OpticalData,
    Publication,
    Publications,
    Scaling,
    SpectralBand,
    Split,
    SplitStrategy,
)
from comal.taco.extensions.base import RowSample, columns_for
from comal.taco.extensions.declared import sensor_bands, sensors

SAMPLE = RowSample("a", None, "FILE")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Split, ("train", "test", "validation")),
        (SplitStrategy, ("random", "stratified", "manual", "other", "none", "unknown")),
    ],
)
def test_splits(kind: Any, names: tuple[str, ...]) -> None:
    column = "split" if kind is Split else "split:strategy"
    for name in names:
        assert kind(name)(SAMPLE).to_pylist() == [{column: name}]
    for wrong in ("magic", None):
        with pytest.raises(InvalidInputError, match=wrong or "split|strategy"):
            kind(wrong)
    assert kind(schema_only=True)(SAMPLE)[column].to_pylist() == [None]
    table = pa.table({"id": ["a", "b"]})
    assert columns_for(Split("test"), table)["split"].to_pylist() == ["test", "test"]


@pytest.mark.parametrize(
    ("arguments", "row", "kind"),
    [
        ({}, (None, None, None), "float"),
        ({"scale_factor": 0.5, "scale_offset": -1}, (0.5, -1, None), "float"),
        ({"scale_factor": [0.5, 2]}, ([0.5, 2], None, None), "list<element: float>"),
        (
            {"scale_factor": [0.5, 2], "scale_offset": 1, "padding": (1, 2, 3, 4)},
            ([0.5, 2], [1, 1], [1, 2, 3, 4]),
            "list<element: float>",
        ),
        (
            {"scale_factor": np.float32(0.5), "scale_offset": Decimal(2)},
            (0.5, 2, None),
            "float",
        ),
        (
            {"scale_factor": np.array([0.5]), "scale_offset": np.int64(2)},
            ([0.5], [2], None),
            "list<element: float>",
        ),
    ],
)
def test_scaling(arguments: dict[str, Any], row: tuple[Any, ...], kind: str) -> None:
    found = Scaling(**arguments)(SAMPLE)
    assert tuple(found.to_pylist()[0].values()) == row
    assert [str(one) for one in found.schema.types] == [kind, kind, "list<element: int32>"]
    assert columns_for(Scaling(**arguments), pa.table({"id": ["a", "b"]})).num_rows == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"scale_factor": 0},
        {"scale_factor": [1, 0.0]},
        {"scale_offset": float("nan")},
        {"scale_factor": [1, 2], "scale_offset": [1, 2, 3]},
        {"scale_factor": 1e-50},  # zero as it is stored
        {"scale_offset": 1e39},
        {"scale_factor": "25"},
        {"scale_factor": [None]},
        {"padding": [1, 2, 3]},
        {"padding": [1, 2, 3, 4.5]},
        {"padding": 5},
    ],
)
def test_scaling_refuses(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Scaling(**arguments)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Scaling(padding=[2**40] * 4),
        lambda: Labels(5),  # type: ignore[arg-type]
        lambda: Labels([{"name": 1, "category": 2}]),
        lambda: Publications([{"doi": 1, "citation": 2}]),
        lambda: OpticalData(5),  # type: ignore[arg-type]
        lambda: OpticalData("mine", [{"name": "red", "index": "1"}]),
    ],
)
def test_values_of_other_types_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInputError):
        make()(SAMPLE)


class Model(pydantic.BaseModel):
    doi: str
    citation: str
    summary: str | None = None


def test_publications() -> None:
    entry = {"doi": "10.1/x", "citation": "A (2023)"}
    full = {**entry, "summary": None}
    for value in (entry, Publication(**entry), Model(**entry)):
        found = Publications([value])(None)
        assert found.to_pylist() == [{"publications": [full]}]
    assert "struct<doi: string, citation: string, summary: string>" in str(found.schema.types[0])
    for wrong in ([{"doi": "10.1/x"}], [{**entry, "year": 1}], [5], entry, None):
        with pytest.raises(InvalidInputError):
            Publications(wrong)  # type: ignore[arg-type]


def test_labels() -> None:
    found = Labels(
        [{"name": "Forest", "category": 1}, LabelClass("Urban", "U", "towns")], "by hand"
    )
    assert found(None).to_pylist() == [
        {
            "labels:classes": [
                {"name": "Forest", "category": "1", "description": None},
                {"name": "Urban", "category": "U", "description": "towns"},
            ],
            "labels:description": "by hand",
            "labels:num_classes": 2,
        }
    ]
    with pytest.raises(InvalidInputError, match="the same category"):
        Labels([{"name": "a", "category": 1}, {"name": "b", "category": "1"}])
    with pytest.raises(InvalidInputError, match="name"):
        Labels([{"category": 1}])


# The electro-optical extension of STAC: the range in nm within which a common name may lie.
RANGES = {
    "pan": (400, 1000),
    "coastal": (400, 455),
    "blue": (450, 530),
    "green": (500, 600),
    "green05": (510, 550),
    "red": (600, 700),
    "rededge071": (690, 730),
    "rededge075": (730, 760),
    "rededge078": (770, 800),
    "nir": (750, 1000),
    "nir08": (700, 900),
    "nir09": (800, 1100),
    "cirrus": (1350, 1400),
    "swir16": (1550, 1750),
    "swir22": (2050, 2450),
    "lwir": (10250, 12500),
    "lwir11": (10500, 11500),
    "lwir12": (11500, 12510),
}


@pytest.mark.parametrize("sensor", sensors())
def test_wavelengths_fit_the_common_names(sensor: str) -> None:
    bands = sensor_bands(sensor)[1]
    assert [band.index for band in bands] == list(range(len(bands)))
    for band in bands:
        assert band.unit == "nm"
        assert band.center_wavelength is not None
        assert band.full_width_half_max is not None
        assert 0 < band.full_width_half_max < band.center_wavelength
        if band.common_name is not None:
            low, high = RANGES[band.common_name]
            assert low <= band.center_wavelength <= high


def test_optical_data() -> None:
    row = OpticalData("sentinel2msi")(None).to_pylist()[0]
    assert row["optical:sensor"] == "sentinel2msi"
    assert row["optical:num_bands"] == 13
    assert row["optical:bands"][8] == {
        "name": "B8A",
        "index": 8,
        "common_name": "nir08",
        "description": "Narrow near infrared, 20 m",
        "unit": "nm",
        "center_wavelength": 864.7,
        "full_width_half_max": 21.0,
    }
    subset = OpticalData("sentinel2msi[B04, B03,B02]")(None).to_pylist()[0]
    assert subset["optical:sensor"] == "sentinel2msi"
    assert [band["name"] for band in subset["optical:bands"]] == ["B04", "B03", "B02"]
    own = OpticalData("mine", [SpectralBand("X", center_wavelength=500), {"name": "Y"}])(None)
    assert own.to_pylist()[0]["optical:num_bands"] == 2
    assert OpticalData(schema_only=True)(None).to_pylist()[0]["optical:bands"] is None


@pytest.mark.parametrize(
    "sensor",
    [
        "sentinel9",
        "sentinel2msi[B99]",
        "sentinel2msi[B04,B04]",
        "sentinel2msi[]",
        "aster[B01",
        None,
    ],
)
def test_optical_data_refuses(sensor: str | None) -> None:
    with pytest.raises(InvalidInputError):
        OpticalData(sensor)
