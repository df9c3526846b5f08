"""Made-up scenes of many landscapes, as GeoTIFFs and as samples."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import rasterio
from rasterio.enums import ColorInterp
from rasterio.transform import Affine

from comal.taco.extensions import STAC, Split
from comal.taco.model.sample import Sample
from comal.taco.model.tortilla import Tortilla

Array = np.ndarray[Any, Any]

IMAGE, MASK = "image.tif", "mask.tif"
_SPLITS = ("train", "train", "train", "validation", "train", "test")
_TILE = 160
SIZE = 320
"""Pixels along each side of a scene."""
PIXEL = 20.0
"""Metres along each side of a pixel."""
BANDS = ("B02", "B03", "B04", "B08")
"""Blue, green, red and near infrared, as Sentinel-2 names them; reflectance times 10 000."""

LAND_COVER = (
    ("no data", (0, 0, 0)),
    ("water", (46, 110, 176)),
    ("trees", (36, 110, 56)),
    ("grass", (154, 196, 92)),
    ("crops", (226, 178, 74)),
    ("bare", (190, 164, 136)),
    ("snow", (240, 245, 250)),
    ("built", (200, 66, 60)),
    ("cloud", (255, 255, 255)),
    ("cloud shadow", (90, 90, 105)),
)
"""Name and colour of each value of a mask."""
NO_DATA, WATER, TREES, GRASS, CROPS, BARE, SNOW, BUILT, CLOUD, SHADOW = range(10)


@dataclass(frozen=True, slots=True)
class Place:
    """Location and land cover of scenes; fractions of the area are between 0 and 1."""

    name: str
    longitude: float
    latitude: float
    epsg: int
    water: float
    trees: float
    crops: float
    arid: float
    relief: float
    snow: float = 0.0
    city: float = 0.0
    cloud: float = 0.1


PLACES = (
    Place("taveuni", 180.0, -16.85, 32760, 0.45, 0.75, 0.05, 0.0, 1.2, cloud=0.25),
    Place("greenwich", 0.0, 51.48, 32631, 0.06, 0.30, 0.45, 0.0, 0.3, city=0.55, cloud=0.16),
    Place("valencia", -0.38, 39.47, 32630, 0.30, 0.15, 0.75, 0.35, 0.5, city=0.30, cloud=0.03),
    Place("oaxaca", -96.72, 17.06, 32614, 0.02, 0.40, 0.45, 0.30, 1.0, city=0.25, cloud=0.08),
    Place("cusco", -71.97, -13.52, 32719, 0.02, 0.25, 0.25, 0.45, 1.6, snow=0.12, cloud=0.20),
    Place("manaus", -59.90, -3.10, 32721, 0.28, 0.95, 0.0, 0.0, 0.3, cloud=0.45),
    Place("namib", 15.30, -24.70, 32733, 0.0, 0.0, 0.0, 0.97, 0.9, cloud=0.0),
    Place("mount_kenya", 37.31, -0.15, 32737, 0.01, 0.55, 0.30, 0.15, 1.8, snow=0.06, cloud=0.30),
    Place("sundarbans", 89.20, 21.90, 32645, 0.42, 0.80, 0.20, 0.0, 0.15, cloud=0.12),
    Place("furano", 142.45, 43.35, 32654, 0.03, 0.45, 0.65, 0.0, 0.9, city=0.08, cloud=0.06),
    Place("alice_springs", 133.88, -23.70, 32753, 0.0, 0.05, 0.0, 0.95, 0.8, city=0.05, cloud=0.02),
    Place("disko_bay", -51.10, 69.22, 32622, 0.38, 0.0, 0.0, 0.25, 1.3, snow=0.55, cloud=0.10),
)


@dataclass(frozen=True, slots=True)
class Scene:
    """One made-up acquisition."""

    name: str
    place: Place
    time: dt.datetime
    crs: str
    transform: tuple[float, float, float, float, float, float]
    """Geotransform in the order of GDAL."""
    image: Array
    """uint16, shape (4, SIZE, SIZE)."""
    mask: Array
    """uint8, shape (SIZE, SIZE); indices into `LAND_COVER`."""
    cloud_cover: float
    """Per cent of the pixels under clouds."""


def make(place: Place, easting: float, northing: float, *, seed: int, number: int) -> Scene:
    """The scene number `number` of a year, centred on a point of the place's map projection."""
    rng = np.random.default_rng([seed, number])
    height = _terrain(rng, place.relief)
    cover, sea = _land_cover(rng, place, height)
    season = _season(place, number)
    reflectance = _reflectance(rng, place, cover, season, height, sea)
    clouds, shadows = _clouds(rng, place.cloud)
    image = _under_clouds(reflectance, clouds, shadows)
    mask = cover.copy()
    mask[shadows > 0.30] = SHADOW
    mask[clouds > 0.30] = CLOUD
    half = SIZE * PIXEL / 2
    west, north = (
        PIXEL * round((value + sign * half) / PIXEL)
        for value, sign in ((easting, -1), (northing, 1))
    )
    noise = rng.normal(0, 18, image.shape)
    return Scene(
        place.name,
        place,
        dt.datetime(2025, 1, 1, 10, 30, tzinfo=dt.UTC) + dt.timedelta(days=8 + 30 * number),
        f"EPSG:{place.epsg}",
        (west, PIXEL, 0.0, north, 0.0, -PIXEL),
        np.clip(image * 10_000 + noise, 1, 16_000).astype(np.uint16),
        mask,
        round(100 * float((mask == CLOUD).mean()), 2),
    )


