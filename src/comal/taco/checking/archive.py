"""The bytes of an archive against its central directory (TACO 2.0, 6.3).

What any ZIP must be is checked by `comal.ziparchive`; here stands what TACO asks beyond that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.check import Check, Findings
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
from comal.taco import spec
from comal.taco.checking.rows import Rows, bools
from comal.ziparchive import Directory, content_plan, headers, local_plan, problems, wire
from comal.ziparchive.local import runs

Int64s = npt.NDArray[np.int64]

SHARE = 20
"""The sample level reads one entry of so many; small archives are read whole."""
_UNIX = 3
_REGULAR = 0o100000


def check_archive(source: Source, directory: Directory, findings: Check) -> Int64s:
    """Check the archive as an archive.

    Parameters
    ----------
    source
        The archive.
    directory
        Its central directory.
    findings
        At the level ``structure`` all local headers are read, at ``sample`` also the bytes of some
        entries, at ``full`` those of all.

    Returns
    -------
    numpy.ndarray
        Where the payload of each entry begins, int64, -1 where there is no local header.
    """
    progress = findings.progress
    progress(0, None, "archive")
    findings.take(problems(directory, stored_only=True))
    _check_kinds(directory, findings)
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
    """Which of `count` entries the sample level reads: a share that is the same every time."""
    if count <= SHARE * SHARE:
        return np.ones(count, np.bool_)
    # One of each run of neighbours, at a place that moves, so that no regular pattern is missed.
    starts = np.arange(0, count - SHARE, SHARE)
    chosen = np.zeros(count, np.bool_)
    chosen[starts + np.arange(len(starts)) * 7 % SHARE] = True
    return chosen


def _run(
    source: Source, plan: Plan[Any], what: str, progress: Progress, directory: Directory
) -> Any:
    """Run a plan that goes through the archive from front to back, telling how far it is."""

    def fetch(wanted: Any) -> Any:
        places = [want.offset + want.size for want in wanted if isinstance(want, ByteRange)]
        progress(max(places, default=0), directory.total, what)
        return source.fetch(wanted)

    return run(plan, fetch)


def _check_kinds(directory: Directory, findings: Findings) -> None:
    """TACO_HEADER aside, TACO archives hold plain stored files (6.3)."""
    mode = directory.external >> 16
    unix = (directory.made_by >> 8 == _UNIX) & ((mode & 0o170000) != 0)
    special = unix & ((mode & 0o170000) != _REGULAR) & ((mode & 0o170000) != 0o120000)
    described = (directory.flags & wire.FLAG_DESCRIPTOR) != 0
    for code, wrong, message in (
        ("zip-descriptor", described, "has its sizes behind its data"),
        ("zip-symlink", special, "is a folder, a device or another special file"),
    ):
        findings.add_rows(code, np.flatnonzero(wrong), partial(_tell, directory, message))


def _tell(directory: Directory, message: str, row: int) -> tuple[str, str]:
    return f"entry {row} ({shown(directory.names[row].as_py())})", message


def _compare_notes(
    source: Source, directory: Directory, offsets: Int64s, findings: Findings
) -> None:
    """Fields of the headers that no reader needs; they differ when bytes have decayed."""
    (piece,) = source.fetch([ByteRange(directory.start, directory.end_offset - directory.start)])
    try:
        _, central = headers.headers(piece.data, source.href)
    except InvalidMetadataError:
        return  # bytes stand behind the directory, which is a problem of its own
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
            partial(_tell, directory, "version, flags, time or disk differ in its two headers"),
        )


# -- folders ---------------------------------------------------------------------------------------


_EVERY = 4_096


def check_files(
    source: Source, levels: Sequence[Rows], findings: Findings, progress: Progress
) -> None:
    """Compare the files below DATA/ with the rows: missing, extra, links and special files."""
    try:
        found = _listed(source, findings, progress)
    except ObjectNotFoundError:
        findings.add("taco-file-missing", spec.DATA, "there is no such folder")
        return
    except StorageError:
        # HTTP cannot list; then each file is asked for by its name.
        findings.add("taco-unlisted", spec.DATA, "the storage cannot list folders")
        _ask_for_each(source, levels, findings, progress)
        return
    expected = []
    for rows in levels:
        _check_present(rows, found, findings)
        expected.append(rows.paths.filter(pa.array(~rows.folders)))
        folders = rows.paths.filter(pa.array(rows.folders))
        expected += [
            pc.binary_join_element_wise(folders, name, "/") for name in (spec.META, spec.META_OLD)
        ]
    known = pa.concat_arrays(expected) if expected else pa.array([], pa.string())
    extra = ~bools(pc.is_in(found, value_set=known))
    findings.add_rows(
        "taco-file-extra",
        np.flatnonzero(extra),
        lambda n: (shown(spec.DATA + found[n].as_py(), 200), "no row of a level table names it"),
    )


def _check_present(rows: Rows, found: Any, findings: Findings) -> None:
    files = np.flatnonzero(~rows.folders & ~rows.padding)
    wanted = rows.paths.take(pa.array(files))
    absent = ~bools(pc.is_in(wanted, value_set=found))
    findings.add_rows(
        "taco-file-missing", files[absent], lambda row: (rows.place(row), "there is no such file")
    )


def _ask_for_each(
    source: Source, levels: Sequence[Rows], findings: Findings, progress: Progress
) -> None:
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
                progress(done, len(files), f"files of level {rows.depth}")


def _listed(source: Source, findings: Findings, progress: Progress) -> Any:
    """Paths of all regular files below DATA/, as an Arrow array."""
    names = []
    walk = _walk_source(source) if "://" in source.href else _walk_disk(source.href, findings)
    for path in walk:
        names.append(path)
        if len(names) % _EVERY == 0:
            progress(len(names), None, "files")
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


def _walk_disk(root: str, findings: Findings) -> Iterator[str]:
    base = os.path.join(root, spec.DATA)  # noqa: PTH118 - hrefs are strings throughout
    folders = [""]
    kinds: dict[type[BaseException], Any] = {
        FileNotFoundError: ObjectNotFoundError,
        NotADirectoryError: ObjectNotFoundError,
        OSError: StorageError,
    }
    while folders:
        folder = folders.pop()
        with translated(kinds, "cannot list", where=shown(base + folder, 200)):
            entries = list(os.scandir(base + folder))
        for entry in entries:
            path = folder + entry.name
            try:
                path.encode()
            except UnicodeEncodeError:
                findings.add("taco-file-extra", shown(path, 200), "its name is not UTF-8")
                continue
            if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
                place = shown(spec.DATA + path, 200)
                findings.add("taco-symlink", place, "is a symbolic link or special file")
            elif entry.is_dir():
                folders.append(path + "/")
            else:
                yield path
