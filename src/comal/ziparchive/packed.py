"""Many small archives at once: what `ZipWriter` writes, made for a whole batch in a few steps.

An archive of ten entries costs as much as one of a thousand when its headers are made array by
array. Here the headers of all archives of a batch are made together and then cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.compute as pc

from comal.errors import InvalidInputError
from comal.ziparchive import wire
from comal.ziparchive.blocks import (
    NO_DETAILS,
    Details,
    as_binary,
    checked_names,
    checksums,
    entry_records,
    flags_of,
    flat,
    payload_sizes,
    value_offsets,
)
from comal.ziparchive.entries import joined, record_array

_LARGEST = 1 << 30


def packed_archives(
    names: Any,
    payloads: list[bytes],
    bounds: Sequence[int],
    comments: Sequence[bytes],
    details: Details = NO_DETAILS,
    *,
    dos_date: int = wire.DOS_DATE_1980,
    dos_time: int = wire.DOS_TIME_MIDNIGHT,
) -> Iterator[list[Any]]:
    """The bytes of several archives, each as a list of pieces that follow one another.

    Parameters
    ----------
    names
        Arrow string array of all entries, archive after archive; no name twice in one of them.
    payloads
        As many payloads.
    bounds
        Rows where archives begin, and the end of the last.
    comments
        Comments of the archives.
    details
        As for `ZipWriter.add_many`.
    dos_date, dos_time
        Time of entries without one in `details`.

    Raises
    ------
    InvalidInputError
        Names that cannot be written, or over 1 GiB in one call.
    """
    names = checked_names(flat(names, "names"))
    details.check(len(names))
    csizes = payload_sizes(payloads)
    if len(csizes) != len(names) or int(csizes.sum()) > _LARGEST:
        raise InvalidInputError("payloads do not fit their names, or are too many at once")
    sizes = csizes if details.sizes is None else details.sizes
    methods = wire.STORE if details.methods is None else details.methods
    crcs = checksums(payloads) if details.crcs is None else details.crcs
    stamps = details.stamps
    times = dos_time if stamps is None else stamps[:, 0]
    dates = dos_date if stamps is None else stamps[:, 1]
    name_sizes = pc.binary_length(names).to_numpy().astype(np.int64)
    extra_sizes = _sizes(details.extras, len(names))
    flags = flags_of(names)
    heads = wire.local_headers(
        name_sizes=name_sizes,
        extra_sizes=extra_sizes,
        crcs=crcs,
        sizes=sizes,
        csizes=csizes,
        methods=methods,
        flags=flags,
        count=len(names),
        dos_time=times,
        dos_date=dates,
    )
    totals = wire.LOCAL_SIZE + name_sizes + extra_sizes + csizes
    ends = np.cumsum(totals)
    before = np.append(0, ends)[np.asarray(bounds[:-1], np.int64)]
    starts = ends - totals - np.repeat(before, np.diff(bounds))
    records = entry_records(starts, sizes, crcs, flags, name_sizes, csizes, methods)
    central, _, _ = wire.central_headers(records, dos_time=times, dos_date=dates)
    central["extra_size"] = extra_sizes
    central["comment_size"] = _sizes(details.comments, len(names))
    extras = [] if details.extras is None else [as_binary(details.extras)]
    own = [] if details.comments is None else [as_binary(details.comments)]
    local = joined([record_array(heads), names, *extras])
    directory = joined([record_array(central), names, *extras, *own])
    yield from _cut(local, directory, payloads, bounds, comments)


def _cut(
    local: Any,
    directory: Any,
    payloads: list[bytes],
    bounds: Sequence[int],
    comments: Sequence[bytes],
) -> Iterator[list[Any]]:
    at = value_offsets(local).tolist()
    heads = memoryview(local.buffers()[2])
    places = value_offsets(directory).tolist()
    headers = memoryview(directory.buffers()[2])
    for (first, last), comment in zip(pairwise(bounds), comments, strict=True):
        pieces: list[Any] = [None] * (2 * (last - first))
        pieces[0::2] = [heads[a:b] for a, b in pairwise(at[first : last + 1])]
        pieces[1::2] = payloads[first:last]
        offset = at[last] - at[first] + sum(map(len, payloads[first:last]))
        size = places[last] - places[first]
        pieces.append(headers[places[first] : places[last]])
        pieces.append(
            wire.end_records(count=last - first, size=size, offset=offset, comment=comment)
        )
        yield pieces


def _sizes(column: Any, count: int) -> wire.Int64s:
    if column is None:
        return np.zeros(count, np.int64)
    sizes: wire.Int64s = pc.binary_length(column).to_numpy().astype(np.int64)
    return sizes
