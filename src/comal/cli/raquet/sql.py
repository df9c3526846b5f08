"""``comal raquet sql``: one SELECT over the tiles."""

from __future__ import annotations

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.results import print_result


@click.command(
    "sql",
    cls=Command,
    examples=(
        ("comal raquet sql dem.parquet 'SELECT block, z, x, y FROM tiles'", "what tiles there are"),
        (
            "comal raquet sql dem.parquet 'SELECT raquet_pixel(b1, metadata, 0, 0) FROM raster'",
            "the first pixel of each tile",
        ),
        (
            "comal raquet sql dem.parquet 'SELECT block FROM read_raquet_at($$raster$$, 11, 48)'",
            "the tile at a place",
        ),
    ),
)
@options.query_options
def command(
    style: options.Style, source: str, query: str, *, as_csv: bool, untrusted: bool | None
) -> None:
    """Run one SELECT over the tiles of X.

    The table raster holds the tiles of the finest zoom, tiles their index without pixels,
    overviews the tiles of all other zooms, and metadata one row. Nothing but SELECT is possible,
    and no file and no address can be read by it.
    """
    isolated = options.is_isolated(source, untrusted=untrusted)
    table = raquet.sql(source, query, isolated=isolated)
    print_result(table, as_json=style.json, as_csv=as_csv)
