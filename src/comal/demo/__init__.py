"""The main job, on made-up scenes or on rasters of your own.

`run` packs rasters as TACO, queries them by SQL, box and time, reads each back through GDAL by byte
range, checks the archive and draws pictures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comal.demo.pipeline import Result as Result
    from comal.demo.pipeline import Step as Step
    from comal.demo.pipeline import run as run

__all__ = ["Result", "Step", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'comal.demo' has no attribute {name!r}")
    return getattr(import_module("comal.demo.pipeline"), name)
