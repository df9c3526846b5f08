"""From one format to another: a module per pair of formats, and `convert`, which finds the pair.

Formats do not import one another; code that needs two of them is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.convert.raquet_tapalcatl import draw as draw
    from comal.convert.report import Change as Change
    from comal.convert.report import MigrationReport as MigrationReport
    from comal.convert.report import Missing as Missing
    from comal.convert.routes import Conversion as Conversion
    from comal.convert.routes import convert as convert
    from comal.convert.tortilla_taco import migrate as migrate

__all__, __getattr__, __dir__ = exports(__name__)
