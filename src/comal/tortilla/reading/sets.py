"""Sets of parts: how they are named, in which order they stand, and whether one is whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from comal.errors import Problem, shown
from comal.tortilla import spec


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
    """The name of a part taken apart; None for anything else."""
    found = spec.PART_NAME.fullmatch(last_name(href))
    if found is None:
        return None
    return PartName(found["stem"], int(found["number"]), found["extension"])


@dataclass(frozen=True, slots=True)
class Member:
    """One file as far as its set is concerned."""

    href: str
    parts: int
    """How many files its set has, as it says itself."""
    variant: str = ""
    """Tells apart files whose URLs differ in their query alone."""

    @property
    def name(self) -> PartName | None:
        """Its name taken apart."""
        return part_name(self.href)

    @property
    def group(self) -> tuple[str, str, int]:
        """What members of one set have in common."""
        if self.parts <= 1:
            return self.href, self.variant, self.parts
        name = self.name
        folder = self.href.rpartition("/")[0]
        return (folder, name.stem if name else "", self.parts)


def ordered(members: Sequence[Member]) -> list[int]:
    """Positions of members: sets in the order of their first member, parts by their number."""
    first: dict[tuple[str, str, int], int] = {}
    for position, member in enumerate(members):
        first.setdefault(member.group, position)

    def rank(position: int) -> tuple[int, int, int]:
        member = members[position]
        name = member.name if member.parts > 1 else None
        return first[member.group], name.number if name else -1, position

    return sorted(range(len(members)), key=rank)


def set_problems(members: Sequence[Member]) -> list[Problem]:
    """What is wrong with files that are taken as whole sets."""
    problems: list[Problem] = []
    groups: dict[tuple[str, str, int], list[Member]] = {}
    seen: set[tuple[str, str]] = set()
    for member in members:
        if (member.href, member.variant) in seen:
            problems.append(Problem("tortilla-part-twice", member.href, "the file is named twice"))
        elif member.parts == 0:
            problems.append(
                Problem("tortilla-part-count", member.href, "the header says 0 parts, not 1")
            )
        seen.add((member.href, member.variant))
        groups.setdefault(member.group, []).append(member)
    for (_, _, count), group in groups.items():
        if count > 1:
            problems += _group_problems(group, count)
    return problems


def _group_problems(group: Sequence[Member], count: int) -> list[Problem]:
    place = group[0].href
    numbers = [member.name.number for member in group if member.name is not None]
    problems: list[Problem] = []
    if len(numbers) == len(group):
        first = 0 if min(numbers) == 0 else 1
        expected = range(first, first + count)
        missing = sorted(set(expected) - set(numbers))
        name = group[0].name
        assert name is not None
        problems += [
            Problem("tortilla-part-missing", place, f"{shown(name.numbered(number))} is missing")
            for number in missing[:100]
        ]
        problems += [
            Problem("tortilla-part-count", member.href, f"the header says {count} parts")
            for member in group
            if member.name is not None and member.name.number not in expected
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
