"""What datasets have in common: their collections, trees and fields put together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from comal.errors import InvalidInputError, NotThisFormatError, shown
from comal.plan import run
from comal.storage import Source, open_source
from comal.taco import spec, wire
from comal.taco.model.columns import normal_type
from comal.taco.model.extent import united


@dataclass(frozen=True, slots=True)
class Member:
    """One of the datasets."""

    name: str
    """Base name, by which rows name their archive."""
    source: Source
    opened: wire.Opened
    pit: spec.PITSchema

    def schema(self, level: int) -> Any:
        """Arrow schema of a level table as stored."""
        return self.opened.footers[level].schema


def open_all(
    inputs: Sequence[str | os.PathLike[str]], scope: ExitStack, *, only_zip: bool
) -> list[Member]:
    """Open all datasets; they are closed with `scope`.

    Raises
    ------
    InvalidInputError
        Two of one base name.
    """
    members: list[Member] = []
    for href in inputs:
        source = scope.enter_context(open_source(href))
        member = member_of(source)
        if only_zip and member.opened.container != "zip":
            raise NotThisFormatError(
                "TACOCAT joins ZIP archives", where=source.href, found=member.opened.container
            )
        members.append(member)
    names: dict[str, str] = {}
    for member in members:
        known = names.setdefault(member.name, member.source.href)
        if known is not member.source.href:
            raise InvalidInputError(
                "two datasets have one name, so that rows could not tell them apart",
                found=f"{shown(known, 120)} and {shown(member.source.href, 120)}",
                hint="rename one of the files",
            )
    return members


def member_of(source: Source) -> Member:
    """The dataset at `source`, opened."""
    opened = run(_plan(source), source.fetch)
    pit = spec.PITSchema.from_dict(
        opened.collection.get(spec.PIT_SCHEMA), where=f"{source.href}: {spec.COLLECTION}"
    )
    return Member(_base_name(source.href), source, opened, pit)


def _plan(source: Source) -> Any:
    if source.stat().is_dir:
        return wire.open_folder_plan(source.href)
    return wire.open_plan(source.href)


def _base_name(href: str) -> str:
    path = href.partition("?")[0] if "://" in href else href
    return path.rstrip("/").rpartition("/")[2]


def check_members(members: Sequence[Member], *, validate: bool) -> None:
    """Refuse datasets that cannot stand in one table.

    Without `validate` only the number of levels must agree.
    """
    first = members[0]
    for other in members[1:]:
        if other.pit.levels != first.pit.levels:
            raise _differ(first, other, "number of levels", first.pit.levels, other.pit.levels)
        if validate:
            _check_tree(first, other)
            for level in range(min(len(first.opened.footers), len(other.opened.footers))):
                _check_fields(first, other, level)


def _check_tree(first: Member, other: Member) -> None:
    if first.pit.root_type != other.pit.root_type:
        raise _differ(first, other, "type of level 0", first.pit.root_type, other.pit.root_type)
    for level, patterns in first.pit.hierarchy.items():
        theirs = other.pit.hierarchy[level]
        if len(patterns) != len(theirs):
            raise _differ(first, other, f"patterns of level {level}", len(patterns), len(theirs))
        for ours, their in zip(patterns, theirs, strict=True):
            if ours.type != their.type or not _same_ids(ours.id, their.id):
                raise _differ(
                    first, other, f"children at level {level}", list(ours.id), list(their.id)
                )


def _same_ids(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Ids position by position; padding stands for any."""
    return len(ours) == len(theirs) and all(
        a == b or a.startswith(spec.PAD_PREFIX) or b.startswith(spec.PAD_PREFIX)
        for a, b in zip(ours, theirs, strict=True)
    )


def _check_fields(first: Member, other: Member, level: int) -> None:
    ours, theirs = fields_of(first.schema(level)), fields_of(other.schema(level))
    for name in [*ours, *theirs]:
        a, b = ours.get(name), theirs.get(name)
        if a is None or b is None or not a.equals(b):
            raise _differ(
                first,
                other,
                f"field {shown(name)} of level {level}",
                "absent" if a is None else spec.type_name(a),
                "absent" if b is None else spec.type_name(b),
            )


def fields_of(schema: Any) -> dict[str, Any]:
    """Metadata fields of a stored level and their types in plain form."""
    return {
        column.name: normal_type(column.type)
        for column in schema
        if not column.name.startswith(spec.INTERNAL)
    }


def _differ(first: Member, other: Member, what: str, ours: object, theirs: object) -> Exception:
    return InvalidInputError(
        f"datasets differ: {what}",
        found=f"{ours} in {shown(first.name)}, {theirs} in {shown(other.name)}",
        expected="the same in all (TACO 2.0, 6.6)",
        hint="validate_schema=False joins them all the same where that is possible",
    )


def merged_collection(members: Sequence[Member], *, validate: bool) -> dict[str, Any]:
    """The first collection with united extent, summed counts and ``taco:sources`` (6.6)."""
    collections = [member.opened.collection for member in members]
    merged = dict(collections[0])
    merged["extent"] = united([collection.get("extent") for collection in collections])
    merged[spec.PIT_SCHEMA] = summed([m.pit for m in members], validate=validate).to_dict()
    if spec.FIELD_SCHEMA in collections[0]:
        # Behind the tree, as in every collection.
        merged[spec.FIELD_SCHEMA] = merged.pop(spec.FIELD_SCHEMA)
    merged[spec.SOURCES] = {
        "count": len(members),
        "ids": [collection.get("id") for collection in collections],
        "files": [member.name for member in members],
        "extents": [
            {
                "file": member.name,
                "id": collection.get("id"),
                "spatial": (collection.get("extent") or {}).get("spatial"),
                "temporal": (collection.get("extent") or {}).get("temporal"),
            }
            for member, collection in zip(members, collections, strict=True)
        ],
    }
    return merged


def summed(schemas: Sequence[spec.PITSchema], *, validate: bool) -> spec.PITSchema:
    """The tree of all datasets together: counts are summed pattern by pattern."""
    first = schemas[0]
    hierarchy: dict[int, tuple[spec.PITPattern, ...]] = {}
    for level, patterns in first.hierarchy.items():
        counts = [0] * len(patterns)
        for schema in schemas:
            theirs = schema.hierarchy[level]
            for position in range(len(patterns)):
                counts[position] += theirs[position].n if position < len(theirs) else 0
        hierarchy[level] = tuple(
            spec.PITPattern(count, pattern.type, pattern.id)
            for count, pattern in zip(counts, patterns, strict=True)
        )
    roots = sum(schema.root_n for schema in schemas)
    shape: tuple[int, ...] | None = None
    if all(schema.shape for schema in schemas):
        sides = zip(*(schema.shape or () for schema in schemas), strict=validate)
        shape = (roots, *(max(side) for side in list(sides)[1:]))
    return spec.PITSchema(roots, first.root_type, hierarchy, shape)
