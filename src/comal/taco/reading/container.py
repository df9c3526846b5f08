"""An open container: its metadata, its levels, and the objects that hold the bytes of samples.

A container is one of the four forms of TACO 2.0, 6: a ZIP, a folder, or an index over ZIPs as one
file or as a folder. The bytes tell which; more is read only on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from comal import strictjson, ziparchive
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    UnsafeContentError,
    UnsupportedVersionError,
    shown,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.names import illegal
from comal.parallel import cached_property
from comal.plan import Head, Whole, run
from comal.public import warn
from comal.samples.filters import Filter
from comal.storage import Source
from comal.storage.httpwire import PAGE, PAGE_HINT, is_page
from comal.storage.source import bind, changed, same_version
from comal.table import ParquetTable
from comal.table.read import Filtered
from comal.taco import spec, wire
from comal.taco.reading.level import Level
from comal.taco.spec import TacoWarning

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Opened = TypeVar("Opened")

INDEX_KINDS = frozenset({"tacocat", "tacocat-folder"})
_WIDE = 500_000
"""Rows of a level above which arrays of all rows are avoided."""
_REMEMBERED = 8


class Origin:
    """The location of a container and access to its bytes, without the tables of its levels.

    A level refers to this instead of its container, which refers to its levels: a reference cycle
    would keep the columns of an unused dataset in memory until the next garbage collection.

    `opened` is the result of the opening plan; `base` is the folder with the ZIPs of an index, None
    if they are beside it.
    """

    def __init__(
        self, source: Source, opened: wire.Opened, base: Source | None, limits: Limits
    ) -> None:
        self.source = source
        self.opened = opened
        self.base = base
        self.limits = limits
        self.kind: wire.Container = opened.container
        self.is_index = self.kind in INDEX_KINDS
        self._parts: dict[str, Source] = {}

    def part(self, source_file: str | None) -> Source:
        """The ZIP that a row names, or the container itself."""
        if source_file is None or not self.is_index:
            return self.source
        found = self._parts.get(source_file)
        if found is None:
            _refuse_illegal(source_file, spec.SOURCE_FILE, self.source.href)
            found = self._parts[source_file] = beside(self.source, self.base, source_file)
        return found

    def directory(self, source_file: str | None = None) -> Any:
        """The central directory of the ZIP, or of the ZIP that a row of an index names."""
        if source_file is None:
            return self._own_directory
        plan = ziparchive.directory_plan(limits=self.limits)
        return run(plan, self.part(source_file).fetch)

    @cached_property
    def _own_directory(self) -> Any:
        plan = ziparchive.directory_plan(limits=self.limits, known=self.opened.pieces)
        return run(plan, self.source.fetch)

    def vsi(self) -> str | None:
        """The GDAL path of the ZIP, or of the folder of an index's ZIPs with a trailing slash.

        None if GDAL cannot open it.
        """
        try:
            if not self.is_index:
                return self.source.vsi()
            if self.base is not None:
                return self.base.vsi().rstrip("/") + "/"
            return self.source.sibling("x").vsi()[:-1]
        except InvalidInputError:
            return None

    def close(self) -> None:
        """Release the resources of the sources."""
        for source in (self.source, *self._parts.values(), *([self.base] if self.base else [])):
            source.close()


def beside(source: Source, base: Source | None, name: str) -> Source:
    """The ZIP `name` of the index `source`, in the folder `base` or beside the index."""
    return source.sibling(name) if base is None else base.child(name)


def _refuse_illegal(name: str, what: str, where: str) -> None:
    reason = illegal(name)
    if reason is not None:
        raise UnsafeContentError(
            f"{what} is not a file name: it {reason}", where=where, found=shown(name)
        )


class Container:
    """An open container; the arguments are those of `Origin`.

    It holds no connection and no lock: it may be used from several threads, survives a fork, and
    unpickling it reopens nothing.
    """

    def __init__(
        self,
        source: Source,
        opened: wire.Opened,
        *,
        base: Source | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._origin = origin = Origin(source, opened, base, limits)
        self.source, self.base, self.limits, self.opened = source, base, limits, opened
        self.kind, self.is_index = origin.kind, origin.is_index
        self.part, self.directory = origin.part, origin.directory
        self.vsi, self.close = origin.vsi, origin.close
        self.name = source.location.name
        """The last part of the location, as `internal:source_file` shows it in a concatenation."""
        self.collection: dict[str, Any] = opened.collection
        self.pit = spec.PITSchema.from_dict(
            self.collection.get(spec.PIT_SCHEMA), where=f"{source.href}: {spec.COLLECTION}"
        )
        levels: list[Level] = []
        for footer in opened.footers:
            table = ParquetTable(source, footer, known=opened.pieces, limits=limits)
            levels.append(Level(origin, table, levels[-1] if levels else None))
        self.levels = tuple(levels)
        self.masks: dict[Filter, tuple[Level, npt.NDArray[np.bool_]]] = {}
        """Masks of filters over deeper levels, cached for all views of the container."""
        self._narrowed: dict[tuple[str, ...], Container] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(Container, base=self.base, limits=self.limits)
        return made, (self.source, replace(self.opened, pieces=()))

    @property
    def is_wide(self) -> bool:
        """Whether it is an index of so many rows that only those of the wanted ZIPs are read."""
        most = max(level.num_rows for level in self.levels)
        if not self.is_index or most <= _WIDE or isinstance(self.levels[0].table, Filtered):
            return False
        return not all(level.keeps_columns for level in self.levels)

    def only(self, names: Iterable[str | None]) -> Container:
        """The container, if wide with the rows of some ZIPs alone, which are numbered anew."""
        if not self.is_wide:
            return self
        wanted = tuple(sorted({name for name in names if name is not None}))
        found = self._narrowed.get(wanted)
        if found is None:
            levels: list[Level] = []
            for level in self.levels:
                table = level.table.only(level.groups_of(wanted))
                held = [name for name in level.stored if name in spec.PROTECTED_COLUMNS]
                rows = Filtered(table, spec.SOURCE_FILE, wanted, held)
                levels.append(Level(self._origin, rows, levels[-1] if levels else None))
            while len(self._narrowed) >= _REMEMBERED:
                self._narrowed.pop(next(iter(self._narrowed)), None)
            found = object.__new__(Container)  # not by `copy`, which would make a new origin
            found.__dict__.update(self.__dict__, levels=tuple(levels), masks={}, _narrowed={})
            self._narrowed[wanted] = found
        return found

    @property
    def source_codes(self) -> dict[str, int]:
        """A number for each ZIP of an index, in the order of level 0."""
        return self.levels[0].source_codes

    def read_hrefs(self) -> list[str]:
        """The hrefs of the container and, for an index, of the ZIPs that its rows name."""
        parts: Iterable[str] = self.source_codes if self.is_index and not self.is_wide else ()
        if self.is_wide:
            batches = self.levels[0].table.iter_batches([spec.SOURCE_FILE])
            parts = dict.fromkeys(n for one in batches for n in one.column(0).unique().to_pylist())
        return [self.source.href, *(self.part(name).href for name in parts)]


# -- opening by the bytes --------------------------------------------------------------------------


def open_container(
    source: Source,
    *,
    base: Source | None = None,
    tail: int = wire.DEFAULT_TAIL,
    limits: Limits = DEFAULT_LIMITS,
) -> Container:
    """Open the container at `source`, in any of its forms.

    A file is a ZIP or a ``__TACOCAT__``, by its bytes; a folder is an index if it is named
    ``.tacocat`` or holds one, else a dataset in FOLDER form.

    For something else the error names its format if comal knows it.
    """

    def file(at: Source, base: Source | None) -> Container:
        try:
            opened = run(wire.open_plan(at.href, tail=tail, limits=limits), at.fetch)
        except NotThisFormatError as error:
            named = _named(at, error)
            if named is error:
                raise  # some libraries cannot pickle an error that is its own cause
            raise named from error
        return Container(at, opened, base=base, limits=limits)

    def folder(at: Source, kind: wire.Container, base: Source | None) -> Container:
        bind(at, spec.COLLECTION)
        plan = wire.open_folder_plan(at.href, container=kind, limits=limits)
        found = Container(at, run(plan, at.fetch), base=base, limits=limits)
        counts = [level.num_rows for level in found.levels]
        if kind != "folder" and counts != [*map(found.pit.rows, range(found.pit.levels))]:
            _refuse_mixed(at)
        return found

    container = at_door(source, base, file, folder)
    _check_version(container.collection, f"{source.href}: {spec.COLLECTION}")
    for problem in container.opened.problems:
        warn(f"{problem.place}: {problem.message}", TacoWarning)
    return container


def _refuse_mixed(folder: Source) -> None:
    """Raise `ObjectChangedError` if the index was replaced while it was opened.

    Its objects change one by one in a store, the document first and last. What has other counts
    than its document, but the same document still, is as its writer has made it.
    """
    first = folder.stat(spec.COLLECTION)
    try:
        now = folder.at(folder.location, fresh=True).stat(spec.COLLECTION)
    except ObjectNotFoundError:
        now = None
    if now is None or not same_version(first, now):
        raise changed(folder.resolve(spec.COLLECTION), first, now)


def at_door(
    source: Source,
    base: Source | None,
    file: Callable[[Source, Source | None], Opened],
    folder: Callable[[Source, wire.Container, Source | None], Opened],
) -> Opened:
    """The result of `file` or `folder` for the container at `source`, depending on its form.

    A folder on disk is listed. A prefix in an object store is not an object, and HTTP does not
    know folders: there, the required files of each form are tried, and `folder` raises
    `ObjectNotFoundError` if there is no COLLECTION.json. An index that is being replaced has none
    for a moment; the one beside it is whole.
    """
    if source.href.rstrip("/").rpartition("/")[2] == spec.TACOCAT_FOLDER:
        try:
            return folder(source, "tacocat-folder", base)
        except ObjectNotFoundError as missing:
            raise _no_folder(source, spec.COLLECTION, missing) from None
    if source.location.is_local:
        return _at_local_door(source, base, file, folder)
    absent: ObjectNotFoundError | None = None
    if not source.href.endswith("/"):
        try:
            return file(source, base)
        except ObjectNotFoundError as error:
            absent = error
    try:
        return folder(source, "folder", base)
    except ObjectNotFoundError as missing:
        try:
            return folder(source.child(spec.TACOCAT_FOLDER), "tacocat-folder", base or source)
        except ObjectNotFoundError:
            with suppress(ObjectNotFoundError):
                return file(source.child(spec.TACOCAT), base or source)
            expected = f"{spec.COLLECTION} or {spec.TACOCAT_FOLDER}"
            raise absent or _no_folder(source, expected, missing) from None


def _at_local_door(
    source: Source,
    base: Source | None,
    file: Callable[[Source, Source | None], Opened],
    folder: Callable[[Source, wire.Container, Source | None], Opened],
) -> Opened:
    if not source.stat().is_dir:
        return file(source, base)
    names = set(source.names())
    if f"{spec.TACOCAT_FOLDER}/" in names:
        return folder(source.child(spec.TACOCAT_FOLDER), "tacocat-folder", base or source)
    if spec.TACOCAT in names:
        return file(source.child(spec.TACOCAT), base or source)
    if spec.COLLECTION not in names:
        raise NotThisFormatError(
            "not a TACO dataset",
            where=source.href,
            found="a folder",
            expected=f"{spec.COLLECTION} or {spec.TACOCAT_FOLDER} in it",
        )
    return folder(source, "folder", base)


def _no_folder(source: Source, expected: str, missing: ObjectNotFoundError) -> ObjectNotFoundError:
    """The error that names the caller's folder, not a file missing in it."""
    return ObjectNotFoundError(
        "no dataset in this folder",
        where=source.href,
        expected=f"{expected} in it",
        **missing.fields,
    )


