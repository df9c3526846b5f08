"""Publishing to an object store: a finished file of this machine becomes an object in one step.

An object appears under the condition that its key is free, or still holds what was there at first.
Up to 64 MiB one request says so, and in S3 the last request of an upload in parts. No request with
parts can elsewhere: a larger new object goes to a hidden key and is copied from there under the
condition, and one that replaces another goes to the key itself, which was compared right before.

Requests are tried again. Where an answer was lost, the object is compared with the file. What a
failed writer has made is removed, as far as nothing was replaced.

An object is changed in a copy on this machine, which is then put in its place (`StoreChange`).

The SHA-256 of the file goes into the metadata of its object. A copy in S3 loses them, but has an
ETag that tells as much (`proves`).
"""

from __future__ import annotations

import hashlib
import io
import mimetypes
import mmap
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, NotSupportedError, PreconditionError

from comal.errors import (
    AccessDeniedError,
    ComalError,
    ConflictError,
    ObjectNotFoundError,
    StorageError,
    shown_path,
    system_errors,
)
from comal.limits import MIB
from comal.plan import Head
from comal.progress import Counter, current, silent
from comal.storage.cloud import guarding
from comal.storage.config import StorageConfig, default_config
from comal.storage.location import StorePath
from comal.storage.multipart import Multipart, Part, part_size, parts_of, tag_of
from comal.storage.opening import open_source
from comal.storage.remote import Ask, retrying
from comal.storage.replacing import Change, NextVersion
from comal.storage.stores import networked_store, store_errors
from comal.storage.targetlock import Owns, is_hidden, next_name, owner_of, scratch
from comal.storage.targets import (
    Kind,
    TargetSet,
    claimed,
    existing,
    refuse_sources,
    too_large,
)
from comal.storage.wrappers import RangeFile

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

T = TypeVar("T")
R = TypeVar("R")

SINGLE = 64 * MIB
"""Up to this size, an object is put by one request."""
COPIED = 5 << 30
"""S3 copies no larger object in one request."""
_AT_ONCE = 12
_TOLD = 16 * MIB
"""Uploads of more bytes than this are told of."""
_BLOCK = 8 * MIB
_AHEAD = 256 * MIB
_THREADS, _STEP = 16, 0.2
_Ready = tuple[StorePath, "Path | None", "ObjectMeta | None"]
"""A key, the file that becomes its object, and the object that may be replaced.

Without a file, what the key holds is removed.
"""
_CHECKSUM = "sha256"
"""Name of the metadata that hold the SHA-256 of an object."""
_LEFT = timedelta(hours=1)
"""No writer needs a hidden object for so long."""
_LEFT_UPLOAD = timedelta(days=1)
_TABLES = frozenset({"METADATA", "__TACOCAT__", ".tacocat"})
"""Folders of a data set that hold its index."""
_NAMING = ("COLLECTION.json", "index.json", "meta.json", "__TACOCAT__")

_NO_BUCKET = ObjectNotFoundError, "the bucket of the target does not exist", "check name and region"
_CHANGED = ConflictError, "another writer has changed the target meanwhile", "run it again"
_NO_CONDITIONS = (
    StorageError,
    "the store knows no conditions for writing",
    "copy a local file to it",
)
_DAMAGED = StorageError, "the object has other bytes than were sent", "run it again"
_OTHERS = (
    ConflictError,
    "the target exists and has other bytes",
    "several objects in a store cannot be replaced together: remove the old ones",
)
_FOLDER = "choose another name; a folder in a store is never replaced as a whole"


def rank_of(name: str) -> tuple[int, ...]:
    """The place of a file in the order in which the files of an archive become visible.

    `name` is its path in the folder. Data come first, then what an open reads: tables, the
    documents that name them, and those of the whole folder last.
    """
    *folders, last = name.split("/")
    if "DATA" in folders:
        return (0,)
    tables = [depth for depth, folder in enumerate(folders) if folder in _TABLES]
    document = last.endswith((".json", ".html")) and (not folders or bool(tables))
    if not (tables or document or last in _NAMING):
        return (0,)
    return 1, -(tables[0] if tables else len(folders)), document or last in _NAMING


