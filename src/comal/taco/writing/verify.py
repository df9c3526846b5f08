"""Recognise earlier targets of TACO, and verify new ones.

A written container is opened again and compared with its input, before it gets its name.
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
from comal.errors import counted
from comal.plan import Head, run
from comal.samples.payloads import Ints
from comal.storage import open_source
from comal.storage.targetlock import Owns
from comal.storage.targets import Kind, file_kind, magic_kind, not_as_written
from comal.table import ParquetTable
from comal.taco import spec, wire
from comal.taco.columns import root_paths
from comal.ziparchive import Directory
from comal.ziparchive.directory import entry_blocks

if TYPE_CHECKING:
    from comal.taco.writing.containers import Spans

_LOCAL_HEADER = 30
"""Bytes of a local header before its name."""
_LENGTH = 26
"""Offset of the name's length in a local header of ZIP (APPNOTE, 4.3.7)."""


def _is_zip(file: BinaryIO) -> bool:
    head = file.read(_LOCAL_HEADER + 16)
    length = int.from_bytes(head[_LENGTH : _LENGTH + 2], "little")
    name = head[_LOCAL_HEADER : _LOCAL_HEADER + length]
    return head.startswith(b"PK\3\4") and name in {b"TACO_HEADER", b"TACO_GHOST"}


def _claim_folder(path: Path) -> Owns | None:
    """The test for COLLECTION.json, level tables and files of their rows (TACO 2.0, 6.1)."""
    if not (path / spec.COLLECTION).is_file():
        return None
    own = {spec.COLLECTION}
    with open_source(path) as source:
        opened = run(wire.open_folder_plan(where=str(path)), source.fetch)
        for depth, footer in enumerate(opened.footers):
            table = ParquetTable(source, footer)
            own.add(spec.LEVEL_PATHS[depth])
            own.update(_names(table, depth))
    return own.__contains__


def _names(table: ParquetTable, depth: int) -> list[Any]:
    if spec.RELATIVE_PATH in table.column_names:
        paths = table.read([spec.RELATIVE_PATH]).column(0).combine_chunks().cast(pa.string())
    elif depth == 0:
        rows = table.read([spec.ID, spec.TYPE]).combine_chunks()
        paths = root_paths(rows[spec.ID], rows[spec.TYPE])
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
FOLDER: Final = Kind("a TACO folder", _claim_folder)
INDEX: Final = magic_kind("a __TACOCAT__ file of TACO", b"TACOCAT\0")
INDEX_FOLDER: Final = Kind("a .tacocat folder of TACO", _claim_index)
COLLECTIONS: Final = file_kind("a TACOLLECTION.json of TACO", _is_collection)


# -- what was written ---------------------------------------------------------------------------


def check_archive(
    path: Path, slots: Sequence[tuple[int, int]], paths: Sequence[Any], spans: Sequence[Spans]
) -> None:
    """Refuse an archive whose header or directory does not match its rows.

    `slots` are offset and size of each level table and of COLLECTION.json; `paths` and `spans` are
    per level the path below DATA/ and the span of each row.
    """
    with open_source(path) as source:
        (head,) = source.fetch([Head(wire.HEADER_END)])
        header = wire.parse_header(head.data, head.total, str(path))
        if header.problems:
            raise not_as_written("TACO_HEADER", header.problems[0].message, "the right checksum")
        found = [(span.offset, span.size) for span in (*header.levels, header.collection)]
        if found != [tuple(slot) for slot in slots]:
            raise not_as_written("TACO_HEADER", found, slots)
        names, offset, size = _expected(slots, paths, spans)
        done = 0
        for entries in entry_blocks(source.fetch, str(path)):
            rows = slice(done, done + len(entries))
            _compare(entries, names.slice(done, len(entries)), offset[rows], size[rows])
            done = rows.stop
        if done < len(offset):
            raise not_as_written(names[done].as_py(), "no such entry", "an entry")


