"""The group ``comal tortilla``: files of samples, made and changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from comal import tortilla
from comal.cli import options
from comal.cli.app import Group
from comal.cli.options import NAME_FILE, OLD_NEW, Style, decorated
from comal.cli.output import done, human_size, print_result, working
from comal.errors import InvalidInputError, counted, shown


@click.group(
    "tortilla",
    cls=Group,
    removed={
        "append": "comal tortilla edit FILE --add FILE...",
        "delete": "comal tortilla edit FILE --delete ID",
        "set-columns": "comal tortilla edit FILE --columns TABLE",
        "drop-columns": "comal tortilla edit FILE --drop COLUMN",
        "rename": "comal tortilla edit FILE --rename OLD=NEW",
    },
    examples=(
        ("comal tortilla create rasters/ scenes.tortilla", "pack a folder of GeoTIFFs"),
        ("comal tortilla edit scenes.tortilla --add new.tif", "add to it"),
        (
            "comal tortilla compile scenes.tortilla train.tortilla --split train",
            "write a part of it",
        ),
        ("comal tortilla join scenes.0001.part.tortilla -o scenes.tortilla", "one file of parts"),
    ),
)
def group() -> None:
    """Tortilla 0.5: make, change, cut and join files of samples."""


def _cut_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where a set is cut into parts."""
    options = (
        click.option("--size", "chunk_size", metavar="SIZE", help="Bytes of items in a part: 4GB."),
        click.option("--rows", "chunk_rows", type=click.IntRange(1), help="Items in a part."),
        click.option("--by", "chunk_by", metavar="COLUMN", help="A part for each value."),
        click.option(
            "--from-zero",
            "first_part",
            flag_value=0,
            default=None,
            type=int,
            help="Number the parts from 0000, as published sets are, not from 0001.",
        ),
    )
    return decorated(function, options)


_peer_names = click.option(
    "--peer-names",
    is_flag=True,
    help="Write rai:ele for rai:elevation, as published files have it.",
)


def _cut_of(**options: Any) -> dict[str, Any]:
    """The keyword arguments that the options stand for."""
    first = options.pop("first_part", None)
    return {**options, "first_part": 1 if first is None else int(first)}


def _report(made: tortilla.Created, style: Style, placed_by: Sequence[str] = ()) -> None:
    """Tell what was written, its class of the specification, and what found rows in a box."""
    paths = [str(path) for path in made.paths]
    kind = f", a {' and a '.join(made.classes)}" if made.classes else ""
    samples = counted(made.rows, "sample")
    first = f"{paths[0]}: {samples}{kind}"
    if len(paths) > 1:
        first = f"{paths[0]} and {counted(len(paths) - 1, 'more part')}: {samples}{kind}"
    summary = {"output": paths, "samples": made.rows, "classes": list(made.classes)}
    if placed_by:
        summary["placed_by"] = list(placed_by)
    done(summary, style, first)


# -- create ---------------------------------------------------------------------------------------