def proves(tag: str, md5: bytes) -> bool:
    """Whether an ETag without quotes says that an object has bytes of this MD5.

    That of S3 and Google for an object in one piece does; where S3 has copied one, its MD5.
    """
    return tag in (md5.hex(), hashlib.md5(md5, usedforsecurity=False).hexdigest() + "-1")


def plain_tag(tag: str | None) -> str:
    """An ETag without quotes, which some listings leave out; empty for none."""
    return (tag or "").strip('"')


def digest_of(path: Path, kind: str) -> bytes:
    """The ``md5`` or ``sha256`` of a file of this machine."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).digest()


def at_once(
    function: Callable[[T], R], items: Iterable[T], stop: Event, threads: int = _THREADS
) -> Generator[R, None, None]:
    """Results of a function, as they come; a few items are in flight.

    After an error, Ctrl-C or `close`, `stop` is set, no call begins, and running ones are awaited.
    """
    left, running = iter(items), set[Future[R]]()
    with ThreadPoolExecutor(threads, "comal-upload") as pool:
        try:
            while True:
                more = islice(left, 2 * threads - len(running))
                running |= {pool.submit(function, one) for one in more}
                if not running:
                    return
                # Not for long: an interrupt right before would not end the waiting.
                done, running = wait(running, _STEP, FIRST_COMPLETED)
                for one in done:
                    yield one.result()
        except BaseException:  # also on Ctrl-C: nothing half done may stay
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def run_all(
    function: Callable[[T], object], items: Iterable[T], stop: Event, threads: int = _THREADS
) -> None:
    """Call a function for each item, as `at_once`."""
    with closing(at_once(function, items, stop, threads)) as done:
        for _ in done:
            pass


class StoreObject:
    """A key in a store, for one writer."""

    def __init__(
        self,
        place: StorePath,
        stop: Event | None = None,
        told: Callable[[int], object] = lambda _: None,
        *,
        going_on: bool = False,
    ) -> None:
        self.place = place
        self._stop, self._told, self._going_on = stop or Event(), told, going_on
        self._tag: str | None = None
        self._sent: Any = None
        self._proof = set[str]()
        self.key = place.location.path
        self._where = place.location.label
        self._config: StorageConfig = place.config or default_config()

    def ask(self, request: Callable[[ObjectStore], T], size: int = 0, part: int = 0) -> T:
        """Make a request for `size` bytes, again if a failure may pass; raises errors of comal.

        With `part` it becomes several requests of this size, which the store makes again itself.
        """
        location, config = self.place.location, self._config
        # Each limit has a client and connections of its own, so there are few: powers of two.
        longest = timedelta(seconds=config.deadline(max(MIB, 1 << (part or size).bit_length())))
        # The client's time to read an answer begins with the request, and ends a long upload.
        client: dict[str, Any] = {"timeout": longest, "read_timeout": longest} if size else {}
        by_store = config.tries - 1 if part else 0

        def tried(_: float) -> T:
            with store_errors(Ask(location, Head(0), None), last=True):
                return request(store)

        with self._explained(), guarding(location, config):
            store = networked_store(location, config, by_store, **client)
            config = replace(config, tries=config.tries - by_store)
            return retrying(config, location, size, tried)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in errors what a writer can do."""
        try:
            yield
        except AccessDeniedError as error:
            error.hint = "check that the credentials may write there, and that the name is right"
            raise
        except StorageError as error:
            if error.fields.get("status") == 404:
                raise ObjectNotFoundError("no such object", where=self._where) from error
            if error.fields.get("status") is None:
                error.hint = "check the endpoint and the region, or try again later"
            raise

    def meta(self) -> ObjectMeta | None:
        """Size and version of the object; None if there is none."""
        try:
            return self.ask(lambda store: obstore.head(store, self.key))
        except ObjectNotFoundError:
            return None

    def below(self, keep: Callable[[ObjectMeta], T]) -> dict[str, T]:
        """What `keep` makes of each object below the key, by the path there."""
        found = self.listed(lambda some: {name: keep(meta) for name, meta in some.items()})
        return {name: one for some in found for name, one in some.items()}

    def listed(self, work: Callable[[dict[str, ObjectMeta]], T]) -> list[T]:
        """What `work` makes of the objects below the key, a thousand at a time by their paths."""
        prefix = f"{self.key}/" if self.key else ""

        def listed(store: ObjectStore) -> list[T]:
            chunks = obstore.list(store, prefix or None, chunk_size=1000)
            named = ({meta["path"]: meta for meta in chunk} for chunk in chunks)
            return [
                work({p.removeprefix(prefix): one[p] for p in one if p.startswith(prefix)})
                for one in named
            ]

        try:
            return self.ask(listed)
        except ObjectNotFoundError as error:
            told = ObjectNotFoundError, "the bucket does not exist", "check name and region"
            raise self.error(told) from error

    def checksum(self) -> str | None:
        """The SHA-256 that the writer of the object has put beside it."""

        def attributes(store: ObjectStore) -> str | None:
            found = obstore.get(store, self.key, options={"head": True})
            return found.attributes.get(_CHECKSUM)

        return self.ask(attributes)

    def look(self, kind: Kind, *, folder: bool, overwrite: bool) -> ObjectMeta | None:
        """The object that may be replaced, or None if the key is free; errors as `check_target`."""
        found = self.meta()
        holds = found is None and self._holds_others()
        if holds or (found is not None and folder):
            form = "is a file" if found else "exists" if folder else "is a folder"
            raise self.error((ConflictError, f"the target {form}", _FOLDER))
        if found is not None and not overwrite:
            raise existing(cast("Path", self.place))
        if found is not None and found["size"]:
            claimed(cast("Path", self.place), kind)
        if self.place.location.scheme in ("s3", "gs"):
            self._begin_and_give_up()
        return found

    def _begin_and_give_up(self) -> None:
        """Begin an upload in parts: who may not write hears of it before the work."""
        nothing: Any = iter([].pop, None)  # an error in place of the first block
        with suppress(IndexError):
            self.ask(lambda store: obstore.put(store, self.key, nothing, use_multipart=True))

    def _holds_others(self) -> bool:
        """Whether there are objects below the key."""
        try:
            return self.ask(lambda store: any(obstore.list(store, self.key + "/", chunk_size=1)))
        except AccessDeniedError:  # who may write need not have the right to list
            return False
        except ObjectNotFoundError as error:
            raise self.error(_NO_BUCKET) from error

    def error(self, told: tuple[type[ComalError], str, str]) -> ComalError:
        """The error of a kind for the object, with its hint."""
        kind, what, hint = told
        return kind(what, where=self._where, hint=hint)

    def publish(
        self,
        path: Path,
        seen: ObjectMeta | None,
        made: list[StoreObject],
        *,
        compare: bool = False,
    ) -> None:
        """Make a file the object if `seen` is still there, else `ConflictError`; note a new one.

        With `compare` the file may be anybody's, and change meanwhile. The object is compared with
        what was sent: by the ETag, or it is read. Raises `StorageError` if they differ.
        """
        size = path.stat().st_size
        self._sent = hashlib.md5(usedforsecurity=False) if compare else None
        self._tag = tag = (self._put if size <= SINGLE else self._put_large)(path, size, seen)
        if seen is None and tag is not None:
            made.append(self)
        if compare and self._proved(tag):
            return
        there = self.meta()
        if there is None or there["size"] != size or (tag and tag != there["e_tag"]):
            made[:] = [one for one in made if one is not self]  # it is not ours any more
            raise self.error(_CHANGED)
        self._tag = there["e_tag"]
        known = not (compare and size) or self._proved(self._tag)
        if not known and not self.holds(path, size):
            self.remove()
            raise self.error(_DAMAGED)

    def is_there(self) -> bool:
        """Whether the object is still the one that was published."""
        there = self.meta()
        return there is not None and plain_tag(there["e_tag"]) == plain_tag(self._tag)

    def _proved(self, tag: str | None) -> bool:
        """Whether an ETag says that the object has the bytes that were sent."""
        plain = plain_tag(tag)
        return plain in self._proof or (
            self._sent is not None and proves(plain, self._sent.digest())
        )

    def put(self, data: bytes) -> None:
        """Put an object, whatever the key holds."""
        self.ask(lambda store: obstore.put(store, self.key, data))

    def _put(self, path: Path, size: int, seen: ObjectMeta | None) -> str | None:
        mode: Any = "create" if seen is None else _version(seen)
        data: Any = b""
        with path.open("rb") as file:
            if self._sent is not None:  # a file that shrinks must not end the process
                data = file.read(size)
                self._sent.update(data)
            elif size:  # mapped, not read: many small files go at once
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            return self._made(path, size, seen, data, mode=mode)
        finally:
            self._told(size)

    def _put_large(self, path: Path, size: int, seen: ObjectMeta | None) -> str | None:
        upload = Multipart.to(self.place.location, self._config)
        if upload is not None:
            tries = list[bool]()
            make = partial(self._by_parts, upload, path, size, seen, tries)
            with self._explained():
                return self._settled(path, size, seen, make, tries)
        part = part_size(size)
        at_once = max(2, min(_AT_ONCE, _AHEAD // part))
        parts = {"use_multipart": True, "chunk_size": part, "max_concurrency": at_once}
        if seen is not None:
            now = self.meta()
            if now is None or _version(now) != _version(seen):
                raise self.error(_CHANGED)
            return self._made(path, size, seen, path, **parts)
        most = self.most()
        if most is not None and size > most:
            raise too_large(cast("Path", self.place))
        place = self.place.with_name(next_name(self.place.name))
        hidden = StoreObject(place, self._stop, self._told)
        hidden._sent = self._sent
        try:
            hidden._made(path, size, None, path, **parts)
            return self._made(path, size, None, hidden)
        finally:
            with suppress(ComalError):  # an error under way says more
                hidden.remove()

    def most(self) -> int | None:
        """The largest size of a new object, if one goes to a hidden key that S3 copies."""
        location = self.place.location
        copied = location.scheme == "s3" and Multipart.to(location, self._config) is None
        return COPIED if copied else None

    def _by_parts(
        self,
        upload: Multipart,
        path: Path,
        size: int,
        seen: ObjectMeta | None,
        tries: list[bool],
    ) -> str | None:
        """Upload a file in parts; returns the ETag, or None if the condition does not hold.

        `tries` get an item for each try of the last request.
        """
        upload.begin(self._told_of(path, digest=False))

        def put(part: Part) -> tuple[int, bytes, str]:
            return part.number, *upload.put(part, self._went)

        try:
            parts = parts_of(path, size, part_size(size))
            with closing(at_once(put, parts, self._stop, _AT_ONCE)) as sent:
                _, digests, tags = zip(*sorted(sent), strict=True)
            self._proof = {tag_of(digests)}
            condition = {"If-Match": str(seen["e_tag"])} if seen else {"If-None-Match": "*"}
            made = upload.finish(tags, condition, size)
            if made is not None:
                if not upload.has_digest:  # S3 has compared each part
                    self._proof.add(plain_tag(made))
                return made
        except BaseException:  # also on Ctrl-C: nothing half done may stay
            with suppress(ComalError):  # the error under way says more
                upload.give_up()
            raise
        tries += [True] * upload.tries
        upload.give_up()
        return None

    def _went(self, size: int) -> None:
        """Tell of bytes that were sent; an error once nobody waits any more."""
        if self._stop.is_set():
            raise ComalError("the upload was stopped", where=self._where)
        self._told(size)

    def copy(self, source: StorePath, size: int) -> None:
        """Let the store copy another of its objects to the key, if that is free."""
        self._made(source, size, None, StoreObject(source))
        self._told(size)

    def _made(
        self, path: Path | StorePath, size: int, seen: ObjectMeta | None, data: Any, **how: Any
    ) -> str | None:
        """Put data, or copy an object to a free key; returns the ETag, empty where it is unknown.

        None says that an answer was lost, and that the object has the bytes of the file.
        """
        by_parts = "use_multipart" in how
        copied = by_parts and seen is None and self.place.location.scheme == "s3"
        if not isinstance(data, StoreObject):
            how["attributes"] = self._told_of(path, digest=not copied)
        tries: list[bool] = []

        def request(store: ObjectStore) -> str | None:
            tries.append(True)
            try:
                if isinstance(data, StoreObject):
                    obstore.copy(store, data.key, self.key, overwrite=False)
                    return ""
                whole = self._blocks(path) if by_parts else data
                return obstore.put(store, self.key, whole, **how)["e_tag"] or ""
            except (AlreadyExistsError, PreconditionError):
                return None
            # obstore raises Python's own error where conditions are switched off.
            except (NotSupportedError, NotImplementedError) as error:
                raise self.error(_NO_CONDITIONS) from error

        part = how.get("chunk_size", 0)
        return self._settled(path, size, seen, lambda: self.ask(request, size, part), tries)

    def _settled(
        self,
        path: Path | StorePath,
        size: int,
        seen: ObjectMeta | None,
        make: Callable[[], str | None],
        tries: Sequence[object],
    ) -> str | None:
        """As `_made`. `make` returns None if the key is taken, maybe by one of its tries."""
        error: ComalError | None = None
        try:
            tag = make()
        except (ObjectNotFoundError, StorageError) as failed:
            tag, error = None, failed
        if tag is not None:
            return tag
        with suppress(ComalError):  # the error that led here says more
            if (error or len(tries) > 1 or self._going_on) and self.holds(path, size):
                return None
        if isinstance(error, StorageError):
            raise self.error(_NO_CONDITIONS) if error.fields.get("status") == 501 else error
        if error and seen is None:
            raise self.error(_NO_BUCKET)
        raise self._taken(seen)

    def _taken(self, seen: ObjectMeta | None) -> ComalError:
        """The error for a key that holds something else than it should."""
        if seen is not None:
            return self.error(_CHANGED)
        return self.error(_OTHERS) if self._going_on else existing(cast("Path", self.place))

    def _told_of(self, path: Any, *, digest: bool) -> dict[str, str]:
        """What is kept beside the bytes of a file; no checksum where it would be lost."""
        kind = mimetypes.guess_type(self.place.name)[0] or "application/octet-stream"
        told = {_CHECKSUM: digest_of(path, "sha256").hex()} if digest else {}
        if self._config.cache_control is not None:
            grows = self.key.endswith((".json", ".html")) or _TABLES & {*self.key.split("/")}
            told["Cache-Control"] = "no-cache" if grows else self._config.cache_control
        return {"Content-Type": kind, **told}

    def _blocks(self, path: Any) -> Iterator[bytes]:
        """The bytes of a file; an error once nobody waits any more, for requests do not end."""
        with path.open("rb") as file:
            for block in iter(partial(file.read, _BLOCK), b""):
                if self._stop.is_set():
                    raise ComalError("the upload was stopped", where=self._where)
                if self._sent is not None:
                    self._sent.update(block)
                self._told(len(block))
                yield block

    def holds(self, path: Path | StorePath, size: int) -> bool:
        """Whether the object has the bytes of a file or of another object."""
        found = self.meta()
        if found is None or found["size"] != size:
            return False
        if self._proved(found["e_tag"]):
            return True
        with open_source(path).file() as file, open_source(self.place).file() as there:
            return same_bytes(file, there)

    def remove(self, tag: str | None = None) -> None:
        """Remove the object, if there is one and it is not another's by now.

        `tag` is its ETag; by default that of what was published.
        """
        tag = plain_tag(tag or self._tag)
        there = self.meta() if tag else None
        if there is not None and plain_tag(there["e_tag"]) != tag:
            return
        with suppress(ObjectNotFoundError):
            self.ask(lambda store: obstore.delete(store, self.key))


def same_bytes(one: Any, other: Any) -> bool:
    """Whether two opened files have the same bytes."""
    blocks = iter(partial(one.read, _BLOCK), b"")
    return all(other.read(len(block)) == block for block in blocks) and not other.read(1)


def _version(meta: ObjectMeta) -> dict[str, str]:
    """What a store compares: ETag, version or both."""
    values = {"e_tag": meta["e_tag"], "version": meta["version"]}
    return {name: value for name, value in values.items() if value is not None}


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
            raise made[-1].error(_CHANGED)
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
    made, every, stop = list[StoreObject](), list[StoreObject](), Event()
    total = sum(path.stat().st_size for group in groups for _, path, _ in group if path)
    told = Counter(current() if total > _TOLD else silent, total, "uploading bytes")

    def publish(ready: _Ready) -> None:
        place, path, seen = ready
        one = StoreObject(place, stop, told, going_on=going_on)
        if path is None:
            one.remove()
            return
        one.publish(path, seen, made)
        every.append(one)

    try:
        for group in groups:
            run_all(publish, group, stop)
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
                for block in iter(partial(there.read, _BLOCK), b""):
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
