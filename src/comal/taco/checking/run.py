"""`check`: runs the checks of a container in order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from comal.check import Check, Report
from comal.errors import NotThisFormatError, UnsupportedVersionError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import Workers
from comal.progress import Progress
from comal.storage import Source, StorageConfig, open_beside, open_source
from comal.taco.checking import document, tree
from comal.taco.checking.archive import (
    EntrySpans,
    check_archive,
    check_bounds,
    check_entries,
    check_files,
    check_overlap,
)
from comal.taco.checking.codes import new_check
from comal.taco.checking.comparing import check_collected, check_meta, check_sources
from comal.taco.checking.document import check_values
from comal.taco.checking.subject import Subject, open_subject
from comal.taco.checking.tree import first_of, load
from comal.taco.reading.container import Collected, read_collected


def check(
    href: str | os.PathLike[str],
    *,
    level: str = "full",
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    base_path: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    executor: Workers = None,
) -> Report:
    """List every problem of a TACO container.

    Parameters
    ----------
    href
        Path or URL of a ZIP, a folder, a ``__TACOCAT__`` file, a ``.tacocat`` folder or a
        ``TACOLLECTION.json``.
    level
        ``structure``: all metadata, and of the data only the headers of the entries; ``sample``:
        also one in twenty payloads; ``full``: every byte. For an index or a collection over
        several datasets, ``full`` checks these as well.
    limits
        Limits on memory and sizes that a file may demand.
    config
        Settings for remote storage.
    base_path
        Folder with the datasets of an index or a collection, if they are not beside it.
    progress
        Called with the progress of the check.
    executor
        Checks datasets of an index: an executor, or a number of processes; one by one if None.

    Returns
    -------
    Report
        All problems; also of a container that cannot be opened, if its first bytes are those of
        TACO 2.

    Raises
    ------
    NotThisFormatError, UnsupportedVersionError
        The object is something else.
    ObjectNotFoundError, AccessDeniedError, StorageError, ObjectChangedError
        It does not exist, or cannot be read.
    InvalidInputError
        An unknown level.
    """
    findings = new_check(level, limits, progress)
    with open_source(href, config=config) as source:
        base = None if base_path is None else open_beside(source, base_path)
        try:
            subject = open_subject(source, base, findings)
        except UnsupportedVersionError:
            raise
        except NotThisFormatError:
            listed = read_collected(source, base, limits)
            if listed is None:
                raise
            present = check_collected(listed, findings)
            if level == "full":
                _check_parts(listed, present, findings, executor)
            return findings.report(source.href, "tacollection")
        _check(subject, findings, executor)
        return findings.report(source.href, subject.kind)


def _check(subject: Subject, findings: Check, executor: Workers = None) -> None:
    payload = None
    if subject.directory is not None:
        with findings.guard("zip-directory", subject.where):
            payload = check_archive(subject.source, subject.directory, findings)
    _check_collection(subject, findings)
    sources: list[str] = []
    findings.progress(0, None, "level tables")
    loaded = [load(subject, depth, sources, findings) for depth in range(len(subject.tables))]
    levels = first_of(loaded)
    complete = len(levels) == len(loaded) > 0
    tree.link(levels, findings, complete=complete)
    pit = tree.check_pit(levels, findings)
    if subject.collection is not None and complete:
        tree.check_pit_schema(subject.collection, levels, pit, findings)
    spans: Sequence[EntrySpans] | None = None
    if subject.kind == "zip":
        for rows in levels:
            check_bounds(rows, subject.total, findings)
        if subject.directory is not None and payload is not None:
            spans = check_entries(levels, subject.directory, payload, findings, complete=complete)
        else:
            check_overlap(levels, findings)
    elif subject.kind == "folder":
        check_files(subject.source, levels, findings)
    if subject.kind == "folder" or spans is not None:
        with findings.guard("taco-meta", subject.where):
            check_meta(subject, levels, spans, findings)
    if subject.is_index:
        present = check_sources(subject, levels, sources, findings)
        if findings.one_of == 1:
            _check_parts(subject, present, findings, executor)


def _check_collection(subject: Subject, findings: Check) -> None:
    if subject.collection is None:
        return
    document.check_document(subject.collection, findings)
    document.check_field_schema(subject.collection, subject.tables, findings)
    check_values(subject.tables, findings)
    with findings.guard("taco-table", "extent"):
        document.check_extent(subject.collection, subject.tables, findings)


def _check_parts(
    index: Subject | Collected, names: Sequence[str], findings: Check, executor: Workers
) -> None:
    findings.take_from(_check_part, [index.part(name) for name in names], executor, *names)


def _check_part(source: Source, findings: Check) -> None:
    """Check a dataset of an index; the index itself reports what is something else."""
    with suppress(NotThisFormatError):
        _check(open_subject(source, None, findings), findings)
