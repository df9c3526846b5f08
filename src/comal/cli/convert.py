"""``comal convert``: writes a source in another container or format."""

from __future__ import annotations

from typing import Any

import click
from click import argument

from comal.cli import app, options
from comal.cli.options import Style, choice, flag, option, whole
from comal.cli.output import done, print_json, working
from comal.cli.taco import collection_fields, collection_options, read_document
from comal.convert import MigrationReport, convert
from comal.errors import InvalidInputError, counted
from comal.parallel import Workers

_NO_FIELDS = ("pad", "children", "ids", "bands", "stretch", "variable", "rename")


def _mapping(path: str) -> dict[str, str]:
    found = read_document(path, "file of ids")
    if not all(isinstance(new, str) for new in found.values()):
        raise InvalidInputError("file of ids is not a mapping of texts", where=path)
    return found


def _tell(report: MigrationReport, style: Style) -> None:
    if report.dry_run or not style.quiet:
        for line in report.lines():
            click.echo(line)
    if not style.quiet:
        click.echo("nothing written" if report.dry_run else f"{report.output}: written")


@app.command("convert")
@argument("paths", metavar="SRC... DST", nargs=-1, required=True)
@flag("--dry-run", "Write nothing; report what a migration would change.")
@flag("--pad", "Pad nested files or subfolders that lack what others have.")
@choice(
    "--children",
    ["id", "position"],
    "Names of nested items after a migration: their ids, or 0000, 0001, ...",
)
@option("--ids", "JSON object that maps old ids to new ones.", metavar="FILE")
@whole("--bands", "Number of bands of every raster; read from each by default.", 1, to="count")
@option("--variable", "Variable of a NetCDF, HDF5 or Zarr file that becomes RaQuet.")
@options.drawing
@options.rename
@collection_options
@options.by_workers
@options.writing
@click.pass_context
def command(
    ctx: click.Context,
    style: Style,
    /,
    paths: tuple[str, ...],
    *,
    overwrite: bool,
    dry_run: bool,
    count: int | None,
    executor: Workers,
    **given: Any,
) -> None:
    """Write SRC in another container or format; its bytes tell what SRC is.

    DST is a TACO archive when its name ends in .tacozip or .zip, else a TACO folder. Tiles and
    RaQuet become Tapalcatl: a folder, or a single archive when its name ends in .zip; both become
    .mbtiles and .pmtiles, too. A dry run of one SRC needs no DST.

    A Tortilla or a TACO 1 becomes TACO 2.0, and everything that changes is reported. Given one
    part of a set, the whole set is converted; several SRC, or a pattern with '*', become one
    data set. Collection fields that SRC does not give have to be given as options. Exit code 1
    means that a dry run lacks some of them.

    $ comal convert scenes.tacozip scenes/  # an archive into the folder form
    $ comal convert scenes/ scenes.tacozip  # and back
    $ comal convert rasters/ scenes.tacozip  # a folder of GeoTIFFs into TACO
    $ comal convert samples.csv scenes.tacozip  # the files that a table lists, into TACO
    $ comal convert old.taco new.tacozip --dry-run  # what a migration would change
    $ comal convert https://example.org/old.taco new.tacozip  # TACO 1 into TACO 2.0
    $ comal convert x.tortilla y.tacozip --collection about.yaml
      # a Tortilla, which says nothing of itself, into TACO 2.0
    $ comal convert north.tortilla south.tortilla all.tacozip --collection about.yaml
      # several into one
    $ comal convert dem.tif dem.parquet  # a raster into RaQuet; the other way gives a COG
    $ comal convert theirs.parquet ours.parquet  # RaQuet of another writer, made fast to read
    $ comal convert tiles.pmtiles tiles/  # PMTiles, MBTiles or loose tiles into Tapalcatl
    $ comal convert s3://bucket/loose tiles/  # and loose tiles of a store
    $ comal convert tiles/ tiles.mbtiles  # and back
    $ comal convert tiles.mbtiles tiles.zip  # a single archive of Tapalcatl
    $ comal convert dem.parquet dem-tiles/  # RaQuet drawn as PNG tiles
    $ comal convert s2.parquet s2.pmtiles --band 4 --band 3 --band 2 --stretch 0,3000
      # three of its bands as red, green and blue, with these values as black and white
    """
    sources = paths[:-1] or paths
    output = paths[-1] if len(paths) > 1 else None
    if output is None and not dry_run:
        raise click.UsageError("Missing argument 'DST'.", ctx)
    own = {name: given.pop(name) for name in _NO_FIELDS}
    if count is not None:
        if own["bands"]:
            raise click.UsageError("Give either --band or --bands.", ctx)
        own["bands"] = count
    if own["ids"] is not None:
        own["ids"] = _mapping(own["ids"])
    with working(f"converting {sources[0]}", style) as progress:
        made = convert(
            sources,
            output,
            dry_run=dry_run,
            overwrite=overwrite,
            progress=progress,
            executor=executor,
            **own,
            **collection_fields(**given),
        )
    if made.report is None:
        done(made.to_dict(), style, f"{output}: written")
        return
    if style.json:
        print_json(made.to_dict())
    else:
        _tell(made.report, style)
    ctx.exit(0 if made.report.ok else 1)


@app.command("mirror")
@argument("source", metavar="SRC")
@argument("target", metavar="DST")
@option("--where", "Condition in SQL: only samples for which it holds.", metavar="SQL")
@option("--fields", "Leaf of each sample to copy, such as image.tif; repeatable.", multiple=True)
@options.writing
def mirror(
    style: Style, /, source: str, target: str, *, fields: tuple[str, ...], **given: Any
) -> None:
    """Copy some samples of a data set, and of each some leaves, as one that opens the same way.

    SRC is a TACO or a Tortilla, local or remote. Bytes are copied by range and compared with
    their checksums; nothing else is read.

    $ comal mirror https://example.org/scenes.tacozip scenes.tacozip --where "split = 'train'"
      # the samples to train with
    $ comal mirror scenes.tacozip masks.tacozip --fields mask.tif  # only the masks
    """
    from comal import ml  # noqa: PLC0415 - help needs none of it

    with working(f"copying to {target}", style) as progress:
        ml.mirror(source, target, fields=list(fields) or None, progress=progress, **given)
        count = len(ml.dataset(target, {}))
    done({"output": target, "samples": count}, style, f"{target}: {counted(count, 'sample')}")
