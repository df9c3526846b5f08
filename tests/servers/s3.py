"""An S3 server of moto on the loopback interface, with a bucket to write to."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import obstore
from obstore.store import S3Store

from comal.storage import StorageConfig

BUCKET = "comal-tests"
_OPTIONS = {
    "access_key_id": "testing",
    "secret_access_key": "testing",
    "region": "us-east-1",
}


@dataclass(slots=True)
class Faults:
    """The application of the server, which answers some requests wrongly."""

    application: Any
    seen: list[str] = field(default_factory=list)
    """Method, key and query of each request."""
    fault: Callable[[int, str], str] = lambda _number, _request: ""
    """What happens to a request, by its number and what is seen of it: nothing, ``lost`` for an
    answer that is lost, or the status of an answer that is given instead."""

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        query = environ["QUERY_STRING"].partition("X-Amz")[0]
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{query}".rstrip("?")
        self.seen.append(request)
        fault = self.fault(len(self.seen), request)
        if not fault:
            return self.application(environ, start)
        if fault == "lost":
            list(self.application(environ, lambda *_: None))
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        wait = [("Retry-After", "0")] if fault.startswith("503") else []
        start(fault if fault != "lost" else "200 OK", [("Content-Length", "0"), *wait])
        return []


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server.

    Attributes
    ----------
    endpoint
        Its URL.
    config
        The storage configuration that speaks to it.
    store
        An obstore store of the bucket, to put objects with.
    faults
        What it does wrong.
    """

    endpoint: str
    config: StorageConfig
    store: S3Store
    server: Any
    faults: Faults

    def url_for(self, key: str = "") -> str:
        """The href of a key in the bucket."""
        return f"s3://{BUCKET}/{key}".rstrip("/")

    def put(self, key: str, data: bytes) -> str:
        """Store an object; its href comes back."""
        obstore.put(self.store, key, data)
        return self.url_for(key)

    def close(self) -> None:
        """Stop the server."""
        self.server.stop()


def start() -> S3Server:
    """Start a server on a free port."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    options = {"endpoint": endpoint, **_OPTIONS}
    _create_bucket(endpoint)
    store = S3Store(BUCKET, config=options, client_options={"allow_http": True})  # type: ignore[arg-type]  # a plain dict
    listening = server._server
    listening.app = faults = Faults(listening.app)
    return S3Server(endpoint, StorageConfig(s3=options), store, server, faults)


def _create_bucket(endpoint: str) -> None:
    import urllib3

    with urllib3.PoolManager() as manager:
        answer = manager.request("PUT", f"{endpoint}/{BUCKET}")
        assert answer.status == 200, answer.data
