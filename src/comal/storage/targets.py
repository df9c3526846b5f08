"""Atomic writing of a file, a folder or several files: target names only show finished ones.

A target is a path, or a key in a store: then everything is written into a folder for temporary
files, and `comal.storage.upload` publishes it.

Output is written under a hidden name in the same folder, made durable and published by one step
that replaces nothing, or, with `overwrite`, the old target as a whole. Any failure, Ctrl-C and
SIGTERM leave the target as it was and nothing beside it. What SIGKILL leaves has a name derived
from the target's, and the next writer of the target removes it (`comal.storage.targetlock`).

Only an archive of the writer's own `Kind` is replaced, and of a folder only the archive's files.
Anything else at the target is kept, and named in a `ConflictError`.
"""

from __future__ import annotations

import io
import os
import re
import stat as modes
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from comal.errors import (
    AccessDeniedError,
    ComalError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    ObjectNotFoundError,
    StorageError,
    of_system,
    shown,
    shown_path,
    system_errors,
)
from comal.limits import MIB
from comal.storage import location
from comal.storage.config import StorageConfig
from comal.storage.location import STORE_SCHEMES, StorePath, parse_href, stored
from comal.storage.opening import open_source
from comal.storage.replacing import settle, state_of
from comal.storage.targetlock import (
    CHANGE,
    JOURNAL,
    LOCK,
    PART,
    LeftoverWarning,
    Owns,
    discard,
    flush_file_system,
    hidden,
    is_free,
    is_hidden,
    leftovers,
    locked,
    named,
    next_versions,
    own_files,
    owner_of,
    publish_set,
    remove_left,
    remove_own,
    rename_new,
    set_aside,
    set_names,
    strangers,
    sync,
)
from comal.storage.wrappers import RangeFile

_BUFFER = MIB


# -- kinds of targets ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of archive that a writer makes, and how to recognise one that may be replaced."""

    name: str
    """Name with its article: ``a RaQuet file``."""
    claim: Callable[[Path], Owns | None]
    """Which files below a folder are the archive's own, or None if it is not an archive of this
    kind. For a file only the latter matters. Errors of comal mean the same as None."""


def file_kind(name: str, test: Callable[[BinaryIO], bool]) -> Kind:
    """The kind of files that pass a test of their bytes."""

    def claim(path: Path) -> Owns | None:
        remote = isinstance(path, StorePath)
        with RangeFile(open_source(path)) if remote else path.open("rb") as file:
            return _everything if test(cast("BinaryIO", file)) else None

    return Kind(name, claim)


def magic_kind(name: str, *magics: bytes) -> Kind:
    """The kind of files that begin with one of these."""
    longest = max(map(len, magics))
    return file_kind(name, lambda file: file.read(longest).startswith(magics))


def _everything(_: str) -> bool:
    return True


def not_as_written(name: str, found: object, expected: object) -> InvalidMetadataError:
    """The error for a part of a new file that reads back differently, before it is published."""
    return InvalidMetadataError(
        "the written file does not match its rows",
        where=shown(name),
        found=found,
        expected=expected,
        hint="this is a bug in comal: nothing was published; please report it",
    )


NOTHING = Kind("nothing", lambda _: None)
"""For a writer that replaces only empty files and folders."""

