"""``comal taco export``: a filtered data set as an archive of its own."""

from __future__ import annotations

from typing import Any

import click

from comal import taco
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.cli.taco.filters import filtered
from comal.errors import counted


@click.command(
    "export",
    cls=Command,
    examples=(
        (
            "comal taco export scenes.tacozip clear.tacozip --where 'cloud_cover < 10'",
            "the clear ones",
        ),
        (
            "comal taco export https://example.org/scenes.tacozip iberia/ --bbox=-10,35,4,44",
            "a region, from a server, into a folder",
        ),
        (
            "comal taco export scenes.tacozip summer.tacozip --datetime 2025-06-01/2025-08-31",
            "a season",
        ),
        (
            "comal taco export parts/__TACOCAT__ whole.tacozip --rename",
            "an index over archives that use an id twice",
        ),
    ),
)
@options.source
@click.argument("output")
@options.where_options
@options.rename
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    output: str,
    *,
    rename: bool,
    overwrite: bool,
    **conditions: Any,
) -> None:
    """Write the samples of X that pass the filters as a data set of its own.

    OUTPUT is one ZIP archive when its name ends in .tacozip or .zip, else a folder. Extent and
    counts are computed anew, and the collection says what it is a part of.
    """
    with taco.load(source) as dataset:
        part = filtered(dataset, isolated=options.is_isolated(source), **conditions)
        with working(f"exporting to {output}", style) as progress:
            taco.export(part, output, rename=rename, overwrite=overwrite, progress=progress)
        count = len(part.data)
    summary: dict[str, Any] = {"output": output, "samples": count}
    if part.placed_by:
        summary["placed_by"] = list(part.placed_by)
    done(summary, style, f"{output}: {counted(count, 'sample')}")