@group.command(
    "create",
    short_help="Pack a folder of files, or what a manifest lists.",
    examples=(
        ("comal tortilla create rasters/ scenes.tortilla", "every file below rasters/"),
        ("comal tortilla create rasters/ big.tortilla --size 4GB", "as a set of parts"),
        (
            "comal tortilla create rasters/ scenes.tortilla --manifest samples.csv",
            "only what a table lists, with its columns",
        ),
        (
            "comal tortilla create rasters/ a.tortilla --layer gdp=gdp.tif --admin 0=world.geojson",
            "with columns of responsible AI",
        ),
    ),
)
@click.argument("directory")
@click.argument("output")
@click.option(
    "--manifest",
    metavar="FILE",
    help="CSV or Parquet with id (such as a/b.tif), path and other columns; time_start becomes a "
    "STAC time. A row with an empty path is a nested Tortilla, such as a.",
)
@click.option("--pattern", multiple=True, help="Names to pack, such as '*.tif'; repeatable.")
@options.no_stac
@click.option(
    "--layer",
    multiple=True,
    type=NAME_FILE,
    help="Mean over each sample as rai:NAME: elevation, cisi, gdp, hdi, gmi, pop; repeatable.",
)
@click.option(
    "--admin",
    multiple=True,
    type=NAME_FILE,
    help="Name of the area as rai:adminN, from GeoJSON, GeoPackage, GeoParquet; repeatable.",
)
@click.option(
    "--rai-level",
    type=click.IntRange(0),
    default=0,
    help="Items that get these columns: 0 the outermost, 1 those nested in them, ...",
)
@click.option(
    "--allow-ids",
    is_flag=True,
    help="Keep ids that are not portable: a?b, CON, two that differ in case.",
)
@_peer_names
@_cut_options
@options.writing
def create(
    style: Style,
    /,
    directory: str,
    output: str,
    *,
    pattern: tuple[str, ...],
    layer: tuple[tuple[str, str], ...],
    admin: tuple[tuple[str, str], ...],
    rai_level: int,
    **more: Any,
) -> None:
    """Pack the files below DIRECTORY as one Tortilla.

    A file becomes an item, a subfolder an item that holds items. Several parts are called
    NAME.0001.part.tortilla, NAME.0002.part.tortilla, ...
    """
    rasters = dict(layer)
    areas = {_level(name): path for name, path in admin}
    rai = tortilla.Enrichment(rasters, areas, level=rai_level) if rasters or areas else None
    with working(f"packing {directory}", style) as progress:
        made = tortilla.pack_folder(
            directory,
            output,
            pattern=list(pattern) or "*",
            rai=rai,
            progress=progress,
            **_cut_of(**more),
        )
    _report(made, style)


def _level(text: str) -> int:
    if not text.isdecimal():
        raise InvalidInputError(
            "unknown administrative level", found=text, expected="0, 1 or 2", where="--admin"
        )
    return int(text)


# -- edit -----------------------------------------------------------------------------------------


@group.command(
    "edit",
    short_help="Change rows and columns in place, all of it at once.",
    examples=(
        ("comal tortilla edit scenes.tortilla --add new.tif --add newer.tif", "two files more"),
        ("comal tortilla edit scenes.tortilla --add new.tif --split test", "as test data"),
        ("comal tortilla edit scenes.tortilla --delete cloudy.tif", "remove one sample"),
        ("comal tortilla edit scenes.tortilla --columns clouds.csv", "the columns of a table"),
        (
            "comal tortilla edit scenes.tortilla --columns splits.csv --replace",
            "in place of old ones",
        ),
        ("comal tortilla edit scenes.tortilla --drop cloud --drop haze", "remove two columns"),
        ("comal tortilla edit scenes.tortilla --rename old.tif=new.tif", "give a sample a new id"),
    ),
)
@click.argument("file")
@click.option(
    "--delete", multiple=True, metavar="ID", help="Remove this row; its bytes stay until 'compact'."
)
@click.option(
    "--drop", multiple=True, metavar="COLUMN", help="Remove this column; required ones stay."
)
@click.option("--rename", multiple=True, type=OLD_NEW, help="Give a row a new id.")
@click.option(
    "--columns",
    metavar="TABLE",
    help="Set the columns of a CSV or Parquet file. With a column 'id', rows are found by it, and "
    "others keep their values; without, the file has a row for each item, in their order.",
)
@click.option("--replace", is_flag=True, help="--columns may replace columns that are there.")
@click.option(
    "--add", multiple=True, metavar="FILE", help="Add a file; its name becomes the id of the row."
)
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    help="Split of the files that are added.",
)
@click.option("--stac", is_flag=True, help="Read CRS, shape and place of rasters that are added.")
@options.pass_style
def edit(
    style: Style,
    /,
    file: str,
    *,
    rename: tuple[tuple[str, str], ...],
    columns: str | None,
    add: tuple[str, ...],
    split: str | None,
    stac: bool,
    **named: Any,
) -> None:
    """Change the Tortilla FILE in place; --delete, --drop, --rename and --add may be repeated.

    Rows and columns go first, then ids change, columns are set, and files are added, in this order.
    All of it becomes visible at once: a crash leaves the old file or the new one.
    """
    ids = dict(rename)
    if len(ids) < len(rename):
        raise click.BadParameter("an id is named twice", param_hint="--rename")
    table = None
    if columns is not None:
        from comal.tortilla.writing.folders import read_manifest  # noqa: PLC0415 - pyarrow

        table = read_manifest(columns)
    samples = [tortilla.Sample(Path(one).name, path=one, data_split=split) for one in add]
    with working(f"changing {file}", style) as progress:
        count = tortilla.edit(
            file,
            rename=ids,
            columns=table,
            add=samples or None,
            stac=stac or None,
            progress=progress,
            **named,
        )
    done({"output": file, "samples": count}, style, f"{file}: {counted(count, 'sample')}")


