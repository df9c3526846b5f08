"""`convert`: a source into another container or format, by one call of the format that writes it.

The kind of a source follows from its name and bytes, the result from the name of the target.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from comal import raquet, taco, tapalcatl
from comal.convert.collection import OPTIONS
from comal.convert.raquet_tapalcatl import draw
from comal.convert.report import MigrationReport
from comal.convert.tortilla_taco import migrate
from comal.errors import InvalidInputError, NotThisFormatError, without_secrets
from comal.formats import adapter_of, sniff
from comal.parallel import Workers
from comal.plan import Head
from comal.progress import Progress, silent
from comal.storage import href_text, open_source, parse_href
from comal.storage.location import STORE_SCHEMES
from comal.storage.targets import target_path
from comal.tapalcatl.containers.tilesets import TileSetSource

_PARQUET, _ZIP, _META = ".parquet", ".zip", "meta.json"
_TIFF = frozenset({".tif", ".tiff"})
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".jp2")
_GRIDS = (".vrt", ".img", ".asc", ".hgt")
_CONTAINERS = (".nc", ".nc4", ".h5", ".hdf5", ".zarr", ".grib", ".grb2")
_RASTERS = frozenset({*_TIFF, *_PICTURES, *_GRIDS, *_CONTAINERS})
_TILE_FILES = (".mbtiles", ".pmtiles")
_ZIP_SUFFIXES = frozenset({".tacozip", _ZIP})
_MANIFESTS = frozenset({".csv", _PARQUET, ".geoparquet"})
_NUMBER = re.compile(r"0|[1-9][0-9]?")

_TORTILLAS = frozenset({"tortilla", "taco-v1"})
_PACKED = frozenset({"rasters", "manifest"})
_COG = "raquet to COG"
_NOT_DRAWN = {_PARQUET: "raquet to raquet", **dict.fromkeys(_TIFF, _COG)}
"""What RaQuet becomes without being drawn, by the suffix of the target."""
_TILED = "a folder (no suffix), *.zip, *.pmtiles or *.mbtiles"
_TARGETS = {"raquet": f"*.tif for a COG; {_TILED} for PNG tiles", "tapalcatl": _TILED}
_DRAWN = {"raquet": "raquet to tiles"}
"""What the rest becomes, in messages."""
_TAKEN_BY: Mapping[str, frozenset[str]] = {
    "variable": frozenset({"raster"}),
    "band": frozenset({"raster", "raquet", _COG}),
    "stretch": frozenset({"raquet"}),
    "rename": frozenset({"zip"}),
    "pad": _TORTILLAS | _PACKED,
    **dict.fromkeys(("dry_run", "children", "ids", "bands"), _TORTILLAS),
    **dict.fromkeys((*OPTIONS, "extra"), _TORTILLAS | _PACKED),
}
"""Options that only some kinds of sources take."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What `convert` wrote, or with ``dry_run`` would write."""

    kind: str
    """Kind of the source: ``raster``, ``raquet``, ``tiles``, ``rasters``, ``manifest``, a
    container of TACO 2.0, ``tortilla`` or ``taco-v1``."""
    written: Mapping[str, Any]
    """What the writing format reports."""
    report: MigrationReport | None = None
    """What the migration of a Tortilla or a TACO v1 changed."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``comal convert --json`` prints it."""
        return dict(self.written)


