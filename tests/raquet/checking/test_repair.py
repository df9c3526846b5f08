from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from comal import grid, raquet
from comal.errors import InvalidMetadataError, LimitExceededError
from tests.raquet.build import cell, framed
from tests.raquet.checking.damage import File, interleaved, packed, pixels, row_of, sound
from tests.support import SHARED, needs_shared

FIXTURES = SHARED / "fixtures" / "raquet"


def repaired(file: File, tmp_path: Path, **options: Any) -> tuple[Path, Any]:
    """The mended copy and its document."""
    path = raquet.repair(file.write(tmp_path / "bad.parquet"), tmp_path / "good.parquet", **options)
    table = pq.read_table(path)
    assert table["block"][0].as_py() == 0
    return path, json.loads(table["metadata"][0].as_py())


def blobs(path: Path) -> dict[int, bytes]:
    table = pq.read_table(path, columns=["block", "band_1"])
    return dict(zip(*(column.to_pylist() for column in table.columns), strict=True))


def messy() -> File:
    """Everything wrong that can be mended."""
    file = sound()
    file.rows.reverse()
    file.head_first = False
    file.settings |= {
        "use_dictionary": ["band_1"],
        "compression": "snappy",
        "write_page_index": False,
        "sorting_columns": [pq.SortingColumn(0)],
    }
    file.head["band_1"] = packed(pixels(1))
    file.schema = file.schema.append(pa.field("mask", pa.binary()))
    first, second, third = (row["band_1"] for row in file.rows[:3])
    file.rows[0]["band_1"] = framed(gzip.decompress(first), "zlib")
    file.rows[1]["band_1"] = framed(gzip.decompress(second), "hybrid")
    file.rows[2]["band_1"] = third + b"\0\0\0"
    for row in file.rows:
        row["mask"] = b"?"
    file.rows.append(dict(file.rows[0]))
    file.document |= {"bounds": [2, 2, 88, 65], "num_blocks": 77, "width": 5}
    file.document["bands"][0]["stats"] = {"min": 5, "max": 1, "count": 3}
    del file.document["version"]
    return file


def test_everything_at_once(tmp_path: Path) -> None:
    file = messy()
    before = raquet.check(file.write(tmp_path / "bad.parquet"))
    assert set(before.counts) >= {
        "raquet-cell-twice",
        "raquet-column-extra",
        "raquet-framing",
        "raquet-metadata-pixels",
        "raquet-num-blocks",
        "raquet-order",
        "raquet-pages",
        "raquet-sorting",
        "raquet-statistics",
        "raquet-tile-tail",
        "raquet-version-missing",
    }
    steps: list[Any] = []
    path, document = repaired(file, tmp_path, progress=lambda *step: steps.append(step))
    after = raquet.check(path, statistics=True)
    assert after.total == 0, after.problems
    assert document["bounds"] == pytest.approx([0, 0, 90, 66.51326044311186])
    assert (document["num_blocks"], document["width"], document["version"]) == (4, 32, "0.1.0")
    good = blobs(sound().write(tmp_path / "sound.parquet"))
    found = blobs(path)
    assert found.keys() == good.keys()
    for block, blob in good.items():
        if block:
            assert gzip.decompress(found[block]) == gzip.decompress(blob)
    values = np.concatenate([pixels(number).ravel() for number in range(1, 5)])
    stats = document["bands"][0]["stats"]
    assert (stats["count"], stats["min"], stats["max"]) == (1024, values.min(), values.max())
    assert stats["mean"] == pytest.approx(values.mean())
    assert stats["stddev"] == pytest.approx(values.std())
    assert steps[-1][0] == steps[-1][1]


def test_blobs_that_are_right_stay_as_they_are(tmp_path: Path) -> None:
    file = sound()
    file.rows.reverse()
    path, _ = repaired(file, tmp_path)
    found = blobs(path)
    assert all(found[row["block"]] == row["band_1"] for row in file.rows)


def test_bands_without_nodata_keep_their_statistics(tmp_path: Path) -> None:
    file = sound()
    stats = {"count": 700, "min": 2, "max": 90, "mean": 44.0, "stddev": 20.0}
    file.document["bands"][0] |= {"nodata": None, "stats": stats}
    _, document = repaired(file, tmp_path)
    assert document["bands"][0]["stats"].items() >= stats.items()
    file.document["bands"][0]["stats"] = {**stats, "mean": 500.0}
    _, document = repaired(file, tmp_path, overwrite=True)
    assert "stats" not in document["bands"][0]


