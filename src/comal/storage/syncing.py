"""Copying archives between disks and stores: what differs, compared, the index last.

Files count as equal if they were compared: by an ETag that is an MD5, by the SHA-256 that writers
put beside an object, or byte by byte. What was copied before a failure stays, and the next run
finds it equal.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple, cast

from comal.errors import (
    ComalError,
    ConflictError,
    ObjectNotFoundError,
    StorageError,
    UnsafeContentError,
    counted,
    shown,
    system_errors,
)
from comal.limits import MIB
from comal.parallel import completed, run_all, stopped
from comal.progress import Counter, Progress, telling
from comal.public import Summary, warn
from comal.storage import storeobject, targets, upload
from comal.storage.config import StorageConfig, default_config
from comal.storage.location import STORE_SCHEMES, Location, StorePath, parse_href
from comal.storage.multipart import holds, part_size
from comal.storage.opening import open_source
from comal.storage.replacing import state_of
from comal.storage.source import ObjectInfo, changed
from comal.storage.storeobject import StoreObject, plain_tag
from comal.storage.targetlock import CHANGE, is_hidden, locked
from comal.storage.upload import rank_of
from comal.storage.wrappers import RangeFile

_SMALL = 8 * MIB
"""Above this size, few files are copied at a time, and a store copies within itself."""
_MANY, _FEW = 16, 4
_BLOCK = 32 * MIB
_HEAD = 512
_MD5 = re.compile(r"[0-9a-f]{32}(-\d+)?")


@dataclass(frozen=True, slots=True)
class Amount:
    """Number and bytes of some files."""

    objects: int
    size: int


@dataclass(frozen=True, slots=True)
class Synced(Summary):
    """What `sync` did, or would do; `skipped` are hidden files of writers, on both sides."""

    new: Amount
    replaced: Amount
    equal: Amount
    deleted: Amount
    skipped: int


class _File(NamedTuple):
    size: int
    version: str
    """ETag without quotes, or version of a local file; empty where an HTTP server tells none."""


def _listed(meta: Any) -> _File:
    return _File(meta["size"], plain_tag(meta["e_tag"]))


def _folders(names: Iterable[str]) -> set[str]:
    """All folders above some files, below the top."""
    folders = {name.rpartition("/")[0] for name in names if "/" in name}
    return folders | {one[:end] for one in folders for end, mark in enumerate(one) if mark == "/"}


class _Side:
    """Source or target: one file, named by the empty text, or the files of a folder."""

    def __init__(self, place: Location, config: StorageConfig | None) -> None:
        self.place, self.config = place, config or default_config()
        self.is_local, self.is_stored = place.is_local, place.scheme in STORE_SCHEMES
        self._source = open_source(place, config=self.config)
        found = self._in_store() if self.is_stored else self._elsewhere()
        hidden = {name for name in found if any(map(is_hidden, name.split("/")))}
        self.skipped = len(hidden)
        self.files = {name: one for name, one in found.items() if name not in hidden}

    def _in_store(self) -> dict[str, _File]:
        top = self.object()
        there = top.meta() if top.key else None
        if there is not None:
            return {"": _listed(there)}
        found = top.below(_listed)
        folders = _folders(found)
        # Marks of folders are empty objects, listed without their slash.
        return {name: one for name, one in found.items() if one.size or name not in folders}

    def _elsewhere(self) -> dict[str, _File]:
        if not self.is_local and self.place.path.endswith("/"):
            self._source.names()  # an error: HTTP has no listing
        try:
            info = self._source.stat()
        except ObjectNotFoundError:
            return {}
        if not info.is_dir:
            return {"": _File(info.size, plain_tag(info.etag))}
        if state_of(self.path() / CHANGE):
            raise ConflictError(
                "a change of the folder is not finished",
                where=self.place.label,
                hint=f"wait for it, or run 'comal clean {self.place.label}' if it was killed",
            )
        return {name.removeprefix("./"): one for name, one in self._walk("./")}

    def _walk(self, above: str) -> Iterator[tuple[str, _File]]:
        for name in self._source.names(above):
            if name.endswith("/") and self.path(above + name).is_symlink():
                warn(f"a link to a folder is left out: {shown(self.path(above + name), 200)}")
            elif name.endswith("/"):
                yield from self._walk(above + name)
            else:  # an error if it is no file, or a link that leads out of the folder
                info = self._source.stat(above + name)
                yield above + name, _File(info.size, plain_tag(info.etag))

    def check_there(self) -> None:
        """Raise `ObjectNotFoundError` if there is neither a file nor a folder."""
        self._source.stat()

    def path(self, name: str = "") -> Path:
        """Where a file is, or the `StorePath` of an object."""
        place = self.place.child(name)
        return Path(place.path) if self.is_local else cast("Path", StorePath(place, self.config))

    def object(self, name: str = "", *more: Any) -> StoreObject:
        """An object of a store."""
        return StoreObject(cast("StorePath", self.path(name)), *more)

    @contextmanager
    def reading(self, name: str) -> Iterator[RangeFile]:
        """A file opened for reading, of the version that was listed and no other."""
        source = open_source(self.path(name)) if self.is_stored else self._source.child(f"./{name}")
        with source.file(size=self.files[name].size) as file:
            yield file
        self.check(name, source.known())

    def blocks(self, name: str, size: int = storeobject.BLOCK) -> Iterator[bytes]:
        """The bytes of a file; an error once nobody waits any more."""
        with self.reading(name) as file:
            for block in iter(partial(file.read, size), b""):
                if stopped():
                    raise ComalError("the copy was stopped", where=self.place.label)
                yield block

    def md5(self, name: str) -> bytes:
        """The MD5 of a file, which is read."""
        md5 = hashlib.md5(usedforsecurity=False)
        for block in self.blocks(name):
            md5.update(block)
        return md5.digest()

    def check(self, name: str, now: ObjectInfo | None = None) -> None:
        """Raise `ObjectChangedError` if a file is no longer what was listed."""
        if now is None and self.is_stored:
            meta = self.object(name).meta()
            now = ObjectInfo("", meta["size"], meta["e_tag"]) if meta else None
        elif now is None:
            now = open_source(self.place.child(name), config=self.config).stat()
        size, version = self.files[name]
        if now is None or plain_tag(now.etag) != version:
            raise changed(self.place.child(name), ObjectInfo("", size, version), now)

    def error(self, kind: type[ComalError], what: str, name: str, hint: str) -> ComalError:
        """An error about one of the files."""
        return kind(what, where=self.place.child(name).label, hint=hint)


def _same(one: _Side, other: _Side, name: str) -> bool:
    """Whether a file is the same on both sides; it is compared as cheaply as they allow."""
    size = one.files[name].size
    if size != other.files[name].size or not size:
        return size == other.files[name].size
    here, there = (one, other) if one.is_local else (other, one)
    with system_errors("cannot read", here.place.label, writing=False):
        told = _told(here, there, name) if there.is_stored else None
        if told is not None:
            return told
        blocks = zip_longest(one.blocks(name), other.blocks(name))
        return all(left == right for left, right in blocks)


def _told(here: _Side, there: _Side, name: str) -> bool | None:
    """Whether a file is the same by what stores tell; None if they tell too little."""
    tag, mine = there.files[name].version, here.files[name].version
    if here.is_local:
        path = here.path(name)
        if _MD5.fullmatch(tag) and (
            holds(tag, path, there.files[name].size)
            if _of_parts(tag)
            else storeobject.proves(tag, storeobject.digest_of(path, "md5"))
        ):
            return True
        told = there.object(name).checksum()
        return None if told is None else told == storeobject.digest_of(path, "sha256").hex()
    if not here.is_stored:
        return None
    for first, second in ((tag, mine), (mine, tag)):
        found = _MD5.fullmatch(first)
        if found and (
            first == second or (not found[1] and storeobject.proves(second, bytes.fromhex(first)))
        ):
            return True
    both = {here.object(name).checksum(), there.object(name).checksum()}
    if None not in both:
        return len(both) == 1
    if _of_parts(tag) == _of_parts(mine) or not (_MD5.fullmatch(tag) and _MD5.fullmatch(mine)):
        return None
    # The store has copied an object in parts as one: its ETag is proved by reading the other.
    whole, parted = (here, there) if _of_parts(tag) else (there, here)
    md5 = parted.md5(name)
    return storeobject.proves(whole.files[name].version, md5) or whole.md5(name) == md5


def _of_parts(tag: str) -> bool:
    """Whether an ETag is that of an object in several parts, and not the MD5 of the whole."""
    return tag[32:] not in ("", "-1")


class _Run:
    """Copies files one by one, from several threads."""

    def __init__(self, source: _Side, target: _Side, scratch: Path, told: Counter) -> None:
        self.source, self.target, self._scratch = source, target, scratch
        self._told = told

    def in_order(self, function: Callable[[str], None], side: _Side, names: Sequence[str]) -> None:
        """Call a function for some files of a side; what comes later waits for what comes before.

        Data are copied before the index that names them, and deleted after it.
        """
        back = side is self.target
        ranked = sorted(names, key=lambda name: (rank_of(name), name), reverse=back)
        for _, group in groupby(ranked, rank_of):
            small, large = list[str](), list[str]()
            for name in group:
                (large if side.files[name].size > _SMALL else small).append(name)
            for some, threads in ((small, _MANY), (large, _FEW)):
                run_all(function, some, threads)

    def copy(self, name: str) -> None:
        """Copy a file, and compare it."""
        if self.target.is_stored:
            self._to_store(name)
            return
        path, top = self.target.path(name), self.target.path()
        if name:
            real = Path(os.path.realpath(top.parent), top.name, name).parent
            if Path(os.path.realpath(path.parent)) != real:
                what, where = "a symbolic link leads out of the target", shown(path, 200)
                raise UnsafeContentError(what, where=where)
            with system_errors("cannot create", path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
        with targets.new_file(path, name in self.target.files, self._kind(name)) as file:
            self._fetch(name, file, self._told)
            if name in self.target.files:
                self.target.check(name)

    def _to_store(self, name: str) -> None:
        source, target, seen = self.source, self.target.object(name, self._told), None
        if name in self.target.files:
            seen = target.meta()
            if seen is None or _listed(seen) != self.target.files[name]:
                raise self._meanwhile(name)
            if seen["size"]:
                targets.claimed(self.target.path(name), self._kind(name))
        if seen is None and self._within(name):
            self._let_copy(name, target)
        elif source.is_local:
            path = source.path(name)
            try:
                with system_errors("cannot read", path, writing=False):
                    target.publish(path, seen, [], compare=True)
            finally:  # that it has changed says more than what came of it
                source.check(name)
        else:
            scratch = self._scratch
            with system_errors("cannot write", scratch), NamedTemporaryFile(dir=scratch) as file:
                self._fetch(name, file, lambda _: None)
                target.publish(Path(file.name), seen, [], compare=True)

    def _within(self, name: str) -> bool:
        """Whether the store copies a file itself; headers of the copy are not ours to choose.

        S3 copies it as one part. Where an upload from here would have the parts of its source, and
        so its ETag, no later run has to read them.
        """
        source, target = self.source, self.target
        if source.place.origin != target.place.origin or source.config != target.config:
            return False
        size, tag = source.files[name]
        if size <= _SMALL or target.config.cache_control is not None:
            return False
        parts = -(-size // part_size(size)) if size > storeobject.SINGLE else 1
        alike = _of_parts(tag) and tag[32:] == f"-{parts}"
        return source.place.scheme != "s3" or (size <= storeobject.COPIED and not alike)

    def _let_copy(self, name: str, target: StoreObject) -> None:
        target.copy(self.source.object(name).place, self.source.files[name].size)
        there = target.meta()
        if there is None:
            raise self._meanwhile(name)
        self.target.files[name] = _listed(there)
        if not _same(self.source, self.target, name):
            target.remove(there["e_tag"])
            raise self._damaged(name)
        self.source.check(name)

    def _kind(self, name: str) -> targets.Kind:
        """What may be replaced: a file by one of the same kind, and any in a folder."""
        if name:
            return targets.Kind("a file", lambda _: lambda _: True)
        with self.source.reading(name) as file:
            return targets.like(file.read(_HEAD))

    def _fetch(self, name: str, file: Any, told: Callable[[int], object]) -> None:
        """Write a file of the source, and compare what is there with what the source tells."""
        md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
        for block in self.source.blocks(name, _BLOCK):
            file.write(block)
            md5.update(block)
            sha256.update(block)
            told(len(block))
        file.seek(0)
        seen = {hashlib.file_digest(file, "sha256").hexdigest(), sha256.hexdigest()}
        if self.source.is_stored and not storeobject.proves(
            self.source.files[name].version, md5.digest()
        ):
            seen |= {self.source.object(name).checksum() or sha256.hexdigest()}
        if len(seen) > 1:
            raise self._damaged(name)

    def _meanwhile(self, name: str) -> ComalError:
        what = "another writer has changed the target meanwhile"
        return self.target.error(ConflictError, what, name, "run it again")

    def _damaged(self, name: str) -> ComalError:
        what = "the copy has other bytes than its source tells"
        return self.source.error(StorageError, what, name, "run it again")

    def delete(self, name: str) -> None:
        """Remove a file of the target that is what was listed, and folders that are empty then."""
        if self.target.is_stored:
            self.target.object(name).remove(self.target.files[name].version)
            return
        path, top = self.target.path(name), self.target.path()
        self.target.check(name)
        with system_errors("cannot remove", path):
            path.unlink()
        with suppress(OSError):
            for folder in path.parents[: len(path.parents) - len(top.parents) - 1]:
                folder.rmdir()


def sync(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    delete: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> Synced:
    """Copy an archive of any format between disks and stores: what differs, the index last.

    What is at the target and equal is kept, so that an interrupted run goes on. Each copy is
    compared with what was read.

    Parameters
    ----------
    source, target
        Path or URL of a file, or of a folder with all that is in it; over HTTP, a file as source.
    overwrite
        Replace files that differ, if they begin like their source. Without it they are an error,
        except an index of files that are all equal: a data set grows.
    delete
        In the end, remove files below the target that the source does not have.
    dry_run
        Compare only.
    progress
        Called with the progress, instead of a bar on the terminal.
    config
        Settings and credentials for both; a `StorePath` has its own.

    Returns
    -------
    Synced
        How many files and bytes are new, replaced, equal and deleted.

    Raises
    ------
    ConflictError
        A file differs, without `overwrite`; nothing is copied then. The target is of another kind,
        or overlaps with the source, or another writer is at work there.
    ObjectNotFoundError
        The source, or the bucket or folder of the target, does not exist.
    ObjectChangedError
        The source has changed meanwhile.
    """
    origin = parse_href(source)
    path = targets.target_of(targets.target_path(target, config))
    targets.refuse_sources(path, [source])
    targets.check_ending(path, *filter(None, [Path(origin.name).suffix.lower()]))
    with ExitStack() as scope:
        tell = scope.enter_context(telling(progress, quiet=False))
        here = _Side(origin, getattr(source, "config", None) or config)
        if not here.files:
            here.check_there()
            raise ObjectNotFoundError("there is nothing to copy", where=origin.label)
        place = parse_href(path)
        if "" not in here.files and place.is_local and not dry_run:
            scope.enter_context(locked(path))
        there = _Side(place, getattr(path, "config", None))
        equal, differ = _compared(here, there, tell)
        new = [name for name in here.files if name not in there.files]
        gone = [name for name in there.files if delete and name not in here.files]
        _refuse(there, {*equal}, differ, gone, overwrite=overwrite)
        amounts = (_amount(here, new), _amount(here, differ), _amount(here, equal))
        done = Synced(*amounts, _amount(there, gone), here.skipped + there.skipped)
        if not dry_run:
            scratch = scope.enter_context(upload.scratch_folder(there.config))
            told = Counter(tell, done.new.size + done.replaced.size, "copying bytes")
            run = _Run(here, there, scratch, told)
            run.in_order(run.copy, here, [*new, *differ])
            run.in_order(run.delete, there, gone)
    return done


def _amount(side: _Side, names: Sequence[str]) -> Amount:
    return Amount(len(names), sum(side.files[name].size for name in names))


def _compared(here: _Side, there: _Side, tell: Progress) -> tuple[list[str], list[str]]:
    """The names of files that are equal, and of those that differ."""
    if there.files and ("" in there.files) != ("" in here.files):
        form = "a file" if "" in there.files else "a folder"
        what = f"the target is {form}, the source is not"
        raise there.error(ConflictError, what, "", "choose another name")
    files = here.files.keys(), there.files.keys()
    if there.is_local and (clash := files[0] & _folders(files[1]) | files[1] & _folders(files[0])):
        what = "source and target have a file and a folder of this name"
        raise there.error(
            ConflictError, what, min(clash), "remove it there, or choose another name"
        )
    both = [name for name in here.files if name in there.files]
    equal, differ = list[str](), list[str]()
    named = completed(lambda name: (name, _same(here, there, name)), both, _MANY)
    with closing(named) as results:
        for number, (name, same) in enumerate(results, 1):
            (equal if same else differ).append(name)
            tell(number, len(both), "comparing")
    return equal, differ


def _refuse(
    there: _Side, equal: set[str], differ: list[str], gone: list[str], *, overwrite: bool
) -> None:
    data = [name for name in there.files if rank_of(name) == (0,)]
    if differ and not overwrite and not (data and equal.issuperset(data)):
        what = f"the target differs from the source in {counted(len(differ), 'file')}, such as this"
        hint = "pass overwrite=True to replace it, or choose another name"
        raise there.error(ConflictError, what, min(differ, key=rank_of), hint)
    if gone and not (equal or differ):
        what = "nothing is deleted, for the target shares no file with the source"
        raise there.error(ConflictError, what, "", "check the name, or delete it yourself")
