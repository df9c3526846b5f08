"""Files on this machine, read by pread.

A `LocalSource` opens a file for each fetch and closes it after it, which costs some microseconds
and leaves no descriptor to leak, to inherit or to pickle. For readers of thousands of small ranges
a `HeldFile` stays open. Who holds a file sees the version that was opened, also when another one
takes its name; `HeldFile.current` tells whether that has happened.

Nothing is mapped, so that a shrinking file is an error and no signal.
"""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from comal.errors import (
    AccessDeniedError,
    ComalError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    UnsafeContentError,
    translated,
)
from comal.limits import KIB
from comal.plan import ByteRange, Piece, Wanted
from comal.storage.coalesce import neighbours
from comal.storage.config import StorageConfig
from comal.storage.location import Location
from comal.storage.source import (
    Ints,
    ObjectInfo,
    Pins,
    Source,
    SourceWrapper,
    changed,
    check_wanted,
    is_observed,
    report,
    same_version,
    span_of,
)

ERRORS: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    NotADirectoryError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
}

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
# One pread returns at most this much on Linux (0x7ffff000 bytes); anything below will do.
_MOST = 1 << 30
# Of many spans, neighbours are read together: so many bytes, of which as few may lie between two.
_RUN = 256 * KIB
_GAP = 4 * KIB
_FEW = 8


