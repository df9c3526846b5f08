"""TACO 2.0: datasets of samples with consolidated Parquet metadata, as one ZIP or a folder.

The names are those of the specification, section 7. Each is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comal.taco.spec import PITSchema as PITSchema

_HOMES = {
    "PITSchema": "comal.taco.spec",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table names both the homes and the exports


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'comal.taco' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
