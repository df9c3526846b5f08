"""Archives of a tileset: where they are, and which are open.

Directories are cached within a budget; concurrent requests for one share a single fetch.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import numpy as np

from comal.errors import (
    ComalError,
    InvalidMetadataError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
)
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.plan import run
from comal.storage import Source
from comal.storage.source import HeldFile, LocalSource, ObjectInfo, held, same_version
from comal.tapalcatl.layout import ArchiveLayout, InArchive
from comal.tapalcatl.reading.index import TAIL, ArchiveIndex, entry_table, index_plan, near_index
from comal.tapalcatl.spec import Headers, Tile, TileSetMetadata
from comal.tapalcatl.wire import variant_prefix
from comal.ziparchive import dead_bytes, directory_plan, local_plan
from comal.ziparchive import wire as zip_wire

_FIELD = re.compile(r"\{(\w+)\}")
_PATTERNS: Final = {"h": "[0-9a-f]{5}", "hash": "[0-9a-f]{5}"}
_DIGITS = "0|[1-9][0-9]{0,9}"
_UNSETTLED = 16
"""Lookups that try all definitions of the hash before only the first is used."""


class ArchiveFiles:
    """The location of archives: below the folder `base`, or `base` itself if it is the only one.

    There is a layout for each possible definition of ``{h}``, the likeliest first. They are tried
    until one leads to an archive; from then on only that layout is used.
    """

    def __init__(self, base: Source, layouts: Sequence[ArchiveLayout]) -> None:
        self.base, self.layouts = base, tuple(layouts)
        self.alone = isinstance(self.layouts[0], InArchive)
        """Whether there is only one archive."""
        self._tries = 0

    def sources(self, tile: Tile) -> Sequence[Source]:
        """Candidate sources of a root tile's archive, each with its own pins, likeliest first."""
        base = self.base
        if self.alone:
            return [base.at(base.location, fresh=True)]
        layouts = self.layouts
        if len(layouts) > 1:
            self._tries += 1
            layouts = layouts if self._tries <= _UNSETTLED else layouts[:1]
        return [base.at(base.location.join(layout.path(tile)), fresh=True) for layout in layouts]

    def found_at(self, number: int) -> None:
        """Record that an archive was found at candidate `number` of `sources`."""
        if len(self.layouts) > 1:
            self.layouts = self.layouts[number : number + 1]

    def listed(self) -> Iterator[Tile]:
        """Root tiles of all existing archives; StorageError if the storage cannot list."""
        yield from _walk(self.base, self.layouts[0].pattern.split("/"), "", {})

    def there(self, metadata: TileSetMetadata, archives: Archives) -> Iterator[Tile]:
        """Root tiles of the existing archives, by listing the storage or trying each one."""
        if self.alone:
            yield (0, 0, 0)
            return
        layout = self.layouts[0]
        try:
            yield from filter(layout.leads_to(metadata), self.listed())
        except StorageError:
            yield from (one for one in layout.possible(metadata) if archives.get(one) is not None)


def _walk(base: Source, parts: Sequence[str], folder: str, known: dict[str, str]) -> Iterator[Tile]:
    match, last = _matcher(parts[0], known), len(parts) == 1
    try:
        names = base.names(folder)
    except ObjectNotFoundError:
        return
    found = []
    for name in names:
        fields = match(name.removesuffix("/")) if name.endswith("/") != last else None
        if fields is not None:
            order = tuple(int(fields[name]) for name in "zxy" if name in fields)
            found.append((order, name.removesuffix("/"), {**known, **fields}))
    for _, name, fields in sorted(found, key=lambda one: one[:2]):
        path = f"{folder}/{name}" if folder else name
        if not last:
            yield from _walk(base, parts[1:], path, fields)
        elif {"z", "x", "y"} <= fields.keys():
            yield int(fields["z"]), int(fields["x"]), int(fields["y"])


def _matcher(part: str, known: dict[str, str]) -> Callable[[str], dict[str, str] | None]:
    """A function that reads the fields of a name; repeated fields must have the same value."""
    pieces: list[str] = []
    at = 0
    for match in _FIELD.finditer(part):
        name = match[1]
        pieces.append(re.escape(part[at : match.start()]))
        if name in known or f"(?P<{name}>" in "".join(pieces):
            pieces.append(re.escape(known[name]) if name in known else f"(?P={name})")
        else:
            pieces.append(f"(?P<{name}>{_PATTERNS.get(name, _DIGITS)})")
        at = match.end()
    pieces.append(re.escape(part[at:]))
    expression = re.compile("".join(pieces))

    def matched(name: str) -> dict[str, str] | None:
        found = expression.fullmatch(name)
        return None if found is None else dict(found.groupdict())

    return matched


# -- open archives --------------------------------------------------------------------------------

