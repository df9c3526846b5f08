"""Every attack file through open, read and check: right bytes or an error of ours."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from comal.errors import InvalidInputError
from comal.taco.checking import CODES, check
from comal.taco.reading.dataset import load
from tests.attacks.build import FLAT, Recipe, leaves_of
from tests.attacks.corpus import ATTACKS, Attack, set_column, zipped
from tests.attacks.reading import read_everything

_IDS = [attack.name for attack in ATTACKS]


def test_every_attack_has_its_own_name() -> None:
    assert len(set(_IDS)) == len(_IDS)


@pytest.mark.parametrize("attack", ATTACKS, ids=_IDS)
def test_reading_gives_right_bytes_or_our_error(attack: Attack, tmp_path: Path) -> None:
    readings = read_everything(attack.make(tmp_path), attack.tree)
    assert readings.wrong == []
    if attack.reads == "right":
        assert readings.errors == []
        assert readings.right == {path for path, _ in leaves_of(attack.tree)}
    if attack.reads == "refused":
        assert readings.errors != []
    for error in readings.errors:
        if attack.reads == "refused":
            assert isinstance(error, attack.error)
        assert len(str(error).splitlines()[0]) < 400
        assert str(error).isprintable() or "\n" in str(error)


@pytest.mark.parametrize("attack", ATTACKS, ids=_IDS)
def test_check_reports_it(attack: Attack, tmp_path: Path) -> None:
    path = attack.make(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a check reports and does not warn
        if attack.check_raises is not None:
            with pytest.raises(attack.check_raises):
                check(path)
            return
        report = check(path)
    assert attack.codes <= set(report.counts)
    assert set(report.counts) <= set(CODES)
    assert report.ok == (not any(CODES[code][0] == "error" for code in report.counts))
    if attack.reads == "refused":
        assert not report.ok

    quick = check(path, level="structure")
    assert attack.codes - {"zip-crc"} <= set(quick.counts)


def test_ids_twice_can_be_told_apart_by_position_only(tmp_path: Path) -> None:
    recipe = Recipe(tree=FLAT, table=set_column(0, "id", lambda v: [v[0], v[0], *v[2:]]))
    path = zipped(recipe)(tmp_path)
    report = check(path)
    assert report.counts["taco-id-twice"] == 1
    assert not report.ok
    frame = load(path).data
    assert frame.read_bytes(0) == FLAT["img_0.bin"]
    assert frame.read_bytes(1) == FLAT["img_1.bin"]
    with pytest.raises(InvalidInputError):
        frame.read_bytes("img_0.bin")
