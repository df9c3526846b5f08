"""Opening tilesets: by their document, as one archive, or as Tapalcatl 1 by configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    UnsafeContentError,
    UnsupportedVersionError,
    shown,
    shown_path,
)
from comal.plan import Head, Whole
from comal.public import options_of, takes
from comal.storage import (
    BlockCache,
    CachedSource,
    Source,
    StorageConfig,
    as_source,
    open_beside,
    open_linked,
)
from comal.tapalcatl import spec
from comal.tapalcatl.addressing import (
    HASHES,
    Generation1,
    archive_bounds,
    union_of,
    usual_headers,
)
from comal.tapalcatl.layout import InArchive, Layout, MetatileLayout, Template, TreeLayout
from comal.tapalcatl.reading.archives import ArchiveFiles, Archives, ReadOptions
from comal.tapalcatl.reading.index import ArchiveIndex
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import ArchiveMetadata, TileSetMetadata, shared
from comal.tapalcatl.wire import BASES, key_tile, split_suffix

_CONFIGURED = frozenset(field.name for field in fields(Generation1))
_READING = frozenset(field.name for field in fields(ReadOptions))
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    reading: ReadOptions
    variant: str | None
    metadata: TileSetMetadata | None
    template: str | None = None
    hash: str | None = None
    layer: str = "all"


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
        1 for Tapalcatl 1, which cannot be detected in a tree. Implied by any of its settings.
    metadata
        The tileset's document, if there is none to read.
    source
        URL template of the archives, instead of that of the document.
    hash
        Definition of ``{h}``: ``name`` (the specification), ``file`` or ``layer``. By default the
        first archive that is found decides.
    variant
        Name of a variant: only entries below it are tiles.
    config
        Settings of the storage.
    cache
        Cache of blocks of objects, for tiles that are read repeatedly.
    **options
        Fields of `ReadOptions` (``budget``, ``tail``, ``recheck``, ``limits``), and for
        Tapalcatl 1 settings of `Generation1`: ``metatile``, ``tile_size``, ``max_detail_zoom``,
        ``layout``, ``prefix``, ``layer``, ``formats``, ``min_zoom``, ``max_zoom``. By default the
        formats come from the archives: from the first one opened, and from others as they are
        opened.

    Raises
    ------
    ObjectNotFoundError
        Nothing exists at `href`.
    NotThisFormatError
        Neither a tileset's document nor a ZIP archive.
    InvalidMetadataError
        An unusable document, or a broken archive.
    UnsupportedVersionError
        The document, or the comment of the only archive, has another version than 2. A newer 2.x
        is read with a warning.
    UnsafeContentError
        The document refers to archives in a location that is not allowed.
    """
    where = _opened(href, config, cache)
    if hash is not None and hash not in HASHES:
        raise InvalidInputError("unknown hash", found=shown(hash), expected=", ".join(HASHES))
    generation1 = {name: value for name, value in options.items() if name not in _READING}
    settings = _Settings(
        reading=ReadOptions(**{name: options[name] for name in _READING & options.keys()}),
        variant=variant,
        metadata=metadata,
        template=source,
        hash=hash,
        layer=str(generation1.get("layer") or "all"),
    )
    first = version == 1 or bool(generation1.keys() - {"layer"})
    if version not in {None, 1, 2} or (first and version == 2):
        raise InvalidInputError(
            "the version of Tapalcatl cannot be used",
            found=version,
            expected="1, or 2 without settings of version 1",
        )
    if first or (version is None and generation1 and source is None):
        return _open_first(where, generation1, settings)
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
    """Open a single archive with any name; parameters as for `open`.

    Tiles are found only by their names; in an archive of Tapalcatl 1 these are relative to it.
    """
    reading = options_of(ReadOptions, options)
    settings = _Settings(reading=reading, variant=variant, metadata=metadata)
    return _single(_opened(href, config, cache), settings, version)


def _opened(
    href: str | os.PathLike[str] | Source, config: StorageConfig | None, cache: BlockCache | None
) -> Source:
    source = as_source(href, config=config)
    return source if cache is None else CachedSource(source, cache)


