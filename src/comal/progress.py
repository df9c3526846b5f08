"""Progress reports of long work, independent of who listens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

_SHARE_AND_TIME = 16
"""Width of "100%", the remaining time and the gaps, in columns of the terminal."""
_RATE, _WIDE = 11, 60
"""Width of a rate, and of a terminal that has room for it."""


class Progress(Protocol):
    """Called now and then during long work, from one thread at a time."""

    def __call__(self, done: int, total: int | None, what: str) -> None:
        """`done` of `total` (None while unknown) units of the step named `what`.

        The units are bytes if the name ends in ``bytes``.
        """
        ...


def silent(done: int, total: int | None, what: str) -> None:
    """A `Progress` that does nothing."""


_heard: ContextVar[Progress] = ContextVar("comal_progress", default=silent)


def current() -> Progress:
    """Who is told of the work of this thread, for steps that nobody passes a `Progress` to."""
    return _heard.get()


class Counter:
    """Adds up what several threads have done of a step, and tells it."""

    def __init__(self, progress: Progress, total: int, what: str) -> None:
        self._progress, self._lock = progress, Lock()
        self.done, self.total, self._what = 0, total, what

    def __call__(self, more: int) -> None:
        """`more` units are done."""
        with self._lock:
            self.done += more
            self._progress(min(self.done, self.total), self.total, self._what)


@contextmanager
def telling(
    progress: Progress | None,
    *,
    quiet: bool,
    what: str = "",
    console: Console | None = None,
) -> Iterator[Progress]:
    """The receiver of progress: `progress`, a bar on a terminal, or nothing.

    Until it is called, the bar has the name `what` and only moves. Print through `console` in the
    meantime, so that the bar makes room.
    """
    with ExitStack() as scope:
        if progress is None:
            shown = not quiet and sys.stderr.isatty()
            progress = scope.enter_context(_bar(what, console)) if shown else silent
        token = _heard.set(progress)
        scope.callback(_heard.reset, token)
        yield progress


@contextmanager
def _bar(what: str, console: Console | None) -> Iterator[Progress]:
    from rich import filesize  # noqa: PLC0415 - only a terminal needs it
    from rich import progress as bars  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Rate(bars.ProgressColumn):
        """Bytes or other units in a second."""

        def render(self, task: bars.Task) -> Text:
            if not task.speed:
                return Text("")
            if task.fields["bytes"]:
                return Text(f"{filesize.decimal(int(task.speed), precision=0)}/s")
            return Text(f"{task.speed:,.{0 if task.speed > 10 else 1}f}/s")

    screen = console or Console(stderr=True)
    # Without a limit of its width, a long text leaves no room for the bar and the percentage.
    bar = max(8, min(40, screen.width // 4))
    is_wide = screen.width >= _WIDE
    words = max(8, screen.width - bar - _SHARE_AND_TIME - _RATE * is_wide)
    columns = (
        bars.TextColumn("{task.description}", markup=False),
        bars.BarColumn(bar),
        bars.TaskProgressColumn(),
        *([Rate()] if is_wide else []),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=screen, transient=True) as shown:
        task = shown.add_task(shortened(what, words), total=None, bytes=False)

        def tell(done: int, total: int | None, what: str) -> None:
            named = {"description": shortened(what, words), "bytes": what.endswith("bytes")}
            shown.update(task, completed=done, total=total, **named)  # type: ignore[arg-type]

        yield tell


def shortened(text: str, width: int) -> str:
    """A text without its middle where it is too long: the end of a path says most of it."""
    if len(text) <= width:
        return text
    head = width // 3
    return f"{text[:head]}...{text[head + 3 - width :]}"
