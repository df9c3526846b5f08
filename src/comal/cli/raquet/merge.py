"""``comal raquet merge``: the parts of a set as one file."""

from __future__ import annotations

from pathlib import Path

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, human_size, working
from comal.errors import counted


@click.command(
    "merge",
    cls=Command,
    examples=(
        ("comal raquet merge dem/ -o dem.parquet", "all parts in a folder"),
        ("comal raquet merge z6_33_22.parquet z6_34_22.parquet -o two.parquet", "two of them"),
    ),
)
@click.argument("parts", nargs=-1, required=True, metavar="PART...")
@click.option("-o", "--output", required=True, metavar="FILE", help="The file to write.")
@options.overwrite
@options.pass_style
def command(
    style: options.Style, /, parts: tuple[str, ...], output: str, *, overwrite: bool
) -> None:
    """Write the PARTs of a raster, or all that a folder holds, as one file."""
    folder = len(parts) == 1 and (Path(parts[0]).is_dir() or parts[0].endswith("/"))
    with working(f"merging {parts[0]}", style) as progress:
        made = raquet.merge(
            parts[0] if folder else list(parts), output, overwrite=overwrite, progress=progress
        )
    told = "".join(
        f"\nnodata of {name} is {value} now, which no pixel of any file has"
        for name, value in made.chosen_nodata.items()
    )
    text = f"{output}: {counted(made.tiles, 'tile')}, {human_size(made.size)}{told}"
    done(made.to_dict(), style, text)
