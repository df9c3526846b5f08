"""`create`: a new file, or a new set of them (the specification, "Format")."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from comal.errors import InvalidInputError, shown
from comal.progress import Progress, silent
from comal.public import takes, warn
from comal.samples.payloads import refuse_read
from comal.samples.tables import Names
from comal.storage import href_text, targets
from comal.storage.kinds import check_ending
from comal.table.columns import one_array
from comal.tortilla import spec
from comal.tortilla.spec import TortillaWarning
from comal.tortilla.writing import samples as preparing
from comal.tortilla.writing.columns import check_ids
from comal.tortilla.writing.describing import wants_place, with_formats, with_place
from comal.tortilla.writing.files import Cut, How, Router, Telling, part_set, write_items
from comal.tortilla.writing.samples import Prepared, batches_of, mapped, with_values

if TYPE_CHECKING:
    # It brings shapely, which few need.
    from comal.tortilla.writing.enriching import Enrichment


@dataclass(frozen=True, slots=True)
class Created:
    """What was written."""

    paths: tuple[Path, ...]
    """The files, in the order of their parts; relative where the output was named so."""
    rows: int
    """Items, without what is nested in them."""
    is_stac: bool
    """Whether it is a ``stac-tortilla``: all required columns, and no null in them."""
    is_rai: bool
    """Whether it is a ``rai-tortilla``."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the specification that it belongs to."""
        named = (("stac-tortilla", self.is_stac), ("rai-tortilla", self.is_rai))
        return tuple(name for name, holds in named if holds)

    @property
    def path(self) -> Path:
        """The file; of several the first."""
        return self.paths[0]

    def __fspath__(self) -> str:
        return os.fspath(self.path)


