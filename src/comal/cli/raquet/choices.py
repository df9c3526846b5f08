"""Options that several commands of the group share."""

from __future__ import annotations

import click

bands = click.option(
    "--band", "bands", multiple=True, metavar="NAME", help="Only this band; may be repeated."
)

zoom = click.option(
    "--zoom", type=click.IntRange(0, 26), help="Use the tiles of this zoom; the finest if absent."
)

step = click.option(
    "--step", type=click.IntRange(0), help="Time step of a time series, counted from 0."
)

stats = click.option(
    "--stat",
    "stats",
    multiple=True,
    metavar="NAME",
    help=(
        "Only this statistic; may be repeated: count, sum, mean, min, max, range, variance,"
        " stddev (of the population), stddev_sample, median, p10 (or any percent), majority,"
        " minority, variety."
    ),
)

STATS = ("count", "sum", "mean", "min", "max", "stddev")
"""What is told when nobody asks for something else."""
