"""Few requests for many ranges: neighbours are merged, long ranges cut. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from comal.limits import KIB, MIB

Ints = npt.NDArray[np.int64]

# Limits of a request for many ranges: Apache answers up to 200 (MaxRanges), and servers commonly
# refuse header lines of 8 KiB. CloudFront wants them ascending and without overlap.
_MOST_RANGES = 128
_MOST_HEADER = 4 * KIB
# Bytes that are worth a request of their own.
_SHARE = MIB


@dataclass(frozen=True, slots=True)
class Merged:
    """Requests that cover a set of ranges.

    Range ``i`` starts in request ``owner[i]``. It also ends there, unless it is longer than the
    largest request: then the following requests continue it without a gap.
    """

    starts: Ints
    """Offset of each request."""
    sizes: Ints
    """Size of each request in bytes, at least 1."""
    owner: Ints
    """For each range the request that it starts in; -1 for an empty range."""


def coalesce(offsets: Ints, sizes: Ints, gap: int, largest: int) -> Merged:
    """Merge ranges, in any order, that are at most `gap` bytes apart into requests.

    Ranges may overlap and repeat. No request exceeds `largest` bytes.
    """
    owner = np.full(len(offsets), -1, np.int64)
    filled = np.flatnonzero(sizes > 0)
    if not len(filled):
        return Merged(np.empty(0, np.int64), np.empty(0, np.int64), owner)
    order = filled[np.argsort(offsets[filled], kind="stable")]
    starts = offsets[order]
    ends = starts + sizes[order]
    reach = np.maximum.accumulate(ends)
    breaks = np.flatnonzero(starts[1:] > reach[:-1] + gap) + 1
    firsts = np.concatenate(([0], breaks))
    lasts = np.concatenate((breaks, [len(order)]))
    spans = reach[lasts - 1] - starts[firsts]
    if (spans <= largest).all():
        owner[order] = np.repeat(np.arange(len(firsts)), lasts - firsts)
        return Merged(starts[firsts], spans, owner)
    return _cut(order, starts, ends, firsts, lasts, largest, owner)


def _cut(
    order: Ints, starts: Ints, ends: Ints, firsts: Ints, lasts: Ints, largest: int, owner: Ints
) -> Merged:
    requests: list[tuple[int, int]] = []
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        at = first
        while at < last:
            count, stop = _take(starts[at:last], ends[at:last], largest)
            owner[order[at : at + count]] = len(requests)
            begin = int(starts[at])
            requests += [(cut, min(largest, stop - cut)) for cut in range(begin, stop, largest)]
            at += count
    table = np.array(requests, np.int64)
    return Merged(table[:, 0], table[:, 1], owner)


def _take(starts: Ints, ends: Ints, largest: int) -> tuple[int, int]:
    """How many of the sorted ranges the next request takes, and where it ends."""
    if ends[0] - starts[0] > largest:
        return 1, int(ends[0])
    limit = starts[0] + largest
    window = int(np.searchsorted(starts, limit))
    reach = np.maximum.accumulate(ends[:window])
    count = int(np.searchsorted(reach, limit, side="right"))
    return count, int(reach[count - 1])


def neighbours(offsets: Ints, sizes: Ints, gap: int, longest: int) -> list[tuple[int, int]]:
    """Runs of ranges to read at once: index of the first range and end index of each run.

    Ranges keep their order, with up to `gap` unwanted bytes between two. A run of several hardly
    exceeds `longest` bytes; a range of more than half of that is a run of its own. Unlike
    `coalesce` this neither sorts nor cuts, so that each run can be split and dropped after its
    read: a copy within the processor's caches costs less than a call per range.
    """
    ends = offsets + sizes
    between = offsets[1:] - ends[:-1]
    long = sizes > longest // 2
    apart = (between < 0) | (between > gap) | long[1:] | long[:-1]
    begins = np.concatenate(([0], np.flatnonzero(apart) + 1))
    first = np.repeat(offsets[begins], np.diff(begins, append=len(offsets)))
    full = (ends - first) // longest
    cuts = (np.flatnonzero(apart | (full[1:] != full[:-1])) + 1).tolist()
    return list(zip([0, *cuts], [*cuts, len(offsets)], strict=True))


def bundled(spans: Sequence[tuple[int, int]], lanes: int, largest: int) -> list[list[int]]:
    """Group ascending ranges of one object, by index, into requests for many ranges.

    The bytes are spread over all `lanes` (requests in flight at once) as long as each gets a
    worthwhile share: one response after the other on a single connection would be slower than many
    in parallel. The ranges of one request do not exceed `largest` bytes together.
    """
    most = min(largest, max(_SHARE, sum(size for _, size in spans) // lanes))
    found: list[list[int]] = []
    size, header, stop = 0, 0, -1
    for index, (start, length) in enumerate(spans):
        text = len(f"{start}-{start + length},")
        size, header = size + length, header + text
        fits = found and start >= stop and size <= most and header <= _MOST_HEADER
        if fits and len(found[-1]) < _MOST_RANGES:
            found[-1].append(index)
        else:
            found.append([index])
            size, header = length, text
        stop = start + length
    return found


def scatter(merged: Merged, bodies: Sequence[bytes], offsets: Ints, sizes: Ints) -> list[bytes]:
    """The bytes of each range from the bodies of the requests that `coalesce` made of them."""
    starts = merged.starts.tolist()
    found: list[bytes] = []
    ranges = zip(merged.owner.tolist(), offsets.tolist(), sizes.tolist(), strict=True)
    for owner, offset, size in ranges:
        if owner < 0:
            found.append(b"")
            continue
        body, begin = bodies[owner], offset - starts[owner]
        if begin + size <= len(body):
            found.append(body if size == len(body) else body[begin : begin + size])
        else:
            found.append(_joined(bodies, owner, begin, size))
    return found


def _joined(bodies: Sequence[bytes], owner: int, begin: int, size: int) -> bytes:
    parts = [bodies[owner][begin : begin + size]]
    left = size - len(parts[0])
    while left:
        owner += 1
        parts.append(bodies[owner][:left])
        left -= len(parts[-1])
    return b"".join(parts)