BUDGET = 64 * MIB
"""Bytes of cached directories: a million entries and more."""
HELD_FILES = 400
"""Maximum open descriptors of local archives; the usual limit of a process is 1 024."""
LOCAL_RECHECK = 1.0
REMOTE_RECHECK = 10.0
"""Seconds until the cached state of an archive, unchanged or absent, is checked again."""
_ABSENT_WEIGHT = 300
_GAP = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How archives are read."""

    budget: int = BUDGET
    """Bytes of cached directories."""
    tail: int = TAIL
    """Bytes of an archive's end that the first request reads."""
    recheck: float | None = None
    """Seconds until the cached state of an archive, unchanged or absent, is checked again; 1 for
    local files and 10 for others by default."""
    limits: Limits = DEFAULT_LIMITS
    """``tile_bytes``, ``table_rows`` and ``table_bytes`` cap tiles and directories."""


@dataclass(slots=True, weakref_slot=True)
class OpenArchive:
    """An open archive with its directory."""

    tile: Tile
    index: ArchiveIndex
    source: Source
    file: HeldFile | None
    """The open file if it is local."""
    checked: float = field(default_factory=monotonic)
    """When it was last verified to be unchanged."""
    believed: float = 0.0
    """Until when it may be used without a check; such uses do not refresh its cache position."""
    described: dict[str, tuple[Headers, str, float]] = field(default_factory=dict)
    """Headers, extension and scale by suffix, filled on first use."""
    _label: str = ""

    @property
    def href(self) -> str:
        """URL or path of the archive."""
        return self.source.href

    @property
    def label(self) -> str:
        """Its name in messages."""
        if not self._label:
            self._label = self.source.location.label
        return self._label

    @property
    def info(self) -> ObjectInfo | None:
        """The version of the archive that was opened."""
        return self.file.info if self.file is not None else self.source.known()

    def table(self, version: int = 2) -> Any:
        """Its tiles as a table of `index.SCHEMA`; keys of Tapalcatl 1 begin with the root."""
        return entry_table(self.index, self.href, self.tile if version == 1 else None)

    def summary(self) -> dict[str, int]:
        """Number of tiles, size, and an estimate of dead bytes that no tile uses any more.

        Gaps below 64 bytes are extra fields of local headers and data descriptors.
        """
        index = self.index
        if index.count != len(index):
            dead = self._dead()
        else:
            table = index.columns.table
            order = np.argsort(table["offset"], kind="stable")
            starts = table["offset"][order].astype(np.int64)
            stops = starts + zip_wire.LOCAL_SIZE + table["name_size"][order] + table["csize"][order]
            stops = np.maximum.accumulate(stops) if len(stops) else stops
            gaps = np.r_[starts, index.end] - np.r_[0, stops]
            dead = int(gaps[gaps >= _GAP].sum())
        return {"count": len(index), "archives": 1, "size": index.total, "dead_space": dead}

    def _dead(self) -> int:
        """Dead bytes of an archive with entries that are not tiles, computed from local headers."""
        fetch = self.source.fetch
        directory = run(directory_plan("", where=self.label, lenient=True), fetch)
        offsets, _ = run(local_plan(directory), fetch)
        return dead_bytes(directory, offsets)


@dataclass(slots=True)
class _Absent:
    checked: float = field(default_factory=monotonic)


