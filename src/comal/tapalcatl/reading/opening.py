"""Opening tilesets: by their document, as one archive, or as Tapalcatl 1 by configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from comal.errors import (
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
    UnsupportedVersionError,
    shown,
)
from comal.plan import Head, Whole
from comal.public import options_of, takes, warn
from comal.storage import BlockCache, CachedSource, Source, StorageConfig, as_source
from comal.tapalcatl import spec
from comal.tapalcatl.addressing import HASHES, Layout
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.layout import InArchive, MetatileLayout, TreeLayout
from comal.tapalcatl.reading.archives import Archives, ReadOptions
from comal.tapalcatl.reading.entries import of_archive, of_generation1
from comal.tapalcatl.reading.index import ArchiveIndex
from comal.tapalcatl.reading.places import (
    OneArchive,
    Tilezen,
    Tree,
    tree_of,
)
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import TapalcatlWarning, TileSetMetadata
from comal.tapalcatl.wire import variant_prefix

_CONFIGURED = frozenset(field.name for field in fields(Generation1))


_READING = frozenset(field.name for field in fields(ReadOptions))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    reading: ReadOptions
    variant: str | None
    metadata: TileSetMetadata | None
    template: str | None = None
    hash: str | None = None
    layer: str = "all"

    def archives(self, places: OneArchive | Tree | Tilezen) -> Archives:
        return Archives(places, self.reading, variant_prefix(self.variant))


@takes(ReadOptions)
def open(  # noqa: A001 - tapalcatl.open
    href: str | os.PathLike[str] | Source,
    *,
    version: int | None = None,
    metadata: TileSetMetadata | None = None,
    source: str | None = None,
    hash: str | None = None,  # noqa: A002 - as the format calls it
    variant: str | None = None,
    config: StorageConfig | None = None,
    cache: BlockCache | None = None,
    **options: Any,
) -> TileSet:
    """Open a tileset.

    Parameters
    ----------
    href
        ``meta.json``, the folder or prefix that holds it, or a single archive: a local path, a
        URL, or a source. For Tapalcatl 1 the folder, bucket or prefix that keys are relative to,
        or a single archive.
    version
        1 for Tapalcatl 1, which nothing in a tree tells. It follows from any of its settings.
    metadata
        The tileset's document, where there is none to read.
    source
        Template of the archives' addresses, instead of that of the document.
    hash
        What ``{h}`` stands for: ``name`` (the specification), ``file`` or ``layer``. Unless it is
        given, the first archive that is found decides.
    variant
        Name of a variant: only entries below it are tiles.
    config
        How to speak to the storage.
    cache
        Blocks of objects that are kept, for tiles that are read again.
    **options
        Fields of `ReadOptions` (``budget``, ``tail``, ``recheck``, ``limits``), and for
        Tapalcatl 1 settings of `Generation1`: ``metatile``, ``tile_size``, ``max_detail_zoom``,
        ``layout``, ``prefix``, ``layer``, ``formats``, ``min_zoom``, ``max_zoom``. Formats that are
        not told are those of the archives: of the first that is opened, and of others as they are
        met.

    Raises
    ------
    ObjectNotFoundError
        Nothing is there.
    NotThisFormatError
        Neither a tileset's document nor a ZIP archive.
    InvalidMetadataError
        A document that cannot be used, or a broken archive.
    UnsupportedVersionError
        A document, or the comment of the only archive, of another version than 2. One of a newer
        2.x is read, with a warning.
    UnsafeContentError
        A document whose archives would be where they must not be.
    """
    where = _opened(href, config, cache)
    generation1 = {name: value for name, value in options.items() if name not in _READING}
    settings = _Settings(
        reading=ReadOptions(**{name: options[name] for name in _READING & options.keys()}),
        variant=variant,
        metadata=metadata,
        template=source,
        hash=_known_hash(hash),
        layer=str(generation1.get("layer") or "all"),
    )
    first = version == 1 or bool(generation1.keys() - {"layer"})
    if version not in {None, 1, 2} or (first and version == 2):
        raise InvalidInputError(
            "version of Tapalcatl", found=version, expected="1, or 2 without settings of version 1"
        )
    if first or (version is None and generation1 and source is None):
        told = "formats" in generation1
        return _open_first(where, _configured(generation1), settings, told=told)
    return _open_second(where, settings)


@takes(ReadOptions)
def archive(
    href: str | os.PathLike[str] | Source,
    *,
    version: int | None = None,
    metadata: TileSetMetadata | None = None,
    variant: str | None = None,
    config: StorageConfig | None = None,
    cache: BlockCache | None = None,
    **options: Any,
) -> TileSet:
    """Open a single archive, whatever its name; parameters as those of `open`.

    Tiles are found by their names alone; in an archive of Tapalcatl 1 these are relative to it.
    """
    reading = options_of(ReadOptions, options)
    settings = _Settings(reading=reading, variant=variant, metadata=metadata)
    return _single(_opened(href, config, cache), settings, version)


def _opened(
    href: str | os.PathLike[str] | Source, config: StorageConfig | None, cache: BlockCache | None
) -> Source:
    source = as_source(href, config=config)
    return source if cache is None else CachedSource(source, cache)


def _known_hash(kind: str | None) -> str | None:
    if kind is not None and kind not in HASHES:
        raise InvalidInputError("unknown hash", found=shown(kind), expected=", ".join(HASHES))
    return kind


def _configured(given: Mapping[str, Any]) -> Generation1:
    unknown = given.keys() - _CONFIGURED
    if unknown:
        raise InvalidInputError(
            "unknown settings",
            found=", ".join(sorted(unknown)),
            expected=", ".join(sorted(_CONFIGURED)),
        )
    return Generation1(**given)


def _open_first(where: Source, config: Generation1, settings: _Settings, *, told: bool) -> TileSet:
    if _name(where).endswith(".zip"):
        return _single(where, settings, 1, config)
    places = Tilezen(where, config)
    return TileSet(
        where,
        settings.metadata or of_generation1(config),
        MetatileLayout(config),
        places,
        settings.archives(places),
        version=1,
        tile_sizes=tuple(256 << level for level in range(config.levels + 1)),
        formats_told=told or settings.metadata is not None,
    )


def _open_second(where: Source, settings: _Settings) -> TileSet:
    name = _name(where)
    if name.endswith(".zip"):
        return _single(where, settings, None)
    if settings.metadata is not None:
        base = where if not name.endswith(".json") else where.sibling(".")
        return _tree(base.child(spec.META), settings.metadata, settings, document=False)
    if name.endswith(".json"):
        return _of_document(where, settings)
    meta = where.child(spec.META)
    try:
        return _of_document(meta, settings)
    except ObjectNotFoundError as missing:
        try:
            return _of_content(where, settings)
        except ObjectNotFoundError:
            raise missing from None


def _of_content(where: Source, settings: _Settings) -> TileSet:
    """What has a name that tells nothing: an archive, or else a document."""
    try:
        return _single(where, settings, None)
    except NotThisFormatError as error:
        if _is_json(where):
            return _of_document(where, settings)
        raise NotThisFormatError(
            "no Tapalcatl tileset",
            where=shown(where.href, 120)[1:-1],
            expected="meta.json, a folder with it, or an archive",
            hint="for Tapalcatl 1 pass version=1 and how its keys are built",
        ) from error


def _is_json(where: Source) -> bool:
    try:
        (head,) = where.fetch([Head(64)])
    except NotThisFormatError:
        return False
    return head.data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def _of_document(meta: Source, settings: _Settings) -> TileSet:
    (piece,) = meta.fetch([Whole(settings.reading.limits.json_bytes)])
    if piece.data[:2] == b"PK":
        return _single(meta, settings, None)
    where = shown(meta.href, 120)[1:-1]
    return _tree(meta, spec.parse_tileset(piece.data, where, settings.reading.limits), settings)


def _tree(
    meta: Source, metadata: TileSetMetadata, settings: _Settings, *, document: bool = True
) -> TileSet:
    where = shown(meta.href, 120)[1:-1]
    kinds: Sequence[str] = HASHES if settings.hash is None else (settings.hash,)
    _warn_of_newer(metadata.version, where)
    if settings.template is not None:
        metadata = replace(metadata, source=settings.template)
    by_caller = settings.template is not None or settings.metadata is not None
    places = tree_of(meta, metadata.source, where, kinds, settings.layer, by_caller=by_caller)
    layout = Layout(metadata.materialized_zooms, metadata.metatile)
    return TileSet(
        meta,
        metadata,
        TreeLayout(layout, places.template, metadata),
        places,
        settings.archives(places),
        version=2,
        reopen=_Reopen(settings) if document else None,
    )


@dataclass(frozen=True, slots=True)
class _Reopen:
    """How the tileset was opened, to be done again when its document has changed."""

    settings: _Settings

    def __call__(self, meta: Source) -> TileSet:
        return _of_document(meta, self.settings)


def _single(
    where: Source,
    settings: _Settings,
    version: int | None,
    config: Generation1 | None = None,
) -> TileSet:
    places = OneArchive(where)
    archives = settings.archives(places)
    opened = archives.get((0, 0, 0))
    if opened is None:
        raise ObjectNotFoundError("no such archive", where=shown(where.href, 120)[1:-1])
    index = opened.index
    _check_version(index, settings)
    metadata = settings.metadata or of_archive(index)
    if config is not None and settings.metadata is None:
        known = {ext: config.formats.get(ext, headers) for ext, headers in metadata.formats.items()}
        metadata = replace(metadata, formats=known)
    if version is None:
        # Names of the second version are absolute: an archive has no tile above its root.
        zoom = _zoom_of(where.href) if index.metadata is None else None
        relative = zoom is not None and index.lowest is not None and index.lowest < zoom
        version = 1 if relative else 2
    return TileSet(where, metadata, InArchive(), places, archives, version=version)


def _check_version(index: ArchiveIndex, settings: _Settings) -> None:
    """What a single archive says of itself must be understood; in a tree the document counts."""
    if settings.metadata is not None:
        return
    for problem in index.comment_problems:
        if problem.code == "comment-version":
            raise UnsupportedVersionError(problem.message, where=problem.place, expected="2.x")
    if index.metadata is not None:
        _warn_of_newer(index.metadata.version, settings.template or "comment")


def _warn_of_newer(version: str, where: str) -> None:
    if spec.is_newer(version):
        text = f"{where}: Tapalcatl {shown(version)} may say more than is understood, which is 2.0"
        warn(TapalcatlWarning(text))


def _zoom_of(href: str) -> int | None:
    """The zoom of an archive that is called z/x/y.zip, as those of a tree are."""
    parts = href.removesuffix(".zip").split("/")[-3:]
    if len(parts) == 3 and all(part.isascii() and part.isdecimal() for part in parts):
        return int(parts[0][:9])
    return None


def _name(source: Source) -> str:
    location = getattr(source, "location", None)
    name = location.name if location is not None else source.href.rpartition("/")[2]
    return str(name).lower()
