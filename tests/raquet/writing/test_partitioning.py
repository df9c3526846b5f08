"""Parts and the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import comal.raquet
from comal.errors import ConflictError, InvalidInputError
from comal.grid import quadbin
from tests.raquet.checking.damage import rewritten
from tests.raquet.writing.sources import noise, on_grid, utm


def _raquet(
    tmp_path: Path,
    name: str = "a",
    seed: int = 0,
    shape: tuple[int, int] = (120, 150),
    **options: Any,
) -> Path:
    bands = 3 if options.get("compression") in {"jpeg", "webp"} else 1
    pixels = noise((bands, *shape), "uint8" if bands == 3 else "uint16", seed)
    source = utm(tmp_path / f"{name}.tif", pixels, nodata=None if bands == 3 else 0)
    path = tmp_path / f"{name}.parquet"
    named = {"block_size": 32, "min_zoom": 11, "overwrite": True, **options}
    comal.raquet.write(source, path, **named)
    return path


INTERLEAVED: dict[str, Any] = {"spec_version": "0.5.0", "layout": "interleaved"}


@pytest.mark.parametrize(
    ("options", "zoom"),
    [
        *(({}, zoom) for zoom in (10, 12, 14)),
        ({"spec_version": "0.5.0", "tile_statistics": True}, 12),
        ({"time": ["2020-01-01"]}, 13),
        ({"compression": None}, 12),
        *(({**INTERLEAVED, "compression": one}, 12) for one in ("gzip", "jpeg", "webp")),
        ({**INTERLEAVED, "tile_statistics": True}, 13),
        ({"block_dtype": "int64"}, 12),
    ],
)
def test_parts_are_whole_files_and_merge_to_the_same_bytes(
    tmp_path: Path, zoom: int, options: dict[str, Any]
) -> None:
    path = _raquet(tmp_path, **options)
    made = comal.raquet.partition(path, tmp_path / "parts", zoom=zoom)
    assert sum(part.tiles for part in made) == len(comal.raquet.open(path).cells())
    for part in made:
        assert Path(part.path).name.startswith(f"z{zoom}_")
        report = comal.raquet.check(part.path, level="full")
        assert report.ok, report.problems
        with comal.raquet.open(part.path) as raster:
            fine = raster.cells()[quadbin.zooms(raster.cells()) >= zoom]
            assert len(np.unique(quadbin.parents(fine, zoom))) == 1
    comal.raquet.merge(tmp_path / "parts", tmp_path / "b.parquet")
    assert (tmp_path / "b.parquet").read_bytes() == path.read_bytes()
    with pytest.raises(ConflictError):
        comal.raquet.partition(path, tmp_path / "parts", zoom=zoom)


@pytest.mark.parametrize("options", [{}, {"spec_version": "0.5.0", "tile_statistics": True}])
@pytest.mark.parametrize("nodata", [0, None])
def test_parts_have_the_statistics_of_the_whole(
    tmp_path: Path, nodata: int | None, options: Any
) -> None:
    source = utm(tmp_path / "a.tif", noise((200, 250), "uint16"), nodata=nodata)
    path = tmp_path / "a.parquet"
    comal.raquet.write(source, path, block_size=32, min_zoom=13, **options)
    made = comal.raquet.partition(path, tmp_path / "parts", zoom=13)
    paths = [part.path for part in made]
    assert len(paths) > 3
    assert comal.raquet.check(paths, statistics=True).counts == {}
    with comal.raquet.open(path) as whole, comal.raquet.open(paths) as parts:
        assert parts.metadata.processing == whole.metadata.processing
    # Half of the pixels of the whole are no part of it.
    wrong = []
    for one in paths:
        with rewritten(one, tmp_path / "b.parquet") as document:
            (band,) = document["bands"]
            for where, key in ((band, "STATISTICS_MAXIMUM"), (band.get("stats") or {}, "max")):
                if key in where:
                    where[key] = 32_000
        found = comal.raquet.check(tmp_path / "b.parquet", statistics=True)
        wrong.append(found.counts.get("raquet-statistics-differ", 0))
    assert sum(wrong) >= len(wrong) - 1


def test_overviews_can_be_left_out(tmp_path: Path) -> None:
    path = _raquet(tmp_path)
    made = comal.raquet.partition(path, tmp_path / "parts", zoom=13, overviews=False)
    assert {part.min_zoom for part in made} == {13}
    with pytest.raises(InvalidInputError, match="out of range"):
        comal.raquet.partition(path, tmp_path / "more", zoom=25)
    assert not (tmp_path / "more").exists()


def test_other_rasters_do_not_merge(tmp_path: Path) -> None:
    one, other = _raquet(tmp_path), _raquet(tmp_path, "b", 1)
    with pytest.raises(InvalidInputError, match="different pixels"):
        comal.raquet.merge([one, other], tmp_path / "c.parquet")
    assert not (tmp_path / "c.parquet").exists()


def test_a_tile_that_is_there_twice_goes_into_one_part(tmp_path: Path) -> None:
    path = _raquet(tmp_path)
    table = pq.read_table(path)
    pq.write_table(pa.concat_tables([table, table.slice(len(table) - 1)]), tmp_path / "b.parquet")
    for name in ("a", "b"):
        comal.raquet.partition(tmp_path / f"{name}.parquet", tmp_path / name, zoom=12)
    assert {one.name: one.read_bytes() for one in (tmp_path / "a").iterdir()} == {
        one.name: one.read_bytes() for one in (tmp_path / "b").iterdir()
    }


def test_neighbours_become_one_file(tmp_path: Path) -> None:
    """Which has no statistics of one of them; they are computed by `repair`."""
    pixels = np.clip(noise((64, 128), "int16"), -32767, None)
    paths = []
    for at in (0, 1):
        part, column = pixels[:, at * 64 : at * 64 + 64], 16_384 + at * 64
        source = on_grid(tmp_path / f"{at}.tif", part, nodata=-32768, column=column, row=10_240)
        paths.append(tmp_path / f"{at}.parquet")
        comal.raquet.write(source, paths[-1], block_size=32, min_zoom=10, zoom=10)
    both, mended = tmp_path / "both.parquet", tmp_path / "mended.parquet"
    comal.raquet.merge(paths, both)
    comal.raquet.repair(both, mended)
    with comal.raquet.open(both) as raster, comal.raquet.open(mended) as after:
        assert (raster.bands[0].statistics, raster.metadata.width) == (None, 128)
        found = after.bands[0].statistics
    assert found is not None
    assert (found.count, found.min, found.max) == (8192, pixels.min(), pixels.max())
    assert comal.raquet.check(mended, statistics=True).counts == {}
