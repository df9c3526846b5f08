"""The group ``comal taco``: what only TACO can do."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click import argument

from comal import strictjson, taco
from comal.cli import options
from comal.cli.app import Group
from comal.cli.options import Style, choice, flag, option, together
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
    from comal.taco.reading.view import ColumnMode


@click.group(
    "taco",
    cls=Group,
    removed={"zip2folder": "comal convert X OUT", "folder2zip": "comal convert X OUT.tacozip"},
)
def group() -> None:
    """TACO 2.0: make, query, cut, join and convert data sets of samples.

    $ comal taco create rasters/ scenes.tacozip  # pack a folder of GeoTIFFs
    $ comal taco sql scenes.tacozip 'SELECT count(*) FROM data'  # query it
    $ comal taco export scenes.tacozip clear.tacozip --where 'cloud_cover < 10'  # cut a part
    """


_LISTS = {"license": "licenses", "task": "tasks", "keyword": "keywords", "provider": "providers"}
_READING: Mapping[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    OSError: InvalidInputError,
    ValueError: InvalidInputError,
}


collection_options = together(
    option(
        "--collection",
        "JSON, YAML or TOML with fields of the collection; options override it.",
        metavar="FILE",
    ),
    option("--id", "Name of the data set: a-z, 0-9, '_', '-'."),
    option("--dataset-version", "Version of the data set.", metavar="TEXT"),
    option("--title", "At most 250 characters."),
    option("--description", "What the data set is."),
    option("--license", "SPDX name, such as CC-BY-4.0; repeatable.", multiple=True),
    option("--provider", "Who provides it; repeatable.", multiple=True),
    option("--task", "What it is for: segmentation; repeatable.", multiple=True),
    option("--keyword", "Repeatable.", multiple=True),
)
"""Add the options; the command receives them by name."""


def collection_fields(collection: str | None, **given: Any) -> dict[str, Any]:
    """Fields of the collection as `pack_folder` takes them: those of the file, then the options.

    Fields that are not of the core of TACO are returned under ``extra``.
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
    if bbox is not None:
        dataset = dataset.filter_bbox(*bbox, level=level)
    if datetime_range is not None:
        dataset = dataset.filter_datetime(datetime_range, level=level)
    if where is not None:
        # The condition is the caller's own SQL; the engine takes one SELECT and nothing else.
        text = f"SELECT * FROM data WHERE ({where}\n)"  # noqa: S608
        dataset = dataset.sql(text, isolated=isolated)
    return dataset


packing_options = together(
    argument("directory"),
    argument("output"),
    option(
        "--manifest",
        "CSV, Parquet or GeoParquet with id (such as scene_1/red.tif), path below DIRECTORY or "
        "URL, and fields; time_start becomes a STAC time. A row with an empty path is a folder: "
        "id scene_1.",
        metavar="FILE",
    ),
    option("--pattern", "Names to pack, such as '*.tif'; repeatable.", multiple=True),
    options.no_stac,
    flag("--pad", "Pad subfolders that lack a file others have."),
)
"""The parameters of commands that pack a folder."""


@group.command()
@packing_options
@option("--split-size", "Write several archives of about this size: 4GB.", metavar="SIZE")
@option(
    "--group-by",
    "Write an archive per value of this field.",
    multiple=True,
    callback=options.listed,
    metavar="FIELD",
)
@collection_options
@options.by_workers
@options.writing
def create(
    style: Style, /, directory: str, output: str, *, pattern: tuple[str, ...], **named: Any
) -> None:
    """Pack the files below DIRECTORY as one TACO data set.

    A file becomes a sample, a subfolder a sample that holds samples; subfolders of one depth
    must hold files of the same names. Names that begin with a dot are left out. OUTPUT is one ZIP
    archive when its name ends in .tacozip or .zip, else a folder.

    $ comal taco create rasters/ scenes.tacozip  # every file below rasters/
    $ comal taco create rasters/ scenes.tacozip --license CC-BY-4.0 --provider ESA
      # with licence and provider
    $ comal taco create rasters/ scenes.tacozip --manifest samples.csv
      # only what a table lists, with its columns as fields
    $ comal taco create rasters/ big.tacozip --split-size 4GB  # several archives
    $ comal taco create s3://scenes/rasters scenes.tacozip  # files in a bucket
    """
    packing = ("manifest", "stac", "pad", "split_size", "group_by", "overwrite", "executor")
    given = {name: named.pop(name) for name in packing} | {"pattern": list(pattern) or "*"}
    fields = collection_fields(**named)
    with working(f"packing {directory}", style) as progress:
        written = taco.pack_folder(directory, output, progress=progress, **given, **fields)
    paths = [str(path) for path in written]
    done({"output": paths}, style, "\n".join(f"{path}: written" for path in paths))
    missing = [name for name in ("licenses", "providers", "tasks") if name not in fields]
    if missing and not style.quiet:
        text = f"comal: warning: the collection has no {', '.join(missing)}"
        click.echo(f"{text}; --license, --provider and --task set them", err=True)


