"""Azurite, Microsoft's emulator of Azure Blob Storage, with a container to write to.

``npm install azurite`` brings the command ``azurite-blob``. The nightly run has it; the tests that
need it are left out where it is missing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

import urllib3
from obstore.store import AzureStore

CONTAINER = "comal-tests"
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every emulator; no secret."""
_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class AzureServer:
    """A running emulator."""

    options: dict[str, Any]
    """Options of the store for `StorageConfig.azure`."""
    store: AzureStore
    """An obstore store of the container."""
    process: subprocess.Popen[bytes]

    def close(self) -> None:
        """Stop the emulator."""
        self.process.kill()
        self.process.wait()


def found() -> bool:
    """Whether the emulator is installed."""
    return shutil.which("azurite-blob") is not None


def start() -> AzureServer:
    """Start the emulator on a free port, and make the container."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    process = subprocess.Popen(["azurite-blob", *options, "--blobPort", str(port)])
    endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            break
        time.sleep(0.1)
    _make_container(endpoint)
    named = {"account_name": _ACCOUNT, "account_key": _KEY, "endpoint": endpoint}
    store = AzureStore(CONTAINER, config=named, client_options={"allow_http": True})  # type: ignore[arg-type]  # a plain dict
    return AzureServer(named, store, process)


def _make_container(endpoint: str) -> None:
    """Make the container by a request signed with the shared key (Authorize with Shared Key)."""
    own = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in own.items())]
    text = "\n".join([*lines, f"/{_ACCOUNT}/{_ACCOUNT}/{CONTAINER}", "restype:container"])
    digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    signed = {"Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"}
    url = f"{endpoint}/{CONTAINER}?restype=container"
    answer = urllib3.request("PUT", url, headers={**own, **signed, "Content-Length": "0"})
    assert answer.status == 201, answer.data
