"""``comal convert``: an archive or a folder of rasters into another container."""

from __future__ import annotations

from pathlib import Path

import click

from comal import taco
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.errors import InvalidInputError, NotThisFormatError
from comal.formats import adapter_of, sniff
from comal.taco.writing.packing import pack_folder

_ZIP_SUFFIXES = {".tacozip", ".zip"}
_MANIFESTS = {".csv", ".parquet", ".geoparquet"}


@click.command(
    "convert",
    cls=Command,
    examples=(
        ("comal convert scenes.tacozip scenes/", "an archive into the folder form"),
        ("comal convert scenes/ scenes.tacozip", "and back"),
        ("comal convert rasters/ scenes.tacozip", "a folder of GeoTIFFs into TACO"),
        ("comal convert samples.csv scenes.tacozip", "the files that a table lists into TACO"),
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="DST")
@options.overwrite
@options.pass_style
def command(style: options.Style, source: str, output: str, *, overwrite: bool) -> None:
    """Write SRC in another container or format; what SRC is, its bytes decide.

    DST is a TACO archive when its name ends in .tacozip or .zip, else a TACO folder.
    """
    to_zip = Path(output).suffix.lower() in _ZIP_SUFFIXES
    kind = _kind(source)
    with working(f"converting {source}", style) as progress:
        if kind == "rasters":
            pack_folder(source, output, overwrite=overwrite, progress=progress)
        elif kind == "manifest":
            folder = Path(source).absolute().parent
            pack_folder(folder, output, manifest=source, overwrite=overwrite, progress=progress)
        elif kind == "zip" and not to_zip:
            taco.zip2folder(source, output, overwrite=overwrite, progress=progress)
        elif kind == "folder" and to_zip:
            taco.folder2zip(source, output, overwrite=overwrite, progress=progress)
        elif kind in {"tacocat", "tacocat-folder"}:
            with taco.load(source) as dataset:
                taco.export(dataset, output, overwrite=overwrite, progress=progress)
        else:
            raise InvalidInputError(
                "the source is in that form already", where=source, found=f"a TACO {kind}"
            )
    done({"source": source, "from": kind, "output": output}, style, f"{output}: written")


def _kind(source: str) -> str:
    """The container of a TACO data set, ``rasters`` for a plain folder, or ``manifest``."""
    path = Path(source)
    if path.suffix.lower() in _MANIFESTS and path.is_file():
        return "manifest"
    try:
        found = sniff(source)
    except NotThisFormatError:
        if path.is_dir():
            return "rasters"
        raise
    archive = adapter_of(found.format).archive(source)
    try:
        return str(archive.describe()["container"])
    finally:
        archive.close()
