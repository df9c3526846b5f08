"""What TACO writes, and how an earlier one is told from other files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from comal.plan import run
from comal.storage import open_source
from comal.storage.kinds import Kind, file_kind, magic_kind
from comal.storage.targetlock import Owns
from comal.table import ParquetTable
from comal.taco import spec, wire

_LOCAL_HEADER = 30
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
        paths = table.read([spec.RELATIVE_PATH]).column(0).combine_chunks()
        folders = pc.ends_with(paths, "/")
    elif depth == 0:
        rows = table.read([spec.ID, spec.TYPE])
        folders = pc.equal(rows.column(1), spec.FOLDER).combine_chunks()
        paths = pc.binary_join_element_wise(
            rows.column(0).combine_chunks(), pc.if_else(folders, "/", ""), ""
        )
    else:
        return []
    tails = pc.if_else(folders, pa.scalar(spec.META, paths.type), pa.scalar("", paths.type))
    found: list[Any] = pc.binary_join_element_wise(spec.DATA, paths, tails, "").to_pylist()
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


def container_kind(container: str) -> Kind:
    """Of ``zip`` or ``folder``."""
    return ZIP if container == "zip" else FOLDER