def colours(mask: Array) -> Array:
    """A mask as colours: uint8 of shape (3, height, width)."""
    table = np.array([colour for _, colour in LAND_COVER], dtype=np.uint8)
    return np.moveaxis(table[mask], -1, 0)


def true_colour(image: Array) -> Array:
    """Bands red, green and blue stretched to uint8 of shape (3, height, width)."""
    rgb = image[[2, 1, 0]].astype(np.float64) / 10_000
    # Reflectance against half-saturation: land keeps its contrast, clouds and snow their shape.
    bright = np.clip(1.18 * rgb / (rgb + 0.15), 0, 1)
    return np.asarray(np.round(255 * bright), dtype=np.uint8)


# -- land ---------------------------------------------------------------------------------------


def _fractal(rng: np.random.Generator, roughness: float) -> Array:
    """Noise whose power falls with frequency, as ranks in 0..1, so that quantiles are areas."""
    along = np.fft.fftfreq(SIZE)
    frequency = np.hypot(along[:, None], along[None, :])
    frequency[0, 0] = np.inf
    spectrum = np.fft.fft2(rng.normal(size=(SIZE, SIZE))) * frequency**-roughness
    field = np.real(np.fft.ifft2(spectrum))
    ranks = np.empty(SIZE * SIZE)
    ranks[np.argsort(field, axis=None, kind="stable")] = np.linspace(0, 1, SIZE * SIZE)
    return ranks.reshape(SIZE, SIZE)


def _terrain(rng: np.random.Generator, relief: float) -> Array:
    """Heights with broad forms and, where the relief is strong, sharp ridges."""
    broad = _fractal(rng, 2.1)
    ridges = 1 - np.abs(2 * _fractal(rng, 1.7) - 1)
    return np.asarray(broad * 0.75 + 0.25 * min(relief, 1.5) / 1.5 * ridges * broad)


