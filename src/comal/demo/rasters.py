"""Scenes as GeoTIFFs, and rasters of anybody as samples."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import rasterio
from rasterio.enums import ColorInterp
from rasterio.transform import Affine

from comal import raster
from comal.demo import scenes
from comal.taco.extensions import STAC, Split
from comal.taco.model.sample import Sample
from comal.taco.model.tortilla import Tortilla

IMAGE, MASK = "image.tif", "mask.tif"
_SPLITS = ("train", "train", "train", "validation", "train", "test")
_TILE = 160


@dataclass(frozen=True, slots=True)
class Material:
    """What a data set is made of."""

    tortilla: Tortilla
    originals: dict[str, Path]
    """For each leaf the file that its bytes come from."""
    classes: dict[str, str]
    """Values of the masks and what they mean; empty where nothing is known."""


def write_scenes(folder: Path, *, seed: int) -> Material:
    """Make all scenes, write them as GeoTIFFs below `folder`, and describe them as samples."""
    samples: list[Sample] = []
    originals: dict[str, Path] = {}
    for number, place in enumerate(scenes.PLACES):
        to_map = pyproj.Transformer.from_crs("EPSG:4326", f"EPSG:{place.epsg}", always_xy=True)
        scene = scenes.make(
            place, *to_map.transform(place.longitude, place.latitude), seed=seed, number=number
        )
        paths = {name: folder / scene.name / name for name in (IMAGE, MASK)}
        paths[IMAGE].parent.mkdir(parents=True)
        _write_image(paths[IMAGE], scene)
        _write_mask(paths[MASK], scene)
        samples.append(_scene_sample(scene, number, paths))
        originals |= {f"{scene.name}/{name}": path for name, path in paths.items()}
    classes = {str(value): name for value, (name, _) in enumerate(scenes.LAND_COVER)}
    return Material(Tortilla(samples), originals, classes)


def take_rasters(sources: Sequence[Path]) -> Material:
    """Rasters that are there already as a flat list of samples.

    A raster does not say when it was taken: the times are made up, a day apart.
    """
    samples: list[Sample] = []
    originals: dict[str, Path] = {}
    first = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
    for number, source in enumerate(sources):
        header = raster.header(source)
        sample = Sample(id=source.name, path=source, dtype=header.dtype)
        sample.extend_with(
            STAC(
                crs=header.crs or "EPSG:4326",
                tensor_shape=header.shape,
                geotransform=header.geotransform or (0.0, 1.0, 0.0, 0.0, 0.0, -1.0),
                time_start=first + dt.timedelta(days=number),
            )
        )
        samples.append(sample)
        originals[source.name] = source
    return Material(Tortilla(samples), originals, {})


def read_all(path: str | Path) -> Any:
    """Every pixel of a raster; only for the small ones of the demo."""
    with rasterio.open(path) as dataset:
        return dataset.read()


def same_pixels(first: str | Path, second: str | Path) -> bool:
    """Whether two rasters have the same shape, type, place and pixels, some rows at a time."""
    with rasterio.open(first) as one, rasterio.open(second) as two:
        if (one.shape, one.dtypes, one.crs, one.transform) != (
            two.shape,
            two.dtypes,
            two.crs,
            two.transform,
        ):
            return False
        rows = max(1, 32_000_000 // max(1, one.width * one.count))
        for top in range(0, one.height, rows):
            window = ((top, min(top + rows, one.height)), (0, one.width))
            if not _equal(one.read(window=window), two.read(window=window)):
                return False
    return True


def _equal(one: Any, two: Any) -> bool:
    return np.array_equal(one, two, equal_nan=one.dtype.kind == "f")


def _scene_sample(scene: scenes.Scene, number: int, paths: dict[str, Path]) -> Sample:
    files = Tortilla([Sample(id=name, path=path) for name, path in paths.items()])
    sample = Sample(
        id=scene.name,
        path=files,
        cloud_cover=scene.cloud_cover,
        water=round(100 * float((scene.mask == scenes.WATER).mean()), 2),
    )
    sample.extend_with(
        STAC(
            crs=scene.crs,
            tensor_shape=scene.image.shape,
            geotransform=scene.transform,
            time_start=scene.time,
        )
    )
    sample.extend_with(Split(_SPLITS[number % len(_SPLITS)]))
    return sample


def _profile(scene: scenes.Scene) -> dict[str, Any]:
    return {
        "driver": "GTiff",
        "width": scenes.SIZE,
        "height": scenes.SIZE,
        "crs": scene.crs,
        "transform": Affine.from_gdal(*scene.transform),
        "tiled": True,
        "blockxsize": _TILE,
        "blockysize": _TILE,
        "compress": "deflate",
    }


def _write_image(path: Path, scene: scenes.Scene) -> None:
    profile = _profile(scene) | {"count": 4, "dtype": "uint16", "predictor": 2}
    with rasterio.open(path, "w", **profile) as target:
        target.write(scene.image)
        target.colorinterp = (
            ColorInterp.blue,
            ColorInterp.green,
            ColorInterp.red,
            ColorInterp.undefined,
        )
        for band, name in enumerate(scenes.BANDS, start=1):
            target.set_band_description(band, name)


def _write_mask(path: Path, scene: scenes.Scene) -> None:
    with rasterio.open(path, "w", **_profile(scene), count=1, dtype="uint8") as target:
        target.write(scene.mask, 1)
        colours = {value: (*colour, 255) for value, (_, colour) in enumerate(scenes.LAND_COVER)}
        target.write_colormap(1, colours)
