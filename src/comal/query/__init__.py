"""SQL in an engine that can read what it is given and do nothing else.

`engine` gives the engine of this thread; `Engine.select` runs one SELECT over named Arrow tables
and datasets. `run_isolated` runs a whole function, parsing of its query included, in a process
that cannot outgrow its limits. DuckDB is imported by `comal.query.locked` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.query.functions import Function as Function
    from comal.query.isolated import Budget as Budget
    from comal.query.isolated import run_isolated as run_isolated
    from comal.query.isolated import select_isolated as select_isolated
    from comal.query.locked import Engine as Engine
    from comal.query.locked import Session as Session
    from comal.query.locked import engine as engine

_HOMES = {
    "Budget": "comal.query.isolated",
    "Engine": "comal.query.locked",
    "Function": "comal.query.functions",
    "Session": "comal.query.locked",
    "engine": "comal.query.locked",
    "run_isolated": "comal.query.isolated",
    "select_isolated": "comal.query.isolated",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table names both the homes and the exports


__getattr__ = exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
