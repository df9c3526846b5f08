"""Check archive bytes and spans of rows against the central directory (TACO 2.0, 6.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.check import Check
from comal.errors import (
    InvalidMetadataError,
    ObjectNotFoundError,
    StorageError,
    UnsafeContentError,
    shown,
    translated,
)
from comal.plan import ByteRange, Plan, run
from comal.progress import Progress
from comal.storage import Source
from comal.table.columns import flags_of
from comal.taco import spec
from comal.taco import wire as taco_wire
from comal.taco.checking.tree import Int64s, Rows
from comal.taco.reading.spans import entry_names
from comal.taco.writing.verify import files_below
from comal.ziparchive import Directory, content_plan, local_plan, problems, wire
from comal.ziparchive.directory import headers
from comal.ziparchive.local import runs


@dataclass(frozen=True, slots=True)
class EntrySpans:
    """The real spans of rows, those of their entries; -1 for a row without an entry."""

    offset: Int64s
    size: Int64s
    entry: Int64s


def check_bounds(rows: Rows, total: int, findings: Check) -> None:
    """Report spans outside of the file, by arithmetic that cannot overflow."""
    if rows.offset is None or rows.size is None:
        return
    offset, size = rows.offset, rows.size
    outside = (offset < 0) | (size < 0) | (offset > total) | (size > total - offset)
    rows.report(
        findings,
        "taco-span-bounds",
        outside,
        lambda row: f"bytes {offset[row]}+{size[row]} are not within the file of {total} bytes",
    )


def check_overlap(levels: Sequence[Rows], findings: Check) -> None:
    """Report overlapping spans, the only check of spans without a directory."""
    known = [rows for rows in levels if rows.offset is not None and rows.size is not None]
    if not known:
        return
    offset = np.concatenate([rows.offset for rows in known if rows.offset is not None])
    size = np.concatenate([rows.size for rows in known if rows.size is not None])
    depth = np.concatenate([np.full(len(rows), n) for n, rows in enumerate(known)])
    number = np.concatenate([np.arange(len(rows)) for rows in known])
    used = np.flatnonzero((offset >= 0) & (size > 0))
    order = used[np.argsort(offset[used], kind="stable")]
    ends = np.maximum.accumulate(offset[order] + np.minimum(size[order], 2**62))
    wrong = order[1:][offset[order][1:] < ends[:-1]]
    findings.add_rows(
        "taco-span-overlap",
        wrong,
        lambda n: (
            known[int(depth[n])].place(int(number[n])),
            f"bytes {offset[n]}+{size[n]} overlap another sample",
        ),
    )


def true_spans(rows: Rows, directory: Directory, payload: Int64s) -> EntrySpans:
    """The spans of the entries that rows name; `payload` has the offset of each entry's bytes."""
    entry = directory.find_many(entry_names(rows.paths, rows.folders))
    for row in np.flatnonzero((entry < 0) & rows.folders).tolist():
        # Another name of the local metadata, used once in 6.2.
        entry[row] = directory.find(f"{spec.DATA}{rows.paths[row].as_py()}/{spec.META_OLD}")
    if not len(directory):
        none = np.full(len(rows), -1, np.int64)
        return EntrySpans(none, none, none)
    offset = np.where(entry >= 0, payload[entry], -1)
    size = np.where(entry >= 0, directory.csize[entry], -1)
    return EntrySpans(offset, size, entry)


def check_entries(
    levels: Sequence[Rows],
    directory: Directory,
    payload: Int64s,
    findings: Check,
    *,
    complete: bool = True,
) -> list[EntrySpans]:
    """Compare every row with its entry, and report the entries that belong to no row.

    `complete` means that no level is missing, whose entries would seem to belong to no row.
    """
    found = []
    for rows in levels:
        spans = true_spans(rows, directory, payload)
        found.append(spans)
        # A padding sample has no bytes, so it needs no entry.
        absent = (spans.entry < 0) & ~rows.padding
        for code, lost, message in (
            ("taco-entry-missing", absent & ~rows.folders, "the archive has no entry for this row"),
            (
                "taco-meta-missing",
                absent & rows.folders,
                f"the archive has no {spec.META} for this row",
            ),
        ):
            rows.report(findings, code, lost, message)
        compare_spans(rows, spans, findings)
    if complete:
        check_declared(directory, found, findings)
    return found


