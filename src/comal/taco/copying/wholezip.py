"""Whether an archive is what its tables say and nothing else, before it becomes loose files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidMetadataError, Problem, shown
from comal.plan import ByteRange
from comal.taco import spec, wire
from comal.taco.reading.container import Container
from comal.taco.reading.spans import entry_names
from comal.ziparchive import wire as zipwire

_UNIX = 3
_KIND = 0o170000
_REGULAR = 0o100000
_HIDDEN = zipwire.FLAG_ENCRYPTED | zipwire.FLAG_STRONG_ENCRYPTION | zipwire.FLAG_MASKED
_MOST = 100


def check_whole(container: Container) -> None:
    """Refuse an archive that other tools could take for something else.

    Raises
    ------
    InvalidMetadataError
        Entries that no row names, that stand twice, are not plain stored files or are encrypted,
        bytes between or behind entries that belong to nobody; each is a problem of the error.
    """
    directory = container.directory()
    problems = [
        *directory.problems,
        *_odd_entries(directory),
        *_undeclared(container, directory),
        *_holes(container, directory),
    ]
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise InvalidMetadataError(
            "archive holds more or other things than its tables say",
            where=shown(container.source.href, 200),
            found=f"{len(errors)} problems" if len(errors) > 1 else None,
            hint="'comal check' lists all of them; export copies the samples alone",
            problems=errors[:_MOST],
        )


def _odd_entries(directory: Any) -> Iterator[Problem]:
    mode = directory.external >> 16
    unix = (directory.made_by >> 8 == _UNIX) & (mode != 0)
    special = unix & ((mode & _KIND) != _REGULAR) & ((mode & _KIND) != 0)
    for code, wrong, message in (
        ("zip-method", directory.method != zipwire.STORE, "is compressed; TACO stores all entries"),
        ("zip-encrypted", (directory.flags & _HIDDEN) != 0, "is encrypted"),
        ("zip-symlink", special, "is no regular file"),
        ("zip-name-twice", _twice(directory), "stands twice in the directory"),
    ):
        yield from _problems(directory, code, np.flatnonzero(wrong), message)


def _twice(directory: Any) -> Any:
    again = np.zeros(len(directory), np.bool_)
    if not directory.unique:
        codes = np.asarray(pc.dictionary_encode(directory.names).indices, np.int64)
        again[:] = True
        again[np.unique(codes, return_index=True)[1]] = False
    return again


def _undeclared(container: Container, directory: Any) -> Iterator[Problem]:
    metadata = [spec.level_path(level.index) for level in container.levels]
    # An older writer called the header by another name of ten letters.
    known = [pa.array([*metadata, spec.COLLECTION, wire.HEADER_NAME, "TACO_GHOST"], pa.string())]
    for level in container.levels:
        known.append(entry_names(level.paths(), level.folders).cast(pa.string()))
        folders = level.paths().filter(pa.array(level.folders)).cast(pa.string())
        known.append(pc.binary_join_element_wise(spec.DATA, folders, f"/{spec.META_OLD}", ""))
    declared = pc.is_in(directory.names.cast(pa.string()), value_set=pa.concat_arrays(known))
    rows = np.flatnonzero(~np.asarray(declared, np.bool_))
    yield from _problems(directory, "zip-undeclared", rows, "belongs to no sample")


def _holes(container: Container, directory: Any) -> Iterator[Problem]:
    order = np.argsort(directory.header_offset, kind="stable")
    starts = np.append(directory.header_offset[order], directory.start)
    ends = np.append(0, (directory.payload_offsets + directory.csize)[order])
    # A local header may be longer than the directory can tell, so those before a gap are asked.
    gaps = np.flatnonzero(starts > ends)
    asked = gaps[gaps > 0]
    heads = directory.header_offset[order[asked - 1]].tolist()
    pieces = container.source.fetch([ByteRange(head, zipwire.LOCAL_SIZE) for head in heads])
    extra = [int.from_bytes(piece.data[28:30], "little") for piece in pieces]
    ends[asked] = np.maximum(ends[asked], ends[asked] + extra)
    for place in gaps[starts[gaps] > ends[gaps]][:_MOST].tolist():
        start, size = int(ends[place]), int(starts[place] - ends[place])
        yield Problem("zip-hole", f"bytes {start}+{size}", "belong to no entry")


def _problems(directory: Any, code: str, rows: Any, message: str) -> Iterator[Problem]:
    for row in rows[:_MOST].tolist():
        yield Problem(code, f"entry {row} ({shown(directory.names[row].as_py())})", message)
