"""Parts and the whole, and bands side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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
    shape: tuple[int, int] = (200, 250),
    **options: Any,
) -> Path:
    source = utm(tmp_path / f"{name}.tif", noise(shape, "uint16", seed), nodata=0)
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
        (INTERLEAVED, 12),
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
    if "block_dtype" in options:
        with comal.raquet.open(path) as one, comal.raquet.open(tmp_path / "b.parquet") as other:
            np.testing.assert_array_equal(one.read().data, other.read().data)
    else:
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


@pytest.mark.parametrize("compression", ["jpeg", "webp"])
def test_pictures_are_copied_as_they_are(tmp_path: Path, compression: str) -> None:
    source = utm(tmp_path / "a.tif", noise((3, 200, 220), "uint8"))
    path = tmp_path / "a.parquet"
    options: dict[str, Any] = {**INTERLEAVED, "compression": compression}
    comal.raquet.write(source, path, block_size=32, bands=[1, 2, 3], **options)
    comal.raquet.partition(path, tmp_path / "parts", zoom=12)
    comal.raquet.merge(tmp_path / "parts", tmp_path / "b.parquet")
    assert (tmp_path / "b.parquet").read_bytes() == path.read_bytes()


def _joined(first: Path, second: Path, made: Path) -> None:
    """Bands of both, whatever the layouts and compressions."""
    assert comal.raquet.check(made, level="full", statistics=True).counts == {}
    with (
        comal.raquet.open(first) as one,
        comal.raquet.open(second) as two,
        comal.raquet.open(made) as both,
    ):
        for zoom in both.zooms:
            alone = [file.read(zoom=zoom).data for file in (one, two)]
            np.testing.assert_array_equal(both.read(zoom=zoom).data, np.concatenate(alone))


LATER: dict[str, Any] = {"spec_version": "0.5.0"}


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (INTERLEAVED, LATER),
        (LATER, INTERLEAVED),
        (INTERLEAVED, INTERLEAVED),
        ({**INTERLEAVED, "tile_statistics": True}, {**LATER, "tile_statistics": True}),
        ({**LATER, "compression": None}, LATER),
        ({**INTERLEAVED, "time": ["2020-01-01"]}, {**LATER, "time": ["2020-01-01"]}),
    ],
)
def test_bands_of_every_layout_are_added(
    tmp_path: Path, one: dict[str, Any], two: dict[str, Any]
) -> None:
    first = _raquet(tmp_path, shape=(160, 200), **one)
    second = _raquet(tmp_path, "b", 1, (160, 200), **two)
    made = tmp_path / "c.parquet"
    comal.raquet.append_bands(first, second, made, names={"band_1": "other"})
    _joined(first, second, made)
    metadata = comal.raquet.open(made).metadata
    assert metadata.layout == "sequential"
    assert metadata.compression == one.get("compression", "gzip")


def test_a_raster_is_added_to_interleaved_tiles(tmp_path: Path) -> None:
    path = _raquet(tmp_path, **INTERLEAVED)
    extra = utm(tmp_path / "x.tif", noise((300, 200), "int32", 3), nodata=7)
    made = tmp_path / "c.parquet"
    with pytest.raises(InvalidInputError, match="stored apart"):
        comal.raquet.append_bands(path, extra, made, layout="interleaved")
    comal.raquet.append_bands(path, extra, made, names={"band_1": "other"})
    with comal.raquet.open(path) as one, comal.raquet.open(made) as both:
        assert not both.metadata.interleaved
        tile = quadbin.tiles(int(one.cells()[-1]))
        np.testing.assert_array_equal(one.tile(*tile)[0], both.tile(*tile, "band_1")[0])
        assert [band.nodata for band in both.bands] == [0, 7]


def test_bands_beside_pictures_are_stored_with_gzip(tmp_path: Path) -> None:
    source = utm(tmp_path / "a.tif", noise((3, 200, 220), "uint8"))
    path, made = tmp_path / "a.parquet", tmp_path / "c.parquet"
    comal.raquet.write(
        source, path, block_size=32, **INTERLEAVED, compression="webp", nodata="none"
    )
    extra = utm(tmp_path / "x.tif", noise((200, 220), "int32"), nodata=7)
    comal.raquet.append_bands(path, extra, made, names={"band_1": "x"})
    with comal.raquet.open(path) as one, comal.raquet.open(made) as both:
        assert (both.metadata.compression, both.metadata.quality) == ("gzip", None)
        tile = quadbin.tiles(int(one.cells()[-1]))
        np.testing.assert_array_equal(one.tile(*tile), both.tile(*tile, [1, 2, 3]))
    assert comal.raquet.check(made, level="full").ok


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


def test_statistics_of_neighbours_are_merged(tmp_path: Path) -> None:
    pixels = noise((64, 128), "int16")
    paths = []
    for at in (0, 1):
        source = on_grid(
            tmp_path / f"{at}.tif",
            pixels[:, at * 64 : at * 64 + 64],
            column=16_384 + at * 64,
            row=10_240,
        )
        paths.append(tmp_path / f"{at}.parquet")
        comal.raquet.write(source, paths[-1], block_size=32, min_zoom=10, zoom=10)
    comal.raquet.merge(paths, tmp_path / "both.parquet")
    with comal.raquet.open(tmp_path / "both.parquet") as raster:
        found = raster.bands[0].statistics
        assert found is not None
        assert (found.count, found.min, found.max) == (8192, pixels.min(), pixels.max())
        assert found.mean == pytest.approx(pixels.mean())
        assert found.stddev == pytest.approx(pixels.std())
        assert raster.metadata.width == 128
    assert comal.raquet.check(tmp_path / "both.parquet", level="full").ok


def test_bands_of_a_raster_and_of_a_file_are_added(tmp_path: Path) -> None:
    path = _raquet(tmp_path)
    extra = utm(tmp_path / "x.tif", noise((150, 100), "float32"), nodata=np.nan)
    comal.raquet.append_bands(path, extra, tmp_path / "b.parquet", names={"band_1": "height"})
    assert comal.raquet.check(tmp_path / "b.parquet", level="full").ok
    with (
        comal.raquet.open(path) as before,
        comal.raquet.open(tmp_path / "b.parquet") as after,
    ):
        assert [band.name for band in after.bands] == ["band_1", "height"]
        for cell in before.cells().tolist():
            tile = quadbin.tiles(cell)
            assert before.raw_tile(*tile) == (after.raw_tile(*tile) or ())[:1]
        wanted = comal.raquet.write(
            extra,
            tmp_path / "x.parquet",
            block_size=32,
            zoom=before.metadata.max_zoom,
            min_zoom=before.metadata.min_zoom,
        )
        assert wanted.tiles
        with comal.raquet.open(tmp_path / "x.parquet") as alone:
            for cell in alone.cells().tolist():
                tile = quadbin.tiles(cell)
                np.testing.assert_array_equal(alone.tile(*tile)[0], after.tile(*tile, [2])[0])
            missing = np.setdiff1d(before.cells(), alone.cells())
            assert len(missing)
            tile = quadbin.tiles(int(missing[-1]))
            assert np.isnan(after.tile(*tile, [2])).all()
    comal.raquet.append_bands(
        path, tmp_path / "x.parquet", tmp_path / "c.parquet", names={"band_1": "height"}
    )
    assert (tmp_path / "c.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    with pytest.raises(InvalidInputError, match="one name"):
        comal.raquet.append_bands(path, tmp_path / "x.parquet", tmp_path / "d.parquet")
    assert sorted(one.name for one in tmp_path.iterdir() if one.name[0] == ".") == []
