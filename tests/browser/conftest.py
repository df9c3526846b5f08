"""A real browser, a static server, and pages that watch what they ask for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from comal import site
from tests.browser.server import StaticServer

SITE = Path(site.__file__).parent
# There is no graphics card where tests run: WebGL by software, and all else without shaders, as
# software is slow at compiling them.
FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--force-color-profile=srgb",
    "--disable-gpu-compositing",
    "--disable-gpu-rasterization",
]


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Debian's chromium, without a window.

    Only for these tests: while it is there an event loop runs in this thread, and those of other
    rooms start loops of their own.
    """
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        reason = "no chromium is installed; apt-get install chromium, or sh scripts/system-packages"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def window() -> dict[str, Any]:
    """What kind of window the browser has."""
    return {"viewport": {"width": 1100, "height": 720}}


@pytest.fixture(scope="module")
def context(chromium: Browser, window: dict[str, Any]) -> Iterator[BrowserContext]:
    """A browser profile for the tests of a module.

    Whatever their pages do, they keep to their Content-Security-Policy: a browser tells of what
    it has refused.
    """
    made = chromium.new_context(**window)
    made.set_default_timeout(30_000)
    said: list[str] = []
    made.on("console", lambda message: said.append(message.text))
    yield made
    made.close()
    assert [text for text in said if "Content Security Policy" in text] == []


@pytest.fixture(scope="module")
def tab(context: BrowserContext) -> Page:
    """A page that tests go on with: a new one starts a process, which takes longer than most."""
    return context.new_page()


@pytest.fixture(scope="module")
def static() -> Iterator[StaticServer]:
    """A static server with the page's modules under `/assets` and `/vendor`."""
    made = StaticServer()
    made.mount("assets", SITE / "assets")
    made.mount("vendor", SITE / "vendor")
    made.put("/blank.html", b"<!doctype html><title>blank</title>")
    yield made
    made.close()


@pytest.fixture
def server(static: StaticServer) -> StaticServer:
    """The server of the module, well and without a request so far."""
    static.well()
    static.reset()
    return static
