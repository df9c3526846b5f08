"""The group ``comal taco``: what only TACO can do."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from comal import strictjson, taco
from comal.cli import options
from comal.cli.app import Group
from comal.cli.options import Style, decorated
from comal.cli.output import done, print_result, working
from comal.errors import (
    ComalError,
    InvalidInputError,
    MissingExtraError,
    ObjectNotFoundError,
    counted,
    translated,
)

if TYPE_CHECKING:
    from comal.taco.reading.stages import ColumnMode


@click.group(
    "taco",
    cls=Group,
    removed={"zip2folder": "comal convert X OUT", "folder2zip": "comal convert X OUT.tacozip"},
    examples=(
        ("comal taco create rasters/ scenes.tacozip", "pack a folder of GeoTIFFs"),
        ("comal taco sql scenes.tacozip 'SELECT count(*) FROM data'", "query it"),
        ("comal taco export scenes.tacozip clear.tacozip --where 'cloud_cover < 10'", "cut a part"),
    ),
)
def group() -> None:
    """TACO 2.0: make, query, cut, join and convert data sets of samples."""


# -- fields of a collection -----------------------------------------------------------------------

_LISTS = {"license": "licenses", "task": "tasks", "keyword": "keywords", "provider": "providers"}
_READING: Mapping[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    OSError: InvalidInputError,
    ValueError: InvalidInputError,
}


def collection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command receives them by name."""
    options = (
        click.option(
            "--collection",
            metavar="FILE",
            help="JSON, YAML or TOML with fields of the collection; options override it.",
        ),
        click.option("--id", help="Name of the data set: a-z, 0-9, '_', '-'."),
        click.option("--dataset-version", metavar="TEXT", help="Version of the data set."),
        click.option("--title", help="At most 250 characters."),
        click.option("--description", help="What the data set is."),
        click.option("--license", multiple=True, help="SPDX name, such as CC-BY-4.0; repeatable."),
        click.option("--provider", multiple=True, help="Who provides it; repeatable."),
        click.option("--task", multiple=True, help="What it is for: segmentation; repeatable."),
        click.option("--keyword", multiple=True, help="Repeatable."),
    )
    return decorated(function, options)


def collection_fields(collection: str | None, **given: Any) -> dict[str, Any]:
    """Fields of the collection as `pack_folder` takes them: those of the file, then the options.

    Fields that are not of the core of TACO come back under ``extra``.
    """
    from comal.taco.spec import CORE_FIELDS  # noqa: PLC0415 - help needs none of it

    fields = read_document(collection, "collection file") if collection else {}
    for name, value in given.items():
        if value:
            fields[_LISTS.get(name, name)] = list(value) if name in _LISTS else value
    if given.get("provider"):
        fields["providers"] = [{"name": name} for name in given["provider"]]
    for computed in ("taco_version", "taco:pit_schema", "taco:field_schema"):
        fields.pop(computed, None)
    extra = {name: fields.pop(name) for name in list(fields) if name not in CORE_FIELDS}
    return {**fields, "extra": extra} if extra else fields


def read_document(path: str, what: str) -> dict[str, Any]:
    """A document of fields; the suffix says whether it is JSON, TOML or YAML."""
    with translated(_READING, f"{what} cannot be read", where=path):
        data, suffix = Path(path).read_bytes(), Path(path).suffix.lower()
        if suffix in {".yaml", ".yml"}:
            fields = _yaml(data)
        elif suffix == ".toml":
            fields = tomllib.loads(data.decode())
        else:
            return strictjson.loads(data, path)
    if not isinstance(fields, dict):
        raise InvalidInputError(f"{what} holds no fields", where=path)
    return fields


def _yaml(data: bytes) -> Any:
    try:
        yaml = import_module("yaml")
    except ImportError as error:
        raise MissingExtraError.of("PyYAML", "yaml", "a collection in YAML") from error
    try:
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _filtered(
    dataset: taco.TacoDataset,
    *,
    bbox: tuple[float, float, float, float] | None,
    datetime_range: str | None,
    level: int | None,
    where: str | None,
    isolated: bool = False,
) -> taco.TacoDataset:
    """`dataset` restricted by what was given; all of it must hold."""
    view = dataset
    if bbox is not None:
        view = view.filter_bbox(*bbox, level=level)
    if datetime_range is not None:
        view = view.filter_datetime(datetime_range, level=level)
    if where is not None:
        # The condition is the caller's own SQL; the engine takes one SELECT and nothing else.
        text = f"SELECT * FROM data WHERE ({where}\n)"  # noqa: S608
        view = view.sql(text, isolated=isolated)
    return view


# -- create ---------------------------------------------------------------------------------------


