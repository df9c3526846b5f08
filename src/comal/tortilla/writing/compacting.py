"""Files written anew without what changes left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from comal.errors import InvalidInputError
from comal.plan import Head
from comal.progress import Progress, silent
from comal.samples.copying import append
from comal.samples.payloads import Spans
from comal.storage import parse_href
from comal.storage.kinds import check_ending
from comal.tortilla import spec
from comal.tortilla.reading.frame import TortillaFrame
from comal.tortilla.reading.loading import open as open_frame
from comal.tortilla.writing.body import Telling
from comal.tortilla.writing.copying import stored_items
from comal.tortilla.writing.inplace import local_path
from comal.tortilla.writing.partfiles import How, Part, part_set

Location = str | os.PathLike[str]


def compact(
    path: Location,
    output: Location | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    **parquet: Any,
) -> int:
    """Write a file anew without the bytes that no row leads to, in the order of the rows.

    Rows that share bytes go on sharing them. Columns stay as they are stored.

    Parameters
    ----------
    path
        The file; of any generation when `output` is given.
    output
        The new file; None takes the place of the old one, at the end and as a whole.
    overwrite
        Whether an existing `output` is replaced.
    progress
        Told how many items are written.
    **parquet
        Settings of the footer.

    Returns
    -------
    Bytes that were saved.
    """
    if output is not None:
        check_ending(output, *spec.ENDINGS)
    frame = open_frame(path, typed=False)
    target = local_path(path).resolve() if output is None else local_path(output)
    if output is not None and target.exists() and _is_same(target, path):
        raise InvalidInputError("output is the file itself", hint="leave it out")
    part = frame.home.parts[0]
    how = How(
        overwrite=overwrite or output is None,
        parquet=parquet,
        collection=part.collection,
        parts=max(1, part.header.parts),
    )
    telling = Telling(progress or silent)
    with part_set(target, how) as parts:
        new = parts.part(0)
        # The target is locked now: what was opened must not have been changed before that.
        part.source.fetch([Head(1)])
        _copy_live(frame, new, telling)
        parts.finish()
        parts.publish()
    return part.size - target.stat().st_size


def _copy_live(frame: TortillaFrame, part: Part, telling: Telling) -> None:
    items = stored_items(frame)
    spans = items.payloads
    assert isinstance(spans, Spans)
    both = np.stack([spans.offsets, spans.lengths], axis=1)
    distinct, first, back = np.unique(both, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    start = part.out.position
    append(spans.take(first[order]), 0, len(order), part.out)
    lengths = distinct[order, 1]
    offsets = start + np.cumsum(lengths) - lengths
    rows = place[back.reshape(-1)]
    part.rows.append(items.table, offsets[rows], lengths[rows])
    telling.wrote(len(items))


def _is_same(target: Path, path: Location) -> bool:
    location = parse_href(path)
    return location.scheme == "file" and target.samefile(location.path)
