"""A TACO writer that can lie: struct and pyarrow only, so that it shares nothing with comal.

Every step of writing a container is a hook of `Recipe` that an attack replaces: the tables, the
Parquet bytes, the headers of single entries, TACO_HEADER, the collection, the end record.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests import zips

Tree = Mapping[str, "bytes | Tree"]

FLAT: Tree = {f"img_{n}.bin": bytes([65 + n]) * (40 + n) for n in range(4)}

# Ids out of lexicographic order, as the fault of existing writers needs them.
NESTED: Tree = {
    scene: {
        "imagery": {
            "before.bin": f"{scene}-before".encode() * 3,
            "after.bin": f"{scene}-after".encode() * 4,
        },
        "label.txt": f"{scene}-label".encode(),
    }
    for scene in ("s2", "s10", "s1")
}

COLLECTION: Mapping[str, Any] = {
    "id": "attack",
    "dataset_version": "1.0.0",
    "description": "made by hand",
    "licenses": ["CC-BY-4.0"],
    "providers": [{"name": "nobody", "roles": ["producer"]}],
    "tasks": ["other"],
    "taco_version": "2.0.0",
    "title": None,
    "curators": None,
    "keywords": None,
    "extent": None,
}


class RawZip:
    """A ZIP written entry by entry, where each header can say what it likes."""

    def __init__(self, prefix: bytes = b"") -> None:
        self.buffer = bytearray(prefix)
        self.central: list[bytes] = []

    def add(
        self,
        name: str | bytes,
        data: bytes,
        *,
        method: int = 0,
        flags: int = 0,
        crc: int | None = None,
        csize: int | None = None,
        size: int | None = None,
        local_name: bytes | None = None,
        local_crc: int | None = None,
        local_size: int | None = None,
        local_method: int | None = None,
        local_extra: bytes = b"",
        extra: bytes = b"",
        external: int = 0x81A40000,
        comment: bytes = b"",
        header_offset: int | None = None,
        local: bool = True,
        listed: bool = True,
        times: int = 1,
    ) -> int:
        """Append an entry and return the offset of its payload."""
        raw = name.encode() if isinstance(name, str) else name
        crc = zlib.crc32(data) if crc is None else crc
        size = len(data) if size is None else size
        csize = size if csize is None else csize
        start = len(self.buffer)
        if local:
            sizes = (csize, size) if local_size is None else (local_size, local_size)
            self.buffer += zips.local(
                raw if local_name is None else local_name,
                (crc if local_crc is None else local_crc, *sizes),
                flags=flags,
                method=method if local_method is None else local_method,
                extra=local_extra,
            )
        payload = len(self.buffer)
        self.buffer += data
        if listed:
            header = zips.central(
                raw,
                (crc, csize, size),
                start if header_offset is None else header_offset,
                flags=flags,
                method=method,
                extra=extra,
                comment=comment,
                external=external,
            )
            self.central += [header] * times
        return payload

    def gap(self, data: bytes) -> None:
        """Append bytes that belong to no entry."""
        self.buffer += data

    def close(
        self,
        *,
        count: int | None = None,
        start: int | None = None,
        size: int | None = None,
        comment: bytes = b"",
        stated_comment: int | None = None,
        before_end: bytes = b"",
        trailing: bytes = b"",
        end: bool = True,
        locator: bytes | None = None,
    ) -> bytes:
        """Append the central directory and its end record, and return the archive."""
        at = len(self.buffer)
        directory = b"".join(self.central)
        self.buffer += directory + before_end
        if locator is not None:
            self.buffer += locator
        if end:
            self.buffer += zips.end_record(
                count=len(self.central) if count is None else count,
                size=len(directory) if size is None else size,
                offset=at if start is None else start,
                comment=comment,
                stated_comment=stated_comment,
            )
        self.buffer += trailing
        return bytes(self.buffer)


@dataclass
class Row:
    """One sample while a container is laid out."""

    id: str
    path: str
    data: bytes | None
    parent: int
    children: list[int] = field(default_factory=list)
    offset: int = 0
    size: int = 0


def rows_of(tree: Tree) -> list[list[Row]]:
    """The samples of `tree` by level, in the order of their parents."""
    levels: list[list[Row]] = []
    layer: list[tuple[str, Tree, int]] = [("", tree, -1)]
    while layer:
        rows: list[Row] = []
        below: list[tuple[str, Tree, int]] = []
        for prefix, node, parent in layer:
            for name, content in node.items():
                row = Row(name, prefix + name, None, len(rows) if parent < 0 else parent)
                if isinstance(content, bytes):
                    row.data = content
                else:
                    below.append((row.path + "/", content, len(rows)))
                if levels:
                    levels[-1][parent].children.append(len(rows))
                rows.append(row)
        levels.append(rows)
        layer = below
    return levels


def leaves_of(tree: Tree, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Path and bytes of every leaf."""
    for name, content in tree.items():
        if isinstance(content, bytes):
            yield prefix + name, content
        else:
            yield from leaves_of(content, prefix + name + "/")


