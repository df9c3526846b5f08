"""One more try where an object was replaced while it was being opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from comal.errors import ObjectChangedError

T = TypeVar("T")


def reload_once(opening: Callable[[], T]) -> T:
    """What `opening` returns, tried a second time where an object changed under the first.

    Nothing has been handed out by then, so that starting anew mixes no versions. Later changes are
    errors: what was opened is one version.

    Parameters
    ----------
    opening
        Opens its sources itself, by `open_source`: a source that is open already remembers the
        version that it has seen.

    Raises
    ------
    ObjectChangedError
        The object changed again, or a source is not opened anew.
    """
    try:
        return opening()
    except ObjectChangedError:
        return opening()


async def reload_once_async(opening: Callable[[], Awaitable[T]]) -> T:
    """As `reload_once`, without blocking the event loop."""
    try:
        return await opening()
    except ObjectChangedError:
        return await opening()