def _expected(
    slots: Sequence[tuple[int, int]], paths: Sequence[Any], spans: Sequence[Spans]
) -> tuple[Any, Ints, Ints]:
    """Name, offset and size of every expected entry, in the order of the bytes.

    An archive is written front to back, so this is also the order of its directory.
    """
    metadata = [*spec.LEVEL_PATHS[: len(paths)], spec.COLLECTION]
    groups = [pa.array([wire.HEADER_NAME]), *map(_entry_names, paths), pa.array(metadata)]
    names = pa.chunked_array(
        [chunk for one in groups for chunk in getattr(one, "chunks", [one])], pa.string()
    )
    first = _LOCAL_HEADER + len(wire.HEADER_NAME)
    slot = np.array(slots, np.int64).reshape(-1, 2)
    offset: Ints = np.concatenate([[first], *(span.offset for span in spans), slot[:, 0]])
    size = np.concatenate([[wire.HEADER_PAYLOAD], *(span.size for span in spans), slot[:, 1]])
    if (offset[1:] < offset[:-1]).any():
        order = np.argsort(offset, kind="stable")
        # With 64-bit offsets, as all names together may exceed a string array.
        names = names.cast(pa.large_string()).take(pa.array(order))
        offset, size = offset[order], size[order]
    return names, offset, size


def _compare(entries: Directory, names: Any, offset: Ints, size: Ints) -> None:
    """Refuse entries other than the next expected ones."""
    if len(names) < len(entries):
        raise not_as_written(entries.names[len(names)].as_py(), "an entry of no row", "no entry")
    found = entries.names.cast(names.type)
    wrong = (entries.payload_offsets != offset) | (entries.size != size)
    wrong |= pc.not_equal(names, found).to_numpy()
    for row in np.flatnonzero(wrong)[:1].tolist():
        place = (int(entries.payload_offsets[row]), int(entries.size[row]))
        expected = (int(offset[row]), int(size[row]))
        raise not_as_written(names[row].as_py(), (found[row].as_py(), *place), expected)


def _entry_names(paths: Any) -> Any:
    """The file of each row; for a FOLDER, whose path ends in a slash, its local metadata."""
    tails = pc.if_else(pc.ends_with(paths, "/"), spec.META, "")
    return pc.binary_join_element_wise(spec.DATA, paths, tails, "")


def check_folder(root: Path, document: dict[str, Any], paths: Sequence[Any]) -> None:
    """Refuse a written FOLDER that reads back differently.

    `paths` are per level the paths of all rows below DATA/; that of a FOLDER ends in a slash.
    """
    with open_source(root) as source:
        opened = run(wire.open_folder_plan(where=str(root)), source.fetch)
        if opened.collection != json.loads(strictjson.dumps(document)):
            raise not_as_written(
                spec.COLLECTION, "another document", "the document that was written"
            )
        if len(opened.footers) != len(paths):
            raise not_as_written("METADATA", counted(len(opened.footers), "level"), len(paths))
        for depth, (footer, wanted) in enumerate(zip(opened.footers, paths, strict=True)):
            table = ParquetTable(source, footer).read([spec.RELATIVE_PATH])
            if not table.column(0).combine_chunks().equals(wanted):
                raise not_as_written(
                    spec.LEVEL_PATHS[depth], "other paths", "the paths of its rows"
                )
    found = pa.array([spec.DATA + file for file, _ in files_below(root / "DATA")], pa.string())
    wanted = pa.concat_arrays([_entry_names(path) for path in paths])
    for one, other, what in ((wanted, found, "no such file"), (found, wanted, "a file of no row")):
        lost = one.filter(pc.invert(pc.is_in(one, value_set=other)))
        if len(lost):
            raise not_as_written(pc.min(lost).as_py(), what, "a file for each row")


def files_below(root: Path | str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All entries below a local folder except folders, with relative paths; follows no links.

    Raises `OSError` for a folder that cannot be listed.
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
