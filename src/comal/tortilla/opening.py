"""Opening files and sets of files."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectNotFoundError,
    Problem,
    naming,
    shown,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import cached_property, in_thread, side_by_side
from comal.plan import run
from comal.public import warn
from comal.storage import Location as Place
from comal.storage import (
    Source,
    StorageConfig,
    as_source,
    open_source,
    parse_href,
    reload_once,
)
from comal.table.columns import numbers_column
from comal.tortilla import spec
from comal.tortilla.archive import Home, Part
from comal.tortilla.frame import TortillaFrame
from comal.tortilla.items import items_of, joined, stored_table
from comal.tortilla.spec import TortillaWarning
from comal.tortilla.wire import DEFAULT_TAIL, Opened, open_plan

Location = str | os.PathLike[str] | Source
Result = tuple[Source, Opened | ComalError]

_MOST_PARTS = 100_000


def open(  # noqa: A001 - the name users expect: tortilla.open
    path: Location | Sequence[Location],
    *,
    siblings: bool = False,
    allow_partial: bool = False,
    columns: Sequence[str] | None = None,
    typed: bool = True,
    tail: int = DEFAULT_TAIL,
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
) -> TortillaFrame:
    """Open a Tortilla or a TACO v1 of any generation, or several as one.

    Reads header and footer: in one round trip of two requests if the last `tail` bytes contain
    the footer, else in two. The generation is found by the bytes, not by the name.

    Parameters
    ----------
    path
        Path or URL of a file, a pattern with ``*`` (if the storage can list), or a list. An open
        `Source` is used as it is. Rows are in the order of the files; parts of a set in the order
        of their numbers.
    siblings
        Open the whole set that the named part belongs to. The header has the number of parts;
        names count from 0001, as in the specification, or from 0000, as in published files.
    allow_partial
        Open the rest of a set, with a warning, if a part is missing or broken.
    columns
        Optional columns to decode; None for all. A column that no file has is an error.
    typed
        Give columns of the specification its names and types: times are int64 seconds,
        ``rai:ele`` is ``rai:elevation``. False leaves optional columns as they are stored.
    tail
        Bytes at the end of a file that are read with the header.
    limits
        Upper bounds for memory and sizes.
    config
        Settings for remote storage.

    Returns
    -------
    TortillaFrame

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError, StorageError
        The file does not exist or cannot be read.
    NotThisFormatError
        The file is of another format.
    InvalidInputError
        A name in `columns` that no file has, or a file that is named twice.
    InvalidMetadataError
        The content is broken, or a set of several files is incomplete.
    LimitExceededError
        The content is larger than the limits allow.
    ObjectChangedError
        A file was replaced while it was opened, and again during a second attempt.
    """

    def opened() -> TortillaFrame:
        sources = sources_of(path, config)
        results = _open_all(sources, tail, limits)
        single = _is_single(path, sources)
        if siblings and single:
            results = _siblings(results[0], tail, limits)
        whole = siblings or not single
        return _frame(
            results, limits, columns, typed=typed, whole=whole, allow_partial=allow_partial
        )

    return reload_once(opened)


load = open


async def open_async(path: Location | Sequence[Location], **options: Any) -> TortillaFrame:
    """As `open`, which has the same options, without blocking the event loop."""
    return await in_thread(open, path, **options)


# -- named files ---------------------------------------------------------------------------------


def sources_of(path: Location | Sequence[Location], config: StorageConfig | None) -> list[Source]:
    """All named files, with patterns expanded; reads none of them."""
    if isinstance(path, Sequence) and not isinstance(path, str | bytes):
        if not path:
            raise InvalidInputError("nothing to open", expected="at least one path")
        return [source for one in path for source in sources_of(one, config)]
    if not isinstance(path, str | os.PathLike) or not _is_pattern(path):
        return [as_source(path, config=config)]
    found = _matches(os.fspath(path), config)
    if not found:
        raise ObjectNotFoundError("nothing matches", where=shown(os.fspath(path), 120))
    return [open_source(one, config=config) for one in found]


def _is_pattern(path: Any) -> bool:
    if not isinstance(path, str | os.PathLike):
        return False
    text = os.fspath(path)
    if "://" in text:
        return "*" in text.rpartition("/")[2]
    return glob.has_magic(text) and not Path(text).exists()


def _matches(pattern: str, config: StorageConfig | None) -> Sequence[str | Place]:
    if "://" not in pattern:
        return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - hrefs are strings
    folder = parse_href(pattern).parent()
    last = pattern.rpartition("/")[2]
    names = open_source(folder, config=config).names()
    return [folder.join(name) for name in names if fnmatch.fnmatchcase(name, last)]


def _is_single(path: Any, sources: Sequence[Source]) -> bool:
    named = isinstance(path, Sequence) and not isinstance(path, str)
    return len(sources) == 1 and not named and not _is_pattern(path)


# -- opened ----------------------------------------------------------------------------------------


def _open_all(sources: Sequence[Source], tail: int, limits: Limits) -> list[Result]:
    remote = not all(source.location.is_local for source in sources)
    jobs = [partial(_open_or_error, source, tail, limits) for source in sources]
    return list(zip(sources, side_by_side(jobs, remote=remote), strict=True))


def _open_or_error(source: Source, tail: int, limits: Limits) -> Opened | ComalError:
    try:
        return open_one(source, tail, limits)
    except ComalError as error:
        return error


def open_one(source: Source, tail: int, limits: Limits) -> Opened:
    """Header and footer of one file."""
    return run(open_plan(source.href, tail=tail, limits=limits), source.fetch)


def _siblings(result: Result, tail: int, limits: Limits) -> list[Result]:
    """The whole set that an opened part belongs to."""
    source, opened = result
    if isinstance(opened, ComalError) or opened.header.parts <= 1:
        return [result]
    count = opened.header.parts
    name = part_name(source.href)
    if name is None:
        raise InvalidInputError(
            "the name of the part does not tell the names of the others",
            where=source.href,
            expected="name.0001.part.tortilla",
            hint="pass a list of all parts",
        )
    if count > _MOST_PARTS:
        raise InvalidMetadataError(
            "the header claims more parts than can be named", where=source.href, found=count
        )
    if name.number in (0, count):
        known, first = {name.number: result}, int(name.number > 0)
    else:
        # Numbers may begin at 0 or 1: only part 0000 can tell.
        (zero,) = _open_all([source.sibling(name.numbered(0))], tail, limits)
        # Stores that may not be listed answer 403 for missing objects.
        first = int(isinstance(zero[1], ObjectNotFoundError | AccessDeniedError))
        known = {name.number: result} if first else {0: zero, name.number: result}
    numbers = [number for number in range(first, first + count) if number not in known]
    others = [source.sibling(name.numbered(number)) for number in numbers]
    known.update(zip(numbers, map(_of_set, _open_all(others, tail, limits)), strict=True))
    return [known[number] for number in sorted(known)]


def _of_set(result: Result) -> Result:
    """The result for a part that the caller did not name: explains the error if it is missing."""
    source, opened = result
    if not isinstance(opened, ObjectNotFoundError):
        return result
    return source, ObjectNotFoundError(
        "a part of the set is missing",
        where=source.href,
        hint="pass allow_partial=True to open the parts that are there",
    )


def _frame(
    results: Sequence[Result],
    limits: Limits,
    columns: Sequence[str] | None,
    *,
    typed: bool,
    whole: bool,
    allow_partial: bool,
) -> TortillaFrame:
    sound = _sound(results, allow_partial=allow_partial)
    members = [
        Member(source.href, opened.header.parts, source.location.variant)
        for source, opened in sound
    ]
    if whole:
        _check_sets(members, results[0][0].href, allow_partial=allow_partial)
    parts: list[Part] = []
    tables: list[Any] = []
    count = 0
    for position in chain(*sets_of(members)):
        source, opened = sound[position]
        with naming(source.href if len(sound) > 1 else ""):
            stored = stored_table(opened, source.href, limits, columns)
        table = items_of(stored, opened, source.href, typed=typed)
        parts.append(Part.of(source, opened))
        tables.append(table)
        count += table.num_rows
        limits.check("table_rows", count, source.href)
    table = joined(tables, parts[0].source.href)
    if len(parts) > 1:
        numbers = np.repeat(np.arange(len(parts), dtype=np.int32), [len(one) for one in tables])
        table = table.add_column(tables[0].num_columns, spec.PART, numbers_column(numbers))
    _refuse_unknown(columns, table.column_names, parts[0].source.href)
    return TortillaFrame(table, Home(parts, limits, typed=typed))


def _refuse_unknown(columns: Sequence[str] | None, names: Sequence[str], where: str) -> None:
    """Raise for columns that no file has; aliases count as the same name."""
    known = {spec.ALIASES.get(name, name) for name in names}
    for name in columns or ():
        if spec.ALIASES.get(name, name) not in known and not name.startswith(spec.INTERNAL):
            raise InvalidInputError(
                f"no column {shown(name)}",
                where=where,
                hint="leave out columns= and look at frame.columns",
            )


def _sound(results: Sequence[Result], *, allow_partial: bool) -> list[tuple[Source, Opened]]:
    sound: list[tuple[Source, Opened]] = []
    first: ComalError | None = None
    for source, opened in results:
        if not isinstance(opened, ComalError):
            sound.append((source, opened))
            continue
        first = first or opened
        if not allow_partial:
            raise opened
        warn(f"{source.href}: left out: {opened.what}", TortillaWarning)
    if not sound:
        assert first is not None, "there is at least one result"
        raise first
    return sound


def _check_sets(members: Sequence[Member], where: str, *, allow_partial: bool) -> None:
    problems = set_problems(members)
    if any(problem.code == "tortilla-part-twice" for problem in problems):
        raise InvalidInputError("a file is named twice", where=where)
    if not problems:
        return
    if not allow_partial:
        raise InvalidMetadataError(
            "the set of parts is not complete",
            where=where,
            found=f"{len(members)} files",
            hint="pass allow_partial=True to open the parts that are there",
            problems=problems,
        )
    for problem in problems:
        warn(f"{problem.place}: {problem.message}", TortillaWarning)


# -- sets of parts ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartName:
    """``stem.0001.part.tortilla``."""

    stem: str
    number: int
    extension: str

    def numbered(self, number: int) -> str:
        """The name of another part of the same set."""
        return spec.part_name(self.stem, number, self.extension)


def last_name(href: str) -> str:
    """The last part of a location, without a query."""
    if "://" not in href:
        return href.rstrip("/").rpartition("/")[2]
    return unquote(href.partition("?")[0].rstrip("/").rpartition("/")[2])


def part_name(href: str) -> PartName | None:
    """The parsed name of a part; None for anything else."""
    found = spec.PART_NAME.fullmatch(last_name(href))
    if found is None:
        return None
    return PartName(found["stem"], int(found["number"]), found["extension"])


@dataclass(frozen=True)
class Member:
    """One file as a member of its set."""

    href: str
    parts: int
    """Number of files in its set, from its header."""
    variant: str = ""
    """Distinguishes files whose URLs differ only in their query."""

    @cached_property
    def name(self) -> PartName | None:
        """Its parsed name."""
        return part_name(self.href)

    @property
    def group(self) -> tuple[str, str, int]:
        """A key that members of one set have in common."""
        if self.parts <= 1:
            return self.href, self.variant, self.parts
        name = self.name
        folder = self.href.rpartition("/")[0]
        return (folder, name.stem if name else "", self.parts)


def sets_of(members: Sequence[Member]) -> list[list[int]]:
    """Positions of the members of each set, parts by their number."""
    sets: dict[tuple[str, str, int], list[int]] = {}
    for position, member in enumerate(members):
        sets.setdefault(member.group, []).append(position)

    def number(position: int) -> int:
        name = members[position].name
        return name.number if name else -1

    return [sorted(positions, key=number) for positions in sets.values()]


def set_problems(members: Sequence[Member]) -> list[Problem]:
    """The problems of files as complete sets."""
    problems: list[Problem] = []
    seen: set[tuple[str, str]] = set()
    for member in members:
        if (member.href, member.variant) in seen:
            problems.append(Problem("tortilla-part-twice", member.href, "the file is named twice"))
        elif member.parts == 0:
            problems.append(
                Problem(
                    "tortilla-part-count",
                    member.href,
                    "the header says 0 parts, expected at least 1",
                )
            )
        seen.add((member.href, member.variant))
    for positions in sets_of(members):
        group = [members[position] for position in sorted(positions)]
        if group[0].parts > 1:
            problems += _group_problems(group, group[0].parts)
    return problems


def _group_problems(group: Sequence[Member], count: int) -> list[Problem]:
    place = group[0].href
    known = [name for member in group if (name := member.name) is not None]
    problems: list[Problem] = []
    if len(known) == len(group):
        numbers = [name.number for name in known]
        first = min(1, *numbers)
        expected = range(first, first + count)
        there = set(numbers)  # a damaged header may claim any number of parts
        missing = islice((one for one in expected if one not in there), 100)
        problems += [
            Problem("tortilla-part-missing", place, f"{shown(known[0].numbered(one))} is missing")
            for one in missing
        ]
        problems += [
            Problem("tortilla-part-count", member.href, f"is number {number} of {count} parts")
            for member, number in zip(group, numbers, strict=True)
            if number not in expected
        ]
    if not problems and len(group) != count:
        problems.append(
            Problem(
                "tortilla-part-missing" if len(group) < count else "tortilla-part-count",
                place,
                f"{len(group)} files of a set of {count}",
            )
        )
    return problems
