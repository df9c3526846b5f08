"""`pyarrow.compute`, loaded when the first of its functions is called.

Its import takes 9 MB and longer than a small archive takes to write or to open. Modules import this
one in its place, ``from comal import arrowcompute as pc``, where most of their work needs no
function of it. Methods of arrays such as `take`, `cast`, `filter` and `is_valid` load it too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module("pyarrow.compute"), name)
    globals()[name] = found
    return found