def check_declared(directory: Directory, found: Sequence[EntrySpans], findings: Check) -> None:
    """Report the entries that belong neither to a row nor to the format itself."""
    metadata = [*spec.LEVEL_PATHS, spec.COLLECTION]
    own = pa.array([*metadata, taco_wire.HEADER_NAME, "TACO_GHOST"], pa.string())
    used = np.concatenate([directory.find_many(own), *(spans.entry for spans in found)])
    free = np.ones(len(directory), np.bool_)
    free[used[used >= 0]] = False
    tell = partial(_tell, directory, "no row of a level table names this entry")
    findings.add_rows("taco-entry-undeclared", np.flatnonzero(free), tell)


def compare_spans(rows: Rows, spans: EntrySpans, findings: Check) -> None:
    """Compare the spans stored in rows with those of their entries."""
    if rows.offset is None or rows.size is None:
        return
    offset, size = rows.offset, rows.size
    empty = rows.padding & (size == 0)
    differ = ((offset != spans.offset) & ~empty) | (size != spans.size)

    def tell(row: int) -> str:
        right = f"{spans.offset[row]}+{spans.size[row]}"
        return f"says bytes {offset[row]}+{size[row]}, but its entry is at {right}"

    rows.report(findings, "taco-offset-mismatch", differ & (spans.entry >= 0), tell)


SHARE = 20
"""The sample level reads one in this many entries; small archives are read completely."""
_UNIX = 3
_REGULAR = 0o100000


def check_archive(source: Source, directory: Directory, findings: Check) -> Int64s:
    """Check the archive as a ZIP.

    At the level ``structure`` all local headers are read, at ``sample`` also the bytes of some
    entries, at ``full`` those of all. Returns the offset of each entry's payload, or -1 if it has
    no local header.
    """
    progress = findings.progress
    progress(0, None, "archive")
    check_directory(directory, findings)
    offsets: Int64s
    offsets, found = _run(source, local_plan(directory), "local headers", progress, directory)
    findings.take(found)
    if findings.one_of:
        every = findings.one_of == 1
        chosen = np.ones(len(directory), np.bool_) if every else some(len(directory))
        plan = content_plan(directory, np.where(chosen, offsets, -1))
        findings.take(_run(source, plan, "bytes", progress, directory))
        _compare_notes(source, directory, offsets, findings)
    return offsets


def some(count: int) -> Any:
    """Mask of the entries that the sample level reads, of `count`; it is deterministic."""
    if count <= SHARE * SHARE:
        return np.ones(count, np.bool_)
    # One of each run of entries, at a shifting position, so that no regular pattern is missed.
    starts = np.arange(0, count - SHARE, SHARE)
    chosen = np.zeros(count, np.bool_)
    chosen[starts + np.arange(len(starts)) * 7 % SHARE] = True
    return chosen


def _run(
    source: Source, plan: Plan[Any], what: str, progress: Progress, directory: Directory
) -> Any:
    """Run a plan that reads the archive from front to back, and report its progress."""

    def fetch(wanted: Any) -> Any:
        places = [want.offset + want.size for want in wanted if isinstance(want, ByteRange)]
        progress(max(places, default=0), directory.total, what)
        return source.fetch(wanted)

    return run(plan, fetch)


def check_directory(directory: Directory, findings: Check) -> None:
    """Check the directory alone: TACO archives hold plain stored files (6.3)."""
    findings.take(problems(directory, stored_only=True))
    mode = directory.external >> 16
    unix = (directory.made_by >> 8 == _UNIX) & ((mode & 0o170000) != 0)
    special = unix & ((mode & 0o170000) != _REGULAR) & ((mode & 0o170000) != 0o120000)
    described = (directory.flags & wire.FLAG_DESCRIPTOR) != 0
    for code, wrong, message in (
        ("zip-descriptor", described, "has its sizes after its data, in a data descriptor"),
        ("zip-symlink", special, "is a folder, a device or another special file"),
    ):
        findings.add_rows(code, np.flatnonzero(wrong), partial(_tell, directory, message))


def _tell(directory: Directory, message: str, row: int) -> tuple[str, str]:
    return f"entry {row} ({shown(directory.names[row].as_py())})", message


