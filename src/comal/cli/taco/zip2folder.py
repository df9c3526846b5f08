"""``comal taco zip2folder``: an archive as the folder form."""

from __future__ import annotations

import click

from comal import taco
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working


@click.command(
    "zip2folder",
    cls=Command,
    examples=(("comal taco zip2folder scenes.tacozip scenes/", "the folder form"),),
)
@options.source
@click.argument("output")
@click.option("--rename", is_flag=True, help="Make names that some system refuses safe.")
@options.overwrite
@options.pass_style
def command(
    style: options.Style, source: str, output: str, *, rename: bool, overwrite: bool
) -> None:
    """Unpack the TACO archive X into the folder form.

    The samples keep their bytes; the index is written anew.
    """
    with working(f"writing {output}", style) as progress:
        taco.zip2folder(source, output, overwrite=overwrite, rename=rename, progress=progress)
    done({"output": output}, style, f"{output}: written")
