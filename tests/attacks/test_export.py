"""Attack files copied and converted: right bytes in the target, or nothing at all."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from comal.errors import ComalError
from comal.taco.copying.exporting import export, folder2zip, zip2folder
from comal.taco.reading.dataset import load
from tests.attacks.build import leaves_of
from tests.attacks.corpus import ATTACKS, FULL, Attack, of_each_kind
from tests.support import files_below
from tests.taco.write.small import Archive


def _tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


OPENED = of_each_kind([one for one in ATTACKS if one.check_raises is None], every=20)
STRICT = ("zip-", "taco-id-", "taco-entry-undeclared", "taco-header-entry", "taco-source-")
"""Codes of what reads right, and a conversion refuses: more than the tables say, an index."""
PARTIAL = {"taco-pit-1", "taco-extent-column"}
"""Codes of what reads right, and an export refuses: no tree, places that are none."""


_OWN = re.compile("__meta__$|__TACOPAD__")


def _convert(path: Path, target: Path) -> Path:
    if path.is_dir():
        return folder2zip(path, target.with_suffix(".tacozip"))
    return zip2folder(path, target)


@pytest.mark.parametrize("attack", OPENED, ids=[attack.name for attack in OPENED])
def test_a_copy_has_right_bytes_or_there_is_none(attack: Attack, tmp_path: Path) -> None:
    """Nothing is written outside of the target, whatever ids and paths say."""
    path = attack.make(tmp_path)
    before = _tree(tmp_path)
    truth = {name: data for name, data in leaves_of(attack.tree) if "__TACOPAD__" not in name}
    whole = not attack.codes & PARTIAL
    strict = any(code.startswith(STRICT) for code in attack.codes)
    risky = any(code.startswith("taco-id-") for code in attack.codes)
    copies: list[tuple[Callable[[], Path], bool]] = [
        (lambda: export(load(path), tmp_path / "copy.tacozip"), whole),
        (lambda: export(load(path), tmp_path / "copy"), whole and not risky),
        (lambda: _convert(path, tmp_path / "converted"), not strict),
    ]
    if not (FULL or risky):  # what is read of an attack does not depend on the form of the copy
        copies = [copies[OPENED.index(attack) % 3]]
    for copy, works in copies:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = copy()
            except ComalError:
                assert not (attack.reads == "right" and works)
                assert _tree(tmp_path) == before
                continue
        assert attack.reads != "refused"
        found = Archive(made).entries() if made.is_file() else files_below(made / "DATA")
        found = {name: data for name, data in found.items() if not _OWN.search(name)}
        assert found == truth
        new = _tree(tmp_path) - before
        assert {name.partition("/")[0] for name in new} == {made.name}
        before |= new
    assert not Path("/tmp/evil-of-comal").exists()