def _open_first(where: Source, given: Mapping[str, Any], settings: _Settings) -> TileSet:
    unknown = given.keys() - _CONFIGURED
    if unknown:
        raise InvalidInputError(
            "unknown settings",
            found=", ".join(sorted(unknown)),
            expected=", ".join(sorted(_CONFIGURED)),
        )
    config = Generation1(**given)
    if _ends_with(where, ".zip"):
        return _single(where, settings, 1, config)
    layout = MetatileLayout(config)
    formats = {ext: headers or usual_headers(ext) for ext, headers in config.formats.items()}
    said = TileSetMetadata(
        formats=formats,
        min_zoom=config.min_zoom,
        max_zoom=config.max_zoom,
        bounds=spec.WORLD,
        metatile=config.metatile,
    )
    return TileSet(
        where,
        settings.metadata or said,
        layout,
        Archives(ArchiveFiles(where, [layout]), settings.reading, settings.variant),
        version=1,
        tile_sizes=tuple(256 << level for level in range(config.levels + 1)),
        formats_told="formats" in given or settings.metadata is not None,
    )


def _open_second(where: Source, settings: _Settings) -> TileSet:
    if _ends_with(where, ".zip"):
        return _single(where, settings)
    document = _ends_with(where, ".json")
    if settings.metadata is not None:
        base = where.sibling(".") if document else where
        meta = base.child(spec.META)
        spec.warn_if_newer(settings.metadata.version, shown_path(meta.href))
        return _tree(meta, settings.metadata, settings, document=False)
    if document:
        return _of_document(settings, where)
    try:
        return _of_document(settings, where.child(spec.META))
    except ObjectNotFoundError as missing:
        try:
            return _of_content(where, settings)
        except ObjectNotFoundError:
            raise missing from None


def _of_content(where: Source, settings: _Settings) -> TileSet:
    """Open a source whose name has no known extension: an archive, or else a document."""
    try:
        return _single(where, settings)
    except NotThisFormatError as error:
        if _is_json(where):
            return _of_document(settings, where)
        raise NotThisFormatError(
            "not a Tapalcatl tileset",
            where=shown_path(where.href),
            expected="meta.json, a folder with it, or an archive",
            hint="for Tapalcatl 1 pass version=1 and how its keys are built",
        ) from error


def _is_json(where: Source) -> bool:
    try:
        (head,) = where.fetch([Head(64)])
    except NotThisFormatError:
        return False
    return head.data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def _of_document(settings: _Settings, meta: Source) -> TileSet:
    limits, where = settings.reading.limits, shown_path(meta.href)
    (piece,) = meta.fetch([Whole(limits.json_bytes)])
    if piece.data[:2] == b"PK":
        return _single(meta, settings)
    metadata = spec.parse_tileset(piece.data, where, limits)
    spec.warn_if_newer(metadata.version, where)
    return _tree(meta, metadata, settings)


def _tree(
    meta: Source, metadata: TileSetMetadata, settings: _Settings, *, document: bool = True
) -> TileSet:
    if settings.template is not None:
        metadata = replace(metadata, source=settings.template)
    by_caller = settings.template is not None or settings.metadata is not None
    base, text = _below(meta, metadata.source, by_caller=by_caller)
    kinds: Sequence[str] = HASHES if "{h}" in text else HASHES[:1]
    if settings.hash is not None:
        kinds = [settings.hash]
    zooms, side = metadata.materialized_zooms, metadata.metatile
    layouts = [
        TreeLayout(Layout(zooms, side), Template(text, kind, settings.layer), metadata)
        for kind in kinds
    ]
    return TileSet(
        meta,
        metadata,
        layouts[0],
        Archives(ArchiveFiles(base, layouts), settings.reading, settings.variant),
        version=2,
        # To open it again the same way when its document has changed.
        reopen=partial(_of_document, settings) if document else None,
    )


