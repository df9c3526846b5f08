"""Opening datasets (7.2.1)."""

from __future__ import annotations

import os
from collections.abc import Sequence

from comal.errors import InvalidInputError, NotThisFormatError, UnsupportedVersionError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.storage import Source, StorageConfig, open_beside, open_source, reload_once
from comal.taco import wire
from comal.taco.reading.collected import read_collected
from comal.taco.reading.container import Container, open_container
from comal.taco.reading.dataset import TacoDataset
from comal.taco.reading.joining import concat
from comal.taco.reading.stages import ColumnMode, Scan
from comal.taco.verbosity import LOGGER

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
        source = _source(path, config)
        base = None if base_path is None else open_beside(source, base_path)
        return open_container(source, base=base, tail=tail, limits=limits)

    try:
        container = reload_once(opened)
    except UnsupportedVersionError:
        raise
    except NotThisFormatError:
        source = _source(path, config)
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


def _source(location: Location, config: StorageConfig | None) -> Source:
    if isinstance(location, str | os.PathLike):
        return open_source(location, config=config)
    if not hasattr(location, "fetch"):
        raise InvalidInputError(
            "a dataset is named by a path, a URL or a source", found=type(location).__name__
        )
    return location
