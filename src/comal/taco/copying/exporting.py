"""Filtered datasets as containers of their own: `export` (TACO 2.0, 7.1.3).

The rows of the view and everything below them become levels, and the writer of `create` writes
them. The bytes are copied by range, neighbours together, and never held as a whole.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comal.errors import InvalidInputError, shown
from comal.geo.times import parse_instant
from comal.progress import Progress, telling
from comal.storage import targets
from comal.storage.kinds import refuse_sources
from comal.taco import spec
from comal.taco.copying.foreign import check_foreign
from comal.taco.copying.gather import view_levels
from comal.taco.model.extent import extent_of
from comal.taco.model.levels import Levels
from comal.taco.reading.dataset import TacoDataset
from comal.taco.spec import LOGGER
from comal.taco.writing.containers import Writing, computed_schemas, settings
from comal.taco.writing.creating import container_of, write_levels

_OF_AN_INDEX = frozenset({"_tacocat", spec.SOURCES})
"""Keys that tell which archives an index is over; a container of its own is over none."""


def export(
    dataset: TacoDataset,
    output: str | os.PathLike[str],
    output_format: str = "auto",
    quiet: bool = False,  # noqa: FBT001, FBT002 - the position that the specification gives it
    limit: int = 100,
    temp_dir: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    rename: bool = False,
    subset_date: str | dt.datetime | None = None,
    progress: Progress | None = None,
    **parquet: Any,
) -> Path:
    """Write the rows of a dataset's current view, with all that is below them, as a container.

    Parameters
    ----------
    dataset
        From `load` or `concat`, filtered or not, local or remote.
    output
        Target: a file for ZIP, a folder for FOLDER.
    output_format
        ``zip``, ``folder`` or ``auto``: ZIP when the name ends in ``.zip`` or ``.tacozip``.
    quiet
        Show no progress on a terminal.
    limit
        Requests in flight at once while remote bytes are copied.
    temp_dir
        Accepted for the specification's sake; what is temporary lies beside the target.
    overwrite
        Replace an existing target at the end, as a whole.
    rename
        Give ids that some file system cannot hold a safe name. Without it they are a warning in a
        ZIP and an error in a FOLDER, where they become names of files. Of roots with one id, as
        the archives of an index may have (only ``internal:source_file`` tells these apart, 7.2.3),
        the second becomes ``id_2`` and so on, before the ending, in the order of the view; without
        it they are an error, because ids are unique among siblings.
    subset_date
        The time to put into ``taco:subset_date``: now when None, or what the environment variable
        ``SOURCE_DATE_EPOCH`` says. It is the one thing that differs between two exports.
    progress
        Told how far the copy is, instead of the terminal.
    **parquet
        Settings of the level tables: ``compression``, ``compression_level``, ``row_group_size``,
        ...

    Returns
    -------
    pathlib.Path
        The target.

    Raises
    ------
    InvalidInputError
        A view without rows, ids that stand twice without `rename` (as in a concatenation of
        overlapping parts), rows that differ in structure, arguments that cannot be used.
    QueryError
        A view whose rows cannot be found again, because its query dropped `id` and the
        ``internal:`` columns.
    UnsafeContentError
        An id that could leave its folder, or one that is no file name everywhere.
    InvalidMetadataError
        A sample whose bytes are not those that its archive says.
    ConflictError
        The target exists, or is part of the source.
    StorageError, ObjectChangedError
        Source or target fail, or the source changes while it is read.

    Notes
    -----
    What a query of the caller makes of level 0 is what is written: metadata columns that it drops
    are dropped, and those that it computes are kept if their names follow the key grammar (letters,
    digits, ``_`` and one ``:``). `id`, `type` and the ``internal:`` columns are always those of the
    samples, whatever the query says. Deeper levels keep all their columns.

    Children are complete. Padding of the source that nothing needs any more goes away; where roots
    differ in what they have, empty ``__TACOPAD__N`` samples fill the gaps.

    Every other key of the collection stays. Extent (as far as columns tell it), counts, ``shape``
    and ``taco:field_schema`` are computed anew; ``taco:subset_of`` is the id of the source.
    """
    del temp_dir
    if not isinstance(dataset, TacoDataset):
        raise InvalidInputError(
            "not a dataset", found=type(dataset).__name__, hint="pass what load returns"
        )
    target = targets.local_path(output)
    kind = container_of(target, output_format)
    check_limit(limit)
    how = settings(parquet, kind)
    stamp = _date(subset_date)
    containers = dataset.home.containers
    refuse_sources(target, [href for one in containers for href in one.read_hrefs()])
    levels = view_levels(dataset, limit)
    levels = check_foreign(levels, as_files=kind == "folder", rename=rename)
    document = _document(dataset.collection, levels, kind, stamp)
    with telling(progress, quiet=quiet) as told:
        write_levels(levels, document, target, kind, Writing(how, overwrite, told))
    LOGGER.info("exported %d samples to %s", levels[0].rows, target)
    return target


async def export_async(
    dataset: TacoDataset, output: str | os.PathLike[str], *args: Any, **named: Any
) -> Path:
    """As `export`, without blocking the event loop."""
    return await asyncio.to_thread(export, dataset, output, *args, **named)


def check_limit(limit: Any) -> None:
    """Refuse what is no number of requests."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InvalidInputError("limit is a number of requests", found=repr(limit))


def _date(given: str | dt.datetime | None) -> str:
    """The value of ``taco:subset_date``, in UTC."""
    if given is not None:
        moment = dt.datetime.fromtimestamp(parse_instant(given) / 1_000_000, dt.UTC)
        return moment.isoformat()
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    if not epoch.isascii() or not epoch.isdigit() or len(epoch) > 11:
        raise InvalidInputError(
            "SOURCE_DATE_EPOCH is no time", found=shown(epoch), expected="seconds since 1970"
        )
    return dt.datetime.fromtimestamp(int(epoch), dt.UTC).isoformat()


# -- the collection -------------------------------------------------------------------------------


def _document(
    collection: Mapping[str, Any], levels: Levels, kind: str, stamp: str
) -> dict[str, Any]:
    kept = {key: value for key, value in collection.items() if key not in _OF_AN_INDEX}
    document = {key: kept.pop(key) for key in spec.CORE_FIELDS if key in kept}
    document["taco_version"] = spec.TACO_VERSION
    document["extent"] = extent_of(levels, collection.get("extent"))
    computed = (spec.PIT_SCHEMA, spec.FIELD_SCHEMA, spec.SUBSET_OF, spec.SUBSET_DATE)
    document |= {key: value for key, value in kept.items() if key not in computed}
    document[spec.SUBSET_OF] = collection.get("id")
    document[spec.SUBSET_DATE] = stamp
    return document | computed_schemas(levels, spans=kind == "zip")
