"""Tortilla 0.5 and TACO v1: a blob of samples with a Parquet footer, nested to any depth.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.check import LEVELS as LEVELS
    from comal.check import Report as Report
    from comal.samples.payloads import Slice as Slice
    from comal.tortilla.checking.run import CODES as CODES
    from comal.tortilla.checking.run import check as check
    from comal.tortilla.reading.frame import TortillaFrame as TortillaFrame
    from comal.tortilla.reading.loading import load as load
    from comal.tortilla.reading.loading import open as open  # noqa: A004 - tortilla.open
    from comal.tortilla.reading.loading import open_async as open_async
    from comal.tortilla.spec import TortillaWarning as TortillaWarning
    from comal.tortilla.writing.copying import compile as compile  # noqa: A004 - tortilla.compile
    from comal.tortilla.writing.copying import join as join
    from comal.tortilla.writing.copying import split as split
    from comal.tortilla.writing.creating import Created as Created
    from comal.tortilla.writing.creating import create as create
    from comal.tortilla.writing.creating import create_nested as create_nested
    from comal.tortilla.writing.editing import append as append
    from comal.tortilla.writing.editing import compact as compact
    from comal.tortilla.writing.editing import delete as delete
    from comal.tortilla.writing.editing import drop_columns as drop_columns
    from comal.tortilla.writing.editing import edit as edit
    from comal.tortilla.writing.editing import rename as rename
    from comal.tortilla.writing.editing import set_columns as set_columns
    from comal.tortilla.writing.enriching import Enrichment as Enrichment
    from comal.tortilla.writing.enriching import enrich as enrich
    from comal.tortilla.writing.folders import pack_folder as pack_folder
    from comal.tortilla.writing.samples import RAI as RAI
    from comal.tortilla.writing.samples import STAC as STAC
    from comal.tortilla.writing.samples import Sample as Sample
    from comal.tortilla.writing.samples import Samples as Samples

__all__, __getattr__, __dir__ = exports(__name__)
