"""TACO 2.0: datasets of samples with consolidated Parquet metadata, as one ZIP or a folder.

The names are those of the specification, section 7. Each is imported when it is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comal.taco.check import Report as Report
    from comal.taco.check import check as check
    from comal.taco.concat import concat as concat
    from comal.taco.convert import folder2zip as folder2zip
    from comal.taco.convert import folder2zip_async as folder2zip_async
    from comal.taco.convert import zip2folder as zip2folder
    from comal.taco.convert import zip2folder_async as zip2folder_async
    from comal.taco.dataset import TacoDataset as TacoDataset
    from comal.taco.export import export as export
    from comal.taco.export import export_async as export_async
    from comal.taco.extensions.base import SampleExtension as SampleExtension
    from comal.taco.extensions.base import TacoExtension as TacoExtension
    from comal.taco.extensions.base import TortillaExtension as TortillaExtension
    from comal.taco.frame import TacoDataFrame as TacoDataFrame
    from comal.taco.load import load as load
    from comal.taco.model import Taco as Taco
    from comal.taco.pack import pack_folder as pack_folder
    from comal.taco.repair import repair as repair
    from comal.taco.sample import Sample as Sample
    from comal.taco.spec import PITSchema as PITSchema
    from comal.taco.tacocat import create_tacocat as create_tacocat
    from comal.taco.tacocat import create_tacollection as create_tacollection
    from comal.taco.tortilla import Tortilla as Tortilla
    from comal.taco.verbosity import verbose as verbose
    from comal.taco.warning import TacoWarning as TacoWarning
    from comal.taco.write import create as create

_HOMES = {
    "PITSchema": "spec",
    "Report": "check",
    "Sample": "sample",
    "SampleExtension": "extensions.base",
    "Taco": "model",
    "TacoDataFrame": "frame",
    "TacoDataset": "dataset",
    "TacoExtension": "extensions.base",
    "TacoWarning": "warning",
    "Tortilla": "tortilla",
    "TortillaExtension": "extensions.base",
    "check": "check",
    "concat": "concat",
    "create": "write",
    "create_tacocat": "tacocat",
    "create_tacollection": "tacocat",
    "export": "export",
    "export_async": "export",
    "folder2zip": "convert",
    "folder2zip_async": "convert",
    "load": "load",
    "pack_folder": "pack",
    "repair": "repair",
    "verbose": "verbosity",
    "zip2folder": "convert",
    "zip2folder_async": "convert",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table names both the homes and the exports


class _Room(ModuleType):
    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Room


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        if name == "extensions":
            return import_module("comal.taco.extensions")
        raise AttributeError(f"module 'comal.taco' has no attribute {name!r}")
    return getattr(import_module(f"comal.taco.{home}"), name)


def __dir__() -> list[str]:
    return __all__
