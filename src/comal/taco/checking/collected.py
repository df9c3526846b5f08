"""TACOLLECTION.json against the datasets that it names (TACO 2.0, 6.6)."""

from __future__ import annotations

from typing import Any

from comal.errors import (
    AccessDeniedError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    shown,
)
from comal.findings import OF_CONTENT, Findings
from comal.taco import spec
from comal.taco.checking import document
from comal.taco.reading.collected import Collected
from comal.taco.writing import merge


def check_collected(listed: Collected, findings: Findings) -> list[str]:
    """Compare the document with its datasets; the names of those that can be opened."""
    document.check_document(listed.document, findings)
    members = []
    for name in listed.files:
        member = _open(listed, name, findings)
        if member is not None:
            members.append(member)
    if len(members) == len(listed.files):
        with findings.guard("taco-collection", spec.TACOLLECTION):
            _compare(listed.document, members, findings)
    return [member.name for member in members]


def _open(listed: Collected, name: str, findings: Findings) -> merge.Member | None:
    place = f"{spec.SOURCES} {shown(name)}"
    try:
        return merge.member_of(listed.part(name))
    except ObjectNotFoundError:
        findings.add("taco-source-missing", place, "there is no such dataset")
    except OF_CONTENT as error:
        findings.take_error(error, "taco-source-broken", place)
    except (AccessDeniedError, StorageError) as error:
        findings.add("taco-source-unchecked", place, error.what)
    return None


def _compare(stated: dict[str, Any], members: list[merge.Member], findings: Findings) -> None:
    """All partitions have the same tree and fields; counts, extents and sources are theirs."""
    try:
        merge.check_members(members, validate=True)
    except InvalidInputError as error:
        findings.add("taco-source-differs", str(error.found), error.what)
        return
    merged = merge.merged_collection(members, validate=False)
    tree, summed = (spec.PITSchema.from_dict(one.get(spec.PIT_SCHEMA)) for one in (stated, merged))
    for level in range(summed.levels):
        said = tree.rows(level)
        if said != summed.rows(level):
            message = f"says {said} rows of level {level}, the datasets have {summed.rows(level)}"
            findings.add("taco-pit-count", f"{spec.TACOLLECTION}: {spec.PIT_SCHEMA}", message)
    extent = merged["extent"] or {}
    document.compare_extent(stated, extent.get("spatial"), extent.get("temporal"), findings)
    for key, right in merged[spec.SOURCES].items():
        if stated[spec.SOURCES].get(key) != right:
            message = f"says {shown(stated[spec.SOURCES].get(key))}, the datasets {shown(right)}"
            place = f"{spec.TACOLLECTION}: {spec.SOURCES}.{key}"
            findings.add("taco-source-stale", place, message)
