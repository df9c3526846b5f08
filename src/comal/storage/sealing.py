"""Credentials and pickles: a pickle that could be kept or sent elsewhere holds none.

What `multiprocessing` sends to processes of its own goes through a pipe to one's own children, and
carries them. Any other pickle holds a number, by which this process and its forks know them.
"""

from __future__ import annotations

import os
from typing import Any

from comal.errors import AccessDeniedError

VARIABLE = "COMAL_PICKLE_SECRETS"
"""Set to 1, every pickle carries credentials, such as those for the workers of a cluster."""

_MOST = 16_384
_known: dict[str, Any] = {}
_numbers: dict[str, str] = {}


class Sealed:
    """A value that is not shown, and that stays behind where its pickle leaves this process.

    None is one that was left out of a pickle before.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value
        told()

    def __repr__(self) -> str:
        return "Sealed(...)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _carried(self) if os.environ.get(VARIABLE) == "1" else (_found, (_number(self),))


def told() -> None:
    """Tell `multiprocessing` how secrets go to its processes: before it pickles the first one."""
    # Who has no secrets does not need it.
    from multiprocessing.reduction import ForkingPickler  # noqa: PLC0415

    ForkingPickler.register(Sealed, _carried)


def no_secrets(where: str) -> AccessDeniedError:
    """The error for who would ask the network with what came out of a pickle without secrets."""
    return AccessDeniedError(
        "the credentials were left out of the pickle that this came from",
        where=where,
        hint=f"open it in this process, or set {VARIABLE}=1 where it is pickled",
    )


def _carried(value: Sealed) -> tuple[Any, ...]:
    return Sealed, (value.value,)


def _number(value: Sealed) -> str:
    # One number for equal secrets; it says nothing of them.
    if value.value is None:
        return ""
    number = _numbers.setdefault(repr(value.value), os.urandom(8).hex())
    _known[number] = value.value
    if len(_known) > _MOST:
        _numbers.pop(repr(_known.pop(next(iter(_known)))), None)
    return number


def _found(number: str) -> Sealed:
    return Sealed(_known.get(number))