def test_null_rows_go_and_null_bands_stay(tmp_path: Path) -> None:
    file = sound()
    file.band("band_2")
    row_of(file, (3, 5, 2))["band_2"] = None
    for tile in ((3, 4, 3), (2, 2, 1)):  # of four tiles of their zoom, and of one
        row_of(file, tile).update(band_1=None, band_2=None)
    path, document = repaired(file, tmp_path)
    table = pq.read_table(path)
    assert cell((3, 4, 3)) not in table["block"].to_pylist()
    assert cell((2, 2, 1)) in table["block"].to_pylist()
    assert table["band_2"].null_count == 3
    assert document["num_blocks"] == 4 - 1
    assert raquet.check(path).counts.keys() == {"raquet-row-empty"}


def test_bytes_are_put_in_their_place(tmp_path: Path) -> None:
    file = interleaved()
    for number, row in enumerate(file.rows):
        both = [pixels(number, "uint16"), pixels(number + 9, "uint16")]
        planes = np.stack([one.view(np.uint8).ravel() for one in both], axis=-1)
        row["pixels"] = packed(planes)
    path, document = repaired(file, tmp_path, byte_interleaved=True)
    found = raquet.check(path)
    assert found.total == 0, found.problems
    assert document["version"] == "0.5.0"
    with raquet.open(path) as opened:
        for number, (z, x, y) in enumerate([(2, 2, 1), (3, 4, 2), (3, 5, 2)]):
            tile = opened.tile(z, x, y)
            assert (tile[0] == pixels(number, "uint16")).all()
            assert (tile[1] == pixels(number + 9, "uint16")).all()


@needs_shared
def test_files_of_all_writers(tmp_path: Path) -> None:
    names = [
        "raquet-io/v0.1.0/s_rgba_u8.parquet",
        "raquet-io/v0.2.5/s_float32_nan.parquet",
        "raquet-io/v0.9.0/s_float32_tilestats.parquet",
        "raquet-io/v0.9.0/ts_sst.parquet",
        "raquet-io/v0.9.0/s_rgb_il_webp.parquet",
        "raster-loader-0.11.4/palette_u8_3857_gzip_approx.parquet",
        "carto/example_data_2025.parquet",
        "duckdb-raquet/duckdb_raquet_test.parquet",
        "constructed/v010_named_bands_null_band.parquet",
    ]
    for number, name in enumerate(names):
        path = raquet.repair(FIXTURES / name, tmp_path / f"{number}.parquet")
        found = raquet.check(path)
        assert found.ok
        assert set(found.counts) <= {"raquet-overview-missing"}, (name, found.problems)
        with raquet.open(FIXTURES / name) as before, raquet.open(path) as after:
            assert before.cells().tolist() == after.cells().tolist()
            zoom = before.zooms[-1]
            for block in before.cells(zoom).tolist()[:5]:
                z, x, y = grid.tiles(block)
                times = [None] if before.times is None else [0, 1]
                for time in times:
                    one = before.tile(z, x, y, time=time)
                    other = after.tile(z, x, y, time=time)
                    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "kind"), [("a\0b", InvalidMetadataError), ("a" * 200, LimitExceededError)]
)
def test_no_columns_are_written_that_nobody_reads(tmp_path: Path, name: str, kind: Any) -> None:
    """Bands of interleaved tiles have no columns of their own, but their statistics have."""
    file = interleaved("uint8")
    file.document["bands"][0]["name"] = name
    file.document["tile_statistics"] = True
    path = file.write(tmp_path / "bad.parquet")
    with pytest.raises(kind, match="column name"):
        raquet.repair(path, tmp_path / "good.parquet")
    assert not (tmp_path / "good.parquet").exists()


def test_statistics_that_are_declared_and_not_there(tmp_path: Path) -> None:
    file = interleaved("uint8")
    file.document["tile_statistics"] = True
    path = file.write(tmp_path / "bad.parquet")
    with pytest.raises(InvalidMetadataError, match="tile statistics have no columns"):
        raquet.merge([path], tmp_path / "m.parquet")
    raquet.merge([raquet.repair(path, tmp_path / "r.parquet")], tmp_path / "m.parquet")
    assert "red_count" in pq.read_schema(tmp_path / "m.parquet").names
