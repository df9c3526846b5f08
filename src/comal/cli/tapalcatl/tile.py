"""``comal tapalcatl tile``: one tile, or what is said of it."""

from __future__ import annotations

import re
from typing import Any

import click

from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import print_fields, print_json, write_bytes
from comal.cli.tapalcatl.opening import open_options, opening_of
from comal.errors import InvalidInputError, NotInContainerError
from comal.storage import targets
from comal.storage.kinds import like
from comal.tapalcatl import open as open_tileset
from comal.tapalcatl.spec import MAX_ZOOM
from comal.tapalcatl.wire import parse_name, split_suffix


@click.command(
    "tile",
    cls=Command,
    examples=(
        ("comal tapalcatl tile tiles 5/16/11 -o tile.mvt", "into a file"),
        ("comal tapalcatl tile https://example.org/t/meta.json 5/16/11.mvt --decode", "gunzipped"),
        ("comal tapalcatl tile tiles 5/16/11@2x.png --headers", "what a server would say"),
        (
            "comal tapalcatl tile s3://bucket 14/8185/5449.mvt --t1-metatile 8 --t1-layer all",
            "from Tapalcatl 1",
        ),
    ),
)
@options.source
@click.argument("name", metavar="Z/X/Y[@Nx][.EXT]")
@click.option("--size", type=int, metavar="PIXELS", help="Pixels of the tile; Tapalcatl 1 only.")
@click.option("--headers", is_flag=True, help="Print headers and place instead of the bytes.")
@click.option("--decode", is_flag=True, help="Take the content encoding off.")
@click.option("--no-verify", is_flag=True, help="Do not compare the checksum.")
@open_options
@options.output_file
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    name: str,
    size: int | None,
    output: str | None,
    *,
    headers: bool,
    decode: bool,
    no_verify: bool,
    overwrite: bool,
    **opening: Any,
) -> None:
    """Write the bytes of one tile of X to standard output or to a file."""
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
    with open_tileset(source, **opening_of(opening)) as tileset:
        tile = tileset.tile(z, x, y, verify=not no_verify, **chosen)
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
        if style.json:
            print_json(fields)
        else:
            print_fields(fields, style)
        return
    data = tile.content() if decode else tile.data
    if output is None:
        write_bytes(data)
        return
    with targets.new_file(output, overwrite, like(data), source) as file:
        file.write(data)


def _no_tile(name: str) -> InvalidInputError:
    """Whether the form of a name is wrong, or a number in it."""
    expected = "Z/X/Y, Z/X/Y.EXT or Z/X/Y@2x"
    numbers = re.match(r"(\d{1,2})/(\d+)/(\d+)(?![\d/])", name)
    if numbers is not None:
        z, x, y = map(int, numbers.groups())
        if z > MAX_ZOOM:
            expected = f"zooms 0 to {MAX_ZOOM}"
        elif max(x, y) >> z:
            expected = f"columns and rows 0 to {(1 << z) - 1} at zoom {z}"
    return InvalidInputError("not a tile", found=name, expected=expected)
