"""``comal clean``: take back and remove what a killed writer has left."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done
from comal.errors import counted
from comal.storage import targets


@click.command(
    "clean",
    cls=Command,
    examples=(("comal clean tiles/", "remove a build that was broken off"),),
)
@click.argument("target", metavar="X")
@options.pass_style
def command(style: options.Style, target: str) -> None:
    """Take back and remove what writers of X have left that were killed.

    X need not be there. It is as it was before the last writer began; a change of several archives
    that was decided is finished instead. 'comal check' tells whether there is anything to do.
    """
    found = [str(path) for path in targets.clean(target)]
    done({"removed": found}, style, f"{counted(len(found), 'item')} removed")
