"""``comal info``: what an archive is."""

from __future__ import annotations

from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import human_size, on_terminal, print_fields
from comal.formats import adapter_of, sniff


@click.command(
    "info",
    cls=Command,
    examples=(
        ("comal info scenes.tacozip", "what it is"),
        ("comal info s3://bucket/scenes.tacozip --json", "the same as one JSON object"),
    ),
)
@options.source
@options.pass_style
def command(style: options.Style, source: str) -> None:
    """Tell what X is: its format, version, container, size, extent, and how it was recognised."""
    found = sniff(source)
    archive = adapter_of(found.format).archive(source)
    try:
        fields: dict[str, Any] = {"format": found.format.name, **archive.describe()}
    finally:
        archive.close()
    fields["recognised"] = found.how
    if not style.json and on_terminal() and isinstance(fields.get("size"), int):
        fields["size"] = f"{human_size(fields['size'])} ({fields['size']} bytes)"
    print_fields(fields, style)
