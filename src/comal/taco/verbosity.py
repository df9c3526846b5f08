"""How much TACO operations tell of what they do (7.1.5, 7.2.6)."""

from __future__ import annotations

import logging
from typing import Literal

from comal.errors import InvalidInputError

LOGGER = logging.getLogger("comal.taco")
LOGGER.addHandler(logging.NullHandler())

_HANDLER = logging.StreamHandler()
_HANDLER.setFormatter(logging.Formatter("%(name)s: %(message)s"))
_LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}


def verbose(level: bool | Literal["info", "debug"] = True) -> None:  # noqa: FBT001, FBT002 - spec 7.2.6
    """Set what all following TACO operations log to stderr.

    Parameters
    ----------
    level
        True or ``"info"`` for progress, ``"debug"`` for queries and spans, False for nothing.
    """
    if level is False:
        LOGGER.removeHandler(_HANDLER)
        LOGGER.setLevel(logging.NOTSET)
        return
    chosen: object = "info" if level is True else level
    if not isinstance(chosen, str) or chosen not in _LEVELS:
        raise InvalidInputError(
            "unknown verbosity", found=repr(level), expected="True, 'info', 'debug' or False"
        )
    LOGGER.setLevel(_LEVELS[chosen])
    if _HANDLER not in LOGGER.handlers:
        LOGGER.addHandler(_HANDLER)
