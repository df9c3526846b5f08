"""The commands for archives of every format: info, ls, get, check, clean."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from click import argument

from comal.check import LEVELS, Report
from comal.cli import options
from comal.cli.app import PARTLY, command, tell
from comal.cli.options import Style, choice, flag, option
from comal.cli.output import (
    done,
    human_size,
    on_terminal,
    plain_text,
    print_fields,
    print_json,
    print_rows,
    working,
    write_bytes,
)
from comal.errors import (
    ComalError,
    InvalidInputError,
    ObjectNotFoundError,
    Problem,
    counted,
    shown_path,
)
from comal.formats import FORMATS, Adapter, Archive, Partly, adapter_of, of_band, sniff
from comal.parallel import results
from comal.storage import parse_href, targets
from comal.storage.targets import like, refuse_sources

_TAPALCATL, _RAQUET = "tapalcatl", "raquet"


def _recognised(source: str, opening: Mapping[str, Any]) -> tuple[str, str, Adapter]:
    """Name of a format, how it was recognised, and its adapter.

    With --open the format is Tapalcatl: generation 1 cannot be recognised by itself.
    """
    if opening:
        (tapalcatl,) = (one for one in FORMATS if one.name == _TAPALCATL)
        return _TAPALCATL, "--open", adapter_of(tapalcatl)
    found = sniff(source)
    return found.format.name, found.how, adapter_of(found.format)


def _archive(source: str, opening: Mapping[str, Any], band: str | None = None) -> Archive:
    _, _, adapter = _recognised(source, opening)
    return of_band(adapter.archive(source, **opening), band)


@command()
@options.source
@options.opening
@options.pass_style
def info(style: Style, source: str, opening: Mapping[str, Any]) -> None:
    """Show what X is: its format, version, container, size, extent, and how it was recognised.

    $ comal info scenes.tacozip  # what it is
    $ comal info s3://bucket/scenes.tacozip --json  # the same as one JSON object
    $ comal info tilezen --open metatile=4 --open layer=all  # a tileset of Tapalcatl 1
    """
    name, how, adapter = _recognised(source, opening)
    with closing(adapter.archive(source, **opening)) as archive:
        fields: dict[str, Any] = {"format": name, **archive.describe()}
    fields["recognised"] = how
    if not style.json and on_terminal() and isinstance(fields.get("size"), int):
        fields["size"] = f"{human_size(fields['size'])} ({fields['size']} bytes)"
    print_fields(fields, style)


@command()
@options.source
@flag("-l --long", "Also type, object and offset.")
@options.band
@options.opening
@options.pass_style
@click.pass_context
def ls(
    ctx: click.Context,
    style: Style,
    source: str,
    band: str | None,
    opening: Mapping[str, Any],
    *,
    long: bool,
) -> None:
    """List every leaf of X in a fixed order, with the byte range that holds it.

    Columns are separated by tabs, and aligned on a terminal. The size is empty where only a
    request for the leaf itself could tell, as for a folder on a server.

    If some of several archives cannot be read, the leaves of the others are listed, and the
    exit code is 11.

    $ comal ls scenes.tacozip  # a line per leaf: key, size
    $ comal ls -l scenes.tacozip  # also type, object, offset
    $ comal ls scenes.tacozip --json | head -n 1  # one JSON object per leaf
    """
    failed: Sequence[ComalError] = ()
    names = ["key", "size", "type", "href", "offset"] if long else ["key", "size"]
    with closing(_archive(source, opening, band)) as archive:
        for table in archive.leaves():
            if style.json:
                write_bytes(_json_lines(table))
            else:
                lines = _aligned_lines if on_terminal() else _tab_lines
                write_bytes(lines(table.select(names)))
        if isinstance(archive, Partly):
            failed = archive.failed
    for error in failed:
        tell(error, as_json=style.json)
    if failed:
        ctx.exit(PARTLY)


# Characters that JSON must escape, and those that a terminal might not show.
_ESCAPED = r'["\\\x00-\x1f\x7f]|[^\x00-\x7f]'


def _json_lines(table: Any) -> bytes:
    """A table of texts and integers as JSON, one object a line, without an object per row.

    Lists are written as they are, each by itself.
    """
    parts: list[Any] = []
    for number, name in enumerate(table.column_names):
        parts.append(("{" if number == 0 else ", ") + json.dumps(name) + ": ")
        column = table.column(name)
        if pa.types.is_nested(column.type):
            texts = [json.dumps(value) for value in column.to_pylist()]
            parts.append(pa.array(texts, pa.large_string()))
            continue
        parts.append(_json_values(_text(column), column.type))
    return _joined([*parts, "}\n"])


def _tab_lines(table: Any) -> bytes:
    """A table of texts and integers as lines of values between tabs."""
    parts = []
    for name in table.column_names:
        text = pc.fill_null(_text(table.column(name)), "")
        parts += [_replaced(text, plain_text), "\t"]
    return _joined([*parts[:-1], "\n"])


def _aligned_lines(table: Any) -> bytes:
    """A table of texts and integers as lines with aligned columns."""
    parts = []
    for name in table.column_names:
        column = table.column(name)
        pad = pc.utf8_lpad if pa.types.is_integer(column.type) else pc.utf8_rpad
        text = _replaced(pc.fill_null(_text(column), ""), plain_text)
        width = pc.max(pc.utf8_length(text)).as_py() or 0
        parts += [pad(text, width), "  "]
    return _joined([*parts[:-1], "\n"])


def _text(column: Any) -> Any:
    return column.combine_chunks().cast(pa.large_string())


def _json_values(text: Any, kind: Any) -> Any:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        escaped = _replaced(text, lambda value: json.dumps(value)[1:-1])
        text = pc.binary_join_element_wise(_wide('"'), escaped, _wide('"'), _wide(""))
    return pc.fill_null(text, "null")


def _replaced(text: Any, escape: Any) -> Any:
    """The column with `escape` applied to the few values that need it."""
    odd = pc.fill_null(pc.match_substring_regex(text, _ESCAPED), False)
    if not pc.any(odd).as_py():
        return text
    values = [escape(value) for value in text.filter(odd).to_pylist()]
    return pc.replace_with_mask(text, odd, pa.array(values, pa.large_string()))


def _joined(parts: Sequence[Any]) -> bytes:
    """The bytes of all rows, each joined from its parts, which are texts and columns."""
    wide = [_wide(part) if isinstance(part, str) else part for part in parts]
    lines = pc.binary_join_element_wise(*wide, _wide(""))
    if len(lines) == 0:
        return b""
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q")
    return bytes(memoryview(data)[ends[lines.offset] : ends[lines.offset + len(lines)]])


def _wide(text: str) -> Any:
    return pa.scalar(text, pa.large_string())


@command()
@options.source
@argument("key")
@options.band
@options.opening
@options.output_file
@options.overwrite
def get(
    source: str,
    key: str,
    band: str | None,
    opening: Mapping[str, Any],
    output: str | None,
    *,
    overwrite: bool,
) -> None:
    """Write the bytes of the leaf KEY of X to standard output or to a file.

    'comal ls' lists the keys. A file appears complete or not at all. The bytes of a RaQuet tile
    are the pixels of one band, row by row, little-endian.

    $ comal get scenes.tacozip cusco/image.tif -o cusco.tif  # into a file
    $ comal get https://example.org/scenes.tacozip cusco/image.tif | gdalinfo /vsistdin/
      # to another program
    $ comal get dem.parquet 10/511/340 --band band_1 -o tile.raw  # the pixels of a tile
    """
    with closing(_archive(source, opening, band)) as archive:
        if output is None:
            for block in archive.blocks(key):
                write_bytes(block)
            return
        refuse_sources(targets.target_path(output), source)
        blocks = iter(archive.blocks(key))
        first = next(blocks, b"")
        with targets.new_file(output, overwrite, like(bytes(first)), source) as file:
            file.write(first)
            for block in blocks:
                file.write(block)


@command()
@argument("sources", metavar="X...", nargs=-1, required=True)
@choice("--level", LEVELS, "Metadata only; also some of the leaves; or every byte.", default="full")
@flag(
    "--statistics",
    "RaQuet: also report statistics that differ from the pixels, and invented zeros.",
)
@option("--repair", "Write a mended copy here; X is never changed.", metavar="OUT")
@flag(
    "--byte-interleaved",
    "With --repair, RaQuet: tiles are byte-interleaved; store them value by value.",
)
@options.opening
@options.by_workers
@options.overwrite
@options.pass_style
@click.pass_context
def check(
    ctx: click.Context,
    style: Style,
    /,
    sources: tuple[str, ...],
    repair: str | None,
    *,
    overwrite: bool,
    **asked: Any,
) -> None:
    """List every problem of X: structure, index, metadata, and the checksum of each leaf.

    Exit code 1 means that an X has an error; warnings do not count. With --repair, the exit
    code is that of the copy. Exit code 11 means that some of several X could not be checked.
    With --processes or --dask, several X are checked at a time, or several archives of one X.

    $ comal check scenes.tacozip  # exit code 1 when there is an error
    $ comal check scenes.tacozip --json  # every problem with its code and place
    $ comal check https://example.org/big.tacozip --level structure  # without the data
    $ comal check dem.parquet --statistics  # RaQuet: recompute its statistics, too
    $ comal check tilezen --open metatile=4 --open layer=all  # a tileset of Tapalcatl 1
    $ comal check old.tacozip --repair mended.tacozip  # a copy with an index that is right
    """
    if repair is not None and len(sources) > 1:
        raise click.UsageError("--repair takes one X.", ctx)
    if asked["byte_interleaved"] and repair is None:
        raise click.UsageError("--byte-interleaved is for --repair.", ctx)
    if repair is not None:
        errors, failed = _repaired(sources[0], repair, style, asked, overwrite=overwrite), 0
    else:
        errors, failed = _checked(sources, style, asked)
    if failed or errors:
        ctx.exit(PARTLY if failed else 1)


def _checked(sources: Sequence[str], style: Style, asked: Mapping[str, Any]) -> tuple[int, int]:
    """Check archives, print what was found, and return the numbers of errors and of failures."""
    errors = failed = 0
    several, executor = len(sources) > 1, asked["executor"]
    apart = several and executor is not None
    asked = {**asked, "executor": None if apart else executor}
    check_one = partial(
        check_archive, asked=asked, style=replace(style, quiet=apart or style.quiet)
    )
    found = results(executor if apart else None, check_one, sources, threads=0)
    for source, one in zip(sources, found, strict=True):
        if isinstance(one, Report):
            more, head = ({"source": source}, f"{source}: ") if several else ({}, "")
            _print_findings(one, style, more, head)
            errors += one.errors
        elif several:
            tell(one, as_json=style.json)
            failed += 1
        else:
            raise one
    return errors, failed


def check_archive(source: str, style: Style, asked: Mapping[str, Any]) -> Report | ComalError:
    """The report of one archive, or why there is none, so that others are checked all the same."""
    try:
        name, adapter = _known(source, asked["opening"])
        return _with_leftovers(_found(name, adapter, source, style, asked), source)
    except ComalError as error:
        return error


def _repaired(
    source: str, output: str, style: Style, asked: Mapping[str, Any], *, overwrite: bool
) -> int:
    """Write a mended copy, print what is left, and return the number of errors."""
    name, adapter = _known(source, asked["opening"])
    before = _found(name, adapter, source, style, asked)
    told: dict[str, Any] = dict(asked["opening"])
    if asked["byte_interleaved"]:
        _only_of_raquet(name, "--byte-interleaved")
        told["byte_interleaved"] = True
    elif not before.problems:
        raise InvalidInputError("nothing to repair", where=source)
    with working(f"repairing {source}", style) as progress:
        adapter.repair(source, output, overwrite=overwrite, progress=progress, **told)
    found = _found(name, adapter, output, style, {**asked, "opening": {}})
    _print_findings(found, style, {"repaired": before.to_dict()}, f"{output}: written, ")
    return found.errors


def _known(source: str, opening: Mapping[str, Any]) -> tuple[str, Adapter]:
    try:
        name, _, adapter = _recognised(source, opening)
    except ObjectNotFoundError as error:
        if left := _left(source):
            error.hint = f"{left[0].message}: {left[0].place}"
        raise
    return name, adapter


def _found(
    name: str, adapter: Adapter, source: str, style: Style, asked: Mapping[str, Any]
) -> Report:
    told: dict[str, Any] = {"executor": asked["executor"], **asked["opening"]}
    if asked["statistics"]:
        _only_of_raquet(name, "--statistics")
        told["statistics"] = True
    with working(f"checking {source}", style) as progress:
        return adapter.check(source, level=asked["level"], progress=progress, **told)


def _only_of_raquet(name: str, option: str) -> None:
    if name != _RAQUET:
        raise InvalidInputError(f"{option} is for RaQuet only", found=name)


def _left(source: str) -> list[Problem]:
    """A problem for each leftover of killed writers beside an archive."""
    place = parse_href(source)
    left = targets.left_beside(place.path) if place.is_local else []
    text = f"left by a killed writer; 'comal clean {source}' or the next writer cleans it up"
    return [Problem("leftover", shown_path(path), text, "warning") for path in left]


def _with_leftovers(found: Report, source: str) -> Report:
    left = _left(source)
    if not left:
        return found
    counts = {**found.counts, "leftover": len(left)}
    return replace(found, problems=(*found.problems, *left), counts=counts)


def _print_findings(found: Report, style: Style, more: Mapping[str, Any], head: str) -> None:
    """Print the problems of a check, and after `head` their number."""
    if style.json:
        print_json({**found.to_dict(), **more})
        return
    if found.problems:
        print_rows(
            ("severity", "code", "place", "message"),
            [(p.severity, p.code, p.place, p.message) for p in found.problems],
        )
    if not style.quiet:
        count = f"{counted(found.errors, 'error')}, {counted(found.warnings, 'warning')}"
        click.echo(head + (count if found.problems else "no problems"), err=True)


@command()
@argument("target", metavar="X")
@options.pass_style
def clean(style: Style, target: str) -> None:
    """Undo and remove what killed writers of X left behind.

    X need not exist. Afterwards it is as it was before the last writer began; a change of
    several archives that was already committed is finished instead. 'comal check' says whether
    there is anything to do. If X is a folder for temporary files (TMPDIR, 'scratch', 'temp_dir'),
    those of processes that were killed are removed.

    In a store, hidden objects of more than an hour go, and in S3 uploads of more than a day that
    were not finished. Elsewhere those cannot be listed: add a lifecycle rule to the bucket.

    $ comal clean tiles/  # remove an interrupted build
    """
    found = [str(path) for path in targets.clean(target)]
    done({"removed": found}, style, f"{counted(len(found), 'item')} removed")


@command()
@argument("source", metavar="SRC")
@argument("target", metavar="DST")
@flag("--delete", "In the end, remove files of DST that SRC does not have.")
@flag("--dry-run", "Copy nothing; compare, and tell how much would be done.")
@flag("--clean", "First remove what killed writers left at DST, as 'comal clean' does.")
@flag("--overwrite", "Replace files of DST that differ.")
@option(
    "--cache-control",
    "Cache-Control of new objects; an index gets no-cache.",
    metavar="VALUE",
)
@options.pass_style
def sync(
    style: Style,
    /,
    source: str,
    target: str,
    *,
    clean: bool,
    cache_control: str | None,
    **asked: Any,
) -> None:
    """Copy an archive of any format between disks and stores: what differs, the index last.

    SRC is a file or a folder, DST its copy. After a failure the same command goes on: what is
    there and equal is kept. Files are compared by checksum, or byte by byte, and each copy with
    its source. A file of DST that differs is an error without --overwrite, but for an index
    whose other files are equal: a data set grows.

    $ comal sync scenes/ s3://bucket/scenes --dry-run  # what it would do
    $ comal sync scenes/ s3://bucket/scenes  # publish a folder
    $ comal sync tiles/ s3://bucket/tiles --cache-control 'public, max-age=31536000'
      # for browsers, which then keep what they have read
    $ comal sync s3://bucket/scenes.tacozip scenes.tacozip  # fetch an archive
    $ comal sync tiles/ gs://bucket/tiles --overwrite --delete  # make them the same
    """
    from comal.storage.config import default_config  # noqa: PLC0415 - help needs none of it
    from comal.storage.syncing import sync as copy  # noqa: PLC0415

    if cache_control is not None:
        asked["config"] = replace(default_config(), cache_control=cache_control)
    if clean and not asked["dry_run"]:
        targets.clean(target)
    began = time.monotonic()
    with working(f"copying to {target}", style) as progress:

        def tell(done: int, total: int | None, what: str) -> None:
            nonlocal began
            if what == "copying":
                rate = human_size(int(done / max(0.001, time.monotonic() - began)))
                what = f"{what}, {rate}/s"
            else:
                began = time.monotonic()
            progress(done, total, what)

        found = copy(source, target, progress=tell, **asked)
    amounts = [("new", found.new), ("replaced", found.replaced), ("equal", found.equal)]
    words = [f"{a.objects:,} {name} ({human_size(a.size)})" for name, a in amounts if a.objects]
    words += [f"{found.deleted.objects:,} deleted"] * bool(found.deleted.objects)
    words += [f"{found.skipped:,} hidden left out"] * bool(found.skipped)
    head = "nothing copied; it would be" if asked["dry_run"] else target
    done({"output": target, **found.to_dict()}, style, f"{head}: {', '.join(words)}")
