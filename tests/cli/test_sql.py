"""``sql()`` and the command line of each format: geometry functions, and who runs isolated."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
import shapely

from comal import raquet, taco, tortilla
from comal.errors import ComalError, LimitExceededError, QueryError
from comal.grid import bounds, cells
from comal.query import Budget, isolated
from tests.cli.conftest import COLLECTION, Run
from tests.raquet.build import Plan, noise, write
from tests.servers.http import HttpServer

SHAPES: list[Any] = [
    shapely.Point(1, 2),
    None,
    shapely.box(0, 0, 3, 3),
    shapely.MultiPoint([(1, 1), (50, 50)]),
    shapely.Polygon(),
]
AREA = shapely.box(0.5, 0.5, 20, 20)
TILES = [(3, x, 3) for x in range(3, 6)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same shapes in each format, as it holds them: WKB, WKT, tiles."""
    place = tmp_path_factory.mktemp("files")
    ids = [f"s{n}" for n in range(len(SHAPES))]
    wkb = pa.array([None if one is None else one.wkb for one in SHAPES], pa.binary())
    columns = {"id": ids, "data": [one.encode() for one in ids], "istac:geometry": wkb}
    columns["istac:crs"] = ["EPSG:4326"] * len(SHAPES)
    samples = taco.Tortilla.from_table(pa.table(columns), id="id", path="data")
    taco.create(taco.Taco(samples, **COLLECTION), place / "a.tacozip")
    items = [
        tortilla.Sample(name, "BYTES", path=name.encode(), place=None if one is None else one.wkt)
        for name, one in zip(ids, SHAPES, strict=True)
    ]
    tortilla.create(items, place / "a.tortilla")
    tiles = {tile: [noise(n)] for n, tile in enumerate(TILES)}
    write(place / "a.parquet", tiles, Plan(bands=[("v", "uint8", None)]))
    names = {"taco": "a.tacozip", "tortilla": "a.tortilla", "raquet": "a.parquet"}
    return {kind: place / name for kind, name in names.items()}


COLUMNS = {
    "taco": ('"istac:geometry"', "data", "id"),
    "tortilla": ("place", "data", '"tortilla:id"'),
    "raquet": ("block", "tiles", "x"),
}


def query_of(kind: str) -> str:
    shape, table, order = COLUMNS[kind]
    return (
        f"SELECT ST_Area({shape}) AS area, ST_Intersects({shape}, '{AREA.wkt}') AS meets,"
        f" ST_Within({shape}, '{AREA.wkt}') AS inside, ST_AsText(ST_Centroid({shape})) AS middle,"
        f" ST_XMax({shape}) AS east FROM {table} ORDER BY {order}"
    )


def shapes_of(kind: str) -> list[Any]:
    if kind != "raquet":
        return SHAPES
    return [
        shapely.box(*(float(edge) for edge in bounds(cell)))
        for cell in [cells(*tile) for tile in TILES]
    ]


def wanted(kind: str) -> list[dict[str, Any]]:
    names = ("area", "meets", "inside", "middle", "east")
    return [
        dict.fromkeys(names)
        if one is None
        else {
            "area": one.area,
            "meets": one.intersects(AREA),
            "inside": one.within(AREA),
            "middle": one.centroid,
            "east": None if one.is_empty else one.bounds[2],
        }
        for one in shapes_of(kind)
    ]


def same(found: list[dict[str, Any]], kind: str) -> bool:
    rows = [{**row, "middle": row["middle"] and shapely.from_wkt(row["middle"])} for row in found]
    for row, right in zip(rows, wanted(kind), strict=True):
        for name, value in right.items():
            if isinstance(value, float):
                assert row[name] == pytest.approx(value), name
            elif isinstance(value, shapely.Geometry) and not value.is_empty:
                assert shapely.equals_exact(row[name], value, 1e-6), name
            else:
                assert row[name] == value, name
    return len(rows) > 0


def asked(kind: str, path: object, query: str, **options: Any) -> Any:
    """The answer of the format's `sql`."""
    if kind == "taco":
        with taco.load(str(path)) as dataset:
            return dataset.sql(query, **options).data.to_arrow()
    if kind == "tortilla":
        return tortilla.open(str(path)).sql(query, **options)
    return raquet.sql(str(path), query, **options)


KINDS = list(COLUMNS)


@pytest.mark.parametrize("kind", KINDS)
def test_geometry_in_sql_and_on_the_command_line(
    files: dict[str, Path], run: Run, kind: str
) -> None:
    path, query = files[kind], query_of(kind)
    assert same(asked(kind, path, query).to_pylist(), kind)
    printed = run(kind, "sql", path, query, "--json").stdout.splitlines()
    assert same([json.loads(line) for line in printed], kind)
    with pytest.raises(QueryError):
        asked(kind, path, f"SELECT ST_Area('\\x01'::BLOB) AS a FROM {COLUMNS[kind][1]}")
    run(kind, "sql", path, "SELECT ST_Area('POINT (1') AS a", code=2)


