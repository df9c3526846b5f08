"""TACO 2.0: datasets of samples with consolidated Parquet metadata, as one ZIP or a folder.

The names are those of the specification, section 7. Each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.convert.tortilla_taco import migrate as migrate
    from comal.taco import extensions as extensions
    from comal.taco.checking import Report as Report
    from comal.taco.checking import check as check
    from comal.taco.copying.exporting import export as export
    from comal.taco.copying.exporting import folder2zip as folder2zip
    from comal.taco.copying.exporting import zip2folder as zip2folder
    from comal.taco.copying.repairing import repair as repair
    from comal.taco.extensions.base import SampleExtension as SampleExtension
    from comal.taco.extensions.base import TacoExtension as TacoExtension
    from comal.taco.extensions.base import TortillaExtension as TortillaExtension
    from comal.taco.model.collection import Taco as Taco
    from comal.taco.model.sample import Sample as Sample
    from comal.taco.model.tortilla import Tortilla as Tortilla
    from comal.taco.reading.dataset import TacoDataset as TacoDataset
    from comal.taco.reading.dataset import concat as concat
    from comal.taco.reading.dataset import load as load
    from comal.taco.reading.frame import TacoDataFrame as TacoDataFrame
    from comal.taco.spec import PITSchema as PITSchema
    from comal.taco.spec import TacoWarning as TacoWarning
    from comal.taco.spec import verbose as verbose
    from comal.taco.writing.creating import create as create
    from comal.taco.writing.packing import pack_folder as pack_folder
    from comal.taco.writing.tacocat import create_tacocat as create_tacocat
    from comal.taco.writing.tacocat import create_tacollection as create_tacollection

__all__, __getattr__, __dir__ = exports(__name__)
