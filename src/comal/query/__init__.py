"""SQL in an engine that can only read the data it is given.

`engine` returns the session of this thread; `Session.select` runs one SELECT over named Arrow
tables and datasets. `run_isolated` runs a whole function, including the parsing of its query, in a
process with hard limits. DuckDB is imported by `comal.query.locked` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.query.functions import Function as Function
    from comal.query.isolated import Budget as Budget
    from comal.query.isolated import run_isolated as run_isolated
    from comal.query.isolated import select_isolated as select_isolated
    from comal.query.locked import Session as Session
    from comal.query.locked import engine as engine

__all__, __getattr__, __dir__ = exports(__name__, guard=False)
