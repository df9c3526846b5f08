"""``comal raquet stats``: statistics of the bands, out of their pixels."""

from __future__ import annotations

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import working
from comal.cli.raquet import choices
from comal.cli.results import print_result


@click.command(
    "stats",
    cls=Command,
    examples=(
        ("comal raquet stats dem.parquet", "all bands at full resolution"),
        ("comal raquet stats dem.parquet --zoom 6 --stat mean --json", "of an overview"),
        ("comal raquet stats dem.parquet --stat p2 --stat median --stat p98", "quantiles"),
    ),
)
@options.source
@choices.bands
@choices.stats
@choices.zoom
@choices.step
@options.as_csv
@options.pass_style
def command(
    style: options.Style,
    source: str,
    bands: tuple[str, ...],
    stats: tuple[str, ...],
    zoom: int | None,
    step: int | None,
    *,
    as_csv: bool,
) -> None:
    """Compute statistics of every band of X from its pixels.

    Pixels that are nodata or NaN do not count, nor does the padding of tiles at the edge. Of a
    band without a nodata value only files by comal tell the latter from pixels.
    """
    with working(f"statistics of {source}", style) as progress:
        table = raquet.statistics(
            source,
            bands=bands or None,
            zoom=zoom,
            time=step,
            stats=stats or choices.STATS,
            progress=progress,
        )
    print_result(table, as_json=style.json, as_csv=as_csv)
