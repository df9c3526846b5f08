"""Versions of objects, the `Source` interface, and local files.

The first version of an object that is seen is remembered: versions are never mixed.

A `LocalSource` opens and closes a file for each fetch, which costs some microseconds and leaves no
descriptor to leak, inherit or pickle. For readers of thousands of small ranges, a `HeldFile` stays
open. It keeps the version that was opened, even if another file takes its name;
`HeldFile.current` checks that. Files are not memory-mapped, so a shrinking file raises an error
and no signal.
"""

from __future__ import annotations

import os
import stat as modes
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from comal.errors import (
    ComalError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    UnsafeContentError,
    of_system,
)
from comal.limits import KIB
from comal.parallel import in_thread
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole
from comal.storage.coalesce import neighbours
from comal.storage.config import StorageConfig
from comal.storage.gdal import vsi_path
from comal.storage.location import Location

if TYPE_CHECKING:
    from comal.storage.wrappers import RangeFile

Ints = npt.NDArray[np.int64]
_LARGEST = 2**63 - 1
# A folder data set may have millions of objects. Its indexes are opened first and stay pinned;
# leaves beyond this number are single reads, each checked against itself.
_MOST_PINS = 16_384

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# One pread returns at most this much on Linux (0x7ffff000 bytes); anything below will do.
_MOST = 1 << 30
# Neighbouring spans are read together: bytes of one read, and largest gap between two spans.
_RUN = 256 * KIB
_GAP = 4 * KIB
_FEW = 8


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Size and version of one object; versions differ in size, `etag` or `modified`."""

    href: str
    """Normalised URL, without user, password and query, or absolute path."""
    size: int
    """Size in bytes; 0 for a folder."""
    etag: str | None = None
    """A strong entity tag or a version, where the storage gives one."""
    modified: int | None = None
    """Time of the last change in nanoseconds since 1970, UTC."""
    is_dir: bool = False
    """Whether this is a folder, or a prefix of objects."""
    variant: str = field(default="", repr=False)
    """Distinguishes objects whose URLs differ only in their query."""

    @property
    def has_version(self) -> bool:
        """Whether it differs from the info of another object of the same size."""
        return self.etag is not None or self.modified is not None


class Pins:
    """The first versions seen, by href, shared by a source and the sources made from it."""

    def __init__(self) -> None:
        self._seen: dict[str, ObjectInfo] = {}
        self.whole: Location | None = None
        """A file whose version is that of the whole folder; see `bind`."""

    def get(self, href: str) -> ObjectInfo | None:
        """The version of an object that was seen first."""
        return self._seen.get(href)

    def seen(self) -> list[ObjectInfo]:
        """The versions that were seen first, by href."""
        return [self._seen[href] for href in sorted(self._seen.copy())]

    def expect(self, info: ObjectInfo) -> None:
        """Remember a version that was seen before, such as in a listing."""
        self._seen[info.href] = info

    def check(self, info: ObjectInfo, where: object) -> ObjectInfo:
        """Remember a first version, or compare a later one with it.

        Raises
        ------
        ObjectChangedError
            When the version differs from the remembered one.
        """
        # No lock, which a fork could leave held: `setdefault` is atomic.
        first = self._seen.get(info.href)
        if first is None:
            first = self._seen.setdefault(info.href, info) if len(self._seen) < _MOST_PINS else info
        if not same_version(first, info):
            raise changed(where, first, info)
        return first

    def __getstate__(self) -> dict[str, Any]:
        return {"_seen": self._seen.copy(), "whole": self.whole}


def same_version(first: ObjectInfo, second: ObjectInfo) -> bool:
    """Whether two infos are of one version, as far as they show.

    Strong entity tags decide; unless both have one, the modification time does, to the second,
    which is the resolution of HTTP. The size always counts.
    """
    if first.size != second.size or first.is_dir != second.is_dir:
        return False
    if first.etag is not None and second.etag is not None:
        return first.etag == second.etag
    if first.modified is not None and second.modified is not None:
        return first.modified // 10**9 == second.modified // 10**9
    return True


def changed(where: object, first: ObjectInfo, second: ObjectInfo | None) -> ObjectChangedError:
    """The error for an object that is no longer the one that was opened."""
    return ObjectChangedError(
        "the object changed while it was read",
        where=str(where),
        found=_version_text(second) if second else None,
        expected=_version_text(first),
        hint="open it again to read the new version",
    )


def _version_text(info: ObjectInfo) -> str:
    version = f", version {info.etag}" if info.etag else ""
    return f"{info.size} bytes{version}"


# -- observers ------------------------------------------------------------------------------------
# Observers are context variables, so that a count works through wrappers and across threads, and
# excludes everybody else's reads.


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the storage: a range, or a question when `size` is 0."""

    href: str
    """The object, absolute."""
    offset: int
    """First byte; negative for the last bytes of an object of unknown size."""
    size: int
    """Number of requested bytes."""
    kind: str = "get"
    """``get``, ``stat`` or ``list``."""
    ranges: int = 1
    """Number of ranges; `offset` is that of the first, `size` the sum of all."""


