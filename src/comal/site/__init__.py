"""Web pages that show archives on a map, and who writes them to a folder.

>>> from comal import site
>>> site.write("public", ["tiles/", "elevation.parquet"], title="Alps")  # doctest: +SKIP
"""

from __future__ import annotations

from comal.public import exports

_HOMES = {
    "Asset": "writing",
    "SiteSource": "writing",
    "site_files": "writing",
    "viewer_files": "writing",
    "write": "writing",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table names both the homes and the exports


__getattr__ = exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
