"""What frames of all formats have in common, asked of the same samples in each."""

from __future__ import annotations

import asyncio
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from comal import taco
from comal.errors import InvalidInputError, InvalidMetadataError, NotInContainerError, QueryError
from tests.attacks.build import Tree, leaves_of
from tests.samples.doors import Door, each_format

pytestmark = each_format

COUNT = 7
TIMES = [1_600_000_000 + 86_400 * n for n in range(COUNT)]
NAMES = [f"s{n}" for n in range(COUNT)]
PAYLOADS = [b"payload %d" % n for n in range(COUNT)]
SCENES: Tree = {
    scene: {
        "imagery": {name: f"{scene}/{name}".encode() * 3 for name in ("before.bin", "after.bin")},
        "label.txt": f"{scene}-label".encode(),
    }
    for scene in ("s2", "s10", "s1")
}
LEAVES = dict(leaves_of(SCENES))


@pytest.fixture(scope="module")
def frame(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Places on the equator, days, numbers, one null of each."""
    columns = {
        "stac:centroid": door.points([*((n * 10.0, 0.0) for n in range(COUNT - 1)), None]),
        "stac:time_start": door.times([*TIMES[:-1], None]),
        "n": pa.array([*range(COUNT - 1), None], pa.int64()),
    }
    tree = dict(zip(NAMES, PAYLOADS, strict=True))
    return door.open(tmp_path_factory.mktemp("flat"), tree, columns)


@pytest.fixture(scope="module")
def nested(door: Door, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return door.open(tmp_path_factory.mktemp("nested"), SCENES)


def read_all(frame: Any) -> dict[str, bytes]:
    return {path: frame.read_bytes(path) for path, _ in frame.walk()}


def test_rows_are_found_by_place_time_and_sql(frame: Any, door: Door) -> None:
    ids = door.ids
    assert ids(frame.filter_bbox(9, -1, 31, 1)) == ["s1", "s2", "s3"]
    assert ids(frame.filter_bbox(-1, 1, 90, 2)) == []
    assert frame.filter_bbox(9, -1, 31, 1).placed_by == ("centroid",)
    assert frame.filter_bbox(9, -1, 31, 1)[:1].placed_by == ("centroid",)
    day = np.datetime64(TIMES[2], "s").astype("M8[D]")
    assert ids(frame.filter_datetime(str(day))) == ["s2"]
    assert ids(frame.filter_datetime(f"{day}/..")) == ["s2", "s3", "s4", "s5"]
    assert ids(frame.where("n >= $least", {"least": 4})) == ["s4", "s5"]
    assert ids(frame.where("n IS NULL")) == ["s6"]
    assert frame.sql("SELECT sum(n) AS total FROM data")["total"].to_pylist() == [15]
    both = frame.where("n > 1").filter_bbox(-1, -1, 31, 1)
    assert both.read_bytes() == [b"payload 2", b"payload 3"]
    assert pickle.loads(pickle.dumps(both)).read_bytes("s3") == b"payload 3"


def test_what_tells_nothing_is_told(frame: Any) -> None:
    bare = frame.drop(["stac:centroid", "stac:time_start"])
    with pytest.raises(InvalidInputError, match="do not say where"):
        bare.filter_bbox(0, 0, 1, 1)
    with pytest.raises(InvalidInputError, match="do not say when"):
        bare.filter_datetime("2020-01-01")
    with pytest.raises(InvalidInputError, match="no column"):
        frame.filter_bbox(0, 0, 1, 1, geometry_col="nothing")
    with pytest.raises(InvalidInputError, match="no column"):
        frame.filter_datetime("2020-01-01", time_col="nothing")
    with pytest.raises(InvalidInputError, match="not a geometry"):
        frame.filter_bbox(0, 0, 1, 1, geometry_col="n")


def test_columns_of_places_with_wrong_types_are_named(door: Door, tmp_path: Path) -> None:
    wrong = {"stac:centroid": pa.array([1])}
    if door.name == "tortilla":
        with pytest.warns(UserWarning, match="stac:centroid"):
            frame = door.open(tmp_path, {"a": b"a"}, wrong)
    else:
        frame = door.open(tmp_path, {"a": b"a"}, wrong)
    with pytest.raises(InvalidMetadataError, match="wrong types") as caught:
        frame.filter_bbox(0, 0, 1, 1)
    assert "stac:centroid int64" in str(caught.value.found)


def test_queries_make_up_no_paths(frame: Any) -> None:
    with pytest.raises(QueryError, match="changed"):
        frame.sql(f"SELECT '/etc/passwd' AS \"{frame.VSI}\" FROM data")
    kept = frame.sql(f'SELECT "{frame.VSI}" FROM data WHERE n = 1')[frame.VSI].to_pylist()
    assert kept == frame[frame.VSI].to_pylist()[1:2]
    with pytest.raises(QueryError):
        frame.where("no_such_column > 1")


def test_keys(frame: Any) -> None:
    assert frame.read_bytes() == PAYLOADS
    for keys in ([0, -1], ["s0", "s6"], np.array([0, 6]), [np.int64(0), "s6"], iter([0, 6])):
        assert frame.read_bytes(keys) == [PAYLOADS[0], PAYLOADS[6]]
    assert frame.read_bytes("s2") == frame.read_bytes(np.int32(2)) == PAYLOADS[2]
    assert frame.open(3).read() == frame.leaf("s3").file().read() == PAYLOADS[3]
    assert frame[-1] == frame.read(6) == frame[frame.VSI][6].as_py()
    for key in (COUNT, -COUNT - 1, np.int64(100), "nothing", "", "\U0010ffff"):
        with pytest.raises(NotInContainerError):
            frame.read_bytes([key])
    for odd in (1.5, True, [1.5], [None], object()):
        with pytest.raises(InvalidInputError):
            frame.read_bytes(odd)


def test_ids_are_found_again_and_again(door: Door, tmp_path: Path) -> None:
    """By a scan first, by an index later."""
    ids = [f"s{n}" for n in range(300)] + ["é", "ü", "zzz", "A"]
    frame = door.open(tmp_path, {name: name.encode() for name in ids})
    for name in [*ids[:20], *ids[-5:]]:
        assert frame.read_bytes(name) == name.encode()
        with pytest.raises(NotInContainerError):
            frame.read("s300")


def test_an_id_that_stands_twice_is_reached_by_position_only(door: Door, tmp_path: Path) -> None:
    """No TACO may have it: rows of a query stand for it there."""
    if door.name == "tortilla":
        twice = door.open(tmp_path, {"a": b"1", "b": b"2"}, {door.id: pa.array(["a", "a"])})
    else:
        dataset = taco.load(door.write(tmp_path, {"a": b"1"}))
        twice = dataset.sql("SELECT * FROM data UNION ALL SELECT * FROM data").data
    for _ in range(8):
        with pytest.raises(InvalidInputError, match="2 rows"):
            twice.read("a")
    assert twice.read_bytes(0) == b"1"


def test_paths(nested: Any, door: Door) -> None:
    path = nested["s10/imagery/after.bin"]
    assert path == nested.read("s10").read("imagery").read("after.bin")
    assert path.startswith("/vsisubfile/")
    assert door.ids(nested.read("s10/imagery")) == ["before.bin", "after.bin"]
    assert nested.leaf("s1/label.txt").file().read() == LEAVES["s1/label.txt"]
    for path in ("s10/nothing", "s10/label.txt/x", "nothing/imagery", "s10//label.txt", "/"):
        with pytest.raises(NotInContainerError):
            nested.read(path)


def test_walk_is_depth_first(nested: Any) -> None:
    assert [path for path, _ in nested.walk()] == list(LEAVES)
    assert read_all(nested) == LEAVES
    some = nested[2:]
    assert [path for path, _ in some.walk()] == [p for p in LEAVES if p.startswith("s1/")]


def test_rows_and_slices(frame: Any, door: Door) -> None:
    ids = door.ids
    assert len(frame) == COUNT
    assert frame.shape == frame.to_arrow().shape == (COUNT, len(frame.columns))
    assert frame.columns == frame.to_arrow().column_names
    assert frame.schema.equals(frame.to_arrow().schema)
    assert ids(frame) == [path for path, _ in frame.walk()] == NAMES
    assert ids(frame[1:6:2]) == ["s1", "s3", "s5"]
    assert ids(frame[::-3]) == ["s6", "s3", "s0"]
    assert frame[::-1].read_bytes(0) == PAYLOADS[6]
    assert len(frame[5:2]) == 0
    assert frame.head(2).read_bytes() == PAYLOADS[:2]
    assert frame.tail(2).read_bytes() == PAYLOADS[-2:]
    assert ids(frame.tail(9)) == NAMES
    assert ids(frame.filter(np.arange(COUNT) % 2 == 0)) == NAMES[::2]
    assert ids(frame.filter(pc.greater(frame["n"], 3))) == ["s4", "s5"]
    assert ids(frame.filter(pc.field("n") < 2)) == ["s0", "s1"]
    with pytest.raises(TypeError):
        iter(frame)


def test_protected_columns_stay(frame: Any, door: Door) -> None:
    chosen = frame.select(["n"])
    assert chosen.columns[0] == "n"
    assert {door.id, door.protected} <= set(chosen.columns)
    assert "stac:centroid" not in chosen.columns
    assert chosen.read_bytes("s2") == frame.select([]).read_bytes("s2") == PAYLOADS[2]
    assert frame[["stac:centroid", "n"]].columns[:2] == ["stac:centroid", "n"]
    dropped = frame.drop(["n"])
    assert "n" not in dropped.columns
    assert dropped.read_bytes(0) == PAYLOADS[0]
    for columns in ([door.id], [door.protected, "n"]):
        with pytest.raises(InvalidInputError, match="protected"):
            frame.drop(columns)
    for method in (frame.select, frame.drop):
        with pytest.raises(InvalidInputError, match="no column"):
            method(["nothing"])
        for wrong in ("n", 5, None, [5]):
            with pytest.raises(InvalidInputError, match="list of names"):
                method(wrong)


def test_other_libraries(frame: Any, door: Door) -> None:
    table = frame.to_arrow()
    assert isinstance(table, pa.Table)
    assert pa.table(frame).equals(table)
    assert pa.RecordBatchReader.from_stream(frame).read_all().equals(table)
    pandas = frame.to_pandas()
    assert isinstance(pandas, pd.DataFrame)
    assert pandas[door.id].tolist() == NAMES
    assert pl.DataFrame(frame)["n"].to_list() == table["n"].to_pylist()


def test_what_pandas_cannot_hold_is_told(door: Door, tmp_path: Path) -> None:
    times = pa.array([1], pa.timestamp("us", "No/Where"))
    frame = door.open(tmp_path, {"a": b"a"}, {"t": times})
    with pytest.raises(InvalidMetadataError, match="pandas"):
        frame.to_pandas()
    assert len(frame.drop(["t"]).to_pandas()) == 1


def test_columns_that_sql_takes_for_one_are_never_mixed_up(door: Door, tmp_path: Path) -> None:
    columns = {"Cloud": pa.array([1, 2]), "cloud": pa.array([3, 4])}
    frame = door.open(tmp_path, {"a": b"a", "b": b"b"}, columns)
    for name, values in columns.items():
        assert frame[name].to_pylist() == values.to_pylist()
    for ask, text in ((frame.sql, "SELECT cloud FROM data"), (frame.where, "cloud > 3")):
        with pytest.raises(QueryError, match="only in case"):
            ask(text)
    assert frame.drop(["Cloud"]).where("cloud > 3")["cloud"].to_pylist() == [4]


@pytest.mark.parametrize("kind", [pa.float16(), pa.list_(pa.float16()), pa.decimal256(50, 2)])
def test_columns_that_sql_has_no_type_for_are_told(door: Door, tmp_path: Path, kind: Any) -> None:
    columns = {"x": pa.nulls(2, kind), "n": pa.array([1, 2])}
    frame = door.open(tmp_path, {"a": b"a", "b": b"b"}, columns)
    for ask, text in ((frame.sql, "SELECT n FROM data"), (frame.where, "n > 1")):
        with pytest.raises(QueryError, match=r"no type(.|\n)*'x'(.|\n)*drop"):
            ask(text)
    assert frame.drop(["x"]).where("n > 1")["n"].to_pylist() == [2]


def test_no_column_is_taken_for_row_numbers(door: Door, tmp_path: Path) -> None:
    for name in ("comal_row", "rowid", "row"):
        frame = door.open(tmp_path, {"a": b"a", "b": b"b"}, {name: pa.array([1, 0])})
        assert door.ids(frame.where(f"{name} = 0")) == ["b"]


def test_html_is_escaped(door: Door, tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    far = pa.array([[9_000_000_000_000]], pa.list_(pa.timestamp("s")))
    frame = door.open(tmp_path, {"a": b"a"}, {bad: pa.array([bad]), "t": far})
    shown = frame._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "9000000000000" in shown
    assert "1 row" in repr(frame)


def test_async_twins(frame: Any, nested: Any) -> None:
    async def everything() -> None:
        assert await frame.read_async(1) == frame.read("s1")
        assert await frame.read_bytes_async([1], verify=False) == PAYLOADS[1:2]
        assert await frame.read_bytes_async([0, "s2"]) == [PAYLOADS[0], PAYLOADS[2]]
        path = "s1/label.txt"
        assert await nested.read_async(path) == nested.read(path)
        assert (await nested.read_async("s1")).read_bytes("label.txt") == LEAVES[path]
        with pytest.raises(NotInContainerError):
            await nested.read_async("nobody")

    asyncio.run(everything())


def test_pickles_lead_to_the_same_bytes(nested: Any) -> None:
    copy = pickle.loads(pickle.dumps(nested))
    assert copy.to_arrow().equals(nested.to_arrow())
    assert read_all(copy) == LEAVES
    child = pickle.loads(pickle.dumps(nested.read("s10")))
    assert child.read_bytes("label.txt") == LEAVES["s10/label.txt"]


def test_threads_share_a_frame(door: Door, tmp_path: Path) -> None:
    frame = door.open(tmp_path, SCENES)
    found: list[Any] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        found.append(read_all(frame))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [LEAVES] * 8
