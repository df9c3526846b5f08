"""Bands of two rasters in one file: each keeps its values, and where it has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import raquet
from comal.errors import InvalidInputError
from tests.raquet import build
from tests.raquet.writing.sources import on_grid

FIRST, BOTH, SECOND = (5, 17, 9), (5, 18, 9), (5, 19, 9)
SIDE = build.BLOCK


def made(path: Path, dtype: str, tiles: Any, *, interleaved: bool, alpha: bool) -> Path:
    """A file that says neither a nodata value nor where its source lies."""
    bands = [(path.stem, dtype, None)] + ([("alpha", dtype, None)] if alpha else [])
    said = [{"name": name, "type": kind} for name, kind, _ in bands]
    if alpha:
        said[1]["colorinterp"] = "alpha"
    plan = build.Plan(bands=bands, nested=True, interleaved=interleaved, change={"bands": said})
    return build.write(path, tiles, plan)


def pixels(dtype: str, seed: int) -> Any:
    found = np.random.default_rng(seed).integers(0, 100, (SIDE, SIDE)).astype(dtype)
    found[0, :3] = 0, 1, 2
    return found


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_tiles_of_one_raster_have_no_value_in_the_bands_of_the_other(
    tmp_path: Path, dtype: str, interleaved: bool
) -> None:
    """They are NULL there, and zeros stay values."""
    tiles = (
        {FIRST: [pixels(dtype, 1)], BOTH: [pixels(dtype, 2)]},
        {BOTH: [pixels(dtype, 3)], SECOND: [pixels(dtype, 4)]},
    )
    first, second = (
        made(tmp_path / f"{name}.parquet", dtype, one, interleaved=interleaved, alpha=False)
        for name, one in zip("ab", tiles, strict=True)
    )
    target = tmp_path / "c.parquet"
    raquet.append_bands(first, second, target)
    assert raquet.check(target, level="full").ok
    with raquet.open(target) as file:
        for tile in (FIRST, BOTH, SECOND):
            for band, own in zip(file.tile(*tile, ["a", "b"], masked=True), tiles, strict=True):
                valid = ~np.ma.getmaskarray(band)
                np.testing.assert_array_equal(valid, np.full((SIDE, SIDE), tile in own))
                if tile in own:
                    np.testing.assert_array_equal(band.data, own[tile][0])


@pytest.mark.parametrize("interleaved", [False, True])
def test_an_alpha_band_of_the_first_raster_hides_the_added_bands_too(
    tmp_path: Path, interleaved: bool
) -> None:
    """And a warning says so: RaQuet has one alpha band for all bands of a file."""
    shown = pixels("uint8", 5) % 2
    one, two = {BOTH: [pixels("uint8", 1), shown]}, {BOTH: [pixels("uint8", 3)]}
    first = made(tmp_path / "a.parquet", "uint8", one, interleaved=interleaved, alpha=True)
    second = made(tmp_path / "b.parquet", "uint8", two, interleaved=interleaved, alpha=False)
    with pytest.warns(UserWarning, match="'alpha' hides the added bands"):
        raquet.append_bands(first, second, tmp_path / "c.parquet")
    with raquet.open(tmp_path / "c.parquet") as file:
        for band, plane in zip(file.tile(*BOTH, ["a", "b"], masked=True), (one, two), strict=True):
            np.testing.assert_array_equal(~np.ma.getmaskarray(band), shown > 0)
            np.testing.assert_array_equal(band.data[shown > 0], plane[BOTH][0][shown > 0])


def test_an_alpha_band_that_is_added_would_hide_nothing(tmp_path: Path) -> None:
    plane = np.random.default_rng(3).integers(0, 20, (30, 30)).astype("uint8")
    mask = np.where(np.arange(900).reshape(30, 30) % 7, 255, 0).astype("uint8")
    place: dict[str, Any] = {"column": 32 * 501 + 9, "row": 32 * 300 + 9}
    plain = on_grid(
        tmp_path / "a.tif", np.full((64, 64), 5, "uint8"), column=32 * 501, row=32 * 300
    )
    other = on_grid(tmp_path / "b.tif", plane, mask=mask, **place)
    first, target = tmp_path / "a.parquet", tmp_path / "c.parquet"
    raquet.write(plain, first, block_size=32)
    with pytest.raises(InvalidInputError, match="alpha band of the added raster"):
        raquet.append_bands(first, other, target, names={"band_1": "x"})
    assert not target.exists()
    raquet.append_bands(first, other, target, names={"band_1": "x"}, nodata=99)
    with raquet.open(target) as both:
        window = both.read(bands=["band_1", "x"], masked=True).data
    assert window[0].count() == 64 * 64
    assert sorted(window[1].compressed()) == sorted(plane[mask > 0])
