"""The options of drawing: their spelling on the command line gives the bytes of the call in Python.

Pictures are read by Pillow, out of each container by another library than comal.
"""

from __future__ import annotations

import io
import sqlite3
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from PIL import Image

from comal import raquet, tapalcatl
from comal.convert import draw
from comal.errors import InvalidInputError
from tests.convert.migrated import FIELDS
from tests.convert.test_raquet_tapalcatl import converted, picture
from tests.raquet.writing.sources import noise, on_grid
from tests.support import command, digests, files_below
from tests.tapalcatl.making import pyramid, write_mbtiles
from tests.tortilla.build import Item, built

SQUARES = np.random.default_rng(7).integers(0, 1000, (3, 64, 32), np.uint16)
BANDS = SQUARES.repeat(8, axis=1).repeat(8, axis=2)
"""Of two tiles of zoom 1, which are soon compressed."""
OPTIONS: dict[str, tuple[dict[str, Any], list[int], list[tuple[float, float]]]] = {
    "--band 2 --stretch 0,999": ({"bands": [2], "stretch": (0, 999)}, [2], [(0, 999)]),
    "--stretch -5,1e3": ({"stretch": (-5, 1000)}, [1], [(-5, 1000)]),
    "--band band_3 --band 2 --band band_1 --stretch 100,900": (
        {"bands": ["band_3", 2, "band_1"], "stretch": [(100, 900)]}, [3, 2, 1], [(100, 900)] * 3,
    ),
    "--band 1 --band 1 --band 3 --stretch 0,500 --stretch 0,600 --stretch 100.5,700": (
        {"bands": [1, 1, 3], "stretch": [(0, 500), (0, 600), (100.5, 700)]},
        [1, 1, 3],
        [(0, 500), (0, 600), (100.5, 700)],
    ),
}  # fmt: skip
"""For each spelling the arguments in Python, and what they mean: bands, and values of each."""


