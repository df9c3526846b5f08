"""``comal convert``: an archive or a folder of rasters into another container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from comal import strictjson, taco
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, print_json, working
from comal.cli.taco.collection import collection_fields, collection_options
from comal.convert import MigrationReport, migrate
from comal.errors import (
    ComalError,
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
    translated,
)
from comal.formats import adapter_of, sniff
from comal.progress import Progress
from comal.taco.writing.packing import pack_folder

_ZIP_SUFFIXES = {".tacozip", ".zip"}
_MANIFESTS = {".csv", ".parquet", ".geoparquet"}
_TORTILLAS = {"tortilla", "taco-v1"}
_PACKED = {"rasters", "manifest"}
_READING: Mapping[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    OSError: InvalidInputError,
}


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
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="DST", required=False)
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
@collection_options
@options.overwrite
@options.pass_style
@click.pass_context
def command(
    ctx: click.Context,
    style: options.Style,
    /,
    source: str,
    output: str | None,
    *,
    overwrite: bool,
    dry_run: bool,
    pad: bool,
    children: str | None,
    ids: str | None,
    rai: str | None,
    bands: int | None,
    **collection: Any,
) -> None:
    """Write SRC in another container or format; what SRC is, its bytes decide.

    DST is a TACO archive when its name ends in .tacozip or .zip, else a TACO folder.

    A Tortilla or a TACO 1 becomes TACO 2.0, and what is not the same afterwards is reported. Of
    one part of a set, the whole set is converted. Fields of the collection that SRC does not give
    are asked for. Exit code 1 means that a dry run found why SRC cannot be converted so.
    """
    if output is None and not dry_run:
        raise click.UsageError("Missing argument 'DST'.", ctx)
    kind = _kind(source)
    migrating = {"children": children, "ids": ids, "rai": rai, "bands": bands}
    if kind not in _TORTILLAS:
        _refuse({"dry_run": dry_run, **migrating}, kind)
    if kind not in _TORTILLAS | _PACKED:
        _refuse({"pad": pad, **collection}, kind)
    fields = collection_fields(**collection)
    if kind in _TORTILLAS:
        named: dict[str, Any] = {
            name: value for name, value in migrating.items() if value is not None
        }
        if ids is not None:
            named["ids"] = _mapping(ids)
        with working(f"converting {source}", style) as progress:
            report = migrate(
                source,
                output,
                dry_run=dry_run,
                pad=pad,
                overwrite=overwrite,
                progress=progress,
                **named,
                **fields,
            )
        _tell(report, kind, style)
        ctx.exit(0 if report.ok else 1)
    assert output is not None, "only a migration has a dry run"
    with working(f"converting {source}", style) as progress:
        if kind in _PACKED:
            _pack(kind, source, output, progress, pad=pad, overwrite=overwrite, **fields)
        else:
            _convert(kind, source, output, progress, overwrite=overwrite)
    done({"source": source, "from": kind, "output": output}, style, f"{output}: written")


def _refuse(given: Mapping[str, Any], kind: str) -> None:
    """Refuse options that this kind of source would silently ignore."""
    for name, value in given.items():
        if value not in (None, False, ()):
            option = "--" + name.replace("_", "-")
            raise InvalidInputError(f"{option} is not for this kind of source", found=kind)


def _mapping(path: str) -> dict[str, str]:
    with translated(_READING, "file of ids cannot be read", where=path):
        data = Path(path).read_bytes()
    found = strictjson.loads(data, path)
    if not all(isinstance(new, str) for new in found.values()):
        raise InvalidInputError("file of ids is no mapping of texts", where=path)
    return found


def _tell(report: MigrationReport, kind: str, style: options.Style) -> None:
    if style.json:
        print_json({"from": kind, **report.to_dict()})
        return
    if report.dry_run or not style.quiet:
        for line in report.lines():
            click.echo(line)
    if not style.quiet:
        click.echo("nothing written" if report.dry_run else f"{report.output}: written")


def _pack(
    kind: str, source: str, output: str, progress: Progress, *, overwrite: bool, **options: Any
) -> None:
    manifest = source if kind == "manifest" else None
    folder = Path(source).absolute().parent if manifest else source
    pack_folder(
        folder, output, manifest=manifest, overwrite=overwrite, progress=progress, **options
    )


def _convert(kind: str, source: str, output: str, progress: Progress, *, overwrite: bool) -> None:
    """From one container of TACO 2.0 to another."""
    to_zip = Path(output).suffix.lower() in _ZIP_SUFFIXES
    if kind == "zip" and not to_zip:
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


def _kind(source: str) -> str:
    """The container of a TACO data set, a Tortilla, a plain folder of rasters, or a manifest."""
    path = Path(source)
    if path.suffix.lower() in _MANIFESTS and path.is_file():
        return "manifest"
    try:
        found = sniff(source)
    except NotThisFormatError:
        if path.is_dir():
            return "rasters"
        raise
    if found.format.name in _TORTILLAS:
        return found.format.name
    archive = adapter_of(found.format).archive(source)
    try:
        return str(archive.describe()["container"])
    finally:
        archive.close()