def _below(meta: Source, text: str | None, *, by_caller: bool) -> tuple[Source, str]:
    """The base folder of the archives, and their template relative to it.

    A relative template is relative to the document. A template from the caller may point anywhere;
    one of a remote document only where `open_linked` allows.
    """
    if text is None:
        raise InvalidMetadataError(
            "the tileset does not say where its archives are",
            where=shown_path(meta.href),
            expected="a template called source",
            hint="pass source='{z}/{x}/{y}.zip'",
        )
    relative = "/".join(part for part in text.split("/") if part not in {"", "."})
    if _ABSOLUTE.match(text):
        Template(text)  # validates the complete template, not only the part below the folder
        # The folder before the first field, and the rest.
        head, slash, _ = text[: text.index("{")].rpartition("/")
        if not slash or "?" in text or "#" in text or (head.endswith(":/") and "://" in text):
            raise InvalidMetadataError(
                "the template of archives cannot be used",
                where=f"{shown_path(meta.href)}, source",
                found=shown(text),
                expected="fields only in the path",
            )
        opened = (open_beside if by_caller else open_linked)(meta, head or "/")
        return opened, text[len(head or "/") + bool(head) :]
    base = meta.sibling(".")
    if ".." in relative.split("/"):
        raise UnsafeContentError(
            "the template of archives leaves its folder",
            where=f"{shown_path(meta.href)}, source",
            found=shown(relative),
            expected=f"archives below {base.href}",
            hint="pass source= with an absolute place if that is meant",
        )
    return base, relative


def _single(
    where: Source,
    settings: _Settings,
    version: int | None = None,
    config: Generation1 | None = None,
) -> TileSet:
    layout = InArchive()
    archives = Archives(ArchiveFiles(where, [layout]), settings.reading, settings.variant)
    opened = archives.get((0, 0, 0))
    assert opened is not None
    index = opened.index
    metadata = settings.metadata
    if metadata is None:
        _check_version(index, settings)
        metadata = _of_archive(index)
        if config is not None:
            own = metadata.formats.items()
            metadata = replace(metadata, formats={e: config.formats.get(e, h) for e, h in own})
    if version is None:
        # Names of version 2 are absolute: an archive has no tile above its root.
        zoom = _zoom_of(where.href) if index.metadata is None else None
        relative = (
            zoom is not None and index.columns.lowest is not None and index.columns.lowest < zoom
        )
        version = 1 if relative else 2
    return TileSet(where, metadata, layout, archives, version=version)


def _check_version(index: ArchiveIndex, settings: _Settings) -> None:
    """Raise or warn about the version in a single archive's comment; trees go by the document."""
    for problem in index.comment_problems:
        if problem.code == "comment-version":
            raise UnsupportedVersionError(problem.message, where=problem.place, expected="2.x")
    if index.metadata is not None:
        spec.warn_if_newer(index.metadata.version, settings.template or "comment")


def _zoom_of(href: str) -> int | None:
    """The zoom of an archive named z/x/y.zip, as in a tree; else None."""
    parts = href.removesuffix(".zip").split("/")[-3:]
    if len(parts) == 3 and all(part.isascii() and part.isdecimal() for part in parts):
        return int(parts[0][:9])
    return None


def _ends_with(source: Source, ending: str) -> bool:
    return source.location.path.rstrip("/").lower().endswith(ending)


def _of_archive(index: ArchiveIndex) -> TileSetMetadata:
    """Metadata of a single archive: from its comment, completed from its directory."""
    own = index.metadata or ArchiveMetadata()
    split = [split_suffix(suffix) for suffix in index.suffixes]
    formats = dict(own.formats) or {ext: spec.content_headers(ext) for _, ext in split}
    scales = {scale for scale, _ in split}
    single = scales.pop() if len(scales) == 1 and own.min_scale == own.max_scale == 1 else None
    bounds = own.bounds
    if bounds is None and own.root is not None:
        bounds = archive_bounds(own.root, own.metatile)
    scale = {} if single is None else {"min_scale": single, "max_scale": single}
    first = own.root[0] if own.root is not None else index.columns.lowest or 0
    found = {
        **shared(own),
        **scale,
        "formats": formats,
        "min_zoom": index.columns.lowest if own.min_zoom is None else own.min_zoom,
        "max_zoom": index.columns.highest if own.max_zoom is None else own.max_zoom,
        "bounds": _bounds_of(index) if bounds is None else bounds,
        "materialized_zooms": own.materialized_zooms or (first,),
    }
    return TileSetMetadata(**found, version=own.version)


def _bounds_of(index: ArchiveIndex) -> spec.Bounds:
    """The box around the tiles of the first zoom, for an archive without declared bounds."""
    if index.columns.lowest is None:
        return spec.WORLD
    first, stop = BASES[index.columns.lowest], BASES[index.columns.lowest + 1]
    found: list[spec.Tile] = []
    for keys, _ in index.columns.keys.values():
        found += [key_tile(key) for key in keys if first <= key < stop][:4096]
    return union_of(found)
