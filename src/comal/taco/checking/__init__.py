"""Check a container: list all problems with their places (TACO 2.0, 5 and 6)."""

from comal.check import LEVELS, Report
from comal.taco.checking.codes import CODES
from comal.taco.checking.run import check

__all__ = ["CODES", "LEVELS", "Report", "check"]
