"""The group ``comal tapalcatl``: tilesets in ZIP archives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from click import argument

from comal import tapalcatl
from comal.cli import options
from comal.cli.app import Group
from comal.cli.options import (
    BBOX,
    TILE,
    TILE_FILE,
    ZOOMS,
    Style,
    choice,
    flag,
    option,
    together,
    whole,
)
from comal.cli.output import (
    done,
    human_size,
    working,
)
from comal.errors import InvalidInputError, counted


@click.group(
    "tapalcatl",
    cls=Group,
    removed={
        "check": "comal check X --open KEY=VALUE",
        "info": "comal info X --open KEY=VALUE",
        "plan": "comal tapalcatl create SRC OUT",
        "split": "comal tapalcatl extract X OUT --min-zoom A --max-zoom B",
        "tile": "comal get X Z/X/Y.EXT --open KEY=VALUE",
    },
)
def group() -> None:
    """Tapalcatl: tiles in ZIP archives that are read by byte range.

    $ comal tapalcatl extract https://example.org/tiles/meta.json alps --bbox 5,44,17,48
      # a part of a tileset on a server
    $ comal tapalcatl create tiles.mbtiles tiles/  # a tileset of an MBTiles file
    $ comal tapalcatl site public tiles/  # write a page with a copy of a tileset
    """


layout_options = together(
    whole("--metatile", "Root tiles per side of an archive, a power of two.", 1, metavar="N"),
    option(
        "--materialized",
        "Zooms at which archives begin; by default chosen for directories of at most 64 KiB.",
        type=ZOOMS,
        to="materialized_zooms",
    ),
    flag("--hash", "Begin keys with {h}.", to="hash_in_path"),
)
"""Options for the zooms of archives and their width."""


entry_options = together(
    option("--ext", "Extension of tiles without one; by default recognised by their bytes."),
    option("--scale", "Scale of tiles: 2 for '@2x'.", type=float, default=1),
    choice(
        "--compression",
        ["auto", "store", "deflate"],
        "auto stores what is compressed already.",
        default="auto",
    ),
    whole("--level", "Level of DEFLATE.", 1, 12, default=6),
    option(
        "--times",
        "'fixed' (1980-01-01), 'source', or one time for all tiles.",
        default="fixed",
        metavar="TIME",
    ),
    flag("--exact-times", "Also store exact seconds, in an extra field."),
)
"""Options for the entries of tiles."""


described_options = together(
    option("--name", "Name of the tileset; by default the source's."),
    option("--description", "Description; by default the source's."),
    option("--attribution", "Attribution; by default the source's."),
    option("--bounds", "Bounds in degrees; widened to hold all tiles.", type=BBOX),
)
"""Options for the metadata of a tileset."""


def only_given(named: Mapping[str, Any]) -> dict[str, Any]:
    """Only the arguments that were given: a source may have its own defaults."""
    return {name: one for name, one in named.items() if one is not None and one is not False}


def _report(made: tapalcatl.Built, style: Style) -> None:
    """Print what was written, and in which layout; Tapalcatl 1 has none."""
    kept = f", {made.kept} of them kept" if made.kept else ""
    text = f"{made.output}: {counted(made.tiles, 'tile')} in {counted(made.archives, 'archive')}"
    text += f"{kept}, {human_size(made.size)}"
    if made.materialized_zooms:
        zooms = ", ".join(map(str, made.materialized_zooms))
        text += f"; archives at zooms {zooms} under {made.metatile} x {made.metatile} tiles"
    done(made.to_dict(), style, text)


def _tiles_of(
    source: str, opening: Mapping[str, Any], scope: ExitStack, **more: Any
) -> tapalcatl.TileSet | Any:
    """A source of tiles; with --open it is a tileset."""
    if opening:
        return scope.enter_context(tapalcatl.open(source, **opening))
    return tapalcatl.open_tiles(source, scope=scope, **more)


def _generation1_of(opening: Mapping[str, Any]) -> tapalcatl.Generation1 | None:
    """The settings of Tapalcatl 1 given by --open for a target; all others are refused."""
    told = dict(opening)
    if told.pop("version", 1 if told else 2) == 2:
        if told:
            raise click.BadParameter("Tapalcatl 2 describes itself", param_hint="--open")
        return None
    if not {"hash", "variant", "source"}.isdisjoint(told):
        raise click.BadParameter(
            "a target takes only what describes keys of Tapalcatl 1", param_hint="--open"
        )
    return tapalcatl.Generation1(**told)


@group.command()
@argument("source", metavar="SRC")
@argument("output", metavar="OUT")
@choice(
    "--scheme",
    ["xyz", "tms", "zyx"],
    "How tiles are named in a folder; xyz by default.",
)
@choice("--generation", ["1", "2"], "Generation of Tapalcatl.", default="2")
@option("--layer", "Layer in keys of Tapalcatl 1.")
@option(
    "--keys",
    "Keys of Tapalcatl 1: plain (the default), prefix-hash, hash-prefix, or a pattern.",
)
@option("--prefix", "Prefix of keys of Tapalcatl 1.")
@whole("--tile-size", "Tapalcatl 1: side of a tile in pixels; 256 by default.", 1, metavar="PIXELS")
@option("--variant", "Put tiles below this name; 'put' adds other variants.", metavar="NAME")
@options.negative("--no-resume", "resume", "Start anew, and keep nothing after an error.")
@layout_options
@entry_options
@described_options
@options.opening
@options.by_workers
@options.writing
def create(
    style: Style, /, source: str, output: str, *, opening: Mapping[str, Any], **more: Any
) -> None:
    """Write the tiles of SRC as the tileset OUT, which appears when it is complete.

    OUT is a folder, or a single archive when its name ends in .zip. SRC is an MBTiles or
    PMTiles file, a folder of tiles, or a tileset. An interrupted build of a folder is resumed:
    finished archives are kept beside it, in a store at OUT. --open is about SRC.

    $ comal tapalcatl create tiles.mbtiles tiles/  # a tileset of an MBTiles file
    $ comal tapalcatl create tiles.mbtiles tiles.zip  # in a single archive
    $ comal tapalcatl create https://example.org/a.pmtiles tiles/  # of a PMTiles file
    $ comal tapalcatl create loose/ tiles/ --scheme tms --scale 2  # of a folder of tiles
    $ comal tapalcatl create a.mbtiles tiles/ --materialized 0,4,8 --metatile 1
      # with a layout of your own
    $ comal tapalcatl create a.mbtiles t1/ --generation 1 --metatile 8 --layer all  # Tapalcatl 1
    $ comal tapalcatl create dark.mbtiles tiles/ --variant dark  # tiles below a name
    $ comal tapalcatl create t1/ t2/ --open metatile=8 --open layer=all  # out of Tapalcatl 1
    """
    scheme = more.pop("scheme")
    first = {name: more.pop(name) for name in ("layer", "prefix", "tile_size")}
    first = only_given({**first, "layout": more.pop("keys")})
    generation = int(more.pop("generation"))
    if generation == 1:
        first.update(only_given({"metatile": more.pop("metatile")}))
    more["generation1"] = tapalcatl.Generation1(**first) if generation == 1 or first else None
    with ExitStack() as scope, working(f"building {output}", style) as progress:
        tiles = _tiles_of(source, opening, scope, scheme=scheme)
        made = tapalcatl.build(tiles, output, progress=progress, version=generation, **more)
    _report(made, style)


@group.command()
@argument("target", metavar="X")
@argument("source", metavar="SRC", required=False)
@option("--tile", "A tile; repeatable.", multiple=True, type=TILE_FILE, to="tiles")
@option("--variant", "Put tiles below this name, beside other variants.", metavar="NAME")
@entry_options
@options.opening
@options.pass_style
def put(
    style: Style, /, target: str, source: str | None, *, opening: Mapping[str, Any], **more: Any
) -> None:
    """Add or replace tiles of the tileset or archive X, without rewriting what is there.

    Tiles come from SRC, which is all that 'create' takes, or from --tile. New bytes are appended:
    'compact' frees the old ones. Of Tapalcatl 1, X is the folder that keys are relative to.

    $ comal tapalcatl put tiles/ --tile 5/10/23=new.png  # one tile
    $ comal tapalcatl put tiles/ changed.mbtiles  # all tiles of a file
    $ comal tapalcatl put tiles/4/0/4.zip --tile 5/10/23=new.png  # into one archive
    $ comal tapalcatl put t1/ new.mbtiles --open metatile=8 --open layer=all  # Tapalcatl 1
    """
    tiles = more.pop("tiles")
    if (source is None) == (not tiles):
        raise click.UsageError("Give either SRC or --tile.")
    with ExitStack() as scope, working(f"putting tiles into {target}", style) as progress:
        given: Any = [(*tile, _read(path)) for tile, path in tiles]
        if source is not None:
            given = tapalcatl.open_tiles(source, scope=scope)
        first = _generation1_of(opening)
        changed = tapalcatl.put(target, given, generation1=first, progress=progress, **more)
    text = f"{target}: {counted(changed.added, 'tile')} added, {changed.replaced} replaced"
    text += f" in {counted(changed.archives, 'archive')}"
    done({"output": target, **changed.to_dict()}, style, text)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInputError(
            "file of a tile cannot be read", where=path, found=error.strerror
        ) from error


@group.command()
@argument("target", metavar="X")
@argument("tiles", metavar="Z/X/Y...", type=TILE, nargs=-1, required=True)
@option("--ext", "Only entries of this extension.")
@option("--scale", "Only entries of this scale.", type=float)
@option("--variant", "Only entries below this name.", metavar="NAME")
@options.opening
@options.pass_style
def delete(
    style: Style, /, target: str, tiles: Any, *, opening: Mapping[str, Any], **named: Any
) -> None:
    """Remove tiles from the tileset or archive X; their bytes stay until 'compact'.

    $ comal tapalcatl delete tiles/ 5/10/23 5/10/24  # two tiles
    $ comal tapalcatl delete tiles/ 5/10/23 --ext png  # of one format only
    $ comal tapalcatl delete t1/ 5/10/23 --open metatile=8 --open layer=all  # of Tapalcatl 1
    """
    first = _generation1_of(opening)
    with working(f"deleting tiles of {target}", style) as progress:
        changed = tapalcatl.delete(target, tiles, generation1=first, progress=progress, **named)
    text = f"{target}: {counted(changed.deleted, 'entry', 'entries')} deleted"
    text += f", {counted(changed.absent, 'tile')} not there"
    done({"output": target, **changed.to_dict()}, style, text)


@group.command()
@argument("target", metavar="X")
@flag("--dry-run", "Write nothing; report the dead bytes.")
@flag("--all", "Rewrite every archive.", to="force")
@options.opening
@options.pass_style
def compact(
    style: Style, /, target: str, *, dry_run: bool, force: bool, opening: Mapping[str, Any]
) -> None:
    """Rewrite archives of the tileset or archive X in order and without dead bytes.

    $ comal tapalcatl compact tiles/  # all archives that have dead bytes
    $ comal tapalcatl compact tiles/ --dry-run  # only report how many there are
    $ comal tapalcatl compact tiles/4/0/4.zip  # one archive
    """
    first = _generation1_of(opening)
    if dry_run:
        with working(f"looking at {target}", style) as progress:
            found = tapalcatl.space(target, generation1=first, progress=progress)
        entries = counted(found.entries, "entry", "entries")
        text = f"{target}: {human_size(found.dead)} of {human_size(found.size)} are dead"
        text += f", {entries} in {counted(found.archives, 'archive')}"
        done({"output": target, **found.to_dict()}, style, text)
        return
    with working(f"compacting {target}", style) as progress:
        freed = tapalcatl.compact(target, force=force, generation1=first, progress=progress)
    done({"output": target, "saved": freed}, style, f"{target}: {human_size(freed)} freed")


@group.command()
@argument("targets", metavar="X...", nargs=-1, required=True)
@options.pass_style
def recover(style: Style, targets: tuple[str, ...]) -> None:
    """Finish a change of the tileset X that was committed, and undo one that was not.

    $ comal tapalcatl recover tiles/  # after an update of a tileset was killed
    """
    found = {target: tapalcatl.recover(target) for target in targets}
    lines = [
        f"{target}: {counted(one.finished, 'file')} put into place, {one.undone} removed"
        for target, one in found.items()
    ]
    done({"recovered": {key: one.to_dict() for key, one in found.items()}}, style, "\n".join(lines))


@group.command()
@argument("target", metavar="X")
@argument("key", required=False)
@option("--set", "New value; repeatable.", multiple=True, metavar="KEY=VALUE", to="values")
@option("--unset", "Remove a key; repeatable.", multiple=True, metavar="KEY")
@options.negative("--no-archives", "archives", "Leave the comments of archives as they are.")
@options.pass_style
def metadata(
    style: Style, target: str, key: str | None, values: Any, unset: Any, *, archives: bool
) -> None:
    """Print the metadata of the tileset or archive X, or change them without rewriting tiles.

    $ comal tapalcatl metadata tiles/  # all of it, as JSON
    $ comal tapalcatl metadata tiles/ name  # one value
    $ comal tapalcatl metadata tiles/ --set name=Roads --unset legend  # change it in place
    $ comal tapalcatl metadata tiles/ --set 'center=[10.5,50,4]'  # values may be JSON
    """
    changes: dict[str, Any] = dict(_changed(text) for text in values)
    changes.update(dict.fromkeys(unset))
    if changes:
        with working(f"editing {target}", style) as progress:
            edited = tapalcatl.edit_metadata(target, changes, archives=archives, progress=progress)
        comments = counted(edited.archives, "comment")
        text = f"{target}: {', '.join(changes)} changed, {comments} rewritten"
        done({"output": target, **edited.to_dict()}, style, text)
        return
    from comal.tapalcatl.writing.editing import metadata_at  # noqa: PLC0415 - when it is used

    document = metadata_at(target)
    if key is None:
        click.echo(json.dumps(document, indent=None if style.json else 2))
        return
    if key not in document:
        raise click.BadParameter(f"{key!r} is not among {', '.join(document)}", param_hint="KEY")
    value = document[key]
    click.echo(value if isinstance(value, str) and not style.json else json.dumps(value))


def _changed(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    if value[:1] in {"[", "{", '"'} or value.lstrip("-").replace(".", "", 1).isdecimal():
        try:
            return name, json.loads(value)
        except json.JSONDecodeError as error:
            raise click.BadParameter(f"{value!r} is not JSON", param_hint="--set") from error
    return name, value


@group.command()
@argument("sources", metavar="SRC...", nargs=-1, required=True)
@option("-o --output", "A folder, or one archive: x.zip.", metavar="OUT", required=True)
@choice(
    "--conflict",
    ["last", "first"],
    "Which tile to keep where several sources have one.",
    default="last",
)
@layout_options
@options.by_workers
@options.writing
def merge(style: Style, /, sources: tuple[str, ...], output: str, **named: Any) -> None:
    """Write the tiles of all SRC as one tileset; stored bytes are copied as they are.

    The layout is that of the first SRC whose archives can hold all tiles with directories of at
    most 64 KiB, unless it is given; where there is none, one is chosen. The report says which.
    Tiles of variants are left out.

    $ comal tapalcatl merge north/ south/ -o both/  # two tilesets
    $ comal tapalcatl merge base/ new.mbtiles -o both/  # the later source counts
    $ comal tapalcatl merge a/ b/ -o both/ --materialized 0,4,8 --metatile 2  # a layout
    """
    with working(f"merging into {output}", style) as progress:
        made = tapalcatl.merge(sources, output, progress=progress, **only_given(named))
    _report(made, style)


@group.command()
@argument("source", metavar="SRC")
@argument("output", metavar="OUT")
@layout_options
@options.by_workers
@options.writing
def remetatile(style: Style, /, source: str, output: str, **named: Any) -> None:
    """Write the tileset SRC with another layout; stored bytes are copied as they are.

    OUT is a folder, or a single archive when its name ends in .zip.

    $ comal tapalcatl remetatile tiles/ new/ --metatile 4  # wider archives
    $ comal tapalcatl remetatile tiles/ new/ --materialized 0,6,12  # deeper ones
    $ comal tapalcatl remetatile tiles/ tiles.zip  # one archive for all tiles
    """
    with working(f"writing {output}", style) as progress:
        made = tapalcatl.remetatile(source, output, progress=progress, **only_given(named))
    _report(made, style)


@group.command()
@argument("source", metavar="SRC")
@argument("output", metavar="DST")
@option("--ext", "Only tiles of this extension.")
@option("--scale", "Only tiles of this scale.", type=float)
@choice("--scheme", ["xyz", "tms", "zyx"], "How loose files are named.", default="xyz")
@options.opening
@options.writing
def export(
    style: Style, /, source: str, output: str, *, opening: Mapping[str, Any], **named: Any
) -> None:
    """Write the tiles of SRC to DST, byte for byte: .mbtiles, .pmtiles, or a folder of files.

    $ comal tapalcatl export tiles/ tiles.mbtiles  # as MBTiles
    $ comal tapalcatl export tiles/ tiles.pmtiles  # as PMTiles
    $ comal tapalcatl export tiles/ loose/ --scheme tms  # as loose files
    $ comal tapalcatl export tiles/ a.mbtiles --ext png --scale 2  # one of several formats
    $ comal tapalcatl export t1/ a.mbtiles --open layer=all --ext mvt  # out of Tapalcatl 1
    """
    with ExitStack() as scope, working(f"writing {output}", style) as progress:
        tiles = _tiles_of(source, opening, scope)
        writers = {".mbtiles": tapalcatl.to_mbtiles, ".pmtiles": tapalcatl.to_pmtiles}
        write: Any = writers.get(Path(output).suffix.lower(), tapalcatl.to_directory)
        if write is not tapalcatl.to_directory:
            del named["scheme"]
        made = write(tiles, output, progress=progress, **named)
    done(made.to_dict(), style, f"{output}: {counted(made.tiles, 'tile')}")


@group.command()
@options.source
@argument("output")
@option("--bbox", "Tiles that touch this box, in degrees.", type=BBOX)
@option("--geojson", "Tiles that touch the geometries in this file.", metavar="FILE", to="geometry")
@whole("--min-zoom", "First zoom to take.", 0)
@whole("--max-zoom", "Last zoom to take.", 0)
@whole("--overview-zoom", "Also take all tiles down to this zoom, wherever they are.", 0)
@whole("--metatile", "Layout of the extract; by default that of X.", 1)
@option(
    "--materialized",
    "Layout of the extract; by default that of X.",
    type=ZOOMS,
    to="materialized_zooms",
)
@options.opening
@options.by_workers
@options.writing
def extract(
    style: Style, /, source: str, output: str, *, opening: Mapping[str, Any], **named: Any
) -> None:
    """Copy a part of the tileset X to OUTPUT, each tile byte by byte.

    OUTPUT is a folder, or a single archive when its name ends in .zip.

    Only directories of archives that the part touches are read, and only the tiles of the part;
    neighbours come in one request.

    $ comal tapalcatl extract https://example.org/tiles/meta.json alps --bbox 5,44,17,48
      # a box, from a server
    $ comal tapalcatl extract tiles alps --geojson alps.geojson --max-zoom 12
      # an outline, down to a zoom
    $ comal tapalcatl extract tiles alps --bbox 5,44,17,48 --overview-zoom 5
      # with the whole world as a background
    """
    with ExitStack() as scope, working(f"extracting from {source}", style) as progress:
        # Opened here, as its metatile is not that of the extract.
        tiles = scope.enter_context(tapalcatl.open(source, **opening))
        made = tapalcatl.extract(tiles, output, progress=progress, **named)
    _report(made, style)


@group.command()
@argument("output", metavar="OUT")
@argument("sources", metavar="[SOURCE]...", nargs=-1)
@option("--title", "Heading of the page.", default="Tiles")
@flag("--link", "Refer to local sources by their path relative to OUT instead of copying them.")
@options.writing
def site(style: Style, /, output: str, sources: tuple[str, ...], **named: Any) -> None:
    """Write OUT: a page that reads tilesets and RaQuet files in the browser, with no server.

    SOURCE is a tileset's folder or meta.json, one archive (.zip) or a RaQuet file (.parquet); a
    path, or an https:// address whose store allows other origins to read. Put the folder on any
    static host or bucket.

    $ comal tapalcatl site public tiles/  # a page with a copy of one tileset
    $ comal tapalcatl site public tiles/ elevation.parquet --title Alps
      # with a RaQuet file beside it
    $ comal tapalcatl site public https://example.com/tiles/meta.json  # a page that reads a bucket
    $ comal tapalcatl site site tiles/ --link  # without copying: serve both folders
    """
    from comal.site import write  # noqa: PLC0415 - help needs none of it

    with working(f"writing {output}", style) as progress:
        folder = write(output, sources, progress=progress, **named)
    count = len(sources)
    text = f"{folder}: a page with {counted(count, 'source')}"
    done({"path": str(folder), "sources": count}, style, text)
