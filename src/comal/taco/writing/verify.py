"""What TACO writes: how an earlier one is told from other files, and how a new one is verified.

A written archive is opened again and compared with what was meant, before it gets its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import strictjson
from comal.errors import InvalidMetadataError, counted, shown
from comal.plan import Head, run
from comal.samples.payloads import Ints, is_run
from comal.storage import open_source
from comal.storage.targetlock import Owns
from comal.storage.targets import Kind, file_kind, magic_kind
from comal.table import ParquetTable
from comal.taco import spec, wire
from comal.ziparchive import Directory
from comal.ziparchive.directory import entry_blocks

if TYPE_CHECKING:
    from comal.taco.writing.containers import Spans

_LOCAL_HEADER = 30
"""Bytes of a local header in front of its name."""
_LENGTH = 26
"""Where a local header of ZIP has the length of its name (APPNOTE, 4.3.7)."""


def _is_zip(file: BinaryIO) -> bool:
    head = file.read(_LOCAL_HEADER + 16)
    length = int.from_bytes(head[_LENGTH : _LENGTH + 2], "little")
    name = head[_LOCAL_HEADER : _LOCAL_HEADER + length]
    return head.startswith(b"PK\3\4") and name in {b"TACO_HEADER", b"TACO_GHOST"}


def _claim_folder(path: Path) -> Owns | None:
    """COLLECTION.json, the level tables, and what their rows name (TACO 2.0, 6.1)."""
    if not (path / spec.COLLECTION).is_file():
        return None
    own = {spec.COLLECTION}
    with open_source(path) as source:
        opened = run(wire.open_folder_plan(where=str(path)), source.fetch)
        for depth, footer in enumerate(opened.footers):
            table = ParquetTable(source, footer)
            own.add(spec.level_path(depth))
            own.update(_names(table, depth))
    return own.__contains__


def _names(table: ParquetTable, depth: int) -> list[Any]:
    if spec.RELATIVE_PATH in table.column_names:
        paths = table.read([spec.RELATIVE_PATH]).column(0).combine_chunks().cast(pa.string())
    elif depth == 0:
        rows = table.read([spec.ID, spec.TYPE]).combine_chunks()
        slashes = pc.if_else(pc.equal(rows[spec.TYPE], spec.FOLDER), "/", "")
        paths = pc.binary_join_element_wise(rows[spec.ID].cast(pa.string()), slashes, "")
    else:
        return []
    found: list[Any] = _entry_names(paths).to_pylist()
    return found


def _claim_index(path: Path) -> Owns | None:
    if not (path / spec.COLLECTION).is_file():
        return None
    with (path / spec.COLLECTION).open("rb") as file:
        if not _is_collection(file):
            return None
    count = 0
    while (path / f"level{count}.parquet").is_file():
        count += 1
    own = {spec.COLLECTION, *(f"level{number}.parquet" for number in range(count))}
    return own.__contains__


def _is_collection(file: BinaryIO) -> bool:
    document = json.load(file)
    return isinstance(document, dict) and spec.PIT_SCHEMA in document


ZIP: Final = file_kind("a TACO archive", _is_zip)
FOLDER: Final = Kind("a folder of TACO", _claim_folder)
INDEX: Final = magic_kind("a __TACOCAT__ of TACO", b"TACOCAT\0")
INDEX_FOLDER: Final = Kind("a folder .tacocat of TACO", _claim_index)
COLLECTIONS: Final = file_kind("a TACOLLECTION.json", _is_collection)


# -- what was written ---------------------------------------------------------------------------


def check_archive(
    path: Path, slots: Sequence[tuple[int, int]], paths: Sequence[Any], spans: Sequence[Spans]
) -> None:
    """Refuse an archive whose header or whose directory says another thing than its rows.

    `slots` are offset and size of each level table and of COLLECTION.json; `paths` and `spans` have
    per level the path below DATA/ and the span of each row.
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
        if expected.done < len(expected.offset):
            lost = expected.places(expected.done, expected.done + 1)
            raise _broken(expected.names(lost)[0].as_py(), "no such entry", "an entry")


