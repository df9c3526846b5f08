"""An object of a store, for one writer: looked at, published from a file, compared and removed.

An object appears under the condition that its key is free, or still holds what was there at first.
Up to 64 MiB one request says so, and in S3 the last request of an upload in parts. No request with
parts can elsewhere: a larger new object goes to a hidden key and is copied from there under the
condition, and one that replaces another goes to the key itself, which was compared right before.

Requests are tried again. Where an answer was lost, the object is compared with the file.

The SHA-256 of the file goes into the metadata of its object. A copy in S3 loses them, but has an
ETag that tells as much (`proves`).
"""

from __future__ import annotations

import hashlib
import mimetypes
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, NotSupportedError, PreconditionError

from comal.errors import (
    AccessDeniedError,
    ComalError,
    ConflictError,
    ObjectNotFoundError,
    StorageError,
)
from comal.limits import MIB
from comal.parallel import completed, stopped
from comal.plan import Head
from comal.storage.cloud import guarding
from comal.storage.config import StorageConfig, default_config
from comal.storage.location import StorePath
from comal.storage.multipart import Multipart, Part, part_size, parts_of, tag_of
from comal.storage.opening import open_source
from comal.storage.remote import Ask, retrying
from comal.storage.stores import networked_store, store_errors
from comal.storage.targetlock import next_name
from comal.storage.targets import (
    Kind,
    claimed,
    existing,
    too_large,
)

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

T = TypeVar("T")

SINGLE = 64 * MIB
"""Up to this size, an object is put by one request."""
COPIED = 5 << 30
"""S3 copies no larger object in one request."""
BLOCK = 8 * MIB
TABLES = frozenset({"METADATA", "__TACOCAT__", ".tacocat"})
"""Folders of a data set that hold its index."""
_AT_ONCE = 12
_AHEAD = 256 * MIB
_CHECKSUM = "sha256"
"""Name of the metadata that hold the SHA-256 of an object."""

_NO_BUCKET = ObjectNotFoundError, "the bucket of the target does not exist", "check name and region"
CHANGED = ConflictError, "another writer has changed the target meanwhile", "run it again"
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


class StoreObject:
    """A key in a store, for one writer."""

    def __init__(
        self,
        place: StorePath,
        told: Callable[[int], object] = lambda _: None,
        *,
        going_on: bool = False,
    ) -> None:
        self.place = place
        self._told, self._going_on = told, going_on
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
            raise self.error(CHANGED)
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
                raise self.error(CHANGED)
            return self._made(path, size, seen, path, **parts)
        most = self.most()
        if most is not None and size > most:
            raise too_large(cast("Path", self.place))
        place = self.place.with_name(next_name(self.place.name))
        hidden = StoreObject(place, self._told)
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
            with closing(completed(put, parts, _AT_ONCE)) as sent:
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
        if stopped():
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
            return self.error(CHANGED)
        return self.error(_OTHERS) if self._going_on else existing(cast("Path", self.place))

    def _told_of(self, path: Any, *, digest: bool) -> dict[str, str]:
        """What is kept beside the bytes of a file; no checksum where it would be lost."""
        kind = mimetypes.guess_type(self.place.name)[0] or "application/octet-stream"
        told = {_CHECKSUM: digest_of(path, "sha256").hex()} if digest else {}
        if self._config.cache_control is not None:
            grows = self.key.endswith((".json", ".html")) or TABLES & {*self.key.split("/")}
            told["Cache-Control"] = "no-cache" if grows else self._config.cache_control
        return {"Content-Type": kind, **told}

    def _blocks(self, path: Any) -> Iterator[bytes]:
        """The bytes of a file; an error once nobody waits any more, for requests do not end."""
        with path.open("rb") as file:
            for block in iter(partial(file.read, BLOCK), b""):
                if stopped():
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
    blocks = iter(partial(one.read, BLOCK), b"")
    return all(other.read(len(block)) == block for block in blocks) and not other.read(1)


def _version(meta: ObjectMeta) -> dict[str, str]:
    """What a store compares: ETag, version or both."""
    values = {"e_tag": meta["e_tag"], "version": meta["version"]}
    return {name: value for name, value in values.items() if value is not None}
