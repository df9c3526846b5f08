"""Object stores: S3, Google Cloud Storage, Azure, and objects in memory.

obstore finds credentials, lists and signs; the bytes are read by signed addresses over the same
HTTP engine as any URL, with its checks, ``Retry-After``, deadlines and connections that survive a
fork. What has no address (`comal.storage.signing` says what) is read by obstore itself, which hides
``Retry-After`` and cannot be used in a forked child of a process that has used it: there such a
child gets an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import obstore

from comal.errors import (
    AccessDeniedError,
    ComalError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
)
from comal.plan import ByteRange, Head, Tail, Whole
from comal.storage.config import StorageConfig
from comal.storage.http import HttpTransport
from comal.storage.httpwire import answer_span
from comal.storage.location import Location
from comal.storage.remote import Ask, RemoteSource, Reply, Transport
from comal.storage.retry import Tries, retrying
from comal.storage.sealing import no_secrets
from comal.storage.signing import Address, signer_of
from comal.storage.source import ObjectInfo
from comal.storage.stores import (
    forked,
    memory_store,
    networked_store,
    read,
    store_errors,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["CloudTransport", "cloud_source", "memory_store"]

_MOST_KEPT = 16_384
_MOST_TOKENS = 16
# What stores answer to a signature that has expired, or was made with keys that have.
_REFUSED = frozenset({400, 401, 403})
# And what to a token that has, or that was taken back.
_EXPIRED = frozenset({401})
_HINTS = {
    400: "check the credentials",
    401: "check the credentials",
    403: "check the credentials; stores answer so, too, for absent objects that may not be listed",
}


def cloud_source(location: Location, config: StorageConfig) -> RemoteSource:
    """The source of a place in an object store."""
    return RemoteSource(location, config, CloudTransport(config))


class CloudTransport(Transport):
    """Makes one request at a time to the store of the locations below one."""

    def __init__(self, config: StorageConfig) -> None:
        self.config = config
        self._http: dict[tuple[tuple[str, str], ...], HttpTransport] = {}
        self._addresses: dict[str, Address] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return CloudTransport, (self.config,)

    def get(self, ask: Ask) -> Reply:
        """Make one request; a `Whole` may be answered by its first `max_request` bytes."""
        location = ask.location
        if not location.path:
            raise NotThisFormatError("not an object", where=location.label, found="a whole bucket")
        if location.scheme == "memory":
            return self._by_store(ask)
        with _no_secrets(location, self.config):
            return self._get(ask)

    def stat(self, ask: Ask) -> ObjectInfo:
        """What an object is, or that objects have this prefix."""
        location = ask.location
        if location.path:
            try:
                return self.get(ask).info
            except ObjectNotFoundError:
                if not self.names(location):
                    raise
        else:
            self.names(location)
        return ObjectInfo(location.href, 0, is_dir=True)

    def names(self, location: Location) -> list[str]:
        """Names directly below a prefix; prefixes end in ``/``."""
        with _no_secrets(location, self.config):
            store = networked_store(location, self.config)
            tries = Tries(self.config, location)
            listed = retrying(tries, lambda _: _list(store, location))
        skipped = len(location.path) + 1 if location.path else 0
        names = [prefix[skipped:] + "/" for prefix in listed["common_prefixes"]]
        names += [entry["path"][skipped:] for entry in listed["objects"]]
        return sorted(name for name in names if name not in ("", "/"))

    def _get(self, ask: Ask) -> Reply:
        held = self._held(ask.location)
        if held is not None:
            reply = self._unless_refused(ask, held)
            if reply is not None:
                return reply
        # Keys may have changed, and addresses expire: signed anew, once.
        signer = signer_of(ask.location, self.config)
        address = signer.address(ask.location, held)
        if address is None:
            return self._by_store(ask)
        if address.token:
            reply = self._unless_refused(ask, address, _EXPIRED)
            if reply is None:
                # It was asked for when another object was read, or its clock stood still while
                # this machine slept.
                address = signer.address(ask.location, address) or address
                reply = self._by_http(ask, address)
        elif signer.by_clock and not forked():
            # Azure takes no signature of a clock that is ahead of its own; obstore's way of
            # asking leaves it a quarter of an hour.
            reply = self._unless_refused(ask, address)
            if reply is None:
                return self._by_store(ask)
        else:
            reply = self._by_http(ask, address)
        self._keep(address)
        return reply

    def _held(self, location: Location) -> Address | None:
        address = self._addresses.get(location.href)
        return address if address is not None and time.monotonic() < address.until else None

    def _keep(self, address: Address) -> None:
        if len(self._addresses) >= _MOST_KEPT:
            self._addresses.clear()
        self._addresses[address.href] = address

    def _transport(self, address: Address) -> HttpTransport:
        """HTTP with the headers of a store; the caller's own for HTTP are not its business."""
        transport = self._http.get(address.headers)
        if transport is None:
            if len(self._http) >= _MOST_TOKENS:
                self._http.clear()
            transport = HttpTransport(replace(self.config, http_headers=dict(address.headers)))
            self._http[address.headers] = transport
        return transport

    def _unless_refused(
        self,
        ask: Ask,
        address: Address,
        refused: frozenset[int] = _REFUSED,
    ) -> Reply | None:
        try:
            return self._by_http(ask, address)
        except (StorageError, AccessDeniedError) as error:
            if error.fields.get("status") not in refused:
                raise
        self._addresses.pop(address.href, None)
        return None

    def _by_http(self, ask: Ask, address: Address) -> Reply:
        http = self._transport(address)
        if ask.location.scheme == "az" and isinstance(ask.want, Tail) and ask.want.size:
            # Azure does not count from the end, and would send the whole object.
            info = ask.known or http.get(Ask(address, Head(0), None)).info
            offset, size = answer_span(ask.want, info.size, self.config.max_request, ask.location)
            if size == 0:
                return Reply(b"", offset, info)
            return http.get(Ask(address, ByteRange(offset, size), info))
        try:
            return http.get(replace(ask, location=address))
        except StorageError as error:
            if error.fields.get("status") != 416 or ask.known is not None:
                raise
        # No range of an empty object can be answered, and some stores do not tell its size.
        return self._by_store(ask)

    def _by_store(self, ask: Ask) -> Reply:
        """What obstore reads by itself."""
        store = networked_store(ask.location, self.config)
        most = self.config.max_request
        size = min(ask.want.limit, most) if isinstance(ask.want, Whole) else ask.want.size
        tries = Tries(self.config, ask.location, size)
        return retrying(tries, lambda _: read(store, ask, most))


@contextmanager
def _no_secrets(location: Location, config: StorageConfig) -> Iterator[None]:
    """Let errors out with a hint, and without those below them, which know the address."""
    if config.withheld:
        raise no_secrets(location.label)
    try:
        yield
    except ComalError as error:
        error.__cause__ = error.__context__ = None
        error.hint = error.hint or _hint(error, location.scheme)
        raise


def _hint(error: ComalError, scheme: str) -> str | None:
    if scheme == "s3" and ("redirect" in error.what or error.fields.get("status") in (301, 400)):
        return "check the region of the bucket (AWS_REGION) and the credentials"
    if isinstance(error, AccessDeniedError):
        return _HINTS[error.fields.get("status", 403)]
    return _HINTS.get(error.fields.get("status", 0))


def _list(store: ObjectStore, location: Location) -> Any:
    with store_errors(Ask(location, Head(0), None), last=True):
        return obstore.list_with_delimiter(store, location.path or None)
