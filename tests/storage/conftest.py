"""Fixtures of the storage tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from comal.storage import StorageConfig
from tests.servers.s3 import S3Server
from tests.storage.boxes import Box, s3_box
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


@pytest.fixture
def bucket(
    s3_server: S3Server, hasty: StorageConfig, tmp_path: Path
) -> Iterator[tuple[Box, S3Server]]:
    """A prefix in S3, and the server, whose faults end with the test."""
    yield s3_box(s3_server, hasty, tmp_path / "scratch"), s3_server
    s3_server.faults.fault = lambda *_: ""
