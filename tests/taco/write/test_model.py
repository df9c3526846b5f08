"""Sample, Tortilla and Taco: what they take, what they refuse, and in which words."""

from __future__ import annotations

import gc
import logging
import math
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pydantic
import pytest

from comal.errors import InvalidInputError, LimitExceededError
from comal.taco.extensions import Split
from comal.taco.extensions.base import SampleExtension, TacoExtension, TortillaExtension
from comal.taco.model.collection import Sample, Taco, Tortilla
from comal.taco.spec import LOGGER, TacoWarning, verbose
from comal.taco.writing.creating import create
from tests.taco.write.small import Archive, dataset, flat


class Weather(pydantic.BaseModel):
    cloud: float
    wind: int


class Length(SampleExtension):
    def get_schema(self) -> pa.Schema:
        return pa.schema([pa.field("length", pa.int32(), metadata={"description": "Bytes"})])

    def _compute(self, sample: Any) -> Any:
        return {"length": [len(sample.path)]}


class Rank(TortillaExtension):
    def get_schema(self) -> Any:
        return {"rank": pa.int16()}

    def _compute(self, tortilla: Any) -> Any:
        return pl.DataFrame({"rank": list(range(len(tortilla)))}, schema={"rank": pl.Int16})


class Paper(TacoExtension):
    def get_schema(self) -> Any:
        return {"paper:doi": pa.string()}

    def _compute(self, taco: Any) -> Any:
        return {"paper:doi": [f"10.1/{taco.id}"]}


# -- samples ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "a\\b", "a:b", "a\nb", "a\0b", "__x", "NUL", "com1.tif", "a.", "a ",
     "-x", "x" * 256, "a\u202eb", "e\u0301", "a?b", "a%b"],
)  # fmt: skip
def test_bad_ids_are_refused_at_once(name: str) -> None:
    with pytest.raises(InvalidInputError, match="id "):
        Sample(name, b"")
    with pytest.raises(InvalidInputError, match="id "):
        Tortilla.from_table(pa.table({"id": [name], "path": pa.array([b""], pa.binary())}))


@pytest.mark.parametrize("name", ["a", "a.tif", "x" * 255, "ñandú", "a b", "A+B", "__TACOPAD__0"])
def test_good_ids_are_taken(name: str) -> None:
    assert Sample(name, b"").id == name


def test_type_follows_the_path() -> None:
    inner = Tortilla([Sample("a", b"x")])
    assert [Sample("a", path).type for path in (b"", "x.tif", Path("x"), inner)] == [
        "FILE",
        "FILE",
        "FILE",
        "FOLDER",
    ]
    with pytest.raises(InvalidInputError, match="cannot be a 'FOLDER'"):
        Sample("a", b"", type="FOLDER")
    with pytest.raises(InvalidInputError, match="wrong type"):
        Sample("a", 1)  # type: ignore[arg-type]


def files_below(folder: Path) -> list[bytes]:
    paths = folder.rglob("*")
    return [one.read_bytes() for one in paths if one.is_file() and "-lock" not in one.name]


def test_temporary_files_go_with_cleanup_or_with_the_sample(tmp_path: Path) -> None:
    sample = Sample("a", b"abc", temp_dir=tmp_path)
    assert files_below(tmp_path) == [b"abc"]
    sample.cleanup()
    assert files_below(tmp_path) == []
    other = Sample("b", b"abc", temp_dir=tmp_path)
    assert len(files_below(tmp_path)) == 1
    if os.fork() == 0:
        other.cleanup()  # and the file stays for the other process
        os._exit(0)
    os.wait()
    assert len(files_below(tmp_path)) == 1
    del other
    gc.collect()
    assert files_below(tmp_path) == []


def test_every_way_to_extend_a_sample() -> None:
    sample = Sample("a", b"four", start=1, cleanup="yes")
    sample.cleanup()  # a field of that name does no harm
    sample.extend_with({"x": 1.5}, name="ns").extend_with(Weather(cloud=0.5, wind=3))
    sample.extend_with(pa.table({"table": pa.array([7], pa.uint8())}))
    sample.extend_with(pl.DataFrame({"frame": ["f"]}))
    sample.extend_with(Length())
    sample.extend_with(lambda one: {"called": one.id * 2})
    row = sample.export_metadata()
    assert row.to_pylist() == [
        {
            "id": "a",
            "type": "FILE",
            "path": None,
            "start": 1,
            "cleanup": "yes",
            "ns:x": 1.5,
            "weather:cloud": 0.5,
            "weather:wind": 3,
            "table": 7,
            "frame": "f",
            "length": 4,
            "called": "aa",
        }
    ]
    assert row.schema.field("table").type == pa.uint8()
    assert row.schema.field("length").type == pa.int32()
    assert sample.called == "aa"
    assert sample.pop("called") == "aa"
    assert "called" not in sample.metadata


