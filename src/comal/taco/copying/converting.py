"""From one form of a dataset to the other: `folder2zip` and `zip2folder` (TACO 2.0, 7.1.4).

Everything is kept: rows and their order, padding, columns, keys of the collection, and the bytes of
the samples. Only what depends on the container is written anew.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    Problem,
    counted,
    shown,
    translated,
)
from comal.plan import ByteRange
from comal.progress import Progress, telling
from comal.public import warn
from comal.samples.payloads import Files
from comal.storage import StorageConfig, open_source, targets
from comal.storage.kinds import refuse_sources
from comal.storage.local import ERRORS
from comal.taco import spec, wire
from comal.taco.copying.exporting import check_limit
from comal.taco.copying.foreign import check_foreign
from comal.taco.copying.gather import check_links, levels_from, pick
from comal.taco.model.levels import Level, Levels, relative_paths
from comal.taco.model.pit import check_pit
from comal.taco.reading.container import Container, open_container
from comal.taco.reading.spans import entry_names
from comal.taco.spec import LOGGER, TacoWarning
from comal.taco.writing.containers import Writing, computed_schemas, field_schema, settings
from comal.taco.writing.creating import container_of, write_levels
from comal.ziparchive import Directory
from comal.ziparchive import check as zipcheck
from comal.ziparchive import wire as zipwire

_SHOWN = 5
_LOCAL_META = f"(^|/)({re.escape(spec.META)}|{re.escape(spec.META_OLD)})$"


def folder2zip(
    input: str | os.PathLike[str],  # noqa: A002 - the name that the specification gives it
    output: str | os.PathLike[str],
    quiet: bool = False,  # noqa: FBT001, FBT002 - likewise its place
    temp_dir: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    config: StorageConfig | None = None,
    progress: Progress | None = None,
    **parquet: Any,
) -> Path:
    """Pack a dataset in FOLDER form into one ZIP.

    Parameters
    ----------
    input
        The folder, local or in an object store.
    output
        The archive.
    quiet
        Show no progress on a terminal.
    temp_dir
        Accepted for the specification's sake; what is temporary lies beside the target.
    overwrite
        Replace an existing target at the end, as a whole.
    config
        How to speak to remote storage.
    progress
        Told how far the copy is, instead of the terminal.
    **parquet
        Settings of the level tables: ``compression``, ``compression_level``, ``row_group_size``.

    Returns
    -------
    pathlib.Path
        The archive.

    Raises
    ------
    NotThisFormatError
        The input is something else than a dataset in FOLDER form.
    ObjectNotFoundError
        A sample's file is missing.
    UnsafeContentError
        An id that could leave its folder, or a symbolic link that leads out of the dataset.
    InvalidMetadataError
        Tables that are broken.
    ConflictError
        The target exists, or is part of the source.
    StorageError, ObjectChangedError
        Source or target fail, or a file changes while it is read.

    Notes
    -----
    Files below ``DATA/`` that no row names are not copied; a warning tells of them.
    """
    del temp_dir
    target = _target(output, "zip")
    how = settings(parquet, "zip")
    with _opened(input, "folder", "a dataset in FOLDER form", config) as container:
        refuse_sources(target, container.read_hrefs())
        levels = _all_levels(container, 100)
        levels = check_foreign(levels, as_files=False)
        levels = _checked_folder(container, levels)
        _write(container, levels, target, "zip", how, overwrite, progress, quiet)
    return target


def zip2folder(
    input: str | os.PathLike[str],  # noqa: A002 - the name that the specification gives it
    output: str | os.PathLike[str],
    limit: int = 100,
    quiet: bool = False,  # noqa: FBT001, FBT002 - likewise its place
    *,
    overwrite: bool = False,
    rename: bool = False,
    config: StorageConfig | None = None,
    progress: Progress | None = None,
    **parquet: Any,
) -> Path:
    """Unpack a dataset in ZIP form into a folder.

    Parameters
    ----------
    input
        The archive, local or remote.
    output
        The folder, which must not exist.
    limit
        Requests in flight at once while remote bytes are copied.
    quiet
        Show no progress on a terminal.
    overwrite
        Replace an older folder of TACO at the end, if it holds no file that its tables do not name.
    rename
        Give ids that some file system cannot hold a safe name, instead of refusing them.
    config
        How to speak to remote storage.
    progress
        Told how far the copy is, instead of the terminal.
    **parquet
        Settings of the level tables.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    NotThisFormatError
        The input is something else than a dataset in ZIP form.
    UnsafeContentError
        An id that could leave its folder, or one that is no file name everywhere.
    InvalidMetadataError
        An archive with entries that no table names, names that stand twice, entries that are
        compressed, encrypted or no plain files, or bytes that are not those of their entry.
    ConflictError
        The target exists, or is part of the source.
    StorageError, ObjectChangedError
        Source or target fail, or the source changes while it is read.
    """
    target = _target(output, "folder")
    check_limit(limit)
    how = settings(parquet, "folder")
    with _opened(input, "zip", "a dataset in ZIP form", config) as container:
        refuse_sources(target, container.read_hrefs())
        levels = _all_levels(container, limit)
        check_whole(container)
        levels = check_foreign(levels, as_files=True, rename=rename)
        _write(container, levels, target, "folder", how, overwrite, progress, quiet)
    return target


async def folder2zip_async(
    input: str | os.PathLike[str],  # noqa: A002
    output: str | os.PathLike[str],
    *args: Any,
    **named: Any,
) -> Path:
    """As `folder2zip`, without blocking the event loop."""
    return await asyncio.to_thread(folder2zip, input, output, *args, **named)


async def zip2folder_async(
    input: str | os.PathLike[str],  # noqa: A002
    output: str | os.PathLike[str],
    *args: Any,
    **named: Any,
) -> Path:
    """As `zip2folder`, without blocking the event loop."""
    return await asyncio.to_thread(zip2folder, input, output, *args, **named)


def _target(output: str | os.PathLike[str], kind: str) -> Path:
    target = targets.local_path(output)
    container_of(target, kind)  # refuses names that a folder cannot have
    return target


@contextmanager
def _opened(
    href: str | os.PathLike[str], kind: str, expected: str, config: StorageConfig | None
) -> Iterator[Container]:
    with open_source(href, config=config) as source:
        container = open_container(source)
        if container.kind != kind:
            raise NotThisFormatError(
                f"not {expected}",
                where=shown(source.href, 200),
                found=container.kind,
                hint="load it and use export, which takes every form",
            )
        yield container


def _all_levels(container: Container, limit: int) -> Levels:
    count = container.levels[0].num_rows
    if count == 0:
        raise InvalidInputError("dataset has no sample", where=shown(container.source.href, 200))
    picked = pick([container], np.zeros(count, np.int64), np.arange(count))
    for depth, level in enumerate(container.levels):
        found = len(picked[depth].row) if depth < len(picked) else 0
        if found != level.num_rows:
            raise InvalidMetadataError(
                "rows without a parent",
                where=level.where,
                found=counted(level.num_rows - found, "row"),
            )
    return levels_from([container], picked, [None] * len(picked), limit, links=False)


def _write(
    container: Container,
    levels: Levels,
    target: Path,
    kind: str,
    how: Any,
    overwrite: bool,  # noqa: FBT001
    progress: Progress | None,
    quiet: bool,  # noqa: FBT001
) -> None:
    document = container.collection | _schemas(container, levels, kind)
    with telling(progress, quiet=quiet) as told:
        write_levels(levels, document, target, kind, Writing(how, overwrite, told))
    LOGGER.info("wrote %s", target)


def _schemas(container: Container, levels: Levels, kind: str) -> dict[str, Any]:
    """What the collection says of the tables; the tree that it describes stays when it is none."""
    try:
        check_pit(levels)
    except InvalidInputError as error:
        warn(
            f"{container.source.href}: {error}; its {spec.PIT_SCHEMA} is copied as it is",
            TacoWarning,
        )
        schemas = [level.table.schema for level in levels]
        return {spec.FIELD_SCHEMA: field_schema(schemas, with_spans=kind == "zip")}
    return computed_schemas(levels, spans=kind == "zip")


# -- the folder itself ----------------------------------------------------------------------------


def _checked_folder(container: Container, levels: Levels) -> Levels:
    """Refuse links out of a local folder, and tell of files that no row names.

    What the listing says of the kinds of the files comes back with the levels.
    """
    root = container.source.href.rstrip("/")
    if "://" in root:
        return levels  # not every storage can list, and none has links
    present, links, plain = _walk(f"{root}/{spec.DATA}")
    check_links(root, [f"{root}/{spec.DATA}{name}" for name in links])
    known = [path.filter(pc.invert(pc.ends_with(path, "/"))) for path in relative_paths(levels)]
    strange = present.filter(pc.invert(pc.is_in(present, value_set=pa.concat_arrays(known))))
    if len(strange):
        shown_names = ", ".join(shown(name) for name in sorted(strange.to_pylist())[:_SHOWN])
        warn(
            f"{root}: {counted(len(strange), 'file')} below {spec.DATA} that no sample names, "
            f"not copied: {shown_names}",
            TacoWarning,
        )
    return tuple(_as_plain(level) for level in levels) if plain else levels


def _as_plain(level: Level) -> Level:
    payloads = level.payloads
    if not isinstance(payloads, Files):
        return level
    return replace(level, payloads=replace(payloads, regular=True))


def _walk(root: str) -> tuple[Any, list[str], bool]:
    """Files below a folder relative to it, without local metadata.

    Returns
    -------
    names, links, plain
        With them the symbolic links among them, not followed, and whether there is nothing else
        below the folder than regular files and folders.
    """
    found: list[str] = []
    links: list[str] = []
    plain = True
    left = [""]
    with translated(ERRORS, "cannot list", where=shown(root, 200)):
        while left:
            prefix = left.pop()
            with os.scandir(root + prefix) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        found.append(prefix + entry.name)
                    elif entry.is_dir(follow_symlinks=False):
                        left.append(f"{prefix}{entry.name}/")
                    else:
                        plain = False
                        found.append(prefix + entry.name)
                        if entry.is_symlink():
                            links.append(prefix + entry.name)
    try:
        names = pa.array(found, pa.string())
    except UnicodeEncodeError:  # bytes that are no UTF-8, which no id can be
        legible = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in found]
        names = pa.array(legible, pa.string())
    local = pc.match_substring_regex(names, _LOCAL_META)
    return names.filter(pc.invert(local)), links, plain


# -- whole archives --------------------------------------------------------------------------------


_UNIX = 3
_KIND = 0o170000
_REGULAR = 0o100000
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
        *zipcheck.problems(directory, stored_only=True),
        *_special(directory),
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


def _special(directory: Directory) -> Iterator[Problem]:
    kind = (directory.external >> 16) & _KIND
    special = (directory.made_by >> 8 == _UNIX) & (kind != _REGULAR) & (kind != 0)
    yield from _problems(directory, "zip-symlink", np.flatnonzero(special), "is no regular file")


def _undeclared(container: Container, directory: Directory) -> Iterator[Problem]:
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


def _holes(container: Container, directory: Directory) -> Iterator[Problem]:
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


def _problems(directory: Directory, code: str, rows: Any, message: str) -> Iterator[Problem]:
    for row in rows[:_MOST].tolist():
        yield Problem(code, f"entry {row} ({shown(directory.names[row].as_py())})", message)