def test_geometry_in_views_on_views(files: dict[str, Path], tmp_path: Path) -> None:
    with taco.load(files["taco"]) as dataset:
        close = dataset.sql(
            'SELECT * FROM data WHERE ST_Intersects("istac:geometry", $area)', {"area": AREA.wkb}
        )
        small = close.sql('SELECT *, ST_Area("istac:geometry") AS km FROM data').sql(
            "SELECT * FROM data WHERE km < 5"
        )
        assert small.data["id"].to_pylist() == ["s0", "s3"]
        assert small.data.read_bytes() == [b"s0", b"s3"]
        assert close.filter_bbox(0, 0, 1, 1).data["id"].to_pylist() == ["s2", "s3"]
        taco.export(close, tmp_path / "b.tacozip", quiet=True)
    assert taco.load(tmp_path / "b.tacozip").data["id"].to_pylist() == ["s0", "s2", "s3"]


def test_rows_of_a_tortilla(files: dict[str, Path]) -> None:
    frame = tortilla.open(files["tortilla"])
    inside = frame.where("ST_Intersects(place, $area)", {"area": AREA.wkb})
    assert inside.read_bytes() == [b"s0", b"s2", b"s3"]
    # A condition chooses rows; whatever else it is made to say changes nothing in them.
    for condition in ("false) UNION ALL (SELECT 3", "false) UNION ALL (SELECT 99", "NULL"):
        found = frame.where(condition)
        assert found.read_bytes() == [b"s3"] * len(found)
    for made_up in ("'/etc/passwd'", "'/vsisubfile/0_9,/etc/passwd'", "7"):
        with pytest.raises(ComalError, match="internal:subfile"):
            frame.sql(f'SELECT * REPLACE ({made_up} AS "internal:subfile") FROM data')
    kept = frame.sql('SELECT "internal:subfile" AS a, "internal:subfile" FROM data')
    assert kept["internal:subfile"].equals(frame["internal:subfile"])
    with pytest.raises(QueryError):
        frame.where("nothing < 3")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each limited process was given credentials, as they are started."""
    found: list[bool] = []
    popen: Callable[..., Any] = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> Any:
        found.append("AWS_SECRET_ACCESS_KEY" in options["env"])
        return popen(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", noted)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_from_elsewhere_runs_isolated(
    files: dict[str, Path], run: Run, http_server: HttpServer, started: list[bool], kind: str
) -> None:
    path, query = files[kind], query_of(kind)
    url = http_server.put(path.name, path.read_bytes())
    for source, options, processes in ((path, (), 0), (url, ("--trusted",), 0), (url, (), 1)):
        printed = run(kind, "sql", source, query, "--json", *options).stdout.splitlines()
        assert same([json.loads(line) for line in printed], kind)
        assert len(started) == processes, (source, options)
    # Credentials go to a process that asks the network, and to no other; the rows of a
    # Tortilla are read before.
    assert started == [kind != "tortilla"]


@pytest.mark.parametrize("kind", KINDS)
def test_isolated_answers_are_the_same(
    files: dict[str, Path], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the bytes that a process would get to those that it would send, without one."""

    def answer(_: Any, request: bytes, budget: Budget) -> bytes:
        granted, function, args = pickle.loads(request)
        assert granted == budget in (Budget(), Budget(wall=9))
        return isolated.RESULT + isolated.packed(function(*args))

    popen = mock.MagicMock()
    popen.return_value.__enter__.return_value.returncode = 0
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(isolated, "_exchange", answer)
    for how in (True, Budget(wall=9)):
        assert same(asked(kind, files[kind], query_of(kind), isolated=how).to_pylist(), kind)
    if kind == "tortilla":
        later = tortilla.open(files[kind]).where("\"tortilla:id\" > 's2'", isolated=True)
        assert later["tortilla:id"].to_pylist() == ["s3", "s4"]
    assert popen.call_count == 2 + (kind == "tortilla")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_here_runs_isolated_if_asked(
    files: dict[str, Path], run: Run, started: list[bool], kind: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))  # that it starts is enough
    told = run(kind, "sql", files[kind], "SELECT 1 AS a", "--untrusted", code=2).stderr
    assert "process ended without an answer" in told
    assert started == [False]


def test_conditions_over_what_comes_from_elsewhere(
    files: dict[str, Path], run: Run, http_server: HttpServer, started: list[bool], tmp_path: Path
) -> None:
    for kind, command, name in (("taco", "export", "id"), ("tortilla", "compile", "tortilla:id")):
        started.clear()
        url = http_server.put(files[kind].name, files[kind].read_bytes())
        output = tmp_path / files[kind].name
        run(kind, command, url, output, "--where", f"\"{name}\" > 's2'")
        assert started
        assert asked(kind, output, "SELECT * FROM data")[name].to_pylist() == ["s3", "s4"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_is_kept(files: dict[str, Path], kind: str) -> None:
    endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t"
    with pytest.raises(LimitExceededError, match="too long") as caught:
        asked(kind, files[kind], endless, isolated=Budget(wall=0.001))
    assert "at most 0.001 s" in (caught.value.expected or "")
    assert "Budget" in (caught.value.hint or "")
