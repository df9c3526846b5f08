"""TACO 2.0 behind the generic commands: an `Archive` over its containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from comal.errors import (
    InvalidMetadataError,
    NotInContainerError,
    NotThisFormatError,
    ObjectNotFoundError,
    UnsupportedVersionError,
    shown,
)
from comal.formats import LEAF_COLUMNS
from comal.limits import MIB
from comal.storage import open_source
from comal.taco import spec
from comal.taco.model.levels import is_padding
from comal.taco.reading.container import Collected, Container, open_container, read_collected
from comal.taco.reading.level import Level, check_ids
from comal.taco.reading.spans import Leaf, read_leaves

_ROWS = 65_536
_AT_ONCE = 64 * MIB
"""Leaves up to this size are fetched with their local header in one request."""
_BLOCK = 4 * MIB


def archive(href: str) -> TacoArchive | CollectionArchive:
    """The container at `href`, or the datasets of a collection over several."""
    source = open_source(href)
    try:
        return TacoArchive(open_container(source))
    except UnsupportedVersionError:
        raise
    except NotThisFormatError:
        listed = read_collected(source)
        if listed is None:
            raise
        return CollectionArchive(listed)


class TacoArchive:
    """A container, as the generic commands see it.

    A leaf is a FILE sample; its key is its path below DATA/. In an index over several ZIPs the
    key begins with the name of the ZIP, because two ZIPs may hold the same path.
    """

    def __init__(self, container: Container) -> None:
        self.container = container

    def describe(self) -> dict[str, Any]:
        """The main fields of the collection, and counts."""
        container = self.container
        return {
            **_of_collection(container.collection, container.kind),
            "count": sum(len(_files(level)) for level in container.levels),
            "samples": int(np.count_nonzero(~is_padding(container.levels[0].column(spec.ID)))),
            "levels": [level.num_rows for level in container.levels],
            "size": None if container.kind.endswith("folder") else container.source.stat().size,
        }

    def leaves(self) -> Iterator[Any]:
        """FILE samples level by level, each level in the order of its rows."""
        for level in self.container.levels:
            rows = _files(level)
            if len(rows) == 0:
                continue
            level.check_names()
            if level.column(spec.ID).null_count:
                check_ids(level.column(spec.ID), level.where)
            columns = _columns(level)
            for start in range(0, len(rows), _ROWS):
                chosen = rows[start : start + _ROWS]
                part = [column.take(pa.array(chosen)) for column in columns]
                yield self._table(level, part)

    def blocks(self, key: str) -> Iterator[bytes]:
        """The bytes of a FILE sample; in a ZIP its local header and checksum are compared."""
        level, row = self._find(key)
        sample = Leaf(self.container, *self._split(key))
        if self.container.kind != "folder":
            offset, size = (column[row].as_py() for column in _spans(level))
            if size is None or size < 0:
                raise InvalidMetadataError(
                    "the archive has no entry of this name",
                    where=f"{shown(key)} in {self.container.source.href}",
                    hint="'comal check' lists what is missing",
                )
            sample = replace(sample, offset=offset, size=size)
        if 0 <= sample.size <= _AT_ONCE:
            yield from read_leaves([sample])
            return
        yield from _stream(sample)

    def close(self) -> None:
        """Close the storage."""
        self.container.close()

    def _split(self, key: str) -> tuple[str | None, str]:
        if not self.container.is_index:
            return None, key
        source_file, _, path = key.partition("/")
        return source_file, path

    def _find(self, key: str) -> tuple[Level, int]:
        source_file, path = self._split(key)
        depth = path.count("/")
        rows = np.zeros(0, dtype=np.int64)
        if depth < len(self.container.levels):
            level = self.container.levels[depth]
            same = pc.equal(level.paths(), path)
            if source_file is not None:
                parts = level.column(spec.SOURCE_FILE).combine_chunks()
                same = pc.and_(same, pc.equal(parts, source_file))
            rows = np.flatnonzero(
                np.asarray(pc.fill_null(same, False))
                & ~level.folders
                & ~is_padding(level.column(spec.ID))
            )
        if len(rows) == 0:
            raise NotInContainerError(
                "no such key",
                where=f"{shown(key)} in {self.container.source.href}",
                hint="'comal ls' lists the keys",
            )
        if len(rows) > 1:
            raise InvalidMetadataError(
                "the key stands for several samples",
                where=f"{shown(key)} in {self.container.source.href}",
                found=f"rows {', '.join(map(str, rows[:5].tolist()))} of level {depth}",
                expected="one row",
            )
        return level, int(rows[0])

    def _table(self, level: Level, part: list[Any]) -> Any:
        """The columns of some rows as a table of `LEAF_COLUMNS`."""
        paths, offsets, sizes, parts = part
        container = self.container
        if container.is_index:
            paths = pc.binary_join_element_wise(parts, paths, "/")
            hrefs = _replaced(parts, lambda name: container.part(name).href)
        elif container.kind == "folder":
            hrefs = pc.binary_join_element_wise(
                f"{container.source.href.rstrip('/')}/{spec.DATA}", paths, ""
            )
            sizes = _file_sizes(level, paths)
        else:
            hrefs = pa.array(np.repeat(container.source.href, len(paths)))
        kinds = pa.array(np.repeat(spec.FILE, len(paths)))
        return pa.table([paths, hrefs, offsets, sizes, kinds], list(LEAF_COLUMNS))


class CollectionArchive:
    """The datasets of a TACOLLECTION.json; each key begins with the name of its dataset."""

    def __init__(self, listed: Collected) -> None:
        self.listed = listed
        self._parts: dict[str, TacoArchive] = {}

    def describe(self) -> dict[str, Any]:
        """The main fields of the document; opens no dataset."""
        document = self.listed.document
        tree = spec.PITSchema.from_dict(
            document.get(spec.PIT_SCHEMA), where=self.listed.source.href
        )
        files = 0
        for pattern in (one for level in tree.hierarchy.values() for one in level):
            each = zip(pattern.type, pattern.id, strict=False)
            real = [t for t, name in each if not name.startswith(spec.PAD_PREFIX)]
            files += pattern.n // max(1, len(pattern.id)) * real.count(spec.FILE)
        return {
            **_of_collection(document, "tacollection"),
            "count": files + (tree.root_n if tree.root_type == spec.FILE else 0),
            "samples": tree.root_n,
            "levels": [tree.rows(level) for level in range(tree.levels)],
            "size": self.listed.source.stat().size,
            "parts": list(self.listed.files),
        }

    def leaves(self) -> Iterator[Any]:
        """The FILE samples of each dataset."""
        for name in self.listed.files:
            for table in self._part(name).leaves():
                keys = pc.binary_join_element_wise(name, table.column("key"), "/")
                yield table.set_column(0, "key", keys)

    def blocks(self, key: str) -> Iterator[bytes]:
        """The bytes of a FILE sample, as its dataset reads them."""
        part, path = self._split(key)
        return part.blocks(path)

    def close(self) -> None:
        """Close the storage."""
        for part in self._parts.values():
            part.close()
        self.listed.source.close()

    def _split(self, key: str) -> tuple[TacoArchive, str]:
        name, _, path = key.partition("/")
        if name not in self.listed.files:
            raise NotInContainerError(
                "no such key",
                where=f"{shown(key)} in {self.listed.source.href}",
                expected="the name of a dataset before the path",
                hint="'comal ls' lists the keys",
            )
        return self._part(name), path

    def _part(self, name: str) -> TacoArchive:
        if name not in self._parts:
            self._parts[name] = TacoArchive(open_container(self.listed.part(name)))
        return self._parts[name]


def _of_collection(collection: Mapping[str, Any], kind: str) -> dict[str, Any]:
    given = collection.get("extent")
    extent = given if isinstance(given, Mapping) else {}  # 'comal check' reports anything else
    return {
        "version": collection.get("taco_version"),
        "container": kind,
        "id": collection.get("id"),
        "title": collection.get("title"),
        "bounds": extent.get("spatial"),
        "time": extent.get("temporal"),
        "licenses": collection.get("licenses"),
    }


def _files(level: Level) -> Any:
    """The rows that are FILE, without padding."""
    return np.flatnonzero(~level.folders & ~is_padding(level.column(spec.ID)))


def _columns(level: Level) -> list[Any]:
    """Paths, offsets, sizes and names of the ZIPs of all rows; names are for an index only."""
    parts = pa.nulls(level.num_rows, pa.string())
    if level.container.is_index:
        parts = level.column(spec.SOURCE_FILE).combine_chunks()
    return [level.paths(), *_spans(level), parts]


def _spans(level: Level) -> tuple[Any, Any]:
    """Offsets and sizes of all rows, after any repair of offsets; in a folder 0 and null."""
    rows = level.num_rows
    if level.container.kind == "folder":
        return pa.array(np.zeros(rows, np.int64)), pa.nulls(rows, pa.int64())
    if level.spans is None:
        return tuple(level.column(name).combine_chunks() for name in (spec.OFFSET, spec.SIZE))
    everything = np.arange(rows)
    return tuple(
        level.spans.column(values, everything)
        for values in (level.spans.offsets, level.spans.sizes)
    )


def _replaced(names: Any, replace: Any) -> Any:
    """`names` with each distinct one replaced."""
    encoded = pc.dictionary_encode(names)
    texts = pa.array([replace(name) for name in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _file_sizes(level: Level, paths: Any) -> Any:
    """Sizes of the files of a local folder; null if each would cost a request."""
    source = level.container.source
    if not source.location.is_local:
        return pa.nulls(len(paths), pa.int64())
    return pa.array([_size_of(source, spec.DATA + path) for path in paths.to_pylist()], pa.int64())


def _size_of(source: Any, href: str) -> int | None:
    try:
        return int(source.stat(href).size)
    except ObjectNotFoundError:
        return None  # still listed; `comal check` reports it


def _stream(sample: Leaf) -> Iterator[bytes]:
    crc = 0
    with sample.file() as file:
        while block := file.read(_BLOCK):
            crc = isal_zlib.crc32(block, crc)
            yield block
    if sample.size < 0:
        return
    directory = sample.container.directory(sample.source_file)
    row = directory.find(sample.entry)
    expected = int(directory.crc[row]) if row >= 0 else None
    if crc != expected:
        raise InvalidMetadataError(
            "checksum mismatch",
            where=sample.where,
            found=f"crc {crc:08x}",
            expected="an entry of that name" if expected is None else f"{expected:08x}",
        )
