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
    from comal.tortilla.checking import check as check
    from comal.tortilla.creating import Created as Created
    from comal.tortilla.creating import compile as compile  # noqa: A004 - tortilla.compile
    from comal.tortilla.creating import create as create
    from comal.tortilla.creating import pack_folder as pack_folder
    from comal.tortilla.editing import append as append
    from comal.tortilla.editing import compact as compact
    from comal.tortilla.editing import delete as delete
    from comal.tortilla.editing import edit as edit
    from comal.tortilla.frame import TortillaFrame as TortillaFrame
    from comal.tortilla.opening import load as load
    from comal.tortilla.opening import open as open  # noqa: A004 - tortilla.open
    from comal.tortilla.opening import open_async as open_async
    from comal.tortilla.samples import RAI as RAI
    from comal.tortilla.samples import STAC as STAC
    from comal.tortilla.samples import Sample as Sample
    from comal.tortilla.samples import Samples as Samples
    from comal.tortilla.spec import CODES as CODES
    from comal.tortilla.spec import TortillaWarning as TortillaWarning

__all__, __getattr__, __dir__ = exports(__name__)
