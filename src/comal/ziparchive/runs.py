"""Neighbouring spans of an object gathered into few large reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from comal.ziparchive import wire

GAP = 64 << 10
SIZE = 8 << 20


@dataclass(frozen=True, slots=True)
class Run:
    """A read that covers several spans."""

    start: int
    stop: int
    rows: wire.Int64s
    """Which spans, in the order of their starts."""


def runs(starts: wire.Int64s, stops: wire.Int64s, order: wire.Int64s) -> Iterator[Run]:
    """Gather spans whose gaps are at most 64 KiB into reads of about 8 MiB.

    Parameters
    ----------
    starts, stops
        Spans, int64 arrays of shape (n,).
    order
        Row numbers, by ascending start.
    """
    if len(order) == 0:
        return
    ordered = starts[order]
    ends = np.maximum.accumulate(stops[order])
    apart = np.flatnonzero(ordered[1:] - ends[:-1] > GAP) + 1
    for begin, last in pairwise([0, *apart.tolist(), len(order)]):
        first = begin
        while first < last:
            until = int(np.searchsorted(ends[first:last], ordered[first] + SIZE, side="right"))
            stop = first + max(1, until)
            yield Run(int(ordered[first]), int(ends[stop - 1]), order[first:stop])
            first = stop
