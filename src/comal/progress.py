"""How long work tells how far it is, without knowing who listens."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called now and then while something long is going on, from one thread at a time."""

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """`done` of `total` (None while it is not known) units of the step named `what`."""
        ...


def silent(done: int, total: int | None, what: str) -> None:
    """A `Progress` that nobody sees."""
