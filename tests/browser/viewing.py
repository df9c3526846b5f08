"""What the tests of the viewer share: a server, a page that is watched, pixels of it."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from PIL import Image

from comal import server

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

Color = tuple[int, ...]
Place = tuple[int, int]
PATIENCE = 25.0
"""Seconds that a busy machine may take to draw a map."""

# An absent tile is a 404, which the console tells as well; the driver tells that a map is copied
# to a window that the processor draws.
_HARMLESS = re.compile(
    "Failed to load resource: the server responded with a status of 404"
    "|GL Driver Message .*Performance.*GPU stall due to ReadPixels"
)


class Running:
    """A server of this process, in a thread of its own."""

    def __init__(self, sources: dict[str, Any], **options: Any) -> None:
        application: Any = server.app(sources, log="none", **options)
        config = uvicorn.Config(application, port=0, log_level="error", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until = time.monotonic() + 30
        while not self._server.started and time.monotonic() < until:
            time.sleep(0.02)
        assert self._server.started
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.origin = f"http://127.0.0.1:{port}"

    def close(self) -> None:
        """Stop listening, without waiting for browsers that keep connections."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(15)


@contextmanager
def running(sources: dict[str, Any], **options: Any) -> Iterator[Running]:
    """A server as long as it is wanted."""
    found = Running(sources, **options)
    try:
        yield found
    finally:
        found.close()


class Watched:
    """A page of the viewer, and everything that it says and asks for."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.origin = origin
        self.errors: list[str] = []
        self.problems: list[str] = []
        self.asked: list[str] = []
        page.bring_to_front()  # one behind another draws a picture a second
        page.on("pageerror", self._failed)
        page.on("console", self._heard)
        page.context.on("request", self._saw)

    def _failed(self, error: Any) -> None:
        self.errors.append(str(error))

    def _heard(self, message: Any) -> None:
        if message.type in {"error", "warning"} and not _HARMLESS.search(message.text):
            self.problems.append(message.text)

    def _saw(self, request: Any) -> None:
        self.asked.append(request.url)

    def leave(self) -> None:
        """Watch no longer, and let the page forget what it was told."""
        self.page.remove_listener("pageerror", self._failed)
        self.page.remove_listener("console", self._heard)
        self.page.context.remove_listener("request", self._saw)
        self.page.unroute_all()
        self.page.evaluate("localStorage.clear()")
        self.page.mouse.move(0, 0)

    def open(self, fragment: str = "", prefix: str = "") -> Page:
        """The page at a part of its address, read anew."""
        if self.page.url.startswith(self.origin):
            # By way of an empty page it would get another process.
            move = "place => history.replaceState(null, '', place)"
            self.page.evaluate(move, f"{prefix}/{fragment}")
            self.page.reload()
        else:
            self.page.goto(f"{self.origin}{prefix}/{fragment}")
        self.page.wait_for_selector("html[data-state=ready]", state="attached")
        return self.page

    def check(self, *, is_quiet: bool = True) -> None:
        """Nothing of another origin was asked for, no script failed, and the console is quiet."""
        own = (self.origin, f"blob:{self.origin}", "data:", "about:")
        assert [url for url in self.asked if not url.startswith(own)] == []
        assert self.errors == []
        assert not is_quiet or self.problems == []


def card(page: Page, name: str) -> Locator:
    """A source in the list."""
    return page.locator(f'[data-source="{name}"]')


def only(page: Page, name: str) -> Locator:
    """Show one source and no other; its card."""
    for box in page.locator(".source__head input:checked").all():
        box.uncheck()
    found = card(page, name)
    found.locator(".source__head input").check()
    found.locator(".source__body .waiting").wait_for(state="detached")
    return found


def pixel(page: Page, place: Place) -> Color:
    """The colour of a place of the window."""
    clip: Any = {"x": place[0], "y": place[1], "width": 1, "height": 1}
    image = Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB")
    color = image.getpixel((0, 0))
    assert isinstance(color, tuple)
    return color


def is_still(page: Page) -> bool:
    """Whether no map of the page moves, fades or loads."""
    return page.locator("[data-drawing]").count() == 0


def settles(page: Page, place: Place, is_right: Callable[[Color], bool] = lambda _: True) -> Color:
    """The colour of a place of the window, once it is what it should be, or in the end.

    A colour on the way from one to another may be right for a moment. One that counts is seen
    twice, and the map between is still.
    """
    until = time.monotonic() + PATIENCE
    before = None
    while True:
        found = pixel(page, place)
        if found == before and is_right(found) and is_still(page):
            return found
        if time.monotonic() > until:
            return found
        before = found
        page.wait_for_timeout(100)


def rests(page: Page) -> None:
    """Wait until the map stands still."""
    page.wait_for_timeout(50)
    page.wait_for_selector("[data-drawing]", state="detached")


def near(color: Color, tolerance: int = 12) -> Callable[[Color], bool]:
    """Whether a colour is this one, as far as drawing keeps it."""
    return lambda found: all(abs(a - b) <= tolerance for a, b in zip(found, color, strict=True))


def contrast(one: Color, other: Color) -> float:
    """Contrast of two colours (WCAG 2.2, relative luminance)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    weights = (0.2126, 0.7152, 0.0722)
    return sum(weight * _linear(part / 255) for weight, part in zip(weights, color, strict=True))


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)


def nameless(page: Page) -> list[str]:
    """What a screen reader could not tell: controls without a name, ids twice or of nothing."""
    found: list[str] = page.evaluate(_NAMELESS)
    return found


def focused(page: Page) -> tuple[str, bool]:
    """The name of what has the focus, and whether that can be seen."""
    name, is_seen = page.evaluate(_FOCUSED)
    return str(name), bool(is_seen)


_NAMELESS = """() => {
  const named = (element) => {
    const labels = [...(element.labels ?? [])].map((label) => label.textContent).join("");
    const by = (element.getAttribute("aria-labelledby") ?? "").split(" ").filter(Boolean)
      .map((id) => document.getElementById(id)?.textContent ?? "").join("");
    const image = element.querySelector("img[alt]")?.alt ?? "";
    const text = /BUTTON|A|SUMMARY/.test(element.tagName) ? element.textContent : "";
    return (element.getAttribute("aria-label") || labels || by || text || image).trim();
  };
  const wanted = "button, a[href], input, select, textarea, summary, [role=region], dialog[open]";
  const nameless = [...document.querySelectorAll(wanted)]
    .filter((element) => element.checkVisibility() && !named(element))
    .map((element) => element.outerHTML.slice(0, 120));
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  const twice = ids.filter((id, index) => ids.indexOf(id) !== index);
  const dangling = [...document.querySelectorAll("[aria-controls], [aria-labelledby], label[for]")]
    .filter((element) => element.checkVisibility())
    .flatMap((element) => [element.getAttribute("aria-controls"),
      element.getAttribute("aria-labelledby"), element.getAttribute("for")])
    .filter((id) => id && !document.getElementById(id));
  const noAlt = [...document.querySelectorAll("img:not([alt])")].map((image) => image.src);
  return [...nameless, ...twice, ...dangling, ...noAlt];
}"""

_FOCUSED = """() => {
  const { activeElement: on } = document;
  if (on === document.body) return ["body", true];
  const mark = on.matches(".segment input") ? on.nextElementSibling : on;
  const isThumb = on.matches(".handle");
  return [on.ariaLabel || on.labels?.[0]?.textContent || on.textContent.trim(),
          isThumb || getComputedStyle(mark).outlineStyle !== "none"];
}"""
