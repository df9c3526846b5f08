"""Identities of machines and users, which obstore finds, and tokens that are named."""

from __future__ import annotations

import json
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
from comal.plan import ByteRange
from comal.storage import Source, StorageConfig
from tests.servers.http import HttpServer
from tests.storage.places import noise
from tests.support import in_child

DATA = noise(100_000)
HOUR = 3600
MACHINE = "computeMetadata/v1/instance/service-accounts/default"


def only(source: Source, offset: int) -> bytes:
    return source.fetch([ByteRange(offset, 10)])[0].data


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that knows nobody."""
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "AZURE_", "IDENTITY_", "IMDS_", "MSI_", "GCE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))


class Giver:
    """A server that gives out numbered tokens, as clouds do to machines and users."""

    def __init__(self) -> None:
        self.http = HttpServer()
        self.tokens = 0

    def answers(self, name: str, **fields: Any) -> str:
        """Answer a name with a new token and these fields; the URL comes back."""

        def answer() -> bytes:
            self.tokens += 1
            token = {"access_token": f"token-{self.tokens}", "token_type": "Bearer"}
            return json.dumps({**token, "expires_in": HOUR, **fields}).encode()

        return self.http.make(name, answer)


@pytest.fixture
def giver() -> Iterator[Giver]:
    made = Giver()
    yield made
    made.http.close()


@dataclass(frozen=True, slots=True)
class Case:
    """An identity that the fake cloud knows."""

    scheme: str
    giver: Giver
    name: str
    """What the giver of tokens is asked for."""
    config: StorageConfig

    def source(self, name: str = "box/k") -> Source:
        return storage.open_source(f"{self.scheme}://{name}", config=self.config)


def machine_of_google(giver: Giver, monkeypatch: pytest.MonkeyPatch, _: Path) -> str:
    monkeypatch.setenv("GCE_METADATA_HOST", giver.http.origin.removeprefix("http://"))
    giver.http.put(f"{MACHINE}/", b'{"email": "a@b.c", "scopes": ["x"]}')
    giver.answers(f"{MACHINE}/token")
    return f"{MACHINE}/token"


def service_of_azure(giver: Giver, monkeypatch: pytest.MonkeyPatch, _: Path) -> str:
    until = str(int(time.time() + HOUR))
    url = giver.answers("service", expires_on=until, resource="r")
    monkeypatch.setenv("IDENTITY_ENDPOINT", url)
    monkeypatch.setenv("IDENTITY_HEADER", "secret")
    return "service"


def line_of_azure(giver: Giver, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """The program ``az``, which asks the server."""
    later = datetime.now(UTC).astimezone() + timedelta(hours=1)
    answer = {
        "expiresOn": later.strftime("%Y-%m-%d %H:%M:%S.%f"),
        "expires_on": int(later.timestamp()),
        "tokenType": "Bearer",
    }
    program, url = folder / "bin/az", giver.answers("line")
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys, urllib.request\n"
        f"given = json.load(urllib.request.urlopen('{url}'))\n"
        f"print(json.dumps({{**{answer!r}, 'accessToken': given['access_token']}}))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AZURE_USE_AZURE_CLI", "true")
    return "line"


Maker = Callable[[Giver, pytest.MonkeyPatch, Path], str]
"""Makes an identity known to the machine; what the server is asked for comes back."""
MAKERS: list[Maker] = [machine_of_google, service_of_azure, line_of_azure]


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__)
def case(
    request: pytest.FixtureRequest,
    giver: Giver,
    http_server: HttpServer,
    hasty: StorageConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Case:
    name = request.param(giver, monkeypatch, tmp_path)
    origin = http_server.origin
    for key in ("box/k", "box/other"):
        http_server.put(key, DATA)
    azure = {"account_name": "acc", "endpoint": origin}
    # A program that starts, and servers of a busy machine, are not to be hurried.
    config = replace(hasty, idle_timeout=5.0, total_timeout=20.0)
    config = replace(config, gcs={"base_url": origin}, azure=azure)
    return Case("gs" if request.param is machine_of_google else "az", giver, name, config)


def test_reading(case: Case, http_server: HttpServer) -> None:
    source = case.source()
    # Nobody is asked before something is read.
    assert not case.giver.http.requests
    assert only(source, 5) == DATA[5:15]
    assert only(source.sibling("other"), 7) == DATA[7:17]
    assert set(http_server.told) - {""} == {f"Bearer token-{case.giver.tokens}"}


def test_no_token(case: Case) -> None:
    case.giver.http.remove(case.name)
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