_HEAD = 64
_OTHERS = {
    b"#y": "a Tortilla or TACO 1 file",
    b"WX": "a Tortilla or TACO 1 file",
    b"PAR1": "a Parquet file",
}


def _named(source: Source, error: NotThisFormatError) -> NotThisFormatError:
    """The error, with the format of the file if its first bytes show it."""
    if isinstance(error, UnsupportedVersionError):
        return error
    (head,) = source.fetch([Head(_HEAD)])
    if is_page(head.data):
        return NotThisFormatError(
            "not a TACO archive", where=source.href, found=PAGE, hint=PAGE_HINT
        )
    for magic, name in _OTHERS.items():
        if head.data.startswith(magic):
            return NotThisFormatError(
                "not a TACO 2 dataset",
                where=source.href,
                found=name,
                expected="TACO_HEADER at byte 30",
                hint="comal.open recognises every format",
            )
    if not head.data:
        return NotThisFormatError("not a TACO dataset", where=source.href, found="an empty file")
    return error


def _check_version(document: dict[str, Any], where: str) -> None:
    version = document.get("taco_version")
    if not spec.version_is_readable(version):
        raise UnsupportedVersionError(
            "unknown version of TACO",
            where=where,
            found=shown(version),
            expected="0.5.0 or 2.x",
        )


