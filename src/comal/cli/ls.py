"""``comal ls``: every leaf of an archive."""

from __future__ import annotations

from collections.abc import Sequence

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.failures import PARTLY, tell
from comal.cli.output import on_terminal, write_bytes
from comal.cli.tablelines import aligned_lines, json_lines, tab_lines
from comal.errors import ComalError
from comal.formats import adapter_of, of_band, sniff
from comal.formats.base import Partly


@click.command(
    "ls",
    cls=Command,
    examples=(
        ("comal ls scenes.tacozip", "a line per leaf: key, size"),
        ("comal ls -l scenes.tacozip", "also type, object, offset"),
        ("comal ls scenes.tacozip --json | head -n 1", "one JSON object per leaf"),
    ),
)
@options.source
@click.option("-l", "--long", is_flag=True, help="Also type, object and offset.")
@options.band
@options.pass_style
@click.pass_context
def command(
    ctx: click.Context, style: options.Style, source: str, band: str | None, *, long: bool
) -> None:
    """List every leaf of X in a fixed order, with the byte range that holds it.

    Columns stand between tabs, on a terminal below one another. The size is empty where only a
    request for the leaf itself could tell it: in a folder on a server.

    Where some of several archives cannot be read, the leaves of the others are listed, and exit
    code 11 tells it.
    """
    failed: Sequence[ComalError] = ()
    archive = of_band(adapter_of(sniff(source).format).archive(source), band)
    names = ["key", "size", "type", "href", "offset"] if long else ["key", "size"]
    try:
        for table in archive.leaves():
            if style.json:
                write_bytes(json_lines(table))
            else:
                lines = aligned_lines if on_terminal() else tab_lines
                write_bytes(lines(table.select(names)))
        if isinstance(archive, Partly):
            failed = archive.failed
    finally:
        archive.close()
    for error in failed:
        tell(error, as_json=style.json)
    if failed:
        ctx.exit(PARTLY)