def _land_cover(rng: np.random.Generator, place: Place, height: Array) -> tuple[Array, Array]:
    moisture = 0.6 * _fractal(rng, 1.6) + 0.4 * (1 - height / height.max())
    steep = np.hypot(*np.gradient(height)) * SIZE
    sea = np.quantile(height, place.water) if place.water else -1.0
    cover = np.full(height.shape, GRASS, dtype=np.uint8)
    cover[moisture < np.quantile(moisture, place.arid)] = BARE
    cover[moisture > np.quantile(moisture, 1 - place.trees)] = TREES
    if place.crops:
        level = (steep < np.quantile(steep, 0.85)) & (height < np.quantile(height, 0.92))
        farmed = _fractal(rng, 1.8) < place.crops * 1.15
        cover[level & farmed] = CROPS
    if place.city:
        y, x = np.mgrid[:SIZE, :SIZE] / SIZE - 0.5
        centre = 1 - np.hypot(x - 0.06, y + 0.05) / 0.75
        cover[centre + 0.55 * _fractal(rng, 1.3) > 1.42 - 0.55 * place.city] = BUILT
    if place.snow:
        cover[height > np.quantile(height, 1 - place.snow)] = SNOW
    cover[height < sea] = WATER
    if place.water < 0.3 and place.arid < 0.9:
        cover[_river(rng)] = WATER
    return cover, np.clip((sea - height) * 6, 0, 1)


def _river(rng: np.random.Generator) -> Array:
    """A band that meanders from one side to the other."""
    columns = np.arange(SIZE)
    path = SIZE * rng.uniform(0.3, 0.7) + np.zeros(SIZE)
    for waves in (1, 2, 3, 5, 9):
        path += (
            SIZE
            * 0.13
            / waves
            * np.sin(2 * math.pi * waves * columns / SIZE + rng.uniform(0, 2 * math.pi))
        )
    width = 3.2 + 2.0 * np.sin(columns / 37)
    band: Array = np.abs(np.arange(SIZE)[:, None] - path[None, :]) < width[None, :]
    return np.rot90(band) if rng.random() < 0.5 else band


def _season(place: Place, number: int) -> float:
    """How green the plants are, 0 in winter to 1 in summer; even near the equator."""
    swing = min(abs(place.latitude) / 45, 1.0)
    phase = math.cos(2 * math.pi * (number / 12 - 0.54))
    if place.latitude < 0:
        phase = -phase
    return 0.75 + 0.25 * swing * phase


_SPECTRA = np.array(
    [
        # B02, B03, B04, B08
        (0.000, 0.000, 0.000, 0.000),
        (0.060, 0.046, 0.022, 0.012),
        (0.020, 0.044, 0.022, 0.300),
        (0.040, 0.092, 0.060, 0.310),
        (0.055, 0.092, 0.080, 0.330),
        (0.105, 0.145, 0.190, 0.270),
        (0.680, 0.690, 0.690, 0.620),
        (0.120, 0.130, 0.140, 0.200),
        (0.000, 0.000, 0.000, 0.000),
        (0.000, 0.000, 0.000, 0.000),
    ]
)
_CROPS = np.array(
    [
        (0.028, 0.075, 0.036, 0.400),
        (0.040, 0.115, 0.060, 0.420),
        (0.060, 0.150, 0.125, 0.350),
        (0.070, 0.170, 0.200, 0.330),
        (0.105, 0.155, 0.205, 0.280),
        (0.075, 0.090, 0.115, 0.180),
    ]
)
"""Young, full, turning and ripe crops, stubble and ploughed soil."""
_DRY = np.array((0.10, 0.13, 0.16, 0.22))


def _reflectance(
    rng: np.random.Generator, place: Place, cover: Array, season: float, height: Array, sea: Array
) -> Array:
    spectra = _SPECTRA[cover]
    fade = 0.9 * (1 - season)
    for plant, much in ((GRASS, 1.0), (CROPS, 1.2), (TREES, 0.35)):
        where = cover == plant
        spectra[where] += (fade * much) * (_DRY - spectra[where])
    _paint_fields(rng, spectra, cover == CROPS)
    _paint_blocks(rng, spectra, cover == BUILT)
    if place.arid > 0.9:
        _paint_desert(rng, spectra, cover == BARE, dunes=place.trees == 0)
    water = cover == WATER
    shallow = np.clip(1 - 2.5 * sea[water], 0, 1) ** 3
    turbid = 0.5 if place.relief < 0.4 else 0.15
    spectra[water] += shallow[:, None] * turbid * np.array((0.10, 0.14, 0.07, 0.02))
    grain = 0.85 + 0.3 * _fractal(rng, 0.9)
    lit = np.where(water, 1.0, _hillshade(height, place.relief) * grain)
    return np.asarray(np.moveaxis(spectra * lit[..., None], -1, 0))


