"""One dataset as several archives: by size, or by the values of fields."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import ComalError, ConflictError, InvalidInputError, InvalidMetadataError, shown
from comal.limits import parse_size
from comal.names import illegal
from comal.plan import run
from comal.samples.payloads import Ints, Payloads
from comal.storage import open_source
from comal.storage.targets import TargetFile, TargetSet
from comal.taco import spec, wire
from comal.taco.model.levels import Levels, flat, select
from comal.taco.writing import kinds

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]+")
ENTRY_BYTES = 200
"""About what an entry costs besides its payload: two headers, two names, a row."""
_KEY_MAX = 120
MOST = 9_999
"""Archives of one dataset."""


@dataclass(frozen=True, slots=True)
class Part:
    """One archive of several: its name and its level 0 rows, ascending."""

    path: Path
    roots: Ints


def plan(
    levels: Levels,
    target: Path,
    *,
    split_size: int | str | None,
    group_by: str | Sequence[str] | None,
) -> list[Part]:
    """Decide which level 0 samples go into which archive.

    Raises
    ------
    InvalidInputError
        An unknown field, a size that is none, or two groups whose file names are the same.
    """
    everything = np.arange(levels[0].rows)
    if group_by is None:
        groups = [("", everything)]
    else:
        table = levels[0].table
        groups = GroupKeys(table.schema, group_by).of(table)
    limit = None if split_size is None else parse_size(split_size, "split_size is no size")
    weights = None if limit is None else root_bytes(levels)
    found: list[Part] = []
    for key, rows in groups:
        if limit is None or weights is None:
            found.append(Part(part_path(target, key), rows))
            continue
        for number, chunk in enumerate(_cut(rows, weights[rows], limit), start=1):
            found.append(Part(part_path(target, key, number), chunk))
    check_count(len(found))
    return found


def check_count(count: int) -> None:
    """Refuse more archives than names of four digits tell apart, before one is written."""
    if count > MOST:
        raise InvalidInputError(
            "too many archives",
            found=str(count),
            expected=f"at most {MOST}",
            hint="a larger split_size, or group_by a field of fewer values",
        )


def part_path(target: Path, key: str = "", number: int | None = None) -> Path:
    """The archive of a group, of a part by its number, or of a part of a group."""
    check_count(number or 0)
    named = f"{target.stem}_{key}" if key else target.stem
    end = "" if number is None else f"_part{number:04d}"
    return target.with_name(f"{named}{end}{target.suffix or '.tacozip'}")


def first_parts(paths: Sequence[Path]) -> list[Path]:
    """Of numbered parts the first of each group."""
    return [path for path in paths if path.stem.endswith("_part0001")]


def root_bytes(levels: Levels) -> Ints:
    """Bytes that each level 0 sample brings, with all that is below it."""
    below: Ints | None = None
    for depth in reversed(range(len(levels))):
        level = levels[depth]
        own = np.where(level.folders, 0, level.payloads.sizes()) + ENTRY_BYTES
        if below is not None:
            np.add.at(own, levels[depth + 1].parent, below)
        below = own
    assert below is not None
    return below


def _cut(rows: Ints, weights: Ints, limit: int) -> Iterator[Ints]:
    """Runs of neighbours of at most `limit` bytes; one that is larger alone stands alone."""
    ends = np.cumsum(weights)
    start = 0
    while start < len(rows):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield rows[start:stop]
        start = stop


class GroupKeys:
    """Which group a row belongs to, and what the group's archive is called.

    Parameters
    ----------
    schema
        Arrow schema of the tables of level 0.
    group_by
        The metadata field, or several.

    Raises
    ------
    InvalidInputError
        There is no such field.
    """

    def __init__(self, schema: Any, group_by: str | Sequence[str]) -> None:
        self._fields = [group_by] if isinstance(group_by, str) else list(group_by)
        self._values: dict[str, str] = {}
        for name in self._fields:
            if name not in schema.names or name == spec.ID:
                raise InvalidInputError(
                    f"no field {shown(name)} to group by", found=", ".join(schema.names)
                )

    def of(self, table: Any) -> list[tuple[str, Ints]]:
        """Names and rows of the groups of a table, in the order in which they first appear.

        Raises
        ------
        InvalidInputError
            Two groups, of this table or of those before, would have one file name.
        """
        columns = [_texts(flat(table.column(name)), name) for name in self._fields]
        encoded = pc.dictionary_encode(pc.binary_join_element_wise(*columns, "_"))
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        order = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)))
        rows = np.split(order, starts[1:])
        keys = [self._key(value) for value in encoded.dictionary.to_pylist()]
        return list(zip(keys, rows, strict=True))

    def _key(self, value: str) -> str:
        key = _UNSAFE.sub("-", value).strip(".-")[:_KEY_MAX] or "empty"
        known = self._values.setdefault(key.lower(), value)
        if known != value:
            raise InvalidInputError(
                "two groups would have one file name",
                found=f"{shown(known)} and {shown(value)}, both {shown(key)}",
                expected="values that differ in letters, digits, '_', '.' or '-'",
            )
        return key


def _texts(column: Any, name: str) -> Any:
    try:
        return pc.fill_null(column.cast(pa.string()), "null")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"field {shown(name)} cannot name files", found=str(column.type)
        ) from error


def levels_of_part(levels: Levels, part: Part) -> Levels:
    """The dataset that goes into one part."""
    if len(part.roots) == levels[0].rows:
        return levels
    return select(levels, part.roots)


# -- a set of parts --------------------------------------------------------------------------------


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
        for path in payloads.local_paths():
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