class _Expected:
    """Every entry that there must be, in the order of the bytes: no name is looked up.

    An archive is written front to back, so that its directory is in the order of offsets. Rows
    are compared block by block, in a few bytes of memory for each.
    """

    def __init__(
        self, slots: Sequence[tuple[int, int]], paths: Sequence[Any], spans: Sequence[Spans]
    ) -> None:
        metadata = [*(spec.level_path(n) for n in range(len(paths))), spec.COLLECTION]
        # Groups of entries; of rows their paths.
        self._names = [pa.array([wire.HEADER_NAME]), *paths, pa.array(metadata)]
        self._ends = np.cumsum([len(names) for names in self._names])
        slot = np.array(slots, np.int64).reshape(-1, 2)
        first = len(wire.HEADER_NAME.encode()) + _LOCAL_HEADER
        self.offset: Ints = np.concatenate([[first], *(span.offset for span in spans), slot[:, 0]])
        sizes: list[Any] = [[wire.HEADER_PAYLOAD], *(span.size for span in spans), slot[:, 1]]
        self._size: Ints = np.concatenate(sizes)
        ascending = (self.offset[1:] >= self.offset[:-1]).all()
        self._order = None if ascending else np.argsort(self.offset, kind="stable")
        self.done = 0

    def places(self, start: int, stop: int) -> Ints:
        """Where in the list of all entries those stand that come next by their bytes."""
        if self._order is not None:
            return self._order[start:stop]
        return np.arange(start, min(stop, len(self.offset)))

    def compare(self, entries: Directory) -> None:
        """Refuse entries that are not those that come next."""
        places = self.places(self.done, self.done + len(entries))
        if len(places) < len(entries):
            raise _broken(entries.names[len(places)].as_py(), "an entry of no row", "no entry")
        names = self.names(places)
        offset, size = self.offset[places], self._size[places]
        wrong = (entries.payload_offsets != offset) | (entries.size != size)
        if not names.equals(entries.names.cast(pa.string())):
            wrong |= pc.not_equal(names, entries.names).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(wrong)[:1].tolist():
            place = (int(entries.payload_offsets[row]), int(entries.size[row]))
            found = (entries.names[row].as_py(), *place)
            raise _broken(names[row].as_py(), found, (int(offset[row]), int(size[row])))
        self.done += len(entries)

    def names(self, places: Ints) -> Any:
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

    def _names_in(self, number: int, rows: Ints) -> Any:
        names = self._names[number]
        if is_run(rows):
            chosen = names.slice(int(rows[0]), len(rows))
        else:
            chosen = names.take(pa.array(rows))
        if isinstance(chosen, pa.ChunkedArray):
            chosen = pa.concat_arrays(chosen.chunks)
        return chosen if number in {0, len(self._names) - 1} else _entry_names(chosen)


def _entry_names(paths: Any) -> Any:
    """The file of each row; of a FOLDER, whose path ends in a slash, its local metadata."""
    tails = pc.if_else(pc.ends_with(paths, "/"), spec.META, "")
    return pc.binary_join_element_wise(spec.DATA, paths, tails, "")


def check_folder(root: Path, document: dict[str, Any], paths: Sequence[Any]) -> None:
    """Refuse a written FOLDER that reads back as something else.

    `paths` are per level those of all rows below DATA/; that of a FOLDER ends in a slash.
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
    found = pa.array([spec.DATA + file for file, _ in files_below(root / "DATA")], pa.string())
    wanted = pa.concat_arrays([_entry_names(path) for path in paths])
    for one, other, what in ((wanted, found, "no such file"), (found, wanted, "a file of no row")):
        lost = one.filter(pc.invert(pc.is_in(one, value_set=other)))
        if len(lost):
            raise _broken(pc.min(lost).as_py(), what, "a file for each row")


def files_below(root: Path | str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything but folders below a local folder, by its path from there; links are not followed.

    A folder that cannot be listed raises `OSError`.
    """
    left = [""]
    while left:
        prefix = left.pop()
        with os.scandir(f"{root}/{prefix}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append(f"{prefix}{entry.name}/")
                else:
                    yield prefix + entry.name, entry


def _broken(name: str, found: object, expected: object) -> InvalidMetadataError:
    return InvalidMetadataError(
        "written archive does not match its rows",
        where=shown(name),
        found=found,
        expected=expected,
        hint="this is a fault of comal; nothing was published, please report it",
    )