def _paint_fields(rng: np.random.Generator, spectra: Array, where: Array) -> None:
    """Fields as cells around scattered points, each with a crop of its own."""
    count = 420
    angle = rng.uniform(0, math.pi)
    points = rng.uniform(0, SIZE, (count, 2))
    centres = _turned(points[:, 0], points[:, 1], angle)
    rows, columns = np.nonzero(where)
    along, across = _turned(columns, rows, angle)
    nearest = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), 512):  # so many distances fit into the processor's cache
        part = slice(start, start + 512)
        # The distance of an oblong: fields have corners, not curves.
        a = np.abs(along[part, None] - centres[0])
        b = np.abs(across[part, None] * 1.9 - centres[1] * 1.9)
        nearest[part] = np.argmin(np.maximum(a, b), axis=1)
    tone = rng.uniform(0.85, 1.15, count)
    crop = _CROPS[rng.integers(0, len(_CROPS), count)] * tone[:, None]
    spectra[where] = 0.25 * spectra[where] + 0.75 * crop[nearest]


def _turned(x: Array, y: Array, angle: float) -> tuple[Array, Array]:
    """Coordinates along and across a direction."""
    along = x * math.cos(angle) + y * math.sin(angle)
    return along, y * math.cos(angle) - x * math.sin(angle)


