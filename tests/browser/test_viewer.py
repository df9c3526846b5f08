"""The viewer of a server in a real browser: its map, its lists, its filters, its errors."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from PIL import Image

from comal import raquet, taco, tortilla
from tests.browser import making
from tests.browser.making import BLUE, RED, png, tiles_to, tileset
from tests.browser.viewing import (
    PATIENCE,
    Running,
    Watched,
    card,
    contrast,
    focused,
    is_still,
    nameless,
    near,
    only,
    rests,
    running,
    settles,
)
from tests.raquet.build import Plan
from tests.raquet.build import write as build_raquet
from tests.server.making import COLLECTION, many_samples, point, taco_file, tiff

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WEST, EAST = (500, 300), (760, 300)
"""Places of the window on either side of longitude 0, when the map looks at `VIEW`."""
VIEW = "map=1/0/0"
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
NAMES = ["' OR 1=1 --", "a&b#c;d=e+f", "\u05e9\u05dc\u05d5\u05dd"]
"""Ids that formats allow."""
CELL = 5_193_776_270_265_024_511
"""The id of a place; JavaScript rounds it."""
TURNED = "\u202eright to left\u202c"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An archive of each kind; nobody changes these."""
    folder = tmp_path_factory.mktemp("archives")
    extra = {(2, 1, 1): [{"X-Seen": "yes"}]}
    making.halves(folder / "halves", extra, attribution="Some <b>survey</b>")
    making.shapes(folder / "shapes", vector_layers=[{"id": "water", "fields": {}}])
    making.ramp(folder / "ramp.parquet")
    # Every step is of one value, and has another one than the steps before.
    steps = {
        (z, x, y, day): [np.full((64, 64), 40 * number + 20, "uint8")]
        for z, x, y in tiles_to(1)
        for number, day in enumerate((0, 31, 60))
    }
    build_raquet(folder / "series.parquet", steps, Plan(block=(64, 64), times=True))
    (folder / "broken.parquet").write_bytes(b"PAR1 and nothing that follows")
    taco_file(folder / "scenes.tacozip")
    items = [
        tortilla.Sample(
            f"item {n}", "GTiff", tiff(np.full((1, 8, 8), n, np.uint8)), rank=n, cell=CELL + n,
            stac_data={
                "crs": "EPSG:4326", "raster_shape": (8, 8), "time_start": f"2024-0{n + 1}-01",
                "geotransform": (20.0 * n, 0.125, 0.0, 5.0, 0.0, -0.125),
            },
        )
        for n in range(4)
    ]  # fmt: skip
    tortilla.create(items, folder / "items.tortilla")
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def served(archives: dict[str, Path]) -> Iterator[Running]:
    order = ["ramp", "halves", "shapes", "series", "scenes", "items", "broken"]
    # A page asks the server that it comes from, whatever that is called elsewhere.
    public = "https://maps.example.org"
    with running({name: str(archives[name]) for name in order}, public_url=public) as found:
        yield found


@pytest.fixture(scope="module")
def window() -> dict[str, Any]:
    """A window that is small, as every pixel is drawn by the processor."""
    return {"viewport": {"width": 900, "height": 600}, "reduced_motion": "reduce"}


Watch = Callable[[str], Watched]


@pytest.fixture
def watch(tab: Page) -> Iterator[Watch]:
    """Watch the page of these tests at an origin."""
    with ExitStack() as stack:

        def start(origin: str) -> Watched:
            found = Watched(tab, origin)
            stack.callback(found.leave)
            return found

        yield start


@pytest.fixture
def watched(watch: Watch, served: Running) -> Iterator[Watched]:
    """The page of the server; what it said and asked for is looked at in the end."""
    found = watch(served.origin)
    yield found
    found.check()


# -- the map -----------------------------------------------------------------------------------


def test_the_first_source_is_shown_at_once(watched: Watched) -> None:
    page = watched.open()
    assert card(page, "ramp").locator(".source__head input").is_checked()
    # Grey from west to east, over the whole world.
    dark = settles(page, (440, 300), lambda color: max(color) - min(color) < 8)
    light = settles(page, (840, 300))
    assert light[0] > dark[0] + 60
    assert page.get_by_role("heading", level=1).inner_text() == "7 sources"
    assert re.search(r"map=[\d./-]+$", page.url)