Observer = Callable[[Request], None]

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Report every request that is made in this context to `observer`, which is thread-safe."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def report(href: str, offset: int, size: int, kind: str = "get", ranges: int = 1) -> None:
    """Report one request to the observers of this context."""
    observers = _observers.get()
    if observers:
        request = Request(href, offset, size, kind, ranges)
        for observer in observers:
            observer(request)


# -- sources --------------------------------------------------------------------------------------


class Closing(ABC):
    """Closes itself when its ``with`` block ends, even by an error."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Source(Closing):
    """A pinned view of one location and of the objects below it.

    The empty `href` is the location itself, any other is a relative path below it. The version of
    an object (entity tag, version, or size and time) is remembered at its first response, and bytes
    of another version are never returned. Sources may be used from several threads, survive a fork
    and can be pickled together with the versions they remember.

    Subclasses implement `fetch`, `stat`, `names` and `at`; all else follows from these. Every
    method raises `UnsafeContentError` for an `href` that is not a relative path below the
    location, `ObjectNotFoundError` for a missing object, `AccessDeniedError`, `StorageError` when
    the storage fails and `ObjectChangedError` when the object is no longer the same.
    """

    def __init__(self, location: Location, config: StorageConfig, pins: Pins | None = None) -> None:
        self.location = location
        self.href = location.href
        """The location: a normalised URL, or an absolute path; for people, without secrets."""
        self.config = config
        self.pins = pins if pins is not None else Pins()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location.label!r})"

    @abstractmethod
    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, in their order.

        Raises
        ------
        ShortReadError
            When an object ends before a `ByteRange` does.
        LimitExceededError
            When an object is larger than its `Whole` allows.
        NotThisFormatError
            When the location is a folder or no regular file.
        """

    async def fetch_async(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """As `fetch`, without blocking the event loop."""
        # Neither files nor urllib3 have an async interface of their own: a thread waits for them.
        return await in_thread(self.fetch, wanted)

    def fetch_spans(self, offsets: Ints, sizes: Ints, href: str = "") -> list[bytes]:
        """The bytes of many ranges of one object, in order; raises as `fetch` does."""
        pairs = zip(offsets.tolist(), sizes.tolist(), strict=True)
        ranges = [ByteRange(offset, size, href) for offset, size in pairs]
        return [piece.data for piece in self.fetch(ranges)]

    @abstractmethod
    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object, asking the storage if need be."""

    def known(self, href: str = "") -> ObjectInfo | None:
        """What is remembered of an object, without asking the storage."""
        return self.pins.get(self.resolve(href).href)

    @abstractmethod
    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the location or a folder in it, sorted; folders end in ``/``."""

    @abstractmethod
    def at(self, location: Location, *, fresh: bool = False) -> Self:
        """The source of another location of this origin, with the same settings.

        Parameters
        ----------
        fresh
            Whether to forget the versions that were seen before.
        """

    def resolve(self, href: str) -> Location:
        """The location of an object of this source."""
        return self.location.join(href) if href else self.location

    def child(self, href: str) -> Self:
        """The source of a location below this one."""
        return self.at(self.resolve(href))

    def sibling(self, name: str) -> Self:
        """The source of a location in the folder that holds this one."""
        return self.at(self.location.parent().join(name))

    def vsi(self, href: str = "") -> str:
        """The GDAL path of an object."""
        return vsi_path(self.resolve(href))

    def file(self, href: str = "", offset: int = 0, size: int | None = None) -> RangeFile:
        """A seekable binary file over an object or a span of it."""
        from comal.storage.wrappers import RangeFile  # noqa: PLC0415 - it imports this module

        return RangeFile(self, href, offset, size)

    def close(self) -> None:
        """Do nothing: connections belong to the process and serve every source.

        So a pickled copy opens nothing, and a forked child inherits nothing that it could break.
        """


def check_wanted(want: Wanted, where: object) -> None:
    """Refuse a negative or overflowing offset or size, which only broken content has."""
    size = want.limit if isinstance(want, Whole) else want.size
    offset = want.offset if isinstance(want, ByteRange) else 0
    if size < 0 or offset < 0 or offset > _LARGEST - size:
        raise InvalidMetadataError(
            "the byte range cannot exist", where=str(where), found=f"{offset}+{size}"
        )


def span_of(want: Wanted, total: int, where: object) -> tuple[int, int]:
    """Offset and size of `want` in an object of `total` bytes.

    Raises
    ------
    ShortReadError
        When the object ends before a `ByteRange` does.
    LimitExceededError
        When the object is larger than `Whole` allows.
    """
    if isinstance(want, ByteRange):
        if want.end > total:
            raise ShortReadError(
                "the object ends before the range",
                where=f"{where} (bytes {want.offset}+{want.size})",
                found=f"{total} bytes",
                expected=f"at least {want.end}",
            )
        return want.offset, want.size
    if isinstance(want, Head):
        return 0, min(want.size, total)
    if isinstance(want, Tail):
        size = min(want.size, total)
        return total - size, size
    if total > want.limit:
        raise too_large(where, total, want.limit)
    return 0, total


def too_large(where: object, found: int, limit: int) -> LimitExceededError:
    """The error for an object that is larger than its reader allows."""
    return LimitExceededError(
        "the object is larger than allowed",
        where=str(where),
        found=f"{found} bytes",
        expected=f"at most {limit}",
        hint="raise the limit if the source is trusted",
    )


# -- local files ----------------------------------------------------------------------------------


class LocalSource(Source):
    """A local file, or a folder of files.

    Names below the folder that was opened must be inside it after resolving symbolic links, unless
    the configuration sets `follow_symlinks`. Only regular files are opened: nothing blocks on a
    pipe or wakes a device.
    """

    def __init__(
        self,
        location: Location,
        config: StorageConfig,
        pins: Pins | None = None,
        root: str | None = None,
    ) -> None:
        super().__init__(location, config, pins)
        self.root = root or location.path
        self._real_root: str | None = None

    def at(self, location: Location, *, fresh: bool = False) -> LocalSource:
        """The source of another file or folder; paths below the same root must stay in it."""
        within = location.path == self.root or location.path.startswith(_folder(self.root))
        pins, root = None if fresh else self.pins, self.root if within else None
        return LocalSource(location, self.config, pins, root)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, in their order."""
        groups: dict[str, list[int]] = {}
        for index, want in enumerate(wanted):
            groups.setdefault(want.href, []).append(index)
        pieces: dict[int, Piece] = {}
        with self._whole():
            heard = bool(_observers.get())
            for href, indexes in groups.items():
                location = self.resolve(href)
                with self._reading(location) as (descriptor, info):
                    mine = [wanted[index] for index in indexes]
                    found = _pieces(descriptor, mine, info, location, heard=heard)
                pieces.update(zip(indexes, found, strict=True))
        return [pieces[index] for index in range(len(wanted))]

    def fetch_spans(self, offsets: Ints, sizes: Ints, href: str = "") -> list[bytes]:
        """The bytes of many ranges of one file, in order; neighbours come in one read."""
        if len(offsets) < _FEW or _observers.get():
            return super().fetch_spans(offsets, sizes, href)
        location = self.resolve(href)
        with self._whole(), self._reading(location) as (descriptor, info):
            if bool(((offsets < 0) | (sizes < 0) | (offsets > info.size - sizes)).any()):
                return super().fetch_spans(offsets, sizes, href)  # which raises the right error
            return _spans(descriptor, offsets, sizes, location)

    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of a file, or that it is a folder."""
        location = self.resolve(href)
        with _translated("cannot read", location):
            status = os.stat(location.path)  # noqa: PTH116 - paths are strings throughout
            self._check_inside(location, location.path)
        if modes.S_ISDIR(status.st_mode):
            return ObjectInfo(location.href, 0, None, status.st_mtime_ns, is_dir=True)
        _check_regular(status, location)
        return self.pins.check(_info(location, status), location)

    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the folder, sorted; folders end in ``/``."""
        location = self.resolve(prefix)
        with _translated("cannot list", location):
            self._check_inside(location, location.path)
            descriptor = os.open(location.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                with os.scandir(descriptor) as entries:
                    found = sorted(entry.name + "/" * entry.is_dir() for entry in entries)
                listed, there = os.fstat(descriptor), os.stat(location.path)  # noqa: PTH116
            finally:
                os.close(descriptor)
        if (listed.st_dev, listed.st_ino) != (there.st_dev, there.st_ino):
            # The listed folder is being removed, and some entries may be gone already.
            raise _replaced(location, "the folder was replaced while it was listed")
        return found

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Check that reads in the block are of the version of the folder that was opened."""
        try:
            yield
        except (ObjectNotFoundError, UnsafeContentError):
            self._check_whole()  # it was moved away while it was read
            raise
        self._check_whole()

    def _check_whole(self) -> None:
        location = self.pins.whole
        if location is not None:
            with _translated("cannot read", location):
                status = os.stat(location.path)  # noqa: PTH116 - paths are strings throughout
            self.pins.check(_info(location, status), location)

    @contextmanager
    def _reading(self, location: Location) -> Iterator[tuple[int, ObjectInfo]]:
        with _translated("cannot read", location):
            descriptor, info = self.opened(location)
            try:
                yield descriptor, info
                # The file must be unchanged after the reads.
                after = _info(location, os.fstat(descriptor))
                if after != info:
                    raise changed(location, info, after)
            finally:
                os.close(descriptor)

    def opened(self, location: Location) -> tuple[int, ObjectInfo]:
        """A descriptor, which the caller closes, and its version; system errors pass."""
        # Checked before opening, because opening alone can wake a device.
        status = os.stat(location.path)  # noqa: PTH116
        _check_regular(status, location)
        descriptor = os.open(location.path, _FLAGS)
        try:
            status = os.fstat(descriptor)
            _check_regular(status, location)
            self._check_inside(location, f"/proc/self/fd/{descriptor}")
            return descriptor, self.pins.check(_info(location, status), location)
        except BaseException:  # whatever it is, nobody else would close the descriptor
            os.close(descriptor)
            raise

    def _check_inside(self, location: Location, path: str) -> None:
        if self.config.follow_symlinks or location.path == self.root:
            return
        real = _real_path(path, location.path)
        if real == location.path and real.startswith(_folder(self.root)):
            return  # no symbolic link in the path
        if self._real_root is None:
            self._real_root = _folder(os.path.realpath(self.root))
        if not real.startswith(self._real_root):
            if os.path.realpath(location.path).startswith(self._real_root):
                # The name is inside the folder: the opened file has been moved out of it since.
                raise _replaced(location, "the folder was replaced while it was read")
            raise UnsafeContentError(
                "a symbolic link leads out of the folder",
                where=location.label,
                expected="files inside the folder that was opened",
                hint="pass StorageConfig(follow_symlinks=True) if the folder is trusted",
            )


def bind(source: Source, name: str) -> None:
    """Use the version of one file as that of the whole folder, if the folder is local.

    A folder may be replaced while its files are read one after the other. Once `name` is another
    version, reads raise `ObjectChangedError` instead of mixing two versions.
    """
    if source.location.is_local:
        source.pins.whole = source.resolve(name)


@contextmanager
def _translated(what: str, location: Location) -> Iterator[None]:
    try:
        yield
    except ComalError:
        raise
    except FileNotFoundError as error:
        raise ObjectNotFoundError("no such file or folder", where=location.label) from error
    except OSError as error:
        raise of_system(error, what, location.label) from error


def _replaced(location: Location, what: str) -> ObjectChangedError:
    return ObjectChangedError(
        what, where=location.label, hint="open it again to read the new version"
    )


def _real_path(path: str, name: str) -> str:
    # The system knows the path of an open file; a link may have been exchanged in the meantime.
    if path is not name:
        with suppress(OSError):
            return os.readlink(path)  # noqa: PTH115 - paths are strings throughout
    return os.path.realpath(name)


def _folder(path: str) -> str:
    """The prefix of all paths below a folder."""
    return path.rstrip("/") + "/"


def _check_regular(status: os.stat_result, location: Location) -> None:
    if not modes.S_ISREG(status.st_mode):
        folder = modes.S_ISDIR(status.st_mode)
        raise NotThisFormatError(
            "not a regular file",
            where=location.label,
            found="a folder" if folder else "a pipe, socket or device",
        )


def _info(location: Location, status: os.stat_result) -> ObjectInfo:
    version = f"{status.st_dev:x}-{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"
    return ObjectInfo(location.href, status.st_size, version, status.st_mtime_ns)


def _pieces(
    descriptor: int, wanted: Sequence[Wanted], info: ObjectInfo, location: Location, *, heard: bool
) -> list[Piece]:
    pieces = []
    for want in wanted:
        # The fast path, such as for ten thousand samples at once.
        if type(want) is ByteRange and want.offset >= 0 and 0 <= want.size <= _MOST:
            offset, size = want.offset, want.size
            if offset + size <= info.size and not heard:
                data = os.pread(descriptor, size, offset)
                if len(data) == size:
                    pieces.append(Piece(data, offset, info.size))
                    continue
        check_wanted(want, location)
        offset, size = span_of(want, info.size, location)
        if heard:
            report(location.href, offset, size)
        pieces.append(Piece(_pread(descriptor, offset, size, location), offset, info.size))
    return pieces


def _spans(descriptor: int, offsets: Ints, sizes: Ints, location: Location) -> list[bytes]:
    starts, ends = offsets.tolist(), (offsets + sizes).tolist()
    found: list[bytes] = []
    for first, stop in neighbours(offsets, sizes, _GAP, _RUN):
        begin = starts[first]
        data = _pread(descriptor, begin, ends[stop - 1] - begin, location)
        if stop - first == 1:
            found.append(data)
            continue
        pairs = zip(starts[first:stop], ends[first:stop], strict=True)
        found += [data[start - begin : end - begin] for start, end in pairs]
    return found


def _pread(descriptor: int, offset: int, size: int, location: Location) -> bytes:
    parts: list[bytes] = []
    left = size
    while left:
        data = os.pread(descriptor, min(left, _MOST), offset + size - left)
        if len(data) == size:
            return data
        if not data:
            raise ShortReadError(
                "the object ends before the range",
                where=f"{location.label} (bytes {offset}+{size})",
                found=f"{size - left} bytes of it",
                expected=size,
            )
        parts.append(data)
        left -= len(data)
    return b"".join(parts)


class HeldFile:
    """An open descriptor of one version of a file. It closes with the last reference to it.

    Reads have no position, so that threads and forked processes may share it.
    """

    __slots__ = ("_descriptor", "_source", "info")

    def __init__(self, source: LocalSource) -> None:
        self._descriptor = -1
        self._source = source
        with _translated("cannot open", source.location):
            self._descriptor, self.info = source.opened(source.location)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly the bytes ``offset .. offset + size``.

        Raises
        ------
        ShortReadError
            The file ends before that; it was truncated while open.
        StorageError
            The disk fails.
        """
        try:
            data = os.pread(self._descriptor, size, offset)
        except OSError:
            pass  # raised below, at no cost if all is well
        else:
            if len(data) == size:
                return data
        with _translated("cannot read", self._source.location):
            return _pread(self._descriptor, offset, size, self._source.location)

    def check_unchanged(self) -> None:
        """Raise `ObjectChangedError` if the opened file itself was written to since.

        A file that has lost its name to another is unchanged. The check is cheap enough for every
        read.
        """
        status = os.fstat(self._descriptor)
        if status.st_mtime_ns != self.info.modified or status.st_size != self.info.size:
            raise changed(self._source.location, self.info, _info(self._source.location, status))

    def read_unchanged(self, offset: int, size: int) -> bytes:
        """`read` and `check_unchanged` in one."""
        if offset >= 0:
            info, descriptor = self.info, self._descriptor
            try:
                data, status = os.pread(descriptor, size, offset), os.fstat(descriptor)
            except OSError:
                pass  # raised below, at no cost if all is well
            else:
                same = status.st_mtime_ns == info.modified and status.st_size == info.size
                if same and len(data) == size:
                    return data
        data = self.read(offset, size)
        self.check_unchanged()
        return data

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, of this version and no other; as `Source.fetch`."""
        location = self._source.location
        with _translated("cannot read", location):
            # The bytes that open a file are read once; an unfinished update may be cut off then.
            return _pieces(self._descriptor, wanted, self.info, location, heard=True)

    def current(self) -> bool:
        """Whether this version still has the name under which it was opened."""
        try:
            status = os.stat(self._source.location.path)  # noqa: PTH116 - a string throughout
        except OSError:
            return False
        return same_version(self.info, _info(self._source.location, status))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def held(source: Source) -> HeldFile | None:
    """The file at `source` kept open, or None if it is not a plain local file.

    A counting or caching source is not a plain one: its reads must go through it.
    """
    return HeldFile(source) if isinstance(source, LocalSource) else None
