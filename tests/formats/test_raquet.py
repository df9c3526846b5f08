from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import comal
from comal import formats
from comal.errors import InvalidInputError, NotInContainerError, NotThisFormatError
from comal.formats import raquet as adapter
from comal.formats.sniff import columns
from tests.raquet.build import Plan, framed, noise, stored, write
from tests.support import SHARED, needs_shared

FIXTURES = SHARED / "fixtures" / "raquet"
TILES = [(2, 2, 1), (3, 4, 2), (3, 5, 2)]
BANDS = (("land", "uint8", 0), ("height", "int16", -1))


def tiles() -> dict[Any, Any]:
    return {tile: [noise(n), noise(n + 9, "int16")] for n, tile in enumerate(TILES)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "two.parquet", tiles(), Plan(bands=BANDS))


def leaves(archive: Any) -> list[dict[str, Any]]:
    return [row for table in archive.leaves() for row in table.to_pylist()]


def test_recognised(path: Path, tmp_path: Path) -> None:
    found = formats.sniff(path)
    assert (found.format.name, found.how) == (
        "raquet",
        "Parquet with the columns block, metadata and bands",
    )
    with comal.open(path) as file:
        assert file.metadata.band_names == ("land", "height")


def test_a_long_footer_is_recognised(tmp_path: Path) -> None:
    every = {(9, x, y): [noise(1)] for x in range(24) for y in range(24)}
    path = write(tmp_path / "many.parquet", every, Plan(rows_in_group=4))
    assert int.from_bytes(path.read_bytes()[-8:-4], "little") > 16_384
    assert formats.sniff(path).format.name == "raquet"


@pytest.mark.parametrize(
    "schema",
    [
        {"block": pa.int64(), "metadata": pa.string()},
        {"block": pa.string(), "metadata": pa.string(), "b": pa.binary()},
        {"block": pa.int64(), "metadata": pa.int64(), "b": pa.binary()},
        {"blocks": pa.int64(), "metadata": pa.string(), "b": pa.binary()},
        {"block": pa.int64(), "metadata": pa.struct([("b", pa.binary())]), "b": pa.binary()},
        {"a": pa.struct([("block", pa.int64()), ("metadata", pa.binary()), ("b", pa.binary())])},
    ],
)
def test_other_tables_are_not(schema: dict[str, Any], tmp_path: Path) -> None:
    # Names that stand elsewhere in a footer prove nothing.
    table = pa.schema(schema, {"block": "metadata", "raquet:version": "1"}).empty_table()
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(NotThisFormatError):
        formats.sniff(tmp_path / "x.parquet")


def test_schemas_that_are_broken() -> None:
    assert columns(b"") == {}
    assert columns(b"\xff" * 40) == {}
    assert columns(b"\x15\x02\x19\x1c") == {}


def test_leaves_are_pages(path: Path) -> None:
    archive = adapter.archive(str(path))
    data = path.read_bytes()
    found = leaves(archive)
    assert [row["key"] for row in found] == ["2/2/1", "3/4/2", "3/5/2"]
    for row, (land, height) in zip(found, tiles().values(), strict=True):
        assert row["offset"] is None
        assert row["size"] == sum(band["size"] for band in row["bands"])
        for band, pixels in zip(row["bands"], (land, height), strict=True):
            page = data[band["offset"] : band["offset"] + band["size"]]
            assert page.endswith(framed(stored(pixels)))
    one = archive.with_band("height")
    (first, *_) = leaves(one)
    assert [band["name"] for band in first["bands"]] == ["height"]
    assert first["offset"] == found[0]["bands"][1]["offset"]
    assert first["offset"] is not None
    assert first["type"] == "gzip"
    with pytest.raises(InvalidInputError, match="no such band"):
        archive.with_band("x")
    archive.close()


def test_pixels(path: Path, tmp_path: Path) -> None:
    archive = adapter.archive(str(path))
    for name, number in (("land", 0), ("height", 1)):
        one = archive.with_band(name)
        for key, bands in zip(("2/2/1", "3/4/2", "3/5/2"), tiles().values(), strict=True):
            assert b"".join(one.blocks(key)) == stored(bands[number])
    with pytest.raises(InvalidInputError, match="which band"):
        list(archive.blocks("2/2/1"))
    for key in ("3/0/0", "9/1/1", "3/9/1", "x", "3/4/2@0", "block 17"):
        with pytest.raises(NotInContainerError):
            list(archive.with_band("land").blocks(key))
    archive.close()


def test_time_steps_and_files_without_pages(tmp_path: Path) -> None:
    series = {(*TILES[0], day): [noise(day)] for day in (3, 8)}
    path = write(tmp_path / "t.parquet", series, Plan(times=True))
    archive = adapter.archive(str(path))
    first, second = leaves(archive)
    assert (first["key"], second["key"]) == ("2/2/1@0", "2/2/1@1")
    assert first["offset"] < second["offset"]
    assert b"".join(archive.blocks("2/2/1@1")) == stored(noise(8))
    assert archive.describe()["times"] == 2
    archive.close()
    plan = Plan(dictionary=True, codec="snappy", pages=False)
    path = write(tmp_path / "d.parquet", {TILES[0]: [noise(1)]}, plan)
    archive = adapter.archive(str(path))
    (row,) = leaves(archive)
    assert (row["offset"], row["size"], row["bands"]) == (None, None, None)
    assert b"".join(archive.blocks("2/2/1")) == stored(noise(1))
    archive.close()


def test_nodata_that_json_has_not(tmp_path: Path) -> None:
    bands = (("f", "float32", "NaN"),)
    path = write(tmp_path / "f.parquet", {TILES[0]: [noise(1, "float32")]}, Plan(bands=bands))
    archive = adapter.archive(str(path))
    assert archive.describe()["bands"][0]["nodata"] == "nan"
    archive.close()


@needs_shared
def test_files_of_every_writer() -> None:
    for file in sorted(FIXTURES.glob("*/**/*.parquet")):
        assert formats.sniff(file).format.name == "raquet", file
        archive = adapter.archive(str(file))
        names = archive.file.metadata.band_names
        found = leaves(archive)
        assert len(found) == archive.describe()["count"]
        key = found[-1]["key"]
        data = b"".join(archive.with_band(names[-1]).blocks(key))
        metadata = archive.file.metadata
        size = np.dtype(metadata.bands[-1].dtype).itemsize
        assert len(data) == size * metadata.block_width * metadata.block_height
        archive.close()
