"""``comal raquet inspect``: the metadata as they stand in the file."""

from __future__ import annotations

import json

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command


@click.command(
    "inspect",
    cls=Command,
    examples=(
        ("comal raquet inspect dem.parquet", "the document of the metadata row, indented"),
        ("comal raquet inspect dem.parquet --json", "as it stands there, on one line"),
    ),
)
@options.source
@options.pass_style
def command(style: options.Style, source: str) -> None:
    """Print the metadata of X: what the row with block 0 holds."""
    with raquet.open(source) as file:
        text = file.documents()[0]
    # Nothing of the document is lost or made up: it is only indented.
    click.echo(text if style.json else json.dumps(json.loads(text), indent=2))
