"""``comal tapalcatl compact``: free what updates have left behind."""

from __future__ import annotations

from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, human_size, working
from comal.cli.tapalcatl.opening import generation1_of, generation1_options
from comal.errors import counted
from comal.tapalcatl import compact, space


@click.command(
    "compact",
    cls=Command,
    examples=(
        ("comal tapalcatl compact tiles/", "all archives that have dead bytes"),
        ("comal tapalcatl compact tiles/ --dry-run", "only tell how many there are"),
        ("comal tapalcatl compact tiles/4/0/4.zip", "one archive"),
    ),
)
@click.argument("target", metavar="X")
@click.option("--dry-run", is_flag=True, help="Write nothing; tell the dead bytes.")
@click.option("--all", "force", is_flag=True, help="Write every archive anew.")
@generation1_options
@options.pass_style
def command(
    style: options.Style, /, target: str, *, dry_run: bool, force: bool, **more: Any
) -> None:
    """Write archives of the tileset or archive X anew, in order and without dead bytes."""
    first = generation1_of(more)
    if dry_run:
        with working(f"looking at {target}", style) as progress:
            found = space(target, generation1=first, progress=progress)
        text = (
            f"{target}: {human_size(found.dead)} of {human_size(found.size)} are dead, "
            f"{counted(found.entries, 'entry', 'entries')} in {counted(found.archives, 'archive')}"
        )
        done({"output": target, **found.to_dict()}, style, text)
        return
    with working(f"compacting {target}", style) as progress:
        freed = compact(target, force=force, generation1=first, progress=progress)
    done({"output": target, "saved": freed}, style, f"{target}: {human_size(freed)} freed")
