"""``comal tortilla append``: more items in a Tortilla."""

from __future__ import annotations

from pathlib import Path

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.errors import counted
from comal.tortilla import Sample, append


@click.command(
    "append",
    cls=Command,
    examples=(
        ("comal tortilla append scenes.tortilla new.tif newer.tif", "two files more"),
        ("comal tortilla append scenes.tortilla new.tif --split test", "as test data"),
    ),
)
@click.argument("file")
@click.argument("items", nargs=-1, required=True)
@click.option("--split", type=click.Choice(["train", "validation", "test"]), help="Their split.")
@click.option("--stac", is_flag=True, help="Read CRS, shape and place of the rasters.")
@options.pass_style
def command(
    style: options.Style, file: str, items: tuple[str, ...], split: str | None, *, stac: bool
) -> None:
    """Add ITEMS, which are files, to the Tortilla FILE; their names become their ids.

    New data and a new footer are written behind the old ones, then the header is switched: a
    crash leaves the old file or the new one.
    """
    samples = [Sample(Path(item).name, path=item, data_split=split) for item in items]
    with working(f"appending to {file}", style) as progress:
        count = append(file, samples, stac=stac or None, progress=progress)
    done({"output": file, "samples": count}, style, f"{file}: {counted(count, 'sample')}")