def table_of(rows: list[Row], *, zipped: bool = True, meta: bool = False) -> Any:
    """The metadata of `rows` as an Arrow table; `meta` leaves out what local metadata has not."""
    columns: dict[str, Any] = {
        "id": pa.array([r.id for r in rows], pa.string()),
        "type": pa.array(["FOLDER" if r.data is None else "FILE" for r in rows], pa.string()),
        "value": pa.array([len(r.path) * 1.5 for r in rows], pa.float64()),
        "label": pa.array([f"<{r.path}>" for r in rows], pa.string()),
    }
    if not meta:
        columns["internal:current_id"] = pa.array(range(len(rows)), pa.int64())
        columns["internal:parent_id"] = pa.array([r.parent for r in rows], pa.int64())
    if zipped:
        columns["internal:offset"] = pa.array([r.offset for r in rows], pa.int64())
        columns["internal:size"] = pa.array([r.size for r in rows], pa.int64())
    if not meta:
        columns["internal:relative_path"] = pa.array(
            [r.path + "/" * (r.data is None) for r in rows], pa.string()
        )
    return pa.table(columns)


def parquet(table: Any, **settings: Any) -> bytes:
    """A table as Parquet, with page checksums unless told otherwise."""
    sink = io.BytesIO()
    settings = {"compression": "zstd", "write_page_checksum": True, **settings}
    pq.write_table(table, sink, **settings)
    return sink.getvalue()


