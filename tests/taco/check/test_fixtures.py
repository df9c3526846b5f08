"""Containers of the existing writers: sound, but for extents that do not cover their samples."""

from __future__ import annotations

import warnings

import pytest

from comal.taco.checking import check
from tests.support import SHARED, needs_shared

FIXTURES = SHARED / "fixtures" / "taco"

# The existing writers take the box of the centroids and the range of the middles of the times, so
# that the footprints and the first start and last end lie outside. Nothing else is wrong. The
# counts of an index are those of its own collection and of each of its three parts.
EXTENTS = {"taco-extent-space": 1, "taco-extent-time": 1}
EXPECTED = {
    "flat.tacozip": EXTENTS,
    "flat_folder": EXTENTS,
    "nested.tacozip": EXTENTS,
    "nested_folder": EXTENTS,
    "flat_padded.tacozip": EXTENTS,
    "nested_padded.tacozip": {},
    "cat/part0.tacozip": EXTENTS,
    "cat/part1.tacozip": EXTENTS,
    "cat/part2.tacozip": EXTENTS,
    "cat": dict.fromkeys(EXTENTS, 4),
    "cat/.tacocat": dict.fromkeys(EXTENTS, 4),
    "tacocat_binary/part0.tacozip": EXTENTS,
    "tacocat_binary/part1.tacozip": EXTENTS,
    "tacocat_binary/part2.tacozip": EXTENTS,
    "tacocat_binary/__TACOCAT__": dict.fromkeys(EXTENTS, 4),
    "tacocat_binary": dict.fromkeys(EXTENTS, 4),
}


@needs_shared
@pytest.mark.parametrize("name", EXPECTED)
def test_fixture_has_only_what_its_writer_is_known_for(name: str) -> None:
    path = FIXTURES / name
    # `.tacocat` names its ZIPs by their base names; they lie in the folder above it.
    base = path.parent if path.name == ".tacocat" else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = check(path, base_path=base)
    assert dict(report.counts) == EXPECTED[name]
    assert report.ok


@needs_shared
def test_every_container_of_the_fixtures_is_checked() -> None:
    archives = {str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*.tacozip")}
    assert archives <= set(EXPECTED)
