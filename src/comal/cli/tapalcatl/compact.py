"""``comal tapalcatl compact``: free what updates have left behind."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, human_size, working
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
@options.pass_style
def command(style: options.Style, target: str, *, dry_run: bool, force: bool) -> None:
    """Write archives of the tileset or archive X anew, in order and without dead bytes."""
    if dry_run:
        with working(f"looking at {target}", style) as progress:
            found = space(target, progress=progress)
        text = (
            f"{target}: {human_size(found.dead)} of {human_size(found.size)} are dead, "
            f"{found.entries} entries in {found.archives} archives"
        )
        done({"output": target, **found.to_dict()}, style, text)
        return
    with working(f"compacting {target}", style) as progress:
        freed = compact(target, force=force, progress=progress)
    done({"output": target, "saved": freed}, style, f"{target}: {human_size(freed)} freed")
