"""Which files the web pages are made of, and of which type each is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOM: Final = Path(__file__).resolve().parent

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# Files of the static page alone, by their name in its folder. A service worker reaches only what
# is below its own address, so that it stands at the root.
_SITE_ALONE: Final = {"assets/index.html": "index.html", "assets/sw.js": "sw.js"}
# What only a server's viewer uses.
_VIEWER_ALONE: Final = "assets/viewer/"


class Asset(NamedTuple):
    """One file of a page."""

    content_type: str
    path: Path


def viewer_files() -> Mapping[str, Asset]:
    """What a server's viewer is made of, by path below the page.

    Returns
    -------
    Mapping
        Modules and styles under ``assets/``, libraries of others under ``vendor/``. What belongs
        to the static site alone, its page and its service worker, is not among them.
    """
    return {name: asset for name, asset in _found() if name not in _SITE_ALONE}


def site_files() -> Mapping[str, Asset]:
    """What a static site is made of, by path below its folder; `site.json` is not among them."""
    return {
        _SITE_ALONE.get(name, name): asset
        for name, asset in _found()
        if not name.startswith(_VIEWER_ALONE)
    }


def _found() -> Iterator[tuple[str, Asset]]:
    for folder in ("assets", "vendor"):
        for path in sorted((ROOM / folder).rglob("*")):
            if path.suffix in _TYPES and path.is_file():
                yield path.relative_to(ROOM).as_posix(), Asset(_TYPES[path.suffix], path)
