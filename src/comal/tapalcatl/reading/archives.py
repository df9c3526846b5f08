"""Open archives: directories in a cache with a budget, each fetched once by all who ask for it."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from comal.errors import ComalError, InvalidMetadataError, ObjectChangedError, ObjectNotFoundError
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.plan import run
from comal.storage import Source
from comal.storage.local import HeldFile, LocalSource, held
from comal.storage.source import ObjectInfo, same_version
from comal.tapalcatl.reading.index import TAIL, ArchiveIndex, index_plan, near_index
from comal.tapalcatl.reading.places import Places
from comal.tapalcatl.spec import Headers, Tile
from comal.tapalcatl.wire import variant_prefix

BUDGET = 64 * MIB
"""Bytes of directories that are kept; a million entries and more."""
HELD_FILES = 400
"""Descriptors of local archives that stay open at most; a process may commonly have 1 024."""
LOCAL_RECHECK = 1.0
REMOTE_RECHECK = 10.0
"""Seconds for which is believed that an archive is the same, or absent, without asking again."""
_ABSENT_WEIGHT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How archives are read."""

    budget: int = BUDGET
    """Bytes of directories that are kept."""
    tail: int = TAIL
    """Bytes of an archive's end that are asked for at first."""
    recheck: float | None = None
    """Seconds for which an archive is believed to be the same, or absent; 1 for local files and
    10 for others unless given."""
    limits: Limits = DEFAULT_LIMITS
    """``tile_bytes``, ``table_rows`` and ``table_bytes`` cap tiles and directories."""


@dataclass(slots=True, weakref_slot=True)
class OpenArchive:
    """An archive whose directory is here."""

    tile: Tile
    index: ArchiveIndex
    source: Source
    file: HeldFile | None
    """The file itself where it is local."""
    checked: float
    """When it was last seen to be the same."""
    believed: float
    """Until when it may be used without another look; the cache learns of no use before."""
    candidate: int = 0
    """Which of the places where it may be it was found at."""
    label: str = ""
    """What messages call it."""
    described: dict[str, tuple[Headers, str, float]] = field(default_factory=dict)
    """Headers, extension and scale by suffix, as they are worked out."""

    @property
    def href(self) -> str:
        """Where the archive is."""
        return self.source.href

    @property
    def info(self) -> ObjectInfo | None:
        """Which version of the archive this is."""
        return self.file.info if self.file is not None else self.source.known()

    def is_current(self, fresh: Callable[[], Source]) -> bool:
        """Ask the storage whether the archive is still this version."""
        if self.file is not None:
            return self.file.current()
        try:
            now, then = fresh().stat(), self.info
        except ObjectNotFoundError:
            return False
        return then is not None and same_version(then, now)


@dataclass(slots=True)
class _Absent:
    checked: float


