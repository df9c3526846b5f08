"""Times as CF writes them: their units, and what a file says that has them."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import comal.raquet
from comal.errors import InvalidInputError
from comal.raquet.times import instants_of
from tests.raquet.checking.damage import rewritten
from tests.raquet.writing.sources import noise, on_grid

cftime = pytest.importorskip("cftime")

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def moments(values: list[float], units: str) -> list[str | None]:
    found = instants_of(values, units, "standard")
    return [
        None if one is None else (EPOCH + dt.timedelta(microseconds=one)).isoformat()[:19]
        for one in found
    ]


@pytest.mark.parametrize(
    "units",
    [
        "days since 1800-01-01",
        "Days Since 2000-1-1",
        "d since 2000-01-01 6:30:0",
        "hours since 1900-01-01 00:00:0.0",
        "hrs since 2000-01-01T00:00:00Z",
        "h since 2000-01-01 00:00:00 UTC",
        "minutes since 2000-01-01 00:00:00 +02:00",
        "mins since 2000-01-01 00:00 -0530",
        "secs since 1970-01-01",
        "msec since 1970-01-01 00:00:00",
        "microseconds since 1970-01-01",
    ],
)
def test_units_mean_what_cftime_says(units: str) -> None:
    values = [0.0, 1.5, 30_000.0]
    found = cftime.num2date(values, units, "standard", only_use_cftime_datetimes=True)
    wanted = [one.isoformat()[:19] for one in found]
    assert moments(values, units) == wanted


@pytest.mark.parametrize(
    ("units", "value", "wanted"),
    [
        ("months since 1800-01-01", 2_411.0, "2000-12-01T00:00:00"),
        ("month since 2000-01-31", 1.0, None),  # there is no 31st of February
        ("years since 1999-02-28 12:00", -2.0, "1997-02-28T12:00:00"),
        ("common_years since 2000-01-01", 1.0, "2001-01-01T00:00:00"),
        ("weeks since 2000-01-01", 2.0, "2000-01-15T00:00:00"),
        # Before 1582-10-15 the standard calendar is the Julian one.
        ("days since 0001-01-01", 730_122.0, "2000-01-02T00:00:00"),
        ("hours since 1500-02-28", 4_383_000.0, "2000-03-12T00:00:00"),
        ("days since 1582-10-15", -1.0, None),
        ("years since 2000-01-01", 9_000.0, None),  # beyond the years that a date has
    ],
)
def test_months_are_those_of_the_calendar(units: str, value: float, wanted: str | None) -> None:
    assert moments([value], units) == [wanted]


@pytest.mark.parametrize(
    ("units", "value"),
    [
        ("fortnights since 2000-01-01", 1.0),
        ("days", 1.0),
        ("days since the flood", 1.0),
        ("days since 0000-01-01", 1.0),
        ("days since 2000-13-01", 1.0),
        ("months since 2000-01-01", 0.5),
    ],
)
def test_units_that_nobody_knows(units: str, value: float) -> None:
    with pytest.raises(InvalidInputError):
        instants_of([value], units, "standard")


# -- what a file says ------------------------------------------------------------------------------


def series(folder: Path, **options: Any) -> Path:
    sources = [on_grid(folder / f"{n}.tif", noise((150, 150), "uint8", n)) for n in range(2)]
    named = {"time": ["2024-01-01", "2024-02-01"], "block_size": 32, "overwrite": True, "nodata": 0}
    path = folder / "series.parquet"
    comal.raquet.write(sources, path, **{**named, **options})
    return path


def document(path: Path | str) -> Any:
    return json.loads(pq.read_table(path, columns=["metadata"])["metadata"][0].as_py())


@pytest.mark.parametrize(("asked", "label"), [("0.1.0", "0.2.0"), ("0.5.0", "0.5.0")])
def test_a_series_has_the_version_that_brought_time(tmp_path: Path, asked: str, label: str) -> None:
    path = series(tmp_path, spec_version=asked)
    plain = tmp_path / "plain.parquet"
    comal.raquet.write(tmp_path / "0.tif", plain, block_size=32, spec_version=asked, nodata=0)
    parts = comal.raquet.partition(path, tmp_path / "parts")
    made: list[Any] = [
        path,
        *(part.path for part in parts),
        comal.raquet.merge(tmp_path / "parts", tmp_path / "merged.parquet").path,
        comal.raquet.repair(path, tmp_path / "mended.parquet"),
    ]
    assert {document(one)["version"] for one in made} == {label}
    assert {part.version for part in parts} == {label}
    for one in made:
        footer = pq.read_metadata(one).metadata
        assert footer[b"raquet:version"].decode() == label
        assert comal.raquet.check(one).ok
    assert document(plain)["version"] == asked


def test_a_series_of_another_version_is_told_and_mended(tmp_path: Path) -> None:
    path = series(tmp_path)
    with rewritten(path, tmp_path / "old.parquet") as text:
        text["version"] = "0.1.0"
    assert "raquet-version-early" in comal.raquet.check(tmp_path / "old.parquet").counts
    mended = comal.raquet.repair(tmp_path / "old.parquet", tmp_path / "new.parquet")
    assert document(mended)["version"] == "0.2.0"


@pytest.mark.parametrize(
    ("units", "values", "wanted"),
    [
        ("Hours Since 2024-1-1", [0.0, 744.0], ["2024-01-01", "2024-02-01"]),
        ("months since 2020-02-01 00:00:00 +00:00", [47.0, 48.0], ["2024-01-01", "2024-02-01"]),
        ("moons since 2024-01-01", [0.0, 1.0], None),
    ],
)
def test_repair_knows_odd_units(
    tmp_path: Path, units: str, values: list[float], wanted: list[str] | None
) -> None:
    """Instants are made anew from time_cf; in units that nobody knows they stay as they are."""
    path = series(tmp_path)
    table = pq.read_table(path)
    texts = [
        text and text.replace("days since 1970-01-01 00:00:00", units)
        for text in table["metadata"].to_pylist()
    ]
    first = pc.min(table["time_cf"]).as_py()
    numbers = [
        None if one is None else values[int(one > first)] for one in table["time_cf"].to_pylist()
    ]
    stamps = [None if one is None else dt.datetime(1999, 1, 1) for one in numbers]
    changed = {
        "metadata": pa.array(texts),
        "time_cf": pa.array(numbers, pa.float64()),
        "time_ts": pa.array(stamps, pa.timestamp("us")),
    }
    for name, column in changed.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    for named, without in (("wrong", []), ("gone", ["time_ts"])):
        odd = tmp_path / f"{named}.parquet"
        pq.write_table(table.drop_columns(without), odd)
        differs = "raquet-time-differs" in comal.raquet.check(odd).counts
        assert differs is (named == "wrong" and wanted is not None)
        mended = comal.raquet.repair(odd, tmp_path / f"{named}-new.parquet")
        assert comal.raquet.check(mended).ok
        found = pc.unique(pq.read_table(mended)["time_ts"].drop_null()).to_pylist()
        kept = [] if without else ["1999-01-01"]
        assert sorted(str(one.date()) for one in found) == (wanted or kept)
        with comal.raquet.open(mended) as raster:
            assert raster.times is not None
            assert raster.times.values.tolist() == values


def test_dates_before_the_reform_of_the_calendar_stay_gregorian(tmp_path: Path) -> None:
    path = series(tmp_path, time=["1500-03-01", "1600-01-01"])
    told = document(path)["time"]
    with comal.raquet.open(path) as raster:
        assert raster.times is not None
        numbers = raster.times.values
        assert [str(one)[:10] for one in raster.times.stamps] == ["1500-03-01", "1600-01-01"]
    found = cftime.num2date(numbers, told["cf:units"], told["cf:calendar"])
    assert [one.isoformat()[:10] for one in found] == ["1500-03-01", "1600-01-01"]
