"""``comal taco folder2zip``: the folder form as one archive."""

from __future__ import annotations

import click

from comal import taco
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working


@click.command(
    "folder2zip",
    cls=Command,
    examples=(("comal taco folder2zip scenes/ scenes.tacozip", "one archive"),),
)
@options.source
@click.argument("output")
@options.overwrite
@options.pass_style
def command(style: options.Style, source: str, output: str, *, overwrite: bool) -> None:
    """Pack the TACO folder X into one archive.

    The samples keep their bytes; the index is written anew.
    """
    with working(f"writing {output}", style) as progress:
        taco.folder2zip(source, output, overwrite=overwrite, progress=progress)
    done({"output": output}, style, f"{output}: written")
