"""``comal tortilla sql``: one SELECT over the items."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.results import print_result
from comal.tortilla import open as open_frame


@click.command(
    "sql",
    cls=Command,
    examples=(
        (
            "comal tortilla sql scenes.tortilla 'SELECT \"tortilla:id\", cloud_cover FROM data'",
            "some columns",
        ),
        (
            "comal tortilla sql scenes.tortilla 'SELECT ST_X(\"stac:centroid\") AS lon FROM data'",
            "the functions of geometries are there",
        ),
    ),
)
@options.query_options
def command(
    style: options.Style, source: str, query: str, *, as_csv: bool, untrusted: bool | None
) -> None:
    """Run one SELECT over the items of X.

    The table is called data. Nothing but SELECT is possible, and no file and no address can be
    read by it.
    """
    frame = open_frame(source)
    table = frame.sql(query, isolated=options.is_isolated(source, untrusted=untrusted))
    print_result(table, as_json=style.json, as_csv=as_csv)
