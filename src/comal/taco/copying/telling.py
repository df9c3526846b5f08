"""Progress on a terminal, for those who did not say who shall be told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from comal.progress import Progress, silent


@contextmanager
def telling(progress: Progress | None, *, quiet: bool) -> Iterator[Progress]:
    """What a long job tells its progress to: `progress`, a bar on a terminal, or nobody."""
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
