"""An open container: where its metadata lies, its levels, and where the bytes of a sample are.

A container is one of the four forms of TACO 2.0, 6: a ZIP, a folder, or an index over ZIPs as one
file or as a folder. It is opened by its bytes and reads nothing more until it is asked to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from comal.errors import (
    NotThisFormatError,
    ObjectNotFoundError,
    UnsupportedVersionError,
    shown,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import Head, Piece, run
from comal.public import warn
from comal.samples.filters import Filter
from comal.storage import Source
from comal.storage.httpwire import PAGE, PAGE_HINT, is_page
from comal.storage.local import bind
from comal.table import ParquetTable
from comal.taco import spec, wire
from comal.taco.reading.level import Level
from comal.taco.reading.origin import Origin
from comal.taco.spec import TacoWarning

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Container:
    """One container, opened.

    It holds no connection and no lock: it may be used from several threads, survives a fork, and
    its pickle reopens nothing.

    Parameters
    ----------
    source
        The ZIP, the folder or the index.
    opened
        What the opening plan returned.
    base
        Folder with the ZIPs of an index; None means beside the index.
    """

    def __init__(
        self,
        source: Source,
        opened: wire.Opened,
        *,
        base: Source | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.origin = Origin(source, opened, base, limits)
        self.source = source
        self.base = base
        self.limits = limits
        self.opened = opened
        self.collection: dict[str, Any] = opened.collection
        self.pit = spec.PITSchema.from_dict(
            self.collection.get(spec.PIT_SCHEMA), where=f"{source.href}: {spec.COLLECTION}"
        )
        levels: list[Level] = []
        for footer in opened.footers:
            table = ParquetTable(source, footer, known=opened.pieces, limits=limits)
            levels.append(Level(self.origin, table, levels[-1] if levels else None))
        self.levels = tuple(levels)
        self.masks: dict[Filter, npt.NDArray[np.bool_]] = {}
        """What filters over deeper levels matched; kept here for all views of the container."""

    def __reduce__(self) -> tuple[Any, ...]:
        opened = self.opened
        slim = wire.Opened(
            opened.container, opened.collection, opened.footers, opened.header, (), opened.problems
        )
        return _rebuild, (self.source, slim, self.base, self.limits)

    @property
    def kind(self) -> wire.Container:
        """Which of the four forms this is."""
        return self.origin.kind

    @property
    def is_index(self) -> bool:
        """Whether rows name the ZIP that holds them (6.5)."""
        return self.origin.is_index

    @property
    def name(self) -> str:
        """The last part of the location, as `internal:source_file` shows it in a concatenation."""
        return self.source.href.partition("?")[0].rstrip("/").rpartition("/")[2]

    @property
    def known(self) -> Sequence[Piece]:
        """What opening fetched of the container's own object."""
        return self.origin.known

    def part(self, source_file: str | None) -> Source:
        """The ZIP that a row names, or the container itself."""
        return self.origin.part(source_file)

    def directory(self, source_file: str | None = None) -> Any:
        """The central directory of the ZIP, or of the ZIP that a row of an index names."""
        return self.origin.directory(source_file)

    @property
    def source_codes(self) -> dict[str, int]:
        """A number for each ZIP of an index, in the order in which level 0 names them."""
        return self.levels[0].source_codes

    def read_hrefs(self) -> list[str]:
        """What is read: the container, and of an index the ZIPs that its rows name."""
        parts = self.source_codes if self.is_index else ()
        return [self.source.href, *(self.part(name).href for name in parts)]

    def close(self) -> None:
        """Let go of what the sources hold."""
        self.origin.close()


def _rebuild(source: Source, opened: wire.Opened, base: Source | None, limits: Limits) -> Container:
    return Container(source, opened, base=base, limits=limits)


# -- opening by the bytes --------------------------------------------------------------------------


