"""Functions for one query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Function:
    """A vectorised scalar function for one query.

    `call` takes one Arrow array per argument, nulls included, and returns an Arrow array of the
    same length.
    """

    call: Callable[..., Any]
    arguments: tuple[str, ...] | None
    """SQL types of the arguments; None takes any number of any types."""
    returns: str = "BOOLEAN"
    """SQL type of the result."""
