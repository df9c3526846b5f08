"""Facts are what they were, but for those with a reason."""

from __future__ import annotations

import pytest

from tests.frozen.compare import JOBS, differences, found


@pytest.mark.parametrize("name", JOBS)
def test_facts_are_what_they_were(name: str) -> None:
    lines, unused = differences(name, found(name))
    assert not lines, "\n".join(lines[:30])
    assert not unused, "reasons in allowed.toml that nothing needs"