def open_container(
    source: Source,
    *,
    base: Source | None = None,
    tail: int = wire.DEFAULT_TAIL,
    limits: Limits = DEFAULT_LIMITS,
) -> Container:
    """Open whatever container lies at `source`; its bytes decide, names do not.

    A file is a ZIP or a ``__TACOCAT__``; a folder is an index when it is named ``.tacocat`` or
    holds one, else a dataset in FOLDER form.

    Raises
    ------
    ObjectNotFoundError
        Nothing is there.
    NotThisFormatError
        Something else is there; what it is, is named where comal knows it.
    UnsupportedVersionError
        Another major version of TACO.
    InvalidMetadataError
        A container that is broken.
    """
    if _is_folder(source):
        container = _open_folder(source, base, tail, limits)
    else:
        try:
            opened = run(wire.open_plan(source.href, tail=tail, limits=limits), source.fetch)
        except NotThisFormatError as error:
            named = _named(source, error)
            if named is error:
                raise  # an error that is its own cause cannot be pickled by every library
            raise named from error
        except ObjectNotFoundError as missing:
            # A prefix in an object store is no object, and HTTP cannot say which it is.
            if "://" not in source.href:
                raise
            try:
                container = _open_remote_folder(source, base, limits)
            except ObjectNotFoundError:
                raise missing from None
        else:
            container = Container(source, opened, base=base, limits=limits)
    _check_version(container)
    for problem in container.opened.problems:
        warn(f"{problem.place}: {problem.message}", TacoWarning)
    return container


def _is_folder(source: Source) -> bool:
    if not source.location.is_local:
        last = source.href.rstrip("/").rpartition("/")[2]
        return source.href.endswith("/") or last == spec.TACOCAT_FOLDER
    return source.stat().is_dir


def _open_folder(source: Source, base: Source | None, tail: int, limits: Limits) -> Container:
    if source.href.rstrip("/").rpartition("/")[2] == spec.TACOCAT_FOLDER:
        try:
            return _read_folder(source, "tacocat-folder", base, limits)
        except ObjectNotFoundError as missing:
            raise _no_folder(source, spec.COLLECTION, missing) from None
    if not source.location.is_local:
        return _open_remote_folder(source, base, limits)
    names = set(source.names())
    if f"{spec.TACOCAT_FOLDER}/" in names:
        inner = source.child(spec.TACOCAT_FOLDER)
        return _read_folder(inner, "tacocat-folder", base or source, limits)
    if spec.TACOCAT in names:
        return open_container(
            source.child(spec.TACOCAT), base=base or source, tail=tail, limits=limits
        )
    if spec.COLLECTION not in names:
        raise NotThisFormatError(
            "not a TACO dataset",
            where=source.href,
            found="a folder",
            expected=f"{spec.COLLECTION} or {spec.TACOCAT_FOLDER} in it",
        )
    return _read_folder(source, "folder", base, limits)


def _open_remote_folder(source: Source, base: Source | None, limits: Limits) -> Container:
    """Find out by asking for what each kind of folder must hold."""
    try:
        return _read_folder(source, "folder", base, limits)
    except ObjectNotFoundError as missing:
        try:
            inner = source.child(spec.TACOCAT_FOLDER)
            return _read_folder(inner, "tacocat-folder", base or source, limits)
        except ObjectNotFoundError:
            expected = f"{spec.COLLECTION} or {spec.TACOCAT_FOLDER}"
            raise _no_folder(source, expected, missing) from None


def _no_folder(source: Source, expected: str, missing: ObjectNotFoundError) -> ObjectNotFoundError:
    """The error that names the folder which the caller gave, not a file that it should hold."""
    return ObjectNotFoundError(
        "no dataset in this folder",
        where=source.href,
        expected=f"{expected} in it",
        **missing.fields,
    )


def _read_folder(
    source: Source, kind: wire.Container, base: Source | None, limits: Limits
) -> Container:
    bind(source, spec.COLLECTION)
    plan = wire.open_folder_plan(source.href, container=kind, limits=limits)
    return Container(source, run(plan, source.fetch), base=base, limits=limits)


_HEAD = 64
_OTHERS = {
    b"#y": "a Tortilla or TACO 1 file",
    b"WX": "a Tortilla or TACO 1 file",
    b"PAR1": "a Parquet file",
}


def _named(source: Source, error: NotThisFormatError) -> NotThisFormatError:
    """The error, with what the file is where its first bytes tell."""
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


def _check_version(container: Container) -> None:
    version = container.collection.get("taco_version")
    if not spec.version_is_readable(version):
        raise UnsupportedVersionError(
            "unknown version of TACO",
            where=f"{container.source.href}: {spec.COLLECTION}",
            found=shown(version),
            expected="0.5.0 or 2.x",
        )
