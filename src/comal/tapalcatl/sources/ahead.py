"""Squares of a source one after another, the next one read while one is worked on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Final

from comal.tapalcatl.sources.base import Square, Tiles

_AHEAD: Final = 2


def read_ahead(read: Callable[[Square], Tiles], squares: Sequence[Square]) -> Iterator[Tiles]:
    """What `read` gives for each square, in their order; at most three of them are held."""
    if len(squares) < 2:
        yield from map(read, squares)
        return
    waiting = iter(squares)
    coming: deque[Future[Tiles]] = deque()
    with ThreadPoolExecutor(1, "comal-ahead") as pool:
        try:
            coming.extend(pool.submit(read, square) for square in islice(waiting, _AHEAD))
            while coming:
                tiles = coming.popleft().result()
                coming.extend(pool.submit(read, square) for square in islice(waiting, 1))
                yield tiles
        finally:
            for future in coming:
                future.cancel()