def convert(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    dry_run: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    executor: Workers = None,
    **options: Any,
) -> Conversion:
    """Write a source in another container or format, as ``comal convert`` does.

    Parameters
    ----------
    source
        Path or URL of a raster, a RaQuet file, tiles (MBTiles, PMTiles, a folder, a tileset), a
        TACO, a folder of rasters, a manifest (CSV or Parquet), a Tortilla or a TACO v1; or several
        of the last two, which become one.
    output
        Target. Samples become a TACO: a ZIP when the name ends in ``.tacozip`` or ``.zip``, else a
        folder. Tiles and RaQuet become Tapalcatl in the same way, or what the suffix says:
        ``.mbtiles``, ``.pmtiles``, ``.parquet`` (RaQuet), ``.tif`` (COG).
    dry_run
        Write nothing and report what a migration would change; it needs no output.
    overwrite
        Replace an older target of the same kind.
    progress
        Called with the progress.
    executor
        Draws, encodes or packs rasters and tiles, and encodes local metadata of TACO: any
        `concurrent.futures.Executor`, or a number of processes; threads if None, or one thread
        where tiles are drawn. What copies one file to another does not use it.
    **options
        ``bands`` and ``stretch`` as for `draw`, where a RaQuet file is drawn; ``bands`` chooses
        those of a raster or a COG, too. ``variable`` as for `comal.raquet.write`, ``rename`` as for
        `comal.taco.zip2folder`, those of `comal.convert.migrate`, and fields of the collection;
        others go to the function that writes.

    Returns
    -------
    Conversion

    Raises
    ------
    InvalidInputError
        The source does not become what the name of the target says, or an option is not for it.
    ComalError
        As documented for the function that reads or writes.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    hrefs = [href_text(one) for one in sources]
    place = None if output is None else target_path(output)
    target = None if place is None else os.fspath(place)
    if not hrefs:
        raise InvalidInputError("nothing to convert", found="no source")
    if target is None and not dry_run:
        raise InvalidInputError("nowhere to write", expected="output, or dry_run=True")
    kind = _kind(hrefs, target)
    given = {
        name: value
        for name, value in options.items()
        if name not in _TAKEN_BY or (value is not None and value is not False)
    }
    becomes = _NOT_DRAWN.get(_suffix(target), kind) if kind == "raquet" and target else kind
    refuse_others(becomes, given | ({"dry_run": True} if dry_run else {}))
    writing: dict[str, Any] = {"overwrite": overwrite, "executor": executor, **given}
    writing["progress"] = progress or silent
    if kind in _TORTILLAS:
        report = migrate(hrefs[0] if len(hrefs) == 1 else hrefs, place, dry_run=dry_run, **writing)
        return Conversion(kind, {"from": kind, **report.to_dict()}, report)
    assert place is not None
    route = _ROUTES.get(kind)
    if route is not None:
        written = {"source": hrefs[0], "output": target, **route(hrefs[0], place, **writing)}
        return Conversion(kind, written)
    if kind in _PACKED:
        _pack(kind, hrefs[0], place, **writing)
    else:
        _repack(kind, hrefs[0], place, **writing)
    return Conversion(kind, {"source": hrefs[0], "from": kind, "output": target})


def refuse_others(kind: str, given: Mapping[str, Any]) -> None:
    """Refuse options that this kind of source would silently ignore."""
    for name, value in given.items():
        # The bands of samples are a number, those of a raster are named.
        word = "band" if name == "bands" and not isinstance(value, Integral) else name
        takers = _TAKEN_BY.get(word, {kind})
        if kind not in takers:
            option = OPTIONS.get(name, "--" + word.replace("_", "-"))
            what = "conversion" if kind in _NOT_DRAWN.values() else "source"
            raise InvalidInputError(
                f"{option} is not for this kind of {what}",
                found=kind,
                expected=" or ".join(sorted(_DRAWN.get(taker, taker) for taker in takers)),
                hint=f"leave the option out (in Python: {name}=)",
            )


# -- what a source is -----------------------------------------------------------------------------


def _kind(sources: Sequence[str], output: str | None) -> str:
    if len(sources) == 1 and output is not None:
        for kind, handles in _HANDLED.items():
            if handles(sources[0], output):
                return kind
    kinds = {_samples_kind(source) for source in sources}
    if len(sources) == 1 or kinds <= _TORTILLAS:
        return min(kinds)
    raise InvalidInputError(
        "several sources can be converted together only if all are Tortilla or TACO 1",
        found=", ".join(sorted(kinds)),
        hint="'comal taco concat' joins several datasets of TACO 2.0",
    )


def _samples_kind(source: str) -> str:
    """The container of a TACO data set, a Tortilla, a plain folder of rasters, or a manifest."""
    path = Path(source)
    if "*" in path.name and not path.exists():
        return "tortilla"
    if path.suffix.lower() in _MANIFESTS and path.is_file() and not _is_format(source, "raquet"):
        # A manifest may be a Parquet file of any kind, but not one of tiles.
        return "manifest"
    try:
        found = sniff(source)
    except NotThisFormatError:
        stored = parse_href(source).scheme in STORE_SCHEMES
        if path.is_dir() or (stored and open_source(source).stat().is_dir):
            return "rasters"
        raise
    name = found.format.name
    if name in _TORTILLAS:
        return name
    if name in _TARGETS:
        raise InvalidInputError(
            f"{found.format.title} cannot be converted to what the name of the target says",
            where=source,
            expected=_TARGETS[name],
            hint="'comal raquet export' writes PNG, and parts of a file"
            if name == "raquet"
            else None,
        )
    with closing(adapter_of(found.format).archive(source)) as archive:
        return str(archive.describe()["container"])


def _is_format(source: str, name: str) -> bool:
    try:
        return sniff(source).format.name == name
    except NotThisFormatError:
        return False


def _suffix(path: str | os.PathLike[str]) -> str:
    return Path(without_secrets(os.fspath(path))).suffix.lower()


def _is_raster(source: str, output: str) -> bool:
    return _suffix(output) == _PARQUET and _suffix(_file(source)) in _RASTERS


def _file(source: str) -> str:
    """The file that `source` names, alone or with one of its variables."""
    if ":" not in source:
        return source
    from comal.raster.describing import file_of  # noqa: PLC0415 - GDAL

    return str(file_of(without_secrets(source)))


def _is_raquet(source: str, output: str) -> bool:
    """Whether a RaQuet file becomes a GeoTIFF, RaQuet as comal writes it, or pictures.

    A manifest of samples is Parquet as well.
    """
    after = _suffix(output)
    if _suffix(source) != _PARQUET:
        return False
    forms = {_PARQUET, "", _ZIP, *_TILE_FILES}
    return after in _TIFF or (after in forms and _is_format(source, "raquet"))


def _is_tiles(source: str, output: str) -> bool:
    """Whether source and target hold tiles, by their names and the content of a local folder."""
    if output.lower().endswith(_TILE_FILES):
        return True
    if _suffix(output) not in {"", ".tiles", _ZIP}:
        return False
    return source.lower().endswith(_TILE_FILES) or _is_tileset(source)


def _is_tileset(source: str) -> bool:
    if source.lower().endswith(_ZIP):
        return _is_format(source, "tapalcatl")  # samples have such a name, too
    path = _local(source)
    if path is None:
        return source.endswith(f"/{_META}") or _is_stored_tileset(source)
    if path.is_dir():
        if (path / _META).is_file():
            return b"formats" in (path / _META).read_bytes()[:65_536]
        return any(_NUMBER.fullmatch(child.name) and _is_zoom(child) for child in path.iterdir())
    return path.name == _META


def _is_stored_tileset(source: str) -> bool:
    """Whether a folder in a store is a tileset, or holds tiles."""
    if parse_href(source).scheme not in STORE_SCHEMES:
        return False
    top = open_source(source)
    names = top.names()
    if _META in names:
        return b"formats" in top.fetch([Head(65_536, _META)])[0].data
    zooms = [one for one in names if one.endswith("/") and _NUMBER.fullmatch(one[:-1])]
    below = (name for zoom in zooms for name in top.names(zoom))
    return any(name.endswith("/") and name[:-1].isdecimal() for name in below)


def _is_zoom(folder: Path) -> bool:
    """Whether a folder with a number as name holds folders with numbers as names."""
    if not folder.is_dir():
        return False
    children = [child for child in folder.iterdir() if child.is_dir()]
    return bool(children) and all(child.name.isdecimal() for child in children)


def _local(source: str) -> Path | None:
    location = parse_href(source)
    return Path(location.path) if location.is_local else None


# -- what it becomes ------------------------------------------------------------------------------


def _write_raquet(source: str, output: Path, **writing: Any) -> Mapping[str, Any]:
    made = raquet.write(source, output, **writing)
    return {"from": "raster", "to": "raquet", **made.to_dict()}


def _convert_raquet(
    source: str, output: Path, *, executor: Workers, **writing: Any
) -> Mapping[str, Any]:
    if _suffix(output) == _PARQUET:
        raquet.repair(source, output, **writing)
        return {"from": "raquet", "to": "raquet"}
    if _suffix(output) in _TIFF:
        return {"from": "raquet", "to": "cog", **raquet.to_cog(source, output, **writing).to_dict()}
    made = draw(source, output, executor=executor, **writing)
    if _suffix(output) in _TILE_FILES:
        return {"from": "raquet", "to": _suffix(output)[1:], "tiles": made.tiles}
    return {"from": "raquet", "to": "tapalcatl", "tiles": made.tiles, "archives": made.archives}


def _convert_tiles(
    source: str, output: Path, *, executor: Workers, **writing: Any
) -> Mapping[str, Any]:
    """Convert tiles to what the name of `output` says.

    A folder becomes a tileset, unless the source is one: then it gets loose tiles. A name that
    ends in .zip makes a single archive.
    """
    with ExitStack() as scope:
        tiles = tapalcatl.open_tiles(source, scope=scope)
        name = output.name.lower()
        if name.endswith(".mbtiles"):
            write: Any = tapalcatl.to_mbtiles
        elif name.endswith(".pmtiles"):
            write = tapalcatl.to_pmtiles
        elif not isinstance(tiles, TileSetSource):
            write = tapalcatl.build
        elif name.endswith(_ZIP):
            write = tapalcatl.remetatile
        else:
            write = tapalcatl.to_directory
        if write in (tapalcatl.build, tapalcatl.remetatile):
            writing["executor"] = executor
        summary: Mapping[str, Any] = write(tiles, output, **writing).to_dict()
    return {"tiles": summary["tiles"], **summary}


_HANDLED = {"raster": _is_raster, "raquet": _is_raquet, "tiles": _is_tiles}
_ROUTES = {"raster": _write_raquet, "raquet": _convert_raquet, "tiles": _convert_tiles}


def _pack(kind: str, source: str, output: Path, **writing: Any) -> None:
    manifest = source if kind == "manifest" else None
    folder = Path(source).absolute().parent if manifest else source
    taco.pack_folder(folder, output, manifest=manifest, **writing)


def _repack(kind: str, source: str, output: Path, **writing: Any) -> None:
    """From one container of TACO 2.0 to another."""
    to_zip = _suffix(output) in _ZIP_SUFFIXES
    if kind == "zip" and not to_zip:
        taco.zip2folder(source, output, **writing)
    elif kind == "folder" and to_zip:
        taco.folder2zip(source, output, **writing)
    elif kind in {"tacocat", "tacocat-folder"}:
        with taco.load(source) as dataset:
            taco.export(dataset, output, **writing)
    else:
        raise InvalidInputError(
            "the source has that form already", where=source, found=f"a TACO {kind}"
        )
