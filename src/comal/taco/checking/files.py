"""The files of a FOLDER container against the level tables (TACO 2.0, 6.1)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import ObjectNotFoundError, StorageError, UnsafeContentError, shown, translated
from comal.findings import Findings
from comal.progress import Progress
from comal.storage import Source
from comal.taco import spec
from comal.taco.checking.rows import Rows, bools

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
