"""``comal tapalcatl recover``: an archive after a crash."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done
from comal.errors import counted
from comal.tapalcatl import recover


@click.command(
    "recover",
    cls=Command,
    examples=(("comal tapalcatl recover tiles/4/0/4.zip", "after an update was killed"),),
)
@click.argument("archives", metavar="ARCHIVE...", nargs=-1, required=True)
@options.pass_style
def command(style: options.Style, archives: tuple[str, ...]) -> None:
    """Cut archives back to the last end that is valid; one that is whole stays as it is."""
    cut = {archive: recover(archive) for archive in archives}
    lines = [f"{archive}: {counted(size, 'byte')} cut off" for archive, size in cut.items()]
    done({"archives": cut}, style, "\n".join(lines))