def pit_of(levels: list[list[Row]]) -> dict[str, Any]:
    """``taco:pit_schema`` of a regular tree."""
    hierarchy: dict[str, Any] = {}
    roots = len(levels[0])
    for depth in range(1, len(levels)):
        above = levels[depth - 1]
        patterns = []
        for row in above[: len(above) // roots]:
            children = [levels[depth][n] for n in row.children]
            if children:
                patterns.append(
                    {
                        "n": len(children) * roots,
                        "type": ["FOLDER" if c.data is None else "FILE" for c in children],
                        "id": [c.id for c in children],
                    }
                )
        hierarchy[str(depth)] = patterns
    kind = "FOLDER" if levels[0][0].data is None else "FILE"
    return {"root": {"n": roots, "type": kind}, "hierarchy": hierarchy}


def collection_of(levels: list[list[Row]], tables: list[Any]) -> dict[str, Any]:
    """A collection that fits the levels."""
    fields = {
        f"level{n}": [[c.name, str(c.type), ""] for c in table.schema]
        for n, table in enumerate(tables)
    }
    return {**COLLECTION, "taco:pit_schema": pit_of(levels), "taco:field_schema": fields}


def header_payload(pairs: list[tuple[int, int]], count: int | None = None) -> bytes:
    """The 116 bytes of TACO_HEADER."""
    padded = [*pairs, *[(0, 0)] * (7 - len(pairs))][:7]
    values = [value for pair in padded for value in pair]
    return struct.pack("<B3x14Q", len(pairs) if count is None else count, *values)


def _same(_place: Any, thing: Any) -> Any:
    return thing


@dataclass(eq=False)
class Recipe:
    """How a container is made; each field can be replaced by one that lies."""

    tree: Tree = field(default_factory=lambda: NESTED)
    table: Callable[[int, Any], Any] = _same
    """Level and honest table to the table that is written."""
    meta: Callable[[str, Any], Any] = _same
    """Folder path and honest local metadata to what is written."""
    level_bytes: Callable[[int, bytes], bytes] = _same
    meta_bytes: Callable[[str, bytes], bytes | None] = _same
    collection: Callable[[dict[str, Any]], dict[str, Any]] = lambda document: document
    collection_bytes: Callable[[bytes], bytes] = lambda data: data
    header: Callable[[list[tuple[int, int]]], bytes] = header_payload
    header_crc: int | None = None
    header_entry: Mapping[str, Any] = field(default_factory=dict)
    entry: Callable[[str], Mapping[str, Any]] = lambda name: {}
    """Entry name to arguments of `RawZip.add`."""
    before: Callable[[RawZip, str], Any] = lambda archive, name: None
    """Called before each entry is added."""
    close: Mapping[str, Any] = field(default_factory=dict)
    prefix: bytes = b""
    after: Callable[[bytes], bytes] = lambda data: data
    """The finished archive to what is written to disk."""

    def build(self) -> bytes:
        """The archive."""
        archive = RawZip(self.prefix)
        self._add(
            archive, "TACO_HEADER", bytes(116), **{"external": 0x01A40000, **self.header_entry}
        )
        levels = rows_of(self.tree)
        self._leaves(archive, levels, 0, range(len(levels[0])))
        for depth in reversed(range(len(levels))):
            for row in levels[depth]:
                if row.data is None:
                    children = [levels[depth + 1][n] for n in row.children]
                    table = self.meta(row.path, table_of(children, meta=True))
                    data = self.meta_bytes(row.path, parquet(table))
                    if data is not None:
                        row.offset = self._add(archive, f"DATA/{row.path}/__meta__", data)
                        row.size = len(data)
        pairs = []
        tables = [self.table(n, table_of(rows)) for n, rows in enumerate(levels)]
        for depth, table in enumerate(tables):
            data = self.level_bytes(depth, parquet(table))
            pairs.append((self._add(archive, f"METADATA/level{depth}.parquet", data), len(data)))
        document = self.collection(collection_of(levels, tables))
        data = self.collection_bytes(json.dumps(document, indent=4).encode())
        pairs.append((self._add(archive, "COLLECTION.json", data), len(data)))
        return self.after(self._finish(archive, self.header(pairs)))

    def _add(self, archive: RawZip, name: str, data: bytes, **how: Any) -> int:
        self.before(archive, name)
        return archive.add(name, data, **{**how, **self.entry(name)})

    def _leaves(self, archive: RawZip, levels: list[list[Row]], depth: int, rows: Any) -> None:
        for n in rows:
            row = levels[depth][n]
            if row.data is None:
                self._leaves(archive, levels, depth + 1, row.children)
            else:
                row.offset = self._add(archive, f"DATA/{row.path}", row.data)
                row.size = len(row.data)

    def _finish(self, archive: RawZip, payload: bytes) -> bytes:
        start = len(self.prefix) + 41
        archive.buffer[start : start + len(payload)] = payload
        crc = zlib.crc32(payload) if self.header_crc is None else self.header_crc
        struct.pack_into("<I", archive.buffer, len(self.prefix) + 14, crc)
        if archive.central and archive.central[0][46:57] == b"TACO_HEADER":
            first = bytearray(archive.central[0])
            struct.pack_into("<I", first, 16, crc)
            archive.central[0] = bytes(first)
        return archive.close(**self.close)


@cache
def built(recipe: Recipe) -> bytes:
    """The archive of a recipe, which is built once."""
    return recipe.build()


def folder(target: Path, tree: Tree = NESTED, recipe: Recipe | None = None) -> Path:
    """The FOLDER form of `tree` below `target`."""
    recipe = recipe or Recipe()
    levels = rows_of(tree)
    for depth, rows in enumerate(levels):
        for row in rows:
            place = target / "DATA" / row.path
            if row.data is None:
                place.mkdir(parents=True, exist_ok=True)
                children = [levels[depth + 1][n] for n in row.children]
                table = recipe.meta(row.path, table_of(children, zipped=False, meta=True))
                data = recipe.meta_bytes(row.path, parquet(table))
                if data is not None:
                    (place / "__meta__").write_bytes(data)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(row.data)
    (target / "METADATA").mkdir(parents=True)
    tables = [recipe.table(n, table_of(rows, zipped=False)) for n, rows in enumerate(levels)]
    for depth, table in enumerate(tables):
        data = recipe.level_bytes(depth, parquet(table))
        (target / f"METADATA/level{depth}.parquet").write_bytes(data)
    document = recipe.collection(collection_of(levels, tables))
    data = recipe.collection_bytes(json.dumps(document, indent=4).encode())
    (target / "COLLECTION.json").write_bytes(data)
    return target


@cache
def levels_in(data: bytes) -> list[Any]:
    """The level tables of an archive, found by its TACO_HEADER."""
    values = struct.unpack_from("<14Q", data, 45)
    spans = list(zip(values[::2], values[1::2], strict=True))[: data[41] - 1]
    return [pq.read_table(io.BytesIO(data[start : start + size])) for start, size in spans]


@dataclass
class Index:
    """A TACOCAT over archives; each field can be replaced by one that lies."""

    parts: Mapping[str, Recipe]
    table: Callable[[int, Any], Any] = _same
    single_table: Callable[[int, Any], Any] = _same
    """As `table`, for ``__TACOCAT__`` only."""
    collection: Callable[[dict[str, Any]], dict[str, Any]] = lambda document: document
    after: Callable[[bytes], bytes] = lambda data: data
    """The finished ``__TACOCAT__`` to what is written to disk."""

    def write(self, place: Path, forms: tuple[str, ...] = ("folder", "single")) -> Path:
        """Write the parts and the index into a folder, which comes back."""
        archives = {name: built(recipe) for name, recipe in self.parts.items()}
        for name, data in archives.items():
            (place / name).write_bytes(data)
        tables = []
        for depth in range(len(levels_in(next(iter(archives.values()))))):
            rows = []
            for name, data in archives.items():
                table = levels_in(data)[depth]
                column = pa.array([name] * table.num_rows, pa.string())
                rows.append(table.append_column("internal:source_file", column))
            tables.append(self.table(depth, pa.concat_tables(rows)))
        document = self._document(tables, list(archives))
        if "folder" in forms:
            (place / ".tacocat").mkdir()
            for depth, table in enumerate(tables):
                (place / f".tacocat/level{depth}.parquet").write_bytes(parquet(table))
            (place / ".tacocat/COLLECTION.json").write_bytes(json.dumps(document).encode())
        if "single" in forms:
            single = [self.single_table(depth, table) for depth, table in enumerate(tables)]
            (place / "__TACOCAT__").write_bytes(self.after(self._single(single, document)))
        return place

    def _document(self, tables: list[Any], names: list[str]) -> dict[str, Any]:
        levels = rows_of(next(iter(self.parts.values())).tree)
        pit = pit_of(levels)
        count = len(names)
        pit["root"]["n"] *= count
        for patterns in pit["hierarchy"].values():
            for pattern in patterns:
                pattern["n"] *= count
        document = {
            **COLLECTION,
            "taco:pit_schema": pit,
            "_tacocat": {"version": 1, "num_datasets": count, "dataset_sources": sorted(names)},
            "taco:sources": {"count": count, "ids": names, "files": names, "extents": []},
        }
        return self.collection(document)

    def _single(self, tables: list[Any], document: dict[str, Any]) -> bytes:
        pieces = [parquet(table) for table in tables]
        offsets, at = [], 128
        for piece in pieces:
            offsets.append((at, len(piece)))
            at += len(piece)
        text = json.dumps(document, indent=2).encode()
        pairs = [*offsets, *[(0, 0)] * (6 - len(pieces)), (at, len(text))]
        values = [value for pair in pairs for value in pair]
        head = struct.pack("<8s2I14Q", b"TACOCAT\0", 1, len(pieces) - 1, *values)
        return head + b"".join(pieces) + text


def replaced(table: Any, column: str, values: Any, kind: Any = None) -> Any:
    """The table with other values in one column."""
    position = table.schema.get_field_index(column)
    kind = kind or table.schema.field(position).type
    return table.set_column(position, column, pa.array(values, kind))


def swapped_spans(table: Any) -> Any:
    """The spans of the rows as a writer glues them on that sorts its folders by name.

    This is the fault of existing writers: spans in lexicographic order of the paths, rows in the
    order of the samples.
    """
    paths = table["internal:relative_path"].to_pylist()
    order = sorted(range(len(paths)), key=lambda n: paths[n].rsplit("/", 2)[0])
    for column in ("internal:offset", "internal:size"):
        values = table[column].to_pylist()
        table = replaced(table, column, [values[n] for n in order])
    return table