class Archives:
    """The archives of a tileset by their root tile.

    Parameters
    ----------
    places
        For a root tile, where its archive may be.
    reading
        How they are read. Of directories the least recently used are thrown out first; archives
        that are no local files show by themselves that they have changed whenever a tile is read.
    prefix
        Only entries below it are tiles: ``variant/``.
    """

    def __init__(self, places: Places, reading: ReadOptions, prefix: bytes = b"") -> None:
        self._places, self._reading, self._prefix = places, reading, prefix
        self.limits = reading.limits
        self.local = isinstance(places.root, LocalSource)
        """Whether they are files of this machine."""
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._kept: OrderedDict[Tile, OpenArchive | _Absent] = OrderedDict()
        self._coming: dict[Tile, Future[Any]] = {}
        self._weight = self._files = 0

    def of_variant(self, variant: str) -> Archives:
        """The same archives, of which the tiles below a name count; none of them is open."""
        return Archives(self._places, self._reading, variant_prefix(variant))

    @property
    def weight(self) -> int:
        """Bytes of the directories that are kept, about."""
        return self._weight

    def get(self, tile: Tile) -> OpenArchive | None:
        """The archive of a root tile, or None when there is none."""
        kept = self._kept.get(tile)
        if kept.__class__ is OpenArchive and monotonic() < kept.believed:
            return kept  # nothing is touched on this, the hot, path
        found = self._ready(tile)
        while found is None:
            with self._lock:
                coming = self._coming.get(tile)
                own = None if coming else self._coming.setdefault(tile, Future())
            if own is not None:
                return self._load(tile, own)
            assert coming is not None
            # None when whoever loads it was stopped: then it is tried here.
            found = coming.result()
        return found if isinstance(found, OpenArchive) else None

    def at_hand(self, tile: Tile) -> bool:
        """Whether an archive is a file of this machine, open, and believed without asking."""
        kept = self._kept.get(tile)
        return (
            isinstance(kept, OpenArchive) and kept.file is not None and monotonic() < kept.believed
        )

    def drop(self, tile: Tile, archive: OpenArchive | _Absent | None = None) -> None:
        """Forget an archive; only if it is still this one, where one is given."""
        with self._lock:
            kept = self._kept.get(tile)
            if archive is None or kept is archive:
                self._forget(tile)

    def clear(self) -> None:
        """Forget all archives."""
        self._start()

    def has_changed(self, archive: OpenArchive, error: ComalError | None = None) -> bool:
        """Whether an error comes from an archive that is no longer the one that was opened."""
        if isinstance(error, ObjectChangedError):
            return True
        if error is not None and archive.file is None and isinstance(error, InvalidMetadataError):
            return False  # each range was asked for of this version
        return not archive.is_current(lambda: self._fresh(archive))

    def is_fresh(self, archive: OpenArchive) -> bool:
        """Whether an archive was looked at so lately that it is believed without asking."""
        return monotonic() - archive.checked < self._patience(archive.file is not None)

    def has_grown(self, archive: OpenArchive) -> bool:
        """Whether an archive that lacks a tile should be looked at again, and is another one."""
        now = monotonic()
        if self.is_fresh(archive):
            return False
        if self.has_changed(archive):
            return True
        archive.checked = now
        return False

    # -- what is kept -----------------------------------------------------------------------------

    def _ready(self, tile: Tile) -> OpenArchive | _Absent | None:
        if self._pid != os.getpid():
            # The lock of the parent may be held by one of its threads, which is not here.
            self._start()
        kept = self._kept.get(tile)
        if kept is None:
            return None
        try:
            self._kept.move_to_end(tile)
        except KeyError:  # thrown out by another thread; what we hold is as good
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
        """Open an archive for all who wait for it.

        They get the same error; after one that is about us alone they try themselves.
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
        kept = archive if archive is not None else _Absent(monotonic())
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
            self._files += sign * (0 if kept.file is None else kept.file.descriptors)
        else:
            self._weight += sign * _ABSENT_WEIGHT

    # -- opening ----------------------------------------------------------------------------------

    def _opened(self, tile: Tile) -> OpenArchive | None:
        for number, source in enumerate(self._places.candidates(tile)):
            found = self._open(tile, source, number)
            if found is not None:
                return found
        return None

    def _open(self, tile: Tile, source: Source, number: int) -> OpenArchive | None:
        try:
            file = held(source)
            label = _label(source)
            try:
                index = None if file is None else self._near(label, file)
                if index is None:
                    index = run(self._plan(label), source.fetch if file is None else file.fetch)
            except ObjectChangedError:
                # Replaced between two requests of the opening: once more, from the beginning.
                source = self._places.candidates(tile)[number]
                index = run(self._plan(label), source.fetch)
        except ObjectNotFoundError:
            return None
        self._places.chosen(number)
        return OpenArchive(tile, index, source, file, monotonic(), 0.0, number, label)

    def _near(self, label: str, file: HeldFile) -> ArchiveIndex | None:
        """The directory of a file, where it is found by its last few bytes."""
        if self._reading.tail < TAIL:
            return None
        return near_index(file.fetch, label, self.limits, self._prefix)

    def _fresh(self, archive: OpenArchive) -> Source:
        return next(
            source
            for source in self._places.candidates(archive.tile)
            if source.href == archive.source.href
        )

    def _plan(self, label: str) -> Any:
        return index_plan(label, self._reading.tail, self.limits, self._prefix)

    def __reduce__(self) -> tuple[type[Archives], tuple[Places, ReadOptions, bytes]]:
        return Archives, (self._places, self._reading, self._prefix)


def _label(source: Source) -> str:
    location = getattr(source, "location", None)
    return location.label if location is not None else source.href
