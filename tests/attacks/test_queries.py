"""Queries that aim reads at other bytes: what is read is the sample's own, or an error says so."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from comal import taco
from comal.errors import ComalError
from comal.taco.reading.dataset import TacoDataset
from comal.taco.reading.frame import TacoDataFrame
from tests.attacks.build import Index, Recipe, Tree, folder
from tests.attacks.corpus import FULL
from tests.servers.http import HttpServer
from tests.taco.read.scenes import expected, scenes

FIRST, SECOND = scenes("s2", "s10"), scenes("s1", "s3")
STRANGER: Tree = {
    scene: {
        "imagery": {"before.bin": b"stolen" * 5, "after.bin": b"stolen" * 5},
        "label.txt": b"stolen",
    }
    for scene in ("s2", "s10", "s1", "s3", "elsewhere")
}
_ROWS = 6
OWN = {**expected(FIRST), **expected(SECOND)}

QUERIES = [
    # Spans replaced.
    'SELECT * REPLACE ("internal:offset" + 1 AS "internal:offset") FROM {t}',
    'SELECT * REPLACE (0 AS "internal:offset", 64 AS "internal:size") FROM {t}',
    'SELECT * REPLACE (-1 AS "internal:offset") FROM {t}',
    "SELECT * REPLACE ('x' AS \"internal:size\") FROM {t}",
    ('SELECT * REPLACE (lead("internal:offset") OVER () AS "internal:offset",'
    ' lead("internal:size") OVER () AS "internal:size") FROM {t}'),
    'SELECT * EXCLUDE ("internal:offset"), 0 AS "internal:offset" FROM {t}',
    'SELECT id, type, 0 AS "internal:offset", 10 AS "internal:size" FROM {t}',
    # Names and numbers of rows replaced.
    "SELECT * REPLACE (lead(id) OVER () AS id) FROM {t}",
    "SELECT * REPLACE ('label.txt' AS id) FROM {t}",
    'SELECT * REPLACE ("internal:current_id" + 1 AS "internal:current_id") FROM {t}',
    'SELECT * REPLACE (1000000 AS "internal:current_id") FROM {t}',
    'SELECT * REPLACE (0.5 AS "internal:current_id") FROM {t}',
    "SELECT * REPLACE ('s10/label.txt' AS \"internal:relative_path\") FROM {t}",
    "SELECT * REPLACE ('../../stranger.bin' AS \"internal:relative_path\") FROM {t}",
    "SELECT * REPLACE ('FILE' AS type) FROM {t}",
    "SELECT * REPLACE ('FOLDER' AS type) FROM {t}",
    'SELECT * EXCLUDE ("internal:current_id") FROM {t}',
    ('SELECT * EXCLUDE ("internal:current_id")'
    " REPLACE ('s10/label.txt' AS \"internal:relative_path\") FROM {t}"),
    'SELECT * EXCLUDE ("internal:relative_path") FROM {t}',
    # Paths for GDAL.
    "SELECT * REPLACE ('{stranger}' AS \"internal:gdal_vsi\") FROM {t}",
    "SELECT id, '/vsisubfile/0_10,{stranger}' AS \"internal:gdal_vsi\" FROM {t}",
    "SELECT '{stranger}' AS \"internal:gdal_vsi\"",
    'SELECT 5 AS "internal:gdal_vsi" FROM {t}',
    'SELECT *, NULL AS "internal:gdal_vsi" FROM (SELECT * EXCLUDE ("internal:gdal_vsi") FROM {t})',
    'SELECT id, "internal:gdal_vsi" FROM {t}',
    'SELECT "internal:gdal_vsi" FROM {t}',
    # The part of an index.
    ("SELECT *, 'stranger.tacozip' AS \"internal:source_file\" FROM"
    " (SELECT COLUMNS(c -> c <> 'internal:source_file') FROM {t})"),
    ("SELECT *, '../stranger.tacozip' AS \"internal:source_file\" FROM"
    " (SELECT COLUMNS(c -> c <> 'internal:source_file') FROM {t})"),
    # The same by other ways: names of columns that no text holds, sets, joins, chains.
    "SELECT COLUMNS('(.*)offset') + 1 AS \"\\1offset\", COLUMNS(c -> c !~~ '%:offset') FROM {t}",
    "SELECT a.id, b.* EXCLUDE (id) FROM {t} a, {t} b",
    "SELECT a.* FROM {t} a, {t} b",
    "SELECT a.*, b.* FROM {t} a, {t} b",
    "SELECT a.* FROM (VALUES (1), (2)) v LEFT JOIN {t} a ON false",
    'SELECT * FROM {t} UNION ALL SELECT * REPLACE (0 AS "internal:offset") FROM {t}',
    ("SELECT * FROM data WHERE false UNION ALL"
    ' SELECT * REPLACE (0 AS "internal:offset", 30 AS "internal:size") FROM data'),
    ("SELECT * FROM data WHERE false UNION SELECT * REPLACE ('{stranger}' AS \"internal:gdal_vsi\")"
    " FROM data"),
    'WITH x AS (SELECT * REPLACE (0 AS "internal:offset") FROM {t}) SELECT * FROM x',
    'SELECT * FROM (SELECT * REPLACE (7 AS "internal:size") FROM {t}) AS data',
    ('SELECT * RENAME ("internal:size" AS "internal:offset", "internal:offset" AS "internal:size")'
    " FROM {t}"),
    'SELECT any_value(COLUMNS(*)) AS "\\0" FROM {t}',
    'SELECT max(COLUMNS(*)) AS "\\0" FROM {t}',
    "SELECT unnest({{'id': 's2', 'type': 'FILE', 'internal:offset': 0, 'internal:size': 50}})",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives, and beside them one of a stranger with entries of the same names."""
    place = tmp_path_factory.mktemp("place")
    parts = {"first.tacozip": Recipe(tree=FIRST), "second.tacozip": Recipe(tree=SECOND)}
    Index(parts=parts).write(place, ("single",))
    (place / "stranger.tacozip").write_bytes(Recipe(tree=STRANGER).build())
    (place / "stranger.bin").write_bytes(b"stolen")
    folder(place / "tree", FIRST)
    return place


