"""The filters of ``export`` and others, applied to a data set."""

from __future__ import annotations

from comal.cli.options import parse_bbox
from comal.taco.reading.dataset import TacoDataset


def filtered(
    dataset: TacoDataset,
    *,
    bbox: str | None,
    datetime_range: str | None,
    level: int | None,
    where: str | None,
    isolated: bool = False,
) -> TacoDataset:
    """`dataset` restricted by what was given; all of it must hold."""
    view = dataset
    if bbox is not None:
        view = view.filter_bbox(*parse_bbox(bbox), level=level)
    if datetime_range is not None:
        view = view.filter_datetime(datetime_range, level=level)
    if where is not None:
        # The condition is the caller's own SQL; the engine takes one SELECT and nothing else.
        text = f"SELECT * FROM data WHERE ({where}\n)"  # noqa: S608
        view = view.sql(text, isolated=isolated)
    return view
