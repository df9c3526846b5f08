"""The Parquet file: what other engines find in it, and where its pages lie."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest

import comal.raquet
from comal.grid import quadbin
from comal.raquet.writing.layout import row_groups
from tests.raquet.writing.sources import BLOCK, noise, on_grid


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layout")
    source = on_grid(folder / "a.tif", noise((2, 400, 500), "uint16"))
    path = folder / "a.parquet"
    comal.raquet.write(source, path, block_size=32, row_group_size=16, min_zoom=7)
    return path


def test_the_metadata_row_is_first_and_alone(made: Path) -> None:
    file = pq.ParquetFile(made)
    assert file.metadata.row_group(0).num_rows == 1
    first = file.read_row_group(0).to_pylist()[0]
    assert first["block"] == 0
    assert first["band_1"] is None
    document = json.loads(first["metadata"])
    assert document["version"] == "0.1.0"
    keys = file.metadata.metadata
    assert keys[b"raquet:version"] == b"0.1.0"
    assert json.loads(keys[b"comal:metadata"]) == document
    table = file.read(["block", "metadata"])
    assert table["metadata"].null_count == table.num_rows - 1
    assert str(table.schema.field("block").type) == "uint64"


def test_ids_ascend_and_groups_hold_one_zoom(made: Path) -> None:
    file = pq.ParquetFile(made)
    last = -1
    for group in range(file.num_row_groups):
        ids = file.read_row_group(group, ["block"])["block"].to_numpy().astype(np.int64)
        assert ids[0] > last
        assert (np.diff(ids) > 0).all()
        last = int(ids[-1])
        assert len(ids) <= 16
        if group:
            assert len(np.unique(quadbin.zooms(ids))) == 1
        meta = file.metadata.row_group(group)
        assert meta.sorting_columns[0].column_index == 0
        assert not meta.sorting_columns[0].descending
        block = meta.column(0)
        assert (block.statistics.min, block.statistics.max) == (ids[0], ids[-1])


def test_bands_are_plain_pages_of_one_tile(made: Path) -> None:
    file = pq.ParquetFile(made)
    for group in range(1, file.num_row_groups):
        meta = file.metadata.row_group(group)
        for at in range(meta.num_columns):
            column = meta.column(at)
            assert column.has_offset_index
            assert column.has_column_index or column.path_in_schema.startswith("band")
            assert not column.has_dictionary_page
            if column.path_in_schema.startswith("band"):
                assert column.compression == "UNCOMPRESSED"
                assert set(column.encodings) <= {"PLAIN", "RLE"}
                assert column.statistics is None
            else:
                assert column.compression == "ZSTD"
    with comal.raquet.open(made) as raster:
        part = raster._store.parts[0]
        assert set(part.pages) >= {"band_1", "band_2"}
        assert len(part.pages["band_1"].offset) == file.metadata.num_rows


def test_every_engine_finds_every_tile(made: Path) -> None:
    table = pq.read_table(made)
    ids = table["block"].to_pylist()
    frame = pl.read_parquet(made)
    panda = pd.read_parquet(made)
    assert frame["block"].to_list() == panda["block"].tolist() == ids
    con = duckdb.connect()
    assert con.execute(f"SELECT count(*) FROM '{made}'").fetchone() == (len(ids),)
    assert frame.filter(pl.col("block") == 0).height == 1
    assert frame["block"].min() == 0
    for at in (0, 1, len(ids) // 2, len(ids) - 1):
        right = table["band_2"][at].as_py()
        found = con.execute(f"SELECT band_2 FROM '{made}' WHERE block = {ids[at]}").fetchall()
        assert found == [(right,)]
        assert frame.filter(pl.col("block") == ids[at])["band_2"].to_list() == [right]
        assert panda[panda["block"] == ids[at]]["band_2"].tolist() == [right]
        lazy = pl.scan_parquet(made).filter(pl.col("block") == ids[at]).collect()
        assert lazy["band_2"].to_list() == [right]
        if at:
            assert right[:10] == bytes.fromhex("1f8b08000000000000ff")
            assert len(gzip.decompress(right)) == 32 * 32 * 2
    con.close()


def test_block_as_signed_integers(tmp_path: Path) -> None:
    source = on_grid(tmp_path / "a.tif", noise((64, 64), "uint8"))
    path = tmp_path / "a.parquet"
    comal.raquet.write(source, path, block_size=32, block_dtype="int64")
    assert str(pq.read_schema(path).field("block").type) == "int64"


def test_row_groups_are_cut_by_zoom_rows_and_bytes() -> None:
    cells = np.concatenate(
        [[quadbin.cells(0, 0, 0)], quadbin.cells(5, np.arange(10), np.zeros(10, np.int64))]
    )
    cells.sort()
    small = np.full(11, 100)
    assert list(row_groups(cells, small)) == [(0, 1), (1, 11)]
    assert list(row_groups(cells, small, 4)) == [(0, 1), (1, 5), (5, 9), (9, 11)]
    large = np.full(11, 20 << 20)
    assert len(list(row_groups(cells, large))) == 11
    assert list(row_groups(cells[:0], small[:0])) == []


@pytest.mark.parametrize("compression", ["gzip", None, "jpeg", "webp"])
def test_interleaved_tiles(tmp_path: Path, compression: str | None) -> None:
    ramp = np.add.outer(np.arange(64), np.arange(64)).astype(np.uint8)
    source = on_grid(
        tmp_path / "a.tif", np.stack([ramp, ramp // 2, ramp // 3]), column=16_384, row=10_240
    )
    path = tmp_path / "a.parquet"
    comal.raquet.write(
        source,
        path,
        block_size=32,
        spec_version="0.5.0",
        layout="interleaved",
        compression=compression,
        quality=95,
    )
    assert comal.raquet.check(path, level="full").ok
    with comal.raquet.open(path) as raster:
        found = raster.tile(10, 512, 320).astype(int)
        right = np.stack([ramp, ramp // 2, ramp // 3])[:, :32, :32].astype(int)
        assert np.abs(found - right).max() <= (0 if compression in {"gzip", None} else 12)


# -- rasters on the grid, which are copied ---------------------------------------------------------


def _converted(tmp_path: Path, source: Any, **options: Any) -> Path:
    target = tmp_path / "out.parquet"
    comal.raquet.write(source, target, **{"block_size": BLOCK, "overwrite": True, **options})
    return target


def test_a_raster_stored_south_up_is_bit_identical(tmp_path: Path) -> None:
    """All types are asked by ``test_pixel_law``."""
    pixels = noise((2, 70, 90), "int16")
    source = on_grid(tmp_path / "a.tif", pixels, south_up=True)
    with comal.raquet.open(_converted(tmp_path, source)) as raster:
        found = raster.read(bands=[1, 2], masked=True).data
    inside = ~np.ma.getmaskarray(found[0])
    np.testing.assert_array_equal(found[:, inside].data, pixels.reshape(2, -1))
    assert np.ma.getmaskarray(found)[:, ~inside].all()


def test_padding_does_not_count(tmp_path: Path) -> None:
    pixels = noise((70, 90), "int16", seed=1)
    pixels[:40, :50] = -7
    source = on_grid(tmp_path / "a.tif", pixels, nodata=-7)
    with comal.raquet.open(_converted(tmp_path, source, spec_version="0.5.0")) as raster:
        (band,) = raster.bands
    assert band.statistics is not None
    assert band.statistics.valid_percent == pytest.approx(100 * (pixels != -7).mean())
    assert band.histogram is not None
    assert sum(band.histogram["counts"]) == (pixels != -7).sum()


def test_empty_tiles_are_left_out(tmp_path: Path) -> None:
    pixels = np.zeros((96, 96), np.uint8)
    pixels[70, 70] = 1
    source = on_grid(tmp_path / "a.tif", pixels, column=16_384, row=10_240, nodata=0)
    path = _converted(tmp_path, source, min_zoom=8)
    with comal.raquet.open(path) as raster:
        assert [len(raster.cells(zoom)) for zoom in raster.zooms] == [1, 1, 1]
        assert raster.metadata.num_blocks == 1
