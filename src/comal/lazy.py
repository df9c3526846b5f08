"""Libraries that are imported when one of their functions is first used.

The import of `pyarrow.compute` takes 9 MB and longer than writing or opening a small archive, that
of shapely 40 ms. Modules import them from here, ``from comal.lazy import pc, shapely``, if most of
their work needs neither. Methods of arrays such as `take`, `cast`, `filter` and `is_valid` load
`pyarrow.compute` too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Library:
    """Proxy for a library; each name is looked up once."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)
        return found


pc: Any = _Library("pyarrow.compute")
shapely: Any = _Library("shapely")
