"""From one format to another: a module per pair of formats, and `convert`, which finds the pair.

Formats do not know one another; what knows two of them lives here.
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

# No module has the name of a function, so that importing one never hides the other.
_HOMES = {
    "Change": "report",
    "Conversion": "routes",
    "MigrationReport": "report",
    "Missing": "report",
    "convert": "routes",
    "draw": "raquet_tapalcatl",
    "migrate": "tortilla_taco",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table names both the homes and the exports


__getattr__ = exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
