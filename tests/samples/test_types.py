"""Columns of every Arrow type: what a writer takes, each reader returns; all else it refuses."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from comal import taco, tortilla
from comal.errors import InvalidInputError
from tests.taco.write.small import dataset

DAY = dt.date(2020, 2, 29)
NOON = dt.datetime(2020, 2, 29, 12, 0, 0, 5)
INTS, STRUCT = pa.int32(), pa.struct([("a", pa.int64()), ("b", pa.large_string())])
TIMES = pa.struct([("a", pa.timestamp("s", "America/Lima")), ("b", pa.time32("s"))])
UNTYPED = pa.struct([("a", pa.null()), ("b", pa.int64())])
IN_UTC = dt.datetime(2020, 2, 29, tzinfo=dt.UTC)

KEPT: list[tuple[Any, list[Any]]] = [
    (pa.int8(), [1, None, -3]),
    (pa.uint64(), [2**64 - 1, None, 3]),
    (pa.float16(), [1.5, None, 3.0]),
    (pa.float32(), [1.5, None, float("inf")]),
    (pa.bool_(), [True, None, False]),
    *((kind, ["ü\0", None, "b" * 40]) for kind in (pa.string(), pa.large_string())),
    *((kind, ["", None, "b" * 40]) for kind in (pa.string_view(), pa.json_())),
    *((kind, [b"a", None, b""]) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(2), [b"ab", None, b"cd"]),
    (pa.date32(), [DAY, None, dt.date(1900, 1, 1)]),
    (pa.date64(), [DAY, None, dt.date(1900, 1, 1)]),
    (pa.time32("s"), [dt.time(1, 2, 3), None, dt.time(0)]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4), None, dt.time(0)]),
    *((pa.timestamp(unit), [NOON.replace(microsecond=0), None, None]) for unit in ("s", "ms")),
    *((pa.timestamp(unit), [NOON, None, None]) for unit in ("us", "ns")),
    (pa.decimal32(5, 2), [Decimal("1.23"), None, Decimal("-9.99")]),
    (pa.decimal256(38, 2), [Decimal("1.23"), None, Decimal("-9.99")]),
    (pa.list_(pa.float16()), [[1.5, None], None, []]),
    (pa.large_list(pa.large_string()), [["x"], None, []]),
    (pa.list_(INTS, 2), [[1, 2], None, [3, 4]]),
    (pa.list_(pa.list_(INTS, 1)), [[[1]], None, []]),
    (pa.list_(pa.timestamp("ns")), [[NOON], None, []]),
    (STRUCT, [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    (pa.map_(pa.string(), pa.float16()), [[("a", 1.5)], None, []]),
    (pa.map_(pa.string(), pa.list_(INTS)), [[("a", [1])], None, []]),
    (pa.list_(UNTYPED), [[{"a": None, "b": 1}] * 2, [], [{"a": None, "b": 2}]]),
    (TIMES, [{"a": IN_UTC, "b": dt.time(1)}, None, {"a": None, "b": None}]),
    (pa.dictionary(pa.int8(), pa.large_string()), ["a", None, "b"]),
    (pa.list_(pa.dictionary(pa.int8(), pa.string())), [["a"], None, []]),
    (pa.null(), [None] * 3),
]
REFUSED = [
    pa.duration("us"),
    pa.month_day_nano_interval(),
    pa.list_(pa.duration("s")),
    pa.struct([]),
    pa.list_view(INTS),
    pa.map_(pa.string(), pa.large_list_view(INTS)),
    pa.run_end_encoded(INTS, pa.string()),
    pa.sparse_union([pa.field("a", INTS)]),
    pa.dictionary(INTS, pa.duration("s")),
    pa.list_(pa.decimal256(39, 2)),
]


def table_of(**columns: Any) -> Any:
    return pa.table({"id": ["a", "b", "c"], "path": [b"1", b"2", b"3"], **columns})


def column_of(values: list[Any], kind: Any) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def samples(table: Any, kind: Callable[..., Any]) -> list[Any]:
    columns = table.drop_columns(["path"])
    return [kind(path=row["id"].encode(), **row) for row in columns.to_pylist()]


Make = Callable[[Any, Path], object]


def folder(table: Any, path: Path) -> object:
    return taco.create(dataset(taco.Tortilla.from_table(table)), path / "x", "folder")


def zipped(made: Callable[[Any], taco.Tortilla]) -> Make:
    return lambda table, path: taco.create(dataset(made(table)), path / "x.tacozip")


def blob(given: Callable[[Any], Any]) -> Make:
    return lambda table, path: tortilla.create(given(table), path / "x.tortilla")


def nested(table: Any) -> taco.Tortilla:
    return taco.Tortilla([taco.Sample(n, taco.Tortilla.from_table(table)) for n in ("p", "q")])


WRITERS: dict[str, Make] = {
    "taco": zipped(taco.Tortilla.from_table),
    "taco folder": folder,
    "taco nested": zipped(nested),
    "taco batches": zipped(lambda table: taco.Tortilla.from_batches([table], schema=table.schema)),
    "taco samples": zipped(lambda table: taco.Tortilla(samples(table, taco.Sample))),
    "tortilla": blob(lambda table: table),
    "tortilla batches": blob(lambda table: iter([table])),
    "tortilla samples": blob(lambda table: samples(table, tortilla.Sample)),
}


def answers(path: Path) -> list[Any]:
    """The table as each reader has it, whose rows are those that were written once, or twice."""
    if path.suffix == ".tortilla":
        assert tortilla.check(path).ok
        frame = tortilla.open(path)
        return [frame.to_arrow(), pa.table(frame), pa.table(frame.sql("SELECT * FROM data"))]
    assert not taco.check(path).problems
    data = taco.load(path)
    if data.pit_schema.levels == 2:
        flat = data.flatten().to_arrow()
        flat = flat.rename_columns([name.removeprefix("l1:") for name in flat.column_names])
        children = [data.read(row).to_arrow() for row in range(2)]
        return [flat, data.sql("SELECT * FROM level1").data.to_arrow(), *children]
    return [data.data.to_arrow(), data.sql("SELECT * FROM data").data.to_arrow()]


def is_taken(kind: Any, values: list[Any], writer: str) -> bool:
    """Whether a writer is given values from which Arrow can tell their type."""
    return not (writer.endswith("samples") and (pa.types.is_map(kind) or values[0] == 2**64 - 1))


@pytest.mark.parametrize("writer", WRITERS)
def test_values_come_back(writer: str, tmp_path: Path) -> None:
    taken = {f"v{n}": one for n, one in enumerate(KEPT) if is_taken(*one, writer)}
    columns = {name: column_of(values, kind) for name, (kind, values) in taken.items()}
    WRITERS[writer](table_of(**columns), tmp_path)
    (path,) = tmp_path.iterdir()
    for found in answers(path):
        for name, (kind, values) in taken.items():
            assert found[name].to_pylist() in (values, values * 2), kind


@pytest.mark.parametrize("writer", [name for name in WRITERS if not name.endswith("samples")])
@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: str(kind)[:30])
def test_what_would_not_come_back_is_refused(kind: Any, writer: str, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("path", pa.binary()), ("v", kind)])
    table = pa.Table.from_batches([], schema)
    with pytest.raises(InvalidInputError, match="'v' cannot be stored") as caught:
        WRITERS[writer](table, tmp_path)
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


def deep(levels: int) -> Any:
    return pa.list_(deep(levels - 1)) if levels else pa.int8()


UNREAD = {
    "columns": {f"c{n}": pa.int8() for n in range(2_000)},
    "name": {"v" * 129: pa.int8()},
    "depth": {"v": deep(9)},
    "field": {"v": pa.struct([("a\nb", pa.int8())])},
    "twins": {"v": pa.struct([pa.field("a", pa.int8()), pa.field("a", pa.int8())])},
}


@pytest.mark.parametrize("writer", [name for name in WRITERS if not name.endswith("samples")])
@pytest.mark.parametrize("fault", UNREAD)
def test_what_no_reader_would_open_is_refused(fault: str, writer: str, tmp_path: Path) -> None:
    table = table_of(**{name: pa.nulls(3, kind) for name, kind in UNREAD[fault].items()})
    with pytest.raises(InvalidInputError, match=r"readers would refuse|longer than 128"):
        WRITERS[writer](table, tmp_path)
    assert list(tmp_path.iterdir()) == []


def frames() -> dict[str, Any]:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = table_of(v=[1, 2, 3]).to_pydict()
    twice = pandas.DataFrame([["a", b"1", 1, 1]], columns=["id", "path", "v", "v"])
    return {
        "two types": pandas.DataFrame({**columns, "v": [1, "a", None]}),
        "complex": pandas.DataFrame({**columns, "v": [1j, 2, 3]}),
        "two names": twice,
        "series": pandas.Series(["a"], name="id"),
        "series of polars": polars.Series("id", ["a"]),
        "objects of polars": polars.DataFrame({**columns, "v": [Path("a")] * 3}),
    }


@pytest.mark.parametrize("writer", ["taco", "tortilla"])
@pytest.mark.parametrize(
    "name",
    ["two types", "complex", "two names", "series", "series of polars", "objects of polars"],
)
def test_frames_that_are_no_tables_are_refused(name: str, writer: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot become an Arrow table"):
        WRITERS[writer](frames()[name], tmp_path)


@pytest.mark.parametrize("writer", ["taco", "taco nested", "taco batches", "taco folder"])
@pytest.mark.parametrize("names", [("Cloud", "cloud"), ("v", "V"), ("ID", "v"), ("Internal:size",)])
def test_fields_that_sql_takes_for_one_are_refused(
    names: tuple[str, ...], writer: str, tmp_path: Path
) -> None:
    table = table_of(**{name: [1, 2, 3] for name in names})
    with pytest.raises(InvalidInputError, match=r"SQL|core field|reserved"):
        WRITERS[writer](table, tmp_path)
    assert list(tmp_path.iterdir()) == []


AHEAD = dt.timezone(dt.timedelta(hours=2))


@pytest.mark.parametrize("writer", ["taco samples", "tortilla samples"])
@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([NOON.replace(tzinfo=AHEAD), None, None], [NOON - dt.timedelta(hours=2), None, None]),
        ([np.array([1.0, 2.0]), None, None], [[1.0, 2.0], None, None]),
        ([np.int16(3), None, np.int16(4)], [3, None, 4]),
        ([[[1.5], []], None, None], [[[1.5], []], None, None]),
    ],
    ids=["zone", "array", "number", "deep"],
)
def test_objects_of_python(
    values: list[Any], found: list[Any], writer: str, tmp_path: Path
) -> None:
    kind = taco.Sample if writer.startswith("taco") else tortilla.Sample
    made: Any = [kind(id=f"s{n}", path=b"x", v=value) for n, value in enumerate(values)]
    if kind is taco.Sample:
        taco.create(dataset(taco.Tortilla(made)), tmp_path / "x.tacozip")
    else:
        tortilla.create(made, tmp_path / "x.tortilla")
    for table in answers(next(tmp_path.iterdir())):
        utc = [
            one.replace(tzinfo=None) if isinstance(one, dt.datetime) else one
            for one in table["v"].to_pylist()
        ]
        assert utc == found


@pytest.mark.parametrize("writer", ["taco", "tortilla"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_times_of_pandas_are_not_cut(zone: str | None, writer: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    time = pandas.Timestamp("2020-01-01T00:00:00.000000001", tz=zone)
    path = tmp_path / ("x.tacozip" if writer == "taco" else "x.tortilla")
    if writer == "taco":
        made = taco.Tortilla([taco.Sample("a", b"x", v=time), taco.Sample("b", b"x", v=None)])
        taco.create(dataset(made), path)
    else:
        some = [tortilla.Sample("a", path=b"x", v=time), tortilla.Sample("b", path=b"x")]
        tortilla.create(some, path)
    for table in answers(path):
        assert table["v"].cast(pa.int64()).to_pylist() == [time.value, None]


@pytest.mark.parametrize("writer", ["taco", "tortilla"])
def test_frames_of_other_libraries(writer: str, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(table_of(v=[[1], None, [2]]))
    made = []
    for number, table in enumerate((frame.to_arrow(), frame, frame.to_pandas())):
        (tmp_path / str(number)).mkdir()
        WRITERS[writer](table, tmp_path / str(number))
        made += [path.read_bytes() for path in (tmp_path / str(number)).iterdir()]
    assert len(made) == 3
    assert len(set(made)) == 1


@pytest.mark.parametrize("writer", ["taco", "tortilla"])
def test_categories_of_polars(writer: str, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    values = ["x", "y" * 40, None]
    frame = polars.DataFrame(table_of(v=values)).with_columns(
        polars.col("v").cast(polars.Categorical)
    )
    WRITERS[writer](frame, tmp_path)
    (path,) = tmp_path.iterdir()
    assert all(found["v"].to_pylist() == values for found in answers(path))


@pytest.mark.parametrize("writer", ["taco", "taco batches", "tortilla", "tortilla batches"])
@pytest.mark.parametrize("paths", [None, ["x", None, "y"], [b"1", None, b"3"], [None] * 3])
def test_a_payload_that_is_missing_is_refused(paths: Any, writer: str, tmp_path: Path) -> None:
    table = table_of(v=[1, 2, 3]).drop_columns(["path"])
    if paths is not None:
        table = table.append_column("path", pa.array(paths))
    with pytest.raises(InvalidInputError, match=r"payload|'path'"):
        WRITERS[writer](table, tmp_path)
    assert list(tmp_path.iterdir()) == []
