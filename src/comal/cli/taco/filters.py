"""The filters of ``export`` and others, applied to a data set."""

from __future__ import annotations

from collections.abc import Sequence

from comal.cli.options import parse_bbox
from comal.taco.reading.dataset import TacoDataset
from comal.taco.spec import GEOMETRY_COLUMNS, TIME_COLUMNS


def filtered(
    dataset: TacoDataset,
    *,
    bbox: str | None,
    datetime_range: str | None,
    level: int | None,
    where: str | None,
) -> TacoDataset:
    """`dataset` restricted by what was given; all of it must hold."""
    view = dataset
    if bbox is not None:
        at = _level_with(dataset, GEOMETRY_COLUMNS) if level is None else level
        view = view.filter_bbox(*parse_bbox(bbox), level=at)
    if datetime_range is not None:
        at = _level_with(dataset, TIME_COLUMNS) if level is None else level
        view = view.filter_datetime(datetime_range, level=at)
    if where is not None:
        # The condition is the caller's own SQL; the engine takes one SELECT and nothing else.
        view = view.sql(f"SELECT * FROM data WHERE ({where}\n)")  # noqa: S608
    return view


def _level_with(dataset: TacoDataset, columns: Sequence[str]) -> int:
    """The first level with one of `columns`; 0, which says what is missing, when there is none."""
    for level in dataset.home.containers[0].levels:
        if set(columns) & set(level.columns):
            return level.index
    return 0
