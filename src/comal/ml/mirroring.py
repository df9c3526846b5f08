"""A part of an archive as an archive that opens in the same way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from comal.errors import InvalidInputError, shown
from comal.ml.archives import filtered, opened
from comal.ml.decoding import Field
from comal.ml.index import Branch, leaves_of
from comal.progress import Progress, telling
from comal.storage import StorageConfig
from comal.storage.targets import target_path
from comal.taco import TacoDataset
from comal.taco.copying.exporting import date_of, export_part
from comal.taco.model.levels import Levels, check_pit, select
from comal.taco.writing.containers import Writing, settings
from comal.taco.writing.creating import container_of
from comal.tortilla import TortillaFrame, compile  # noqa: A004 - the name in comal.tortilla


def mirror(
    source: str | os.PathLike[str] | TacoDataset | TortillaFrame,
    target: str | os.PathLike[str],
    *,
    fields: Sequence[str] | None = None,
    where: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> Path:
    """Copy some samples of an archive, and of each some leaves.

    Parameters
    ----------
    source
        Path or URL of a TACO or a Tortilla, or an open data set, which may be filtered.
    target
        For a TACO a ZIP where the name ends in ``.tacozip`` or ``.zip``, else a folder; for a
        Tortilla a file. It may be in a store.
    fields
        Leaves to copy, by their ids below a sample as in `Field`; None for all. Those of a
        Tortilla cannot be chosen: its nested files are copied whole.
    where
        A condition in SQL over the columns of samples.
    overwrite, progress, config
        As for `comal.taco.export`, and so is what is returned and raised.

    Raises
    ------
    InvalidInputError
        No sample has a leaf of `fields`; some have it and some do not; `fields` of a Tortilla.
    """
    if isinstance(fields, str):
        raise InvalidInputError(
            "leaves are chosen by a list", found=shown(fields), expected="['image.tif', ...]"
        )
    place, found = target_path(target, config), opened(source)
    found = found if where is None else filtered(found, where)
    if isinstance(found, TacoDataset):
        choose = None if fields is None else partial(_chosen, fields=list(map(Field, fields)))
        kind = container_of(place, "auto")
        with telling(progress, quiet=False) as told:
            how = Writing(settings({}, kind), overwrite, told)
            return export_part(found, place, kind, how, date_of(None), choose=choose)
    if fields is not None:
        raise InvalidInputError(
            "leaves of a Tortilla cannot be chosen",
            found=shown(", ".join(fields)),
            hint="convert it to a TACO first",
        )
    compile(found, place, overwrite=overwrite, progress=progress)
    return place


def _chosen(levels: Levels, fields: Sequence[Field]) -> Levels:
    """The levels with only the leaves of some fields, and the folders around them."""
    branches = [Branch(one.ids, one.parent, ~one.folders, one.payloads) for one in levels]
    kept = [np.zeros(level.rows, np.bool_) for level in levels]
    kept[0][:] = True
    for field in fields:
        depth = len(field.parts)
        rows = leaves_of(branches, field) if depth < len(levels) else np.zeros(0, np.int64)
        rows = rows[rows >= 0]
        if not len(rows):
            raise InvalidInputError("no sample has this leaf", found=shown(field.leaf))
        kept[depth][rows] = True
    for depth in range(len(levels) - 1, 1, -1):
        kept[depth - 1][levels[depth].parent[kept[depth]]] = True
    found = tuple(one for one in select(levels, *map(np.flatnonzero, kept)) if one.rows)
    check_pit(found)
    return found
