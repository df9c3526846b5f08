"""An open tileset: tiles by zoom, column and row.

The archive of a tile follows from arithmetic, its offset in the archive from the directory, and its
bytes from one exact read.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial, wraps
from operator import index
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np

from comal.errors import ComalError, InvalidInputError, StorageError, shown
from comal.grid.arguments import tile_rows
from comal.parallel import side_by_side
from comal.plan import ByteRange, awaiting
from comal.public import guarded_class
from comal.storage import Source, open_again
from comal.storage.source import Closing, same_version
from comal.tapalcatl import spec
from comal.tapalcatl.addressing import with_formats
from comal.tapalcatl.layout import ArchiveLayout, Spot
from comal.tapalcatl.reading.archives import ArchiveFiles, Archives, OpenArchive
from comal.tapalcatl.reading.index import Fields, Record
from comal.tapalcatl.reading.tile import (
    Key,
    StoredTile,
    Tile,
    entry_name,
    payload_in,
    read_content,
    read_payload,
    refuse,
    tile_label,
)
from comal.tapalcatl.spec import Headers, TileSetMetadata, tilejson, variants_of
from comal.tapalcatl.wire import Int64s, key_tiles, split_suffix, suffix_of, tile_key, tile_keys

P = ParamSpec("P")
R = TypeVar("R")
_KEPT_COMMENTS: Final = 4_096
_AT_ONCE: Final = 16
"""Archives whose directories are fetched at the same time."""
_TOGETHER: Final = 256
"""Remote tiles that an iteration fetches in one call."""
Found = tuple[OpenArchive, Fields, bytes | None, str, Key]
"""An archive, a record, the comment of its entry, its suffix, and the tile as in its name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tile is stored."""

    href: str
    """The archive."""
    tile: Key
    """Zoom, column and row in the entry's name, which are relative in Tapalcatl 1."""
    suffix: str
    """The text after the row in the name."""
    record: Record

    @property
    def name(self) -> str:
        """The name of the entry."""
        return "/".join(map(str, self.tile)) + self.suffix


def _awaiting(
    method: Callable[Concatenate[TileSet, P], R],
) -> Callable[Concatenate[TileSet, P], Coroutine[Any, Any, R]]:
    """As `awaiting`, for one tile: read directly if that does not wait for storage."""
    elsewhere: Any = awaiting(method)

    @wraps(elsewhere)
    async def twin(self: TileSet, *args: P.args, **named: P.kwargs) -> R:
        at_hand: Callable[..., bool] = self._is_at_hand  # takes the arguments of the method
        if at_hand(*args, **named):
            return method(self, *args, **named)
        found: R = await elsewhere(self, *args, **named)
        return found

    return twin  # type: ignore[return-value]  # `self` could be passed by name