def test_colours_stretch_and_opacity_change_the_map(watched: Watched) -> None:
    page = watched.open(f"#{VIEW}")
    ramp = card(page, "ramp")
    low, high = (ramp.get_by_label(f"{end} value of level, typed") for end in ("lowest", "highest"))
    low.wait_for()
    # Values are not counted anew for other colours: the histogram would lose what is typed.
    page.route("**/ramp/statistics?*", lambda route: route.abort())
    ramp.get_by_label("Colours", exact=True).select_option("viridis")
    low.fill("45")
    low.press("Enter")
    high.fill("55")
    high.press("Enter")
    # The stretch is narrow: the west is the lowest colour of the map, the east the highest.
    assert near((68, 1, 84))(settles(page, WEST, near((68, 1, 84))))
    assert near((253, 231, 37))(settles(page, EAST, near((253, 231, 37))))
    slider = ramp.get_by_label("Opacity")
    slider.focus()
    slider.press("Home")
    assert ramp.locator("output").last.inner_text() == "0 %"
    # Nothing is left of the raster: both places show the ground.
    ground = settles(page, WEST, lambda color: min(color) > 150)
    assert min(ground) > 150
    assert near(ground)(settles(page, EAST, near(ground)))


def test_a_formula_is_drawn_and_a_wrong_one_is_explained(watched: Watched) -> None:
    page = watched.open(f"#{VIEW}")
    ramp = card(page, "ramp")
    ramp.get_by_label("Formula").check(force=True)
    field = ramp.get_by_label("Formula").last
    field.fill("b1 > ")
    field.press("Enter")
    ramp.get_by_role("alert").wait_for()
    assert "No histogram" in ramp.get_by_role("alert").inner_text()
    field.fill("100-b1")
    field.press("Enter")
    ramp.get_by_role("alert").wait_for(state="detached")
    # The ramp runs the other way.
    west = settles(page, WEST, lambda color: color[0] > 140)
    east = settles(page, EAST, lambda color: color[0] < west[0] - 60)
    assert west[0] > 140
    assert east[0] < west[0] - 60
    watched.problems = [text for text in watched.problems if "status of 400" not in text]


def test_the_readout_says_what_the_file_says(watched: Watched, archives: dict[str, Path]) -> None:
    page = watched.open(f"#{VIEW}")
    page.mouse.move(*WEST)
    readout = page.locator("#readout")
    readout.locator("b").wait_for()
    text = readout.locator(".readout__place").inner_text()
    match = re.fullmatch(r"([\d.]+)° ([NS]), ([\d.]+)° ([EW])", text)
    assert match is not None
    lat = float(match[1]) * (1 if match[2] == "N" else -1)
    lon = float(match[3]) * (1 if match[4] == "E" else -1)
    (expected,) = raquet.open(archives["ramp"]).point(lon, lat)
    shown = readout.locator("b").inner_text()
    assert shown.endswith(" m")
    assert float(shown.removesuffix(" m")) == pytest.approx(float(expected), rel=1e-5)
    page.mouse.move(100, 400)
    readout.wait_for(state="hidden")


def test_steps_of_time_change_the_tiles(watched: Watched) -> None:
    page = watched.open(f"#{VIEW}")
    series = only(page, "series")
    assert near((20, 20, 20))(settles(page, WEST, near((20, 20, 20))))
    slider = series.get_by_label("Time", exact=True)
    assert slider.get_attribute("aria-valuetext") == "2020-01-01"
    slider.focus()
    slider.press("ArrowRight")
    assert near((60, 60, 60))(settles(page, WEST, near((60, 60, 60))))
    series.get_by_label("Time, by name").select_option("2020-03-01")
    assert near((100, 100, 100))(settles(page, WEST, near((100, 100, 100))))
    assert slider.input_value() == "2"
    page.mouse.move(*EAST)
    page.locator("#readout b", has_text="100").wait_for()
    # What was chosen is still chosen after the source was away.
    box = series.locator(".source__head input")
    box.uncheck()
    box.check()
    assert near((100, 100, 100))(settles(page, WEST, near((100, 100, 100))))
    assert slider.input_value() == "2"