class LocalSource(Source):
    """A local file, or a folder of files.

    Names below the folder that was opened must lie in it, symbolic links resolved, unless the
    configuration says `follow_symlinks`. Only regular files are opened: nothing blocks on a pipe
    or wakes a device.
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
        """The source of another file or folder; what lies below the same root stays in it."""
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
            heard = is_observed()
            for href, indexes in groups.items():
                location = self.resolve(href)
                with self._reading(location) as (descriptor, info):
                    mine = [wanted[index] for index in indexes]
                    found = _pieces(descriptor, mine, info, location, heard=heard)
                pieces.update(zip(indexes, found, strict=True))
        return [pieces[index] for index in range(len(wanted))]

    def fetch_spans(self, offsets: Ints, sizes: Ints, href: str = "") -> list[bytes]:
        """The bytes of many ranges of one file, in order; neighbours come in one read."""
        if len(offsets) < _FEW or is_observed():
            return super().fetch_spans(offsets, sizes, href)
        location = self.resolve(href)
        with self._whole(), self._reading(location) as (descriptor, info):
            if bool(((offsets < 0) | (sizes < 0) | (offsets > info.size - sizes)).any()):
                return super().fetch_spans(offsets, sizes, href)  # which says what is wrong
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
            # What was listed is on its way out, and some of it may be gone already.
            raise ObjectChangedError(
                "the folder was replaced while it was listed",
                where=location.label,
                hint="open it again to read the new version",
            )
        return found

    def open_descriptor(self) -> tuple[int, ObjectInfo]:
        """A descriptor of the file itself, which the caller closes, and what was opened."""
        location = self.location
        try:
            return self._open(location)
        except OSError:
            with _translated("cannot open", location):
                raise

    def info_of(self, status: os.stat_result) -> ObjectInfo:
        """What a status says of the file itself."""
        return _info(self.location, status)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """What is read meanwhile is of the version of the folder that was opened."""
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
            descriptor, info = self._open(location)
            try:
                yield descriptor, info
                # Only what is still the same after the reads was the same during them.
                after = _info(location, os.fstat(descriptor))
                if after != info:
                    raise changed(location, info, after)
            finally:
                os.close(descriptor)

    def _open(self, location: Location) -> tuple[int, ObjectInfo]:
        # Asked before opening, because opening alone can wake a device.
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
            return  # no link on the whole way
        if self._real_root is None:
            self._real_root = _folder(os.path.realpath(self.root))
        if not real.startswith(self._real_root):
            if os.path.realpath(location.path).startswith(self._real_root):
                # The name leads into the folder: what was opened was moved out of it since.
                raise ObjectChangedError(
                    "the folder was replaced while it was read",
                    where=location.label,
                    hint="open it again to read the new version",
                )
            raise UnsafeContentError(
                "a symbolic link that leads out of the folder",
                where=location.label,
                expected="files inside the folder that was opened",
                hint="pass StorageConfig(follow_symlinks=True) if the folder is trusted",
            )


def bind(source: Source, name: str) -> None:
    """Take the version of one file for that of the whole folder, where that is local.

    A folder is replaced as a whole while somebody reads one file of it after the other. Once
    another `name` is there, reads raise `ObjectChangedError` instead of mixing two versions.
    """
    while isinstance(source, SourceWrapper):
        source = source.source
    if isinstance(source, LocalSource):
        source.pins.whole = source.resolve(name)


@contextmanager
def _translated(what: str, location: Location) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectNotFoundError("no such file or folder", where=location.label) from error
    except OSError as error:
        # The words of the system, without its number and the path that stands before.
        with translated(ERRORS, what, where=location.label, found=error.strerror or str(error)):
            raise


def _real_path(path: str, name: str) -> str:
    # Of an open file the system tells which path it was; a link may be exchanged in the meantime.
    if path is not name:
        with suppress(OSError):
            return os.readlink(path)  # noqa: PTH115 - paths are strings throughout
    return os.path.realpath(name)


def _folder(path: str) -> str:
    """What the paths of all that lies in a folder begin with."""
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
    descriptor: int, wanted: list[Wanted], info: ObjectInfo, location: Location, *, heard: bool
) -> list[Piece]:
    pieces = []
    for want in wanted:
        # What reads ten thousand samples at once mostly comes by here.
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
    data = os.pread(descriptor, min(size, _MOST), offset)
    if len(data) == size:
        return data
    parts = [data]
    left = size - len(data)
    while left:
        data = os.pread(descriptor, min(left, _MOST), offset + size - left)
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
        self._descriptor, self.info = source.open_descriptor()

    def read(self, offset: int, size: int) -> bytes:
        """Exactly the bytes ``offset .. offset + size``.

        Raises
        ------
        ShortReadError
            The file ends before; it was cut while it was open.
        StorageError
            The disk fails.
        """
        try:
            data = os.pread(self._descriptor, size, offset)
        except OSError:
            pass  # it is told below, where it costs nothing while all is well
        else:
            if len(data) == size:
                return data
        return self._exactly(offset, size)

    def check_unchanged(self) -> None:
        """Raise `ObjectChangedError` when the opened file itself was written to since.

        One that has lost its name to another file is still what it was. Asking costs little
        enough for every read.
        """
        status = os.fstat(self._descriptor)
        if status.st_mtime_ns != self.info.modified or status.st_size != self.info.size:
            raise changed(self._source.location, self.info, self._source.info_of(status))

    def read_unchanged(self, offset: int, size: int) -> bytes:
        """`read` and `check_unchanged` in one."""
        if offset >= 0:
            info, descriptor = self.info, self._descriptor
            try:
                data, status = os.pread(descriptor, size, offset), os.fstat(descriptor)
            except OSError:
                pass  # it is told below, where it costs nothing while all is well
            else:
                same = status.st_mtime_ns == info.modified and status.st_size == info.size
                if same and len(data) == size:
                    return data
        data = self.read(offset, size)
        self.check_unchanged()
        return data

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, of this version and no other; as `Source.fetch`."""
        total, where = self.info.size, self._source.location
        pieces = []
        for want in wanted:
            check_wanted(want, where)
            offset, size = span_of(want, total, where)
            report(self.info.href, offset, size)
            # What opens a file is read once, and an unfinished update may be cut off meanwhile.
            pieces.append(Piece(self._exactly(offset, size), offset, total))
        return pieces

    def current(self) -> bool:
        """Whether this version still has the name under which it was opened."""
        try:
            status = os.stat(self._source.location.path)  # noqa: PTH116 - a string throughout
        except OSError:
            return False
        return same_version(self.info, self._source.info_of(status))

    def _exactly(self, offset: int, size: int) -> bytes:
        """The same by descriptor, however many reads it takes; its errors are ours."""
        with _translated("cannot read", self._source.location):
            return _pread(self._descriptor, offset, size, self._source.location)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def held(source: Source) -> HeldFile | None:
    """The file at `source` kept open, or None where it is no plain local file.

    A source that counts or caches is no plain one: its reads must go through it.
    """
    return HeldFile(source) if isinstance(source, LocalSource) else None