class Archives:
    """The archives of a tileset by their root tile.

    The least recently used directories are evicted first. Remote archives need no check: reading
    a tile from a changed one fails. With a variant, only entries below its name are tiles.
    """

    def __init__(
        self, files: ArchiveFiles, reading: ReadOptions, variant: str | None = None
    ) -> None:
        self.files, self._reading, self.variant = files, reading, variant
        self.limits = reading.limits
        self.local = isinstance(files.base, LocalSource)
        """Whether they are local files."""
        self._start()
        self._prefix = variant_prefix(variant)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._kept: OrderedDict[Tile, OpenArchive | _Absent] = OrderedDict()
        self._coming: dict[Tile, Future[Any]] = {}
        self._weight = self._files = 0

    def of_variant(self, variant: str) -> Archives:
        """The same archives for the tiles of a variant; none of them is open."""
        return Archives(self.files, self._reading, variant)

    @property
    def weight(self) -> int:
        """Approximate bytes of the cached directories."""
        return self._weight

    def get(self, tile: Tile) -> OpenArchive | None:
        """The archive of a root tile, or None if a tree does not have it."""
        kept = self._kept.get(tile)
        if kept.__class__ is OpenArchive and monotonic() < kept.believed:
            return kept  # the hot path: no lock, no change to the cache
        found = self._ready(tile)
        while found is None:
            with self._lock:
                coming = self._coming.get(tile)
                own = None if coming else self._coming.setdefault(tile, Future())
            if own is not None:
                return self._load(tile, own)
            assert coming is not None
            # None if the loading thread was interrupted: then this one tries.
            found = coming.result()
        return found if isinstance(found, OpenArchive) else None

    def at_hand(self, tile: Tile) -> bool:
        """Whether an archive is an open local file that needs no check."""
        kept = self._kept.get(tile)
        return (
            isinstance(kept, OpenArchive) and kept.file is not None and monotonic() < kept.believed
        )

    def drop(self, tile: Tile, archive: OpenArchive | _Absent | None = None) -> None:
        """Forget an archive; if `archive` is given, only if it is still cached."""
        with self._lock:
            kept = self._kept.get(tile)
            if archive is None or kept is archive:
                self._forget(tile)

    def clear(self) -> None:
        """Forget all archives."""
        self._start()

    def has_changed(self, archive: OpenArchive, error: ComalError | None = None) -> bool:
        """Whether an archive has changed since it was opened, which may explain an error."""
        if isinstance(error, ObjectChangedError):
            return True
        if archive.file is not None:
            return not archive.file.current()
        if isinstance(error, InvalidMetadataError):
            return False  # each range was requested from this version
        places = self.files.sources(archive.tile)
        fresh = next(source for source in places if source.href == archive.href)
        try:
            now, then = fresh.stat(), archive.info
        except ObjectNotFoundError:
            return True
        return then is None or not same_version(then, now)

    def is_fresh(self, archive: OpenArchive) -> bool:
        """Whether an archive was checked so recently that it needs no new check."""
        return monotonic() - archive.checked < self._patience(archive.file is not None)

    def has_grown(self, archive: OpenArchive) -> bool:
        """Whether an archive that lacks a tile was due for a check and has changed."""
        now = monotonic()
        if self.is_fresh(archive):
            return False
        if self.has_changed(archive):
            return True
        archive.checked = now
        return False

    # -- the cache --------------------------------------------------------------------------------

    def _ready(self, tile: Tile) -> OpenArchive | _Absent | None:
        if self._pid != os.getpid():
            # A thread of the parent, which does not exist here, may hold the lock.
            self._start()
        kept = self._kept.get(tile)
        if kept is None:
            return None
        try:
            self._kept.move_to_end(tile)
        except KeyError:  # evicted by another thread; our reference is still valid
            return kept
        now = monotonic()
        if isinstance(kept, _Absent):
            if now - kept.checked < self._patience(self.local):
                return kept
            self.drop(tile, kept)
            return None
        if kept.file is not None and now - kept.checked >= self._patience(local=True):
            if not kept.file.current():
                self.drop(tile, kept)
                return None
            kept.checked = now
        kept.believed = now + min(self._patience(kept.file is not None), LOCAL_RECHECK)
        return kept

    def _patience(self, local: bool) -> float:  # noqa: FBT001 - private
        if self._reading.recheck is not None:
            return self._reading.recheck
        return LOCAL_RECHECK if local else REMOTE_RECHECK

    def _load(self, tile: Tile, coming: Future[Any]) -> OpenArchive | None:
        """Open an archive for all threads that wait for it.

        A `ComalError` is raised in all of them; after any other error, such as an interrupt of this
        thread, they try themselves.
        """
        try:
            archive = self._opened(tile)
        except BaseException as error:
            with self._lock:
                self._coming.pop(tile, None)
            if isinstance(error, ComalError):
                coming.set_exception(error)
            else:
                coming.set_result(None)
            raise
        kept = archive if archive is not None else _Absent()
        with self._lock:
            self._coming.pop(tile, None)
            self._forget(tile)
            self._kept[tile] = kept
            self._count(kept, 1)
            while len(self._kept) > 1 and (
                self._weight > self._reading.budget or self._files > HELD_FILES
            ):
                self._forget(next(iter(self._kept)))
        coming.set_result(kept)
        return archive

    def _forget(self, tile: Tile) -> None:
        gone = self._kept.pop(tile, None)
        if gone is not None:
            self._count(gone, -1)

    def _count(self, kept: OpenArchive | _Absent, sign: int) -> None:
        if isinstance(kept, OpenArchive):
            self._weight += sign * kept.index.weight
            self._files += sign * (kept.file is not None)
        else:
            self._weight += sign * _ABSENT_WEIGHT

    # -- opening ----------------------------------------------------------------------------------

    def _opened(self, tile: Tile) -> OpenArchive | None:
        for number, source in enumerate(self.files.sources(tile)):
            try:
                try:
                    found = self._open(tile, source, held(source))
                except ObjectChangedError:
                    # Replaced between two requests of the opening: try once more from the start.
                    found = self._open(tile, self.files.sources(tile)[number], None)
            except ObjectNotFoundError:
                if self.files.alone:
                    raise  # it was there when the tileset was opened
                continue
            self.files.found_at(number)
            return found
        return None

    def _open(self, tile: Tile, source: Source, file: HeldFile | None) -> OpenArchive:
        place, index = source.location, None
        if file is not None and self._reading.tail >= TAIL:
            index = near_index(file.fetch, place, self.limits, self._prefix)
        if index is None:
            plan = index_plan(place.label, self._reading.tail, self.limits, self._prefix)
            index = run(plan, source.fetch if file is None else file.fetch)
        return OpenArchive(tile, index, source, file)

    def __reduce__(self) -> tuple[type[Archives], tuple[ArchiveFiles, ReadOptions, str | None]]:
        return Archives, (self.files, self._reading, self.variant)
