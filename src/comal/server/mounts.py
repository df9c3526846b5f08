"""Named sources: opened at their first request, and again when they change.

A new version is opened beside the old one and replaces it in one step, so that no request mixes
both. If it cannot be opened, the old one stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain, count
from typing import Any

from comal import raquet, taco, tapalcatl, tortilla
from comal.errors import (
    ComalError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    shown,
    without_secrets,
)
from comal.server.metrics import Metrics
from comal.server.responses import Refusal
from comal.server.runtime import Runtime
from comal.server.sources import ServedSource
from comal.storage import StorageConfig, href_text, open_source

LOGGER = logging.getLogger("comal.server")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
RESERVED = frozenset(
    {
        *("_", "healthz", "readyz", "metrics", "sources.json", "colormaps.json", "conformance"),
        *("collections", "tileMatrixSets", "api", "favicon.ico", "robots.txt"),
        *("WMTSCapabilities.xml", "sources", "colormaps"),
    }
)
_MARKERS = ("meta.json", "COLLECTION.json", ".tacocat/COLLECTION.json", "__TACOCAT__")
_FIRST_WAIT = 10.0
_LONGEST_WAIT = 300.0
"""Longest delay in seconds between attempts to open a source; it doubles each time."""
_RETRIED = 2.0
"""Seconds that a request waits for such a retry; then it gets the old error."""
_REMOTE = 15.0
"""Minimum seconds between two checks of a remote source: each check is a request."""
_BUG = Refusal(500, "internal", "the source cannot be opened")
_GENERIC = frozenset({"meta", "index", "metadata"})


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """A source of the operator: its location, or an open reader."""

    href: str | None = field(repr=False)
    reader: Any = None
    options: Mapping[str, Any] | None = None
    """Settings for a tileset that does not store them, as for `comal.tapalcatl.open`."""


def places(sources: Any) -> dict[str, SourceConfig]:
    """Sources by name, from the argument of `comal.server.app`."""
    if isinstance(sources, str | bytes) or not isinstance(sources, Mapping | Iterable):
        sources = [sources]
    if isinstance(sources, Mapping):
        named = {str(name): _place(value) for name, value in sources.items()}
    else:
        named = _numbered([_place(value) for value in sources])
    for name in named:
        if not NAME.fullmatch(name) or name in RESERVED or name.endswith(".json"):
            raise InvalidInputError(
                "a source cannot have this name",
                found=shown(name),
                expected="letters, digits, '.', '_' and '-', not ending in .json, not one of "
                + ", ".join(sorted(RESERVED)),
            )
    if not named:
        raise InvalidInputError("nothing to serve", expected="at least one source")
    return named


def _place(value: Any) -> SourceConfig:
    if isinstance(value, SourceConfig):
        return value
    if isinstance(value, Mapping):
        rest = {str(key): one for key, one in value.items() if key != "href"}
        if not isinstance(value.get("href"), str):
            raise InvalidInputError("a source needs an href", found=shown(sorted(value)))
        return SourceConfig(value["href"], None, rest)
    if isinstance(value, str | os.PathLike):
        return SourceConfig(href_text(value))
    if not any(kind.__module__.startswith("comal.") for kind in type(value).__mro__):
        raise no_source(value)
    return SourceConfig(None, value)


def no_source(value: object, name: str = "sources") -> InvalidInputError:
    """The error for a value that is neither a location nor a reader."""
    return InvalidInputError(
        "the source cannot be served",
        where=name,
        found=type(value).__name__,
        expected="a path, a URL or an open reader of comal",
    )


def _numbered(found: Sequence[SourceConfig]) -> dict[str, SourceConfig]:
    named: dict[str, SourceConfig] = {}
    for place in found:
        stem = suggested_name(place.href) if place.href is not None else "source"
        named[free_name(stem, named)] = place
    return named


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number appended if it is taken."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(one for one in chain([name], numbered) if one not in taken)


def suggested_name(href: str) -> str:
    """A name for `href`: its last segment without suffixes, or that of its folder."""
    parts = [part for part in without_secrets(href).rstrip("/").split("/") if part]
    stem = parts[-1].split(".")[0] if parts else ""
    if stem.lower() in _GENERIC and len(parts) > 1:
        stem = parts[-2]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:100]
    return name if name and name not in RESERVED else f"source-{name}".rstrip("-")


def fingerprint(href: str, config: StorageConfig | None = None) -> str:
    """A text that changes when the archive at `href` changes; one request."""
    # A `Source` remembers the version that it saw, so each check uses a new one.
    with open_source(href, config=config) as source:
        try:
            info = source.stat()
        except (ObjectNotFoundError, StorageError):
            info = None
        if info is None or info.is_dir:
            for marker in _MARKERS:
                try:
                    inner = source.stat(marker)
                except ObjectNotFoundError:
                    continue
                return f"{marker}:{inner.size}:{inner.etag}:{inner.modified}"
        if info is None:
            info = source.stat()
        return f"{info.size}:{info.etag}:{info.modified}"


class Mount:
    """One named source of an application."""

    def __init__(self, name: str, place: SourceConfig, runtime: Runtime, metrics: Metrics) -> None:
        self.name = name
        self.place = place
        self.served: ServedSource | None = None
        self.error: ComalError | Refusal | None = None
        """Why the source cannot be opened."""
        self.next_look = 0.0
        self._runtime = runtime
        self._metrics = metrics
        self._version = ""
        self._refused = ""
        self._failures = 0
        self._next_try = 0.0
        self._looking: asyncio.Task[None] | None = None

    @property
    def title(self) -> str:
        """The last segment of its location; the whole is not for clients."""
        href = self.place.href or self.name
        return without_secrets(href).rstrip("/").rpartition("/")[2] or self.name

    async def get(self) -> ServedSource:
        """The source; opens it if necessary."""
        if self.served is not None:
            if time.monotonic() >= self.next_look:
                self.look()
            return self.served
        if self.error is None:
            return await self.changed()
        error = self.error.with_traceback(None)  # else it grows each time
        if self.retry_seconds > 0:
            raise error
        try:
            async with asyncio.timeout(_RETRIED):
                return await self.changed()
        except TimeoutError:
            raise error from None  # the retry goes on

    @property
    def retry_seconds(self) -> float:
        """Seconds until a source that could not be opened is tried again, 0 for at once."""
        return max(0.0, self._next_try - time.monotonic())

    def look(self) -> None:
        """Check in the background whether the source has changed."""
        self.next_look = time.monotonic() + self._patience()
        if self.next_look == float("inf"):
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    def _patience(self) -> float:
        """Seconds until the next check of the source."""
        seconds = self._runtime.settings.reload_seconds
        if not seconds or self.place.href is None:
            return float("inf")
        return max(seconds, _REMOTE) if "://" in self.place.href else seconds

    async def changed(self) -> ServedSource:
        """The source, opened again, once for all requests that wait."""
        return await self._runtime.single_flight.run(("open", self.name), self._open, keep=True)

    async def _look(self) -> None:
        assert self.place.href is not None, "a reader that was given is not looked at"
        storage = self._runtime.storage
        try:
            found = await self._runtime.run_apart(fingerprint, self.place.href, storage)
            if found not in {self._version, self._refused}:
                self._refused = found  # tried once; then it waits for the next change
                await self.changed()
        except ComalError as error:
            LOGGER.warning("source %s stays as it was: %s", self.name, error)

    async def _open(self) -> ServedSource:
        again = self.served is not None
        try:
            version, served = await self._runtime.run_apart(self._opened)
        except Exception as error:
            # Any error of a reader concerns only this source.
            if again:
                self._metrics.counts.reloaded(self.name, "failed")
                raise
            self._failed(error)
            raise
        if again:
            self._metrics.counts.reloaded(self.name, "ok")
            LOGGER.info("source %s has changed and was opened again", self.name)
        self._version = version
        self.error, self._failures = None, 0
        self.next_look = time.monotonic() + self._patience()
        self.served = served
        return served

    def _failed(self, error: Exception) -> None:
        bug = None if isinstance(error, ComalError) else error
        self.error = error if isinstance(error, ComalError) else _BUG
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self._next_try = time.monotonic() + wait
        text = "source %s cannot be opened; next try in %d s: %s"
        LOGGER.warning(text, self.name, wait, error, exc_info=bug)

    def _opened(self) -> tuple[str, ServedSource]:
        href, storage = self.place.href, self._runtime.storage
        version = "" if href is None else fingerprint(href, storage)
        return version, open_place(self.name, self.title, self.place, self._runtime, version)


_MODULES = {
    "taco": "samples",
    "taco-v1": "samples",
    "tortilla": "samples",
    "raquet": "rasters",
    "tapalcatl": "tilesets",
}
"""The module with ``serve`` for each format and each package of readers."""
_LOADING = threading.Lock()
"""Held while modules are loaded, because sources are opened side by side.

