"""``comal taco concat``: several data sets joined into one archive."""

from __future__ import annotations

import click

from comal import taco
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.errors import counted
from comal.taco.reading.stages import ColumnMode


@click.command(
    "concat",
    cls=Command,
    examples=(
        ("comal taco concat north.tacozip south.tacozip -o all.tacozip", "two into one"),
        (
            "comal taco concat a.tacozip b.tacozip -o all/ --columns fill_missing",
            "keep columns that only one has",
        ),
    ),
)
@click.argument("archives", nargs=-1, required=True)
@click.option("-o", "--output", metavar="OUT", required=True, help="Archive or folder to write.")
@click.option(
    "--columns",
    type=click.Choice(["intersection", "fill_missing", "strict"]),
    default="intersection",
    show_default=True,
    help="What to do with columns that not all have.",
)
@options.rename
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    archives: tuple[str, ...],
    output: str,
    columns: ColumnMode,
    *,
    rename: bool,
    overwrite: bool,
) -> None:
    """Join several TACO data sets and write them as one, samples included.

    'comal taco tacocat' makes an index over them instead and copies nothing.
    """
    datasets = [taco.load(href) for href in archives]
    try:
        joined = taco.concat(datasets, column_mode=columns)
        with working(f"writing {output}", style) as progress:
            taco.export(joined, output, rename=rename, overwrite=overwrite, progress=progress)
        count = len(joined.data)
    finally:
        for dataset in datasets:
            dataset.close()
    done({"output": output, "samples": count}, style, f"{output}: {counted(count, 'sample')}")