# -- compile --------------------------------------------------------------------------------------


@group.command(
    "compile",
    short_help="A part of a Tortilla as a file of its own.",
    examples=(
        ("comal tortilla compile scenes.tortilla train.tortilla --split train", "one split"),
        (
            "comal tortilla compile https://example.org/s.tortilla two.tortilla --id s1 --id s2",
            "two samples from a server",
        ),
        (
            "comal tortilla compile scenes.tortilla clear.tortilla --where 'cloud_cover < 10'",
            "those for which a condition holds",
        ),
        (
            "comal tortilla compile scenes.tortilla iberia.tortilla --bbox=-10,35,4,44",
            "a region; --datetime 2025-06-01/2025-08-31 beside it leaves a season of that",
        ),
        (
            "comal tortilla compile scenes.tortilla two.tortilla --nested s1 --id red.tif",
            "samples of a nested Tortilla",
        ),
        ("comal tortilla compile scenes.tortilla few.tortilla --head 100", "the first hundred"),
    ),
)
@options.source
@click.argument("output")
@click.option(
    "--id",
    "ids",
    multiple=True,
    callback=options.listed,
    help="A sample to take; repeatable, in this order.",
)
@click.option(
    "--nested", metavar="ID", help="Of what the Tortilla within X at ID (a or a/b) holds."
)
@click.option("--split", type=click.Choice(["train", "validation", "test"]), help="One split.")
@options.row_options
@click.option("--head", type=click.IntRange(1), metavar="N", help="At most the first N of them.")
@click.option("--siblings", is_flag=True, help="X is one part of a set; take all of it.")
@click.option("--allow-ids", is_flag=True, help="Keep ids that no file system could hold.")
@_peer_names
@_cut_options
@options.writing
def compile_(style: Style, /, source: str, output: str, *, siblings: bool, **more: Any) -> None:
    """Write the samples of X that pass the filters as a Tortilla of its own.

    Samples keep their order and their bytes; the first one that cannot be read ends it, and
    nothing is written.
    """
    filters = {name: more.pop(name) for name in _FILTERS}
    frame = _filtered(source, tortilla.open(source, siblings=siblings), **filters)
    with working(f"writing {output}", style) as progress:
        made = tortilla.compile(frame, output, progress=progress, **_cut_of(**more))
    _report(made, style, frame.placed_by)


_FILTERS = ("nested", "split", "bbox", "datetime_range", "where", "head")


def _filtered(
    source: str,
    frame: tortilla.TortillaFrame,
    *,
    nested: str | None,
    split: str | None,
    bbox: tuple[float, float, float, float] | None,
    datetime_range: str | None,
    where: str | None,
    head: int | None,
) -> tortilla.TortillaFrame:
    """`frame` restricted by what was given; all of it must hold."""
    if nested is not None:
        frame = _nested(frame, nested)
    if split is not None:
        frame = _of_split(frame, split)
    if bbox is not None:
        frame = frame.filter_bbox(*bbox)
    if datetime_range is not None:
        frame = frame.filter_datetime(datetime_range)
    if where is not None:
        frame = frame.where(where, isolated=options.is_isolated(source))
    return frame if head is None else frame.head(head)


def _nested(frame: tortilla.TortillaFrame, key: str) -> tortilla.TortillaFrame:
    found = frame.read(key)
    if not isinstance(found, tortilla.TortillaFrame):
        raise InvalidInputError("no nested Tortilla", where="--nested", found=shown(key))
    return found


