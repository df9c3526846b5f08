"""``comal convert`` to TACO 2.0: from its other containers, rasters, Tortilla and TACO 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from comal import strictjson, taco
from comal.cli import options
from comal.cli.output import done, print_json, working
from comal.cli.taco.collection import collection_fields
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


def run(
    sources: Sequence[str],
    output: str | None,
    style: options.Style,
    *,
    overwrite: bool,
    dry_run: bool,
    pad: bool,
    migrating: Mapping[str, Any],
    collection: Mapping[str, Any],
) -> bool:
    """Convert one source, or several Tortillas, and say so.

    False when a dry run found why it cannot be.
    """
    kind = _kind_of_all(sources)
    source = sources[0]
    if kind not in _TORTILLAS:
        refuse({"dry_run": dry_run, **migrating}, kind)
    if kind not in _TORTILLAS | _PACKED:
        refuse({"pad": pad, **collection}, kind)
    fields = collection_fields(**collection)
    if kind in _TORTILLAS:
        named = {name: value for name, value in migrating.items() if value is not None}
        if "ids" in named:
            named["ids"] = _mapping(named["ids"])
        with working(f"converting {source}", style) as progress:
            report = migrate(
                source if len(sources) == 1 else list(sources),
                output,
                dry_run=dry_run,
                pad=pad,
                overwrite=overwrite,
                progress=progress,
                **named,
                **fields,
            )
        _tell(report, kind, style)
        return report.ok
    assert output is not None, "only a migration has a dry run"
    with working(f"converting {source}", style) as progress:
        if kind in _PACKED:
            _pack(kind, source, output, progress, pad=pad, overwrite=overwrite, **fields)
        else:
            _convert(kind, source, output, progress, overwrite=overwrite)
    done({"source": source, "from": kind, "output": output}, style, f"{output}: written")
    return True


def refuse(given: Mapping[str, Any], kind: str) -> None:
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


def _refuse_raster(source: str) -> None:
    """A manifest may be a Parquet file of any kind, but not one of tiles."""
    try:
        name = sniff(source).format.name
    except NotThisFormatError:
        return
    if name == "raquet":
        raise InvalidInputError(
            "RaQuet does not become what the name of the target says",
            where=source,
            expected="*.tif for a COG, or a folder (no suffix) for PNG tiles",
            hint="'comal raquet export' writes PNG, and parts of a file",
        )


def _kind_of_all(sources: Sequence[str]) -> str:
    kinds = {_kind(source) for source in sources}
    if len(sources) == 1 or kinds <= _TORTILLAS:
        return min(kinds)
    raise InvalidInputError(
        "several sources become one only where all are Tortilla or TACO 1",
        found=", ".join(sorted(kinds)),
        hint="'comal taco concat' joins several data sets of TACO 2.0",
    )


def _kind(source: str) -> str:
    """The container of a TACO data set, a Tortilla, a plain folder of rasters, or a manifest."""
    path = Path(source)
    if "*" in path.name and not path.exists():
        return "tortilla"
    if path.suffix.lower() in _MANIFESTS and path.is_file():
        _refuse_raster(source)
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
