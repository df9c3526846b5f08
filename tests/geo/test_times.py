from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError
from comal.geo.places import periods
from comal.geo.times import isoformat, middles, parse_instant, parse_range, timestamps

DAY = 86_400_000_000
NEW_YEAR = 1_672_531_200_000_000  # 2023-01-01T00:00:00Z


@pytest.mark.parametrize(
    "value",
    [
        NEW_YEAR,
        "2023-01-01",
        "2023-01-01T00:00:00Z",
        "2023-01-01t00:00:00z",  # RFC 3339, 5.6
        "2023-01-01T01:00:00+01:00",
        "2023-01-01 00:00",
        dt.date(2023, 1, 1),
        dt.datetime(2023, 1, 1),
        dt.datetime(2023, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        np.datetime64("2023-01-01"),
        np.datetime64("2023-01-01T00:00:00", "s"),
        np.datetime64("2023-01-01T00:00:00", "ns"),
        np.int64(NEW_YEAR),
    ],
)
def test_instants(value: Any) -> None:
    assert parse_instant(value) == NEW_YEAR


@pytest.mark.parametrize(
    "value", ["yesterday", "", 1.5, True, None, np.datetime64("NaT"), 2**63, "2023-13-01", b"x"]
)
def test_no_instants(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a point in time"):
        parse_instant(value, "time_start")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2023-01-01", (NEW_YEAR, NEW_YEAR + DAY - 1)),
        ("2023-01-01/2023-01-02", (NEW_YEAR, NEW_YEAR + 2 * DAY - 1)),
        ("../2023-01-01", (None, NEW_YEAR + DAY - 1)),
        ("2023-01-01/..", (NEW_YEAR, None)),
        ("2023-01-01/", (NEW_YEAR, None)),
        ("../..", (None, None)),
        ("2023-01-01T00:00:00Z/2023-01-01T00:00:01Z", (NEW_YEAR, NEW_YEAR + 1_000_000)),
        ("2023-01-01T00:00:00", (NEW_YEAR, NEW_YEAR)),
        (dt.datetime(2023, 1, 1), (NEW_YEAR, NEW_YEAR)),
        (dt.date(2023, 1, 1), (NEW_YEAR, NEW_YEAR + DAY - 1)),
        ((dt.datetime(2023, 1, 1), None), (NEW_YEAR, None)),
        (("..", "2023-01-01"), (None, NEW_YEAR + DAY - 1)),
        ([NEW_YEAR, NEW_YEAR + 5], (NEW_YEAR, NEW_YEAR + 5)),
        (np.datetime64("2023-01"), (NEW_YEAR, NEW_YEAR + 31 * DAY - 1)),
        (np.datetime64("2023"), (NEW_YEAR, NEW_YEAR + 365 * DAY - 1)),
    ],
)
def test_ranges(value: Any, expected: tuple[int | None, int | None]) -> None:
    assert parse_range(value) == expected


@pytest.mark.parametrize(
    "value", ["2023-02-01/2023-01-01", "a/b/c", "..", None, (), ("2023",), "2023-01-01/x"]
)
def test_no_ranges(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        parse_range(value)


@given(st.datetimes(min_value=dt.datetime(1600, 1, 1), timezones=st.timezones()))
@settings(max_examples=60, deadline=None)
def test_text_and_datetime_agree(moment: dt.datetime) -> None:
    instant = parse_instant(moment)
    assert parse_instant(moment.isoformat()) == instant
    assert parse_instant(isoformat(instant)) == instant


@given(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62))
@settings(max_examples=60, deadline=None)
def test_middle_is_the_floor(first: int, last: int) -> None:
    assert middles([first], [last])[0] == (first + last) // 2


@pytest.mark.parametrize(
    "values",
    [
        [NEW_YEAR, None],
        ["2023-01-01T00:00:00Z", None],
        np.array(["2023-01-01", "NaT"], "datetime64[s]"),
        pa.array([NEW_YEAR, None]),
        pa.array([NEW_YEAR * 1000, None], pa.timestamp("ns", "Europe/Madrid")),
        pa.array([dt.date(2023, 1, 1), None]),
        pa.chunked_array([pa.array(["2023-01-01"]), pa.array([None], pa.string())]),
    ],
)
def test_columns_of_times(values: Any) -> None:
    found = timestamps(values)
    assert found.type == pa.timestamp("us")
    assert found.cast(pa.int64()).to_pylist() == [NEW_YEAR, None]


def test_columns_of_numpy_integers_and_nulls() -> None:
    assert timestamps(np.array([5], np.int32)).cast(pa.int64()).to_pylist() == [5]
    assert timestamps(pa.nulls(2)).null_count == 2


def test_periods_of_rows_without_some_times() -> None:
    start, end = pa.array([5, 5, None, None]), pa.array([9, None, 9, None])
    table = pa.table({"stac:time_start": start, "stac:time_end": end})
    first, last = (part.astype(np.int64).tolist() for part in periods(table))
    assert first == [5, 5, *first[2:]]
    assert last == [9, 5, 9, last[3]]
    assert max(first[2:]) < -(2**53) < 2**53 < last[3]
    first, last = periods(table.select(["stac:time_start"]))
    assert last.astype(np.int64).tolist()[:2] == [5, 5]
