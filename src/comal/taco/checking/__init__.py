"""Check a container: list all problems with their places (TACO 2.0, 5 and 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.check import LEVELS as LEVELS
    from comal.check import Report as Report
    from comal.taco.checking.codes import CODES as CODES
    from comal.taco.checking.run import check as check

__all__, __getattr__, __dir__ = exports(__name__, guard=False)
