"""``comal raquet repair``: a copy with the same pixels and everything else right."""

from __future__ import annotations

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working


@click.command(
    "repair",
    cls=Command,
    examples=(
        ("comal raquet repair dem.parquet mended.parquet", "order, pages, framing, statistics"),
        (
            "comal raquet repair multi.parquet mended.parquet --byte-interleaved",
            "tiles whose bytes take turns instead of their values",
        ),
    ),
)
@options.source
@click.argument("output", metavar="OUT")
@click.option(
    "--byte-interleaved",
    is_flag=True,
    help="Tiles are interleaved byte by byte: store them value by value.",
)
@options.overwrite
@options.pass_style
def command(
    style: options.Style, source: str, output: str, *, byte_interleaved: bool, overwrite: bool
) -> None:
    """Write a copy of X with the same pixels and everything else right; X is never changed."""
    with working(f"repairing {source}", style) as progress:
        raquet.repair(
            source,
            output,
            byte_interleaved=byte_interleaved,
            overwrite=overwrite,
            progress=progress,
        )
    done({"source": source, "output": output}, style, f"{output}: written")