KINDS = {
    "zip": "data",
    "folder": "data",
    "tacocat": "level2",
    "concat": "data",
    "remote": "level2",
}
"""And the table that is queried in each; a full sweep queries both."""


@pytest.fixture(params=KINDS)
def dataset(
    request: pytest.FixtureRequest, place: Path, http_server: HttpServer
) -> Iterator[TacoDataset]:
    where: dict[str, Any] = {
        "zip": place / "first.tacozip",
        "folder": place / "tree",
        "tacocat": place / "__TACOCAT__",
        "concat": [place / "first.tacozip", place / "second.tacozip"],
    }
    if request.param == "remote":
        data = (place / "first.tacozip").read_bytes()
        where["remote"] = http_server.put("first.tacozip", data)
    with taco.load(where[request.param]) as opened:
        yield opened


def texts(place: Path, table: str) -> list[str]:
    return [text.format(t=table, stranger=place / "stranger.bin") for text in QUERIES]


def paths_of(dataset: TacoDataset) -> set[str | None]:
    views = [dataset, dataset.sql("SELECT * FROM level1"), dataset.sql("SELECT * FROM level2")]
    return {path for view in views for path in view.data["internal:gdal_vsi"].to_pylist()}


def wrong(frame: TacoDataFrame, known: set[str | None]) -> Iterator[object]:
    """Whatever rows of a query lead to that is not what they claim to be."""
    table = frame.to_arrow()
    names = table.column_names
    if "internal:gdal_vsi" in names:
        yield from set(table["internal:gdal_vsi"].to_pylist()) - known - {None}
    for row, shown in enumerate(table.to_pylist()[:_ROWS]):
        own = shown.get("internal:relative_path") or shown.get("id")
        for read in (frame.read_bytes, frame.read, frame.open, frame.leaf):
            try:
                found: Any = read(row)
            except ComalError:
                continue
            if read == frame.read and isinstance(found, TacoDataFrame):
                below = {own.rstrip("/") + "/" + name for name in found["id"].to_pylist()}
                yield from below - {p.rstrip("/") for p in ALL}
            elif read == frame.read and found not in known:
                yield found
            elif read == frame.read_bytes and found != OWN.get(own):
                yield row, own, found
            elif read == frame.open and found.read() != OWN.get(own):
                yield row, own


ALL = {"/".join(path.split("/")[:n]) for path in OWN for n in range(1, 4)}


@pytest.mark.parametrize(
    ("dataset", "table"),
    [
        (kind, table)
        for kind in KINDS
        for table in ("data", "level2")
        if FULL or KINDS[kind] == table
    ],
    indirect=["dataset"],
)
def test_no_query_aims_a_read(dataset: TacoDataset, place: Path, table: str) -> None:
    known = paths_of(dataset)
    failures: list[object] = []
    answered = 0
    for text in texts(place, table):
        try:
            frame = dataset.sql(text).data
        except ComalError:
            continue
        answered += 1
        failures += [(text, what) for what in wrong(frame, known)]
        if table != "data":
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                flat = dataset.sql(text).flatten(2)
            except ComalError:
                continue
            failures += [(text, "flat", what) for what in wrong(flat, known)]
    assert failures == []
    assert answered


def test_honest_queries_go_on_reading(dataset: TacoDataset) -> None:
    for text in (
        "SELECT *, 1 AS more FROM level2",
        "SELECT a.* FROM level2 a JOIN level2 b USING (id)",
        "SELECT * FROM level1 WHERE type = 'FILE' UNION ALL SELECT * FROM level2",
        'SELECT * EXCLUDE ("internal:gdal_vsi") FROM level2',
        'SELECT * FROM l2 JOIN level2 ON "l2:internal:relative_path" = "internal:relative_path"',
        'SELECT max("internal:current_id") AS "internal:current_id" FROM data GROUP BY type',
    ):
        frame = dataset.sql(text).data
        assert len(frame), text
        for row, shown in enumerate(frame.to_arrow().to_pylist()):
            path = shown.get("internal:relative_path", "")
            if path in OWN:
                assert frame.read_bytes(row) == OWN[path], text
