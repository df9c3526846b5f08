"""Web pages that show archives on a map, and who writes them to a folder.

>>> from comal import site
>>> site.write("public", ["tiles/", "elevation.parquet"], title="Alps")  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Asset": "registry",
    "SiteSource": "sources",
    "site_files": "registry",
    "viewer_files": "registry",
    "write": "writing",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table names both the homes and the exports


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'comal.site' has no attribute {name!r}")
    return getattr(import_module(f"comal.site.{home}"), name)


def __dir__() -> list[str]:
    return __all__
