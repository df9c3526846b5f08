"""Migrated files, read by the reference readers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from comal.convert import migrate
from tests.convert.migrated import FIELDS
from tests.interop.environments import LATEST, SPECIFIED, drive
from tests.support import SHARED, needs_shared
from tests.tortilla.build import Item, nested

pytestmark = [pytest.mark.interop, needs_shared]

FIXTURES = SHARED / "fixtures" / "tortilla"
QUERY = "SELECT * FROM data ORDER BY id DESC LIMIT 2"


def expected() -> dict[str, dict[str, str]]:
    known: dict[str, Any] = json.loads((FIXTURES / "expected.json").read_text())
    return {
        name: {
            one["path"]: one["sha256"]
            for one in known[name]["items"]
            if one["format"] != "TORTILLA"
        }
        for name in ("flat.taco", "nested.taco", "mixed_bytes.tortilla")
    }


@pytest.mark.parametrize("reader", [LATEST, SPECIFIED])
def test_every_leaf_reads_back(reader: str, tmp_path: Path) -> None:
    wanted = expected()
    outputs = []
    for name in wanted:
        outputs.append(tmp_path / f"{Path(name).stem}.tacozip")
        migrate(FIXTURES / name, outputs[-1], **({} if name.endswith(".taco") else FIELDS))
    padded = nested(
        ("s10", [Item("a", b"1"), Item("b", b"2")]),
        ("s2", [Item("b", b"3")]),
        ("s1", [Item("a", b"")]),
    )
    (tmp_path / "padded.tortilla").write_bytes(padded)
    outputs.append(tmp_path / "padded.tacozip")
    migrate(tmp_path / "padded.tortilla", outputs[-1], pad=True, **FIELDS)
    contents = {"s10/a": b"1", "s10/b": b"2", "s2/b": b"3", "s1/a": b""}
    wanted["padded"] = {path: hashlib.sha256(one).hexdigest() for path, one in contents.items()}
    jobs = [{"path": str(output), "query": QUERY, "base": None} for output in outputs]
    answers = drive(reader, "read.py", tmp_path / "home", jobs=jobs)
    for digests, answer in zip(wanted.values(), answers, strict=True):
        assert "error" not in answer, answer["error"]
        assert answer["navigated"] == digests
        assert answer["tables"] == digests