def test_schema_only_gives_typed_nulls(tmp_path: Path) -> None:
    tortilla = Tortilla([Sample(n, b"x").extend_with(Length(schema_only=True)) for n in "ab"])
    tortilla.extend_with(Rank(schema_only=True))
    (path,) = create(dataset(tortilla), tmp_path / "a.zip")
    table = Archive(path).level(0)
    assert table["length"].to_pylist() == table["rank"].to_pylist() == [None, None]
    assert table.schema.field("length").type == pa.int32()
    assert table.schema.field("rank").type == pa.int16()
    listed = {
        column[0]: column for column in Archive(path).collection["taco:field_schema"]["level0"]
    }
    assert listed["length"] == ["length", "int32", "Bytes"]


# -- tortillas ----------------------------------------------------------------------------------


def test_ids_stand_once_also_where_case_is_ignored() -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        Tortilla([Sample("a", b""), Sample("a", b"")])
    with pytest.raises(InvalidInputError, match="case"):
        Tortilla([Sample("a", b""), Sample("A", b"")])
    with pytest.raises(InvalidInputError, match="case"):
        Tortilla([Sample("straße", b""), Sample("STRASSE", b"")])
    table = pa.table({"id": ["a", "b", "A"], "path": pa.array([b""] * 3)})
    with pytest.raises(InvalidInputError, match="case"):
        Tortilla.from_table(table)


def test_strict_schema_names_the_field_both_types_and_both_samples() -> None:
    with pytest.raises(InvalidInputError) as caught:
        Tortilla([Sample("one", b"", x=1), Sample("two", b"", x="a")])
    text = str(caught.value)
    for part in ("'x'", "int64", "string", "'one'", "'two'"):
        assert part in text
    with pytest.raises(InvalidInputError, match="not in every sample") as caught:
        Tortilla([Sample("one", b"", x=1), Sample("two", b"", y=1)])
    assert "'one'" in str(caught.value)
    assert "'two'" in str(caught.value)
    for first, second in [(1, 1.5), (True, 1), ([1], [1.5]), ([1], ["a"]), (b"", "")]:
        with pytest.raises(InvalidInputError, match="two types"):
            Tortilla([Sample("one", b"", x=first), Sample("two", b"", x=second)])


def test_lenient_schema_fills_and_widens_and_nothing_else() -> None:
    samples = [Sample("a", b"", x=1, y="t"), Sample("b", b"", x=1.5), Sample("c", b"", z=[1])]
    table = Tortilla(samples, strict_schema=False).to_arrow()
    assert table["x"].to_pylist() == [1.0, 1.5, None]
    assert table["y"].to_pylist() == ["t", None, None]
    assert table["z"].to_pylist() == [None, None, [1]]
    with pytest.raises(InvalidInputError, match="two types"):
        Tortilla([Sample("a", b"", x=1), Sample("b", b"", x="1")], strict_schema=False).to_arrow()


def scenes(*values: tuple[str, Any], strict: bool = True) -> Tortilla:
    """Scenes of two levels, each of samples or of tables, whose files have a value."""

    def one(kind: str, value: Any) -> Tortilla:
        names = ["a", "b"]
        if kind == "samples":
            fields: dict[str, Any] = {} if value is None else {"v": value}
            files = [Sample(name, name.encode(), **fields) for name in names]
            return Tortilla([Sample("x", Tortilla(files))])
        columns: dict[str, Any] = {"id": names, "path": [b"a", b"b"], "parent": [0, 0]}
        if value is not None:
            columns["v"] = [value] * 2
        return Tortilla.from_tables([pa.table({"id": ["x"]}), pa.table(columns)])

    made = [Sample(f"s{n}", one(*each)) for n, each in enumerate(values)]
    return Tortilla(made, strict_schema=strict)


def test_samples_and_tables_stand_side_by_side(tmp_path: Path) -> None:
    made = {
        kinds: create(dataset(scenes(*((kind, 1) for kind in kinds))), tmp_path / f"{n}.zip")[
            0
        ].read_bytes()
        for n, kinds in enumerate(product(["samples", "tables"], repeat=3))
    }
    assert len(set(made.values())) == 1
    for kinds in product(["samples", "tables"], repeat=2):
        first, second = kinds
        with pytest.raises(InvalidInputError, match="two types") as caught:
            dataset(scenes((first, 1), (second, "t")))
        assert all(text in str(caught.value) for text in ("'v'", "int64", "string"))
        with pytest.raises(InvalidInputError, match="not in every sample"):
            dataset(scenes((first, 1), (second, None)))
        lenient = scenes((first, 1), (second, 1.5), (first, None), strict=False)
        assert lenient.levels()[2].table["v"].to_pylist() == [1.0, 1.0, 1.5, 1.5, None, None]
    # A column without any value agrees with all types.
    tables = [pa.table({"id": ["a"], "path": [b"x"], "v": [value]}) for value in (None, 1, None)]
    empty = [Sample(f"s{n}", Tortilla.from_table(table)) for n, table in enumerate(tables)]
    assert Tortilla(empty).levels()[1].table["v"].to_pylist() == [None, 1, None]