def test_tiles_of_pictures_and_their_headers(watched: Watched, served: Running) -> None:
    page = watched.open(f"#{VIEW}")
    only(page, "halves")
    assert near(RED)(settles(page, WEST, near(RED)))
    assert near(BLUE)(settles(page, EAST, near(BLUE)))
    assert page.locator("#credit").inner_text() == "Some survey"
    page.mouse.click(*WEST)
    inspector = page.get_by_role("region", name=re.compile("°"))
    tile = inspector.locator(".tile")
    tile.get_by_text("ETag").wait_for()
    name = tile.locator(".mono").inner_text()
    answer = httpx.head(f"{served.origin}/halves/{name}.png")
    assert name == "2/1/1"
    for header in ("ETag", "Content-Type", "X-Seen", "Last-Modified"):
        assert answer.headers[header] in tile.inner_text()
    page.keyboard.press("Escape")
    inspector.wait_for(state="hidden")


def test_vector_layers_are_switched_and_told(watched: Watched) -> None:
    page = watched.open(f"#{VIEW}")
    shapes = only(page, "shapes")
    # Each tile has a band of water in its middle half; between those of two rows is the ground.
    ground, place = settles(page, (640, 330)), (640, 150)
    found = settles(page, place, lambda color: not near(ground, 20)(color))
    assert found[2] > found[0]
    page.mouse.click(*place)
    page.locator(".inspector dd", has_text="a feature").wait_for()
    page.keyboard.press("Escape")
    shapes.get_by_role("list", name="Layers").get_by_role("checkbox").uncheck()
    assert near(ground)(settles(page, place, near(ground)))


def test_features_are_told_on_both_sides_of_the_antimeridian(watched: Watched) -> None:
    page = watched.open("#map=2/50/175")
    only(page, "shapes")
    rests(page)
    for x in (550, 760):
        page.mouse.click(x, 300)
        page.locator(".inspector dd", has_text="a feature").wait_for()
        page.keyboard.press("Escape")


def test_footprints_on_the_map_open_their_sample(watched: Watched) -> None:
    page = watched.open("#map=4/8.5/21")
    only(page, "scenes")
    swatch = card(page, "scenes").locator(".swatch")
    style = swatch.evaluate("element => getComputedStyle(element).backgroundColor")
    color = tuple(int(part) for part in re.findall(r"\d+", style)[:3])
    image = _map(page, color)
    rows, columns = np.nonzero(image)
    assert len(rows) > 20
    page.mouse.click(int(columns[0]), int(rows[0]))
    page.get_by_role("dialog").get_by_text("inside").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    card(page, "scenes").locator(".source__head input").uncheck()
    ground = settles(page, (int(columns[0]), int(rows[0])), lambda found: not near(color)(found))
    assert not near(color)(ground)


def _map(page: Page, color: tuple[int, ...]) -> Any:
    """Where the map has a colour, once it has it anywhere."""
    until = time.monotonic() + PATIENCE
    while True:
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        pixels = np.asarray(picture).astype(int)
        found = (np.abs(pixels - np.asarray(color)) <= 6).all(axis=2)
        found[:, :360] = False
        if (found.any() and is_still(page)) or time.monotonic() > until:
            return found
        page.wait_for_timeout(100)


# -- a data set --------------------------------------------------------------------------------


def _summary(page: Page, text: str) -> None:
    page.locator(".summary", has_text=re.compile(f"^{text}$")).wait_for()


def _answered(page: Page) -> None:
    """Wait until all that was asked with the filters is shown: rows and footprints."""
    page.locator(".results:not([aria-busy])").wait_for()


def _shown(page: Page) -> list[str]:
    _answered(page)
    return page.locator(".thumbnail__id").all_inner_texts()


