"""A written archive is opened again and compared with what was meant, before it gets its name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import strictjson
from comal.errors import InvalidMetadataError, counted, shown
from comal.plan import Head, run
from comal.samples.payloads import Ints
from comal.storage import open_source
from comal.table import ParquetTable
from comal.taco import spec, wire
from comal.taco.writing.stored import Spans
from comal.ziparchive import Directory
from comal.ziparchive.directory import entry_blocks

_LOCAL_SIZE = 30
"""Bytes of a local header in front of its name."""


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
        expected = _Expected(slots, paths, spans)
        for entries in entry_blocks(source.fetch, str(path)):
            expected.compare(entries)
        expected.finish()


class _Expected:
    """Every entry that there must be, in the order of the bytes: no name is looked up.

    An archive is written front to back, so that its directory is in the order of offsets. Ints
    are compared block by block, in a few bytes of memory for each.
    """

    def __init__(
        self, slots: Sequence[tuple[int, int]], paths: Sequence[Any], spans: Sequence[Spans]
    ) -> None:
        metadata = [*(spec.level_path(n) for n in range(len(paths))), spec.COLLECTION]
        first = len(wire.HEADER_NAME.encode()) + _LOCAL_SIZE
        self._names = [
            pa.array([wire.HEADER_NAME]),
            *paths,
            pa.array(metadata),
        ]
        """Per group of entries their names; of rows their paths."""
        slot = np.array(slots, np.int64).reshape(-1, 2)
        self._offset: Ints = np.concatenate([[first], *(span.offset for span in spans), slot[:, 0]])
        sizes: list[Any] = [[wire.HEADER_PAYLOAD], *(span.size for span in spans), slot[:, 1]]
        self._size: Ints = np.concatenate(sizes)
        self._ends = np.cumsum([len(names) for names in self._names])
        ascending = (self._offset[1:] >= self._offset[:-1]).all()
        self._order = None if ascending else np.argsort(self._offset, kind="stable")
        self._done = 0

    def compare(self, entries: Directory) -> None:
        """Refuse entries that are not those that come next."""
        start, stop = self._done, self._done + len(entries)
        places = np.arange(start, stop) if self._order is None else self._order[start:stop]
        if len(places) < len(entries):
            raise _broken(entries.names[len(places)].as_py(), "an entry of no row", "no entry")
        names = self._names_of(places)
        offset, size = self._offset[places], self._size[places]
        wrong = (entries.payload_offsets != offset) | (entries.size != size)
        if not names.equals(entries.names.cast(pa.string())):
            wrong |= pc.not_equal(names, entries.names).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(wrong)[:1].tolist():
            place = (int(entries.payload_offsets[row]), int(entries.size[row]))
            found = (entries.names[row].as_py(), *place)
            raise _broken(names[row].as_py(), found, (int(offset[row]), int(size[row])))
        self._done = stop

    def finish(self) -> None:
        """Refuse rows without an entry."""
        if self._done < len(self._offset):
            places = np.array([self._done if self._order is None else self._order[self._done]])
            raise _broken(self._names_of(places)[0].as_py(), "no such entry", "an entry")

    def _names_of(self, places: Any) -> Any:
        """The names of the entries at these places in the list of all."""
        group = np.searchsorted(self._ends, places, side="right")
        parts, order = [], []
        for number in np.unique(group).tolist():
            mine = np.flatnonzero(group == number)
            rows = places[mine] - (self._ends[number - 1] if number else 0)
            parts.append(self._names_in(number, rows))
            order.append(mine)
        joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        back = np.concatenate(order)
        return joined if (back[1:] > back[:-1]).all() else joined.take(np.argsort(back))

    def _names_in(self, number: int, rows: Any) -> Any:
        names = self._names[number]
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
            chosen = names.slice(int(rows[0]), len(rows))
        else:
            chosen = names.take(pa.array(rows))
        if isinstance(chosen, pa.ChunkedArray):
            chosen = pa.concat_arrays(chosen.chunks)
        if number in {0, len(self._names) - 1}:
            return chosen
        # A FOLDER, whose path ends in a slash, is its local metadata.
        tails = pc.if_else(pc.ends_with(chosen, "/"), spec.META, "")
        return pc.binary_join_element_wise(spec.DATA, chosen, tails, "")


def check_folder(root: Path, document: dict[str, Any], paths: Sequence[Any]) -> None:
    """Refuse a written FOLDER that reads back as something else.

    Parameters
    ----------
    root
        The folder under its temporary name.
    document
        COLLECTION.json.
    paths
        Per level the path below DATA/ of each row; that of a FOLDER ends in a slash.

    Raises
    ------
    InvalidMetadataError
        The collection, a level table or the list of files is not what was written.
    """
    with open_source(root) as source:
        opened = run(wire.open_folder_plan(where=str(root)), source.fetch)
        if opened.collection != json.loads(strictjson.dumps(document)):
            raise _broken(spec.COLLECTION, "another document", "the document that was written")
        if len(opened.footers) != len(paths):
            raise _broken("METADATA", counted(len(opened.footers), "level"), len(paths))
        for depth, (footer, wanted) in enumerate(zip(opened.footers, paths, strict=True)):
            table = ParquetTable(source, footer).read([spec.RELATIVE_PATH])
            if not table.column(0).combine_chunks().equals(wanted):
                raise _broken(spec.level_path(depth), "other paths", "the paths of its rows")
    found = pa.array(sorted(_files(str(root / "DATA"))), pa.string())
    tails = [pc.if_else(pc.ends_with(path, "/"), spec.META, "") for path in paths]
    names = [
        pc.binary_join_element_wise(path, tail, "") for path, tail in zip(paths, tails, strict=True)
    ]
    wanted = pa.concat_arrays(names)
    for one, other, what in ((wanted, found, "no such file"), (found, wanted, "a file of no row")):
        lost = one.filter(pc.invert(pc.is_in(one, value_set=other)))
        if len(lost):
            raise _broken(lost[0].as_py(), what, "a file for each row")


def _files(root: str) -> Iterator[str]:
    """Every file below a folder, relative to it."""
    left = [""]
    while left:
        prefix = left.pop()
        with os.scandir(f"{root}/{prefix}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(f"{prefix}{entry.name}/")
                else:
                    yield prefix + entry.name


def _broken(name: str, found: object, expected: object) -> InvalidMetadataError:
    return InvalidMetadataError(
        "written archive does not match its rows",
        where=shown(name),
        found=found,
        expected=expected,
        hint="this is a fault of comal; nothing was published, please report it",
    )