TIFF = magic_kind("a TIFF file", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

_HEAD = 512


def _signature(head: bytes) -> bytes:
    """The common mark of files of one kind: their first bytes, or that they are text."""
    return head[:3] if b"\0" in head else b"text"


def like(head: bytes) -> Kind:
    """The kind of files that begin like `head`."""
    wanted = _signature(head[:_HEAD])
    return file_kind("a file of the same kind", lambda file: _signature(file.read(_HEAD)) == wanted)


# -- checks of targets -----------------------------------------------------------------------------


def check_target(
    target: Path, kind: Kind, *, folder: bool, overwrite: bool, sources: Any = ()
) -> Owns:
    """Refuse a target that may not be replaced; returns which of the files below it may go.

    Raises `ConflictError` if it is a link, not an archive of this kind, holds files that are not
    the archive's, is or holds a source, or exists without `overwrite`; `AccessDeniedError` if it is
    read-only.
    """
    refuse_sources(target, sources)
    try:
        status = target.lstat()
    except FileNotFoundError:
        return _everything
    _refuse_form(target, status.st_mode, folder=folder)
    if not overwrite:
        raise existing(target)
    if not status.st_mode & 0o222:
        raise _read_only(target)
    if _is_empty(target, status):
        return _everything
    owns = claimed(target, kind, folder=folder)
    if folder:
        _refuse_changing(target)
        _refuse_strangers(target, owns)
    return owns


def claimed(target: Path, kind: Kind, *, folder: bool = False) -> Owns:
    """Which files of an existing target are those of a kind; `ConflictError` if it is another."""
    owns, found = None, ""
    try:
        owns = kind.claim(target)
    except PermissionError as error:
        raise AccessDeniedError(
            "the target cannot be read", where=shown_path(target), found=error.strerror
        ) from error
    except (ComalError, OSError, ValueError) as error:
        found = error.what if isinstance(error, ComalError) else str(error)
    if owns is None:
        if folder:
            found = f"{found}; it holds " * bool(found) + named(target, lambda _: False)
        raise ConflictError(
            "the target is of another kind than what is written",
            where=shown_path(target),
            found=found or "something else",
            expected=kind.name,
            hint="remove it yourself, or choose another name",
        )
    return owns


def existing(target: Path) -> ConflictError:
    """The error for a target that exists and may not be replaced."""
    return ConflictError(
        "the target exists",
        where=shown_path(target),
        hint="pass overwrite=True to replace it, or choose another name",
    )


def too_large(target: Path) -> LimitExceededError:
    """The error for a new object that S3 cannot make from a hidden one."""
    return LimitExceededError(
        "a new object in S3 may have 5 GiB with these settings of the store",
        where=shown_path(target),
        hint="let the bucket encrypt by itself and name its endpoint in the settings or in "
        "AWS_ENDPOINT_URL, or write several: split_size= of TACO, chunk_size= of Tortilla, "
        "raquet.partition",
    )


def refuse_full(folder: Path, target: Path, size: int) -> None:
    """Refuse a target that will take `size` bytes or more if the disk of a folder has less room."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return
    free = disk.f_frsize * (disk.f_bavail if os.geteuid() else disk.f_bfree)
    if disk.f_blocks and size > free:  # some network disks tell no size
        raise StorageError(
            "the disk has no room for the target",
            where=shown_path(target),
            found=f"{free} bytes free in {shown_path(folder)}",
            expected=f"{size} or more",
            hint="make room on the disk, or write to another one",
        )


def refuse_sources(target: Path, sources: Any, *, inside: bool = False) -> None:
    """Refuse a target that is a source, contains one, or is inside one.

    Sources are a path or URL, an object with one as its `href`, or a list of such; others pass.
    With `inside`, the target may be in a source folder, if the reader skips it.
    """
    remote = isinstance(target, StorePath)
    real = os.fspath(target) if remote else os.path.realpath(target)
    for path in _named(sources, remote=remote):
        what = ""
        if path == real or (not remote and _is_same(path, real)):
            what = "the target is the source"
        elif path.startswith(real + os.sep):
            what = "the target holds the source"
        elif not inside and real.startswith(path + os.sep) and (remote or os.path.isdir(path)):  # noqa: PTH112 - a string
            what = "the target lies in the source"
        if what:
            raise ConflictError(
                what,
                where=shown_path(target),
                found=shown(path, 200),
                hint="a source is never replaced; choose another name",
            )


def _named(sources: Any, *, remote: bool) -> Iterator[str]:
    """The URLs of remote sources, or the real paths of local ones."""
    for href in _hrefs(sources):
        text = href.removeprefix("file://")
        # What is neither a path nor a URL, such as a name of GDAL, is refused by its reader.
        with suppress(ValueError):
            if text and ("://" in text) is remote:
                yield parse_href(text).href.rstrip("/") if remote else os.path.realpath(text)


def _hrefs(source: Any) -> Iterator[str]:
    if isinstance(source, list | tuple):
        for one in source:
            yield from _hrefs(one)
        return
    if not isinstance(source, str | os.PathLike):
        source = getattr(source, "href", None)
        yield from _hrefs(source) if isinstance(source, list | tuple) else ()
    if isinstance(source, str | os.PathLike):
        yield os.fsdecode(source)


def _is_same(path: str, real: str) -> bool:
    """Whether two names are links to one file."""
    with suppress(OSError, ValueError):
        return Path(path).samefile(real)
    return False


def _refuse_form(target: Path, mode: int, *, folder: bool) -> None:
    if modes.S_ISLNK(mode):
        raise ConflictError(
            "the target is a link",
            where=shown_path(target),
            found=shown(os.readlink(target), 200),  # noqa: PTH115 - as it is written
            hint="name what it leads to, or remove the link",
        )
    if folder is modes.S_ISDIR(mode) and (folder or modes.S_ISREG(mode)):
        return
    what = "a folder" if modes.S_ISDIR(mode) else "a file" if modes.S_ISREG(mode) else "no file"
    raise ConflictError(
        f"the target is {what}",
        where=shown_path(target),
        expected="a folder" if folder else "a file",
        hint="choose another name",
    )


def _is_empty(target: Path, status: os.stat_result) -> bool:
    if modes.S_ISREG(status.st_mode):
        return status.st_size == 0
    with os.scandir(target) as entries:
        return next(entries, None) is None


def _read_only(target: Path) -> AccessDeniedError:
    return AccessDeniedError(
        "the target is read-only",
        where=shown_path(target),
        hint=f"run chmod u+w {shown_path(target)}, or choose another name",
    )


def _refuse_changing(target: Path) -> None:
    if state_of(target / CHANGE) == "running":
        raise ConflictError(
            "another writer is changing the target",
            where=shown_path(target),
            hint="wait until it has finished, or choose another name",
        )


def _refuse_strangers(target: Path, owns: Owns) -> None:
    found = named(target, owns)
    if found:
        raise ConflictError(
            "the folder holds files that do not belong to the archive",
            where=shown_path(target),
            found=found,
            hint="move them away, or choose another name",
        )


_ELSEWHERE: Final = re.compile(
    r"\.(?:csv|geojson|jp2|jpe?g|json|mbtiles|nc|parquet|pmtiles|png|taco|tacozip|tiff?|tortilla"
    r"|vrt|webp|zip)"
)
"""File name extensions of formats."""


def check_ending(target: str | os.PathLike[str], *own: str) -> None:
    """Refuse a target with the extension of another format; unknown extensions are fine.

    `own` are the extensions of this format, such as ``.tif``; none for a folder.
    """
    path = target if isinstance(target, Path) else target_path(target)
    ending = path.suffix.lower()
    if ending not in own and _ELSEWHERE.fullmatch(ending):
        raise InvalidInputError(
            "the name of the target is that of another format",
            where=shown_path(path),
            found=ending,
            expected=" or ".join(own) if own else "the name of a folder",
            hint="choose another name, or use what writes this format",
        )


# -- files, folders and sets ----------------------------------------------------------------------


class TargetFile(io.BufferedRandom):
    """A file that gets its name when its block ends without an error; see `new_file`."""

    def __init__(self, raw: _WatchedFile, path: Path, target: Path, scope: ExitStack) -> None:
        super().__init__(raw, _BUFFER)
        self.most = raw.most
        """The size that the target may have; None if it is not limited."""
        self.path = path
        """Where the bytes are until then."""
        self.target = target
        """The name that the file will have."""
        self._scope = scope

    def expect(self, size: int) -> None:
        """Refuse a size, or a lower bound of it, that is known before the work.

        `LimitExceededError` for what S3 refuses, `StorageError` for what the disk has no room for.
        """
        if self.most is not None and size > self.most:
            raise too_large(self.target)
        refuse_full(self.path.parent.parent, self.target, size)

    def folder(self) -> Path:
        """A new folder for temporary files; removed when the block ends."""
        with system_errors("cannot make a temporary folder", self.target):
            work = Path(tempfile.mkdtemp(dir=self.path.parent))
        self._scope.callback(_discard_quietly, work)
        return work

    def spool(self) -> BinaryIO:
        """A nameless temporary file on the same disk, closed and deleted when the block ends."""
        try:
            with tempfile.TemporaryFile(buffering=0, dir=self.path.parent) as nameless:
                raw = _WatchedFile(os.dup(nameless.fileno()), self.target)
        except OSError as error:
            raise _not_written("cannot make a temporary file", self.target.parent, error) from error
        spooled = io.BufferedRandom(raw, _BUFFER)
        self._scope.callback(_close_quietly, spooled)
        return cast("BinaryIO", spooled)


@contextmanager
def new_file(
    path: str | os.PathLike[str],
    overwrite: bool = False,  # noqa: FBT001, FBT002
    kind: Kind = NOTHING,
    sources: Any = (),
) -> Iterator[TargetFile]:
    """Write a file that appears complete or not at all; buffered, readable and seekable too.

    With `overwrite` an existing file of this `kind` is replaced at the end, as a whole. `sources`
    are never replaced: a path or URL, an object with one as its `href`, or a list of such.

    Raises
    ------
    ConflictError
        When the target exists and may not be replaced, or somebody else is writing it.
    AccessDeniedError
        When the target is read-only.
    InvalidInputError
        When the target is neither a local path nor a key in a store.
    ObjectNotFoundError
        When the target's folder or bucket does not exist.
    StorageError
        When the disk is full or fails, raised by the write that fails; or the store fails.
    """
    with new_set(path, overwrite, sources) as made:
        with made.file(made.target.name, kind) as file:
            yield file
        made.publish()


def write_note(path: str | os.PathLike[str], data: bytes, kind: Kind) -> None:
    """Write a small file of which the last version counts; in a store by a single request.

    Raises as `new_file`, of whose checks a store makes none.
    """
    place = stored(path)
    if place is not None:
        from comal.storage.storeobject import StoreObject  # noqa: PLC0415 - as in `new_set`

        StoreObject(place).put(data)
        return
    with new_file(path, True, kind) as file:
        file.write(data)


def give(file: Path, target: Path, kind: Kind, *, overwrite: bool) -> None:
    """Give a finished file, which is on the disk of the target, the name of the target.

    `overwrite`, `kind` and errors as for `new_file`, but it takes no lock.
    """
    place = stored(target)
    if place is not None:
        from comal.storage.storeobject import StoreObject  # noqa: PLC0415 - as in `new_set`

        found = StoreObject(place)
        seen = found.meta() if overwrite else None
        if seen is not None and seen["size"]:
            claimed(target, kind)
        found.publish(file, seen, [])
        return
    with system_errors("cannot write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
    check_target(target, kind, folder=False, overwrite=overwrite)
    with system_errors("cannot write", target):
        _publish_file(file, target)


@contextmanager
def new_folder(
    path: str | os.PathLike[str],
    overwrite: bool = False,  # noqa: FBT001, FBT002
    kind: Kind = NOTHING,
    sources: Any = (),
) -> Iterator[Path]:
    """Write a folder that appears complete or not at all; yields an empty hidden one to fill.

    With `overwrite` an existing folder is replaced at the end. It must be an archive of this
    `kind`, or empty, and hold no file that is not the archive's. All else, and errors, as for
    `new_file`.
    """
    with new_set(path, overwrite, sources) as made:
        part = made.add(made.target.name, kind, folder=True)
        with system_errors("cannot create", made.target):
            part.mkdir()
        yield part
        made.publish()


def publish_folder(part: Path, target: Path, owns: Owns) -> None:
    """Move the finished folder with the target's name from `part` to the target.

    Only files that it `owns` are removed of an old one. Raises `StorageError` if the new folder is
    in place, but something of the old one is left.
    """
    if os.path.lexists(target):
        _replace(part, {target.name: owns}, [])
    else:
        _publish_new(part / target.name, target)


def _replace(part: Path, owns: Mapping[str, Owns], gone: Sequence[str]) -> None:
    """Publish these names from `part` as a set, and remove the own files of old folders."""
    home = part.parent
    old = {name: own_files(home / name, owns[name]) for name in owns if (home / name).is_dir()}
    publish_set(part, list(owns), gone)
    for name, mine in old.items():
        _remove_old(part / name, home / name, mine)


def _remove_old(old: Path, target: Path, owns: Owns) -> None:
    """Remove an old folder's own files; files added meanwhile are kept and named."""
    for _ in range(2):  # a second try, as an obstacle may be gone by then
        remove_own(old, owns)
        if not os.path.lexists(old):
            return
    has_strangers = next(strangers(old, owns), None) is not None
    kept = set_aside(old, target) if has_strangers else old
    raise StorageError(
        "the new folder is in place, but not all files of the old one could be removed",
        where=shown_path(target),
        found=shown_path(kept),
        hint="look through what is left there, then remove it",
    )


class TargetSet:
    """Files and folders that get their names together; see `new_set`."""

    def __init__(self, folder: Path, target: Path, *, overwrite: bool, sources: Any) -> None:
        self.folder = folder
        """Where they are until then, under their final names."""
        self.target = target
        self._home = target.parent
        self._overwrite, self._sources = overwrite, sources
        self._kinds: dict[str, Kind] = {}
        self._folders: set[str] = set()
        self._gone: list[str] = []

    def add(self, name: str, kind: Kind, *, folder: bool = False) -> Path:
        """Announce a file or folder; returns the path to write. Errors as for `new_file`."""
        self.check(name, kind, folder=folder)
        self._kinds[name] = kind
        if folder:
            self._folders.add(name)
        return self.folder / name

    def expect(self, size: int) -> None:
        """Refuse bytes of all together, or a lower bound, for which the disk has no room."""
        refuse_full(self.folder.parent, self.target, size)

    @contextmanager
    def file(self, name: str, kind: Kind) -> Iterator[TargetFile]:
        """As `add`, and opened for writing; on the disk when the block ends without an error."""
        part, target = self.add(name, kind), self._home / name
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with ExitStack() as scope:
            try:
                raw = _WatchedFile(os.open(part, flags, 0o666), target, self._most(name))
            except OSError as error:
                raise _not_written("cannot create", target, error) from error
            file = TargetFile(raw, part, target, scope)
            scope.callback(_close_quietly, file)
            yield file
            _finish(file)

    def _most(self, name: str) -> int | None:  # noqa: ARG002 - of a store
        """The largest size that a file may have."""
        return None

    def rename(self, file: TargetFile, name: str) -> None:
        """Rename a written file that was announced under another name."""
        old = file.target.name
        self.check(name, self._kinds[old])
        self._kinds = {name if one == old else one: kind for one, kind in self._kinds.items()}
        with system_errors("cannot write", self.target):
            file.path = file.path.rename(self.folder / name)
        file.target = file.target.with_name(name)

    def remove(self, name: str, kind: Kind) -> None:
        """Remove a file of the old set on publishing, unless it is replaced."""
        self.check(name, kind)
        self._gone.append(name)

    def publish(self) -> list[Path]:
        """Publish all of them, in the order in which they were announced.

        Raises `StorageError` if that failed and could not be undone.
        """
        owns = {
            name: self.check(name, kind, folder=name in self._folders)
            for name, kind in self._kinds.items()
        }
        try:
            self._publish(owns)
        except BaseException as error:
            if (self.folder / JOURNAL).exists():
                where = shown_path(self.target)
                raise StorageError(
                    "only a part of the set is in place, and this could not be undone",
                    where=where,
                    found=str(error),
                    hint=f"run 'comal clean {where}', or write the set again",
                ) from error
            if isinstance(error, OSError) and not isinstance(error, ComalError):
                raise _not_written("cannot write", self.target, error) from error
            raise
        return [self._home / name for name in owns]

    def _publish(self, owns: dict[str, Owns]) -> None:
        home, first = self._home, next(iter(owns))
        gone = [name for name in self._gone if name not in owns]
        alone = len(owns) == 1 and not gone
        if alone and not self._folders:
            _publish_file(self.folder / first, home / first)
            return
        flush_file_system(self.folder)
        if alone:
            publish_folder(self.folder, home / first, owns[first])
        else:
            _replace(self.folder, owns, gone)

    def check(self, name: str, kind: Kind, *, folder: bool = False) -> Owns:
        """Refuse a name whose file or folder may not be replaced; see `check_target`."""
        return check_target(
            self._home / name,
            kind,
            folder=folder,
            overwrite=self._overwrite,
            sources=self._sources,
        )


@contextmanager
def new_set(
    path: str | os.PathLike[str],
    overwrite: bool = False,  # noqa: FBT001, FBT002
    sources: Any = (),
    *,
    earlier: Callable[[str], bool] | None = None,
) -> Iterator[TargetSet]:
    """Write several files and folders side by side that appear together or not at all.

    The lock of `path` is that of the set. They appear by `TargetSet.publish`; without it, all is
    discarded. `overwrite` and `sources` as for `new_file`. `earlier` is for what may have been
    written before: in a store, objects with the same bytes stay as they are, and others are
    replaced one by one where it says that a file or folder of this name is an earlier one of its
    own. Of a folder the documents go first and come last, so that nobody reads a mix.
    """
    target = target_of(path)
    place = stored(target)
    if place is not None:
        # Local targets need none of its libraries.
        from comal.storage.upload import new_store_set  # noqa: PLC0415

        how = {"overwrite": overwrite, "sources": sources, "earlier": earlier}
        with new_store_set(place, **how) as made:
            yield made
        return
    with locked(target), ExitStack() as scope:
        part = hidden(target, PART)
        try:
            part.mkdir()
        except FileExistsError as error:
            # We hold the lock, so this is a file system without locks.
            raise ConflictError(
                "another writer is at work on the target, or was killed",
                where=shown_path(target),
                found=shown_path(part),
                hint="if there is no other writer, remove the folder that was found",
            ) from error
        except OSError as error:
            raise _not_written("cannot create", target, error) from error
        scope.callback(_discard_set, part)
        yield TargetSet(part, target, overwrite=overwrite, sources=sources)


def _discard_set(part: Path) -> None:
    if not (part / JOURNAL).exists():  # left for `clean` if it could not be undone
        _discard_quietly(part)


def left_beside(path: str | os.PathLike[str]) -> list[Path]:
    """Leftovers of killed writers of a local target: beside it, in it, or of a set it is in."""
    target = Path(path).absolute()
    if not is_free(target) or any(state_of(at) == "running" for at in _journals(target)):
        return []
    return _left(target)


def _journals(target: Path) -> list[Path]:
    """Where journals of changes of the target may be: in it, or in a folder that holds it."""
    return [place / CHANGE for place in (target, *target.parents)]


def _left(target: Path) -> list[Path]:
    found = [*leftovers(target), *next_versions(target)]
    found += [journal for journal in _journals(target)[1:] if state_of(journal)]
    with suppress(OSError):
        parts = (one for one in target.parent.iterdir() if is_hidden(one.name))
        found += [one for one in parts if one not in found and target.name in set_names(one)]
    for place, folders, names in os.walk(target):
        hits = [name for name in (*folders, *names) if is_hidden(name)]
        paths = [Path(place) / name for name in hits if not name.endswith(LOCK)]
        found += [path for path in paths if is_free(owner_of(path))]
        folders[:] = [name for name in folders if name not in hits]
    return found


def clean(path: str | os.PathLike[str]) -> list[Path]:
    """Undo and remove what killed writers have left; returns the hidden paths that are gone.

    A change of several files that was decided is finished instead. Raises `ConflictError` if
    somebody is writing the target.
    """
    target = target_of(path)
    place = stored(target)
    if place is not None:
        # Local targets need none of its libraries.
        from comal.storage.growing import clean_growing  # noqa: PLC0415
        from comal.storage.upload import clean_store  # noqa: PLC0415

        return cast("list[Path]", [*clean_store(place), *clean_growing(place)])
    found = _left(target)
    for journal in found:
        if journal.name == CHANGE:
            settle(journal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftoverWarning)
        for left in found:
            own = left.parent == target.parent and not set_names(left)
            owner = target if own else owner_of(left)
            if os.path.lexists(left):
                with locked(owner):
                    remove_left(left, owner)
    return [*found, *_unlocked(target)]


def _unlocked(target: Path) -> Iterator[Path]:
    """Remove the locks of killed writers below a folder, each by taking it once."""
    for place, _, names in os.walk(target):
        for lock in (Path(place, name) for name in names if name.endswith(LOCK)):
            if is_hidden(lock.name):
                with suppress(ConflictError), locked(owner_of(lock)):
                    yield lock


def target_path(path: str | os.PathLike[str], config: Any = None) -> Path:
    """The path of a target as the caller wrote it, or in a store a `StorePath` with `config`.

    A `StorePath` counts as a path here: it has what writers use of one. Raises `InvalidInputError`
    if it is neither local nor in a store, or `config` is no `StorageConfig`.
    """
    if config is not None and not isinstance(config, StorageConfig):
        found = type(config).__name__
        raise InvalidInputError("not a configuration", found=found, expected="a StorageConfig")
    place = parse_href(path)
    if place.scheme not in STORE_SCHEMES:
        hint = "write it to this machine or to a store: s3://, gs:// or az://"
        return location.local_path(path, "the target", hint)
    own = path.config if isinstance(path, StorePath) else None
    return cast("Path", StorePath(place, own or config))


def target_of(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a target, which must have a name and a folder that exists."""
    target = target_path(path)
    remote = isinstance(target, StorePath)
    target = target if remote else Path(parse_href(target).path)
    if not target.name:
        raise InvalidInputError(
            "the target must have a name", where=shown_path(target), hint="add one after a slash"
        )
    if not remote and not target.parent.is_dir():
        raise ObjectNotFoundError(
            "the folder of the target does not exist",
            where=shown_path(target.parent),
            hint="make the folder first, or write to one that exists",
        )
    return target


def beside(target: Path) -> list[Path]:
    """Everything in the folder of a target, by name; in a store, objects only."""
    place = stored(target)
    if place is None:
        folder = target.absolute().parent
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    else:
        names = [one for one in open_source(place.parent).names() if not one.endswith("/")]
    return [target.with_name(name) for name in sorted(names)]


def _publish_file(part: Path, target: Path) -> None:
    """Rename a finished file to its target, which is free or may be replaced."""
    if os.path.lexists(target):
        part.replace(target)
        sync(target.parent)
    else:
        _publish_new(part, target)


def _publish_new(part: Path, target: Path) -> None:
    """Rename `part` to a free name."""
    try:
        rename_new(part, target)
    except FileExistsError as error:
        raise existing(target) from error
    try:
        sync(target.parent)
    except OSError:
        # The caller gets an error, so the name must not stay.
        target.rename(part)
        raise


class _WatchedFile(io.FileIO):
    """A raw file that raises our errors, which distinguish a full disk from other failures."""

    def __init__(self, descriptor: int, target: Path, most: int | None = None) -> None:
        super().__init__(descriptor, "r+b")
        self._target = target
        self.most = most

    def write(self, data: Any, /) -> int:
        if self.most is not None and self.tell() + len(data) > self.most:
            raise too_large(self._target)
        try:
            return super().write(data)
        except OSError as error:
            raise _not_written("cannot write", self._target, error) from error

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            raise _not_written("cannot write", self._target, error) from error


def _not_written(what: str, target: Path, error: OSError) -> ComalError:
    """An error of the system, not one of ours, as ours."""
    return of_system(error, what, shown_path(target), writing=True)


def _finish(file: TargetFile) -> None:
    """Make the bytes durable, even if the user has closed the file."""
    try:
        if file.closed:
            sync(file.path)
        else:
            file.flush()
            os.fsync(file.fileno())
            file.close()
    except ComalError:
        raise
    except OSError as error:
        raise _not_written("cannot write", file.target, error) from error


def _close_quietly(file: io.IOBase) -> None:
    # What cannot be written any more is thrown away anyway.
    with suppress(OSError, ValueError):
        file.close()


def _discard_quietly(path: Path) -> None:
    with suppress(OSError):
        discard(path)
