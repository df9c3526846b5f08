"""Objects by URL: pinned sources, ranges in as few requests as possible, atomic targets.

`open_source` returns a `Source` for a local path, an HTTP(S) URL or a location in an object store.
Wrappers such as `CachedSource` and `CountingSource` add behaviour.
"""

from __future__ import annotations

from comal.storage import gdal, targets
from comal.storage.config import DEFAULT_CONFIG, StorageConfig
from comal.storage.location import Location, StorePath, href_text, local_path, parse_href
from comal.storage.opening import (
    as_source,
    check_several,
    open_again,
    open_beside,
    open_linked,
    open_source,
    reload_once,
    several,
)
from comal.storage.source import ObjectInfo, Source
from comal.storage.wrappers import BlockCache, CachedSource, CountingSource, RangeFile

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
    "StorePath",
    "as_source",
    "check_several",
    "gdal",
    "href_text",
    "local_path",
    "open_again",
    "open_beside",
    "open_linked",
    "open_source",
    "parse_href",
    "reload_once",
    "several",
    "targets",
]