def test_filters_by_map_time_and_column(watched: Watched) -> None:
    page = watched.open("#data=scenes")
    _summary(page, "6 samples")
    assert _shown(page) == [f"scene {number}" for number in range(6)]

    page.get_by_label("From", exact=True).fill("2023-02-15")
    _summary(page, "4 samples of 6")
    page.get_by_label("To", exact=True).fill("2023-05-01")
    _summary(page, "3 samples of 6")
    assert _shown(page) == ["scene 2", "scene 3", "scene 4"]
    page.get_by_role("button", name="Clear", exact=True).click()
    _summary(page, "6 samples")

    column = page.get_by_label("Filter by a column")
    column.select_option("cloud_cover")
    group = page.get_by_role("group", name="cloud_cover")
    high = group.get_by_label("highest cloud_cover, typed")
    high.fill("25")
    high.press("Enter")
    _summary(page, "3 samples of 6")
    low = group.get_by_label("lowest cloud_cover", exact=True)
    low.focus()
    low.press("PageUp")
    _summary(page, "2 samples of 6")
    column.select_option("split")
    page.get_by_role("group", name="split").get_by_label("test").check()
    _summary(page, "1 sample of 6")
    assert _shown(page) == ["scene 2"]
    page.get_by_role("button", name="Remove the filter by cloud_cover").click()
    _summary(page, "3 samples of 6")
    page.get_by_role("button", name="Remove the filter by split").click()
    _summary(page, "6 samples")

    page.get_by_label("Only in the area of the map").check()
    page.evaluate("location.hash = '#data=scenes&map=5.5/8.5/21'")
    page.locator(".summary", has_text=re.compile("of 6$")).wait_for()
    assert "scene 2" in _shown(page)
    page.evaluate("location.hash = '#data=scenes&map=6/-60/120'")
    page.get_by_text("No sample matches").wait_for()
    _summary(page, "0 samples of 6")


def test_a_tortilla_has_the_same_page(watched: Watched) -> None:
    page = watched.open("#data=items")
    _summary(page, "4 samples")
    page.get_by_label("Filter by a column").select_option("rank")
    low = page.get_by_label("lowest rank, typed")
    low.fill("1.5")
    low.press("Enter")
    _summary(page, "2 samples of 4")
    assert _shown(page) == ["item 2", "item 3"]
    page.get_by_label("To", exact=True).fill("2024-03-31")
    _summary(page, "1 sample of 4")
    assert _shown(page) == ["item 2"]
    page.get_by_role("button", name="Clear", exact=True).click()
    page.get_by_role("tab", name="Table").click()
    page.locator("td", has_text=str(CELL + 3)).wait_for()
    page.get_by_role("tab", name="Thumbnails").click()
    page.get_by_label("Only in the area of the map").check()
    page.evaluate("location.hash = '#data=items&map=4.3/5/30'")
    _summary(page, "2 samples of 4")
    assert _shown(page) == ["item 1", "item 2"]


def test_rows_are_sorted_and_open(watched: Watched) -> None:
    page = watched.open("#data=scenes")
    page.get_by_role("tab", name="Thumbnails").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("columnheader", name="cloud_cover").wait_for()
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Table"
    header = page.locator("th", has=page.locator("[data-column=cloud_cover]"))
    rows = page.locator("tbody th")
    header.get_by_role("button").click()
    page.locator("th[aria-sort=ascending]").wait_for()
    assert rows.all_inner_texts()[:2] == ["scene 0", "scene 1"]
    # The heading keeps the focus.
    page.keyboard.press("Enter")
    page.locator("th[aria-sort=descending]").wait_for()
    assert rows.all_inner_texts()[:2] == ["scene 4", "scene 3"]
    rows.first.get_by_role("button").click()
    dialog = page.get_by_role("dialog", name="scene 4")
    dialog.get_by_text("2 samples inside").wait_for()
    image = dialog.get_by_role("img")
    image.evaluate("image => image.decode()")
    assert image.evaluate("image => image.naturalWidth") == 16
    assert image.get_attribute("alt") == "Preview of scene 4"
    dialog.get_by_role("button", name="image.tif").click()
    link = page.get_by_role("dialog").get_by_role("link", name="Download")
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).read_bytes()[:4] in {b"II*\0", b"MM\0*"}
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")


def test_the_tree_unfolds(watched: Watched) -> None:
    page = watched.open("#data=scenes")
    page.get_by_role("tab", name="Tree").click()
    page.get_by_text("What every sample holds").click()
    page.locator(".schema__shape", has_text="image.tif (FILE)").wait_for()
    page.locator(".tree summary", has_text="scene 3").click()
    page.get_by_role("button", name="note.txt").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("link", name="Download, 6 B").wait_for()
    assert dialog.get_by_role("heading").inner_text() == "scene 3 / note.txt"
    dialog.get_by_role("button", name="scene 3").click()
    dialog.get_by_text("2 samples inside").wait_for()


