"""The main job, on made-up scenes or on rasters of your own.

`run` packs rasters as TACO, queries them by SQL, box and time, reads each back through GDAL by byte
range, checks the archive and draws pictures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.demo.pipeline import Result as Result
    from comal.demo.pipeline import Step as Step
    from comal.demo.pipeline import run as run

__all__, __getattr__, __dir__ = exports(__name__)