If two threads import a package and a module of it, Python can give one a half-loaded module.
"""


def open_place(
    name: str, title: str, place: SourceConfig, runtime: Runtime, version: str
) -> ServedSource:
    """The source at a location, opened by the reader of its format."""
    if isinstance(place.reader, ServedSource):
        return place.reader
    reader, href, options = place.reader, place.href, place.options
    if href is None:
        kind, title = _room_of(reader, name), ""
    else:
        kind = "tapalcatl" if options is not None else format_of(href, runtime.storage)
    with _LOADING:
        module = import_module(f"comal.server.{_MODULES[kind]}")
        opener = _opener(kind)
    if href is not None:
        if kind in {"tortilla", "taco-v1"}:
            options = {"siblings": ".part." in href}
        reader = opener(href, config=runtime.storage, **(options or {}))
    served: ServedSource = module.serve(name, title, reader, kind, runtime, version)
    return served


def format_of(href: str, config: StorageConfig | None = None) -> str:
    """The name of the format at a path or a URL."""
    with _LOADING:
        from comal.formats import recognise  # noqa: PLC0415 - loads Arrow

    with open_source(href, config=config) as source:
        return recognise(source).format.name


def _opener(kind: str) -> Any:
    """The function that opens archives of a format; imports its module."""
    if kind == "taco":
        return taco.load
    if kind == "raquet":
        return raquet.open
    return tapalcatl.open if kind == "tapalcatl" else tortilla.open


def _room_of(reader: Any, name: str) -> str:
    """The package that a reader comes from."""
    for kind in type(reader).__mro__:
        package, room, *_ = f"{kind.__module__}.".split(".")
        if package == "comal" and room in _MODULES:
            return room
    raise no_source(reader, name)