def test_more_samples_than_the_map_is_sent(watch: Watch, tmp_path: Path) -> None:
    with running({"many": str(many_samples(tmp_path / "many.tacozip", 1500))}) as found:
        watched = watch(found.origin)
        page = watched.open("#data=many")
        _summary(page, "1 to 60 of 1\u202f500 samples")
        note = page.locator("#map-note")
        note.get_by_text("the first 1\u202f000 of 1\u202f500 samples that lie here").wait_for()
        before = len(watched.asked)
        page.evaluate("location.hash = '#data=many&map=4/10/-170'")
        note.wait_for(state="hidden")
        # What is asked for is what lies there; the list and the lines go on telling of all.
        boxes = [url for url in watched.asked[before:] if "bbox=" in url]
        assert len(boxes) == 1
        answer = httpx.get(boxes[0]).json()
        assert 0 < answer["numberMatched"] < 1000
        assert answer["numberMatched"] == answer["numberReturned"]
        _summary(page, "1 to 60 of 1\u202f500 samples")
        page.get_by_role("button", name="Next").focus()
        for first, last in ((61, 120), (121, 180)):
            page.keyboard.press("Enter")
            _summary(page, f"{first} to {last} of 1\u202f500 samples")
        # Filters that leave few take the notice away, wherever the map looks.
        page.evaluate("location.hash = '#data=many&map=0/0/0'")
        note.wait_for()
        page.get_by_label("Filter by a column").select_option("split")
        page.get_by_role("group", name="split").get_by_label("a ").check()
        note.wait_for(state="hidden")
        # On the first page the card tells the same.
        page.goto(f"{found.origin}/#map=0/0/0")
        only(page, "many").get_by_text("the first 1\u202f000 of 1\u202f500").wait_for()
        watched.check()


# -- what goes wrong ---------------------------------------------------------------------------


def test_slow_answers_take_the_place_of_nothing(watched: Watched) -> None:
    page = watched.open("#data=scenes")
    _summary(page, "6 samples")
    with _held(page, "**/scenes/tree?*") as release:
        page.get_by_role("tab", name="Tree").click()
        page.get_by_role("tab", name="Table").click()
        page.get_by_role("rowheader").first.wait_for()
        release()
    assert page.get_by_role("rowheader").count() == 6
    with _held(page, "**/scenes/items?*") as release:
        page.get_by_label("From", exact=True).fill("2023-02-15")
        page.wait_for_timeout(400)
        release(status=503)
    alert = page.locator(".results").get_by_role("alert")
    alert.wait_for()
    page.wait_for_timeout(100)
    assert page.get_by_role("rowheader").count() == 0
    alert.get_by_role("button").click()
    _summary(page, "4 samples of 6")
    assert page.get_by_role("rowheader").count() == 4
    watched.problems = [text for text in watched.problems if "status of 503" not in text]


def test_slow_failures_take_the_place_of_nothing(watched: Watched) -> None:
    page = watched.open(f"#{VIEW}")
    series = card(page, "series")
    with _held(page, "**/series") as release:
        series.locator(".source__head input").check()
        series.locator(".source__head input").uncheck()
        release(status=500)
    assert not series.get_by_role("alert").is_visible()
    with _held(page, "**/scenes") as release:
        page.goto(f"{watched.origin}/#data=scenes")
        page.goto(f"{watched.origin}/#data=items")
        _summary(page, "4 samples")
        release(status=500)
    assert _shown(page)[:2] == ["item 0", "item 1"]
    watched.problems = [text for text in watched.problems if "status of 500" not in text]


@contextmanager
def _held(page: Page, address: str) -> Iterator[Callable[..., None]]:
    """Answers of an address are held until they are released: as they are, or as a failure."""
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route(address, hold)

    def release(**answer: Any) -> None:
        for route in held:
            if answer:
                route.fulfill(**answer)
            else:
                route.continue_()
        page.wait_for_timeout(100)

    yield release
    assert held
    page.unroute(address)


