"""Objects by URL: pinned sources, ranges in as few requests as possible, atomic targets.

`open_source` opens a local path, an HTTP(S) URL or a place in an object store; what comes back is
a `Source`. Behaviour is added by wrapping one: `CachedSource`, `CountingSource`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from comal.storage import targets
from comal.storage.cache import BlockCache, CachedSource
from comal.storage.config import DEFAULT_CONFIG, StorageConfig
from comal.storage.counting import CountingSource
from comal.storage.file import RangeFile
from comal.storage.location import Location, href_text, local_path, parse_href
from comal.storage.opening import (
    as_source,
    check_several,
    location_of,
    open_again,
    open_beside,
    open_linked,
    open_source,
    several,
)
from comal.storage.reloading import reload_once, reload_once_async
from comal.storage.source import ObjectInfo, Source

if TYPE_CHECKING:
    from comal.storage import vsi

__all__ = [
    "DEFAULT_CONFIG",
    "BlockCache",
    "CachedSource",
    "CountingSource",
    "Location",
    "ObjectInfo",
    "RangeFile",
    "Source",
    "StorageConfig",
    "as_source",
    "check_several",
    "href_text",
    "local_path",
    "location_of",
    "open_again",
    "open_beside",
    "open_linked",
    "open_source",
    "parse_href",
    "reload_once",
    "reload_once_async",
    "several",
    "targets",
    "vsi",
]


def __getattr__(name: str) -> Any:
    # `vsi` brings pyarrow, which opening a file does not need.
    if name == "vsi":
        return import_module("comal.storage.vsi")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
