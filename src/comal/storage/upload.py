"""Publishing to an object store: files that are finished on this machine become objects.

What a failed writer has made is removed, as far as nothing was replaced. An object is changed in a
copy on this machine, which is then put in its place (`StoreChange`).
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from comal.errors import (
    ComalError,
    ConflictError,
    ObjectNotFoundError,
    shown_path,
    system_errors,
)
from comal.limits import MIB
from comal.parallel import run_all
from comal.progress import Counter, current, silent
from comal.storage.config import StorageConfig, default_config
from comal.storage.location import StorePath
from comal.storage.multipart import Multipart
from comal.storage.opening import open_source
from comal.storage.replacing import Change, NextVersion
from comal.storage.storeobject import BLOCK, CHANGED, TABLES, StoreObject
from comal.storage.targetlock import Owns, is_hidden, owner_of, scratch
from comal.storage.targets import (
    Kind,
    TargetSet,
    refuse_sources,
)
from comal.storage.wrappers import RangeFile

if TYPE_CHECKING:
    from obstore import ObjectMeta

_TOLD = 16 * MIB
"""Uploads of more bytes than this are told of."""
_Ready = tuple[StorePath, "Path | None", "ObjectMeta | None"]
"""A key, the file that becomes its object, and the object that may be replaced.

Without a file, what the key holds is removed.
"""
_LEFT = timedelta(hours=1)
"""No writer needs a hidden object for so long."""
_LEFT_UPLOAD = timedelta(days=1)
_NAMING = ("COLLECTION.json", "index.json", "meta.json", "__TACOCAT__")


def rank_of(name: str) -> tuple[int, ...]:
    """The place of a file in the order in which the files of an archive become visible.

    `name` is its path in the folder. Data come first, then what an open reads: tables, the
    documents that name them, and those of the whole folder last.
    """
    *folders, last = name.split("/")
    if "DATA" in folders:
        return (0,)
    tables = [depth for depth, folder in enumerate(folders) if folder in TABLES]
    document = last.endswith((".json", ".html")) and (not folders or bool(tables))
    if not (tables or document or last in _NAMING):
        return (0,)
    return 1, -(tables[0] if tables else len(folders)), document or last in _NAMING


class StoreSet(TargetSet):
    """Files and folders that become objects one after the other, when all are whole."""

    def __init__(
        self,
        folder: Path,
        place: StorePath,
        *,
        overwrite: bool,
        sources: Any,
        earlier: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__(folder, cast("Path", place), overwrite=overwrite, sources=sources)
        self._earlier = earlier
        self._seen: dict[str, ObjectMeta | None] = {}

    def check(self, name: str, kind: Kind, *, folder: bool = False) -> Owns:
        """Refuse a name whose object may not be replaced, whose folder exists, or among several."""
        refuse_sources(self._home / name, self._sources)
        if self._earlier is not None:
            return lambda _: True
        place = cast("StorePath", self._home / name)
        self._seen[name] = StoreObject(place).look(kind, folder=folder, overwrite=self._overwrite)
        if len(self._seen) > 1 and any(self._seen.values()):
            raise ConflictError(
                "several objects in a store cannot be replaced together",
                where=shown_path(self._home),
                hint="remove the old ones, or choose another name",
            )
        return lambda _: True

    def _most(self, name: str) -> int | None:
        place = cast("StorePath", self._home / name)
        return None if self._seen.get(name) else StoreObject(place).most()

    def publish(self) -> list[Path]:
        """Make them objects, files first and folders last, whose documents are the end.

        Raises `ConflictError` if somebody else has written one.
        """
        names = sorted(self._kinds, key=self._folders.__contains__)
        groups = [group for name in names for group in self._ready(name)]
        made = _publish(groups, going_on=self._earlier is not None)
        if self._earlier is not None and not all(one.is_there() for one in made):
            made[-1].remove()  # the document, which may describe what another writer replaces
            raise made[-1].error(CHANGED)
        return [self._home / name for name in self._kinds]

    def _ready(self, name: str) -> list[list[_Ready]]:
        """The groups of a name, with what each object may replace.

        The documents of an earlier folder go first: what it holds meanwhile is nothing to open, so
        nobody reads old and new together.
        """
        groups, gone = self._groups(name), list[_Ready]()
        if self._earlier is not None:
            found = {one: self._differing(one) for group in groups for one in group}
            if any(found.values()) and self._earlier(name):
                self._seen.update(found)
                if name in self._folders:
                    self._seen.update(dict.fromkeys(groups[-1]))
                    gone = [(self._object(one)[0], None, None) for one in groups[-1]]
        ready = [list(map(self._object, group)) for group in groups]
        return [gone, *ready] if gone else ready

    def _differing(self, name: str) -> ObjectMeta | None:
        """The object of a file that is there and has other bytes."""
        found, path = StoreObject(cast("StorePath", self._home / name)), self.folder / name
        seen = found.meta()
        return None if seen is None or found.holds(path, path.stat().st_size) else seen

    def _groups(self, name: str) -> list[list[str]]:
        """The files of a name, by their names below the set; the next group waits for all."""
        if name not in self._folders:
            return [[name]]
        top = self.folder / name
        files = (os.path.relpath(path, top) for path in top.rglob("*") if path.is_file())
        groups = groupby(sorted(files, key=lambda one: (rank_of(one), one)), rank_of)
        return [[f"{name}/{one}" for one in group] for _, group in groups]

    def _object(self, name: str) -> _Ready:
        return cast("StorePath", self._home / name), self.folder / name, self._seen.get(name)


def _publish(groups: Sequence[Sequence[_Ready]], *, going_on: bool = False) -> list[StoreObject]:
    """Make files objects, a group at a time; what is new is removed again if one fails."""
    made, every = list[StoreObject](), list[StoreObject]()
    total = sum(path.stat().st_size for group in groups for _, path, _ in group if path)
    told = Counter(current() if total > _TOLD else silent, total, "uploading bytes")

    def publish(ready: _Ready) -> None:
        place, path, seen = ready
        one = StoreObject(place, told, going_on=going_on)
        if path is None:
            one.remove()
            return
        one.publish(path, seen, made)
        every.append(one)

    try:
        for group in groups:
            run_all(publish, group)
    except BaseException:  # also on Ctrl-C: nothing half done may stay
        for published in made:
            with suppress(ComalError):  # the error under way says more
                published.remove()
        raise
    return every


@contextmanager
def new_store_set(place: StorePath, **how: Any) -> Iterator[StoreSet]:
    """As `comal.storage.targets.new_set`, for keys in a store."""
    with scratch_folder(place.config) as folder:
        yield StoreSet(folder, place, **how)


def scratch_folder(config: StorageConfig | None) -> AbstractContextManager[Path]:
    """A folder for temporary files, which is removed with them."""
    return scratch(Path((config or default_config()).scratch or tempfile.gettempdir()))


# -- changes in place ------------------------------------------------------------------------------


class StoreChange(Change):
    """Objects that are changed in copies on this machine.

    At the end the copies take their places, the last one alone, each under the condition that
    the object is still the one that was looked at. So each object is old or new, and a change that
    fails on the way is made again.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(None, durable=False)
        self._folder = folder
        self._seen: dict[Path, ObjectMeta | None] = {}
        self._copies: dict[Path, Path] = {}

    def has(self, target: Path) -> bool:
        """Whether an object exists, or will; from the first look on it is kept to its version."""
        if target not in self._seen:
            self._seen[target] = StoreObject(cast("StorePath", target)).meta()
        return target in self._copies or self._seen[target] is not None

    @contextmanager
    def edit(self, target: Path) -> Iterator[NextVersion]:
        """A copy of an existing object, to be appended to or overwritten."""
        if not self.has(target):
            raise ObjectNotFoundError("no such object", where=shown_path(target))
        path = self._copies.get(target)
        copy = path or self._fetched(target)

        def begin() -> tuple[Path, io.FileIO]:
            self._copies[target] = copy
            return copy, file

        try:
            with io.FileIO(copy, "r+b") as file:
                yield NextVersion(copy, file, begin if path is None else None)
        except ComalError as error:
            if error.where is not None:
                error.where = error.where.replace(str(copy), str(target))
            raise
        finally:
            if target not in self._copies:
                copy.unlink()

    @contextmanager
    def write(self, target: Path) -> Iterator[io.FileIO]:
        """A new or existing object, to be written from its beginning; unbuffered."""
        self.has(target)
        with ExitStack() as scope:
            with system_errors("cannot write", self._folder):
                copy = self._copies[target] = self._aside(target)
                file = scope.enter_context(io.FileIO(copy, "w+b"))
            yield file

    def decide(self) -> None:
        """Publish the copies; `ConflictError` if somebody else has changed an object."""
        ready: list[_Ready] = [
            (cast("StorePath", target), copy, self._seen[target])
            for target, copy in self._copies.items()
        ]
        _publish([ready[:-1], ready[-1:]])

    def _aside(self, target: Path) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder)) / target.name

    def _fetched(self, target: Path) -> Path:
        seen = self._seen[target]
        told = Counter(current(), seen["size"] if seen else 0, "fetching bytes")
        with system_errors("cannot write", self._folder):
            copy = self._aside(target)
            with copy.open("wb") as file, RangeFile(open_source(target)) as there:
                for block in iter(partial(there.read, BLOCK), b""):
                    file.write(block)
                    told(len(block))
        return copy


