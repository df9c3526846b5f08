"""Identities of machines and users, which obstore finds, and tokens that are named."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from comal import storage
from comal.errors import StorageError
from comal.plan import ByteRange, Head
from comal.storage import Source, StorageConfig
from tests.servers.http import HttpServer
from tests.storage.places import noise
from tests.storage.tokenserver import TokenServer
from tests.support import in_child

DATA = noise(100_000)
MACHINE = "/computeMetadata/v1/instance/service-accounts/default"


def only(source: Source, offset: int) -> bytes:
    return source.fetch([ByteRange(offset, 10)])[0].data


def told(http_server: HttpServer) -> list[str]:
    """What the store was told of the identity, request by request; obstore writes lower case."""
    seen = [{name.lower(): text for name, text in s.headers.items()} for s in http_server.requests]
    return [headers.get("authorization", "") for headers in seen]


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that knows nobody."""
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "AZURE_", "IDENTITY_", "IMDS_", "MSI_", "GCE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))


@pytest.fixture
def server() -> Iterator[TokenServer]:
    made = TokenServer()
    yield made
    made.close()


@dataclass(frozen=True, slots=True)
class Case:
    """An identity that the fake cloud knows."""

    scheme: str
    server: TokenServer
    config: StorageConfig

    def source(self, name: str = "box/k") -> Source:
        return storage.open_source(f"{self.scheme}://{name}", config=self.config)


def machine_of_google(server: TokenServer, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", server.host)
    server.answers[f"{MACHINE}/"] = lambda: {"email": "a@b.c", "scopes": ["x"]}
    server.answers[f"{MACHINE}/token"] = lambda: oauth(server)


def service_of_azure(server: TokenServer, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.origin}/service")
    monkeypatch.setenv("IDENTITY_HEADER", "secret")

    def answer() -> dict[str, Any]:
        until = str(int(time.time() + server.life))
        return {"access_token": server.token(), "expires_on": until, "resource": "r"}

    server.answers["/service"] = answer


def line_of_azure(server: TokenServer, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """The program ``az``, which asks the server."""
    later = datetime.now(UTC).astimezone() + timedelta(hours=1)
    answer = {
        "expiresOn": later.strftime("%Y-%m-%d %H:%M:%S.%f"),
        "expires_on": int(later.timestamp()),
        "tokenType": "Bearer",
    }
    program = folder / "bin/az"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys, urllib.request\n"
        f"given = json.load(urllib.request.urlopen('{server.origin}/line'))\n"
        f"print(json.dumps({{**{answer!r}, 'accessToken': given['access_token']}}))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AZURE_USE_AZURE_CLI", "true")
    server.answers["/line"] = lambda: oauth(server)


def oauth(server: TokenServer) -> dict[str, Any]:
    return {"access_token": server.token(), "expires_in": server.life, "token_type": "Bearer"}


Maker = Callable[[TokenServer, pytest.MonkeyPatch, Path], None]
MAKERS: list[Maker] = [machine_of_google, service_of_azure, line_of_azure]


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__)
def case(
    request: pytest.FixtureRequest,
    server: TokenServer,
    http_server: HttpServer,
    hasty: StorageConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Case:
    request.param(server, monkeypatch, tmp_path)
    origin = http_server.origin
    for name in ("box/k", "box/other"):
        http_server.put(name, DATA)
    azure = {"account_name": "acc", "endpoint": origin}
    # A program that starts, and servers of a busy machine, are not to be hurried.
    config = replace(hasty, idle_timeout=5.0, total_timeout=20.0)
    config = replace(config, gcs={"base_url": origin}, azure=azure)
    return Case("gs" if request.param is machine_of_google else "az", server, config)


def test_reading(case: Case, http_server: HttpServer) -> None:
    source = case.source()
    # Nobody is asked before something is read.
    assert not case.server.asked
    assert only(source, 5) == DATA[5:15]
    assert only(source.sibling("other"), 7) == DATA[7:17]
    tokens = {token for token in told(http_server) if token}
    assert tokens == {f"Bearer token-{case.server.tokens}"}


def test_no_token(case: Case) -> None:
    case.server.answers.clear()
    with pytest.raises(StorageError, match="store failed") as caught:
        only(case.source(), 5)
    assert "credential_provider" in str(caught.value.hint)


def test_a_forked_child_does_not_wait(case: Case) -> None:
    only(case.source(), 5)

    def child() -> None:
        begin = time.monotonic()
        with pytest.raises(StorageError, match="spawn") as caught:
            only(case.source(), 5)
        assert "credential_provider" in str(caught.value.hint)
        assert time.monotonic() - begin < 5

    in_child(child)


def test_what_is_named_comes_first(http_server: HttpServer, hasty: StorageConfig) -> None:
    http_server.put("box/k", DATA)
    origin = http_server.origin
    given = {"token": "given", "expires_at": datetime.now(UTC) + timedelta(hours=1)}
    for config, identity in (
        (replace(hasty, gcs={"base_url": origin, "skip_signature": True}), ""),
        (replace(hasty, gcs={"base_url": origin}, credential_provider=lambda: given), "given"),
        (replace(hasty, gcs={"base_url": origin, "bearer_token": "named"}), "named"),
    ):
        http_server.reset()
        source = storage.open_source("gs://box/k", config=config)
        assert source.fetch([Head(5)])[0].data == DATA[:5]
        assert told(http_server) == [f"Bearer {identity}" if identity else ""]


def test_threads_wait_for_one_that_asks() -> None:
    from comal.storage.cloud import Tokens

    asked: list[int] = []

    def slow() -> dict[str, Any]:
        asked.append(1)
        time.sleep(0.2)
        return {"token": f"t{len(asked)}", "expires_at": None}

    tokens = Tokens(slow, "here")
    found: list[str] = []

    def work() -> None:
        token = tokens.get()
        assert token is not None
        found.append(token.value)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    # A child that is forked while a thread asks does not wait for that thread.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        in_child(work)
    for thread in threads:
        thread.join()
    assert (found, asked) == (["t1"] * 20, [1])
