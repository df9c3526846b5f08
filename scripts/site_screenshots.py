"""Write the pictures of the static page into docs/images.

.venv/bin/python -m scripts.site_screenshots

Needs chromium and the rasters that stand in ../shared/data beside the checkout.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
import rasterio.features
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from pmtiles.reader import MmapSource, Reader, all_tiles
from rasterio.warp import Resampling, reproject
from shapely import affinity, box, make_valid, unary_union
from shapely.geometry import shape
from tests.browser.conftest import FLAGS
from tests.browser.making import Tile, raquet, tileset, vector_tile
from tests.browser.server import StaticServer

from comal import site
from comal.site import SiteSource

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
IMAGES = ROOT / "docs" / "images"
HALF = 20037508.342789244
EXTENT = 4096


def main() -> None:
    """Make the sources, open the page, take the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bay = [
            SiteSource(href=contours(folder), title="Shore and heights"),
            SiteSource(href=relief(folder), title="Elevation", attribution="SRTM, NASA"),
        ]
        photo = SiteSource(
            href=imagery(folder), title="Mount Whitney", attribution="USGS topographic map"
        )
        site.write(folder / "bay", bay, title="San Francisco Bay")
        site.write(folder / "whitney", [photo], title="Sierra Nevada")
        server = StaticServer()
        server.mount("bay", folder / "bay")
        server.mount("whitney", folder / "whitney")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=FLAGS
            )
            take(browser, server)
            browser.close()
        server.close()


def take(browser: Any, server: StaticServer) -> None:
    """All pictures."""
    size = {"width": 1200, "height": 760}
    page = browser.new_page(viewport=size, color_scheme="light")
    visit(page, f"{server.origin}/bay/")
    page.get_by_label("Colours", exact=True).select_option("terrain")
    page.mouse.move(800, 420)
    save(page, "site-light")
    page = browser.new_page(viewport=size, color_scheme="dark")
    visit(page, f"{server.origin}/whitney/#map=12.3/36.565/-118.290")
    page.mouse.click(640, 480)
    page.get_by_text("Last-Modified").wait_for()
    save(page, "site-dark")
    page = browser.new_page(viewport={"width": 390, "height": 780}, color_scheme="light")
    visit(page, f"{server.origin}/bay/")
    page.mouse.move(180, 200)
    save(page, "site-phone")


def visit(page: Page, url: str) -> None:
    """Open a page and wait until its map is drawn."""
    page.goto(url)
    page.wait_for_selector("html[data-state=ready]", state="attached")
    page.wait_for_timeout(2500)


def save(page: Page, name: str) -> None:
    """A picture of few colours, as documentation is small."""
    page.wait_for_timeout(1500)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.quantize(160, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)
    print(f"{name}.png: {(IMAGES / f'{name}.png').stat().st_size // 1024} KB")


def relief(folder: Path) -> Path:
    """Heights as RaQuet, zooms 6 to 11."""
    heights = {}
    for zoom in range(6, 12):
        for x, y in covering(zoom):
            pixels = warped((zoom, x, y), 256)
            if (pixels != -32768).any():
                heights[zoom, x, y] = [pixels]
    band = {"name": "height", "type": "int16", "nodata": "-32768", "unit": "m"}
    bounds = list(srtm_bounds())
    return raquet(folder / "elevation.parquet", heights, [band], bounds=bounds)


def contours(folder: Path) -> Path:
    """Water, bands of height and summits as vector tiles."""
    base = 11
    columns, rows = zip(*covering(base), strict=True)
    west, north = min(columns), min(rows)
    wide, high = max(columns) - west + 1, max(rows) - north + 1
    grid = np.zeros((high * 256, wide * 256), "int16")
    for x, y in covering(base):
        rows_here = slice((y - north) * 256, (y - north + 1) * 256)
        grid[rows_here, (x - west) * 256 : (x - west + 1) * 256] = warped((base, x, y), 256)
    known = grid != -32768
    classes = np.digitize(grid, [1, 60, 150, 300, 500]).astype("uint8")
    shapes: dict[int, list[Any]] = {}
    for geometry, value in rasterio.features.shapes(classes, mask=known):
        polygon = shape(geometry)
        if polygon.area > 60:
            placed = affinity.translate(polygon, west * 256, north * 256)
            shapes.setdefault(int(value), []).append(placed.simplify(1.2))
    water = unary_union([make_valid(part) for part in shapes[0]])
    lines = {value: [part.boundary for part in shapes.get(value, [])] for value in range(1, 6)}
    tiles: dict[Tile, bytes] = {}
    for zoom in range(8, 13):
        for x, y in covering(zoom):
            tiles[zoom, x, y] = cut(zoom, x, y, water, lines)
    headers = [{"Content-Type": "application/vnd.mapbox-vector-tile"}, {"Content-Encoding": "gzip"}]
    layers = [{"id": "water", "fields": {}}, {"id": "contours", "fields": {}}]
    return tileset(
        folder / "shoreline", tiles, extension="mvt", formats={"mvt": headers},
        bounds=list(srtm_bounds()), materializedZooms=[8], vector_layers=layers,
        description="Drawn from SRTM heights: lines at 1, 60, 150, 300 and 500 m.",
    )  # fmt: skip