def test_times_of_single_samples_agree_whatever_nanoseconds_they_have() -> None:
    values = [0, 1, None, 2]
    tables = [pa.table({"t": pa.array([value], pa.timestamp("ns"))}) for value in values]
    samples = [Sample(f"s{n}", b"").extend_with(table) for n, table in enumerate(tables)]
    assert Tortilla(samples).to_arrow()["t"].cast(pa.int64()).to_pylist() == values
    lists = pa.array([[1]], pa.list_(pa.timestamp("ns")))
    with pytest.raises(InvalidInputError, match=r"column 't'[^$]*round the times"):
        Tortilla.from_table(pa.table({"id": ["a"], "path": [b"x"], "t": lists}))


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**70, "\ud800", 1j])
def test_values_that_no_table_holds_are_refused(value: object) -> None:
    with pytest.raises(InvalidInputError, match="'x'"):
        dataset(Tortilla([Sample("a", b"", x=value)]))


def test_padding(tmp_path: Path) -> None:
    tortilla = Tortilla([Sample(f"s{n}", b"x", v=n) for n in range(5)], pad_to=4)
    (path,) = create(dataset(tortilla), tmp_path / "a.zip")
    archive = Archive(path)
    assert len(tortilla) == 8
    assert archive.level(0)["id"].to_pylist()[5:] == [f"__TACOPAD__{n}" for n in range(3)]
    assert archive.level(0)["v"].to_pylist()[5:] == [None] * 3
    assert archive.leaves()["__TACOPAD__2"] == b""
    assert archive.collection["taco:pit_schema"]["root"] == {"n": 8, "type": "FILE"}
    table = pa.table({"id": ["a"], "path": pa.array([b"x"], pa.binary())})
    assert len(Tortilla.from_table(table, pad_to=3)) == 3
    for wrong in (0, -1, 2.5, "4", True):
        with pytest.raises(InvalidInputError, match="pad_to"):
            Tortilla.from_table(table, pad_to=wrong)  # type: ignore[arg-type] # what a caller may try


