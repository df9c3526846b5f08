"""The group ``comal tapalcatl``: tilesets in ZIP archives."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from comal import tapalcatl
from comal.cli import options
from comal.cli.app import Group
from comal.cli.options import BBOX, TILE, TILE_FILE, ZOOM_RANGE, ZOOMS, Style, decorated
from comal.cli.output import (
    done,
    human_size,
    print_fields,
    print_json,
    print_rows,
    working,
    write_bytes,
    write_file,
)
from comal.errors import InvalidInputError, NotInContainerError, counted


@click.group(
    "tapalcatl",
    cls=Group,
    removed={
        "check": "comal check X --open KEY=VALUE",
        "info": "comal info X --open KEY=VALUE",
    },
    examples=(
        ("comal tapalcatl plan 0-14", "how many archives and entries a layout makes"),
        (
            "comal tapalcatl extract https://example.org/tiles/meta.json alps --bbox 5,44,17,48",
            "a part of a tileset on a server",
        ),
        ("comal tapalcatl tile alps 5/16/11 --headers", "what is said of one tile"),
        ("comal tapalcatl site public tiles/", "write a page with a copy of a tileset"),
    ),
)
def group() -> None:
    """Tapalcatl: tiles in ZIP archives that are read by byte range."""


def _layout_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where archives begin and how wide they are."""
    options = (
        click.option(
            "--metatile",
            type=click.IntRange(1),
            metavar="N",
            help="Root tiles of an archive per side, a power of two.",
        ),
        click.option(
            "--materialized",
            "materialized_zooms",
            type=ZOOMS,
            help="Zooms at which archives begin; chosen so that a directory has at most 64 KiB.",
        ),
        click.option("--hash", "hash_in_path", is_flag=True, help="Begin keys with {h}."),
    )
    return decorated(function, options)


def _entry_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How tiles become entries."""
    options = (
        click.option("--ext", help="Extension of tiles without one; by their bytes if absent."),
        click.option("--scale", type=float, default=1, help="Scale of tiles: 2 for '@2x'."),
        click.option(
            "--compression",
            type=click.Choice(["auto", "store", "deflate"]),
            default="auto",
            help="auto stores what is compressed already.",
        ),
        click.option(
            "--level", type=click.IntRange(1, 12), default=6, help="Level of DEFLATE; 6 if absent."
        ),
        click.option(
            "--times",
            default="fixed",
            metavar="TIME",
            help="'fixed' (1980-01-01), 'source', or one time for all tiles.",
        ),
        click.option("--exact-times", is_flag=True, help="Exact seconds in an extra field, too."),
    )
    return decorated(function, options)


def _described_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a tileset says of itself."""
    options = (
        click.option("--name", help="Name of the tileset; the source's if absent."),
        click.option("--description", help="Description; the source's if absent."),
        click.option("--attribution", help="Attribution; the source's if absent."),
        click.option("--bounds", type=BBOX, help="Bounds in degrees; never too narrow."),
    )
    return decorated(function, options)


