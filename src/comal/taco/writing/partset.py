"""The archives of one dataset on their way to the disk, and the set whose place they take."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from comal.errors import ComalError, ConflictError, InvalidMetadataError, shown
from comal.names import illegal
from comal.plan import run
from comal.storage import open_source
from comal.storage.targets import TargetFile, TargetSet
from comal.taco import spec, wire
from comal.taco.model.sources import Payloads, local_paths
from comal.taco.writing import kinds

_NUMBER = re.compile(r"(?P<stem>.+)_part\d{4,}")

_IN_NAME = re.compile(r"_part\d{4,}")


class PartSet:
    """What is there when a set of archives begins, and what there is to be when it ends.

    With the new archives, parts of the set that is replaced go which no new part replaces: whoever
    reads all parts by a pattern would mix them with the new ones. Of each it is known from its
    bytes that it was a part.

    Parameters
    ----------
    dataset
        Id of the collection.
    targets
        What is written; it appears together.
    """

    def __init__(self, dataset: str, targets: TargetSet) -> None:
        self.made: list[Path] = []
        """Archives that are complete, by the names that they will have."""
        self.targets = targets
        self._dataset = dataset
        self._old: list[Path] = []
        self._sources: set[str] = set()
        self._listed: set[str] = set()

    def expect(self, paths: Iterable[Path]) -> None:
        """Look at names that are to be written, before anything is.

        Raises
        ------
        ConflictError
            One is there and may not be replaced.
        """
        for path in paths:
            self.targets.check(path.name, kinds.ZIP)

    def expect_index(self) -> None:
        """As `expect`, for both forms of an index."""
        self.targets.check(spec.TACOCAT_FOLDER, kinds.INDEX_FOLDER, folder=True)
        self.targets.check(spec.TACOCAT, kinds.INDEX)

    def archive(self, path: Path) -> AbstractContextManager[TargetFile]:
        """An archive that is to be written."""
        return self.targets.file(path.name, kinds.ZIP)

    def staged(self) -> list[Path]:
        """Where the archives are that are complete."""
        return [self.targets.folder / path.name for path in self.made]

    def replace(self, part: Path, planned: Collection[Path] = ()) -> None:
        """Look at the set that `part` is, or will be, a part of.

        Parameters
        ----------
        part
            Any part of the set.
        planned
            Parts that will be written for sure.

        Raises
        ------
        ConflictError
            Parts are there and may not be replaced; or a file that may be left over has the name of
            a part, and is none of this dataset.
        """
        old = _named_alike(part)
        self.expect(old)
        for path in old:
            if path not in planned:
                self._prove(path)
        self._old += old
        self._refuse_sources()

    def replace_listed(self, target: Path) -> None:
        """Look at the set that the index beside `target` lists, when that is to be replaced.

        The name of a group's archive does not tell that it is one. So those count which the index
        lists, which are named after `target`, and whose bytes say that they are of this dataset;
        all other files stay.
        """
        for name in _listed(target.absolute().parent):
            path = target.with_name(name)
            if name.startswith(f"{target.stem}_") and self._is_own(path):
                self._old.append(path)
                self._listed.add(name)

    def read(self, payloads: Payloads) -> None:
        """Look at samples before they are read.

        Raises
        ------
        ConflictError
            One comes from a file of a set that is replaced.
        """
        for path in local_paths(payloads):
            start = path.rfind("/") + 1
            if _IN_NAME.search(path, start) or (self._listed and path[start:] in self._listed):
                self._sources.add(os.path.realpath(path))
        self._refuse_sources()

    def _refuse_sources(self) -> None:
        for path in self._old:
            if os.path.realpath(path) in self._sources:
                raise ConflictError("the target is the source", where=shown(path, 200))

    def publish(self) -> list[Path]:
        """Give everything its name, and let go what is left of the old set."""
        for path in dict.fromkeys(self._old):
            self.targets.remove(path.name, kinds.ZIP)
        return self.targets.publish()

    def _prove(self, path: Path) -> None:
        try:
            found = _collection(path).get("id")
        except ComalError as error:
            raise self._stranger(path, error.what) from error
        if found != self._dataset:
            raise self._stranger(path, f"the dataset {shown(found)}")

    def _is_own(self, path: Path) -> bool:
        try:
            found: Any = _collection(path).get("id")
        except ComalError:
            return False
        return bool(found == self._dataset)

    def _stranger(self, path: Path, found: str) -> ConflictError:
        return ConflictError(
            "a file that is no part of this dataset has the name of one",
            where=shown(path, 200),
            found=found,
            expected=f"a part of {shown(self._dataset)}",
            hint="remove it, or choose another name",
        )


def _collection(path: Path) -> dict[str, Any]:
    """The collection of an archive or of a ``__TACOCAT__``."""
    if path.is_symlink():
        raise InvalidMetadataError("a link is no part", where=shown(path, 200))
    with open_source(path) as source:
        return run(wire.open_plan(source.href), source.fetch).collection


def _listed(folder: Path) -> list[str]:
    """Names of the archives that the index in a folder is over; none where that is broken."""
    try:
        sources = _collection(folder / spec.TACOCAT).get(spec.SOURCES)
    except ComalError:
        return []
    files = sources.get("files") if isinstance(sources, dict) else None
    names = files if isinstance(files, list) else []
    return [name for name in names if isinstance(name, str) and not illegal(name)]


def _named_alike(part: Path) -> list[Path]:
    """Existing files that have the name of a part of the same set."""
    found = _NUMBER.fullmatch(part.stem)
    assert found is not None, "parts have names of parts"
    alike = re.compile(re.escape(found["stem"]) + r"_part\d{4,}" + re.escape(part.suffix))
    folder = part.absolute().parent
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [part.with_name(name) for name in names if alike.fullmatch(name)]
