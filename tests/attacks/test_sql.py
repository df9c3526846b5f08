"""SQL that wants more than to read, through every door that takes SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal import raquet
from comal.errors import LimitExceededError, QueryError
from comal.query import Budget, engine
from comal.taco.reading.dataset import TacoDataset, load
from tests.attacks.build import FLAT, Recipe
from tests.attacks.corpus import zipped
from tests.raquet.build import noise, write

CANARY = "the canary sings"

# {canary}: a file that must not be read; {target}: a file that must not come to be.
TEXTS = {
    "copy to": "COPY data TO '{target}'",
    "copy a query": "COPY (SELECT 1) TO '{target}' (FORMAT csv)",
    "copy in a select": "SELECT * FROM (COPY (SELECT 1) TO '{target}')",
    "stacked": "SELECT * FROM data; COPY (SELECT 1) TO '{target}'",
    "stacked behind NUL": "SELECT * FROM data\0; COPY (SELECT 1) TO '{target}'",
    "stacked behind a comment": "SELECT * FROM data --\n; COPY (SELECT 1) TO '{target}'",
    "export": "EXPORT DATABASE '{target}'",
    "attach": "ATTACH '{target}' AS other",
    "attach and select": "ATTACH '{target}' AS other; SELECT * FROM data",
    "read_text": "SELECT content FROM read_text('{canary}')",
    "read_blob": "SELECT content FROM read_blob('{canary}')",
    "read_csv": "SELECT * FROM read_csv('{canary}', header=false)",
    "read_parquet": "SELECT * FROM read_parquet('{canary}')",
    "read_json": "SELECT * FROM read_json('{canary}')",
    "file as a table": "SELECT * FROM '{canary}'",
    "file as a quoted table": 'SELECT * FROM "{canary}"',
    "glob": "SELECT * FROM glob('{folder}/*')",
    "glob of the root": "SELECT * FROM glob('/etc/*')",
    "sniff_csv": "SELECT * FROM sniff_csv('{canary}')",
    "http": "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
    "https table": "SELECT * FROM 'https://127.0.0.1:9/x.parquet'",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "load a file": "LOAD '{target}.duckdb_extension'",
    "set": "SET enable_external_access=true",
    "set and select": "SET enable_external_access=true; SELECT content FROM read_text('{canary}')",
    "reset": "RESET lock_configuration",
    "pragma": "PRAGMA enable_profiling='json'",
    "pragma to a file": "PRAGMA profiling_output='{target}'",
    "log to a file": "CALL enable_logging(storage='file', storage_path='{target}')",
    "create": "CREATE TABLE t AS SELECT 1",
    "create as": "CREATE VIEW data AS SELECT 1",
    "insert": "INSERT INTO data SELECT * FROM data",
    "update": "UPDATE data SET id='x'",
    "delete": "DELETE FROM data",
    "drop": "DROP TABLE data",
    "cte that deletes": "WITH gone AS (DELETE FROM data RETURNING *) SELECT * FROM gone",
    "cte that inserts": "WITH new AS (INSERT INTO data SELECT * FROM data RETURNING *) "
    "SELECT * FROM new",
    "transaction": "COMMIT",
    "stacked transaction": "COMMIT; SELECT 1",
    "explain": "EXPLAIN ANALYZE SELECT * FROM data",
    "prepare": "PREPARE p AS SELECT content FROM read_text('{canary}')",
    "execute": "EXECUTE p",
    "secret": "CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET 'y')",
    "secrets": "SELECT * FROM which_secret('s3://x', 's3') WHERE read_text('{canary}') IS NOT NULL",
    "query function": "SELECT * FROM query('SELECT content FROM read_text(''{canary}'')')",
    "query_table": "SELECT * FROM query_table('{canary}')",
    "getenv": "SELECT getenv('PATH') AS x",
    "python variable": "SELECT * FROM frame_of_the_caller",
    "nothing": "",
    "two selects": "SELECT 1; SELECT 2",
    "a comment": "-- nothing",
    "half a query": "SELECT (",
    "two halves": "SELECT 1) UNION (SELECT 2",
}


Door = Callable[[str], Any]
_ROOMY = Budget(wall=60.0)
TABLE = pa.table({"id": ["a", "b"]})


@pytest.fixture
def dataset(tmp_path: Path) -> TacoDataset:
    return load(zipped(Recipe(tree=FLAT))(tmp_path))


@pytest.fixture(params=["taco", "isolated", "session", "raquet"])
def door(request: pytest.FixtureRequest, dataset: TacoDataset, tmp_path: Path) -> Iterator[Door]:
    """What takes a query over a table ``data`` and gives its answer."""
    if request.param == "raquet":
        path = write(tmp_path / "data.parquet", {(0, 0, 0): [noise(1)]})
        with raquet.connect({"data": path}) as connection:
            yield connection.sql
        return
    yield {
        "taco": lambda text: dataset.sql(text).data.to_arrow(),
        "isolated": lambda text: dataset.sql(text, isolated=_ROOMY).data.to_arrow(),
        "session": lambda text: engine().select(text, tables={"data": TABLE}),
    }[request.param]


def test_no_text_reads_or_writes_a_file(
    door: Door, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    canary = folder / "canary.txt"
    canary.write_text(CANARY)
    frame_of_the_caller = {"x": [CANARY]}
    # A process of its own takes a moment, and locks the same engine.
    isolated = "isolated" in request.node.name
    texts = {name: TEXTS[name] for name in ("copy to", "read_text")} if isolated else TEXTS
    for name, text in texts.items():
        query = text.replace("{canary}", str(canary)).replace("{folder}", str(folder))
        query = query.replace("{target}", str(folder / "target"))
        # EXPLAIN is a statement of its own, so that nothing here may be answered.
        with pytest.raises((QueryError, LimitExceededError)) as caught:
            pytest.fail(f"{name} was answered: {door(query)}")
        assert str(caught.value).splitlines()[0].isascii()
        assert CANARY not in str(caught.value)
    assert sorted(path.name for path in folder.iterdir()) == ["canary.txt"]
    assert canary.read_text() == CANARY
    assert frame_of_the_caller
    assert len(door("SELECT * FROM data"))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + " + ".join(["1"] * 50_000) + " AS x FROM data",
        "SELECT repeat('x', 2000000000) || repeat('y', 2000000000) AS t FROM range(1000)",
    ],
)
def test_a_query_without_end_is_ended(dataset: TacoDataset, query: str) -> None:
    """A text that takes long to parse, and an answer that takes all memory.

    What takes all time is ended in `tests/query` and, for each format, in `cli/test_sql`.
    """
    with pytest.raises((QueryError, LimitExceededError)):
        _ = dataset.sql(query, isolated=True).data


def test_values_never_become_text(dataset: TacoDataset) -> None:
    evil = "x' OR 1=1; DROP TABLE data; --"
    found = dataset.sql("SELECT * FROM data WHERE id = $name", {"name": evil}).data
    assert len(found) == 0
    found = dataset.sql("SELECT * FROM data WHERE id = ?", ["img_1.bin"]).data
    assert found.read_bytes(0) == FLAT["img_1.bin"]


def test_column_names_of_a_file_are_quoted(tmp_path: Path) -> None:
    names = ['a"b', "a'b", "a;b", "select", "a.b", "ä", "  ", 'x" FROM data; --']

    def widened(_depth: int, table: object) -> object:
        for number, name in enumerate(names):
            table = table.append_column(name, pa.array([number] * 4))  # type: ignore[attr-defined]
        return table

    dataset = load(zipped(Recipe(tree=FLAT, table=widened))(tmp_path))
    table = dataset.data.to_arrow()
    assert set(names) <= set(table.column_names)
    filtered = dataset.sort("value").limit(2).data.to_arrow()
    assert [filtered[name][0].as_py() for name in names] == list(range(len(names)))
