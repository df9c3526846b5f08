"""The written page in a real browser: pixels of its map, its controls, its errors."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from comal import site
from comal.site import SiteSource
from tests.browser import making
from tests.browser.making import BLUE, RED, png, pyramid, raquet, tiles_to, tileset, vector_tile
from tests.browser.server import StaticServer
from tests.browser.viewing import Watched, near, rests, running, settles
from tests.support import REPOSITORY, SHARED, needs_shared

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

LEAFLET = REPOSITORY / "build/web/leaflet"
EVIL = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """West of Greenwich red, east of it blue; a vector square; a ramp from west to east."""
    folder = tmp_path_factory.mktemp("sources")
    extra = {(2, 0, 1): [{"X-Seen": "yes"}, {"Set-Cookie": "no=1"}]}
    making.halves(
        folder / "halves", extra, deflate=True, minzoom=1, materializedZooms=[0, 2],
        attribution="<b>Some</b> survey",
    )  # fmt: skip
    making.shapes(folder / "shapes")
    making.ramp(folder / "ramp.parquet")
    return folder


_NUMBERS = itertools.count()


@pytest.fixture
def place() -> str:
    """Where the site of a test stands on the server; a worker serves one place and no other."""
    return f"site{next(_NUMBERS)}"


@pytest.fixture
def show(server: StaticServer, tab: Page, place: str, tmp_path: Path) -> Iterator[Any]:
    """Write a site and open it; what pages and workers asked for is looked at in the end."""
    watched = Watched(tab, server.origin)

    def go(*given: Any, at: str = "1.5/0/0", query: str = "", **options: Any) -> Page:
        site.write(tmp_path / "site", given, **options)
        server.mount(place, tmp_path / "site")
        hashed = f"#map={at}" if at else ""
        tab.goto(f"{server.origin}/{place}/{query}{hashed}")
        tab.wait_for_selector("html[data-state=ready]", state="attached")
        return tab

    yield go
    watched.leave()
    watched.check(is_quiet=False)  # it tells of what cannot be loaded


@pytest.fixture(scope="module")
def asked(
    context: BrowserContext, static: StaticServer, sources: Path, tmp_path_factory: Any
) -> Iterator[Page]:
    """A page of all sources, whose worker tests ask without looking at the map."""
    folder = tmp_path_factory.mktemp("asked") / "asked"
    names = ("halves", "shapes", "ramp.parquet")
    told = SiteSource(href=sources / "halves", name="told", absent=(403,))
    site.write(folder, [*(sources / name for name in names), told])
    static.mount("asked", folder)
    page = context.new_page()
    page.goto(f"{static.origin}/asked/#map=6/0/0")
    page.wait_for_selector("html[data-state=ready]", state="attached")
    rests(page)
    yield page
    page.close()


WEST, EAST = (480, 360), (800, 360)
"""Places of the window beside and in the middle of the map at longitude 0."""


@pytest.mark.parametrize("query", ["", "?engine=page"])
def test_tiles_of_an_archive_are_on_the_map(show: Any, sources: Path, query: str) -> None:
    page = show(sources / "halves", query=query)
    assert near(RED)(settles(page, WEST, near(RED)))
    assert near(BLUE)(settles(page, EAST, near(BLUE)))
    engine = page.evaluate("document.documentElement.dataset.engine")
    assert engine == ("page" if query else "worker")
    assert page.title() == "Tiles"
    assert page.locator("#credit").inner_text() == "Some survey"
    page.mouse.click(*WEST)
    tile = page.locator(".inspector__body")
    tile.get_by_text(re.compile("^data/halves/2/.*zip$")).wait_for()
    assert "image/png" in tile.inner_text()
    assert "ETag" in tile.inner_text()


def test_vector_tiles_are_styled_and_told(show: Any, sources: Path) -> None:
    page = show(sources / "shapes", at="0.5/30/0")
    red, green, blue = settles(page, (800, 330), lambda color: color[2] > max(color[:2]))
    assert blue > max(red, green)
    ground = settles(page, (1000, 60))
    assert not near((red, green, blue), 20)(ground)
    # The layers are read from the first tile, as the metadata names none.
    legend = page.get_by_role("list", name="Layers")
    assert legend.inner_text().strip() == "water"
    page.mouse.move(800, 330)
    page.locator("#readout", has_text="a feature").wait_for()
    legend.get_by_role("checkbox").uncheck()
    assert near(ground)(settles(page, (800, 330), near(ground)))


def test_the_first_source_lies_above_the_others(show: Any, sources: Path, tmp_path: Path) -> None:
    green = {tile: png((20, 160, 60)) for tile in tiles_to(2)}
    tileset(tmp_path / "green", green, extension="png")
    page = show(tmp_path / "green", sources / "shapes", sources / "halves")
    above = near((20, 160, 60))
    assert above(settles(page, WEST, above))
    page.get_by_role("checkbox", name="made").uncheck()
    page.get_by_role("checkbox", name="Shapes").uncheck()
    assert near(RED)(settles(page, WEST, near(RED)))


def test_a_raster_is_drawn_hovered_and_restyled(show: Any, sources: Path) -> None:
    page = show(sources / "ramp.parquet", at="1/0/0")
    dark, bright = (68, 1, 84), (253, 231, 37)
    left = settles(page, (420, 360), lambda c: c[2] > 80 and c[2] > c[1])
    right = settles(page, (1000, 360))
    assert left[2] > left[1]
    page.mouse.move(722, 360)
    page.locator("#readout", has_text=re.compile(r"ramp \d+\.?\d* m")).wait_for()
    value = re.search(r"ramp\s+([\d.]+) m", page.locator("#readout").inner_text())
    assert value is not None
    assert abs(float(value[1]) - 50) < 3
    low, high = page.get_by_role("textbox").all()
    high.fill("99")
    high.press("Enter")
    low.fill("98")
    low.press("Enter")
    assert near(dark, 25)(settles(page, (800, 360), near(dark, 25)))
    page.get_by_label("Colours", exact=True).select_option("gray")
    assert near((0, 0, 0), 25)(settles(page, (800, 360), near((0, 0, 0), 25)))
    assert right != bright


def test_palettes_and_colours_of_bands(show: Any, tmp_path: Path) -> None:
    classes = pyramid(1, lambda tile: [np.full((64, 64), tile[1] + 1, "uint8")])
    table: Any = {"1": [10, 200, 30, 255], "2": [220, 160, 20, 255], "3": [0, 0, 0, 0]}
    band = {
        "name": "class",
        "type": "uint8",
        "nodata": "2",
        "colorinterp": "Palette",
        "colortable": table,
    }
    raquet(tmp_path / "classes.parquet", classes, [band])
    page = show(tmp_path / "classes.parquet", at="1/0/0")
    assert near((10, 200, 30))(settles(page, WEST, near((10, 200, 30))))
    # Nodata shows the ground.
    assert near((220, 160, 20), 40)(settles(page, EAST)) is False
    page.get_by_label("Colours", exact=True).select_option("magma")
    page.get_by_label("lowest value of class", exact=True).wait_for()


def test_the_worker_serves_leaflet_as_well(
    show: Any, sources: Path, server: StaticServer, place: str
) -> None:
    if not LEAFLET.is_dir():
        reason = "no Leaflet; python scripts/vendor_web.py --tests build/web (needs npm)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    page = show(sources / "halves", sources / "ramp.parquet")
    server.mount(f"{place}/leaflet", LEAFLET)
    server.put(
        f"/{place}/leaflet.html",
        b"""<!doctype html><link rel=stylesheet href=leaflet/leaflet.css>
        <div id=map style="position:fixed;inset:0"></div><script type=module>
        import * as L from "./leaflet/leaflet.js";
        const map = L.map("map", { fadeAnimation: false }).setView([0, 0], 2);
        L.tileLayer("tiles/halves/{z}/{x}/{y}.png").addTo(map);
        </script>""",
    )
    server.requests.clear()
    page.goto(f"{server.origin}/{place}/leaflet.html")
    assert near(RED)(settles(page, WEST, near(RED)))
    assert near(BLUE)(settles(page, EAST, near(BLUE)))
    # No tile came from the server: there is none to come.
    assert server.seen("/tiles/") == []
    assert server.seen(".zip")


def test_answers_of_the_worker(asked: Page) -> None:
    ask = """async (path) => {
      const response = await fetch(path);
      const headers = Object.fromEntries(response.headers);
      const isJson = response.headers.get("content-type").includes("json");
      return [response.status, headers, isJson ? await response.json() : null];
    }"""
    status, headers, _ = asked.evaluate(ask, "tiles/halves/2/0/1.png")
    assert status == 200
    assert headers["content-type"] == "image/png"
    assert re.fullmatch(r'"[0-9a-f]{8}"', headers["etag"])
    assert headers["last-modified"] == "Mon, 06 May 2024 07:08:10 GMT"
    assert headers["x-seen"] == "yes"
    assert "set-cookie" not in headers
    for path in (
        "tiles/halves/9/0/0.png", "tiles/halves/0/0/0.png", "tiles/halves/2/4/0.png",
        "tiles/halves/02/0/1.png", "tiles/halves/2/0/1.gif", "tiles/halves/2/-1/1.png",
        "tiles/nothing/0/0/0.png", "tiles/halves/%2e%2e/x", "tiles/constructor.json",
    ):  # fmt: skip
        assert asked.evaluate(ask, path)[0] == 404, path
    assert asked.evaluate(ask, "tiles/ramp/1/0/0.png?bidx=7")[0] == 400
    assert asked.evaluate(ask, "tiles/ramp/1/0/0.png?colormap_name=__proto__")[0] == 400
    point = asked.evaluate(ask, "tiles/ramp/point/0,10?zoom=2")[2]
    assert point["values"] == pytest.approx([50], abs=1)
    tilejson = asked.evaluate(ask, "tiles/halves.json")[2]
    assert tilejson["tilejson"] == "3.0.0"
    assert (tilejson["minzoom"], tilejson["maxzoom"]) == (1, 3)


def test_documents_are_those_of_the_server(asked: Page, sources: Path) -> None:
    """The viewer asks both for the same, so names and values must be one."""
    names = {"halves": "halves", "shapes": "shapes", "ramp": "ramp.parquet"}
    ask = "async (path) => (await fetch(`tiles/${path}`)).json()"
    paths = ["sources.json", "colormaps.json", *names, "ramp/statistics?bidx=1"]
    paths += ["ramp/point/12,34?zoom=1"]
    with (
        running({name: str(sources / path) for name, path in names.items()}) as server,
        httpx.Client(base_url=server.origin, timeout=60) as client,
    ):
        told = {path: client.get(path).json() for path in paths}
    found = {path: asked.evaluate(ask, path) for path in paths}
    # Of the site; of a band when nothing is chosen; of layers that the first tile tells of.
    own = {"title", "colormap_name", "id", "fields"}
    assert _names(found) - _names(told) <= own
    for path in names:
        alike = ("name", "kind", "format", "minzoom", "maxzoom", "bounds", "attribution", "type")
        for key in set(alike) & set(found[path]):
            assert found[path][key] == pytest.approx(told[path][key], abs=1e-6), (path, key)
    assert found["ramp/point/12,34?zoom=1"] == told["ramp/point/12,34?zoom=1"]
    counted, expected = (
        next(iter(one["ramp/statistics?bidx=1"]["statistics"].values())) for one in (found, told)
    )
    counts, edges = counted["histogram"]
    assert sum(counts) > 1000
    for key in ("min", "max", "percentile_2", "percentile_98"):
        assert counted[key] == pytest.approx(expected[key], abs=2), key
    assert edges[0] == counted["min"]
    assert edges[-1] == pytest.approx(counted["max"])


def _names(document: Any) -> set[str]:
    """Every key in a document, at any depth."""
    if isinstance(document, list):
        return set().union(*map(_names, document))
    if not isinstance(document, dict):
        return set()
    return set(document).union(*map(_names, document.values()))


def test_directories_outlive_the_worker(
    asked: Page, server: StaticServer, context: BrowserContext
) -> None:
    ask = """async (path) => {
      const answer = await fetch(path);
      return [answer.status, new Uint8Array(await answer.arrayBuffer()).length];
    }"""
    kept = [asked.evaluate(ask, f"tiles/halves/3/{x}/1.png") for x in range(8)]
    asked.evaluate(_SLEEP)  # what is written down is nobody's to wait for
    devtools = context.new_cdp_session(asked)
    devtools.send("ServiceWorker.enable")
    devtools.send("ServiceWorker.stopAllWorkers")
    server.requests.clear()
    assert [asked.evaluate(ask, f"tiles/halves/3/{x}/1.png") for x in range(8)] == kept
    assert asked.evaluate(ask, "tiles/ramp/1/0/0.png")[0] == 200
    # A worker that remembers nothing has answered: it has read the configuration again.
    assert server.seen("site.json")
    archives = server.seen(".zip")
    assert {request.method for request in archives} == {"HEAD"}
    footers = [request.range for request in server.seen("ramp.parquet")]
    assert None in footers
    assert not [span for span in footers if span and span.startswith("bytes=-")]


_SLEEP = "() => new Promise((resolve) => setTimeout(resolve, 500))"


def test_stores_that_hide_what_is_absent(asked: Page, server: StaticServer) -> None:
    for name in ("halves", "told"):
        server.behave("status", path=f"/asked/data/{name}/2/3/3.zip", code=403)
    ask = "async (name) => (await fetch(`tiles/${name}/2/3/3.png`)).status"
    assert asked.evaluate(ask, "halves") == 502
    assert asked.evaluate(ask, "told") == 404


@needs_shared
def test_a_time_series_has_steps(show: Any) -> None:
    series = SHARED / "fixtures/raquet/constructed/v050_time_monthly.parquet"
    page = show(series, at="")
    step = page.get_by_label("Time", exact=True)
    values = """async (time) => (await (await fetch(
      `tiles/v050-time-monthly/point/0.5,51.3?time=${time}`)).json()).values[0]"""
    told = [page.evaluate(values, time) for time in (0, 1)]
    assert told[0] != told[1]
    step.focus()
    page.keyboard.press("ArrowRight")
    assert step.input_value() == "1"
    assert step.get_attribute("aria-valuetext") == "step 2"


def test_a_damaged_tile_is_told_and_the_rest_shown(
    show: Any, sources: Path, server: StaticServer, tmp_path: Path
) -> None:
    copy = tmp_path / "damaged"
    halves = {tile: png(RED) for tile in tiles_to(1)}
    tileset(copy, halves, extension="png", minzoom=1)
    making.corrupt(copy / "0/0/0.zip", "1/1/0.png")
    page = show(copy, at="1/0/0")
    notice = page.locator(".notice--danger", has_text="A tile cannot be read")
    notice.wait_for()
    assert "checksum" in notice.inner_text()
    assert near(RED)(settles(page, (800, 560), near(RED)))


def test_a_source_that_is_away_can_be_tried_again(
    show: Any, sources: Path, server: StaticServer, place: str
) -> None:
    path = f"/{place}/data/halves/meta.json"
    server.behave("status", path=path, code=403)
    page = show(sources / "halves", sources / "ramp.parquet")
    alert = page.get_by_role("alert")
    assert "the store answers 403" in alert.inner_text()
    assert page.get_by_role("heading", name="ramp").is_visible()
    server.well()
    alert.get_by_role("button", name="Try again").click()
    page.get_by_role("heading", name="Two halves").wait_for()
    assert near(RED)(settles(page, WEST, near(RED)))


def test_the_map_begins_where_the_sources_are(show: Any, tmp_path: Path) -> None:
    quarter = {tile: png(RED) for tile in tiles_to(4) if tile[0] == 4 and tile[1:] == (9, 5)}
    bounds = [22.5, 40.97989806962013, 45.0, 55.77657301866769]
    tileset(
        tmp_path / "small", quarter, extension="png", bounds=bounds, materializedZooms=[4],
        minzoom=4, maxzoom=4,
    )  # fmt: skip
    page = show(tmp_path / "small", at="")
    # The middle of what the panel leaves free.
    assert near(RED)(settles(page, (710, 360), near(RED)))
    assert page.locator(".notice:visible").count() == 0
    move = """async (boxes) => {
      const { Sources } = await import("./assets/viewer/sources.js");
      const entries = boxes.map((bounds) => ({ source: { bounds } }));
      let found;
      Sources.prototype.fit.call({ view: { fit: (box) => (found = box) } }, entries, false);
      return found;
    }"""
    assert page.evaluate(move, [[170, -20, -170, 10], [100, 0, 120, 30]]) == [100, -20, 190, 30]


def test_a_page_without_a_map_says_why(
    context: BrowserContext, server: StaticServer, place: str, tmp_path: Path
) -> None:
    site.write(tmp_path / "site")
    server.mount(place, tmp_path / "site")
    page = context.new_page()
    page.goto(f"{server.origin}/{place}/")
    page.locator("#sources").get_by_text("Name some in site.json").wait_for()
    (tmp_path / "site/site.json").write_text("{")
    page.reload()
    page.get_by_role("alert").get_by_text("site.json is not JSON").wait_for()
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    page.reload()
    page.get_by_role("alert").get_by_text("WebGL").wait_for()
    page.close()


def test_hostile_metadata_is_text(show: Any, tmp_path: Path) -> None:
    shapes = {(0, 0, 0): vector_tile({EVIL: [(0, 0), (4096, 0), (4096, 4096)]})}
    headers = [{"Content-Type": "text/html"}, {"Content-Encoding": "gzip"}]
    tileset(
        tmp_path / "evil", shapes, extension="mvt", formats={"mvt": headers}, name=EVIL,
        description=EVIL, attribution=EVIL, vector_layers=[{"id": EVIL}],
    )  # fmt: skip
    source = SiteSource(href=tmp_path / "evil", name="evil")
    page = show(source, title=EVIL, at="0/0/0")
    page.mouse.move(800, 300)
    page.locator("#readout").wait_for()
    rests(page)
    assert page.title() == EVIL
    assert page.get_by_role("link", name=EVIL).inner_text() == EVIL
    assert page.get_by_role("heading", level=2).first.inner_text() == EVIL
    assert page.locator("img, body script").count() == 0
    kind = "async () => (await fetch('tiles/evil/0/0/0.mvt')).headers.get('content-type')"
    assert page.evaluate(kind) == "application/octet-stream"
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy is not None
    assert "unsafe" not in policy


def test_remote_sources_are_the_only_other_origins(
    server: StaticServer, tab: Page, place: str, sources: Path, tmp_path: Path
) -> None:
    store = StaticServer()
    try:
        store.cors = True
        remote = store.mount("halves", sources / "halves")
        site.write(tmp_path / "site", [f"{remote}/meta.json"])
        config = json.loads((tmp_path / "site/site.json").read_text())
        assert config["sources"][0]["href"] == f"{remote}/meta.json"
        assert f"connect-src 'self' {store.origin};" in (tmp_path / "site/index.html").read_text()
        server.mount(place, tmp_path / "site")
        tab.goto(f"{server.origin}/{place}/?engine=page#map=1.5/0/0")
        tab.wait_for_selector("html[data-state=ready]", state="attached")
        assert near(RED)(settles(tab, WEST, near(RED)))
    finally:
        store.close()
