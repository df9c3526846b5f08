"""Archives and tables through real sources."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow.dataset as ds
from tests.table.tables import parquet, sample_table

from comal.plan import ByteRange, run
from comal.storage import CountingSource, open_source
from comal.table import ParquetTable, footer_plan
from comal.table.scan import Scan
from comal.ziparchive import ZipWriter, check_plan, directory_plan


def test_a_table_inside_an_archive_on_disk(tmp_path: Path) -> None:
    table = sample_table(4_000)
    path = tmp_path / "a.zip"
    with path.open("wb") as file:
        writer = ZipWriter(file)
        span = writer.add("METADATA/level0.parquet", parquet(table, row_group_size=200))
        writer.close()
    with CountingSource(open_source(path)) as source:
        directory = run(directory_plan(), source.fetch)
        assert directory.payload_offsets.tolist() == [span.offset]
        footer = run(footer_plan(ByteRange(*span)), source.fetch)
        read = ParquetTable(source, footer)
        before = source.round_trips
        assert read.read(["number"]).equals(table.select(["number"]))
        assert source.round_trips == before + 1
        found = Scan(read).to_table(filter=ds.field("id") == "s3000")
        assert found.equals(table.slice(3_000, 1))
        assert run(check_plan(directory, content=True), source.fetch) == []
    with open_source(path) as plain:
        again = pickle.loads(pickle.dumps(ParquetTable(plain, footer)))
        assert again.read_rows(7, 9).equals(table.slice(7, 2))
