"""Pixels through GDAL: headers, statistics, previews and means over footprints.

The only room that imports rasterio. Its names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.raster.layers import Layer as Layer
    from comal.raster.layers import sample_footprint as sample_footprint
    from comal.raster.opening import Header as Header
    from comal.raster.opening import Span as Span
    from comal.raster.opening import header as header
    from comal.raster.opening import headers as headers
    from comal.raster.opening import open_raster as open_raster
    from comal.raster.opening import sniff_driver as sniff_driver
    from comal.raster.pictures import preview as preview
    from comal.raster.statistics import band_stats as band_stats
    from comal.raster.statistics import class_shares as class_shares

__all__, __getattr__, __dir__ = exports(__name__)
