"""A part of an archive as an archive that opens in the same way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
from comal.tortilla.archive import Home, Level
from comal.tortilla.creating import compile_part


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
        Leaves to copy, by their ids below a sample as in `Field`; None for all.
    where
        A condition in SQL over the columns of samples.
    overwrite, progress, config
        As for `comal.taco.export`, and so is what is returned and raised.

    Raises
    ------
    InvalidInputError
        A sample lacks a leaf of `fields`; the samples of a TACO have different numbers of leaves.
    """
    if isinstance(fields, str) or (fields is not None and not len(fields)):
        raise InvalidInputError(
            "leaves are chosen by a list", found=shown(repr(fields)), expected="['image.tif', ...]"
        )
    place, found = target_path(target, config), opened(source)
    found = found if where is None else filtered(found, where)
    wanted = None if fields is None else list(map(Field, fields))
    if isinstance(found, TacoDataset):
        choose = None if wanted is None else partial(_of_taco, fields=wanted)
        kind = container_of(place, "auto")
        with telling(progress, quiet=False) as told:
            how = Writing(settings({}, kind), overwrite, told)
            return export_part(found, place, kind, how, date_of(None), choose=choose)
    if not len(found):
        raise InvalidInputError("nothing to copy: no sample is left", hint="loosen the condition")
    if wanted is None:
        compile(found, place, overwrite=overwrite, progress=progress)
    else:
        choose_items = partial(_of_tortilla, home=found.home, fields=wanted)
        compile_part(found, place, choose_items, overwrite=overwrite, progress=progress)
    return place


def _of_taco(levels: Levels, fields: Sequence[Field]) -> Levels:
    """The levels with only the leaves of some fields, and the folders around them."""
    branches = [Branch(one.ids, one.parent, ~one.folders, one.payloads) for one in levels]
    masks = map(np.flatnonzero, _wanted(branches, fields))
    found = tuple(one for one in select(levels, *masks) if one.rows)
    check_pit(found)
    return found


def _of_tortilla(levels: list[Level], home: Home, fields: Sequence[Field]) -> list[Any]:
    """Which items of each level are the leaves of some fields, or hold them."""
    spans = [home.spans(one.table, np.arange(len(one))) for one in levels]
    parts = zip(levels, spans, strict=True)
    branches = [Branch(one.ids, one.parents, ~one.folders, span) for one, span in parts]
    return _wanted(branches, fields)


def _wanted(branches: Sequence[Branch], fields: Sequence[Field]) -> list[Any]:
    """For each depth a mask of the samples, the leaves of some fields, and what is between."""
    kept = [np.zeros(len(branch.ids), np.bool_) for branch in branches]
    kept[0][:] = True
    for field in fields:
        depth, rows = len(field.parts), np.full(len(kept[0]), -1)
        rows = leaves_of(branches, field) if depth < len(branches) else rows
        rows = rows if rows.ndim > 1 else rows[:, None]
        lacking = (rows < 0).all(axis=1)
        if lacking.any() or depth >= len(branches):
            what = f"{'no' if lacking.all() else 'not every'} sample has this leaf"
            raise InvalidInputError(what, found=shown(field.leaf))
        kept[depth][rows[rows >= 0]] = True
    for depth in range(len(branches) - 1, 1, -1):
        kept[depth - 1][branches[depth].parents[kept[depth]]] = True
    return kept
