from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pydantic
import pytest

from comal.errors import InvalidInputError
from comal.taco import extensions
from comal.taco.extensions.base import (
    RowSample,
    SampleExtension,
    TacoExtension,
    TortillaExtension,
    arrow_schema,
    columns_for,
    declared,
    samples_of,
    table_of,
)

SAMPLE = RowSample("a", "a.tif", "FILE", {"cloud": 0.5})
TABLE = pa.table({"id": ["a", "b"], "type": ["FILE", "FILE"], "cloud": [0.5, None]})


class Returning(SampleExtension):
    """Returns what the test gives it."""

    def __init__(self, schema: Any, result: Any, **named: Any) -> None:
        super().__init__(**named)
        self.declared, self.result = schema, result

    def get_schema(self) -> Any:
        return self.declared

    def _compute(self, sample: Any) -> Any:
        return self.result(sample) if callable(self.result) else self.result


LIST = pa.list_(pa.field("element", pa.int32()))


@pytest.mark.parametrize(
    ("kind", "result", "expected"),
    [
        (pa.int64(), {"x": [1]}, [1]),
        (pa.float32(), {"x": [1]}, [1.0]),
        (pa.int64(), {"x": [1.0]}, [1]),
        (pa.int64(), {"x": [None]}, [None]),
        (pa.string(), pa.table({"x": pa.array(["a"], pa.large_string())}), ["a"]),
        (pa.binary(), {"x": [b"a"]}, [b"a"]),
        (LIST, {"x": [[1, 2]]}, [[1, 2]]),
        (LIST, {"x": pa.array([[1]], pa.large_list(pa.int64()))}, [[1]]),
        (pa.int64(), pl.DataFrame({"x": [1]}), [1]),
        (pa.string(), pl.DataFrame({"x": ["a"]}), ["a"]),
        (LIST, pl.DataFrame({"x": [[1, 2]]}), [[1, 2]]),
        (pa.string(), pl.DataFrame({"x": ["a"]}, schema={"x": pl.Categorical}), ["a"]),
        (pa.int64(), pa.record_batch({"x": [1]}), [1]),
        (pa.bool_(), {"x": [True]}, [True]),
        (pa.struct([("a", pa.int8())]), {"x": [{"a": 1}]}, [{"a": 1}]),
        (pa.timestamp("us"), {"x": pa.array([1], pa.timestamp("ms"))}, None),
    ],
)
def test_results_take_the_declared_type(kind: Any, result: Any, expected: Any) -> None:
    found = Returning(pa.schema([("x", kind)]), result)(SAMPLE)
    assert found.schema.field("x").type == kind
    assert expected is None or found["x"].to_pylist() == expected


@pytest.mark.parametrize(
    ("schema", "result", "words"),
    [
        ({"x": pa.int64()}, {"x": ["1"]}, ["Returning", "'x'", "string", "int64"]),
        ({"x": pa.int64()}, {"x": [1.5]}, ["Returning", "'x'", "double", "int64"]),
        ({"x": pa.int8()}, {"x": [300]}, ["'x'", "int64", "int8"]),
        ({"x": pa.string()}, {"x": [1]}, ["'x'", "int64", "string"]),
        ({"x": LIST}, {"x": [["a"]]}, ["'x'", "string", "int32"]),
        ({"x": pa.int64()}, {"y": [1]}, ["Returning", "'y'", "'x'"]),
        ({"x": pa.int64()}, {"x": [1], "y": [1]}, ["'y'"]),
        ({"x": pa.int64(), "y": pa.int64()}, {"x": [1]}, ["'y'"]),
        ({"x": pa.int64()}, {"x": [1, 2]}, ["Returning", "rows", "2", "1"]),
        ({"x": pa.int64()}, 5, ["Returning", "int"]),
        ({"x": pa.int64()}, {"x": [1], "y": [1, 2]}, ["Returning"]),
        ({"x": pa.int64()}, {"x": [object()]}, ["Returning"]),
        ({"x": "int64"}, {"x": [1]}, ["Returning", "type"]),
        ({"x": pl.Object}, {"x": [1]}, ["polars"]),
        (["x"], {"x": [1]}, ["Returning", "get_schema"]),
    ],
)
def test_wrong_results_are_refused(schema: Any, result: Any, words: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Returning(schema, result)(SAMPLE)
    for word in words:
        assert word in str(caught.value)


def never(sample: Any) -> Any:
    raise AssertionError("computed")


def test_schema_only_computes_nothing() -> None:
    found = Returning({"x": pa.int64(), "y": LIST}, never, schema_only=True)(SAMPLE)
    assert found.to_pylist() == [{"x": None, "y": None}]
    assert found.schema.types == [pa.int64(), LIST]


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        (pl.Int64, pa.int64()),
        (pl.Utf8, pa.string()),
        (pl.Float32(), pa.float32()),
        (pl.Binary, pa.binary()),
        (pl.List(pl.Int32), LIST),
        (pl.Datetime("us"), pa.timestamp("us")),
        (pl.Categorical, pa.string()),
        (pl.Struct({"a": pl.Utf8}), pa.struct([("a", pa.string())])),
    ],
)
def test_polars_types(declared: Any, kind: Any) -> None:
    assert arrow_schema(Returning({"x": declared}, None)).field("x").type == kind


class Rows(TortillaExtension):
    def get_schema(self) -> dict[str, Any]:
        return {"n": pa.int64()}

    def _compute(self, tortilla: Any) -> Any:
        return {"n": list(range(tortilla.to_arrow().num_rows))}


