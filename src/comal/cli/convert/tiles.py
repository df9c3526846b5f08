"""``comal convert`` between Tapalcatl, MBTiles, PMTiles and folders of tiles."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from comal.cli.options import Style
from comal.cli.output import working
from comal.errors import NotThisFormatError
from comal.formats import sniff
from comal.storage import parse_href
from comal.storage.location import FILE

_FILES: Final = (".mbtiles", ".pmtiles")
_META: Final = "meta.json"
_ZIP: Final = ".zip"
_NUMBER = re.compile(r"0|[1-9][0-9]?")


def handles(source: str, output: str) -> bool:
    """Whether both are of this family: by names, and by a look at a local folder."""
    if output.lower().endswith(_FILES):
        return True
    if Path(output).suffix.lower() not in {"", ".tiles", _ZIP}:
        return False
    return source.lower().endswith(_FILES) or _is_tileset(source)


def run(source: str, output: str, style: Style, *, overwrite: bool) -> Mapping[str, Any]:
    """Convert; what comes out is decided by the name of `output`.

    A folder becomes a tileset, unless the source is one: then it gets loose tiles. A name that
    ends in .zip makes a single archive.
    """
    from comal.tapalcatl import (  # noqa: PLC0415 - only when it is asked for
        build,
        open_tiles,
        remetatile,
        to_directory,
        to_mbtiles,
        to_pmtiles,
    )
    from comal.tapalcatl.writing.alone import is_archive  # noqa: PLC0415

    with ExitStack() as scope, working(f"writing {output}", style) as progress:
        tiles = open_tiles(source, scope=scope)
        if output.lower().endswith(".mbtiles"):
            write: Any = to_mbtiles
        elif output.lower().endswith(".pmtiles"):
            write = to_pmtiles
        elif not _is_archives(source):
            write = build
        else:
            write = remetatile if is_archive(output) else to_directory
        summary: Mapping[str, Any] = write(
            tiles, output, overwrite=overwrite, progress=progress
        ).to_dict()
    return {"tiles": summary["tiles"], **summary}


def _is_archives(source: str) -> bool:
    """Whether the source is a tileset of archives."""
    path = _local(source)
    if path is not None and path.is_dir():
        return (path / _META).is_file()
    return source.endswith((f"/{_META}", _ZIP)) or source == _META


def _is_tileset(source: str) -> bool:
    if source.lower().endswith(_ZIP):
        return _is_archive(source)
    path = _local(source)
    if path is None:
        return source.endswith(f"/{_META}")
    if path.is_dir():
        if (path / _META).is_file():
            return b"formats" in (path / _META).read_bytes()[:65_536]
        return any(_NUMBER.fullmatch(child.name) and _is_zoom(child) for child in path.iterdir())
    return path.name == _META


def _is_archive(source: str) -> bool:
    """Whether a ZIP is a single archive of tiles: that of samples has such a name, too."""
    try:
        return sniff(source).format.name == "tapalcatl"
    except NotThisFormatError:
        return False


def _is_zoom(folder: Path) -> bool:
    """Whether a folder that is named by a number holds folders that are, as tiles do."""
    if not folder.is_dir():
        return False
    children = [child for child in folder.iterdir() if child.is_dir()]
    return bool(children) and all(child.name.isdecimal() for child in children)


def _local(source: str) -> Path | None:
    location = parse_href(source)
    return Path(location.path) if location.scheme == FILE else None
