"""Archives written by others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import MemorySource
from tests.support import SHARED, needs_shared
from tests.ziparchive.archives import content, opened

from comal.errors import InvalidMetadataError
from comal.plan import run
from comal.ziparchive import check_plan, directory_plan

TACO = sorted((SHARED / "fixtures" / "taco").glob("**/*.tacozip"))
EDGE = sorted((SHARED / "fixtures" / "tapalcatl" / "edge").glob("*.zip"))
CODES = {"bad-crc": ["zip-crc"], "dead-zone": ["zip-undeclared-entry"]}


@needs_shared
@pytest.mark.parametrize("path", TACO, ids=lambda path: path.stem)
def test_taco_archives_are_sound(path: Path) -> None:
    source = MemorySource.of(path.read_bytes())
    directory = run(directory_plan(), source.fetch)
    assert source.requests == 1
    assert directory.find("TACO_HEADER") == 0
    assert directory.payload_offsets[0] == 41
    plan = check_plan(directory, content=True, stored_only=True)
    assert run(plan, source.fetch) == []


@needs_shared
@pytest.mark.parametrize("path", EDGE, ids=lambda path: path.stem)
def test_odd_archives_are_read(path: Path) -> None:
    data = path.read_bytes()
    expected: dict[str, Any] = json.loads((SHARED / "fixtures/tapalcatl/expected.json").read_text())
    directory = opened(data)
    for name, digest in expected["edge"][path.stem]["tiles"].items():
        row = directory.find(name)
        if digest is None:
            with pytest.raises(InvalidMetadataError):
                content(data, directory, row)
        else:
            assert hashlib.sha256(content(data, directory, row)).hexdigest() == digest
    found = run(check_plan(directory, content=True), MemorySource.of(data).fetch)
    assert [problem.code for problem in found] == CODES.get(path.stem, [])
