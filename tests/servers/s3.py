"""An S3 server of moto on the loopback interface, with a bucket to write to."""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from obstore.store import GCSStore, S3Store

from comal.storage import StorageConfig

BUCKET = "comal-tests"
GOOGLE_BUCKET = "comaltests"
"""Its client writes a hyphen in another way, which the server does not know."""
_PATIENCE = 60.0
_OPTIONS = {
    "access_key_id": "testing",
    "secret_access_key": "testing",
    "region": "us-east-1",
}


@dataclass(slots=True)
class Faults:
    """The application of the server, which answers some requests wrongly."""

    application: Any
    lock: Any = field(default_factory=threading.Lock)
    seen: list[str] = field(default_factory=list)
    """Method, key and query of each request."""
    fault: Callable[[int, str], str] = lambda _number, _request: ""
    """What happens to a request, by its number and what is seen of it: nothing, its answer is
    ``lost``, or so ``late`` that the client hangs up, or the status of another answer."""

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        query = environ["QUERY_STRING"].partition("X-Amz")[0]
        request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{query}".rstrip("?")
        self.seen.append(request)
        fault = self.fault(len(self.seen), request)
        conditions = environ.get("HTTP_IF_NONE_MATCH") or environ.get("HTTP_IF_MATCH")
        if not fault and conditions and environ["REQUEST_METHOD"] != "GET":
            with self.lock:  # moto looks first and writes then, where S3 does both at once
                fault = _refused(environ)
                if not fault:
                    return list(self.application(environ, start))
        fault = fault or _damaged(environ)
        if not fault:
            return self.application(environ, start)
        if fault in ("lost", "late"):
            list(self.application(environ, lambda *_: None))
            line = environ["werkzeug.socket"]
            if fault == "late":
                line.settimeout(_PATIENCE)
                with suppress(ConnectionError):
                    assert not line.recv(1), "the client does not hang up"
            with suppress(OSError):  # it has hung up
                line.shutdown(socket.SHUT_RDWR)
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        wait = [("Retry-After", "0")] if fault.startswith("503") else []
        start("200 OK" if fault in ("lost", "late") else fault, [("Content-Length", "0"), *wait])
        return []


def _refused(environ: dict[str, Any]) -> str:
    """What S3 answers where an upload in parts is finished for another object than the named."""
    wanted = environ.get("HTTP_IF_MATCH")
    if wanted is None or environ["REQUEST_METHOD"] != "POST":
        return ""
    bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
    there = _memory().get_object(bucket, key)
    same = there is not None and there.etag.strip('"') == wanted.strip('"')
    return "" if same else "412 Precondition Failed"


def _damaged(environ: dict[str, Any]) -> str:
    """What S3 answers where a body has not the MD5 that is sent along."""
    wanted = environ.get("HTTP_CONTENT_MD5")
    if wanted is None:
        return ""
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    environ["wsgi.input"] = io.BytesIO(body)
    found = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    return "" if found == wanted else "400 Bad Digest"


