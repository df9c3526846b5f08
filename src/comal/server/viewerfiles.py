"""The viewer's files, as `comal.site` has them, kept in memory with their tags."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from comal.server.answers import Content

_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".mjs": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".map": b"application/json",
    ".svg": b"image/svg+xml",
    ".png": b"image/png",
    ".webp": b"image/webp",
    ".ico": b"image/x-icon",
    ".woff2": b"font/woff2",
    ".txt": b"text/plain; charset=utf-8",
    ".pbf": b"application/x-protobuf",
    ".wasm": b"application/wasm",
    ".webmanifest": b"application/manifest+json",
}
"""Types are of a fixed list, so that no file is anything else than it seems."""

POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    b"connect-src 'self'; worker-src 'self' blob:; child-src blob:; font-src 'self'; "
    b"manifest-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'self'"
)
"""The Content-Security-Policy of pages: nothing from elsewhere, no script or style in the text."""

_PAGE = (
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_KEPT = (b"cache-control", b"no-cache")
INDEX = "assets/viewer/index.html"
"""The page, as `comal.site` calls it."""


class ViewerFiles:
    """Files by name, read when they are first asked for."""

    def __init__(self) -> None:
        self._files: dict[str, Any] | None = None
        self._contents: dict[str, Content] = {}

    def is_there(self) -> bool:
        """Whether there is a viewer."""
        return INDEX in self._listed()

    def content(self, name: str) -> Content | None:
        """One file, None when the viewer has none of that name."""
        found = self._contents.get(name)
        if found is None and name in self._listed():
            found = self._contents[name] = _content(name, self._listed()[name])
        return found

    def _listed(self) -> dict[str, Any]:
        if self._files is None:
            try:
                from comal import site  # noqa: PLC0415 - only servers with a viewer need it

                self._files = dict(site.viewer_files())
            except (ImportError, AttributeError):
                self._files = {}
        return self._files


def _content(name: str, value: Any) -> Content:
    kind: bytes | None = None
    if isinstance(value, tuple):
        text, value = value
        kind = text.encode("ascii")
    body = value if isinstance(value, bytes) else Path(value).read_bytes()
    kind = kind or _TYPES.get(Path(name).suffix, b"application/octet-stream")
    headers = (_KEPT, *(_PAGE if kind.startswith(b"text/html") else ()))
    tag = hashlib.blake2b(body, digest_size=12).hexdigest().encode()
    return Content(kind, b'"%s"' % tag, len(body), body=body, headers=headers)
