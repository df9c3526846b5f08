"""A raster off the grid: the same pixels as rasterio's own warp, in any number of pieces."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import comal.raquet
from comal.errors import StorageError
from comal.raquet.writing import job
from comal.raster import warping
from tests.raquet.writing.sources import assembled, noise, on_grid, utm, warped


@pytest.mark.parametrize(("dtype", "nodata"), [("uint8", None), ("int16", -5), ("float32", np.nan)])
@pytest.mark.parametrize("method", ["nearest", "bilinear", "average"])
def test_as_rasterio_warps(tmp_path: Path, dtype: str, nodata: Any, method: str) -> None:
    pixels = noise((150, 200), dtype)
    if nodata is not None:
        pixels[10:30, 50:100] = nodata
    source = utm(tmp_path / "a.tif", pixels, nodata=nodata)
    path = tmp_path / "a.parquet"
    made = comal.raquet.write(
        source, path, resampling=method, block_size=32, nodata=None if nodata else "none"
    )
    assert made.num_blocks > 16
    fill = 0 if nodata is None else nodata
    whole, _, _ = assembled(path, fill=fill)
    right = warped(source, path, method=method)
    # GDAL's own shortcuts differ with the size of what is warped at once.
    near = np.isclose(whole.astype(float), right.astype(float), rtol=1e-4, atol=1, equal_nan=True)
    assert near.mean() > 0.98


@pytest.mark.parametrize(
    ("dtype", "method"), [("uint8", "nearest"), ("uint8", "average"), ("int64", "nearest")]
)
def test_a_coarse_zoom_needs_no_more_of_the_source_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, method: str
) -> None:
    """Where GDAL does not read by itself, as for a band that is not the first."""
    source = utm(tmp_path / "a.tif", noise((2, 1200, 1600), dtype))
    options: dict[str, Any] = {"bands": [2], "zoom": 7, "block_size": 256, "resampling": method}
    right, path = tmp_path / "right.parquet", tmp_path / "a.parquet"
    most = 300_000 * np.dtype(dtype).itemsize
    sizes: list[int] = []
    read = warping.SourceReader.read

    def counted(self: Any, *given: Any) -> Any:
        found = read(self, *given)
        sizes.append(found.nbytes)
        return found

    monkeypatch.setattr(warping.SourceReader, "read", counted)
    comal.raquet.write(source, right, **options)
    assert max(sizes) > 4 * most
    sizes.clear()
    monkeypatch.setattr(warping, "_MOST_BYTES", most)
    comal.raquet.write(source, path, **options)
    assert max(sizes) < 1.5 * most
    whole, _, _ = assembled(path)
    wanted, _, _ = assembled(right)
    # As above: GDAL's own shortcuts differ.
    assert (whole != wanted).sum() < 0.05 * (wanted != wanted[0, 0, 0]).sum()


def test_long_integers_are_exact_only_when_they_are_moved(tmp_path: Path) -> None:
    """The values themselves are asked by ``test_pixel_law``."""
    source = utm(tmp_path / "a.tif", noise((50, 50), "int64"))
    with pytest.warns(UserWarning, match="double precision"):
        comal.raquet.write(source, tmp_path / "a.parquet", resampling="bilinear")


class Worker(ThreadPoolExecutor):
    """One worker that gets what is pickled, and gives back what is pickled."""

    def __init__(
        self, reach: Callable[[Path], Path], after: Callable[[Path], object] = str
    ) -> None:
        super().__init__(1)
        self.reach, self.after = reach, after
        self.sent = self.tasks = 0

    def submit(self, function: Any, /, *args: Any, **_: Any) -> Any:
        return super().submit(self._call, pickle.dumps(partial(function, *args)))

    def _call(self, task: bytes) -> Any:
        function = pickle.loads(task)
        folders = [one for one in function.args if isinstance(one, Path)]
        answer = pickle.dumps(
            function.func(*(self.reach(one) if one in folders else one for one in function.args))
        )
        for folder in folders:
            self.after(folder)
        self.sent, self.tasks = self.sent + len(answer), self.tasks + 1
        return pickle.loads(answer)


def _same(folder: Path) -> Path:
    assert folder.is_absolute()  # a worker may have another working directory
    return folder


def _none(folder: Path) -> Path:
    return folder / "none"


def _cut(folder: Path) -> None:
    for path in folder.iterdir():
        os.truncate(path, path.stat().st_size - 1)


def test_tiles_are_sent_only_by_workers_that_do_not_reach_the_folder_of_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_MOST_SIDE", 256)
    monkeypatch.chdir(tmp_path)
    source = utm(tmp_path / "a.tif", noise((2, 600, 800), "uint8"))
    path = Path("a.parquet")
    comal.raquet.write(source, path, block_size=64)
    expected = path.read_bytes()
    here, elsewhere = Worker(_same), Worker(_none)
    for worker in (here, elsewhere):
        with worker:
            comal.raquet.write(source, path, block_size=64, executor=worker, overwrite=True)
        assert path.read_bytes() == expected
        assert worker.tasks > 9
    assert here.sent < len(expected) / 3
    assert elsewhere.sent > 0.9 * len(expected)
    assert set(tmp_path.iterdir()) == {source, tmp_path / path}


def test_a_file_of_a_worker_that_lost_its_end_is_no_tile(tmp_path: Path) -> None:
    source = utm(tmp_path / "a.tif", noise((100, 100), "uint8"))
    with Worker(_same, after=_cut) as worker, pytest.raises(StorageError, match="cut short"):
        comal.raquet.write(source, tmp_path / "a.parquet", block_size=32, executor=worker)
    assert set(tmp_path.iterdir()) == {source}


def test_forks_write_no_file_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for process in (7, 7, 8):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        job.Subtree(job.Totals([]), blobs=[b"ab", b"c"]).put_down(tmp_path)
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"abc", b"abcabc"]


@pytest.mark.parametrize("place", [utm, on_grid])
@pytest.mark.parametrize(
    ("bands", "wanted"),
    [
        ([4, 3, 2, 1], {"band_1": 4, "band_2": 3, "band_3": 2, "band_4": 1}),
        ([4], {"band_1": 4}),
        ({"red": 3, "nir": "band_4"}, {"red": 3, "nir": 4}),
    ],
)
def test_chosen_bands_are_the_bands_that_were_chosen(
    tmp_path: Path, bands: Any, wanted: dict[str, int], place: Callable[..., Path]
) -> None:
    """GDAL numbers them anew while it warps."""
    pixels = np.stack([np.full((64, 64), 10 * n, np.uint16) for n in range(1, 5)])
    path = tmp_path / "a.parquet"
    comal.raquet.write(place(tmp_path / "a.tif", pixels), path, bands=bands)
    with comal.raquet.open(path) as file:
        assert {band.name: band.source_band for band in file.bands} == wanted
        for band, plane in zip(file.bands, file.read(masked=True).data, strict=True):
            value = 10 * wanted[band.name]
            assert set(plane.compressed().tolist()) == {value}
            assert band.statistics is not None
            assert (band.statistics.min, band.statistics.max) == (value, value)


def test_a_nodata_value_that_the_source_has_not(tmp_path: Path) -> None:
    pixels = np.full((200, 300), 9, np.uint8)
    mask = np.full(pixels.shape, 255, np.uint8)
    mask[:100] = 0
    counts = []
    sources: list[dict[str, Any]] = [{}, {"nodata": 200}, {"mask": mask}]
    for number, named in enumerate(sources):
        source = utm(tmp_path / f"{number}.tif", pixels, **named)
        path = tmp_path / f"{number}.parquet"
        comal.raquet.write(source, path, nodata=255, block_size=64)
        whole, _, _ = assembled(path, fill=255)
        assert set(np.unique(whole).tolist()) == {9, 255}
        with comal.raquet.open(path) as raster:
            assert raster.bands[0].nodata == 255
            assert raster.bands[0].statistics is not None
            assert raster.bands[0].statistics.count == (whole == 9).sum()
        counts.append(int((whole == 9).sum()))
        assert comal.raquet.check(path, level="full").counts == {}
    assert counts[0] == counts[1]
    assert counts[2] / counts[0] == pytest.approx(0.5, abs=0.01)


def test_rgba_is_weighted_by_alpha(tmp_path: Path) -> None:
    pixels = np.zeros((4, 200, 200), np.uint8)
    pixels[0], pixels[3] = 200, 255
    pixels[:, :, 100:] = 0
    source = utm(tmp_path / "a.tif", pixels, photometric="RGB", ALPHA="YES")
    path = tmp_path / "a.parquet"
    comal.raquet.write(source, path, resampling="bilinear", block_size=64, min_zoom=5)
    with comal.raquet.open(path) as raster:
        for zoom in raster.zooms:
            whole, _, _ = assembled(path, zoom)
            shown = whole[3] > 0
            # A transparent neighbour makes no colour darker.
            assert set(np.unique(whole[0][shown])) <= {199, 200}


def test_a_mosaic_takes_the_first_raster_that_has_a_pixel(tmp_path: Path) -> None:
    pixels = noise((2, 40, 60), "uint8")
    pixels[:, 5:20, 30:50] = 0
    sources = [
        on_grid(tmp_path / f"{n}.tif", band, nodata=0, column=32 * 500 + 20 * n, row=32 * 300)
        for n, band in enumerate(pixels)
    ]
    path = tmp_path / "m.parquet"
    comal.raquet.write(sources, path, block_size=32, zoom=10)
    first, second = np.zeros((2, 40, 80), "uint8")
    first[:, :60], second[:, 20:] = pixels
    wanted = np.where(first > 0, first, second)
    with comal.raquet.open(path) as raster:
        np.testing.assert_array_equal(raster.read().data[0][:40, :80], wanted)
        assert raster.bands[0].statistics is not None
        assert raster.bands[0].statistics.count == np.count_nonzero(wanted)
