"""Objects by URL: pinned sources, ranges in as few requests as possible, atomic targets.

`open_source` returns a `Source` for a local path, an HTTP(S) URL or a location in an object store.
Wrappers such as `CachedSource` and `CountingSource` add behaviour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.storage import gdal as gdal
    from comal.storage import targets as targets
    from comal.storage.config import DEFAULT_CONFIG as DEFAULT_CONFIG
    from comal.storage.config import StorageConfig as StorageConfig
    from comal.storage.location import Location as Location
    from comal.storage.location import StorePath as StorePath
    from comal.storage.location import href_text as href_text
    from comal.storage.location import local_path as local_path
    from comal.storage.location import parse_href as parse_href
    from comal.storage.opening import as_source as as_source
    from comal.storage.opening import check_several as check_several
    from comal.storage.opening import open_again as open_again
    from comal.storage.opening import open_beside as open_beside
    from comal.storage.opening import open_linked as open_linked
    from comal.storage.opening import open_source as open_source
    from comal.storage.opening import reload_once as reload_once
    from comal.storage.opening import several as several
    from comal.storage.source import ObjectInfo as ObjectInfo
    from comal.storage.source import Source as Source
    from comal.storage.wrappers import BlockCache as BlockCache
    from comal.storage.wrappers import CachedSource as CachedSource
    from comal.storage.wrappers import CountingSource as CountingSource
    from comal.storage.wrappers import RangeFile as RangeFile

__all__, __getattr__, __dir__ = exports(__name__, guard=False)