@contextmanager
def changing_objects(place: StorePath) -> Iterator[Change]:
    """Change objects beside a place, or the object there; published at the end of the block."""
    with scratch_folder(place.config) as folder:
        change = StoreChange(folder)
        yield change
        change.decide()


# -- leftovers -------------------------------------------------------------------------------------


def clean_store(place: StorePath) -> list[StorePath]:
    """Remove what killed writers of a key left beside it and below it; returns what is gone.

    These are hidden objects of more than an hour, as nothing in a store says who is at work, and in
    S3 uploads of more than a day that are not finished. Elsewhere those cannot be listed.
    """
    home = place.parent
    beside = filter(is_hidden, open_source(home).names())
    own = [home / name for name in beside if owner_of(Path(name)).name == place.name]
    below = StoreObject(place).below(lambda meta: meta["e_tag"])
    hidden = [place / name for name in below if is_hidden(name.rpartition("/")[2])]
    gone = []
    for found in map(StoreObject, [*own, *hidden]):
        meta = found.meta()
        if meta is not None and has_rested(meta):
            found.remove(meta["e_tag"])
            gone.append(found.place)
    uploads = Multipart.to(place.location, place.config or default_config())
    for upload in uploads.unfinished() if uploads else ():
        if uploads and upload.begun < datetime.now(UTC) - _LEFT_UPLOAD:
            uploads.give_up(upload)
            below_it = upload.key[len(place.location.path) + 1 :]
            gone.append(place / below_it if below_it else place)
    return gone


def has_rested(meta: ObjectMeta) -> bool:
    """Whether an object is so old that no writer needs it."""
    return meta["last_modified"] < datetime.now(UTC) - _LEFT
