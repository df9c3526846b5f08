"""Datasets as new containers: `export` (TACO 2.0, 7.1.3), `folder2zip`, `zip2folder` (7.1.4).

The rows of a view, or of an entire container, and their descendants become levels, which the writer
of `create` writes. Bytes are copied by range, adjacent ones together, and never held all at once.
A conversion keeps rows and their order, padding, columns and keys of the collection; only what
depends on the container is computed again.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Mapping
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
    counted,
    shown,
    system_errors,
)
from comal.geo.times import parse_instant
from comal.parallel import Workers
from comal.plan import run
from comal.progress import Progress, telling
from comal.public import warn
from comal.samples.payloads import Files
from comal.storage import StorageConfig, open_source, targets
from comal.storage.targets import refuse_sources
from comal.taco import spec
from comal.taco.checking.archive import check_declared, check_directory, true_spans
from comal.taco.checking.codes import new_check
from comal.taco.checking.tree import Rows
from comal.taco.copying.foreign import check_foreign
from comal.taco.copying.gather import check_links, levels_from, pick, view_levels
from comal.taco.model.collection import extent_of
from comal.taco.model.levels import Levels, check_pit, relative_paths
from comal.taco.reading.container import Container, open_container
from comal.taco.reading.dataset import TacoDataset
from comal.taco.reading.spans import entry_spans, payloads_plan
from comal.taco.spec import LOGGER, TacoWarning
from comal.taco.writing.containers import Writing, computed_schemas, field_schema, settings
from comal.taco.writing.creating import container_of, write_levels
from comal.taco.writing.verify import files_below
from comal.ziparchive.check import dead_bytes

_OF_AN_INDEX = frozenset({"_tacocat", spec.SOURCES})
"""Keys that list the archives of an index, which other containers do not have."""
_REQUESTS = 100
"""Requests in flight while remote bytes are copied, by default."""
_SHOWN = 5
_MOST = 100
"""Maximum number of problems that an error lists."""
_LOCAL_META = f"(^|/)({re.escape(spec.META)}|{re.escape(spec.META_OLD)})$"


def export(
    dataset: TacoDataset,
    output: str | os.PathLike[str],
    output_format: str = "auto",
    quiet: bool = False,  # noqa: FBT001, FBT002 - the position that the specification gives it
    limit: int = _REQUESTS,
    temp_dir: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    rename: bool = False,
    subset_date: str | dt.datetime | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Write the rows of a dataset's current view, with all descendants, as a container.

    Parameters
    ----------
    dataset
        From `load` or `concat`, filtered or not, local or remote.
    output
        Target: a file for ZIP, a folder for FOLDER.
    output_format
        ``zip``, ``folder`` or ``auto``: ZIP if the name ends in ``.zip`` or ``.tacozip``.
    quiet
        Show no progress on a terminal.
    limit
        Maximum number of requests in flight while remote bytes are copied.
    temp_dir
        Ignored, but part of the specification; temporary files are beside the target.
    overwrite
        Replace an existing target at the end, completely.
    rename
        Give ids that some file system cannot hold a safe name. Without it they are a warning in a
        ZIP and an error in a FOLDER, where they become names of files. Among roots with the same
        id, as in archives of an index (only ``internal:source_file`` distinguishes them, 7.2.3),
        the second becomes ``id_2`` and so on, before the ending, in the order of the view; without
        it they are an error, because ids are unique among siblings.
    subset_date
        The time for ``taco:subset_date``; None is the environment variable ``SOURCE_DATE_EPOCH``
        if set, else now. It is the only difference between two exports.
    progress
        Called with the progress of the copy, instead of the terminal.
    **options
        ``config``, a `StorageConfig` to write with, where the target is in a store; ``executor``,
        which encodes local metadata, as for `create`; and settings of the level tables:
        ``compression``, ``compression_level``, ``row_group_size``, ...

    Returns
    -------
    pathlib.Path
        The target; in a store, a `StorePath`.

    Raises
    ------
    InvalidInputError
        A view without rows, ids that appear twice without `rename` (as in a concatenation of
        overlapping parts), rows that differ in structure, invalid arguments.
    QueryError
        The query of the view dropped `id` and the ``internal:`` columns, so that its rows cannot be
        identified.
    UnsafeContentError
        An id could leave its folder, or cannot be a file name on every system.
    InvalidMetadataError
        The bytes of a sample do not match its archive.
    ConflictError
        The target exists, or is part of the source.
    StorageError, ObjectChangedError
        Source or target fail, or the source changes while it is read.

    Notes
    -----
    Level 0 is written as a caller's query returns it: metadata columns that it drops are dropped,
    and computed ones are kept if their names follow the key grammar (letters, digits, ``_`` and
    one ``:``). `id`, `type` and the ``internal:`` columns are always those of the samples,
    regardless of the query. Deeper levels keep all their columns.

    All children are written, with their padding.

    Extent (as far as columns give it), counts, ``shape`` and ``taco:field_schema`` are computed
    again, and ``taco:subset_of`` is the id of the source; all other keys of the collection stay.
    """
    del temp_dir
    if not isinstance(dataset, TacoDataset):
        raise InvalidInputError(
            "not a dataset", found=type(dataset).__name__, hint="pass the dataset that load returns"
        )
    _check_limit(limit)
    target, stamp = targets.target_path(output, options.pop("config", None)), date_of(subset_date)
    kind, executor = container_of(target, output_format), options.pop("executor", None)
    with telling(progress, quiet=quiet) as told:
        how = Writing(settings(options, kind), overwrite, told, executor)
        return export_part(dataset, target, kind, how, stamp, limit=limit, rename=rename)


