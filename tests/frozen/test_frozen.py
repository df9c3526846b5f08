"""Facts are what they were, but for those with a reason."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frozen.compare import JOBS, differences, found


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """For all jobs; its path is short wherever tests run, as messages cut long ones."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


@pytest.mark.parametrize("name", JOBS)
def test_facts_are_what_they_were(name: str, folder: Path) -> None:
    lines, unused = differences(name, found(name, folder))
    assert not lines, "\n".join(lines[:30])
    assert not unused, "reasons in allowed.toml that nothing needs"
