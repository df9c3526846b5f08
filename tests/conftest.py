"""Servers that several rooms test against, started when a test asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers.http import HttpServer

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server


@pytest.fixture
def http_server() -> Iterator[HttpServer]:
    """A range server of its own for each test; see `HttpServer`."""
    server = HttpServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server for the whole run, with one bucket; see `S3Server`."""
    from tests.servers import s3

    server = s3.start()
    yield server
    server.close()