def export_part(
    dataset: TacoDataset,
    target: Path,
    kind: str,
    how: Writing,
    stamp: str,
    *,
    choose: Callable[[Levels], Levels] | None = None,
    limit: int = _REQUESTS,
    rename: bool = False,
) -> Path:
    """As `export`, of what `choose` leaves of the levels of the view."""
    containers = dataset.home.containers
    refuse_sources(target, [href for one in containers for href in one.read_hrefs()])
    levels = view_levels(dataset, limit)
    levels = levels if choose is None else choose(levels)
    levels = check_foreign(levels, as_files=kind == "folder", rename=rename)
    document = _subset_document(dataset.collection, levels, kind, stamp)
    write_levels(levels, document, target, kind, how)
    LOGGER.info("exported %d samples to %s", levels[0].rows, target)
    return target


def _check_limit(limit: Any) -> None:
    """Refuse a limit that is not a positive integer."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidInputError("limit is not a positive number of requests", found=repr(limit))


def date_of(given: str | dt.datetime | None) -> str:
    """The value of ``taco:subset_date``, in UTC; None is as for `export`."""
    if given is not None:
        moment = dt.datetime.fromtimestamp(parse_instant(given) / 1_000_000, dt.UTC)
        return moment.isoformat()
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    if not epoch.isascii() or not epoch.isdigit() or len(epoch) > 11:
        raise InvalidInputError(
            "SOURCE_DATE_EPOCH is not a time", found=shown(epoch), expected="seconds since 1970"
        )
    return dt.datetime.fromtimestamp(int(epoch), dt.UTC).isoformat()


def _subset_document(
    collection: Mapping[str, Any], levels: Levels, kind: str, stamp: str
) -> dict[str, Any]:
    kept = {key: value for key, value in collection.items() if key not in _OF_AN_INDEX}
    document = {key: kept.pop(key) for key in spec.CORE_FIELDS if key in kept}
    document["taco_version"] = spec.TACO_VERSION
    document["extent"] = extent_of((level.table for level in levels), collection.get("extent"))
    computed = (spec.PIT_SCHEMA, spec.FIELD_SCHEMA, spec.SUBSET_OF, spec.SUBSET_DATE)
    document |= {key: value for key, value in kept.items() if key not in computed}
    document[spec.SUBSET_OF] = collection.get("id")
    document[spec.SUBSET_DATE] = stamp
    return document | computed_schemas(levels, spans=kind == "zip")


# -- from one form to the other --------------------------------------------------------------------


def folder2zip(
    input: str | os.PathLike[str],  # noqa: A002 - the name that the specification gives it
    output: str | os.PathLike[str],
    quiet: bool = False,  # noqa: FBT001, FBT002 - likewise its place
    temp_dir: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    config: StorageConfig | None = None,
    progress: Progress | None = None,
    executor: Workers = None,
    **parquet: Any,
) -> Path:
    """Pack a dataset in FOLDER form into one ZIP.

    Parameters
    ----------
    input
        The folder, local or in an object store.
    output
        The archive.
    quiet, temp_dir, overwrite, progress
        As for `export`.
    config
        Settings for remote storage.
    executor
        Encodes local metadata, as for `create`.
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
    Files below ``DATA/`` that no row names are not copied; a warning lists them.
    """
    del temp_dir
    with telling(progress, quiet=quiet) as told:
        how = Writing(settings(parquet, "zip"), overwrite, told, executor)
        return _converted(input, output, "zip", config, how)


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
    executor: Workers = None,
    **parquet: Any,
) -> Path:
    """Unpack a dataset in ZIP form into a folder.

    Parameters
    ----------
    input
        The archive, local or remote.
    output
        The folder.
    limit, quiet, rename, progress
        As for `export`.
    overwrite
        Replace an older folder of TACO at the end, if it holds no file that its tables do not name.
    config, executor, **parquet
        As for `folder2zip`.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    NotThisFormatError
        The input is something else than a dataset in ZIP form.
    UnsafeContentError
        An id that could leave its folder, or one that is not a file name everywhere.
    InvalidMetadataError
        An archive with entries that no table names, names that appear twice, entries that are
        compressed, encrypted or no plain files, or bytes that are not those of their entry.
    ConflictError
        The target exists, or is part of the source.
    StorageError, ObjectChangedError
        Source or target fail, or the source changes while it is read.
    """
    _check_limit(limit)
    with telling(progress, quiet=quiet) as told:
        how = Writing(settings(parquet, "folder"), overwrite, told, executor)
        return _converted(input, output, "folder", config, how, limit=limit, rename=rename)


def _converted(
    href: str | os.PathLike[str],
    output: str | os.PathLike[str],
    kind: str,
    config: StorageConfig | None,
    how: Writing,
    *,
    limit: int = 100,
    rename: bool = False,
) -> Path:
    target = targets.target_path(output, config)
    container_of(target, kind)  # refuses names that a folder cannot have
    with open_source(href, config=config) as source:
        container = open_container(source)
        if container.kind != ("folder" if kind == "zip" else "zip"):
            raise NotThisFormatError(
                f"not a dataset in {'FOLDER' if kind == 'zip' else 'ZIP'} form",
                where=shown(source.href, 200),
                found=container.kind,
                hint="load the dataset and use export, which takes every form",
            )
        refuse_sources(target, container.read_hrefs())
        levels = _all_levels(container, limit)
        if kind == "folder":
            _check_whole(container)
        levels = check_foreign(levels, as_files=kind == "folder", rename=rename)
        if kind == "zip" and source.location.is_local:
            levels = _checked_folder(source.href.rstrip("/"), levels)
        document = container.collection | _schemas(container, levels, kind)
        write_levels(levels, document, target, kind, how)
    LOGGER.info("wrote %s", target)
    return target


def _all_levels(container: Container, limit: int) -> Levels:
    count = container.levels[0].num_rows
    if count == 0:
        raise InvalidInputError(
            "the dataset has no samples", where=shown(container.source.href, 200)
        )
    picked = pick([container], np.zeros(count, np.int64), np.arange(count))
    return levels_from([container], picked, [None] * len(picked), limit, links=False)


def _schemas(container: Container, levels: Levels, kind: str) -> dict[str, Any]:
    """The schemas for the collection; ``taco:pit_schema`` is kept if the tree is not regular."""
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


def _checked_folder(root: str, levels: Levels) -> Levels:
    """Refuse links out of a local folder, and warn about files that no row names.

    The returned levels know from the listing whether all files are regular.
    """
    found: list[str] = []
    links: list[str] = []
    plain = True
    with system_errors("cannot list", root, writing=False):
        for name, entry in files_below(f"{root}/{spec.DATA}"):
            found.append(name)
            if not entry.is_file(follow_symlinks=False):
                plain = False
                links += [f"{root}/{spec.DATA}{name}"] if entry.is_symlink() else []
    check_links(root, links)
    try:
        names = pa.array(found, pa.string())
    except UnicodeEncodeError:  # names that are not UTF-8 cannot be ids
        legible = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in found]
        names = pa.array(legible, pa.string())
    known = [path.filter(pc.invert(pc.ends_with(path, "/"))) for path in relative_paths(levels)]
    named = pc.is_in(names, value_set=pa.concat_arrays(known))
    named = pc.or_(named, pc.match_substring_regex(names, _LOCAL_META))
    strange = names.filter(pc.invert(named))
    if len(strange):
        some = ", ".join(shown(name) for name in sorted(strange.to_pylist())[:_SHOWN])
        warn(
            f"{root}: files below {spec.DATA} that no sample names are not copied "
            f"({len(strange):,}): {some}",
            TacoWarning,
        )
    if not plain:
        return levels
    return tuple(
        replace(level, payloads=replace(level.payloads, regular=True))
        if isinstance(level.payloads, Files)
        else level
        for level in levels
    )


# -- checks of entire archives ---------------------------------------------------------------------


def _check_whole(container: Container) -> None:
    """Refuse an archive that other tools could read differently.

    Raises for entries that no row names, appear twice, are not plain stored files or are
    encrypted, and for bytes between or after entries that belong to none.
    """
    where, directory = container.source.href, container.directory()
    findings = new_check(limits=container.limits)
    check_directory(directory, findings)
    levels = [
        Rows(n, level.column(spec.ID), level.folders, paths=level.paths())
        for n, level in enumerate(container.levels)
    ]
    starts, slack = entry_spans(directory)
    check_declared(directory, [true_spans(rows, directory, starts) for rows in levels], findings)
    plan = payloads_plan(directory, np.arange(len(directory)), starts, slack)
    dead = dead_bytes(directory, run(plan, container.source.fetch))
    if dead:
        findings.add("zip-hole", where, f"{counted(dead, 'byte')} belong to no entry")
    report = findings.report(where, "zip")
    if not report.ok:
        raise InvalidMetadataError(
            "the archive does not match its tables",
            where=shown(where, 200),
            found=counted(report.errors, "problem"),
            hint="'comal check' lists all problems; export copies the samples alone",
            problems=[one for one in report.problems if one.severity == "error"][:_MOST],
        )
