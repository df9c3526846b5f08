"""``comal taco sql``: one SELECT over the samples."""

from __future__ import annotations

import click

from comal import taco
from comal.cli import options
from comal.cli.base import Command
from comal.cli.results import print_result


@click.command(
    "sql",
    cls=Command,
    examples=(
        ("comal taco sql scenes.tacozip 'SELECT id, cloud_cover FROM data LIMIT 5'", "some rows"),
        (
            "comal taco sql scenes.tacozip 'SELECT split, count(*) FROM data GROUP BY 1' --json",
            "JSON lines",
        ),
        ("comal taco sql scenes.tacozip 'SELECT * FROM level1' --csv", "the children, as CSV"),
    ),
)
@options.query_options
def command(
    style: options.Style, source: str, query: str, *, as_csv: bool, untrusted: bool | None
) -> None:
    """Run one SELECT over the samples of X.

    The table is called data; level0, level1, ... are the levels of a nested data set, and l0, l1,
    ... the same with the columns of their parents. Nothing but SELECT is possible, and no file
    and no address can be read by it.
    """
    with taco.load(source) as dataset:
        isolated = options.is_isolated(source, untrusted=untrusted)
        table = dataset.sql(query, isolated=isolated).data.to_arrow()
    print_result(table, as_json=style.json, as_csv=as_csv)