def cut(zoom: int, x: int, y: int, water: Any, lines: dict[int, list[Any]]) -> bytes:
    """One vector tile of shapes whose unit is a pixel of zoom 11 with 256 a tile."""
    side = 256 * 2.0 ** (11 - zoom)
    window = box(x * side, y * side, (x + 1) * side, (y + 1) * side).buffer(side / 64)
    scale = EXTENT / side

    def local(coordinates: Any) -> list[tuple[int, int]]:
        return [
            (round((px - x * side) * scale), round((py - y * side) * scale))
            for px, py in coordinates
        ]

    polygons = []
    for part in parts(water.intersection(window).simplify(side / 800)):
        if part.geom_type == "Polygon":
            for ring, outer in ((part.exterior, True), *((hole, False) for hole in part.interiors)):
                points = local(ring.coords)[:-1]
                # Outer rings turn one way, holes the other (vector tile specification, 4.3.4.4).
                polygons.append(points if (turn(points) > 0) == outer else points[::-1])
    strokes = []
    for line in (line for group in lines.values() for line in group):
        strokes += [
            ("line", local(part.coords))
            for part in parts(line.intersection(window).simplify(side / 500))
            if part.geom_type == "LineString" and part.length > side / 40
        ]
    return vector_tile({"water": [("rings", polygons)], "contours": strokes})


def turn(points: list[tuple[int, int]]) -> int:
    """Twice the area, positive when it turns clockwise on the screen."""
    return sum(
        a[0] * b[1] - b[0] * a[1] for a, b in zip(points, points[1:] + points[:1], strict=True)
    )


def parts(geometry: Any) -> list[Any]:
    """The members of a collection, or the one."""
    return list(getattr(geometry, "geoms", [geometry]))


def srtm_bounds() -> tuple[float, float, float, float]:
    """Box of the heights in degrees."""
    with rasterio.open(DATA / "srtm_sanfrancisco_int16.tif") as source:
        west, south, east, north = source.bounds
    return west, min(south, north), east, max(south, north)


def covering(zoom: int) -> list[tuple[int, int]]:
    """Tiles that the heights touch."""
    west, south, east, north = srtm_bounds()

    def place(lon: float, lat: float) -> tuple[int, int]:
        sine = np.sin(np.radians(lat))
        return int((lon / 360 + 0.5) * 2**zoom), int(
            (0.5 - np.arctanh(sine) / (2 * np.pi)) * 2**zoom
        )

    (x0, y0), (x1, y1) = place(west, north), place(east, south)
    return [(x, y) for x in range(x0, x1 + 1) for y in range(y0, y1 + 1)]


def warped(tile: Tile, side: int) -> np.ndarray[Any, Any]:
    """Heights of a tile; -32768 where there are none."""
    zoom, x, y = tile
    size = 2 * HALF / 2**zoom
    transform = rasterio.transform.from_origin(
        x * size - HALF, HALF - y * size, size / side, size / side
    )
    pixels = np.full((side, side), -32768, "int16")
    with rasterio.open(DATA / "srtm_sanfrancisco_int16.tif") as source:
        reproject(
            rasterio.band(source, 1), pixels, dst_transform=transform, dst_crs="EPSG:3857",
            src_nodata=source.nodata, dst_nodata=-32768, resampling=Resampling.bilinear,
        )  # fmt: skip
    return pixels


def imagery(folder: Path) -> Path:
    """A topographic map, from PMTiles."""
    with (DATA / "usgs_mt_whitney_z8-15_webp512.pmtiles").open("rb") as file:
        source = MmapSource(file)
        header = Reader(source).header()
        tiles = {(z, x, y): data for (z, x, y), data in all_tiles(source) if z <= 13}
    bounds = [header[f"{key}_e7"] / 1e7 for key in ("min_lon", "min_lat", "max_lon", "max_lat")]
    return tileset(
        folder / "imagery", tiles, extension="webp", bounds=bounds, metatile=2,
        formats={"webp": [{"Content-Type": "image/webp"}]}, materializedZooms=[0, 4, 8, 12],
    )  # fmt: skip


if __name__ == "__main__":
    main()