def _given(named: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without those that were not given: a source may have its own."""
    return {
        name: value for name, value in named.items() if value is not None and value is not False
    }


def _report(made: tapalcatl.Built, style: Style) -> None:
    """What was written."""
    kept = f", {made.kept} of them kept" if made.kept else ""
    text = (
        f"{made.output}: {counted(made.tiles, 'tile')} "
        f"in {counted(made.archives, 'archive')}{kept}, "
        f"{human_size(made.size)}{_layout(made)}"
    )
    done(made.to_dict(), style, text)


def _layout(made: tapalcatl.Built) -> str:
    """Which layout was given, taken over or chosen; nothing for Tapalcatl 1."""
    if not made.materialized_zooms:
        return ""
    zooms = ", ".join(map(str, made.materialized_zooms))
    return f"; archives at zooms {zooms} under {made.metatile} x {made.metatile} tiles"


def _tiles_of(
    source: str, opening: Mapping[str, Any], scope: ExitStack, **more: Any
) -> tapalcatl.TileSet | Any:
    """A source of tiles; what --open tells of it makes it a tileset."""
    if opening:
        return scope.enter_context(tapalcatl.open(source, **opening))
    return tapalcatl.open_tiles(source, scope=scope, **more)


def _generation1_of(opening: Mapping[str, Any]) -> tapalcatl.Generation1 | None:
    """The settings of Tapalcatl 1 that --open tells of a target, which needs no others."""
    told = dict(opening)
    if told.pop("version", None) is None and not told:
        return None
    if not {"hash", "variant", "source"}.isdisjoint(told):
        raise click.BadParameter("a target needs only keys of Tapalcatl 1", param_hint="--open")
    return tapalcatl.Generation1(**told)


# -- create ---------------------------------------------------------------------------------------


@group.command(
    "create",
    short_help="Tiles of MBTiles, PMTiles or a folder as a tileset.",
    examples=(
        ("comal tapalcatl create tiles.mbtiles tiles/", "a tileset of an MBTiles file"),
        ("comal tapalcatl create tiles.mbtiles tiles.zip", "in a single archive"),
        ("comal tapalcatl create https://example.org/a.pmtiles tiles/", "of a PMTiles file"),
        ("comal tapalcatl create loose/ tiles/ --scheme tms --scale 2", "of a folder of tiles"),
        (
            "comal tapalcatl create a.mbtiles tiles/ --materialized 0,4,8 --metatile 1",
            "with a layout of its own",
        ),
        (
            "comal tapalcatl create a.mbtiles t1/ --generation 1 --metatile 8 --layer all",
            "Tapalcatl 1",
        ),
        ("comal tapalcatl create dark.mbtiles tiles/ --variant dark", "tiles below a name"),
        ("comal tapalcatl create t1/ t2/ --open metatile=8 --open layer=all", "out of Tapalcatl 1"),
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="OUT")
@click.option(
    "--scheme",
    type=click.Choice(["xyz", "tms", "zyx", "ags", "gwc"]),
    help="How tiles are named in a folder; xyz if absent.",
)
@click.option(
    "--generation", type=click.Choice(["1", "2"]), default="2", help="Of Tapalcatl; 2 if absent."
)
@click.option("--layer", default="", help="Layer in keys of Tapalcatl 1.")
@click.option(
    "--keys",
    default="plain",
    help="Keys of Tapalcatl 1: plain, prefix-hash, hash-prefix, or a pattern.",
)
@click.option("--prefix", default="", help="Prefix of keys of Tapalcatl 1.")
@click.option(
    "--tile-size",
    type=click.IntRange(1),
    default=256,
    metavar="PIXELS",
    help="Pixels of the tiles, for Tapalcatl 1: 256 if absent.",
)
@click.option(
    "--tilejson",
    metavar="URL",
    help="Write TileJSON for Tapalcatl 1; the address of tiles, with {z}, {x}, {y} and {fmt}.",
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    metavar="N",
    help="Processes that write archives; threads of this one if absent.",
)
@click.option("--variant", metavar="NAME", help="Below this name; 'put' adds other variants.")
@options.negative("--no-resume", "resume", "Start anew and keep nothing after an error.")
@_layout_options
@_entry_options
@_described_options
@options.opening
@options.writing
def create(
    style: Style,
    /,
    source: str,
    output: str,
    *,
    scheme: str | None,
    generation: str,
    processes: int | None,
    opening: Mapping[str, Any],
    **more: Any,
) -> None:
    """Write the tiles of SRC as the tileset OUT, which appears when it is complete.

    OUT is a folder, or a single archive when its name ends in .zip. SRC is an MBTiles or PMTiles
    file, a folder of tiles, or a tileset. A folder that was broken off is gone on with: finished
    archives are kept beside it. What --open tells is told of SRC.
    """
    layout = {name: more.pop(name) for name in ("metatile", "materialized_zooms", "hash_in_path")}
    first = {name: more.pop(name) for name in ("layer", "prefix", "tile_size")}
    first["layout"] = more.pop("keys")
    if generation == "1":
        settings = tapalcatl.Generation1(metatile=layout["metatile"] or 4, **first)
        chosen: dict[str, Any] = {"version": 1, "generation1": settings}
    else:
        chosen = _given(layout)
    with ExitStack() as scope, working(f"building {output}", style) as progress:
        tiles = _tiles_of(source, opening, scope, scheme=scheme)
        if processes is not None:
            import multiprocessing  # noqa: PLC0415 - help needs none of it
            from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

            # New ones: what a fork of this process would take along, its threads and locks, is
            # not made for that.
            pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
            chosen["executor"] = scope.enter_context(pool)
        made = tapalcatl.build(tiles, output, progress=progress, **chosen, **more)
    _report(made, style)


# -- put ------------------------------------------------------------------------------------------


@group.command(
    "put",
    short_help="Add or replace tiles, in place.",
    examples=(
        ("comal tapalcatl put tiles/ --tile 5/10/23=new.png", "one tile"),
        ("comal tapalcatl put tiles/ changed.mbtiles", "all tiles of a file"),
        ("comal tapalcatl put tiles/4/0/4.zip --tile 5/10/23=new.png", "into one archive"),
        ("comal tapalcatl put t1/ new.mbtiles --open metatile=8 --open layer=all", "Tapalcatl 1"),
    ),
)
@click.argument("target", metavar="X")
@click.argument("source", metavar="SRC", required=False)
@click.option("--tile", "tiles", multiple=True, type=TILE_FILE, help="A tile; repeatable.")
@click.option("--variant", metavar="NAME", help="Below this name, beside tiles of other variants.")
@_entry_options
@options.opening
@options.pass_style
def put(
    style: Style,
    /,
    target: str,
    source: str | None,
    *,
    tiles: tuple[tuple[tuple[int, int, int], str], ...],
    opening: Mapping[str, Any],
    **more: Any,
) -> None:
    """Add or replace tiles of the tileset or archive X, without rewriting what is there.

    Tiles come from SRC, which is all that 'create' takes, or from --tile. New bytes are appended:
    'compact' frees the old ones. Of Tapalcatl 1, X is the folder that keys are relative to.
    """
    if (source is None) == (not tiles):
        raise click.UsageError("Give either SRC or --tile.")
    with ExitStack() as scope, working(f"putting tiles into {target}", style) as progress:
        given: Any = [(*tile, _read(path)) for tile, path in tiles]
        if source is not None:
            given = tapalcatl.open_tiles(source, scope=scope)
        first = _generation1_of(opening)
        changed = tapalcatl.put(target, given, generation1=first, progress=progress, **more)
    text = (
        f"{target}: {counted(changed.added, 'tile')} added, {changed.replaced} replaced "
        f"in {counted(changed.archives, 'archive')}"
    )
    done({"output": target, **changed.to_dict()}, style, text)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInputError(
            "file of a tile cannot be read", where=path, found=error.strerror
        ) from error


# -- delete ---------------------------------------------------------------------------------------


@group.command(
    "delete",
    short_help="Take tiles out, in place.",
    examples=(
        ("comal tapalcatl delete tiles/ 5/10/23 5/10/24", "two tiles"),
        ("comal tapalcatl delete tiles/ 5/10/23 --ext png", "of one format only"),
        ("comal tapalcatl delete t1/ 5/10/23 --open metatile=8 --open layer=all", "of Tapalcatl 1"),
    ),
)
@click.argument("target", metavar="X")
@click.argument("tiles", metavar="Z/X/Y...", type=TILE, nargs=-1, required=True)
@click.option("--ext", help="Only entries of this extension.")
@click.option("--scale", type=float, help="Only entries of this scale.")
@click.option("--variant", metavar="NAME", help="Only entries below this name.")
@options.opening
@options.pass_style
def delete(
    style: Style,
    /,
    target: str,
    tiles: tuple[tuple[int, int, int], ...],
    *,
    opening: Mapping[str, Any],
    **named: Any,
) -> None:
    """Take tiles out of the tileset or archive X; their bytes stay until 'compact'."""
    first = _generation1_of(opening)
    with working(f"deleting tiles of {target}", style) as progress:
        changed = tapalcatl.delete(target, tiles, generation1=first, progress=progress, **named)
    text = (
        f"{target}: {counted(changed.deleted, 'entry', 'entries')} deleted, "
        f"{counted(changed.absent, 'tile')} not there"
    )
    done({"output": target, **changed.to_dict()}, style, text)


# -- compact --------------------------------------------------------------------------------------


@group.command(
    "compact",
    short_help="Free the bytes that updates have left.",
    examples=(
        ("comal tapalcatl compact tiles/", "all archives that have dead bytes"),
        ("comal tapalcatl compact tiles/ --dry-run", "only tell how many there are"),
        ("comal tapalcatl compact tiles/4/0/4.zip", "one archive"),
    ),
)
@click.argument("target", metavar="X")
@click.option("--dry-run", is_flag=True, help="Write nothing; tell the dead bytes.")
@click.option("--all", "force", is_flag=True, help="Write every archive anew.")
@options.opening
@options.pass_style
def compact(
    style: Style, /, target: str, *, dry_run: bool, force: bool, opening: Mapping[str, Any]
) -> None:
    """Write archives of the tileset or archive X anew, in order and without dead bytes."""
    first = _generation1_of(opening)
    if dry_run:
        with working(f"looking at {target}", style) as progress:
            found = tapalcatl.space(target, generation1=first, progress=progress)
        text = (
            f"{target}: {human_size(found.dead)} of {human_size(found.size)} are dead, "
            f"{counted(found.entries, 'entry', 'entries')} in {counted(found.archives, 'archive')}"
        )
        done({"output": target, **found.to_dict()}, style, text)
        return
    with working(f"compacting {target}", style) as progress:
        freed = tapalcatl.compact(target, force=force, generation1=first, progress=progress)
    done({"output": target, "saved": freed}, style, f"{target}: {human_size(freed)} freed")


# -- recover --------------------------------------------------------------------------------------


@group.command(
    "recover",
    short_help="An archive whose update was killed.",
    examples=(
        ("comal tapalcatl recover tiles/", "after an update of a tileset was killed"),
        ("comal tapalcatl recover tiles/4/0/4.zip", "an archive that an older version has torn"),
    ),
)
@click.argument("targets", metavar="X...", nargs=-1, required=True)
@options.pass_style
def recover(style: Style, targets: tuple[str, ...]) -> None:
    """Finish a change of the tileset X that was decided, and undo one that was not.

    Archives are cut back to the last end that is valid; one that is whole stays as it is.
    """
    found = {target: tapalcatl.recover(target) for target in targets}
    lines = [
        f"{target}: {counted(one.finished, 'file')} put into place, "
        f"{one.undone} removed, {counted(one.cut, 'byte')} cut off"
        for target, one in found.items()
    ]
    done({"recovered": {key: one.to_dict() for key, one in found.items()}}, style, "\n".join(lines))


# -- metadata -------------------------------------------------------------------------------------


@group.command(
    "metadata",
    short_help="Print or change what a tileset says.",
    examples=(
        ("comal tapalcatl metadata tiles/", "all of it, as JSON"),
        ("comal tapalcatl metadata tiles/ name", "one value"),
        ("comal tapalcatl metadata tiles/ --set name=Roads --unset legend", "change it in place"),
        ("comal tapalcatl metadata tiles/ --set 'center=[10.5,50,4]'", "values may be JSON"),
    ),
)
@click.argument("target", metavar="X")
@click.argument("key", required=False)
@click.option("--set", "values", multiple=True, metavar="KEY=VALUE", help="New value; repeatable.")
@click.option("--unset", multiple=True, metavar="KEY", help="Remove a key; repeatable.")
@options.negative("--no-archives", "archives", "Leave the comments of archives as they are.")
@options.pass_style
def metadata(
    style: Style,
    target: str,
    key: str | None,
    values: tuple[str, ...],
    unset: tuple[str, ...],
    *,
    archives: bool,
) -> None:
    """Print the metadata of the tileset or archive X, or change them without rewriting tiles."""
    changes: dict[str, Any] = dict(_changed(text) for text in values)
    changes.update(dict.fromkeys(unset))
    if changes:
        with working(f"editing {target}", style) as progress:
            edited = tapalcatl.edit_metadata(target, changes, archives=archives, progress=progress)
        comments = counted(edited.archives, "comment")
        text = f"{target}: {', '.join(changes)} changed, {comments} rewritten"
        done({"output": target, **edited.to_dict()}, style, text)
        return
    from comal.tapalcatl.writing.labelling import metadata_at  # noqa: PLC0415 - when it is used

    document = metadata_at(target)
    if key is None:
        if style.json:
            print_json(document)
        else:
            click.echo(json.dumps(document, indent=2, ensure_ascii=True))
        return
    if key not in document:
        raise click.BadParameter(f"{key!r} is not among {', '.join(document)}", param_hint="KEY")
    value = document[key]
    click.echo(value if isinstance(value, str) and not style.json else json.dumps(value))


def _changed(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    if value[:1] in {"[", "{"} or value.lstrip("-").replace(".", "", 1).isdecimal():
        try:
            return name, json.loads(value)
        except json.JSONDecodeError as error:
            raise click.BadParameter(f"{value!r} is no JSON", param_hint="--set") from error
    return name, value


# -- merge ----------------------------------------------------------------------------------------


@group.command(
    "merge",
    short_help="Several tilesets as one.",
    examples=(
        ("comal tapalcatl merge north/ south/ -o both/", "two tilesets"),
        ("comal tapalcatl merge base/ new.mbtiles -o both/", "the later source counts"),
        ("comal tapalcatl merge a/ b/ -o both/ --conflict error", "refuse different tiles"),
        ("comal tapalcatl merge a/ b/ -o both/ --materialized 0,4,8 --metatile 2", "a layout"),
    ),
)
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="OUT", required=True, help="A folder, or one archive: x.zip."
)
@click.option(
    "--conflict",
    type=click.Choice(["last", "first", "error"]),
    default="last",
    help="Which tile counts where several sources have one.",
)
@_layout_options
@options.writing
def merge(style: Style, /, sources: tuple[str, ...], output: str, **named: Any) -> None:
    """Write the tiles of all SRC as one tileset; stored bytes are copied as they are.

    The layout is that of the first SRC whose archives can hold all tiles with directories of at
    most 64 KiB, unless it is given; where there is none, one is chosen. The report says which.
    Tiles of variants are left out.
    """
    with working(f"merging into {output}", style) as progress:
        made = tapalcatl.merge(sources, output, progress=progress, **_given(named))
    _report(made, style)


# -- split ----------------------------------------------------------------------------------------


@group.command(
    "split",
    short_help="A tileset as several, by zooms or by tiles.",
    examples=(
        ("comal tapalcatl split tiles/ parts/ --zooms 0-7 --zooms 8-14", "by zooms"),
        ("comal tapalcatl split tiles/ parts/ --at 4", "a tileset for each tile of zoom 4"),
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="DIR")
@click.option(
    "--zooms",
    multiple=True,
    type=ZOOM_RANGE,
    callback=options.listed,
    help="A part for these zooms; repeatable.",
)
@click.option("--at", type=click.IntRange(0, 30), help="A part for each tile of this zoom.")
@_layout_options
@options.writing
def split(style: Style, /, source: str, output: str, **named: Any) -> None:
    """Write the tiles of SRC as several tilesets, each in a folder below DIR.

    Parts have the layout of SRC unless another one is given.
    """
    if (named["at"] is None) == (named["zooms"] is None):
        raise click.UsageError("Give either --zooms or --at.")
    with working(f"splitting {source}", style) as progress:
        parts = tapalcatl.split(source, output, progress=progress, **_given(named))
    lines = [f"{part.output}: {counted(part.tiles, 'tile')}" for part in parts.values()]
    found = {name: part.to_dict() for name, part in parts.items()}
    done({"output": output, "parts": found}, style, "\n".join(lines))


# -- remetatile -----------------------------------------------------------------------------------


@group.command(
    "remetatile",
    short_help="A tileset with another layout.",
    examples=(
        ("comal tapalcatl remetatile tiles/ new/ --metatile 4", "wider archives"),
        ("comal tapalcatl remetatile tiles/ new/ --materialized 0,6,12", "deeper ones"),
        ("comal tapalcatl remetatile tiles/ tiles.zip", "one archive for all tiles"),
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="OUT")
@_layout_options
@options.writing
def remetatile(style: Style, /, source: str, output: str, **named: Any) -> None:
    """Write the tileset SRC with other archives; stored bytes are copied as they are.

    OUT is a folder, or a single archive when its name ends in .zip.
    """
    with working(f"writing {output}", style) as progress:
        made = tapalcatl.remetatile(source, output, progress=progress, **_given(named))
    _report(made, style)


# -- export ---------------------------------------------------------------------------------------


@group.command(
    "export",
    short_help="Tiles as MBTiles, PMTiles or loose files.",
    examples=(
        ("comal tapalcatl export tiles/ tiles.mbtiles", "as MBTiles"),
        ("comal tapalcatl export tiles/ tiles.pmtiles", "as PMTiles"),
        ("comal tapalcatl export tiles/ loose/ --scheme tms", "as loose files"),
        ("comal tapalcatl export tiles/ a.mbtiles --ext png --scale 2", "one of several formats"),
        ("comal tapalcatl export t1/ a.mbtiles --open layer=all --ext mvt", "out of Tapalcatl 1"),
    ),
)
@click.argument("source", metavar="SRC")
@click.argument("output", metavar="DST")
@click.option("--ext", help="Only tiles of this extension.")
@click.option("--scale", type=float, help="Only tiles of this scale.")
@click.option(
    "--scheme",
    type=click.Choice(["xyz", "tms", "zyx", "ags", "gwc"]),
    default="xyz",
    help="How loose files are named.",
)
@options.opening
@options.writing
def export(
    style: Style,
    /,
    source: str,
    output: str,
    *,
    scheme: str,
    opening: Mapping[str, Any],
    **named: Any,
) -> None:
    """Write the tiles of SRC to DST, byte for byte: .mbtiles, .pmtiles, or a folder of files."""
    with ExitStack() as scope, working(f"writing {output}", style) as progress:
        tiles = _tiles_of(source, opening, scope)
        if output.lower().endswith(".mbtiles"):
            write: Any = tapalcatl.to_mbtiles
        elif output.lower().endswith(".pmtiles"):
            write = tapalcatl.to_pmtiles
        else:
            write, named["scheme"] = tapalcatl.to_directory, scheme
        made = write(tiles, output, progress=progress, **named)
    done(made.to_dict(), style, f"{output}: {counted(made.tiles, 'tile')}")


# -- plan -----------------------------------------------------------------------------------------


@group.command(
    "plan",
    short_help="Archives, entries and directories of a layout.",
    examples=(
        ("comal tapalcatl plan 0-14", "the layout that comal chooses for the world"),
        ("comal tapalcatl plan 0-14 --bbox 5,45,15,50", "for a country"),
        ("comal tapalcatl plan 0-14 --materialized 0,4,8,12 --metatile 1", "for another one"),
        ("comal tapalcatl plan 0-14 --per-tile 4", "with four formats or scales of each tile"),
    ),
)
@click.argument("zooms", metavar="A-B", type=ZOOM_RANGE)
@click.option("--bbox", "bounds", type=BBOX, help="Only tiles of this box, in degrees.")
@click.option("--metatile", type=click.IntRange(1), help="Root tiles of an archive per side.")
@click.option(
    "--materialized", "materialized_zooms", type=ZOOMS, help="Zooms at which archives begin."
)
@click.option(
    "--per-tile", type=click.IntRange(1), default=1, show_default=True, help="Entries of a tile."
)
@click.option("--suffix", default=".mvt", show_default=True, help="End of names, as '@2x.png'.")
@options.pass_style
def plan(style: Style, /, zooms: tuple[int, int], *, suffix: str, **named: Any) -> None:
    """Count what a tileset of zooms A to B comes to when every tile is there.

    A directory of 64 KiB or less comes with the first request for an archive; a layout that is
    not given is chosen so that all do.
    """
    from comal.tapalcatl.wire import split_suffix  # noqa: PLC0415 - help needs none of it

    split_suffix(suffix)
    planned = tapalcatl.plan(*zooms, suffix=suffix, **named)
    if style.json:
        print_json(planned.to_dict())
        return
    rows = [
        (
            f"{zoom.zoom}-{zoom.last_zoom}",
            f"{zoom.archives:,}",
            f"{zoom.entries:,}",
            f"{zoom.most_entries:,}",
            human_size(zoom.directory_bytes),
        )
        for zoom in planned.zooms
    ]
    print_rows(("zooms", "archives", "entries", "in an archive", "its directory"), rows)
    if not style.quiet:
        chosen = ",".join(map(str, planned.materialized_zooms))
        click.echo(
            f"{counted(planned.archives, 'archive')}, "
            f"{counted(planned.entries, 'entry', 'entries')}: "
            f"--materialized {chosen} --metatile {planned.metatile}",
            err=True,
        )
        if not planned.fits:
            click.echo("a directory is over 64 KiB: its archives cost a request more", err=True)


# -- extract --------------------------------------------------------------------------------------


@group.command(
    "extract",
    short_help="A part of a tileset as a tileset of its own.",
    examples=(
        (
            "comal tapalcatl extract https://example.org/tiles/meta.json alps --bbox 5,44,17,48",
            "a box, from a server",
        ),
        (
            "comal tapalcatl extract tiles alps --geojson alps.geojson --max-zoom 12",
            "an outline, down to a zoom",
        ),
        (
            "comal tapalcatl extract tiles alps --bbox 5,44,17,48 --overview-zoom 5",
            "with the whole world as a background",
        ),
        ("comal tapalcatl extract tiles --bbox 5,44,17,48 --dry-run", "what it would cost"),
    ),
)
@options.source
@click.argument("output", required=False)
@click.option("--bbox", type=BBOX, help="Tiles that touch this box, in degrees.")
@click.option(
    "--geojson", "geometry", metavar="FILE", help="Tiles that touch what is in this file."
)
@click.option("--min-zoom", type=click.IntRange(0), help="First zoom to take.")
@click.option("--max-zoom", type=click.IntRange(0), help="Last zoom to take.")
@click.option(
    "--overview-zoom",
    type=click.IntRange(0),
    help="Take all tiles down to this zoom, wherever they are.",
)
@click.option("--metatile", type=click.IntRange(1), help="Layout of the extract; that of X.")
@click.option(
    "--materialized", "materialized_zooms", type=ZOOMS, help="Layout of the extract; that of X."
)
@click.option("--dry-run", is_flag=True, help="Tell tiles, bytes and requests; write nothing.")
@options.opening
@options.writing
def extract(
    style: Style,
    /,
    source: str,
    output: str | None,
    *,
    dry_run: bool,
    opening: Mapping[str, Any],
    **part: Any,
) -> None:
    """Copy a part of the tileset X to OUTPUT, each tile byte by byte.

    OUTPUT is a folder, or a single archive when its name ends in .zip.

    Only directories of archives that the part touches are read, and only the tiles of the part;
    neighbours come in one request.
    """
    if output is None and not dry_run:
        raise InvalidInputError("no target to write to", where="OUTPUT", hint="or --dry-run")
    with working(f"extracting from {source}", style) as progress:
        found = tapalcatl.extract(
            source,
            output,
            dry_run=dry_run,
            progress=progress,
            **part,
            **opening,
        )
    text = (
        f"{counted(found.tiles, 'tile')} of {human_size(found.bytes)} "
        f"in {counted(found.archives, 'archive')}: "
        f"{counted(found.requests, 'request')} for {human_size(found.transferred)}, "
        f"and {found.directories:,} for {human_size(found.directory_bytes)} with directories"
    )
    done(found.to_dict(), style, text if output is None or dry_run else f"{output}: {text}")


# -- tile -----------------------------------------------------------------------------------------


@group.command(
    "tile",
    short_help="One tile, or what is said of it.",
    examples=(
        ("comal tapalcatl tile tiles 5/16/11 -o tile.mvt", "into a file"),
        ("comal tapalcatl tile https://example.org/t/meta.json 5/16/11.mvt --decode", "gunzipped"),
        ("comal tapalcatl tile tiles 5/16/11@2x.png --headers", "what a server would say"),
        (
            "comal tapalcatl tile s3://bucket 14/8185/5449.mvt --open metatile=8 --open layer=all",
            "from Tapalcatl 1",
        ),
    ),
)
@options.source
@click.argument("name", metavar="Z/X/Y[@Nx][.EXT]")
@click.option("--size", type=int, metavar="PIXELS", help="Pixels of the tile; Tapalcatl 1 only.")
@click.option("--headers", is_flag=True, help="Print headers and place instead of the bytes.")
@click.option("--decode", is_flag=True, help="Take the content encoding off.")
@options.negative("--no-verify", "verify", "Do not compare the checksum.")
@options.opening
@options.output_file
@options.writing
def tile(
    style: Style,
    /,
    source: str,
    name: str,
    size: int | None,
    output: str | None,
    *,
    headers: bool,
    decode: bool,
    verify: bool,
    overwrite: bool,
    opening: Mapping[str, Any],
) -> None:
    """Write the bytes of one tile of X to standard output or to a file."""
    from comal.tapalcatl.wire import parse_name, split_suffix  # noqa: PLC0415 - as above

    found = parse_name(name)
    if found is None:
        raise _no_tile(name)
    (z, x, y), suffix = found
    scale, ext = split_suffix(suffix)
    chosen: dict[str, Any] = {
        "scale": scale if "@" in suffix else None,
        "ext": ext or None,
        "size": size,
    }
    with tapalcatl.open(source, **opening) as tileset:
        tile = tileset.tile(z, x, y, verify=verify, **chosen)
        entry = tileset.entry(z, x, y, **chosen)
    if tile is None or entry is None:
        raise NotInContainerError("no such tile", where=f"{name} in {source}")
    if headers:
        said = {**dict(tile.headers), "ETag": tile.etag}
        if tile.last_modified is not None:
            said["Last-Modified"] = tile.last_modified
        fields = {
            "archive": entry.href,
            "entry": entry.name,
            "bytes": len(tile.data),
            "stored": entry.record.csize,
            "method": "deflate" if entry.record.method else "store",
            "headers": said,
        }
        print_fields(fields, style)
        return
    data = tile.content() if decode else tile.data
    if output is None:
        write_bytes(data)
        return
    write_file(output, data, source, overwrite=overwrite)


def _no_tile(name: str) -> InvalidInputError:
    """Whether the form of a name is wrong, or a number in it."""
    from comal.tapalcatl.spec import MAX_ZOOM  # noqa: PLC0415 - as above

    expected = "Z/X/Y, Z/X/Y.EXT or Z/X/Y@2x"
    numbers = re.match(r"(\d{1,2})/(\d+)/(\d+)(?![\d/])", name)
    if numbers is not None:
        z, x, y = map(int, numbers.groups())
        if z > MAX_ZOOM:
            expected = f"zooms 0 to {MAX_ZOOM}"
        elif max(x, y) >> z:
            expected = f"columns and rows 0 to {(1 << z) - 1} at zoom {z}"
    return InvalidInputError("not a tile", found=name, expected=expected)


# -- site -----------------------------------------------------------------------------------------


@group.command(
    "site",
    short_help="A web page that reads tilesets without a server.",
    examples=(
        ("comal tapalcatl site public tiles/", "a page with a copy of one tileset"),
        (
            "comal tapalcatl site public tiles/ elevation.parquet --title Alps",
            "with a RaQuet file beside it",
        ),
        (
            "comal tapalcatl site public https://example.com/tiles/meta.json",
            "a page that reads a bucket",
        ),
        ("comal tapalcatl site site tiles/ --link", "without copying: serve both folders"),
    ),
)
@click.argument("output", metavar="OUT")
@click.argument("sources", metavar="[SOURCE]...", nargs=-1)
@click.option("--title", default="Tiles", show_default=True, help="Heading of the page.")
@click.option(
    "--link",
    is_flag=True,
    help="Name local sources by their place relative to OUT instead of copying them.",
)
@options.writing
def site(style: Style, /, output: str, sources: tuple[str, ...], **named: Any) -> None:
    """Write OUT: a page that reads tilesets and RaQuet files in the browser, with no server.

    SOURCE is a tileset's folder or meta.json, one archive (.zip) or a RaQuet file (.parquet); a
    path, or an https:// address whose store allows other origins to read. Put the folder on any
    static host or bucket.
    """
    from comal.site import write  # noqa: PLC0415 - help needs none of it

    with working(f"writing {output}", style) as progress:
        folder = write(output, sources, progress=progress, **named)
    count = len(sources)
    text = f"{folder}: a page with {counted(count, 'source')}"
    done({"path": str(folder), "sources": count}, style, text)