def test_bands_without_values_and_slow_counts(watch: Watch, tmp_path: Path) -> None:
    names = ("low", "high", "none")
    tiles = {
        tile: [np.full((16, 16), value, "float32") for value in (tile[1], 500 + tile[1], -1)]
        for tile in tiles_to(1)
    }
    bands = [{"name": name, "type": "float32", "nodata": -1} for name in names]
    bands[1] |= {"scale": 0.5, "offset": 10, "unit": "K"}
    making.raquet(tmp_path / "bands.parquet", tiles, bands)
    with running({"bands": str(tmp_path / "bands.parquet")}) as found:
        watched = watch(found.origin)
        page = watched.open(f"#{VIEW}")
        band = card(page, "bands").get_by_label("Band", exact=True)
        low = card(page, "bands").get_by_label(re.compile("lowest value of .*, typed"))
        low.wait_for()
        before = len(watched.asked)
        with _held(page, "**/bands/statistics?bidx=2*") as release:
            band.select_option("2")
            band.select_option("3")
            card(page, "bands").get_by_text("No values").wait_for()
            band.select_option("2")
            page.wait_for_timeout(300)
            release()
        low.wait_for()
        # As the unit counts it, wherever it is told.
        assert float(low.input_value()) == 260
        page.mouse.move(*WEST)
        page.locator("#readout b", has_text="260 K").wait_for()
        low.fill("200")
        with page.expect_request(re.compile("rescale=380%2C")):
            low.press("Enter")
        page.get_by_label("RGB").check(force=True)
        rests(page)
        asked = [url for url in watched.asked[before:] if ".png?" in url]
        # No tile was asked for without a stretch.
        assert asked
        assert all("rescale" in url for url in asked)
        assert not card(page, "bands").get_by_text("cannot be read").is_visible()
        watched.check()


def test_two_sources_are_restyled_at_once(watched: Watched) -> None:
    page = watched.open(f"#{VIEW}")
    card(page, "series").locator(".source__head input").check()
    for name in ("ramp", "series"):
        card(page, name).locator(".histogram").wait_for()
        card(page, name).locator("select option[value=viridis]").wait_for(state="attached")
    with (
        page.expect_request(re.compile("/ramp/.*png.*viridis")),
        page.expect_request(re.compile("/series/.*png.*viridis")),
    ):
        page.evaluate("""() => document.querySelectorAll(".source select").forEach((select) => {
          select.value = "viridis";
          select.dispatchEvent(new Event("change"));
        })""")


def test_a_broken_archive_does_not_take_away_the_others(watched: Watched) -> None:
    page = watched.open()
    alert = card(page, "broken").get_by_role("alert")
    assert "This source cannot be opened" in alert.inner_text()
    assert len(alert.inner_text()) > 40
    assert page.locator(".source").count() == 7
    with page.expect_response("**/sources.json"):
        alert.get_by_role("button", name="Try again").click()
    alert.wait_for()
    assert page.locator(".source").count() == 7
    page.goto(f"{watched.origin}/#data=broken")
    page.locator("#dataset").get_by_role("alert").wait_for()
    page.goto(f"{watched.origin}/#data=nothing")
    page.locator("#dataset").get_by_text("not found").wait_for()
    watched.problems = [text for text in watched.problems if "Failed to load" not in text]


def test_a_server_that_is_gone_and_comes_back(watch: Watch, archives: dict[str, Path]) -> None:
    sources = {"scenes": str(archives["scenes"])}
    with running(sources) as found:
        watched = watch(found.origin)
        page = watched.open("#data=scenes")
        _summary(page, "6 samples")
    page.get_by_role("tab", name="Table").click()
    alert = page.locator(".results").get_by_role("alert")
    alert.wait_for()
    assert "The server does not answer." in alert.inner_text()
    page.route("**/scenes/table?*", lambda route: route.fulfill(json=_TABLE))
    page.route("**/scenes/items?*", lambda route: route.fulfill(json=_ITEMS))
    alert.get_by_role("button", name="Try again").click()
    page.get_by_role("rowheader", name="back").wait_for()


_TABLE = {
    "columns": [{"name": "id", "kind": "text"}],
    "rows": [["back"]],
    "matched": 1,
    "returned": 1,
}
_ITEMS: dict[str, Any] = {"features": [], "numberMatched": 1, "numberReturned": 0}


