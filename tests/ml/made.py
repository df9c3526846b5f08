"""Small archives to train from, and samples without an archive."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.io import MemoryFile

from comal import taco, tortilla
from comal.ml.archives import Dataset

FIELDS: dict[str, Any] = {
    "id": "chips",
    "dataset_version": "1.0.0",
    "description": "Made-up chips.",
    "licenses": ["CC0-1.0"],
    "providers": [{"name": "made", "roles": ["producer"]}],
    "tasks": ["semantic-segmentation"],
}


def pixels(number: int, size: int = 16, bands: int = 3) -> Any:
    """Pixels (bands, y, x) that tell the number of their sample."""
    ramp = np.arange(bands * size * size, dtype=np.uint16).reshape(bands, size, size)
    return ramp + np.uint16(number)


def geotiff(array: Any, **profile: Any) -> bytes:
    """A GeoTIFF of 10 m pixels in UTM zone 31."""
    count, height, width = array.shape
    size = {"count": count, "height": height, "width": width}
    options = {"compress": "deflate", "predictor": 2, **profile}
    transform = rasterio.Affine(10, 0, 500_000, 0, -10, 4_600_000)
    with MemoryFile() as file:
        with file.open(
            driver="GTiff",
            dtype=array.dtype,
            crs="EPSG:32631",
            transform=transform,
            **size,
            **options,
        ) as image:
            image.write(array)
        return bytes(file.read())


def pack(target: Path, samples: list[taco.Sample], **options: Any) -> Path:
    """A TACO of some samples."""
    taco.create(taco.Taco(taco.Tortilla(samples), **FIELDS), target, **options)
    return target


def flat(folder: Path, count: int = 20) -> Path:
    """A TACO whose samples are images."""
    return _kept(folder / "flat.tacozip", _flat, count)


def nested(folder: Path, count: int = 12, kind: str = "zip") -> Path:
    """A TACO whose samples have an image, a mask, a document and a series of images."""
    if kind == "zip":
        return _kept(folder / "nested.tacozip", _nested, count)
    return _nested(folder / "nested", count)


def items(folder: Path, count: int = 12) -> Path:
    """A Tortilla with the same samples as `nested`."""
    return _kept(folder / "items.tortilla", _items, count)


def _kept(target: Path, make: Callable[[Path, int], Any], count: int) -> Path:
    target.write_bytes(_bytes(target.name, make, count))
    return target


@cache
def _bytes(name: str, make: Callable[[Path, int], Any], count: int) -> bytes:
    """A file that many tests want, made once."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / name, count)
        return (Path(folder) / name).read_bytes()


def _flat(target: Path, count: int) -> Path:
    names = ["train", "test"]
    return pack(
        target,
        [
            taco.Sample(f"s{n:03d}.tif", geotiff(pixels(n)), label=n % 3, split=names[n % 2])
            for n in range(count)
        ],
    )


def _nested(target: Path, count: int) -> Path:
    samples = [
        taco.Sample(name, taco.Tortilla(_below(number, taco.Sample, taco.Tortilla)), label=number)
        for number, name in enumerate(_names(count))
    ]
    return pack(target, samples, output_format="zip" if target.suffix else "folder")


def _items(target: Path, count: int) -> None:
    samples = [
        tortilla.Sample(name, path=_below(number, tortilla.Sample, list), label=number)
        for number, name in enumerate(_names(count))
    ]
    tortilla.create(samples, target)


def _names(count: int) -> list[str]:
    return [f"s{number:03d}" for number in range(count)]


def _below(number: int, sample: Any, folder: Any) -> list[Any]:
    """What a sample of `nested` holds."""
    series = [sample(f"t{step}.tif", path=geotiff(pixels(number + step))) for step in range(3)]
    return [
        sample("image.tif", path=geotiff(pixels(number))),
        sample("mask.tif", path=geotiff(pixels(number, bands=1))),
        sample("about.json", path=b'{"number": %d}' % number),
        sample("series", path=folder(series)),
    ]


class Numbers(Dataset):
    """Samples that are their own number; counts what is read."""

    def __init__(self, count: int, size: int = 8) -> None:
        self.count, self.size = count, size
        self.reading: list[int] = []

    def __len__(self) -> int:
        return self.count

    def nbytes(self, rows: Any) -> int:
        return len(rows) * self.size

    def read(self, rows: Any) -> Any:
        self.reading += rows.tolist()
        return rows

    def decode(self, place: int, raw: Any, out: Any) -> Any:
        return {"n": np.full(1, raw[place])}
