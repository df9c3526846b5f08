"""Fixtures of the storage tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from comal.storage import StorageConfig
from tests.storage.places import KINDS, Place, make


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place of each kind in turn."""
    return make(request.param, request, tmp_path)


@pytest.fixture
def hasty() -> StorageConfig:
    """A configuration that loses patience soon."""
    return StorageConfig(
        backoff_first=0.01,
        backoff_limit=0.02,
        connect_timeout=1.0,
        idle_timeout=0.4,
        total_timeout=1.5,
        slowest=1 << 30,
    )
