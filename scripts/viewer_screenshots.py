"""Write the pictures of the viewer of `comal serve` into docs/images.

.venv/bin/python -m scripts.viewer_screenshots

Needs chromium and the rasters that stand in ../shared/data beside the checkout.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from scripts.site_screenshots import IMAGES, contours, imagery, relief
from tests.browser.conftest import FLAGS
from tests.browser.viewing import only, running

from comal import demo

LARGEST = 300_000


def main() -> None:
    """Make the archives, serve them, take the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {
            "shore": str(named(contours(folder), "Shore and heights")),
            "elevation": str(relief(folder)),
            "whitney": str(named(imagery(folder), "Mount Whitney")),
            "scenes": str(scenes(folder)),
        }
        with running(sources) as server, sync_playwright() as playwright:
            path = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            light(browser, server.origin)
            dark(browser, server.origin)
            phone(browser, server.origin)
            browser.close()


def light(browser: Browser, origin: str) -> None:
    """The map with a raster, and the table of a data set."""
    page = opened(browser, f"{origin}/", "light", 1200, 760)
    elevation = only(page, "elevation")
    elevation.get_by_label("Colours", exact=True).select_option("terrain")
    page.wait_for_timeout(1500)
    page.get_by_label("Zoom to elevation.parquet").click()
    page.wait_for_timeout(2500)
    elevation.scroll_into_view_if_needed()
    page.mouse.click(700, 420)
    page.locator(".inspector .facts").wait_for()
    save(page, "viewer-map-light")
    page.close()


def dark(browser: Browser, origin: str) -> None:
    """A data set with a filter."""
    page = opened(browser, f"{origin}/#data=scenes", "dark", 1200, 760)
    page.get_by_label("Filter by a column").select_option("cloud_cover")
    high = page.get_by_label("highest cloud_cover, typed")
    high.fill("15")
    high.press("Enter")
    page.locator(".python summary").click()
    page.locator(".summary", has_text=" of ").wait_for()
    page.locator(".thumbnail").nth(1).hover()
    save(page, "viewer-data-dark")
    page.close()


def phone(browser: Browser, origin: str) -> None:
    """The same on a phone."""
    page = opened(browser, f"{origin}/#data=scenes", "light", 390, 780)
    page.locator(".dataset").evaluate("element => element.scrollBy(0, 330)")
    save(page, "viewer-phone")
    page.close()


def named(folder: Path, name: str) -> Path:
    """A tileset under another name."""
    document = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**document, "name": name}))
    return folder


def scenes(folder: Path) -> Path:
    """The made-up scenes of `comal demo`."""
    demo.run(out=folder / "demo")
    return next((folder / "demo").rglob("*.tacozip"))


def opened(browser: Browser, url: str, scheme: Any, width: int, height: int) -> Page:
    """A page in colours of a kind, once it is ready."""
    size: Any = {"width": width, "height": height}
    page = browser.new_page(viewport=size, color_scheme=scheme)
    page.goto(url)
    page.wait_for_selector("html[data-state=ready]", state="attached")
    page.wait_for_timeout(1500)
    return page


def save(page: Page, name: str) -> None:
    """A picture of as many colours as its size allows, as documentation is small."""
    page.wait_for_timeout(1500)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    target = IMAGES / f"{name}.png"
    for colors in (200, 128, 64):
        image.quantize(colors, dither=Image.Dither.NONE).save(target, optimize=True)
        if target.stat().st_size < LARGEST:
            break
    print(f"{target.name}: {target.stat().st_size // 1024} KB")


if __name__ == "__main__":
    main()
