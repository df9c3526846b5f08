"""Tapalcatl archives with a byte changed, cut short, or mutated by chance.

Each run takes a sample of the places; ``COMAL_FULL_SWEEP=1`` takes all of them.
"""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comal import tapalcatl
from comal.errors import ComalError
from comal.tapalcatl import CODES
from tests.attacks.test_mutants import _JSON
from tests.attacks.test_raquet_sweep import _places, mutated
from tests.attacks.test_sweep import _FULL, _SEED, unused_bytes
from tests.attacks.test_tapalcatl import META, PICTURES
from tests.attacks.tilereading import Key, read_tileset
from tests.tapalcatl.checking.test_check import PNG
from tests.tapalcatl.making import listed, payload, pyramid
from tests.tapalcatl.odd import Entry, archive, tiles

MUTANTS = 1_000
Swept = tuple[bytes, dict[Key, bytes]]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Swept]:
    """An archive as it is built, and one that was updated."""
    folder = tmp_path_factory.mktemp("sweep")
    found = {}
    for name, kind in (("stored", "png"), ("deflated", "json")):
        truth = pyramid(3, kind=kind)
        tapalcatl.build(listed(truth), folder / name, materialized_zooms=[0], metatile=1)
        found[name] = ((folder / name / "0/0/0.zip").read_bytes(), truth)
    path = folder / "stored" / "0/0/0.zip"
    new = {(3, 1, 1): payload(9, 1, 1), (0, 0, 0): payload(9, 2, 2)}
    tapalcatl.put(path, listed(new))
    tapalcatl.delete(path, [(2, 2, 2)])
    truth = {**pyramid(3), **new}
    del truth[2, 2, 2]
    found["updated"] = (path.read_bytes(), truth)
    return found


def fields_without_use(data: bytes) -> set[int]:
    """Offsets of versions, times, disks and attributes, which no checksum covers."""
    found = unused_bytes(data)
    for mark, version, times in ((b"PK\3\4", 4, 10), (b"PK\1\2", 6, 12)):
        at = data.find(mark)
        while at >= 0:
            found |= {at + version, at + version + 1, *range(at + times, at + times + 4)}
            if mark == b"PK\1\2":
                found |= {at + 34, at + 35}
            at = data.find(mark, at + 4)
    return found


def _report(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            report = tapalcatl.check(path)
        except ComalError:
            return None
    assert set(report.counts) <= set(CODES)
    return report


@pytest.mark.parametrize("name", ["stored", "deflated"])
def test_no_changed_byte_is_handed_out_or_missed(
    name: str, archives: dict[str, Swept], tmp_path: Path
) -> None:
    data, truth = archives[name]
    assert 10_000 < len(data) < 60_000
    target = tmp_path / "swept.zip"
    target.write_bytes(data)
    clean = _report(target)
    unused = fields_without_use(data)
    missed = []
    for place in _places(len(data), name):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        target.write_bytes(changed)
        found = read_tileset(target, truth)
        assert found.wrong == [], f"byte {place}"
        report = _report(target)
        if report is not None and report.counts == clean.counts and place not in unused:
            missed.append(place)
    # What is left is text of the comment, which is as good as any other.
    comment = len(data) - data.rindex(b"{")
    assert [place for place in missed if place < len(data) - comment] == []


def test_no_changed_byte_of_an_updated_archive(archives: dict[str, Swept], tmp_path: Path) -> None:
    data, truth = archives["updated"]
    older = {**pyramid(3)}
    target = tmp_path / "swept.zip"
    for place in _places(len(data), "updated"):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        target.write_bytes(changed)
        # Without its last end an archive is what it was before, or refused.
        now = read_tileset(target, truth)
        assert now.wrong == [] or read_tileset(target, older).wrong == [], f"byte {place}"


@pytest.mark.parametrize("name", ["stored", "deflated"])
def test_no_shortened_archive_is_taken_for_whole(
    name: str, archives: dict[str, Swept], tmp_path: Path
) -> None:
    data, truth = archives[name]
    target = tmp_path / "cut.zip"
    for size in _places(len(data), name + "cut"):
        target.write_bytes(data[:size])
        found = read_tileset(target, truth)
        assert found.wrong == []
        assert found.right == set(), f"cut to {size}"
        report = _report(target)
        assert report is None or not report.ok


@pytest.mark.parametrize("name", ["stored", "deflated"])
def test_mutants(name: str, archives: dict[str, Swept], tmp_path: Path) -> None:
    data, truth = archives[name]
    numbers = random.Random(f"{_SEED}{name}")
    target = tmp_path / "mutant.zip"
    some = dict(list(truth.items())[::8])
    for number in range(MUTANTS):
        target.write_bytes(mutated(data, numbers))
        assert read_tileset(target, some).wrong == []
        if number % 20 == 0 or _FULL:
            _report(target)


_SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_ANY = _JSON | st.floats() | st.integers(-(2**70), 2**70)


@_SETTINGS
@given(key=st.sampled_from([*META, "minscale", "maxscale", "root", "headers", "name"]), value=_ANY)
def test_any_value_in_the_documents(tmp_path: Path, key: str, value: Any) -> None:
    text = json.dumps({**META, key: value})
    entries = [Entry(entry.name, PNG) for entry in tiles()]
    (tmp_path / "0" / "0").mkdir(parents=True, exist_ok=True)
    inner = tmp_path / "0" / "0" / "0.zip"
    inner.write_bytes(archive(entries, text.encode()[:65_535]))
    (tmp_path / "meta.json").write_text(text)
    for path in (inner, tmp_path):
        assert read_tileset(path, PICTURES).wrong == []
        _report(path)


@_SETTINGS
@given(comment=st.binary(max_size=60) | _ANY.map(lambda value: json.dumps(value).encode()))
def test_any_comment_of_an_entry(tmp_path: Path, comment: bytes) -> None:
    entries = [Entry(entry.name, PNG, comment=comment[:65_535]) for entry in tiles()]
    path = tmp_path / "a.zip"
    path.write_bytes(archive(entries))
    found = read_tileset(path, PICTURES)
    assert found.wrong == []
    assert found.right == set(PICTURES)
    _report(path)
