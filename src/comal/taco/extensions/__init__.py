"""Extensions: declared metadata that is computed or checked (TACO 2.0, 7.1.2).

Each name is imported on first use, so that it loads only the libraries that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.taco.extensions.base import SampleExtension as SampleExtension
    from comal.taco.extensions.base import TacoExtension as TacoExtension
    from comal.taco.extensions.base import TortillaExtension as TortillaExtension
    from comal.taco.extensions.declared import LabelClass as LabelClass
    from comal.taco.extensions.declared import Labels as Labels
    from comal.taco.extensions.declared import OpticalData as OpticalData
    from comal.taco.extensions.declared import Publication as Publication
    from comal.taco.extensions.declared import Publications as Publications
    from comal.taco.extensions.declared import Scaling as Scaling
    from comal.taco.extensions.declared import SpectralBand as SpectralBand
    from comal.taco.extensions.declared import Split as Split
    from comal.taco.extensions.declared import SplitStrategy as SplitStrategy
    from comal.taco.extensions.places import ISTAC as ISTAC
    from comal.taco.extensions.places import STAC as STAC
    from comal.taco.extensions.places import MajorTOM as MajorTOM
    from comal.taco.extensions.places import SpatialGrouping as SpatialGrouping
    from comal.taco.extensions.rasters import RAI as RAI
    from comal.taco.extensions.rasters import GeoEnrich as GeoEnrich
    from comal.taco.extensions.rasters import GeotiffStats as GeotiffStats

__all__, __getattr__, __dir__ = exports(__name__)