class Wrong(Rows):
    def _compute(self, tortilla: Any) -> Any:
        return {"n": [1]}


class Tortilla:
    def __len__(self) -> int:
        return 3

    def to_arrow(self) -> pa.Table:
        return pa.table({"id": ["a", "b", "c"], "type": ["FILE"] * 3})


def test_tortilla_extensions_have_a_row_per_sample() -> None:
    assert Rows()(Tortilla())["n"].to_pylist() == [0, 1, 2]
    assert Rows(schema_only=True)(Tortilla())["n"].to_pylist() == [None] * 3
    with pytest.raises(InvalidInputError, match="number of rows"):
        Wrong()(Tortilla())
    assert columns_for(Rows(), TABLE)["n"].to_pylist() == [0, 1]


class Dataset(TacoExtension):
    def get_schema(self) -> pa.Schema:
        return declared(("x:count", pa.int32(), "how many"))

    def _compute(self, taco: Any) -> Any:
        return {"x:count": [len(taco)]}


def test_taco_extensions_have_one_row() -> None:
    assert Dataset()([1, 2])["x:count"].to_pylist() == [2]
    assert Dataset(schema_only=True)(None)["x:count"].to_pylist() == [None]


class Multiplying(SampleExtension):
    def get_schema(self) -> dict[str, Any]:
        return {"x": pa.float64()}

    def _compute(self, sample: Any) -> Any:
        return {"x": [self.factor * sample.metadata["cloud"]]}  # type: ignore[attr-defined]


@dataclass
class AsDataclass(Multiplying):
    factor: float
    schema_only: bool = False


class AsModel(pydantic.BaseModel, Multiplying):
    factor: float  # `schema_only` becomes a field as well, for the base class annotates it


class Annotated(Multiplying):
    unit: ClassVar[str] = "no parameter"
    factor: float
    tags: list[str] = field(default_factory=list)


class Derived(Annotated):
    offset: float = 0


def test_annotated_attributes_are_parameters() -> None:
    assert (one := Derived(factor=3, tags=["a"])).tags == ["a"]
    assert (one.offset, Derived(factor=1).tags, one.schema_only) == (0, [], False)
    assert Derived(factor=1).tags is not Derived(factor=1).tags
    with pytest.raises(TypeError, match="factor"):
        Annotated()
    with pytest.raises(TypeError, match="unit"):
        Annotated(factor=1, unit="m")

    class OwnInit(Annotated):
        def __init__(self, twice: float) -> None:
            super().__init__(schema_only=True)
            self.factor = 2 * twice

    assert (OwnInit(2).factor, OwnInit(2).schema_only) == (4, True)


@pytest.mark.parametrize("make", [AsDataclass, AsModel, Annotated, Derived])
def test_plain_classes_dataclasses_and_models(make: Callable[..., Any]) -> None:
    assert make(factor=3)(SAMPLE)["x"].to_pylist() == [1.5]
    assert make(factor=3, schema_only=True)(SAMPLE)["x"].to_pylist() == [None]


def test_descriptions() -> None:
    class Described(Dataset):
        def get_field_descriptions(self) -> dict[str, str]:
            return {"x:count": "other words"}

    assert arrow_schema(Dataset()).field("x:count").metadata == {b"description": b"how many"}
    assert arrow_schema(Described()).field("x:count").metadata == {b"description": b"other words"}
    assert Described()([1]).schema.field("x:count").metadata == {b"description": b"other words"}


def test_base_classes_are_abstract() -> None:
    for kind in (SampleExtension, TortillaExtension, TacoExtension):
        with pytest.raises(TypeError, match="abstract"):
            kind()  # type: ignore[abstract]


def test_rows_and_samples() -> None:
    rows = list(samples_of(TABLE.append_column("path", pa.array(["a.tif", None]))))
    assert rows[0] == SAMPLE
    assert rows[1].path is None
    assert table_of(SAMPLE).to_pylist() == [
        {"cloud": 0.5, "id": "a", "type": "FILE", "path": "a.tif"}
    ]
    assert table_of(RowSample("a", b"xy", "FILE")).to_pylist()[0]["path"] == b"xy"
    assert table_of(RowSample("a", object(), "FOLDER")).to_pylist()[0]["path"] is None


def test_a_sample_extension_over_a_table_without_vectorised_door() -> None:
    doubling = Returning({"x": pa.float64()}, lambda s: {"x": [s.metadata["cloud"]]})
    assert columns_for(doubling, TABLE)["x"].to_pylist() == [0.5, None]
    assert columns_for(doubling, TABLE.slice(0, 0)).num_rows == 0
    lazy = Returning({"x": pa.float64()}, never, schema_only=True)
    assert columns_for(lazy, TABLE)["x"].to_pylist() == [None, None]


def test_columns_take_the_declared_order() -> None:
    schema = {"a": pa.int64(), "b": pa.string()}
    assert Returning(schema, {"b": ["x"], "a": [1]})(SAMPLE).column_names == ["a", "b"]


def test_names_and_light_import() -> None:
    for name in extensions.__all__:
        assert getattr(extensions, name).__name__ == name
    assert dir(extensions) == extensions.__all__
    with pytest.raises(AttributeError, match="Nothing"):
        _ = extensions.Nothing
    code = (
        "import sys; from comal.taco import extensions as e; "
        "e.STAC, e.ISTAC, e.Split, e.MajorTOM, e.GeotiffStats, e.OpticalData('aster'); "
        "print([m for m in ('rasterio', 'shapely', 'pyproj', 'polars') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
