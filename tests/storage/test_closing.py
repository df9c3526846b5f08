"""What is closed at the end of a block."""

from __future__ import annotations

import pytest

from comal.storage.source import Closing


class Door(Closing):
    def __init__(self) -> None:
        self.closed: list[bool] = []

    def close(self) -> None:
        self.closed.append(True)


def test_closed_whether_the_block_ends_well_or_not() -> None:
    with Door() as door:
        assert isinstance(door, Door)
        assert not door.closed
    assert len(door.closed) == 1
    with pytest.raises(KeyError), door:
        raise KeyError
    assert len(door.closed) == 2


def test_what_cannot_be_closed_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Closing()  # type: ignore[abstract]
