"""Every attack file through open, read and check: right bytes or an error of ours."""

from __future__ import annotations

import json
import struct
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from comal import errors
from comal.taco import checking
from comal.taco.checking import CODES, LEVELS, check
from tests.attacks.build import FLAT, NESTED, Recipe, leaves_of
from tests.attacks.corpus import (
    ATTACKS,
    Attack,
    foldered,
    indexed,
    of_each_kind,
    placed,
    with_columns,
    zipped,
)
from tests.attacks.reading import read_everything
from tests.frozen.archives import attempt, reported
from tests.frozen.compare import recorded
from tests.taco.read.scenes import point

_IDS = [attack.name for attack in ATTACKS]

NOT_MADE = {
    "zip-prefix": "the first entry of a TACO archive begins at byte 0, so that it would overlap",
    "zip-overlap": "the directory is refused as a whole before entries can be compared",
    "taco-unlisted": "needs a storage that cannot list; see taco/check/test_check.py",
    "taco-source-unchecked": "needs a storage that fails; see taco/check/test_check.py",
    "taco-source-differs": "needs a collection over several; see taco/read/test_collected.py",
}


def test_every_attack_has_its_own_name_and_every_code_one() -> None:
    assert len(set(_IDS)) == len(_IDS)
    assert set(CODES) == set().union(*(attack.codes for attack in ATTACKS)) | set(NOT_MADE)


@pytest.mark.parametrize("attack", ATTACKS, ids=_IDS)
def test_reading_gives_right_bytes_or_our_error(attack: Attack, tmp_path: Path) -> None:
    readings = read_everything(attack.make(tmp_path), attack.tree)
    assert readings.wrong == []
    if attack.reads == "right":
        assert readings.errors == []
        assert readings.right == {path for path, _ in leaves_of(attack.tree)}
    if attack.reads == "refused":
        assert readings.errors != []
        assert all(isinstance(error, attack.error) for error in readings.errors)


REPORTS = recorded("checks")
"""What a check says of each attack, which `tests.frozen` compares with what it says now."""
UNRECORDED = [attack for attack in ATTACKS if f"taco {attack.name} check" not in REPORTS]


def is_reported(attack: Attack, said: str) -> bool:
    """Whether a check raises what it should, or reports all codes and what cannot be read."""
    if attack.check_raises is not None or not said.startswith("{"):
        raised = getattr(errors, said.partition(" ")[0])
        return attack.check_raises is not None and issubclass(raised, attack.check_raises)
    counts = json.loads(said[: said.index("}") + 1])
    faults = [code for code in counts if CODES[code][0] == "error"]
    return attack.codes <= set(counts) and (faults != [] or attack.reads != "refused")


def test_check_reports_each_of_them() -> None:
    for attack in ATTACKS:
        if attack not in UNRECORDED:
            assert is_reported(attack, REPORTS[f"taco {attack.name} check"]), attack.name


@pytest.mark.parametrize("attack", UNRECORDED, ids=[attack.name for attack in UNRECORDED])
def test_check_reports_it(attack: Attack, tmp_path: Path) -> None:
    assert is_reported(attack, attempt(partial(reported, checking, attack.make(tmp_path))))


OF_BYTES = {"zip-crc", "zip-content", "zip-local-note"}
QUICK = of_each_kind(
    [one for one in ATTACKS if one.codes - OF_BYTES and one.check_raises is None], every=20
)


@pytest.mark.parametrize("attack", QUICK, ids=[attack.name for attack in QUICK])
def test_a_check_of_the_structure_reports_all_but_bytes(attack: Attack, tmp_path: Path) -> None:
    assert attack.codes - OF_BYTES <= set(check(attack.make(tmp_path), level="structure").counts)


_EXTENT = {
    "spatial": [10, 40, 50, 50],
    "temporal": ["1970-01-01T00:00:00Z", "1970-02-16T07:06:40Z"],
}
# Payloads may be moved by an extra field that only their local headers have.
_ALIGNED = struct.pack("<2H", 0xD935, 20) + bytes(20)
SOUND = {
    "flat": zipped(Recipe(FLAT)),
    "nested": zipped(Recipe(NESTED)),
    "padded": zipped(Recipe({"a.bin": b"a", "__TACOPAD__0": b""})),
    "padding without an entry": zipped(
        Recipe(
            {"a.bin": b"a", "__TACOPAD__0": b""},
            entry=lambda name: {"local": False, "listed": False} if "PAD" in name else {},
        )
    ),
    "aligned": zipped(
        Recipe(entry=lambda name: {} if name == "TACO_HEADER" else {"local_extra": _ALIGNED})
    ),
    "flat folder": foldered(Recipe(FLAT)),
    "nested folder": foldered(Recipe(NESTED)),
    "index": indexed(),
    "index in one file": indexed("single"),
    "places and times": zipped(placed(_EXTENT)),
    "poles and moments": zipped(
        Recipe(
            FLAT,
            table=with_columns(
                stac__centroid=[point(180, 90), point(-180, -90), None, None],
                **dict.fromkeys(("stac__time_start", "stac__time_middle", "stac__time_end"), 1),
            ),
        )
    ),
}


@pytest.mark.parametrize(
    ("name", "level"),
    [
        *((name, "full") for name in SOUND),
        *product(("nested", "index"), sorted({*LEVELS} - {"full"})),
    ],
)
def test_sound_containers_have_no_problem(name: str, level: str, tmp_path: Path) -> None:
    report = check(SOUND[name](tmp_path), level=level)
    assert report.problems == ()
    assert report.ok
    assert report.total == 0
