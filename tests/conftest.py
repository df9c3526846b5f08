"""What several rooms test against, made when a test asks for it: servers, and the demo."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from comal.storage import http
from tests.forked import pool
from tests.servers.http import HttpServer

if TYPE_CHECKING:
    from comal.demo import Result
    from tests.faults.harness import Faults

# How long examples take says more of what else the machine does than of the code.
settings.register_profile(
    "comal",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("comal")

_TIMES = int(os.environ.get("COMAL_EXAMPLES", "1"))
"""How many times the examples of a change the nightly run tries."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every law try more examples when the run asks for it (``scripts/nightly``)."""
    if _TIMES == 1:
        return
    for item in items:
        law = getattr(item, "obj", None)
        # Hypothesis keeps what `@settings` said here and has no public name for it.
        own = getattr(law, "_hypothesis_internal_use_settings", None)
        if own is not None:
            more = settings(own, max_examples=own.max_examples * _TIMES)
            vars(getattr(law, "__func__", law))["_hypothesis_internal_use_settings"] = more


def pytest_collection_finish(session: pytest.Session) -> None:
    """What stands now stays, so that the collector need not look at it again and again.

    Who only collects makes hypothesis' tables of all characters, as every worker else makes them.
    """
    if session.config.option.collectonly:
        st.text().validate()
    gc.collect()
    gc.freeze()


@pytest.fixture
def http_server() -> Iterator[HttpServer]:
    """A range server of its own for each test; see `HttpServer`."""
    # It may get the port of an earlier one, which is all that this remembers of a server.
    http.forget()
    server = HttpServer()
    yield server
    server.close()


@pytest.fixture
def own_loop() -> Iterator[None]:
    """An event loop for Mangum, which takes that of its thread and else makes one to keep."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
    asyncio.set_event_loop(None)


def _server(module: str, start: str = "start") -> Any:
    """A fixture: a server for the whole run, with one bucket."""

    @pytest.fixture(scope="session")
    def running() -> Iterator[Any]:
        server = getattr(import_module(f"tests.servers.{module}"), start)()
        yield server
        server.close()

    return running


s3_server, google_server = _server("s3"), _server("s3", "start_google")
"""S3, and one that speaks as Google Cloud Storage does; see `S3Server`."""
azure_server = _server("azure")
"""Azurite, where it is installed; see `AzureServer`."""


@pytest.fixture(scope="session")
def whole_demo(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """What `comal demo` writes, to be read only."""
    from comal import demo

    return demo.run(out=tmp_path_factory.mktemp("demo") / "comal-demo")


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """A process that runs operations with faults; see `Faults`."""
    from tests.faults import harness

    with harness.started(tmp_path_factory.mktemp("faults")) as found:
        yield found


@pytest.fixture(scope="session")
def processes() -> Iterator[ProcessPoolExecutor]:
    """An executor of one process that has nothing of this one but what is sent to it."""
    with pool(1) as found:
        yield found
