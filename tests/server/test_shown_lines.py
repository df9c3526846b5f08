"""The lines of Python that are shown beside what is chosen load just that."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from comal import server, tortilla
from tests.server.asking import ask
from tests.server.making import point, tiff

DAY = 86_400
START = 1_672_531_200  # 2023-01-01T00:00:00Z


def raster_file(path: Path) -> Path:
    """Items with the columns of `stac-tortilla`: a degree wide each, a day apart, two nested."""
    inner = path.with_name("inner.tortilla")
    tortilla.create([tortilla.Sample(id="x", path=b"x", file_format="BYTES")], inner)
    samples = []
    for number in range(6):
        stac = tortilla.STAC(
            crs="EPSG:4326",
            raster_shape=(8, 8),
            geotransform=(number * 10.0, 0.125, 0.0, 5.0, 0.0, -0.125),
            time_start=START + number * DAY + 0.25 * DAY,
        )
        nested = number > 3
        body: Any = inner if nested else tiff(np.full((1, 8, 8), number, np.uint8))
        kind = "TORTILLA" if nested else "GTiff"
        name, score = f"item {number}", number / 2
        samples.append(tortilla.Sample(name, kind, body, stac_data=stac, score=score))
    tortilla.create(samples, path)
    return path


def column_file(path: Path, **columns: Any) -> Path:
    """Items of a byte with these columns."""
    count = len(next(iter(columns.values())))
    table = pa.table(
        {
            "tortilla:id": [f"item {number}" for number in range(count)],
            "tortilla:file_format": ["BYTES"] * count,
            "path": pa.array([b"x"] * count, pa.binary()),
            **columns,
        }
    )
    tortilla.create(table, path)
    return path


def both(path: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Ids of the answer, and ids of the rows that its lines load."""
    reply = ask(server.app({"a": str(path)}), f"/a/items?{query}")
    assert reply.status == 200, reply.body
    document = reply.json()
    names: dict[str, Any] = {}
    monkeypatch.chdir(path.parent)
    exec(document["python"], names)  # that it runs is what is tested
    return [item["id"] for item in document["features"]], names["rows"]["tortilla:id"].to_pylist()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("bbox=9,4.5,20.5,6", [1, 2]),
        ("bbox=49.5,0,5,6", [0, 5]),  # over the antimeridian
        ("datetime=2023-01-02/2023-01-04", [1, 2, 3]),
        ("datetime=../2023-01-02", [0, 1]),
        ("datetime=2023-01-03T06:00:00Z/..", [2, 3, 4, 5]),
        ("datetime=2023-01-03T06:00:00.5Z/..", [3, 4, 5]),
        ("bbox=0,0,45,6&datetime=2023-01-03/..&filter=" + quote("score < 2 AND id <> 'z'"), [2, 3]),
        ("filter=" + quote("type = 'FOLDER'"), [4, 5]),
        ("filter=" + quote("\"stac:time_start\" > TIMESTAMP('2023-01-05T00:00:00Z')"), [4, 5]),
    ],
)
def test_rasters(
    tmp_path: Path, query: str, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, loaded = both(raster_file(tmp_path / "a.tortilla"), query, monkeypatch)
    assert answered == loaded == [f"item {number}" for number in expected]


def test_points_as_text_or_wkb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [(-170.0, 1.0), (0.0, 0.0), (175.0, -1.0)]
    texts = [f"POINT ({x} {y})" for x, y in places]
    text_file = column_file(tmp_path / "text.tortilla", **{"stac:centroid": texts})
    shapes = pa.array([point(x, y) for x, y in places], pa.binary())
    wkb_file = column_file(tmp_path / "wkb.tortilla", **{"istac:geometry": shapes})
    for path in (text_file, wkb_file):
        for query, expected in (("bbox=170,-5,-165,5", [0, 2]), ("bbox=-1,-1,1,1", [1])):
            answered, loaded = both(path, query, monkeypatch)
            assert answered == loaded == [f"item {number}" for number in expected], path


def test_lines_are_those_that_people_write(tmp_path: Path) -> None:
    path = raster_file(tmp_path / "a.tortilla")
    app = server.app({"a": str(path)})
    query = "bbox=0,0,45,6&datetime=2023-01-03/..&filter=score<2"
    assert ask(app, f"/a/items?{query}").json()["python"].splitlines() == [
        "from comal import tortilla",
        "",
        'rows = tortilla.open("a.tortilla")',
        """rows = rows.where('"score" < 2')""",
        'rows = rows.filter_datetime("2023-01-03/..")',
        "rows = rows.filter_bbox(0.0, 0.0, 45.0, 6.0)",
    ]


def test_a_turned_raster_is_less_than_its_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {
        "stac:crs": ["EPSG:4326", "EPSG:32633"],
        "stac:geotransform": [[0.0, 1, 1, 0, 1, -1], [5e5, 7e2, 7e2, 5e6, 7e2, -7e2]],
        "stac:raster_shape": [[10, 10], [1000, 1000]],
    }
    path = column_file(tmp_path / "a.tortilla", **columns)
    for query, expected in (
        ("bbox=0,-10,20,10", ["item 0"]),
        ("bbox=0,5,2,10", []),
        ("bbox=9,-1,30,46", ["item 0", "item 1"]),
        ("bbox=15.5,49.5,16,50", []),
    ):
        answered, loaded = both(path, query, monkeypatch)
        assert answered == loaded == expected, query


def test_times_as_timestamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = pa.array([0, 1_500_000, 3_000_000], pa.timestamp("us", "UTC"))
    path = column_file(tmp_path / "a.tortilla", **{"istac:time_start": moments})
    query = "datetime=1970-01-01T00:00:01Z/1970-01-01T00:00:02Z"
    answered, loaded = both(path, query, monkeypatch)
    assert answered == loaded == ["item 1"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("seen > TIMESTAMP('1970-01-01T00:00:01Z')", [1, 2, 3]),
        ("seen >= TIMESTAMP('1970-01-01T00:00:01.500001Z')", [2, 3]),
        ("seen < TIMESTAMP('1970-01-01T00:00:01.5Z')", [0]),
        ("TIMESTAMP('1970-01-01T00:00:01.5Z') >= seen", [0, 1]),
        ("seen = TIMESTAMP('1970-01-01T00:00:01.5Z')", [1]),
        ("seen <> TIMESTAMP('1970-01-01T00:00:01.5Z')", [0, 2, 3]),
        ("seen = DATE('1970-01-01')", [0, 1, 2]),
        ("seen <= DATE('1970-01-01')", [0, 1, 2]),
        ("NOT seen = DATE('1970-01-01')", [3]),
        ("seen > '1970-01-01'", [3]),
        (
            "seen BETWEEN '1970-01-01T00:00:01.5Z' AND TIMESTAMP('1970-01-01T00:00:03.25Z')",
            [1, 2],
        ),
        ("seen IN (TIMESTAMP('1970-01-01T00:00:03.25Z'), DATE('1970-01-02'))", [2, 3]),
        ("day = DATE('1970-01-01')", [0, 1, 2]),
        ("\"stac:time_start\" = TIMESTAMP('1970-01-01T00:00:01.5Z')", []),
        ("\"stac:time_start\" >= TIMESTAMP('1970-01-01T00:00:00.5Z')", [1, 2, 3]),
        ("\"stac:time_start\" <= TIMESTAMP('1970-01-01T00:00:01Z')", [0, 1]),
        ('seen > "stac:time_start"', [1, 2]),
        ('"stac:time_start" = "stac:time_end"', [0]),
    ],
)
def test_filters_on_times_are_exact(
    tmp_path: Path, condition: str, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = [0, 1_500_000, 3_250_000, 1_000_000 * DAY]
    seen = pa.array([*moments, None], pa.timestamp("us", "UTC"))
    columns = {
        "seen": seen,
        "day": seen.cast(pa.timestamp("us")).cast(pa.date32(), safe=False),
        "stac:time_start": pa.array([0, 1, 3, DAY, None], pa.int64()),
        "stac:time_end": pa.array([0, 2, 4, DAY + 1, None], pa.int64()),
    }
    path = column_file(tmp_path / "a.tortilla", **columns)
    answered, loaded = both(path, "filter=" + quote(condition), monkeypatch)
    assert answered == loaded == [f"item {number}" for number in expected]