def _of_zip(path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return archive.read("1/0/1.png")


def _of_mbtiles(path: Path) -> bytes:
    with sqlite3.connect(path) as base:
        asked = "SELECT tile_data FROM tiles WHERE zoom_level = 1 AND tile_column = 0"
        ((found,),) = base.execute(f"{asked} AND tile_row = 0")
    return bytes(found)


def _of_pmtiles(path: Path) -> bytes:
    reader: Any = import_module("pmtiles.reader")
    with path.open("rb") as file:
        return bytes(reader.Reader(reader.MmapSource(file)).get(1, 0, 1))


TARGETS: dict[str, Callable[[Path], bytes]] = {
    "tiles": lambda path: _of_zip(next(path.rglob("*.zip"))),
    "t.zip": _of_zip, "t.mbtiles": _of_mbtiles, "t.pmtiles": _of_pmtiles,
}  # fmt: skip


def _bytes(path: Path) -> Any:
    return digests(files_below(path)) if path.is_dir() else path.read_bytes()


def _planned(source: Path, out: Path, words: list[str]) -> None:
    command("plan", "tapalcatl", source, out, "-o", out.with_name("plan"), *words)
    command("run", out.with_name("plan"))
    command("merge", out.with_name("plan"))


@pytest.mark.parametrize(
    ("line", "target"),
    [
        *((line, "tiles") for line in ("", *OPTIONS)),
        *((list(OPTIONS)[-1], one) for one in [*TARGETS][1:]),
    ],
)
def test_one_spelling_gives_one_drawing(tmp_path: Path, line: str, target: str) -> None:
    file, words = converted(tmp_path, BANDS), line.split()
    named, bands, ranges = OPTIONS.get(line, ({}, [], []))
    (tmp_path / "cli").mkdir()
    (tmp_path / "python").mkdir()
    made, called = tmp_path / "cli" / target, tmp_path / "python" / target
    command("convert", file, made, *words)
    draw(file, called, **named)
    assert _bytes(made) == _bytes(called)
    if target == "tiles":
        _planned(file, tmp_path / "out", words)
        assert _bytes(tmp_path / "out") == _bytes(called)
    drawn = np.asarray(Image.open(io.BytesIO(TARGETS[target](made))).convert("RGB"))
    for place, (band, (low, high)) in enumerate(zip(bands, ranges, strict=True)):
        share = np.clip((BANDS[band - 1, 256:].astype(float) - low) / (high - low), 0, 1)
        np.testing.assert_array_equal(drawn[..., place], np.floor(share * 255 + 0.5))


def test_values_that_are_named_are_drawn_without_the_colour_table(tmp_path: Path) -> None:
    pixels = np.arange(512 * 256, dtype=np.int64).reshape(1, 512, 256).astype(np.uint8)
    file = converted(tmp_path, pixels, colours={1: (255, 0, 0, 255)})
    draw(file, tmp_path / "tiles", stretch=(0, 510))
    drawn = picture(tmp_path / "tiles", 1, 0, 1)
    np.testing.assert_array_equal(drawn[..., 0], np.floor(pixels[0, 256:] / 2 + 0.5))


def test_bands_of_what_is_not_drawn(tmp_path: Path) -> None:
    raster = on_grid(tmp_path / "a.tif", noise((3, 64, 64), "uint8"), nodata=0)
    made, called = tmp_path / "a.parquet", tmp_path / "b.parquet"
    command("convert", raster, made, "--band", 3, "--band", 1)
    raquet.write(raster, called, bands=[3, 1])
    assert made.read_bytes() == called.read_bytes()
    command("convert", made, tmp_path / "one.tif", "--band", "2")
    with rasterio.open(raster) as whole, rasterio.open(tmp_path / "one.tif") as one:
        assert one.count == 1
        found = one.read(1)
        assert np.array_equal(found[found != 0], whole.read(1)[whole.read(1) != 0])


def _tortilla(path: Path) -> None:
    path.write_bytes(built([Item("a", b"1")]))


def _rasters(path: Path) -> None:
    path.mkdir()
    on_grid(path / "a.tif", noise((1, 64, 64), "uint8"))


def _packed(path: Path) -> None:
    _rasters(path.parent / "in")
    flags = [f"--{name.replace('_', '-')}={FIELDS[name]}" for name in ("id", "description")]
    flags += ["--dataset-version=1", "--license=MIT", "--provider=p", "--task=other"]
    command("convert", path.parent / "in", path, *flags)


def _raquet(path: Path) -> None:
    raquet.write(on_grid(path.parent / "a.tif", noise((1, 64, 64), "uint8")), path)


SOURCES: list[tuple[str, Callable[[Path], Any], str, tuple[str, ...]]] = [
    ("a.tortilla", _tortilla, "o.tacozip", ("--band", "--stretch")),
    ("a.mbtiles", lambda path: write_mbtiles(path, pyramid(2)), "o", ("--band", "--stretch")),
    ("rasters", _rasters, "o.tacozip", ("--band", "--stretch")),
    ("a.tacozip", _packed, "o", ("--band", "--stretch")),
    ("a.parquet", _raquet, "o.parquet", ("--band", "--stretch")),
    ("a.parquet", _raquet, "o.tif", ("--stretch",)),
    ("r.tif", lambda path: on_grid(path, noise((1, 64, 64), "uint8")), "o.parquet", ("--stretch",)),
]


@pytest.mark.parametrize(("name", "make", "target", "refused"), SOURCES)
def test_what_is_not_drawn_takes_no_option_of_drawing(
    tmp_path: Path, name: str, make: Callable[[Path], Any], target: str, refused: tuple[str, ...]
) -> None:
    make(tmp_path / name)
    calls: list[tuple[Any, ...]] = [("convert", tmp_path / name, tmp_path / target)]
    if name == "a.mbtiles":
        calls.append(("plan", "tapalcatl", *calls[0][1:], "-o", tmp_path / "plan"))
    for words in calls:
        for option in refused:
            told = command(*words, option, "1" if option == "--band" else "1,2", code=2).output
            assert f"{option} is not for this kind of" in told
            assert not (tmp_path / target).exists()
            assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--band 4", "'band_1', 'band_2', 'band_3', or 1 to 3"),
        ("--band 1 --band 2", "neither one nor three"),
        ("--stretch 5", "'5' is not LOW,HIGH"),
        ("--stretch 5,1", "from low to high"),
        ("--stretch 5,inf", "from low to high"),
        ("--band 1 --stretch 0,1 --stretch 0,2", "for 1 band"),
        ("--bands 2", "--bands is not for"),
        ("--bands 2 --band 1", "either --band or --bands"),
    ],
)
def test_values_that_cannot_be_drawn(tmp_path: Path, line: str, told: str) -> None:
    file = converted(tmp_path, BANDS)
    for target in ("o", "o.pmtiles"):
        assert told in command("convert", file, tmp_path / target, *line.split(), code=2).output
        assert not (tmp_path / target).exists()


def test_a_file_of_tiles_takes_no_layout(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="unknown option"):
        draw(converted(tmp_path, BANDS), tmp_path / "o.mbtiles", metatile=2)
    assert not (tmp_path / "o.mbtiles").exists()
    draw(tmp_path / "raster.parquet", tmp_path / "o", metatile=1, materialized_zooms=[0, 1])
    assert tapalcatl.check(tmp_path / "o").ok