def test_a_list_that_cannot_be_had_or_is_empty(watch: Watch, served: Running) -> None:
    watched = watch(served.origin)
    answers: list[dict[str, Any]] = [
        {"status": 503, "json": {"title": "overloaded"}},
        {"json": {"sources": []}},
    ]
    watched.page.route("**/sources.json", lambda route: route.fulfill(**answers.pop(0)))
    page = watched.open()
    alert = page.locator("#sources").get_by_role("alert")
    assert "overloaded" in alert.inner_text()
    alert.get_by_role("button").click()
    page.get_by_text("No sources").wait_for()


# -- what strangers wrote ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("hostile")
    long = "very-long-" * 60
    samples = []
    for number, name in enumerate(NAMES):
        fields: dict[str, Any] = {
            "remark": EVIL,
            "code": f"{EVIL}{number}",
            "stac:crs": "EPSG:4326",
            "stac:geotransform": [0.0, 0.5, 0.0, 10.0, 0.0, -0.5],
            "stac:tensor_shape": [1, 4, 4],
            "stac:centroid": point(1.0, 9.0),
            "stac:time_start": 0,
        }
        picture = tiff(np.full((1, 8, 8), 9, np.uint8))
        samples.append(taco.Sample(id=name, path=picture, **fields))
    collection = {**COLLECTION, "title": EVIL, "description": f"{EVIL}{TURNED}{long}"}
    taco.create(taco.Taco(taco.Tortilla(samples), **collection), folder / "evil.tacozip")
    tiles = {tile: png(RED) for tile in tiles_to(1)}
    tileset(
        folder / "tiles", tiles, extension="png", name=long, description=EVIL, attribution=EVIL,
        comments={tile: [{"X-Evil": EVIL}] for tile in tiles},
    )  # fmt: skip
    with running({"tiles": str(folder / "tiles"), "evil": str(folder / "evil.tacozip")}) as found:
        yield found


def test_what_archives_say_is_text(watch: Watch, hostile: Running) -> None:
    watched = watch(hostile.origin)
    page = watched.open("#map=0/0/0")
    page.mouse.click(*WEST)
    page.locator(".inspector dd", has_text="<script>").wait_for()
    assert card(page, "evil").get_by_role("heading").inner_text() == EVIL
    assert page.locator("body").evaluate("body => body.scrollWidth <= innerWidth")
    page.goto(f"{hostile.origin}/#data=evil")
    _summary(page, "3 samples")
    assert page.get_by_role("heading", level=1).inner_text() == EVIL
    for number, name in enumerate(NAMES):
        assert _shown(page)[number] == name
        page.locator(".thumbnail").nth(number).click()
        dialog = page.get_by_role("dialog")
        dialog.locator("dd", has_text="<script>").first.wait_for()
        assert dialog.get_by_role("heading").text_content() == name
        page.keyboard.press("Escape")
    page.get_by_role("tab", name="Table").click()
    page.locator("td", has_text="<script>").first.wait_for()
    page.get_by_label("Filter by a column").select_option("code")
    page.get_by_label(f"{EVIL}1").check()
    _summary(page, "1 sample of 3")
    assert page.locator("script").count() == 1
    assert "owned" not in page.evaluate("document.title").split("<")[0]
    assert page.locator("img[src=x]").count() == 0
    watched.check()


# -- for everybody -----------------------------------------------------------------------------


def test_everything_has_a_name(watched: Watched) -> None:
    page = watched.open(f"#{VIEW}")
    only(page, "series")
    assert nameless(page) == []
    page.goto(f"{watched.origin}/#data=scenes")
    _summary(page, "6 samples")
    for name in ("cloud_cover", "split"):
        page.get_by_label("Filter by a column").select_option(name)
        page.get_by_role("group", name=name).locator("input").first.wait_for()
    assert nameless(page) == []
    assert page.locator("#announcer").inner_text() == "6 samples"
    page.locator(".thumbnail").first.click()
    page.get_by_role("dialog").get_by_text("inside").wait_for()
    assert nameless(page) == []


def test_the_keyboard_reaches_everything(watched: Watched) -> None:
    page = watched.open(f"#{VIEW}")
    card(page, "ramp").locator(".histogram").wait_for()
    reached: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        where = focused(page)
        assert where[1], f"{where[0]} does not show that it has the focus"
        reached.append(where[0])
        if where[0].startswith("Map."):
            break
    for name in ("Skip to the list", "Dark colours", "One band", "Colours", "Opacity", "Shapes"):
        assert name in reached, reached
    # On the map the centre is told and inspected.
    page.locator("#readout").wait_for()
    page.keyboard.press("Enter")
    page.locator(".inspector .tile").wait_for()
    page.keyboard.press("ArrowRight")
    page.locator("#readout b").wait_for()
    page.keyboard.press("Escape")
    page.locator(".inspector").wait_for(state="hidden")


