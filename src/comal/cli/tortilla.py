"""The group ``comal tortilla``: files of samples, made and changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click import argument

from comal import tortilla
from comal.cli import options
from comal.cli.app import Group
from comal.cli.options import OLD_NEW, Decorator, Style, choice, flag, option, together, whole
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
        "split": "comal tortilla compile X OUTPUT --size 4GB",
    },
)
def group() -> None:
    """Tortilla 0.5: make, change, cut and join files of samples.

    $ comal tortilla create rasters/ scenes.tortilla  # pack a folder of GeoTIFFs
    $ comal tortilla edit scenes.tortilla --add new.tif  # add to it
    $ comal tortilla compile scenes.tortilla train.tortilla --split train  # write a part of it
    $ comal tortilla join scenes.0001.part.tortilla -o scenes.tortilla  # one file of parts
    """


def cut_options(default: str | None = None) -> Decorator:
    """Options for the division of a set into parts."""
    text = "Bytes of items per part: 4GB."
    return together(
        option("--size", text, metavar="SIZE", to="chunk_size", default=default),
        whole("--rows", "Items per part.", 1, to="chunk_rows"),
    )


def _report(made: tortilla.Created, style: Style, placed_by: Sequence[str] = ()) -> None:
    """Print what was written, its class of the specification, and what placed rows in a box."""
    paths = [str(path) for path in made.paths]
    more = f" and {counted(len(paths) - 1, 'more part')}" if len(paths) > 1 else ""
    kind = f", a {' and a '.join(made.classes)}" if made.classes else ""
    text = f"{paths[0]}{more}: {counted(made.rows, 'sample')}{kind}"
    summary = {"output": paths, "samples": made.rows, "classes": list(made.classes)}
    if placed_by:
        summary["placed_by"] = list(placed_by)
    done(summary, style, text)


packing_options = together(
    argument("directory"),
    argument("output"),
    option(
        "--manifest",
        "CSV or Parquet with id (such as a/b.tif), path and other columns; time_start becomes a "
        "STAC time. A row with an empty path is a nested Tortilla, such as a.",
        metavar="FILE",
    ),
    option("--pattern", "Names to pack, such as '*.tif'; repeatable.", multiple=True),
    options.no_stac,
    flag("--allow-ids", "Keep ids that are not portable: a?b, CON, two that differ in case."),
)
"""The parameters of commands that pack a folder."""


@group.command()
@packing_options
@cut_options()
@options.by_workers
@options.writing
def create(
    style: Style, /, directory: str, output: str, *, pattern: tuple[str, ...], **more: Any
) -> None:
    """Pack the files below DIRECTORY as one Tortilla.

    A file becomes an item, a subfolder an item that holds items. Several parts are called
    NAME.0001.part.tortilla, NAME.0002.part.tortilla, ...

    $ comal tortilla create rasters/ scenes.tortilla  # every file below rasters/
    $ comal tortilla create rasters/ big.tortilla --size 4GB  # as a set of parts
    $ comal tortilla create rasters/ scenes.tortilla --manifest samples.csv
      # only what a table lists, with its columns
    """
    with working(f"packing {directory}", style) as progress:
        names = list(pattern) or "*"
        made = tortilla.pack_folder(directory, output, pattern=names, progress=progress, **more)
    _report(made, style)


@group.command()
@argument("file")
@option("--delete", "Remove this row; its bytes stay until 'compact'.", multiple=True, metavar="ID")
@option("--drop", "Remove this column; required ones stay.", multiple=True, metavar="COLUMN")
@option("--rename", "Give a row a new id.", multiple=True, type=OLD_NEW)
@option(
    "--columns",
    "Set the columns of a CSV or Parquet file. With a column 'id', rows are found by it, and "
    "others keep their values; without, the file has a row for each item, in their order.",
    metavar="TABLE",
)
@flag("--replace", "Let --columns replace existing columns.")
@option("--add", "Add a file; its name becomes the id of the row.", multiple=True, metavar="FILE")
@choice("--split", ["train", "validation", "test"], "Split of the files that are added.")
@flag("--stac", "Read CRS, shape and place of rasters that are added.")
@options.pass_style
def edit(style: Style, /, file: str, *, rename: tuple[tuple[str, str], ...], **named: Any) -> None:
    """Change the Tortilla FILE in place; --delete, --drop, --rename and --add may be repeated.

    Rows and columns go first, then ids change, columns are set, and files are added, in this order.
    All of it becomes visible at once: a crash leaves the old file or the new one.

    $ comal tortilla edit scenes.tortilla --add new.tif --add newer.tif  # two more files
    $ comal tortilla edit scenes.tortilla --add new.tif --split test  # as test data
    $ comal tortilla edit scenes.tortilla --delete cloudy.tif  # remove one sample
    $ comal tortilla edit scenes.tortilla --columns clouds.csv  # the columns of a table
    $ comal tortilla edit scenes.tortilla --columns splits.csv --replace  # in place of old ones
    $ comal tortilla edit scenes.tortilla --drop cloud --drop haze  # remove two columns
    $ comal tortilla edit scenes.tortilla --rename old.tif=new.tif  # give a sample a new id
    """
    ids = dict(rename)
    if len(ids) < len(rename):
        raise click.BadParameter("an id is given twice", param_hint="--rename")
    if named["columns"] is not None:
        from comal.tortilla.creating import read_manifest  # noqa: PLC0415 - pyarrow

        named["columns"] = read_manifest(named["columns"])
    split, files = named.pop("split"), named.pop("add")
    samples = [tortilla.Sample(Path(one).name, path=one, data_split=split) for one in files]
    named |= {"add": samples or None, "stac": named["stac"] or None}
    with working(f"changing {file}", style) as progress:
        count = tortilla.edit(file, rename=ids, progress=progress, **named)
    done({"output": file, "samples": count}, style, f"{file}: {counted(count, 'sample')}")


@group.command("compile")
@options.source
@argument("output")
@option(
    "--id",
    "A sample to take; repeatable, in this order.",
    multiple=True,
    callback=options.listed,
    to="ids",
)
@option("--nested", "Take from the Tortilla nested in X at ID (a or a/b).", metavar="ID")
@choice("--split", ["train", "validation", "test"], "One split.")
@options.row_options
@whole("--head", "At most the first N of them.", 1, metavar="N")
@flag("--siblings", "X is one part of a set; take the whole set.")
@flag("--allow-ids", "Keep ids that no file system could hold.")
@cut_options()
@options.writing
def compile_(style: Style, /, source: str, output: str, *, siblings: bool, **more: Any) -> None:
    """Write the samples of X that pass the filters as a Tortilla of its own.

    Samples keep their order and their bytes. If one cannot be read, nothing is written.

    $ comal tortilla compile scenes.tortilla train.tortilla --split train  # one split
    $ comal tortilla compile https://example.org/s.tortilla two.tortilla --id s1 --id s2
      # two samples from a server
    $ comal tortilla compile scenes.tortilla clear.tortilla --where 'cloud_cover < 10'
      # those that meet a condition
    $ comal tortilla compile scenes.tortilla iberia.tortilla --bbox=-10,35,4,44
      # a region; --datetime 2025-06-01/2025-08-31 beside it leaves a season of that
    $ comal tortilla compile scenes.tortilla two.tortilla --nested s1 --id red.tif
      # samples of a nested Tortilla
    $ comal tortilla compile scenes.tortilla few.tortilla --head 100  # the first hundred
    $ comal tortilla compile scenes.tortilla parts/s.tortilla --size 4GB  # a set of parts
    """
    filters = {name: more.pop(name) for name in _FILTERS}
    frame = _filtered(source, tortilla.open(source, siblings=siblings), **filters)
    with working(f"writing {output}", style) as progress:
        made = tortilla.compile(frame, output, progress=progress, **more)
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
        raise InvalidInputError("not a nested Tortilla", where="--nested", found=shown(key))
    return found


def _of_split(frame: tortilla.TortillaFrame, split: str) -> tortilla.TortillaFrame:
    import pyarrow.compute as pc  # noqa: PLC0415 - for this option alone

    from comal.tortilla.spec import DATA_SPLIT  # noqa: PLC0415 - as above

    if DATA_SPLIT not in frame.columns:
        raise InvalidInputError(f"no column {DATA_SPLIT}", where="--split")
    return frame.filter(pc.equal(frame[DATA_SPLIT], split))


@group.command()
@argument("files", nargs=-1, required=True)
@option("-o --output", "The file to write.", metavar="OUT", required=True)
@flag("--allow-ids", "Keep ids that no file system could hold.")
@options.writing
def join(style: Style, /, files: tuple[str, ...], output: str, **named: Any) -> None:
    """Join FILES in their order; of one part, the others of its set are found by their names.

    Sets must be complete, and no id may be in two files.

    $ comal tortilla join scenes.0001.part.tortilla -o scenes.tortilla  # the whole set
    $ comal tortilla join north.tortilla south.tortilla -o all.tortilla  # two into one
    """
    frame = tortilla.open(files[0] if len(files) == 1 else list(files), siblings=True)
    with working(f"writing {output}", style) as progress:
        made = tortilla.compile(frame, output, progress=progress, **named)
    _report(made, style)


@group.command()
@argument("file")
@option("-o --output", "Write here instead of in place.", metavar="FILE")
@options.writing
def compact(style: Style, file: str, output: str | None, *, overwrite: bool) -> None:
    """Rewrite the Tortilla FILE without the bytes that no row leads to.

    $ comal tortilla compact scenes.tortilla  # in place
    $ comal tortilla compact scenes.tortilla -o small.tortilla  # into another file
    """
    with working(f"compacting {file}", style) as progress:
        saved = tortilla.compact(file, output, overwrite=overwrite, progress=progress)
    target = output or file
    text = f"{target}: {human_size(abs(saved))} {'smaller' if saved >= 0 else 'larger'}"
    done({"output": target, "saved": saved}, style, text)


@group.command()
@options.query_options
def sql(style: Style, source: str, query: str, *, as_csv: bool, untrusted: bool | None) -> None:
    """Run one SELECT over the items of X.

    The table is called data. Only SELECT is allowed; it can read neither files nor addresses.

    $ comal tortilla sql scenes.tortilla 'SELECT "tortilla:id", cloud_cover FROM data'
      # some columns
    $ comal tortilla sql scenes.tortilla 'SELECT ST_X("stac:centroid") AS lon FROM data'
      # with a function of geometries
    """
    frame = tortilla.open(source)
    table = frame.sql(query, isolated=options.is_isolated(source, untrusted=untrusted))
    print_result(table, as_json=style.json, as_csv=as_csv)
