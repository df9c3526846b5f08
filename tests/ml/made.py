"""Small archives to train from."""

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


@cache
def _bytes(make: Callable[[Path, int], None], name: str, count: int) -> bytes:
    """A file that many tests want, made once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        make(path, count)
        return path.read_bytes()


def flat(folder: Path, count: int = 20) -> Path:
    """A TACO whose samples are images."""
    target = folder / "flat.tacozip"
    target.write_bytes(_bytes(_flat, target.name, count))
    return target


def _flat(target: Path, count: int) -> None:
    samples = [
        taco.Sample(
            id=f"s{number:03d}.tif",
            path=geotiff(pixels(number)),
            label=number % 3,
            split=["train", "test"][number % 2],
        )
        for number in range(count)
    ]
    pack(target, samples)


def _children(number: int) -> list[tuple[str, Any]]:
    return [
        ("image.tif", geotiff(pixels(number))),
        ("mask.tif", geotiff(pixels(number, bands=1))),
        ("about.json", b'{"number": %d}' % number),
        ("series", [(f"t{step}.tif", geotiff(pixels(number + step))) for step in range(3)]),
    ]


def _samples(children: list[tuple[str, Any]]) -> list[taco.Sample]:
    return [
        taco.Sample(id=name, path=taco.Tortilla(_samples(one)) if isinstance(one, list) else one)
        for name, one in children
    ]


def nested(folder: Path, count: int = 12, kind: str = "zip") -> Path:
    """A TACO whose samples have an image, a mask, a document and a series of images."""
    target = folder / ("nested.tacozip" if kind == "zip" else "nested")
    if kind == "zip":
        target.write_bytes(_bytes(_nested, target.name, count))
    else:
        _nested(target, count)
    return target


def _nested(target: Path, count: int) -> None:
    samples = [
        taco.Sample(
            id=f"s{number:03d}", path=taco.Tortilla(_samples(_children(number))), label=number
        )
        for number in range(count)
    ]
    kind = "zip" if target.suffix else "folder"
    pack(target, samples, output_format=kind)


def items(folder: Path, count: int = 12) -> Path:
    """A Tortilla with the same samples as `nested`."""
    target = folder / "items.tortilla"
    target.write_bytes(_bytes(_items, target.name, count))
    return target


def _items(target: Path, count: int) -> None:
    def of(children: list[tuple[str, Any]]) -> list[tortilla.Sample]:
        return [
            tortilla.Sample(id=name, path=of(one) if isinstance(one, list) else one)
            for name, one in children
        ]

    samples = [
        tortilla.Sample(f"s{number:03d}", path=of(_children(number)), label=number)
        for number in range(count)
    ]
    tortilla.create(samples, target)