@guarded_class
class TileSet(Closing):
    """Tiles of one tileset. Made by `comal.tapalcatl.open`.

    It may be used from several threads and coroutines at once, survives a fork and can be
    pickled; the copy opens its archives again.
    """

    def __init__(
        self,
        source: Source,
        metadata: TileSetMetadata,
        layout: ArchiveLayout,
        archives: Archives,
        *,
        version: int,
        tile_sizes: tuple[int, ...] = (),
        formats_told: bool = True,
        reopen: Callable[[Source], TileSet] | None = None,
    ) -> None:
        self.source = source
        """The document, archive or folder that was opened."""
        self.metadata = metadata
        """Metadata of the document, or derived from the only archive."""
        self.layout = layout
        self.archives = archives
        self.version = version
        """1 or 2."""
        self.limits = archives.limits
        self.tile_sizes = tile_sizes
        """Sizes of tiles in pixels that can be requested; Tapalcatl 1 only."""
        self._formats_told = formats_told
        self._formats_seen = False
        self._reopen = reopen
        self._suffixes: dict[tuple[float | None, str | None], tuple[str, ...]] = {}
        self._comments: dict[bytes, Headers] = {}

    # -- one tile ---------------------------------------------------------------------------------

    def tile(
        self,
        z: int,
        x: int,
        y: int,
        *,
        scale: float | None = None,
        ext: str | None = None,
        size: int | None = None,
        verify: bool = True,
    ) -> Tile | None:
        """One tile, or None if the tileset does not have it.

        Parameters
        ----------
        z, x, y
            Zoom, column from the west, row from the north.
        scale
            2 for the tile named ``@2x``. None: the tileset's only scale, else 1.
        ext
            Extension without its dot, such as ``mvt``; empty for names without one. None: the
            first of the tileset's formats in which the tile exists.
        size
            Pixels of the tile. Tapalcatl 1 only.
        verify
            Whether to verify the checksum. Without it, the local header is not read either if the
            payload can only be at one offset.

        Raises
        ------
        InvalidMetadataError
            The tile's bytes do not match the directory; other tiles are not affected.
        LimitExceededError
            The tile is larger than `Limits.tile_bytes`.
        StorageError, AccessDeniedError, ...
            The storage fails. Only None means that the tile does not exist.
        """
        found = self._find(z, x, y, scale, ext, size)
        if found is None:
            return None
        try:
            return self._decoded(found, verify)
        except ComalError as error:
            found = self._renewed(found, error, z, x, y, scale, ext, size)
        return None if found is None else self._decoded(found, verify)

    tile_async = _awaiting(tile)

    def stored_tile(
        self,
        z: int,
        x: int,
        y: int,
        *,
        scale: float | None = None,
        ext: str | None = None,
        size: int | None = None,
    ) -> StoredTile | None:
        """One tile exactly as stored, or None; parameters and errors as for `tile`."""
        found = self._find(z, x, y, scale, ext, size)
        if found is None:
            return None
        try:
            return self._stored(found)
        except ComalError as error:
            found = self._renewed(found, error, z, x, y, scale, ext, size)
        return None if found is None else self._stored(found)

    stored_tile_async = _awaiting(stored_tile)

    def entry(
        self,
        z: int,
        x: int,
        y: int,
        scale: float | None = None,
        ext: str | None = None,
        size: int | None = None,
    ) -> Entry | None:
        """Where one tile is stored, or None; parameters as for `tile`; reads no tile bytes."""
        found = self._find(z, x, y, scale, ext, size)
        if found is None:
            return None
        archive, fields, _, suffix, tile = found
        return Entry(archive.href, tile, suffix, Record(*fields))

    # -- many tiles -------------------------------------------------------------------------------

    def tiles(
        self,
        tiles: Iterable[Key] | Int64s,
        *,
        scale: float | None = None,
        ext: str | None = None,
        size: int | None = None,
        verify: bool = True,
    ) -> list[Tile | None]:
        """Many tiles, in the order of `tiles`; missing ones are None.

        Directories are fetched concurrently, and neighbouring tiles of an archive in one request.

        Parameters
        ----------
        tiles
            Zoom, column and row of each: triples, or an array of shape (n, 3) as `keys` returns.
        scale, ext, size, verify
            As for `tile`, with the same errors; the first tile that cannot be read raises.
        """
        asked = [(z, x, y) for z, x, y in tile_rows(tiles).tolist()]
        results: list[Tile | None] = [None] * len(asked)
        groups: dict[Key, list[int]] = {}
        for number, place in enumerate(asked):
            spot = self.layout.find(*place, size)
            if spot is not None:
                groups.setdefault(spot[0], []).append(number)

        def one(numbers: Sequence[int]) -> None:
            wanted = [asked[number] for number in numbers]
            if self.archives.local:
                options: dict[str, Any] = {"scale": scale, "ext": ext, "size": size}
                found = [self.tile(*place, **options, verify=verify) for place in wanted]
            else:
                found = self._of_archive(wanted, scale, ext, size, verify)
            for number, tile in zip(numbers, found, strict=True):
                results[number] = tile

        if self.archives.local or len(groups) <= 1:
            for numbers in groups.values():
                one(numbers)
            return results
        side_by_side([partial(one, numbers) for numbers in groups.values()], _AT_ONCE)
        return results

    def iter_tiles(
        self,
        tiles: Iterable[Key] | Int64s,
        *,
        scale: float | None = None,
        ext: str | None = None,
        size: int | None = None,
        verify: bool = True,
    ) -> Iterator[Tile | None]:
        """As `tiles`, but one after the other, with only a few in memory at a time.

        For local archives this is the fastest way to read tiles, as each can reuse the memory of
        the previous one.
        """
        rows = tile_rows(tiles)
        options: dict[str, Any] = {"scale": scale, "ext": ext, "size": size, "verify": verify}
        if self.archives.local:
            return (self.tile(z, x, y, **options) for z, x, y in rows.tolist())
        return (
            tile
            for at in range(0, len(rows), _TOGETHER)
            for tile in self.tiles(rows[at : at + _TOGETHER], **options)
        )

    tiles_async = awaiting(tiles)

    def archive_tiles(self) -> Iterator[Key]:
        """Root tiles of all existing archives, zoom by zoom.

        Lists the storage if it can be listed; otherwise tries each archive that zooms and bounds
        allow.
        """
        yield from self.files.there(self.metadata, self.archives)

    def entries(self) -> Iterator[Any]:
        """Every tile as Arrow tables, one per archive; see `index.SCHEMA`."""
        for archive in self._there():
            if len(archive.index):
                yield archive.table(self.version)

    def keys(self) -> Int64s:
        """Zoom, column and row of every tile, distinct and sorted; shape (n, 3).

        For Tapalcatl 1 these are the tiles of the configured size.
        """
        found = [np.zeros(0, np.int64)]
        for archive in self._there():
            distinct = np.unique(archive.index.columns.all_keys[0])
            found.append(tile_keys(*self.layout.tiles(archive.tile, distinct)[1]))
        return np.column_stack(key_tiles(np.unique(np.concatenate(found))))

    def _there(self) -> Iterator[OpenArchive]:
        """All archives, one after the other."""
        opened = map(self.archives.get, self.archive_tiles())
        return (archive for archive in opened if archive is not None)

    # -- about the set ----------------------------------------------------------------------------

    @property
    def href(self) -> str:
        """URL or path of what was opened."""
        return self.source.href

    @property
    def files(self) -> ArchiveFiles:
        """The location of its archives."""
        return self.archives.files

    @property
    def formats(self) -> tuple[str, ...]:
        """Extensions of the tiles; without an explicit `ext`, the first one is tried first.

        For Tapalcatl 1 opened without formats: those of Tilezen, until an archive is open.
        """
        return tuple(self.metadata.formats)

    def learn_formats(self) -> tuple[str, ...]:
        """The formats; if none were given, those of the root's archive, or of another.

        Only Tapalcatl 1 can be opened without formats; elsewhere nothing is read.
        """
        if not self._formats_told and not self._formats_seen:
            archive = self.archives.get((0, 0, 0))
            if archive is None:
                # HTTP cannot list, and there are too many archives to try each.
                with suppress(StorageError, InvalidInputError):
                    first = next(self.archive_tiles(), None)
                    archive = None if first is None else self.archives.get(first)
            if archive is not None:
                self._learned(archive)
        return self.formats

    @property
    def bounds(self) -> spec.Bounds:
        """West, south, east and north in degrees; the world by default."""
        return self.metadata.bounds or spec.WORLD

    @property
    def variants(self) -> tuple[str, ...]:
        """Names of the declared variants; read one with ``open(..., variant=...)``."""
        return variants_of(self.metadata.extra)

    def variant(self, name: str) -> TileSet:
        """The tiles of a variant, as with ``open(..., variant=name)``.

        It shares document and source with this tileset, and is closed with it.
        """
        return TileSet(
            self.source,
            self.metadata,
            self.layout,
            self.archives.of_variant(name),
            version=self.version,
            tile_sizes=self.tile_sizes,
            formats_told=self._formats_told,
            reopen=None if self._reopen is None else partial(_reopened, self._reopen, name),
        )

    @property
    def min_zoom(self) -> int:
        """The first zoom that may have tiles."""
        return self.metadata.min_zoom or 0

    @property
    def max_zoom(self) -> int:
        """The last zoom that may have tiles."""
        last = self.metadata.max_zoom
        return spec.MAX_ZOOM if last is None else last

    def headers(self, ext: str) -> Headers:
        """Headers of a format."""
        return spec.safe_headers(self.metadata.formats.get(ext) or spec.content_headers(ext))

    def tilejson(self, tiles: Sequence[str] | str = (), **more: Any) -> dict[str, Any]:
        """The tileset as TileJSON 3.0.

        Parameters
        ----------
        tiles
            URL templates of tiles, with ``{z}``, ``{x}`` and ``{y}``.
        **more
            Further keys, which take precedence.
        """
        return tilejson(self.metadata, [tiles] if isinstance(tiles, str) else list(tiles), **more)

    def refresh(self) -> bool:
        """Read the tileset's document again if it has changed; returns whether it has.

        Archives need no refresh: they are checked again by themselves.
        """
        if self._reopen is None:
            return False
        source = open_again(self.source)
        then, now = self.source.known(), source.stat()
        if then is not None and same_version(then, now):
            return False
        other = self._reopen(source)
        # Safe for concurrent readers: attributes are replaced, not modified.
        self.metadata, self.archives, self.layout = other.metadata, other.archives, other.layout
        self.source, self._suffixes = other.source, {}
        return True

    def close(self) -> None:
        """Forget all archives and close the source."""
        self.archives.clear()
        self.source.close()

    def __repr__(self) -> str:
        return f"TileSet({shown(self.href)}, version {self.version})"

    # -- inside -----------------------------------------------------------------------------------

    def _find(
        self, z: int, x: int, y: int, scale: float | None, ext: str | None, size: int | None
    ) -> Found | None:
        spot = self._spot(z, x, y, size)
        if spot is None:
            return None
        address, tile = spot
        archive = self.archives.get(address)
        if archive is None:
            return None
        for suffix in self._suffixes.get((scale, ext)) or self._chosen(scale, ext, archive):
            record = archive.index.lookup(suffix, tile)
            if record is not None:
                return archive, *record, suffix, tile
        if self._learned(archive):
            return self._find(z, x, y, scale, ext, size)
        if not self.archives.has_grown(archive):
            return None
        self.archives.drop(address, archive)
        return self._find(z, x, y, scale, ext, size)

    def _is_at_hand(
        self, z: int, x: int, y: int, *_: Any, size: int | None = None, **__: Any
    ) -> bool:
        """Whether a read does not wait: the tile cannot exist, or its local archive is open."""
        spot = self._spot(z, x, y, size)
        return spot is None or self.archives.at_hand(spot[0])

    def _spot(self, z: int, x: int, y: int, size: int | None) -> Spot | None:
        try:
            # Shifts of small integers of NumPy overflow without an error.
            return self.layout.find(index(z), index(x), index(y), size)
        except TypeError as error:
            raise InvalidInputError(
                "zoom, column and row of a tile are not integers",
                found="/".join(type(number).__name__ for number in (z, x, y)),
            ) from error

    def _renewed(self, found: Found, error: ComalError, *asked: Any) -> Found | None:
        """Find a tile again if its archive has changed; otherwise re-raise the error."""
        archive = found[0]
        if not self.archives.has_changed(archive, error):
            raise error
        self.archives.drop(archive.tile, archive)
        return self._find(*asked)

    def _learned(self, archive: OpenArchive) -> bool:
        """If no formats were given, add those of an archive; returns whether any is new."""
        if self._formats_told:
            return False
        known = self.metadata.formats if self._formats_seen else {}
        found = {split_suffix(suffix)[1] for suffix in archive.index.suffixes}
        if found <= known.keys():
            return False
        formats = with_formats(known, found)
        self.metadata = replace(self.metadata, formats=formats)
        self._suffixes, self._formats_seen = {}, True
        return True

    def _chosen(
        self, scale: float | None, ext: str | None, archive: OpenArchive
    ) -> tuple[str, ...]:
        """Candidate suffixes in order; cached if formats are known."""
        if not self._formats_seen:
            self._learned(archive)
        formats = self.metadata.formats
        if ext is not None or formats:
            if scale is None:
                low, high = self.metadata.min_scale, self.metadata.max_scale
                scale_used = low if low == high else 1
            else:
                scale_used = scale
            exts = tuple(formats) if ext is None else (ext,)
            chosen = tuple([suffix_of(scale_used, one) for one in exts])
            if len(self._suffixes) < _KEPT_COMMENTS:
                self._suffixes[scale, ext] = chosen
            return chosen
        split = [(split_suffix(suffix), suffix) for suffix in archive.index.suffixes]
        wanted = 1 if scale is None else scale
        exact = tuple(suffix for (one, _), suffix in split if one == wanted)
        return exact if exact or scale is not None else archive.index.suffixes

    def _decoded(self, found: Found, verify: bool) -> Tile:  # noqa: FBT001 - private and hot
        archive, fields, comment, suffix, tile = found
        known = archive.described.get(suffix)
        if known is None or comment is not None:
            known = self._described(archive, comment, suffix)
        name = entry_name(tile, suffix)
        data = read_content(archive, fields, self.limits, name, verify=verify)
        return Tile(data, known[0], fields[4], fields[5] or None, known[1], known[2])

    def _stored(self, found: Found) -> StoredTile:
        archive, fields, _, suffix, tile = found
        payload = read_payload(archive, fields, self.limits, entry_name(tile, suffix))
        return self._as_stored(found, payload)

    def _as_stored(self, found: Found, payload: bytes) -> StoredTile:
        archive, fields, comment, suffix, tile = found
        _, _, _, size, crc, modified, method, _ = fields
        headers, ext, scale = self._described(archive, comment, suffix)
        label, key = archive.label, tile_key(*tile)
        return StoredTile(
            payload, method, crc, size, headers, modified or None, ext, scale, label, key
        )

    def _described(
        self, archive: OpenArchive, comment: bytes | None, suffix: str
    ) -> tuple[Headers, str, float]:
        """Headers, extension and scale of a tile."""
        known = archive.described.get(suffix)
        if known is None:
            scale, ext = split_suffix(suffix)
            headers = self.metadata.formats.get(ext)
            if headers is None or archive.index.may_have_headers:
                own = archive.index.metadata
                if own is not None:
                    headers = own.headers + (headers or own.formats.get(ext, ()))
            known = archive.described[suffix] = _safe(headers, ext), ext, scale
        return known if comment is None else (known[0] + self._of_comment(comment), *known[1:])

    def _of_comment(self, comment: bytes) -> Headers:
        headers = self._comments.get(comment)
        if headers is None:
            headers = spec.safe_headers(spec.parse_entry_comment(comment) or ())
            if len(self._comments) < _KEPT_COMMENTS:
                self._comments[comment] = headers
        return headers

    def _of_archive(
        self,
        wanted: Sequence[Key],
        scale: float | None,
        ext: str | None,
        size: int | None,
        verify: bool,  # noqa: FBT001 - private
    ) -> list[Tile | None]:
        """Several tiles of the same archive."""
        found = [self._find(*tile, scale, ext, size) for tile in wanted]
        there = [one for one in found if one is not None]
        if len({id(one[0]) for one in there}) != 1:
            return [
                self.tile(*tile, scale=scale, ext=ext, size=size, verify=verify) for tile in wanted
            ]
        try:
            tiles = iter(self._fetched(there, verify))
        except ComalError as error:
            self._renewed(there[0], error, *wanted[0], scale, ext, size)
            return self._of_archive(wanted, scale, ext, size, verify)
        return [None if one is None else next(tiles) for one in found]

    def _fetched(self, found: Sequence[Found], verify: bool) -> list[Tile]:  # noqa: FBT001
        archive = found[0][0]
        names = [entry_name(tile, suffix) for _, _, _, suffix, tile in found]
        for (_, fields, *_), name in zip(found, names, strict=True):
            refuse(Record(*fields), self.limits, tile_label(archive.label, name))
        pieces = archive.source.fetch([ByteRange(*fields[:2]) for _, fields, *_ in found])
        tiles = []
        for one, name, piece in zip(found, names, pieces, strict=True):
            stored = self._as_stored(one, payload_in(piece.data, archive, one[1], name))
            tiles.append(stored.tile(verify=verify, limits=self.limits))
        return tiles


def _reopened(reopen: Callable[[Source], TileSet], variant: str, source: Source) -> TileSet:
    return reopen(source).variant(variant)


@lru_cache(maxsize=256)
def _safe(headers: Headers | None, ext: str) -> Headers:
    """Headers of an extension that tiles may set, by default those of its media type."""
    return spec.safe_headers(headers or spec.content_headers(ext))