@dataclass(slots=True)
class _Classes:
    """Whether all rows so far have what the classes of the specification ask for."""

    lacking: set[str] = field(default_factory=set)

    def look(self, table: Any) -> None:
        for name in (*spec.STAC_REQUIRED, *spec.RAI_REQUIRED):
            if name not in table.column_names or table[name].null_count:
                self.lacking.add(name)

    def holds(self, names: Iterable[str]) -> bool:
        return not self.lacking.intersection(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOptions:
    """Where a set is cut, and how its files are written; see `create`."""

    chunk_size: int | str | None = None
    chunk_rows: int | None = None
    chunk_by: str | None = None
    first_part: int = 1
    peer_names: bool = False
    allow_ids: bool = False
    parquet: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the footer."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SetOptions:
        """What a caller has given; what is none of these is a setting of the footer."""
        own = {name: value for name, value in given.items() if name in cls.__dataclass_fields__}
        rest = {name: value for name, value in given.items() if name not in own}
        return cls(**{**own, "parquet": {**own.get("parquet", {}), **rest}})

    @property
    def cut(self) -> Cut:
        """Where the set is cut."""
        return Cut.of(self.chunk_size, self.chunk_rows, self.chunk_by)

    def how(self, **more: Any) -> How:
        """How the files are written."""
        return How(
            first_part=self.first_part, aliases=self.peer_names, parquet=self.parquet, **more
        )


@takes(SetOptions)
def create(
    samples: Any,
    output: str | os.PathLike[str],
    *,
    stac: bool | None = None,
    rai: Enrichment | None = None,
    id: str = "id",  # noqa: A002 - names of the columns of a table
    path: str = "path",
    base: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> Created:
    """Write samples as a Tortilla of version 0.5.0.

    The file appears complete or not at all, and the same samples always give the same bytes.

    Parameters
    ----------
    samples
        `Samples` or a list of `Sample`; a table (Arrow, or a frame of another library) with a row
        per item; or an iterator of samples, record batches or tables, which are written as they
        come.
    output
        The file, by convention ``name.tortilla``. Several are called
        ``name.0001.part.tortilla``, ``name.0002.part.tortilla``, ...
    chunk_size, chunk_rows, chunk_by
        Cut the set into files of so many bytes of items (a number, or ``"20GB"``), of so many
        items, or by the values of a column. An item is never cut.
    first_part
        Number of the first part: 1 as the specification says, or 0 as published sets have it.
    stac
        Fill the missing ``stac:*`` columns of place from the headers of rasters: always, never,
        or (None) when any of these columns is given.
    rai
        Compute the ``rai:*`` columns from rasters and areas, for the items of one level.
    peer_names
        Write ``rai:ele`` in the place of ``rai:elevation``, as published files have it, at every
        level.
    id, path, base
        Of tables: the columns of ids and of payloads (paths as text, or bytes), and the folder of
        relative paths, the working folder when None. Columns ``file_format`` and ``data_split``
        are those of the specification; every other one is kept under its name.
    overwrite
        Replace existing files at the end, as a whole.
    allow_ids
        Keep ids that are not portable, as rows of published files have them.
    progress
        Told how many samples are written.
    executor
        Reads the headers of rasters; threads when None.
    **options
        Those above that have no default here, and settings of the footer: compression,
        compression_level, row_group_size, ...

    Returns
    -------
    Created
        The paths, and whether it is a ``stac-tortilla`` or a ``rai-tortilla``.

    Raises
    ------
    InvalidInputError
        A sample or an argument that cannot be written.
    ConflictError
        The target exists (and `overwrite` is False), or is one of the sources.
    ObjectNotFoundError, AccessDeniedError, StorageError
        A source or the target fails.
    """
    names = Names(id, path, base=href_text(base) if base is not None else "")
    chosen = SetOptions.of(options)
    how = chosen.how(overwrite=overwrite, key_values=rai.sources() if rai is not None else {})
    check_ending(output, *spec.ENDINGS)
    cut = chosen.cut
    batches = (
        described(items, stac=stac, rai=rai, allow_ids=chosen.allow_ids, executor=executor)
        for items in batches_of(samples, names)
    )
    tier = 1 if chosen.allow_ids else 2
    return write_set(batches, targets.local_path(output), cut, how, tier=tier, progress=progress)


def described(
    items: Prepared,
    *,
    stac: bool | None = None,
    rai: Enrichment | None = None,
    allow_ids: bool | None = None,
    executor: Executor | None = None,
) -> Prepared:
    """Items that are checked, and whose formats, places and RAI columns are filled in.

    Parameters are those of `create`; None stands for callers that have no `allow_ids`.
    """
    preparing.check(items, "samples", tier=1 if allow_ids else 2, keeps=allow_ids is False)
    items = mapped(items, with_formats)
    if stac or (stac is None and wants_place(items)):
        items = mapped(items, lambda level: with_place(level, executor))
    if rai is not None:
        items = _enriched(items, rai, rai.level)
    return items


def _enriched(items: Prepared, rai: Enrichment, down: int) -> Prepared:
    """The items, with RAI columns for those so many levels down."""
    if down:
        if items.below is None:
            raise InvalidInputError(
                "no samples are nested so deep", found=f"level {rai.level} of the RAI columns"
            )
        return replace(items, below=_enriched(items.below, rai, down - 1))
    for name, values in rai.columns(items.table).items():
        items = with_values(items, name, values)
    return items


def create_nested(
    tables: Sequence[Any],
    output: str | os.PathLike[str],
    *,
    parent: str = "parent",
    **arguments: Any,
) -> Created:
    """Write nested items that come as one table per level, outermost first.

    Parameters
    ----------
    tables
        Rows without a path are nested items. From the second table on, the column `parent` names
        the row above: by its number, or by its id where ids above are unique.
    output
        As for `create`.
    parent
        Name of that column.
    **arguments
        As for `create`.
    """
    base = arguments.get("base")
    names = Names(
        arguments.get("id", "id"),
        arguments.get("path", "path"),
        parent,
        href_text(base) if base is not None else "",
    )
    return create(preparing.from_tables(tables, names), output, **arguments)


def write_set(
    batches: Iterable[Prepared],
    output: Path,
    cut: Cut,
    how: How,
    *,
    tier: int = 2,
    progress: Progress | None = None,
) -> Created:
    """Write items whose formats are known; the way of everything that makes new files.

    Parameters
    ----------
    batches
        Items in their order.
    output
        The file, or what the parts are named after.
    cut, how
        Where to cut, and how to write.
    tier
        How strict ids are checked, see `check_ids`.
    progress
        Told how many items are written.
    """
    telling = Telling(progress or silent)
    router, classes, ids = Router(cut), _Classes(), []
    with part_set(output, how) as parts:
        alike = parts.named_alike()
        for items in batches:
            if not len(items):
                continue
            refuse_read(alike, [level.payloads for level in items.levels()])
            classes.look(items.table)
            ids.append(one_array(items.table[spec.ID]))
            for number, rows in router.route(items):
                part = parts.part(number)
                chosen = items.take(rows)
                part.add(chosen.table, write_items(part.out, chosen, telling, aliases=how.aliases))
        if not ids:
            raise InvalidInputError("no samples", expected="at least one")
        if len(ids) > 1:
            check_ids(pa.concat_arrays(ids), "samples", tier=tier)
        parts.finish()
        telling.oddities.warn(shown(output.name))
        paths = parts.publish()
    _warn_of_name(paths)
    return Created(
        tuple(paths),
        telling.done,
        classes.holds(spec.STAC_REQUIRED),
        classes.holds(spec.RAI_REQUIRED),
    )


def _warn_of_name(paths: list[Path]) -> None:
    if len(paths) == 1 and paths[0].suffix not in spec.ENDINGS:
        warn(f"{shown(paths[0].name)}: a Tortilla should be called name.tortilla", TortillaWarning)