def _compare_notes(source: Source, directory: Directory, offsets: Int64s, findings: Check) -> None:
    """Compare header fields that no reader needs; a difference reveals bit rot."""
    (piece,) = source.fetch([ByteRange(directory.start, directory.end_offset - directory.start)])
    try:
        _, central = headers(piece.data, source.href)
    except InvalidMetadataError:
        return  # bytes after the directory are reported on their own
    order = np.argsort(directory.header_offset, kind="stable")
    order = order[offsets[order] >= 0]
    starts = directory.header_offset
    for group in runs(starts, starts + wire.LOCAL_SIZE, order):
        (piece,) = source.fetch([ByteRange(group.start, group.stop - group.start)])
        room = len(piece.data) - wire.LOCAL_SIZE + 1
        every = np.ndarray((room,), wire.LOCAL, piece.data, strides=(1,))
        local, listed = every[starts[group.rows] - group.start], central[group.rows]
        differ = listed["disk"] != 0
        for field in ("version", "flags", "time", "date"):
            differ |= local[field] != listed[field]
        findings.add_rows(
            "zip-local-note",
            group.rows[differ],
            partial(
                _tell,
                directory,
                "version, flags, time or disk number differ between its two headers",
            ),
        )


# -- folders ---------------------------------------------------------------------------------------


_EVERY = 4_096


def check_files(source: Source, levels: Sequence[Rows], findings: Check) -> None:
    """Compare the files below DATA/ with the rows: missing, extra, links and special files."""
    try:
        found = _listed(source, findings)
    except ObjectNotFoundError:
        findings.add("taco-file-missing", spec.DATA, "there is no such folder")
        return
    except StorageError:
        # HTTP cannot list, so each file is requested by name.
        findings.add("taco-unlisted", spec.DATA, "the storage cannot list folders")
        _ask_for_each(source, levels, findings)
        return
    expected = []
    for rows in levels:
        absent = ~flags_of(pc.is_in(rows.paths, value_set=found)) & ~rows.folders & ~rows.padding
        rows.report(findings, "taco-file-missing", absent, "there is no such file")
        expected.append(rows.paths.filter(pa.array(~rows.folders)))
        folders = rows.paths.filter(pa.array(rows.folders))
        expected += [
            pc.binary_join_element_wise(folders, name, "/") for name in (spec.META, spec.META_OLD)
        ]
    known = pa.concat_arrays(expected) if expected else pa.array([], pa.string())
    extra = ~flags_of(pc.is_in(found, value_set=known))
    findings.add_rows(
        "taco-file-extra",
        np.flatnonzero(extra),
        lambda n: (
            shown(spec.DATA + found[n].as_py(), 200),
            "no row of a level table names this file",
        ),
    )


def _ask_for_each(source: Source, levels: Sequence[Rows], findings: Check) -> None:
    for rows in levels:
        files = np.flatnonzero(~rows.folders & ~rows.padding)
        for done, row in enumerate(files.tolist()):
            try:
                source.stat(f"{spec.DATA}{rows.paths[row].as_py()}")
            except ObjectNotFoundError:
                findings.add("taco-file-missing", rows.place(row), "there is no such file")
            except UnsafeContentError as error:
                findings.take_error(error, "unsafe-content", rows.place(row))
            if done % _EVERY == 0:
                findings.progress(done, len(files), f"files of level {rows.depth}")


def _listed(source: Source, findings: Check) -> Any:
    """Paths of all regular files below DATA/, as an Arrow array."""
    names = []
    walk = _walk_disk(source.href, findings) if source.location.is_local else _walk_source(source)
    for path in walk:
        names.append(path)
        if len(names) % _EVERY == 0:
            findings.progress(len(names), None, "files")
    return pa.array(names, pa.string())


def _walk_source(source: Source) -> Iterator[str]:
    folders = [""]
    while folders:
        folder = folders.pop()
        for name in source.names(spec.DATA + folder):
            if name.endswith("/"):
                folders.append(folder + name)
            else:
                yield folder + name


def _walk_disk(root: str, findings: Check) -> Iterator[str]:
    kinds: dict[type[BaseException], Any] = {
        FileNotFoundError: ObjectNotFoundError,
        NotADirectoryError: ObjectNotFoundError,
        OSError: StorageError,
    }
    with translated(kinds, "cannot list", where=shown(f"{root}/{spec.DATA}", 200)):
        for path, entry in files_below(f"{root}/{spec.DATA}"):
            try:
                path.encode()
            except UnicodeEncodeError:
                findings.add(
                    "taco-file-extra", shown(path, 200), "the name of the file is not UTF-8"
                )
                continue
            if entry.is_file(follow_symlinks=False):
                yield path
            else:
                place = shown(spec.DATA + path, 200)
                findings.add("taco-symlink", place, "is a symbolic link or a special file")