@group.command()
@options.query_options
def sql(style: Style, source: str, query: str, *, as_csv: bool, untrusted: bool | None) -> None:
    """Run one SELECT over the samples of X.

    The table is called data; level0, level1, ... are the levels of a nested data set, and l0,
    l1, ... the same with the columns of their parents. Only SELECT is allowed; it can read
    neither files nor addresses.

    $ comal taco sql scenes.tacozip 'SELECT id, cloud_cover FROM data LIMIT 5'  # some rows
    $ comal taco sql scenes.tacozip 'SELECT split, count(*) FROM data GROUP BY 1' --json
      # JSON lines
    $ comal taco sql scenes.tacozip 'SELECT * FROM level1' --csv  # the children, as CSV
    """
    with taco.load(source) as dataset:
        isolated = options.is_isolated(source, untrusted=untrusted)
        table = dataset.sql(query, isolated=isolated).data.to_arrow()
    print_result(table, as_json=style.json, as_csv=as_csv)


@group.command()
@options.source
@argument("output")
@options.where_options
@options.rename
@options.by_workers
@options.writing
def export(style: Style, /, source: str, output: str, **asked: Any) -> None:
    """Write the samples of X that pass the filters as a data set of its own.

    OUTPUT is one ZIP archive when its name ends in .tacozip or .zip, else a folder. Extent
    and counts are computed anew, and the collection names the data set that it was taken from.

    $ comal taco export scenes.tacozip clear.tacozip --where 'cloud_cover < 10'  # the clear ones
    $ comal taco export https://example.org/scenes.tacozip iberia/ --bbox=-10,35,4,44
      # a region, from a server, into a folder
    $ comal taco export scenes.tacozip summer.tacozip --datetime 2025-06-01/2025-08-31  # a season
    $ comal taco export parts/__TACOCAT__ whole.tacozip --rename
      # an index over archives that use an id twice
    """
    writing = {name: asked.pop(name) for name in ("rename", "overwrite", "executor")}
    with taco.load(source) as dataset:
        part = _filtered(dataset, isolated=options.is_isolated(source), **asked)
        with working(f"exporting to {output}", style) as progress:
            taco.export(part, output, progress=progress, **writing)
        count = len(part.data)
    summary: dict[str, Any] = {"output": output, "samples": count}
    if part.placed_by:
        summary["placed_by"] = list(part.placed_by)
    done(summary, style, f"{output}: {counted(count, 'sample')}")


@group.command()
@argument("archives", nargs=-1, required=True)
@option("-o --output", "Archive or folder to write.", metavar="OUT", required=True)
@choice(
    "--columns",
    ["intersection", "fill_missing", "strict"],
    "What to do with columns that some lack.",
    default="intersection",
)
@options.rename
@options.by_workers
@options.writing
def concat(
    style: Style, /, archives: tuple[str, ...], output: str, columns: ColumnMode, **named: Any
) -> None:
    """Join several TACO data sets and write them as one, samples included.

    'comal taco tacocat' makes an index over them instead and copies nothing.

    $ comal taco concat north.tacozip south.tacozip -o all.tacozip  # two into one
    $ comal taco concat a.tacozip b.tacozip -o all/ --columns fill_missing
      # keep columns that only one has
    """
    with ExitStack() as opened, working(f"writing {output}", style) as progress:
        datasets = [opened.enter_context(taco.load(href)) for href in archives]
        joined = taco.concat(datasets, column_mode=columns)
        taco.export(joined, output, progress=progress, **named)
        count = len(joined.data)
    done({"output": output, "samples": count}, style, f"{output}: {counted(count, 'sample')}")


@group.command()
@argument("archives", nargs=-1, required=True)
@option("-o --output", "Folder of the index; by default beside the archives.", metavar="FOLDER")
@flag("--append", "Add the archives to the index that is there, whose others stay unopened.")
@choice("--form", ["both", "binary", "folder"], "What is written.", default="both")
@options.any_schema
@options.writing
def tacocat(style: Style, /, archives: tuple[str, ...], output: str | None, **named: Any) -> None:
    """Write one index over several TACO archives, so that they open as one data set.

    Both forms are written: the file __TACOCAT__ of the specification (binary), and the folder
    .tacocat that newer readers expect. In a store only the file can be appended to.

    $ comal taco tacocat parts/*.tacozip  # an index beside the archives
    $ comal taco tacocat parts/new.tacozip --append  # add one later
    """
    with working("writing the index", style):
        written = taco.create_tacocat(list(archives), output, **named)
    paths = [str(path) for path in written]
    done({"output": paths, "archives": len(archives)}, style, "\n".join(paths))


@group.command()
@argument("archives", nargs=-1, required=True)
@option("-o --output", "Folder to write to; by default that of the archives.", metavar="FOLDER")
@options.any_schema
@options.writing
def tacollection(
    style: Style, /, archives: tuple[str, ...], output: str | None, **named: Any
) -> None:
    """Write TACOLLECTION.json over several TACO archives: counts summed, extents united.

    $ comal taco tacollection parts/*.tacozip -o parts/  # the sum of the parts
    """
    written = taco.create_tacollection(list(archives), output, **named)
    done({"output": str(written), "archives": len(archives)}, style, str(written))