@group.command(
    "create",
    short_help="Pack a folder of rasters, or what a manifest lists.",
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
@options.no_stac
@click.option("--pad", is_flag=True, help="Fill up subfolders that lack a file others have.")
@click.option("--split-size", metavar="SIZE", help="Several archives of about this size: 4GB.")
@click.option(
    "--group-by",
    multiple=True,
    callback=options.listed,
    metavar="FIELD",
    help="An archive per value.",
)
@collection_options
@options.writing
def create(
    style: Style,
    /,
    directory: str,
    output: str,
    *,
    manifest: str | None,
    pattern: tuple[str, ...],
    stac: bool,
    pad: bool,
    split_size: str | None,
    group_by: list[str] | None,
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
        written = taco.pack_folder(
            directory,
            output,
            manifest=manifest,
            pattern=list(pattern) or "*",
            stac=stac,
            pad=pad,
            split_size=split_size,
            group_by=group_by,
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


# -- sql ------------------------------------------------------------------------------------------


@group.command(
    "sql",
    short_help="Run one SELECT over the samples.",
    examples=(
        ("comal taco sql scenes.tacozip 'SELECT id, cloud_cover FROM data LIMIT 5'", "some rows"),
        (
            "comal taco sql scenes.tacozip 'SELECT split, count(*) FROM data GROUP BY 1' --json",
            "JSON lines",
        ),
        ("comal taco sql scenes.tacozip 'SELECT * FROM level1' --csv", "the children, as CSV"),
    ),
)
@options.query_options
def sql(style: Style, source: str, query: str, *, as_csv: bool, untrusted: bool | None) -> None:
    """Run one SELECT over the samples of X.

    The table is called data; level0, level1, ... are the levels of a nested data set, and l0, l1,
    ... the same with the columns of their parents. Nothing but SELECT is possible, and no file
    and no address can be read by it.
    """
    with taco.load(source) as dataset:
        isolated = options.is_isolated(source, untrusted=untrusted)
        table = dataset.sql(query, isolated=isolated).data.to_arrow()
    print_result(table, as_json=style.json, as_csv=as_csv)


# -- export ---------------------------------------------------------------------------------------


@group.command(
    "export",
    short_help="A filtered data set as an archive of its own.",
    examples=(
        (
            "comal taco export scenes.tacozip clear.tacozip --where 'cloud_cover < 10'",
            "the clear ones",
        ),
        (
            "comal taco export https://example.org/scenes.tacozip iberia/ --bbox=-10,35,4,44",
            "a region, from a server, into a folder",
        ),
        (
            "comal taco export scenes.tacozip summer.tacozip --datetime 2025-06-01/2025-08-31",
            "a season",
        ),
        (
            "comal taco export parts/__TACOCAT__ whole.tacozip --rename",
            "an index over archives that use an id twice",
        ),
    ),
)
@options.source
@click.argument("output")
@options.where_options
@options.rename
@options.writing
def export(
    style: Style,
    /,
    source: str,
    output: str,
    *,
    rename: bool,
    overwrite: bool,
    **conditions: Any,
) -> None:
    """Write the samples of X that pass the filters as a data set of its own.

    OUTPUT is one ZIP archive when its name ends in .tacozip or .zip, else a folder. Extent and
    counts are computed anew, and the collection says what it is a part of.
    """
    with taco.load(source) as dataset:
        part = _filtered(dataset, isolated=options.is_isolated(source), **conditions)
        with working(f"exporting to {output}", style) as progress:
            taco.export(part, output, rename=rename, overwrite=overwrite, progress=progress)
        count = len(part.data)
    summary: dict[str, Any] = {"output": output, "samples": count}
    if part.placed_by:
        summary["placed_by"] = list(part.placed_by)
    done(summary, style, f"{output}: {counted(count, 'sample')}")


# -- concat ---------------------------------------------------------------------------------------


@group.command(
    "concat",
    short_help="Several data sets joined into one archive.",
    examples=(
        ("comal taco concat north.tacozip south.tacozip -o all.tacozip", "two into one"),
        (
            "comal taco concat a.tacozip b.tacozip -o all/ --columns fill_missing",
            "keep columns that only one has",
        ),
    ),
)
@click.argument("archives", nargs=-1, required=True)
@click.option("-o", "--output", metavar="OUT", required=True, help="Archive or folder to write.")
@click.option(
    "--columns",
    type=click.Choice(["intersection", "fill_missing", "strict"]),
    default="intersection",
    show_default=True,
    help="What to do with columns that not all have.",
)
@options.rename
@options.writing
def concat(
    style: Style, /, archives: tuple[str, ...], output: str, columns: ColumnMode, **named: Any
) -> None:
    """Join several TACO data sets and write them as one, samples included.

    'comal taco tacocat' makes an index over them instead and copies nothing.
    """
    datasets = [taco.load(href) for href in archives]
    try:
        joined = taco.concat(datasets, column_mode=columns)
        with working(f"writing {output}", style) as progress:
            taco.export(joined, output, progress=progress, **named)
        count = len(joined.data)
    finally:
        for dataset in datasets:
            dataset.close()
    done({"output": output, "samples": count}, style, f"{output}: {counted(count, 'sample')}")


# -- tacocat --------------------------------------------------------------------------------------


@group.command(
    "tacocat",
    short_help="One index over several archives.",
    examples=(("comal taco tacocat parts/*.tacozip", "an index beside the archives"),),
)
@click.argument("archives", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="FOLDER", help="Write the index here; beside the archives if absent."
)
@options.any_schema
@options.writing
def tacocat(style: Style, /, archives: tuple[str, ...], output: str | None, **named: Any) -> None:
    """Write one index over several TACO archives, so that they open as one data set.

    Both forms are written: the file __TACOCAT__ of the specification, and the folder .tacocat
    that newer readers want.
    """
    with working("writing the index", style):
        written = taco.create_tacocat(list(archives), output, **named)
    paths = [str(path) for path in written]
    done({"output": paths, "archives": len(archives)}, style, "\n".join(paths))


# -- tacollection ---------------------------------------------------------------------------------


@group.command(
    "tacollection",
    short_help="One TACOLLECTION.json over several archives.",
    examples=(("comal taco tacollection parts/*.tacozip -o parts/", "the sum of the parts"),),
)
@click.argument("archives", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="FOLDER", help="Write it here; beside the archives if absent."
)
@options.any_schema
@options.writing
def tacollection(
    style: Style, /, archives: tuple[str, ...], output: str | None, **named: Any
) -> None:
    """Write TACOLLECTION.json over several TACO archives: counts summed, extents united."""
    written = taco.create_tacollection(list(archives), output, **named)
    done({"output": str(written), "archives": len(archives)}, style, str(written))
