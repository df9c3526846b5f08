"""Options that several commands of the group share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from comal.cli.options import Style
from comal.cli.output import done
from comal.errors import counted
from comal.tortilla import Created


def cut_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where a set is cut into parts."""
    options = (
        click.option("--size", "chunk_size", metavar="SIZE", help="Bytes of items in a part: 4GB."),
        click.option("--rows", "chunk_rows", type=click.IntRange(1), help="Items in a part."),
        click.option("--by", "chunk_by", metavar="COLUMN", help="A part for each value."),
        click.option(
            "--from-zero",
            "first_part",
            flag_value=0,
            default=None,
            type=int,
            help="Number the parts from 0000, as published sets are, not from 0001.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


peer_names = click.option(
    "--peer-names",
    is_flag=True,
    help="Write rai:ele for rai:elevation, as published files have it.",
)


def cut_of(**options: Any) -> dict[str, Any]:
    """The keyword arguments that the options stand for."""
    first = options.pop("first_part", None)
    return {**options, "first_part": 1 if first is None else int(first)}


def report(made: Created, style: Style, placed_by: Sequence[str] = ()) -> None:
    """Tell what was written, its class of the specification, and what found rows in a box."""
    paths = [str(path) for path in made.paths]
    kind = f", a {' and a '.join(made.classes)}" if made.classes else ""
    samples = counted(made.rows, "sample")
    first = f"{paths[0]}: {samples}{kind}"
    if len(paths) > 1:
        first = f"{paths[0]} and {counted(len(paths) - 1, 'more part')}: {samples}{kind}"
    summary = {"output": paths, "samples": made.rows, "classes": list(made.classes)}
    if placed_by:
        summary["placed_by"] = list(placed_by)
    done(summary, style, first)
