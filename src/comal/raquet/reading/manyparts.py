"""Ranges of several files, each fetched from its own source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from comal import parallel
from comal.plan import Piece, Wanted
from comal.storage import Source

T = TypeVar("T")

_THREADS = 16


def fetch_parts(sources: Sequence[Source], wanted: Sequence[Wanted]) -> list[Piece]:
    """One piece for each range, whose ``href`` is the number of its source."""
    if len(sources) == 1:
        return sources[0].fetch(wanted)
    groups = _by_part(wanted)
    jobs = [
        lambda part=part, rows=rows: sources[part].fetch([_plain(wanted[row]) for row in rows])
        for part, rows in groups.items()
    ]
    return _scattered(groups, side_by_side(jobs, sources), len(wanted))


async def fetch_parts_async(sources: Sequence[Source], wanted: Sequence[Wanted]) -> list[Piece]:
    """As `fetch_parts`, without blocking the event loop."""
    if len(sources) == 1:
        return await sources[0].fetch_async(wanted)
    groups = _by_part(wanted)
    fetched = await asyncio.gather(
        *(
            sources[part].fetch_async([_plain(wanted[row]) for row in rows])
            for part, rows in groups.items()
        )
    )
    return _scattered(groups, fetched, len(wanted))


def side_by_side(jobs: Sequence[Callable[[], T]], sources: Sequence[Source]) -> list[T]:
    """What each job returns, in threads where they wait for a network."""
    if len(jobs) < 2 or not any("://" in source.href for source in sources):
        return [job() for job in jobs]
    return parallel.side_by_side(jobs, _THREADS)


def _by_part(wanted: Sequence[Wanted]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for row, want in enumerate(wanted):
        groups.setdefault(int(want.href), []).append(row)
    return groups


def _plain(want: Wanted) -> Wanted:
    return replace(want, href="")


def _scattered(
    groups: dict[int, list[int]], fetched: Sequence[Sequence[Piece]], count: int
) -> list[Piece]:
    found = {
        row: piece
        for rows, pieces in zip(groups.values(), fetched, strict=True)
        for row, piece in zip(rows, pieces, strict=True)
    }
    return [found[row] for row in range(count)]