def _of_split(frame: tortilla.TortillaFrame, split: str) -> tortilla.TortillaFrame:
    import pyarrow.compute as pc  # noqa: PLC0415 - for this option alone

    from comal.tortilla.spec import DATA_SPLIT  # noqa: PLC0415 - as above

    if DATA_SPLIT not in frame.columns:
        raise InvalidInputError(f"no column {DATA_SPLIT}", where="--split")
    return frame.filter(pc.equal(frame[DATA_SPLIT], split))


# -- split ----------------------------------------------------------------------------------------


@group.command(
    "split",
    short_help="A Tortilla as a set of parts.",
    examples=(
        ("comal tortilla split scenes.tortilla parts/scenes.tortilla --size 4GB", "by size"),
        ("comal tortilla split scenes.tortilla parts/scenes.tortilla --by region", "by a column"),
    ),
)
@options.source
@click.argument("output")
@_cut_options
@options.writing
def split(style: Style, /, source: str, output: str, **named: Any) -> None:
    """Write X as a set of parts named after OUTPUT; one of --size, --rows and --by says where."""
    with working(f"splitting {source}", style) as progress:
        made = tortilla.split(source, output, progress=progress, **_cut_of(**named))
    _report(made, style)


# -- join -----------------------------------------------------------------------------------------


@group.command(
    "join",
    short_help="Parts of a set, or several Tortillas, as one file.",
    examples=(
        ("comal tortilla join scenes.0001.part.tortilla -o scenes.tortilla", "the whole set"),
        ("comal tortilla join north.tortilla south.tortilla -o all.tortilla", "two into one"),
    ),
)
@click.argument("files", nargs=-1, required=True)
@click.option("-o", "--output", metavar="OUT", required=True, help="The file to write.")
@click.option("--allow-ids", is_flag=True, help="Keep ids that no file system could hold.")
@options.writing
def join(style: Style, /, files: tuple[str, ...], output: str, **named: Any) -> None:
    """Join FILES in their order; of one part, the others of its set are found by their names.

    Sets must be whole, and no id may stand in two files.
    """
    sources = files[0] if len(files) == 1 else list(files)
    with working(f"writing {output}", style) as progress:
        made = tortilla.join(sources, output, progress=progress, **named)
    _report(made, style)


# -- compact --------------------------------------------------------------------------------------


@group.command(
    "compact",
    short_help="Free the bytes that no row leads to.",
    examples=(
        ("comal tortilla compact scenes.tortilla", "in its place"),
        ("comal tortilla compact scenes.tortilla -o small.tortilla", "into another file"),
    ),
)
@click.argument("file")
@click.option("-o", "--output", metavar="FILE", help="Write here instead of in its place.")
@options.writing
def compact(style: Style, file: str, output: str | None, *, overwrite: bool) -> None:
    """Write the Tortilla FILE anew, without the bytes that no row leads to."""
    with working(f"compacting {file}", style) as progress:
        saved = tortilla.compact(file, output, overwrite=overwrite, progress=progress)
    target = output or file
    text = f"{target}: {human_size(abs(saved))} {'smaller' if saved >= 0 else 'larger'}"
    done({"output": target, "saved": saved}, style, text)


# -- sql ------------------------------------------------------------------------------------------


@group.command(
    "sql",
    short_help="One SELECT over the items.",
    examples=(
        (
            "comal tortilla sql scenes.tortilla 'SELECT \"tortilla:id\", cloud_cover FROM data'",
            "some columns",
        ),
        (
            "comal tortilla sql scenes.tortilla 'SELECT ST_X(\"stac:centroid\") AS lon FROM data'",
            "the functions of geometries are there",
        ),
    ),
)
@options.query_options
def sql(style: Style, source: str, query: str, *, as_csv: bool, untrusted: bool | None) -> None:
    """Run one SELECT over the items of X.

    The table is called data. Nothing but SELECT is possible, and no file and no address can be
    read by it.
    """
    frame = tortilla.open(source)
    table = frame.sql(query, isolated=options.is_isolated(source, untrusted=untrusted))
    print_result(table, as_json=style.json, as_csv=as_csv)
