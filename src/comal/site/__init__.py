"""Web pages that show archives on a map, and `write`, which writes them to a folder.

>>> from comal import site
>>> site.write("public", ["tiles/", "elevation.parquet"], title="Alps")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.site.writing import Asset as Asset
    from comal.site.writing import SiteSource as SiteSource
    from comal.site.writing import site_files as site_files
    from comal.site.writing import viewer_files as viewer_files
    from comal.site.writing import write as write

__all__, __getattr__, __dir__ = exports(__name__)
