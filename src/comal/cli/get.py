"""``comal get``: the bytes of one leaf."""

from __future__ import annotations

import os
from pathlib import Path

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import write_bytes
from comal.errors import ConflictError, shown
from comal.formats import adapter_of, of_band, sniff
from comal.storage import parse_href, targets
from comal.storage.kinds import like


@click.command(
    "get",
    cls=Command,
    examples=(
        ("comal get scenes.tacozip cusco/image.tif -o cusco.tif", "into a file"),
        (
            "comal get https://example.org/scenes.tacozip cusco/image.tif | gdalinfo /vsistdin/",
            "to another program",
        ),
        ("comal get dem.parquet 10/511/340 --band band_1 -o tile.raw", "the pixels of a tile"),
    ),
)
@options.source
@click.argument("key")
@options.band
@options.output_file
@options.overwrite
def command(
    source: str, key: str, band: str | None, output: str | None, *, overwrite: bool
) -> None:
    """Write the bytes of the leaf KEY of X to standard output or to a file.

    'comal ls' lists the keys. A file appears complete or not at all. Of a RaQuet tile they are the
    pixels of one band, row by row and little-endian.
    """
    archive = of_band(adapter_of(sniff(source).format).archive(source), band)
    try:
        if output is not None:
            _refuse_source(source, output)
        if output is None:
            for block in archive.blocks(key):
                write_bytes(block)
            return
        blocks = iter(archive.blocks(key))
        first = next(blocks, b"")
        with targets.new_file(output, overwrite, like(bytes(first)), source) as file:
            file.write(first)
            for block in blocks:
                file.write(block)
    finally:
        archive.close()


def _refuse_source(source: str, output: str) -> None:
    """Refuse to replace the archive, or a file of a folder that is one, by a leaf of it."""
    read = parse_href(source)
    if read.scheme != "file":
        return
    held = Path(os.path.realpath(read.path))
    target = Path(os.path.realpath(targets.local_path(output)))
    if target == held or held in target.parents:
        raise ConflictError(
            "the target is part of the source",
            where=shown(target, 200),
            hint="choose another place",
        )
