"""``comal convert``: anything into what it can become.

The families of `FAMILIES` are asked in turn whether a conversion is theirs, by names and a look at
the source; what none of them takes is of samples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import click

from comal import raquet, strictjson, taco, tapalcatl
from comal.cli import options
from comal.cli.app import Command
from comal.cli.options import Style
from comal.cli.output import done, print_json, working
from comal.cli.taco import collection_fields, collection_options
from comal.convert import MigrationReport, draw, migrate
from comal.errors import (
    ComalError,
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
    translated,
    without_secrets,
)
from comal.formats import adapter_of, sniff
from comal.storage import parse_href

_PARQUET, _ZIP = ".parquet", ".zip"


class _Family(NamedTuple):
    name: str
    handles: Callable[[str, str], bool]
    run: Callable[..., Mapping[str, Any]]
    """Converts, and tells what was written."""
    options: frozenset[str] = frozenset()
    """What `run` takes beside ``overwrite`` and ``progress``."""


def _suffix(path: str) -> str:
    return Path(without_secrets(path)).suffix.lower()


def _is_format(source: str, name: str) -> bool:
    try:
        return sniff(source).format.name == name
    except NotThisFormatError:
        return False


def _refuse(given: Mapping[str, Any], kind: str) -> None:
    """Refuse options that this kind of source would silently ignore."""
    for name, value in given.items():
        if value not in (None, False, ()):
            option = "--" + name.replace("_", "-")
            raise InvalidInputError(f"{option} is not for this kind of source", found=kind)


# -- rasters and RaQuet ---------------------------------------------------------------------------

_RASTERS = frozenset(
    {
        *(
            ".tif",
            ".tiff",
            ".vrt",
            ".jp2",
            ".png",
            ".jpg",
            ".jpeg",
            ".webp",
            ".img",
            ".asc",
            ".hgt",
        ),
        *(".nc", ".nc4", ".h5", ".hdf5", ".zarr", ".grib", ".grb2"),
    }
)
_TIFF = frozenset({".tif", ".tiff"})


def _is_raster(source: str, output: str) -> bool:
    """Whether a raster becomes RaQuet, or a RaQuet file a GeoTIFF or RaQuet as comal writes it."""
    before = Path(_file(without_secrets(source))).suffix.lower()
    after = Path(output).suffix.lower()
    if before == after == _PARQUET:
        return _is_format(source, "raquet")
    return (before in _RASTERS and after == _PARQUET) or (before == _PARQUET and after in _TIFF)


def _file(source: str) -> str:
    """The file behind the name of a variable."""
    if ":" not in source:
        return source
    from comal.raster.variables import file_of  # noqa: PLC0415 - GDAL

    return str(file_of(source))


def _convert_raster(
    source: str, output: str, *, variable: str | None = None, **writing: Any
) -> Mapping[str, Any]:
    rewritten = Path(output).suffix.lower() == _PARQUET
    if rewritten and _suffix(source) == _PARQUET:
        _refuse({"variable": variable}, "raquet")
        raquet.repair(source, output, **writing)
        return {"from": "raquet", "to": "raquet"}
    if rewritten:
        made = raquet.write(source, output, variable=variable, **writing)
        return {"from": "raster", "to": "raquet", **made.to_dict()}
    _refuse({"variable": variable}, "GeoTIFF")
    return {"from": "raquet", "to": "cog", **raquet.to_cog(source, output, **writing).to_dict()}


# -- RaQuet drawn as tiles ------------------------------------------------------------------------


def _is_drawn(source: str, output: str) -> bool:
    """Whether a RaQuet file becomes a tileset; a manifest of samples is Parquet as well."""
    if _suffix(source) != _PARQUET or Path(output).suffix.lower() not in {"", _ZIP}:
        return False
    return _is_format(source, "raquet")


def _draw(source: str, output: str, **writing: Any) -> Mapping[str, Any]:
    made = draw(source, output, **writing)
    return {"from": "raquet", "to": "tapalcatl", "tiles": made.tiles, "archives": made.archives}


# -- tiles ----------------------------------------------------------------------------------------

_TILE_FILES = (".mbtiles", ".pmtiles")
_META = "meta.json"
_NUMBER = re.compile(r"0|[1-9][0-9]?")


def _is_tiles(source: str, output: str) -> bool:
    """Whether both are of this family: by names, and by a look at a local folder."""
    if output.lower().endswith(_TILE_FILES):
        return True
    if Path(output).suffix.lower() not in {"", ".tiles", _ZIP}:
        return False
    return source.lower().endswith(_TILE_FILES) or _is_tileset(source)


def _convert_tiles(source: str, output: str, **writing: Any) -> Mapping[str, Any]:
    """Convert; what comes out is decided by the name of `output`.

    A folder becomes a tileset, unless the source is one: then it gets loose tiles. A name that
    ends in .zip makes a single archive.
    """
    with ExitStack() as scope:
        tiles = tapalcatl.open_tiles(source, scope=scope)
        if output.lower().endswith(".mbtiles"):
            write: Any = tapalcatl.to_mbtiles
        elif output.lower().endswith(".pmtiles"):
            write = tapalcatl.to_pmtiles
        elif not _is_archives(source):
            write = tapalcatl.build
        elif output.lower().endswith(_ZIP):
            write = tapalcatl.remetatile
        else:
            write = tapalcatl.to_directory
        summary: Mapping[str, Any] = write(tiles, output, **writing).to_dict()
    return {"tiles": summary["tiles"], **summary}


def _is_archives(source: str) -> bool:
    """Whether the source is a tileset of archives."""
    path = _local(source)
    if path is not None and path.is_dir():
        return (path / _META).is_file()
    return source.endswith((f"/{_META}", _ZIP)) or source == _META


def _is_tileset(source: str) -> bool:
    if source.lower().endswith(_ZIP):
        return _is_format(source, "tapalcatl")  # samples have such a name, too
    path = _local(source)
    if path is None:
        return source.endswith(f"/{_META}")
    if path.is_dir():
        if (path / _META).is_file():
            return b"formats" in (path / _META).read_bytes()[:65_536]
        return any(_NUMBER.fullmatch(child.name) and _is_zoom(child) for child in path.iterdir())
    return path.name == _META


def _is_zoom(folder: Path) -> bool:
    """Whether a folder that is named by a number holds folders that are, as tiles do."""
    if not folder.is_dir():
        return False
    children = [child for child in folder.iterdir() if child.is_dir()]
    return bool(children) and all(child.name.isdecimal() for child in children)


def _local(source: str) -> Path | None:
    location = parse_href(source)
    return Path(location.path) if location.is_local else None


FAMILIES = (
    _Family("raquet", _is_raster, _convert_raster, frozenset({"variable"})),
    _Family("drawn", _is_drawn, _draw),
    _Family("tiles", _is_tiles, _convert_tiles),
)


# -- samples --------------------------------------------------------------------------------------

_ZIP_SUFFIXES = {".tacozip", _ZIP}
_MANIFESTS = {".csv", _PARQUET, ".geoparquet"}
_TORTILLAS = {"tortilla", "taco-v1"}
_PACKED = {"rasters", "manifest"}
_MIGRATING = ("children", "ids", "rai", "bands")
_READING: Mapping[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    OSError: InvalidInputError,
}


def _convert_samples(
    sources: Sequence[str],
    output: str | None,
    style: Style,
    *,
    overwrite: bool,
    dry_run: bool,
    given: dict[str, Any],
) -> bool:
    """Convert one source, or several Tortillas, and say so.

    False when a dry run found why it cannot be.
    """
    kind = _kind_of_all(sources)
    migrating = {name: given.pop(name) for name in _MIGRATING}
    pad, rename = given.pop("pad"), given.pop("rename")
    if kind not in _TORTILLAS:
        _refuse({"dry_run": dry_run, **migrating}, kind)
    if kind not in _TORTILLAS | _PACKED:
        _refuse({"pad": pad, **given}, kind)
    if kind != "zip":
        _refuse({"rename": rename}, kind)
    fields = collection_fields(**given)
    source = sources[0]
    with working(f"converting {source}", style) as progress:
        writing: dict[str, Any] = {"overwrite": overwrite, "progress": progress}
        if kind in _TORTILLAS:
            named = {name: value for name, value in migrating.items() if value is not None}
            if "ids" in named:
                named["ids"] = _mapping(named["ids"])
            report = migrate(
                source if len(sources) == 1 else list(sources),
                output,
                dry_run=dry_run,
                pad=pad,
                **writing,
                **named,
                **fields,
            )
        elif kind in _PACKED:
            _pack(kind, source, str(output), pad=pad, **writing, **fields)
        else:
            _repack(kind, source, str(output), rename=rename, **writing)
    if kind in _TORTILLAS:
        _tell(report, kind, style)
        return report.ok
    done({"source": source, "from": kind, "output": output}, style, f"{output}: written")
    return True


def _mapping(path: str) -> dict[str, str]:
    with translated(_READING, "file of ids cannot be read", where=path):
        data = Path(path).read_bytes()
    found = strictjson.loads(data, path)
    if not all(isinstance(new, str) for new in found.values()):
        raise InvalidInputError("file of ids is no mapping of texts", where=path)
    return found


def _tell(report: MigrationReport, kind: str, style: Style) -> None:
    if style.json:
        print_json({"from": kind, **report.to_dict()})
        return
    if report.dry_run or not style.quiet:
        for line in report.lines():
            click.echo(line)
    if not style.quiet:
        click.echo("nothing written" if report.dry_run else f"{report.output}: written")


def _pack(kind: str, source: str, output: str, **writing: Any) -> None:
    manifest = source if kind == "manifest" else None
    folder = Path(source).absolute().parent if manifest else source
    taco.pack_folder(folder, output, manifest=manifest, **writing)


def _repack(kind: str, source: str, output: str, *, rename: bool, **writing: Any) -> None:
    """From one container of TACO 2.0 to another."""
    to_zip = Path(output).suffix.lower() in _ZIP_SUFFIXES
    if kind == "zip" and not to_zip:
        taco.zip2folder(source, output, rename=rename, **writing)
    elif kind == "folder" and to_zip:
        taco.folder2zip(source, output, **writing)
    elif kind in {"tacocat", "tacocat-folder"}:
        with taco.load(source) as dataset:
            taco.export(dataset, output, **writing)
    else:
        raise InvalidInputError(
            "the source is in that form already", where=source, found=f"a TACO {kind}"
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
        # A manifest may be a Parquet file of any kind, but not one of tiles.
        if _is_format(source, "raquet"):
            raise InvalidInputError(
                "RaQuet does not become what the name of the target says",
                where=source,
                expected="*.tif for a COG, or a folder (no suffix) for PNG tiles",
                hint="'comal raquet export' writes PNG, and parts of a file",
            )
        return "manifest"
    try:
        found = sniff(source)
    except NotThisFormatError:
        if path.is_dir():
            return "rasters"
        raise
    if found.format.name in _TORTILLAS:
        return found.format.name
    with closing(adapter_of(found.format).archive(source)) as archive:
        return str(archive.describe()["container"])


# -- the command ----------------------------------------------------------------------------------


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
        ("comal convert theirs.parquet ours.parquet", "RaQuet of others, quick to read"),
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
@options.rename
@collection_options
@options.overwrite
@options.pass_style
@click.pass_context
def command(
    ctx: click.Context,
    style: Style,
    /,
    paths: tuple[str, ...],
    *,
    overwrite: bool,
    dry_run: bool,
    **given: Any,
) -> None:
    """Write SRC in another container or format; what SRC is, its bytes decide.

    DST is a TACO archive when its name ends in .tacozip or .zip, else a TACO folder. Tiles and
    RaQuet become Tapalcatl: a folder, or a single archive when its name ends in .zip. A dry run
    can do without DST when there is one SRC.

    A Tortilla or a TACO 1 becomes TACO 2.0, and what is not the same afterwards is reported. Of
    one part of a set, the whole set is converted; several SRC, or a pattern with '*', are
    converted as one. Fields of the collection that SRC does not give are asked for. Exit
    code 1 means that a dry run found why SRC cannot be converted so.
    """
    sources = paths[:-1] or paths
    output = paths[-1] if len(paths) > 1 else None
    if output is None and not dry_run:
        raise click.UsageError("Missing argument 'DST'.", ctx)
    source = sources[0]
    family = None
    if output is not None and len(sources) == 1:
        family = next((one for one in FAMILIES if one.handles(source, output)), None)
    if family is None:
        _refuse({"variable": given.pop("variable")}, "samples")
        ok = _convert_samples(
            sources, output, style, overwrite=overwrite, dry_run=dry_run, given=given
        )
        ctx.exit(0 if ok else 1)
    own = {name: given.pop(name) for name in family.options}
    _refuse({"dry_run": dry_run, **given}, family.name)
    with working(f"converting {source}", style) as progress:
        summary = family.run(source, output, overwrite=overwrite, progress=progress, **own)
    done({"source": source, "output": output, **summary}, style, f"{output}: written")
