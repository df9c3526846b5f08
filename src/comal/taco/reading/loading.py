"""Opening datasets (7.2.1)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from comal import strictjson
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    UnsafeContentError,
    UnsupportedVersionError,
    shown,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.names import illegal
from comal.plan import Head, Whole
from comal.storage import Source, StorageConfig, as_source, open_beside, reload_once
from comal.taco import spec, wire
from comal.taco.reading.container import Container, open_container
from comal.taco.reading.dataset import TacoDataset, concat
from comal.taco.reading.stages import ColumnMode, Scan
from comal.taco.spec import LOGGER

Location = str | os.PathLike[str] | Source


def load(
    path: Location | Sequence[Location],
    base_path: Location | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    tail: int = wire.DEFAULT_TAIL,
    column_mode: ColumnMode = "intersection",
) -> TacoDataset:
    """Open a dataset, or several as one.

    Only headers, COLLECTION.json and the footers of the level tables are read: of a ZIP in one
    round trip of two requests, where the last `tail` bytes hold them.

    Parameters
    ----------
    path
        Path or URL of a ZIP, a folder, a ``__TACOCAT__`` file or a ``.tacocat`` folder (or the
        folder that holds one), told apart by their bytes; or a list, whose datasets become one by
        `concat`, as those do that a ``TACOLLECTION.json`` names. An open `Source` is taken as it
        is.
    base_path
        Folder with the parts of a TACOCAT or a TACOLLECTION, where they are not beside it.
        Credentials of `config` belong to `path`; a folder at another origin that needs some is
        given as an open source.
    limits
        Caps on what a file may make us hold.
    config
        How to speak to remote storage.
    tail
        Bytes at the end of a file that are read at once.
    column_mode
        For a list or a TACOLLECTION: see `concat`.

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError, StorageError
        Nothing is there, or it cannot be read.
    ObjectChangedError
        It was replaced while it was opened, and again when that was tried once more.
    NotThisFormatError, UnsupportedVersionError
        Something else is there.
    InvalidMetadataError, UnsafeContentError, LimitExceededError
        The content is broken, hostile, or too large.
    InvalidInputError
        An empty list, or datasets that do not go together.
    """
    if isinstance(path, Sequence) and not isinstance(path, str):
        if not path:
            raise InvalidInputError("nothing to load", expected="at least one path")
        datasets = [load(one, base_path, limits=limits, config=config, tail=tail) for one in path]
        return concat(datasets, column_mode)

    def opened() -> Container:
        source = as_source(path, config=config)
        base = None if base_path is None else open_beside(source, base_path)
        return open_container(source, base=base, tail=tail, limits=limits)

    try:
        container = reload_once(opened)
    except UnsupportedVersionError:
        raise
    except NotThisFormatError:
        source = as_source(path, config=config)
        base = None if base_path is None else open_beside(source, base_path)
        listed = read_collected(source, base, limits)
        if listed is None:
            raise
        parts = [
            open_container(listed.part(name), tail=tail, limits=limits) for name in listed.files
        ]
        joined = concat([TacoDataset(Scan(one), one.collection) for one in parts], column_mode)
        return TacoDataset(joined.view, listed.document)
    href, levels = container.source.href, len(container.levels)
    LOGGER.info("loaded %s: %s, %d levels", href, container.kind, levels)
    return TacoDataset(Scan(container), container.collection)


# -- TACOLLECTION ----------------------------------------------------------------------------------


_HEAD = 64


@dataclass(frozen=True, slots=True)
class Collected:
    """A collection document and the names of its datasets."""

    source: Source
    document: dict[str, Any]
    files: tuple[str, ...]
    base: Source | None

    def part(self, name: str) -> Source:
        """The dataset of this name, beside the document or in the folder that was named."""
        return self.source.sibling(name) if self.base is None else self.base.child(name)


def read_collected(
    source: Source, base: Source | None = None, limits: Limits = DEFAULT_LIMITS
) -> Collected | None:
    """The document at `source`; None where no JSON is.

    Raises
    ------
    NotThisFormatError
        JSON that names no datasets, such as the COLLECTION.json of one.
    UnsupportedVersionError
        Another major version of TACO.
    InvalidMetadataError, LimitExceededError, UnsafeContentError
        JSON that is broken, too large, or whose names are no names of files.
    """
    (head,) = source.fetch([Head(_HEAD)])
    if not head.data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return None
    (piece,) = source.fetch([Whole(limits.json_bytes)])
    document = strictjson.loads(piece.data, source.href, limits)
    listed = document.get(spec.SOURCES)
    if listed is None:
        raise NotThisFormatError(
            "a JSON document that names no datasets",
            where=source.href,
            expected=f"{spec.SOURCES}, as in a {spec.TACOLLECTION}",
            hint=f"of a dataset in a folder, open the folder that holds {spec.COLLECTION}",
        )
    version = document.get("taco_version")
    if not spec.version_is_readable(version):
        raise UnsupportedVersionError(
            "unknown version of TACO", where=source.href, found=shown(version), expected="2.x"
        )
    return Collected(source, document, _files(listed, source.href), base)


def _files(listed: Any, where: str) -> tuple[str, ...]:
    files = listed.get("files") if isinstance(listed, dict) else None
    texts = [name for name in files if isinstance(name, str)] if isinstance(files, list) else []
    if not texts or texts != files or len(set(texts)) < len(texts):
        raise InvalidMetadataError(
            f"{spec.SOURCES}.files is no list of datasets",
            where=where,
            found=shown(files),
            expected="their names, each once",
        )
    for name in texts:
        reason = illegal(name)
        if reason is not None:
            raise UnsafeContentError(
                f"{spec.SOURCES}.files holds no file name: it {reason}",
                where=where,
                found=shown(name),
            )
    return tuple(texts)
