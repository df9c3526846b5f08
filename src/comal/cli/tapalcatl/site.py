"""``comal tapalcatl site``: a static folder that shows tilesets on a map."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.errors import counted
from comal.site import write


@click.command(
    "site",
    cls=Command,
    examples=(
        ("comal tapalcatl site public tiles/", "a page with a copy of one tileset"),
        (
            "comal tapalcatl site public tiles/ elevation.parquet --title Alps",
            "with a RaQuet file beside it",
        ),
        (
            "comal tapalcatl site public https://example.com/tiles/meta.json",
            "a page that reads a bucket",
        ),
        ("comal tapalcatl site site tiles/ --link", "without copying: serve both folders"),
    ),
)
@click.argument("output", metavar="OUT")
@click.argument("sources", metavar="[SOURCE]...", nargs=-1)
@click.option("--title", default="Tiles", show_default=True, help="Heading of the page.")
@click.option(
    "--link",
    is_flag=True,
    help="Name local sources by their place relative to OUT instead of copying them.",
)
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    output: str,
    sources: tuple[str, ...],
    title: str,
    *,
    link: bool,
    overwrite: bool,
) -> None:
    """Write OUT: a page that reads tilesets and RaQuet files in the browser, with no server.

    SOURCE is a tileset's folder or meta.json, one archive (.zip) or a RaQuet file (.parquet); a
    path, or an https:// address whose store allows other origins to read. Put the folder on any
    static host or bucket.
    """
    with working(f"writing {output}", style) as progress:
        folder = write(
            output, sources, title=title, link=link, overwrite=overwrite, progress=progress
        )
    count = len(sources)
    text = f"{folder}: a page with {counted(count, 'source')}"
    done({"path": str(folder), "sources": count}, style, text)
