"""Columns of levels: what arrays of Arrow cannot hold is told in words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from comal.errors import LimitExceededError
from comal.taco.model import levels


def test_chunks_become_one_array() -> None:
    column = pa.chunked_array([["a", None], [], ["b"]], pa.string())
    assert levels.flat(column).to_pylist() == ["a", None, "b"]
    assert len(levels.flat(pa.chunked_array([], pa.string()))) == 0


def test_a_column_of_more_than_two_gib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As joining such chunks fails; making them here would take all of the memory."""

    def too_long(column: Any) -> Any:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    monkeypatch.setattr(levels, "one_array", too_long)
    with pytest.raises(LimitExceededError, match="2 GiB"):
        levels.flat(pa.chunked_array([["a"], ["b"]]))
