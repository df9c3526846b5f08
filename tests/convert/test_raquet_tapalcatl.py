"""RaQuet drawn as PNG tiles: pixels by Pillow, tiles by the reader of Tapalcatl."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from comal import raquet, tapalcatl
from comal.convert.raquet_tapalcatl import draw
from comal.errors import InvalidInputError
from comal.grid.mercator import HALF
from tests.raster.rasters import write


def picture(tileset: Path, z: int, x: int, y: int) -> Any:
    with tapalcatl.open(tileset) as tiles:
        tile = tiles.tile(z, x, y)
    assert tile is not None
    return np.asarray(Image.open(io.BytesIO(tile.data)).convert("RGBA"))


def converted(tmp_path: Path, pixels: Any, **profile: Any) -> Path:
    """A raster that covers two tiles of zoom 1 exactly: the western half of the world."""
    _, rows, columns = pixels.shape
    affine = (-HALF, HALF / columns, 0, HALF, 0, -2 * HALF / rows)
    source = write(tmp_path / "source.tif", pixels, crs="EPSG:3857", affine=affine, **profile)
    raquet.write(source, tmp_path / "raster.parquet")
    return tmp_path / "raster.parquet"


@pytest.mark.parametrize("name", ["tiles", "tiles.zip"])
def test_eight_bit_colour_is_kept(tmp_path: Path, name: str) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (3, 512, 256), np.uint8)
    file = converted(tmp_path, pixels, photometric="rgb")
    built = draw(file, tmp_path / name)
    assert (built.archives, built.tiles) == (1, 3)
    assert (tmp_path / name).is_file() == name.endswith(".zip")
    drawn = picture(tmp_path / name, 1, 0, 1)
    np.testing.assert_array_equal(np.moveaxis(drawn[..., :3], -1, 0), pixels[:, 256:])
    assert (drawn[..., 3] == 255).all()
    assert tapalcatl.check(tmp_path / name).ok


def test_who_listens_is_told_of_tiles(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(1, 256, (1, 1024, 512), np.uint8)
    file, seen = converted(tmp_path, pixels, nodata=0), []

    def tell(done: int, total: int | None, what: str) -> None:
        if what == "tiles":
            seen.append((done, total))

    draw(file, tmp_path / "a.zip", progress=tell)
    assert seen == [(done, 11) for done in range(1, 12)]


def test_a_band_is_stretched_and_nodata_is_clear(tmp_path: Path) -> None:
    pixels = np.linspace(0, 1000, 512 * 256).reshape(1, 512, 256).astype(np.float32)
    pixels[0, 300:310] = -1
    file = converted(tmp_path, pixels, nodata=-1)
    draw(file, tmp_path / "tiles", stretch=(0, 1000))
    drawn = picture(tmp_path / "tiles", 1, 0, 1)
    assert (drawn[44:54, :, 3] == 0).all()
    assert (drawn[60:, :, 3] == 255).all()
    expected = np.floor(pixels[0, 316:] / 1000 * 255 + 0.5)
    np.testing.assert_array_equal(drawn[60:, :, 0], expected)


def test_the_default_stretch_leaves_tails_out(tmp_path: Path) -> None:
    pixels = np.arange(512 * 256, dtype=np.int32).reshape(1, 512, 256)
    draw(converted(tmp_path, pixels), tmp_path / "tiles")
    low, high = picture(tmp_path / "tiles", 1, 0, 0), picture(tmp_path / "tiles", 1, 0, 1)
    assert low[0, 0, 0] == 0
    assert high[-1, -1, 0] == 255
    assert 120 < high[0, 0, 0] < 135


def test_a_colour_table_is_honoured(tmp_path: Path) -> None:
    table = {1: (255, 0, 0, 255), 2: (0, 128, 0, 255)}
    pixels = np.full((1, 512, 256), 1, np.uint8)
    pixels[0, :300] = 2
    file = converted(tmp_path, pixels, colours=table)
    draw(file, tmp_path / "tiles")
    drawn = picture(tmp_path / "tiles", 1, 0, 1)
    assert tuple(drawn[0, 0]) == (0, 128, 0, 255)
    assert tuple(drawn[-1, 0]) == (255, 0, 0, 255)


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    file = converted(tmp_path, np.ones((2, 512, 256), np.int16))
    with pytest.raises(InvalidInputError, match="no such band"):
        draw(file, tmp_path / "tiles", bands=[7])
    with pytest.raises(InvalidInputError, match="neither one nor three"):
        draw(file, tmp_path / "tiles", bands=[1, 2])
    with pytest.raises(InvalidInputError, match="from low to high"):
        draw(file, tmp_path / "tiles", stretch=(3, 3))
    assert not (tmp_path / "tiles").exists()