# -- TACOLLECTION ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Collected:
    """A collection document and the names of its datasets."""

    source: Source
    document: dict[str, Any]
    files: tuple[str, ...]
    base: Source | None

    def part(self, name: str) -> Source:
        """The dataset of this name, in the folder `base` or beside the document."""
        return beside(self.source, self.base, name)


def read_collected(
    source: Source, base: Source | None = None, limits: Limits = DEFAULT_LIMITS
) -> Collected | None:
    """The TACOLLECTION document at `source`; None if it is not JSON.

    Raises for JSON that names no datasets, such as the COLLECTION.json of a dataset.
    """
    (head,) = source.fetch([Head(_HEAD)])
    if not head.data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return None
    (piece,) = source.fetch([Whole(limits.json_bytes)])
    document = strictjson.loads(piece.data, source.href, limits)
    listed = document.get(spec.SOURCES)
    if listed is None:
        raise NotThisFormatError(
            "the JSON document names no datasets",
            where=source.href,
            expected=f"{spec.SOURCES}, as in a {spec.TACOLLECTION}",
            hint=f"to open a dataset in a folder, pass the folder that holds {spec.COLLECTION}",
        )
    _check_version(document, source.href)
    return Collected(source, document, _files(listed, source.href), base)


def _files(listed: Any, where: str) -> tuple[str, ...]:
    files = listed.get("files") if isinstance(listed, dict) else None
    texts = [name for name in files if isinstance(name, str)] if isinstance(files, list) else []
    if not texts or texts != files or len(set(texts)) < len(texts):
        raise InvalidMetadataError(
            f"{spec.SOURCES}.files is not a list of datasets",
            where=where,
            found=shown(files),
            expected="the names of the datasets, each once",
        )
    for name in texts:
        _refuse_illegal(name, f"an item of {spec.SOURCES}.files", where)
    return tuple(texts)
