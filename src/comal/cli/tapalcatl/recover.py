"""``comal tapalcatl recover``: tilesets and archives after a crash."""

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
    examples=(
        ("comal tapalcatl recover tiles/", "after an update of a tileset was killed"),
        ("comal tapalcatl recover tiles/4/0/4.zip", "an archive that an older version has torn"),
    ),
)
@click.argument("targets", metavar="X...", nargs=-1, required=True)
@options.pass_style
def command(style: options.Style, targets: tuple[str, ...]) -> None:
    """Finish a change of the tileset X that was decided, and undo one that was not.

    Archives are cut back to the last end that is valid; one that is whole stays as it is.
    """
    found = {target: recover(target) for target in targets}
    lines = [
        f"{target}: {counted(one.finished, 'file')} put into place, "
        f"{one.undone} removed, {counted(one.cut, 'byte')} cut off"
        for target, one in found.items()
    ]
    done({"recovered": {key: one.to_dict() for key, one in found.items()}}, style, "\n".join(lines))
