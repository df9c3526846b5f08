"""``comal get``: the bytes of one leaf."""

from __future__ import annotations

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import write_bytes
from comal.formats import adapter_of, of_band, sniff
from comal.storage import targets
from comal.storage.kinds import like, refuse_sources


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
            refuse_sources(targets.local_path(output), source)
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
