"""``comal taco create``: a folder of rasters as a data set."""

from __future__ import annotations

from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, working
from comal.cli.taco.collection import collection_fields, collection_options
from comal.taco.writing.packing import pack_folder


@click.command(
    "create",
    cls=Command,
    examples=(
        ("comal taco create rasters/ scenes.tacozip", "every file below rasters/"),
        (
            "comal taco create rasters/ scenes.tacozip --license CC-BY-4.0 --provider ESA",
            "with what others need to know",
        ),
        (
            "comal taco create rasters/ scenes.tacozip --manifest samples.csv",
            "only what a table lists, with its columns as fields",
        ),
        ("comal taco create rasters/ big.tacozip --split-size 4GB", "several archives"),
    ),
)
@click.argument("directory")
@click.argument("output")
@click.option(
    "--manifest",
    metavar="FILE",
    help="CSV, Parquet or GeoParquet with id (such as scene_1/red.tif), path below DIRECTORY, and "
    "fields; time_start becomes a STAC time. A row with an empty path is a folder: id scene_1.",
)
@click.option("--pattern", multiple=True, help="Names to pack, such as '*.tif'; repeatable.")
@click.option("--no-stac", is_flag=True, help="Do not read CRS, shape and place of the rasters.")
@click.option("--pad", is_flag=True, help="Fill up subfolders that lack a file others have.")
@click.option("--split-size", metavar="SIZE", help="Several archives of about this size: 4GB.")
@click.option("--group-by", multiple=True, metavar="FIELD", help="An archive per value.")
@collection_options
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    directory: str,
    output: str,
    manifest: str | None,
    pattern: tuple[str, ...],
    split_size: str | None,
    group_by: tuple[str, ...],
    *,
    no_stac: bool,
    pad: bool,
    overwrite: bool,
    **collection: Any,
) -> None:
    """Pack the files below DIRECTORY as one TACO data set.

    A file becomes a sample, a subfolder a sample that holds samples; subfolders of one depth
    must hold files of the same names. Names that begin with a dot are left out. OUTPUT is one ZIP
    archive when its name ends in .tacozip or .zip, else a folder.
    """
    fields = collection_fields(**collection)
    with working(f"packing {directory}", style) as progress:
        written = pack_folder(
            directory,
            output,
            manifest=manifest,
            pattern=list(pattern) or "*",
            stac=not no_stac,
            pad=pad,
            split_size=split_size,
            group_by=list(group_by) or None,
            overwrite=overwrite,
            progress=progress,
            **fields,
        )
    paths = [str(path) for path in written]
    done({"output": paths}, style, "\n".join(f"{path}: written" for path in paths))
    missing = [name for name in ("licenses", "providers", "tasks") if name not in fields]
    if missing and not style.quiet:
        click.echo(
            f"comal: warning: the collection does not say its {', '.join(missing)}; "
            "--license, --provider and --task do",
            err=True,
        )