_RGB = """(names) => names.map((name) => {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const canvas = new OffscreenCanvas(1, 1).getContext("2d");
  canvas.fillStyle = getComputedStyle(probe).color;
  canvas.fillRect(0, 0, 1, 1);
  probe.remove();
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
})"""
_PAIRS = [
    *(("--ink", ground) for ground in ("--surface", "--surface-2", "--surface-3")),
    *(("--ink-2", ground) for ground in ("--surface", "--surface-2", "--surface-3")),
    *(("--accent", ground) for ground in ("--surface", "--surface-2", "--accent-soft")),
    ("--on-accent", "--accent"),
    ("--danger", "--danger-soft"),
]
"""Texts, and what they stand on."""


def _stands_out(page: Page) -> None:
    for text, ground in _PAIRS:
        one, other = page.evaluate(_RGB, [text, ground])
        assert contrast(tuple(one), tuple(other)) >= 4.5, (text, ground, one, other)


def test_light_and_dark(chromium: Browser, served: Running, window: dict[str, Any]) -> None:
    context = chromium.new_context(**window, color_scheme="dark")
    watched = Watched(context.new_page(), served.origin)
    page = watched.open(f"#{VIEW}")
    card(page, "ramp").locator(".source__head input").uncheck()
    place = (700, 400)
    assert max(settles(page, place, lambda color: max(color) < 70)) < 70
    _stands_out(page)
    page.get_by_role("button", name="Dark colours").click()
    assert min(settles(page, place, lambda color: min(color) > 180)) > 180
    _stands_out(page)
    page = watched.open(f"#{VIEW}")
    assert page.locator("html").get_attribute("data-theme") == "light"
    watched.check()
    context.close()


def test_a_phone_shows_all_without_scrolling_aside(chromium: Browser, served: Running) -> None:
    context = chromium.new_context(
        viewport={"width": 390, "height": 780}, device_scale_factor=2, has_touch=True,
        reduced_motion="reduce",
    )  # fmt: skip
    watched = Watched(context.new_page(), served.origin)
    page = watched.page
    for fragment in ("", "#data=scenes"):
        page.goto(f"{served.origin}/{fragment}")
        page.locator(".thumbnail:visible, .source:visible").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        for part in (".panel", ".dataset", ".masthead"):
            wide = page.locator(part).evaluate(
                "element => element.scrollWidth - element.clientWidth"
            )
            assert wide <= 0, part
    _summary(page, "6 samples")
    page.locator(".thumbnail").first.tap()
    page.get_by_role("dialog").get_by_text("inside").wait_for()
    page.get_by_role("button", name="Close").tap()
    page.locator(".back").tap()
    page.get_by_role("button", name="Sources").tap()
    page.locator("#sources").wait_for(state="hidden")
    assert page.locator("#map").bounding_box()["height"] > 600  # type: ignore[index] # it is shown
    watched.check()
    context.close()


# -- how it is served --------------------------------------------------------------------------


def test_files_of_the_page_are_served(served: Running) -> None:
    page = httpx.get(f"{served.origin}/", headers={"Accept": "text/html"})
    names = re.findall(r'(?:href|src)="(_/[^"]+)"', page.text)
    assert len(names) >= 6
    for name in names:
        answer = httpx.get(f"{served.origin}/{name}")
        assert answer.status_code == 200
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert httpx.get(f"{served.origin}/_/assets/sw.js").status_code == 404
    assert httpx.get(f"{served.origin}/_/../pyproject.toml").status_code == 404


def test_the_page_works_below_a_prefix(watch: Watch, archives: dict[str, Path]) -> None:
    with running({"halves": str(archives["halves"])}, prefix="/maps") as found:
        watched = watch(found.origin)
        page = watched.open(f"#{VIEW}", prefix="/maps")
        assert near(RED)(settles(page, WEST, near(RED)))
        assert all("/maps/" in url for url in watched.asked if url.startswith("http"))
        watched.check()
