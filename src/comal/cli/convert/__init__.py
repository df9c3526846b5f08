"""``comal convert``: anything into what it can become, a module per family of formats."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol, cast

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.convert import samples
from comal.cli.convert.samples import refuse
from comal.cli.output import done
from comal.cli.taco.collection import collection_options

_FAMILIES = ("comal.cli.convert.raquet", "comal.cli.convert.drawn", "comal.cli.convert.tiles")
"""Modules that are asked in turn whether a conversion is theirs; what none takes is of samples."""


class _Family(Protocol):
    __name__: str

    def handles(self, source: str, output: str) -> bool: ...

    def run(
        self, source: str, output: str, style: options.Style, *, overwrite: bool, **named: Any
    ) -> Mapping[str, Any]: ...


def _family(source: str, output: str | None) -> _Family | None:
    if output is None:
        return None
    for name in _FAMILIES:
        family = cast("_Family", import_module(name))
        if family.handles(source, output):
            return family
    return None


@click.command(
    "convert",
    cls=Command,
    examples=(
        ("comal convert scenes.tacozip scenes/", "an archive into the folder form"),
        ("comal convert scenes/ scenes.tacozip", "and back"),
        ("comal convert rasters/ scenes.tacozip", "a folder of GeoTIFFs into TACO"),
        ("comal convert samples.csv scenes.tacozip", "the files that a table lists into TACO"),
        ("comal convert old.taco new.tacozip --dry-run", "what a migration would change"),
        ("comal convert https://example.org/old.taco new.tacozip", "TACO 1 into TACO 2.0"),
        (
            "comal convert x.tortilla y.tacozip --collection about.yaml",
            "a Tortilla, which says nothing of itself, into TACO 2.0",
        ),
        (
            "comal convert north.tortilla south.tortilla all.tacozip --collection about.yaml",
            "several as one",
        ),
        ("comal convert dem.tif dem.parquet", "a raster into RaQuet; the other way gives a COG"),
        ("comal convert tiles.pmtiles tiles/", "PMTiles, MBTiles or loose tiles into Tapalcatl"),
        ("comal convert tiles/ tiles.mbtiles", "and back"),
        ("comal convert tiles.mbtiles tiles.zip", "a single archive of Tapalcatl"),
        ("comal convert dem.parquet dem-tiles/", "RaQuet drawn as PNG tiles"),
    ),
)
@click.argument("paths", metavar="SRC... DST", nargs=-1, required=True)
@click.option(
    "--dry-run", is_flag=True, help="Write nothing; report what a migration would change."
)
@click.option(
    "--pad", is_flag=True, help="Fill up nested files or subfolders that lack what others have."
)
@click.option(
    "--children",
    type=click.Choice(["id", "position"]),
    help="What nested items are called in a migration: as they are, or 0000, 0001, ...",
)
@click.option("--ids", metavar="FILE", help="JSON object: old ids and the new ones.")
@click.option(
    "--rai",
    type=click.Choice(["rai", "geoenrich"]),
    help="What rai:* columns are called in a migration.",
)
@click.option(
    "--bands",
    type=click.IntRange(1),
    help="Bands of every raster; read from each raster if absent.",
)
@click.option("--variable", help="Variable of a NetCDF, HDF5 or Zarr file that becomes RaQuet.")
@collection_options
@options.overwrite
@options.pass_style
@click.pass_context
def command(
    ctx: click.Context,
    style: options.Style,
    /,
    paths: tuple[str, ...],
    *,
    overwrite: bool,
    dry_run: bool,
    pad: bool,
    children: str | None,
    ids: str | None,
    rai: str | None,
    bands: int | None,
    variable: str | None,
    **collection: Any,
) -> None:
    """Write SRC in another container or format; what SRC is, its bytes decide.

    DST is a TACO archive when its name ends in .tacozip or .zip, else a TACO folder. Tiles and
    RaQuet become Tapalcatl: a folder, or a single archive when its name ends in .zip. A dry run
    can do without DST when there is one SRC.

    A Tortilla or a TACO 1 becomes TACO 2.0, and what is not the same afterwards is reported. Of
    one part of a set, the whole set is converted; several SRC, or a pattern with '*', are
    converted as one. Fields of the collection that SRC does not give
    are asked for. Exit code 1 means that a dry run found why SRC cannot be converted so.
    """
    migrating = {"children": children, "ids": ids, "rai": rai, "bands": bands}
    sources = paths[:-1] or paths
    output = paths[-1] if len(paths) > 1 else None
    if output is None and not dry_run:
        raise click.UsageError("Missing argument 'DST'.", ctx)
    source = sources[0]
    family = _family(source, output) if len(sources) == 1 else None
    if family is not None and output is not None:
        name = family.__name__.rpartition(".")[2]
        foreign = {} if name == "raquet" else {"variable": variable}
        refuse({"dry_run": dry_run, "pad": pad, **migrating, **foreign, **collection}, name)
        named = {"variable": variable} if variable is not None else {}
        summary = family.run(source, output, style, overwrite=overwrite, **named)
        done({"source": source, "output": output, **summary}, style, f"{output}: written")
        return
    refuse({"variable": variable}, "samples")
    ok = samples.run(
        sources,
        output,
        style,
        overwrite=overwrite,
        dry_run=dry_run,
        pad=pad,
        migrating=migrating,
        collection=collection,
    )
    ctx.exit(0 if ok else 1)