def _paint_blocks(rng: np.random.Generator, spectra: Array, where: Array) -> None:
    """Streets on a turned grid, roofs of many shades between them."""
    angle = rng.uniform(0.1, 0.6)
    y, x = np.mgrid[:SIZE, :SIZE]
    u, v = _turned(x, y, angle)
    street = (np.mod(u, 9) < 1.3) | (np.mod(v, 7) < 1.3)
    shades = rng.uniform(0.6, 1.6, (SIZE, SIZE))
    block = shades[np.mod(u // 9, SIZE).astype(int), np.mod(v // 7, SIZE).astype(int)]
    tone = np.where(street, 0.55, block) * rng.uniform(0.85, 1.15, (SIZE, SIZE))
    spectra[where] *= tone[where][:, None]


def _paint_desert(rng: np.random.Generator, spectra: Array, where: Array, *, dunes: bool) -> None:
    """Red sand; with dunes, long wavy crests."""
    sand = np.array((0.085, 0.150, 0.270, 0.340) if dunes else (0.075, 0.110, 0.200, 0.270))
    bright = 0.85 + 0.3 * _fractal(rng, 1.8)
    if dunes:
        y, x = np.mgrid[:SIZE, :SIZE]
        crests = np.sin((x + 0.35 * y) / 5.5 + 9 * _fractal(rng, 2.0))
        bright = bright * (1 + 0.28 * crests)
    spectra[where] = sand * bright[where][:, None]


def _hillshade(height: Array, relief: float) -> Array:
    """Light from the north-west, 1 on level ground."""
    down, right = np.gradient(height * 55 * relief)
    slope = 1 / np.sqrt(1 + down**2 + right**2)
    light = (0.60 * down + 0.60 * right + 1.0) * slope
    return np.asarray(np.clip(light, 0.25, 1.7))


# -- sky ----------------------------------------------------------------------------------------


def _clouds(rng: np.random.Generator, amount: float) -> tuple[Array, Array]:
    """How opaque clouds are and how dark their shadows, each 0..1, for a covered fraction."""
    field = 0.6 * _fractal(rng, 1.55) + 0.4 * _fractal(rng, 1.15)
    if amount == 0:
        return np.zeros_like(field), np.zeros_like(field)
    edge = np.quantile(field, 1 - amount)
    clouds = np.clip((field - edge + 0.03) / (0.16 + 0.6 * (1 - edge)), 0, 1) ** 0.8
    shadows = np.roll(clouds, (14, 18), axis=(0, 1))
    shadows[:14], shadows[:, :18] = 0, 0
    return clouds, np.clip(shadows - clouds, 0, 1)


def _under_clouds(reflectance: Array, clouds: Array, shadows: Array) -> Array:
    dimmed = reflectance * (1 - 0.6 * shadows)
    white = 0.30 + 0.45 * clouds
    return np.asarray(dimmed * (1 - clouds) + white * clouds)


# -- files and samples ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scenes:
    """The input of a data set."""

    tortilla: Tortilla
    originals: dict[str, Path]
    """The source file of each leaf."""
    classes: dict[str, str]
    """Values of the masks and what they mean."""


def write_scenes(folder: Path, *, seed: int) -> Scenes:
    """Make all scenes, write them as GeoTIFFs below `folder`, and describe them as samples."""
    samples: list[Sample] = []
    originals: dict[str, Path] = {}
    for number, place in enumerate(PLACES):
        to_map = pyproj.Transformer.from_crs("EPSG:4326", f"EPSG:{place.epsg}", always_xy=True)
        scene = make(
            place, *to_map.transform(place.longitude, place.latitude), seed=seed, number=number
        )
        paths = {name: folder / scene.name / name for name in (IMAGE, MASK)}
        paths[IMAGE].parent.mkdir(parents=True)
        _write_image(paths[IMAGE], scene)
        _write_mask(paths[MASK], scene)
        samples.append(_scene_sample(scene, number, paths))
        originals |= {f"{scene.name}/{name}": path for name, path in paths.items()}
    classes = {str(value): name for value, (name, _) in enumerate(LAND_COVER)}
    return Scenes(Tortilla(samples), originals, classes)


def read_all(path: str | Path) -> Any:
    """Every pixel of a raster; only for the small ones of the demo."""
    with rasterio.open(path) as dataset:
        return dataset.read()


def same_pixels(first: str | Path, second: str | Path) -> bool:
    """Whether two rasters have the same shape, type, place and pixels."""
    with rasterio.open(first) as one, rasterio.open(second) as two:
        forms = [(it.shape, it.dtypes, it.crs, it.transform) for it in (one, two)]
        return forms[0] == forms[1] and np.array_equal(one.read(), two.read())


def _scene_sample(scene: Scene, number: int, paths: dict[str, Path]) -> Sample:
    files = Tortilla([Sample(id=name, path=path) for name, path in paths.items()])
    sample = Sample(
        id=scene.name,
        path=files,
        cloud_cover=scene.cloud_cover,
        water=round(100 * float((scene.mask == WATER).mean()), 2),
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


def _profile(scene: Scene) -> dict[str, Any]:
    return {
        "driver": "GTiff",
        "width": SIZE,
        "height": SIZE,
        "crs": scene.crs,
        "transform": Affine.from_gdal(*scene.transform),
        "tiled": True,
        "blockxsize": _TILE,
        "blockysize": _TILE,
        "compress": "deflate",
    }


def _write_image(path: Path, scene: Scene) -> None:
    profile = _profile(scene) | {"count": 4, "dtype": "uint16", "predictor": 2}
    with rasterio.open(path, "w", **profile) as target:
        target.write(scene.image)
        target.colorinterp = (
            ColorInterp.blue,
            ColorInterp.green,
            ColorInterp.red,
            ColorInterp.undefined,
        )
        for band, name in enumerate(BANDS, start=1):
            target.set_band_description(band, name)


def _write_mask(path: Path, scene: Scene) -> None:
    with rasterio.open(path, "w", **_profile(scene), count=1, dtype="uint8") as target:
        target.write(scene.mask, 1)
        colours = {value: (*colour, 255) for value, (_, colour) in enumerate(LAND_COVER)}
        target.write_colormap(1, colours)
