"""Progress reports of long work, independent of who listens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Called now and then during long work, from one thread at a time."""

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """`done` of `total` (None while unknown) units of the step named `what`."""
        ...


def silent(done: int, total: int | None, what: str) -> None:
    """A `Progress` that does nothing."""


@contextmanager
def telling(progress: Progress | None, *, quiet: bool) -> Iterator[Progress]:
    """The receiver of progress: `progress`, a bar on a terminal, or nothing."""
    if progress is not None:
        yield progress
    elif quiet or not sys.stderr.isatty():
        yield silent
    else:
        with _bar() as shown:
            yield shown


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal
    from rich.progress import Progress as Bars  # noqa: PLC0415

    with Bars(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, int] = {}

        def show(done: int, total: int | None, what: str) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)  # type: ignore[arg-type]

        yield show
