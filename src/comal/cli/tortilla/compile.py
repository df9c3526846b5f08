"""``comal tortilla compile``: a part of a Tortilla as a file of its own."""

from __future__ import annotations

from typing import Any

import click
import pyarrow.compute as pc

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import working
from comal.cli.tortilla import cutting
from comal.cli.tortilla.cutting import cut_of, cut_options, report
from comal.errors import InvalidInputError, shown
from comal.tortilla import TortillaFrame
from comal.tortilla import compile as compile_rows
from comal.tortilla import open as open_frame
from comal.tortilla.spec import DATA_SPLIT


@click.command(
    "compile",
    cls=Command,
    examples=(
        ("comal tortilla compile scenes.tortilla train.tortilla --split train", "one split"),
        (
            "comal tortilla compile https://example.org/s.tortilla two.tortilla --id s1 --id s2",
            "two samples from a server",
        ),
        (
            "comal tortilla compile scenes.tortilla clear.tortilla --where 'cloud_cover < 10'",
            "those for which a condition holds",
        ),
        (
            "comal tortilla compile scenes.tortilla iberia.tortilla --bbox=-10,35,4,44",
            "a region; --datetime 2025-06-01/2025-08-31 beside it leaves a season of that",
        ),
        (
            "comal tortilla compile scenes.tortilla two.tortilla --nested s1 --id red.tif",
            "samples of a nested Tortilla",
        ),
        ("comal tortilla compile scenes.tortilla few.tortilla --head 100", "the first hundred"),
    ),
)
@options.source
@click.argument("output")
@click.option("--id", "ids", multiple=True, help="A sample to take; repeatable, in this order.")
@click.option(
    "--nested", metavar="ID", help="Of what the Tortilla within X at ID (a or a/b) holds."
)
@click.option("--split", type=click.Choice(["train", "validation", "test"]), help="One split.")
@options.row_options
@click.option("--head", type=click.IntRange(1), metavar="N", help="At most the first N of them.")
@click.option("--siblings", is_flag=True, help="X is one part of a set; take all of it.")
@click.option("--allow-ids", is_flag=True, help="Keep ids that no file system could hold.")
@cutting.peer_names
@cut_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    output: str,
    ids: tuple[str, ...],
    nested: str | None,
    split: str | None,
    bbox: str | None,
    datetime_range: str | None,
    where: str | None,
    head: int | None,
    *,
    siblings: bool,
    allow_ids: bool,
    peer_names: bool,
    overwrite: bool,
    **cut: Any,
) -> None:
    """Write the samples of X that pass the filters as a Tortilla of its own.

    Samples keep their order and their bytes; the first one that cannot be read ends it, and
    nothing is written.
    """
    frame = open_frame(source, siblings=siblings)
    if nested is not None:
        frame = _nested(frame, nested)
    if split is not None:
        frame = _of_split(frame, split)
    if bbox is not None:
        frame = frame.filter_bbox(*options.parse_bbox(bbox))
    if datetime_range is not None:
        frame = frame.filter_datetime(datetime_range)
    if where is not None:
        frame = frame.where(where, isolated=options.is_isolated(source))
    if head is not None:
        frame = frame.head(head)
    with working(f"writing {output}", style) as progress:
        made = compile_rows(
            frame,
            output,
            ids=list(ids) or None,
            allow_ids=allow_ids,
            peer_names=peer_names,
            overwrite=overwrite,
            progress=progress,
            **cut_of(**cut),
        )
    report(made, style, frame.placed_by)


def _nested(frame: TortillaFrame, key: str) -> TortillaFrame:
    found = frame.read(key)
    if not isinstance(found, TortillaFrame):
        raise InvalidInputError("no nested Tortilla", where="--nested", found=shown(key))
    return found


def _of_split(frame: TortillaFrame, split: str) -> TortillaFrame:
    if DATA_SPLIT not in frame.columns:
        raise InvalidInputError(f"no column {DATA_SPLIT}", where="--split")
    return frame.filter(pc.equal(frame[DATA_SPLIT], split))