@pytest.mark.parametrize("how", ["samples", "table", "file", "batches"])
def test_padding_has_no_bytes(tmp_path: Path, how: str) -> None:
    (tmp_path / "full").write_bytes(b"x")
    data: Any = str(tmp_path / "full") if how == "file" else b"x"
    table = pa.table({"id": ["a", "__TACOPAD__0"], "path": [data, data]})

    def made() -> Taco:
        if how == "samples":
            return dataset(Tortilla([Sample("a", b"x"), Sample("__TACOPAD__0", b"x")]))
        if how == "batches":
            return dataset(Tortilla.from_batches([table], schema=table.schema))
        return dataset(Tortilla.from_table(table))

    with pytest.raises(InvalidInputError, match="padding"):
        create(made(), tmp_path / "a.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_extensions_of_tortillas_also_when_nested(tmp_path: Path) -> None:
    def inner(n: int) -> Tortilla:
        return Tortilla([Sample("a", b"%d" % n), Sample("b", b"")]).extend_with(Rank())

    outer = Tortilla([Sample(f"s{n}", inner(n)) for n in range(3)])
    outer.extend_with(pa.table({"column": [1, 2, 3]}))
    (path,) = create(dataset(outer), tmp_path / "a.zip")
    assert Archive(path).level(1)["rank"].to_pylist() == [0, 1] * 3
    assert Archive(path).level(0)["column"].to_pylist() == [1, 2, 3]
    below = outer.export_metadata(1)
    assert below["internal:parent_id"].to_pylist() == [0, 0, 1, 1, 2, 2]
    assert below["id"].to_pylist() == ["a", "b"] * 3
    one = pa.table({"id": ["x"], "path": pa.array([b"bb"], pa.binary())})
    for tortilla, length in ((Tortilla.from_table(one), 2), (flat(1), 9)):
        assert tortilla.extend_with(Length()).to_arrow()["length"].to_pylist() == [length]
    assert outer.pop("column").to_pylist() == [1, 2, 3]
    assert "column" not in outer.to_arrow().column_names


def test_tables_that_are_no_tree_are_refused() -> None:
    roots = pa.table({"id": ["x", "y"]})
    for parents, ids, text in [
        ([0, 0, 1, 2], "abab", "parent that does not exist"),
        ([0, 0, 1, 1], "abba", "structure"),
        ([0, 0, 0, 0], "abcd", "no children"),
    ]:
        table = pa.table({"id": list(ids), "path": [b""] * 4, "parent": parents})
        with pytest.raises(InvalidInputError, match=text):
            dataset(Tortilla.from_tables([roots, table]))


def test_seven_levels_are_refused() -> None:
    tortilla = flat(1)
    for _ in range(5):
        tortilla = Tortilla([Sample("s", tortilla)])
    assert len(dataset(tortilla).tortilla.levels()) == 6
    with pytest.raises(LimitExceededError, match="too deeply"):
        dataset(Tortilla([Sample("s", tortilla)]))


# -- datasets -----------------------------------------------------------------------------------


def test_every_bad_field_is_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        dataset(flat(), id="Ñandú", licenses=[], tasks="x", providers=[{}], title="t" * 251)
    places = [problem.place for problem in caught.value.problems]
    assert [place.rpartition(" ")[2] for place in places] == [
        "id",
        "licenses",
        "tasks",
        "providers[0]",
        "title",
    ]


def from_2020_to(end: str) -> dict[str, Any]:
    return {"extent": {"temporal": ["2020-01-01", end]}}


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Sample("a", "https://example.org/a.tif"), "is not local"),
        (lambda: Sample("a", b"").extend_with({"a:b:c": 1}), "metadata field"),
        (lambda: Sample("a", b"").extend_with({"internal:offset": 1}), "metadata field"),
        (lambda: Sample("a", b"").extend_with({"path": 1}), "metadata field"),
        (lambda: Sample("a", b"", x=1).extend_with({"x": 2}), "exists already"),
        (lambda: Sample("a", b"").extend_with(pa.table({"y": [1, 2]})), "one row"),
        (lambda: Sample("a", b"").extend_with(Split), r"Split\(\.\.\.\)"),
        (lambda: Tortilla(Sample("a", b"")), "not a sequence"),  # type: ignore[arg-type]
        (lambda: flat(1).extend_with(pa.table({"cloud": [1]})), "exists already"),
        (lambda: flat(1).extend_with(pa.table({"x": [1, 2]})), "one row per sample"),
        (lambda: flat(1).export_metadata(1), "no such level"),
        (lambda: dataset(flat(1), taco_version="9"), "taco_version"),
        (lambda: dataset(flat(1), **from_2020_to("2019-01-01")), "extent.temporal"),
        (lambda: dataset(flat(1), **from_2020_to("soon")), "extent.temporal"),
        (lambda: dataset(flat(1), description="\ud800"), "JSON cannot hold"),
        (lambda: dataset(flat(1), providers=[{"name": "x", "n": math.nan}]), "JSON cannot hold"),
        (lambda: dataset(flat(1)).extend_with({"id": 1}), "exists already or is reserved|core"),
        (lambda: dataset(flat(1)).extend_with({"taco:pit_schema": 1}), "reserved"),
        (lambda: dataset(flat(1), n=1).extend_with({"n": 1}), "exists already"),
        (lambda: dataset(flat(1)).extend_with({"bad": float("nan")}), "JSON"),
    ],
)
def test_what_no_reader_could_use_is_refused(make: Callable[[], object], text: str) -> None:
    """The grammar of names is asked in `test_spec.py`."""
    with pytest.raises(InvalidInputError, match=text):
        make()


def test_unknown_tasks_are_taken_with_a_warning() -> None:
    with pytest.warns(TacoWarning, match="'foo' is a name that other tools do not know"):
        taco = dataset(flat(), tasks=["foo"])
    assert taco.tasks == ["foo"]


def test_extending_a_dataset() -> None:
    taco = dataset(flat()).extend_with(Paper()).extend_with({"n": np.int64(3), "l": (1, 2)})
    taco.extend_with(Weather(cloud=1.0, wind=2))
    assert taco.extra == {"paper:doi": "10.1/small", "n": 3, "l": [1, 2], "cloud": 1.0, "wind": 2}
    assert taco.wind == 2


def test_verbose(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    try:
        verbose(True)
        create(dataset(flat()), tmp_path / "a.zip")
        assert "a.zip" in caplog.text
        caplog.clear()
        verbose(False)
        create(dataset(flat()), tmp_path / "b.zip")
        assert caplog.text == ""
        verbose("debug")
        assert LOGGER.isEnabledFor(logging.DEBUG)
        for level in ("loud", None, ["info"]):
            with pytest.raises(InvalidInputError):
                verbose(level)  # type: ignore[arg-type]  # what mypy refuses too
    finally:
        verbose("info")
