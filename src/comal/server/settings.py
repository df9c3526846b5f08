"""Settings of a server."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comal.errors import InvalidInputError
from comal.limits import KIB, MIB

MISSING = (204, 404)


def _check(right: bool, name: str, found: object, expected: str) -> None:  # noqa: FBT001 - a test
    if not right:
        raise InvalidInputError(
            f"{name} cannot be used", where="server", found=repr(found), expected=expected
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """Upper bounds for requests."""

    url_bytes: int = 8 * KIB
    header_bytes: int = 16 * KIB
    in_flight: int = 64
    """Requests in progress at a time, for each worker; quick ones do not count."""
    queue: int = 256
    """Requests that may wait; those beyond are answered with 503 at once."""
    streams: int = 64
    """Long bodies that are sent at a time, counted separately; as many as `queue` may wait. So
    downloads over slow lines do not block requests for tiles."""
    seconds: float = 60.0
    """How long a request may take, and how long it may wait before it starts."""
    stalled: float = 30.0
    """Seconds after which a client that reads nothing of its answer is disconnected."""
    cache_bytes: int = 128 * MIB
    """Size of the cache of rendered tiles and previews, for each worker."""
    tile_bytes: int = 128 * MIB
    """Size of the cache of responses for tiles of local archives, for each worker."""
    raster_bytes: int = 256 * MIB
    """A sample above this size has no preview."""
    items: int = 1_000
    """Most items of one page."""
    threads: int = 0
    """Threads that read and render; 0 means twice the number of processors plus four."""

    def __post_init__(self) -> None:
        for name in ("seconds", "stalled"):
            _check(0 < getattr(self, name) < math.inf, name, getattr(self, name), "above 0")
        for name in ("cache_bytes", "tile_bytes"):
            _check(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings for all sources of a server."""

    prefix: str = ""
    """Path before all routes: empty, or ``/maps``."""
    public_url: str | None = None
    """Public URL before the prefix; without it, links are paths. Host headers are ignored."""
    missing: int = 404
    """Status for a tile that is absent within the zooms and bounds: 204 or 404."""
    cache_control: str | None = "public, max-age=3600"
    """For tiles and other data whose archive sets none."""
    cors: tuple[str, ...] = ("*",)
    """Origins that may read answers; empty for none."""
    reload_seconds: float = 2.0
    """A source is checked for changes at most this often; 0 is never."""
    log: str = "errors"
    """Which requests are logged: ``all``, ``errors`` (status from 500 on) or ``none``."""
    viewer: bool = True
    """Whether ``/`` is the viewer."""
    metrics: bool = True
    linked_origins: tuple[str, ...] | None = None
    """Origins that sources may refer to (`StorageConfig.linked_origins`); None for the default."""
    limits: RequestLimits = RequestLimits()

    def __post_init__(self) -> None:
        _check(self.missing in MISSING, "missing", self.missing, "204 or 404")
        _check(self.log in {"all", "errors", "none"}, "log", self.log, "all, errors or none")
        prefix = self.prefix
        right = prefix == "" or (prefix.startswith("/") and prefix == prefix.rstrip("/"))
        _check(right and prefix.isascii(), "prefix", prefix, "'' or '/name', without a final slash")
        _check(0 <= self.reload_seconds < math.inf, "reload", self.reload_seconds, "0 or more")
        url = self.public_url
        right = url is None or url.startswith(("http://", "https://"))
        _check(right, "public_url", url, "https://HOST or http://HOST")
        for value in (self.cache_control, self.public_url, *self.cors):
            _check(_is_header(value), "header value", value, "printable ASCII")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings of a server process."""

    sources: Mapping[str, Any] = field(repr=False)
    """Sources by name, as for `comal.server.app`."""
    settings: Settings = field(default_factory=Settings)
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    idle_seconds: float = 5.0
    """How long a client may take to send its headers, and how long a connection may be idle."""
    max_memory: int | None = None
    """MiB above which a worker is replaced, after finishing its requests; allocations beyond twice
    that fail. None is never. Linux only."""


def _is_header(value: str | None) -> bool:
    return value is None or (value.isascii() and value.isprintable() and value != "")


def normalised_prefix(prefix: str) -> str:
    """``/maps`` from ``maps/``, ``/maps/`` or ``/maps``; empty from ``/``."""
    inner = prefix.strip("/")
    return f"/{inner}" if inner else ""


def origins(cors: bool | str | Sequence[str] | None) -> tuple[str, ...]:  # noqa: FBT001 - as users say it
    """Origins from what `comal.server.app` takes: True for any, False or None for none."""
    if cors is True:
        return ("*",)
    if not cors:
        return ()
    return (cors,) if isinstance(cors, str) else tuple(cors)
