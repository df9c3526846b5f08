"""Archives of a tileset: where they are, and which are open.

Directories are kept in a cache with a budget, each fetched once by all who ask for it.
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
"""So many absent archives are looked for by all definitions of the hash before that is given up."""


class ArchiveFiles:
    """Where archives are: below the folder `base`, or that itself where it is the only one.

    There is a layout for each definition of ``{h}`` that may hold, the likeliest first. They are
    tried until one has led to an archive, which is kept from then on.
    """

    def __init__(self, base: Source, layouts: Sequence[ArchiveLayout]) -> None:
        self.base, self.layouts = base, tuple(layouts)
        self.alone = isinstance(self.layouts[0], InArchive)
        """Whether there is but one archive."""
        self._tries = 0

    def sources(self, tile: Tile) -> Sequence[Source]:
        """Where the archive of a root tile may be, each with pins of its own, best first."""
        base = self.base
        if self.alone:
            return [base.at(base.location, fresh=True)]
        layouts = self.layouts
        if len(layouts) > 1:
            self._tries += 1
            layouts = layouts if self._tries <= _UNSETTLED else layouts[:1]
        return [base.at(base.location.join(layout.path(tile)), fresh=True) for layout in layouts]

    def found_at(self, number: int) -> None:
        """Take notice that an archive was found at this one of its places."""
        if len(self.layouts) > 1:
            self.layouts = self.layouts[number : number + 1]

    def listed(self) -> Iterator[Tile]:
        """Root tiles of all archives that are there; StorageError where nothing can be listed."""
        yield from _walk(self.base, self.layouts[0].pattern.split("/"), "", {})

    def there(self, metadata: TileSetMetadata, archives: Archives) -> Iterator[Tile]:
        """Root tiles of the archives that are there, by asking the storage or one by one."""
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
    """What reads the fields of a name; one that stands twice has to be the same."""
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
"""Bytes of directories that are kept; a million entries and more."""
HELD_FILES = 400
"""Descriptors of local archives that stay open at most; a process may commonly have 1 024."""
LOCAL_RECHECK = 1.0
REMOTE_RECHECK = 10.0
"""Seconds for which is believed that an archive is the same, or absent, without asking again."""
_ABSENT_WEIGHT = 300
_GAP = 64


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
    checked: float = field(default_factory=monotonic)
    """When it was last seen to be the same."""
    believed: float = 0.0
    """Until when it may be used without another look; the cache learns of no use before."""
    described: dict[str, tuple[Headers, str, float]] = field(default_factory=dict)
    """Headers, extension and scale by suffix, as they are worked out."""
    _label: str = ""

    @property
    def href(self) -> str:
        """Where the archive is."""
        return self.source.href

    @property
    def label(self) -> str:
        """What messages call it."""
        if not self._label:
            self._label = self.source.location.label
        return self._label

    @property
    def info(self) -> ObjectInfo | None:
        """Which version of the archive this is."""
        return self.file.info if self.file is not None else self.source.known()

    def table(self, version: int = 2) -> Any:
        """Its tiles as a table of `index.SCHEMA`; of Tapalcatl 1 below the root's name."""
        return entry_table(self.index, self.href, self.tile if version == 1 else None)

    def summary(self) -> dict[str, int]:
        """Tiles and bytes, and how many of these belong to no tile any more, about.

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
        """Dead bytes of an archive that holds other things than tiles, each counted by itself."""
        fetch = self.source.fetch
        directory = run(directory_plan("", where=self.label, lenient=True), fetch)
        offsets, _ = run(local_plan(directory), fetch)
        return dead_bytes(directory, offsets)


@dataclass(slots=True)
class _Absent:
    checked: float = field(default_factory=monotonic)


class Archives:
    """The archives of a tileset by their root tile.

    Of directories the least recently used are thrown out first; archives that are no local files
    show by themselves that they have changed whenever a tile is read. Of a variant only entries
    below its name are tiles.
    """

    def __init__(
        self, files: ArchiveFiles, reading: ReadOptions, variant: str | None = None
    ) -> None:
        self.files, self._reading, self._variant = files, reading, variant
        self.limits = reading.limits
        self.local = isinstance(files.base, LocalSource)
        """Whether they are files of this machine."""
        self._start()
        self._prefix = variant_prefix(variant)

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._kept: OrderedDict[Tile, OpenArchive | _Absent] = OrderedDict()
        self._coming: dict[Tile, Future[Any]] = {}
        self._weight = self._files = 0

    def of_variant(self, variant: str) -> Archives:
        """The same archives, of which the tiles below a name count; none of them is open."""
        return Archives(self.files, self._reading, variant)

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
        if archive.file is not None:
            return not archive.file.current()
        if isinstance(error, InvalidMetadataError):
            return False  # each range was asked for of this version
        places = self.files.sources(archive.tile)
        fresh = next(source for source in places if source.href == archive.href)
        try:
            now, then = fresh.stat(), archive.info
        except ObjectNotFoundError:
            return True
        return then is None or not same_version(then, now)

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
                    # Replaced between two requests of the opening: once more, from the beginning.
                    found = self._open(tile, self.files.sources(tile)[number], None)
            except ObjectNotFoundError:
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
        return Archives, (self.files, self._reading, self._variant)