@dataclass(slots=True)
class AsGoogle:
    """Google's XML API as far as it differs: conditions are numbers of generations.

    Metadata have another prefix, and the ETag of an object in parts tells nothing of its bytes.
    """

    application: Any
    lock: Any = field(default_factory=threading.Lock)

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        wanted = environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None)
        if wanted is None:
            return self._answer(environ, start)
        with self.lock:
            return list(self._conditional(environ, start, wanted))

    def _conditional(self, environ: dict[str, Any], start: Any, wanted: str) -> Any:
        if wanted != self._generation(environ):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("412 Precondition Failed", [("Content-Length", "0")])
            return []
        return self._answer(environ, start)

    def _answer(self, environ: dict[str, Any], start: Any) -> Any:
        if "HTTP_X_GOOG_COPY_SOURCE" in environ:
            environ["HTTP_X_AMZ_COPY_SOURCE"] = environ.pop("HTTP_X_GOOG_COPY_SOURCE")
        for name in [name for name in environ if name.startswith("HTTP_X_GOOG_META_")]:
            environ[name.replace("GOOG", "AMZ")] = environ.pop(name)

        def answer(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            own = [(name.replace("x-amz-meta-", "x-goog-meta-"), value) for name, value in headers]
            return start(status, [*own, ("x-goog-generation", _number(headers))], *more)

        return self.application(environ, answer)

    def _generation(self, environ: dict[str, Any]) -> str:
        found: list[str] = []

        def noted(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            found.append(_number(headers) if status.startswith("200") else "0")

        asked = {**environ, "REQUEST_METHOD": "HEAD", "CONTENT_LENGTH": "", "QUERY_STRING": ""}
        list(self.application({**asked, "wsgi.input": io.BytesIO()}, noted))
        return found[0]


def _number(headers: list[tuple[str, str]]) -> str:
    tags = [value for name, value in headers if name.lower() == "etag"]
    return str(int(tags[0].strip('"').partition("-")[0][:15], 16)) if tags else "1"


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
    bucket
        Name of the bucket.

    What is put and looked at here is the server's own memory: no request is made.
    """

    endpoint: str
    config: StorageConfig
    store: S3Store
    server: Any
    faults: Faults
    bucket: str = BUCKET

    def url_for(self, key: str = "") -> str:
        """The href of a key in the bucket."""
        return f"s3://{BUCKET}/{key}".rstrip("/")

    def put(self, key: str, data: bytes) -> str:
        """Store an object; its href comes back."""
        _memory().put_object(self.bucket, key, data)
        return self.url_for(key)

    def objects(self, prefix: str) -> dict[str, bytes]:
        """All objects below a prefix, by what follows it."""
        keys = _memory().buckets[self.bucket].keys
        return {k.removeprefix(prefix): keys[k].value for k in list(keys) if k.startswith(prefix)}

    def remove(self, prefix: str) -> None:
        """Remove all objects below a prefix."""
        keys = _memory().buckets[self.bucket].keys
        for key in [key for key in keys if key.startswith(prefix)]:
            keys.pop(key)

    def end_uploads(self, prefix: str) -> list[int]:
        """Numbers of parts of uploads that were neither finished nor given up until now."""
        begun = _memory().buckets[self.bucket].multiparts
        below = [number for number, one in begun.items() if one.key_name.startswith(prefix)]
        return [len(begun.pop(number).parts) for number in below]

    def close(self) -> None:
        """Stop the server."""
        self.server.stop()


def _memory() -> Any:
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


def start_google() -> S3Server:
    """The same server with the requests and answers of Google Cloud Storage."""
    server = start()
    server.faults.application = AsGoogle(server.faults.application)
    _create_bucket(server.endpoint, GOOGLE_BUCKET)
    options = {"base_url": server.endpoint}
    named: Any = {"client_options": {"allow_http": True}, "credential_provider": _token}
    store: Any = GCSStore(GOOGLE_BUCKET, config=options, **named)  # type: ignore[arg-type]  # a plain dict
    config = StorageConfig(gcs=options, credential_provider=_token)
    return replace(server, config=config, store=store, bucket=GOOGLE_BUCKET)


def _token() -> dict[str, Any]:
    return {"token": "anybody", "expires_at": None}


def start() -> S3Server:
    """Start a server on a free port."""
    from moto import backends
    from moto.server import ThreadedMotoServer

    # It would list a folder of 200 modules at each request.
    modules = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request takes long
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    options = {"endpoint": endpoint, **_OPTIONS}
    _create_bucket(endpoint, BUCKET)
    store = S3Store(BUCKET, config=options, client_options={"allow_http": True})  # type: ignore[arg-type]  # a plain dict
    listening = server._server
    listening.app = faults = Faults(listening.app)
    return S3Server(endpoint, StorageConfig(s3=options), store, server, faults)


def _create_bucket(endpoint: str, name: str) -> None:
    import urllib3

    with urllib3.PoolManager() as manager:
        answer = manager.request("PUT", f"{endpoint}/{name}")
        assert answer.status == 200, answer.data
