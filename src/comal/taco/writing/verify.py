"""A written archive is opened again and compared with what was meant, before it gets its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidMetadataError, shown
from comal.plan import Head, run
from comal.storage import open_source
from comal.taco import spec, wire
from comal.taco.writing.stored import Spans
from comal.ziparchive import Directory, directory_plan


def check_archive(
    path: Path, slots: Sequence[tuple[int, int]], paths: Sequence[Any], spans: Sequence[Spans]
) -> None:
    """Refuse an archive whose header or whose directory says another thing than its rows.

    Parameters
    ----------
    path
        The archive under its temporary name.
    slots
        Offset and size of each level table and of COLLECTION.json.
    paths, spans
        Per level the path below DATA/ and the span of each row.

    Raises
    ------
    InvalidMetadataError
        They disagree; the archive must not be published.
    """
    with open_source(path) as source:
        (head,) = source.fetch([Head(wire.HEADER_END)])
        header = wire.parse_header(head.data, head.total, str(path))
        if header.problems:
            raise _broken("TACO_HEADER", header.problems[0].message, "a right checksum")
        found = [(span.offset, span.size) for span in (*header.levels, header.collection)]
        if found != [tuple(slot) for slot in slots]:
            raise _broken("TACO_HEADER", found, slots)
        directory = run(directory_plan(), source.fetch)
    metadata = [*(spec.level_path(n) for n in range(len(paths))), spec.COLLECTION]
    for name, slot in zip(metadata, slots, strict=True):
        row = directory.find(name)
        entry = (int(directory.payload_offsets[row]), int(directory.size[row]))
        if row < 0 or entry != tuple(slot):
            raise _broken(name, entry, slot)
    for path_column, span in zip(paths, spans, strict=True):
        _check_rows(directory, path_column, span)


def _check_rows(directory: Directory, paths: Any, spans: Spans) -> None:
    # A FOLDER, whose path ends in a slash, is its local metadata.
    below = pc.if_else(
        pc.ends_with(paths, "/"), pc.binary_join_element_wise(paths, spec.META, ""), paths
    )
    names = pc.binary_join_element_wise(spec.DATA, below, "")
    rows = _rows(directory, names)
    right = (
        (rows >= 0)
        & (directory.payload_offsets[rows] == spans.offset)
        & (directory.size[rows] == spans.size)
    )
    for row in np.flatnonzero(~right)[:1].tolist():
        entry = int(rows[row])
        place = (int(directory.payload_offsets[entry]), int(directory.size[entry]))
        raise _broken(
            names[row].as_py(),
            place if entry >= 0 else "no such entry",
            (int(spans.offset[row]), int(spans.size[row])),
        )


def _rows(directory: Directory, names: Any) -> Any:
    """Row of each name; entries of a flat dataset stand in the order of its rows."""
    first = directory.find(names[0].as_py())
    run = directory.names.slice(max(first, 0), len(names))
    if first >= 0 and run.equals(names if isinstance(names, pa.Array) else names.combine_chunks()):
        return np.arange(first, first + len(names))
    return directory.find_many(names)


def _broken(name: str, found: object, expected: object) -> InvalidMetadataError:
    return InvalidMetadataError(
        "written archive does not match its rows",
        where=shown(name),
        found=found,
        expected=expected,
        hint="this is a fault of comal; nothing was published, please report it",
    )
