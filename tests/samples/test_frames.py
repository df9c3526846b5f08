"""What frames of all formats have in common, asked of the same samples in each."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from comal import taco, tortilla
from comal.errors import InvalidInputError, InvalidMetadataError, NotInContainerError, QueryError
from tests.server.making import COLLECTION

COUNT = 7
TIMES = [1_600_000_000 + 86_400 * n for n in range(COUNT)]
KEYS = {"taco": "id", "tortilla": "tortilla:id"}


def _columns(folder: Path, kind: str) -> Any:
    """The same samples: places on the equator, days, numbers, one null of each."""
    paths = []
    for n in range(COUNT):
        paths.append(str(folder / f"p{n}"))
        Path(paths[-1]).write_bytes(b"payload %d" % n)
    centres = [f"POINT ({n * 10} 0)" for n in range(COUNT - 1)] + [None]
    seconds = pa.array([*TIMES[:-1], None], pa.int64())
    times = seconds if kind == "tortilla" else seconds.cast(pa.timestamp("s")).cast("timestamp[us]")
    common = {"stac:time_start": times, "n": pa.array([*range(COUNT - 1), None], pa.int64())}
    if kind == "tortilla":
        places = pa.array(centres)
    else:
        wkb = [b"\1\1\0\0\0" + np.array([n * 10.0, 0.0]).tobytes() for n in range(COUNT - 1)]
        places = pa.array([*wkb, None], pa.binary())
    names = [f"s{n}" for n in range(COUNT)]
    return pa.table({"id": names, "path": paths, "stac:centroid": places, **common})


@pytest.fixture(params=["taco", "tortilla"])
def frame(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    kind = request.param
    table = _columns(tmp_path, kind)
    if kind == "taco":
        taco.create(
            taco.Taco(taco.Tortilla.from_table(table), **COLLECTION), tmp_path / "a.tacozip"
        )
        return taco.load(tmp_path / "a.tacozip").data
    formats = pa.array(["BYTES"] * COUNT)
    table = table.rename_columns(["tortilla:id", *table.column_names[1:]])
    tortilla.create(table.append_column("tortilla:file_format", formats), tmp_path / "a.tortilla")
    return tortilla.open(tmp_path / "a.tortilla")


def ids(frame: Any) -> list[str]:
    name = KEYS["taco" if isinstance(frame, taco.TacoDataFrame) else "tortilla"]
    found: list[str] = frame[name].to_pylist()
    return found


def test_rows_are_found_by_place_time_and_sql(frame: Any) -> None:
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
    with pytest.raises(InvalidInputError, match="nothing of where"):
        bare.filter_bbox(0, 0, 1, 1)
    with pytest.raises(InvalidInputError, match="nothing of the time"):
        bare.filter_datetime("2020-01-01")
    for argument in ("geometry_col", "time_col"):
        call = frame.filter_bbox if argument == "geometry_col" else frame.filter_datetime
        values: tuple[Any, ...] = (0, 0, 1, 1) if argument == "geometry_col" else ("2020-01-01",)
        with pytest.raises(InvalidInputError, match="no column"):
            call(*values, **{argument: "nothing"})
    with pytest.raises(InvalidInputError, match="no geometry"):
        frame.filter_bbox(0, 0, 1, 1, geometry_col="n")


def test_columns_of_places_with_wrong_types_are_named(tmp_path: Path) -> None:
    """Of a Tortilla `server/test_finding.py` tries them, as none can be written."""
    table = _columns(tmp_path, "taco").drop_columns(["stac:centroid"])
    table = table.append_column("stac:centroid", pa.array(range(COUNT)))
    taco.create(taco.Taco(taco.Tortilla.from_table(table), **COLLECTION), tmp_path / "a.tacozip")
    opened = taco.load(tmp_path / "a.tacozip")
    with pytest.raises(InvalidMetadataError, match="wrong types") as caught:
        opened.filter_bbox(0, 0, 1, 1)
    assert "stac:centroid int64" in str(caught.value.found)


def test_queries_make_up_no_paths(frame: Any) -> None:
    with pytest.raises(QueryError, match="changed"):
        frame.sql(f"SELECT '/etc/passwd' AS \"{frame.VSI}\" FROM data")
    kept = frame.sql(f'SELECT "{frame.VSI}" FROM data WHERE n = 1')[frame.VSI].to_pylist()
    assert kept == frame[frame.VSI].to_pylist()[1:2]
    with pytest.raises(QueryError):
        frame.where("no_such_column > 1")


def test_keys(frame: Any) -> None:
    every = [b"payload %d" % n for n in range(COUNT)]
    assert frame.read_bytes() == every
    for keys in ([0, -1], ["s0", "s6"], np.array([0, 6]), [np.int64(0), "s6"], iter([0, 6])):
        assert frame.read_bytes(keys) == [every[0], every[6]]
    assert frame.read_bytes("s2") == frame.read_bytes(np.int32(2)) == every[2]
    assert frame.open(3).read() == frame.leaf("s3").file().read() == every[3]
    assert asyncio.run(frame.read_bytes_async([1], verify=False)) == every[1:2]
    assert asyncio.run(frame.read_async(1)) == frame[1] == frame.read("s1")
    assert ids(frame[1:6:2]) == ["s1", "s3", "s5"]
    assert ids(frame[::-3]) == ["s6", "s3", "s0"]
    assert [path for path, _ in frame.walk()] == ids(frame)
    for key in (COUNT, -COUNT - 1, np.int64(100), "nothing"):
        with pytest.raises(NotInContainerError):
            frame.read_bytes([key])
    for odd in (1.5, True, [1.5], [None], object()):
        with pytest.raises(InvalidInputError):
            frame.read_bytes(odd)
