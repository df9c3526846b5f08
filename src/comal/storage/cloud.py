"""Object stores: S3, Google Cloud Storage, Azure, and objects in memory.

obstore finds credentials, lists and signs. Where it can sign without a request, the bytes are read
by signed URL over the same HTTP engine as any URL, with its checks, ``Retry-After``, deadlines and
connections that survive a fork. That holds for S3 keys, however they are given, for the private key
of a Google service account, and for the key of an Azure account. Public objects, Azure objects with
a shared access signature, and objects read with a bearer token have a URL without signing.

obstore itself reads everything else: with customer-provided keys, sessions or client settings of
the store's own. It hides ``Retry-After`` and does not work in a forked child of a process that has
used it: such a child gets an error.
"""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote, urlsplit

import obstore
from obstore.exceptions import BaseError

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    shown,
)
from comal.parallel import PerProcess
from comal.plan import Head, Tail
from comal.storage.config import StorageConfig
from comal.storage.http import HttpTransport
from comal.storage.location import Location, no_secrets
from comal.storage.remote import Ask, Reply, Transport, retrying
from comal.storage.source import ObjectInfo
from comal.storage.stores import (
    OWN_CLIENT,
    allows_http,
    forked,
    memory_store,
    networked_store,
    no_network_here,
    opened_store,
    read,
    settings,
    store_errors,
    store_options,
    switched_on,
    without,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["CloudTransport", "memory_store"]

T = TypeVar("T")
_Addresses = Callable[[str], str]

_MOST_KEPT = 16_384
_MOST_TOKENS = 64
# Statuses for a signature that has expired, or was made with expired keys.
_REFUSED = frozenset({400, 401, 403})
# Status for an expired token.
_EXPIRED = frozenset({401})
_HINTS = {
    400: "check the credentials",
    401: "check the credentials",
    403: "check the credentials and the name: without the right to list, stores answer the same "
    "for an absent object",
}
LIFETIME = 3600.0
"""Seconds for which an address is signed."""
# The remaining half is enough for the longest request.
_USED_FOR = LIFETIME / 2
# For this long, a signer that did not answer is not tried again.
_STUCK_FOR = 60.0

# Settings that a request by signed URL would ignore: customer-provided keys, sessions, and options
# of the store's own client.
_OWN_REQUESTS = ("sse_customer_key_base64", "encryption_key", "s3_express", *OWN_CLIENT)
# Without this header, Azure answers anonymous requests as it did in 2009.
_HEADERS = {"az": (("x-ms-version", "2023-11-03"),)}
# A client without network access: whatever it signs needed no request.
_OFFLINE = {"proxy_url": "http://127.0.0.1:0"}
# Dummy keys, to sign a URL of which only the part before the query is used.
_NOBODY = {
    "s3": {"access_key_id": "nobody", "secret_access_key": "nobody"},
    "az": {"account_key": "bm9ib2R5", "credential_type": "access_key"},
}
_GOOGLE_ACCOUNTS = ("service_account", "service_account_path", "service_account_key")
_GOOGLE = "https://storage.googleapis.com"


class CloudTransport(Transport):
    """Makes one request at a time to an object store."""

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
        with guarding(location, self.config):
            return self._get(ask)

    def stat(self, ask: Ask) -> ObjectInfo:
        """Size and version of an object, or a folder if only objects with this prefix exist."""
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
        with guarding(location, self.config):
            store = networked_store(location, self.config)
            listed = retrying(self.config, location, 0, lambda _: _list(store, location))
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
        # Keys may have changed and signed URLs expire: sign again, once.
        signer = signer_of(ask.location, self.config)
        address = signer.address(ask.location, held)
        if address is None:
            return self._by_store(ask)
        if address.token:
            reply = self._unless_refused(ask, address, _EXPIRED)
            if reply is None:
                # The token is from an earlier read, or the clock stood still while this machine
                # slept.
                address = signer.address(ask.location, address) or address
                reply = self._by_http(ask, address)
        elif signer.by_clock and not forked():
            # Azure refuses signatures of a clock that is ahead of its own; obstore's own requests
            # tolerate a quarter of an hour.
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
        """HTTP with the headers of a store, without the caller's HTTP headers."""
        transport = self._http.get(address.headers)
        if transport is None:
            if len(self._http) >= _MOST_TOKENS:
                self._http.clear()
            transport = HttpTransport(replace(self.config, http_headers=dict(address.headers)))
            self._http[address.headers] = transport
        return transport

    def _unless_refused(
        self, ask: Ask, address: Address, refused: frozenset[int] = _REFUSED
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
            # Azure does not support ranges from the end, and would send the whole object.
            info = ask.known or http.get(Ask(address, Head(0), None)).info
            return replace(ask, location=address).answered(info, self.config.max_request, http.get)
        try:
            return http.get(replace(ask, location=address))
        except StorageError as error:
            if error.fields.get("status") != 416 or ask.known is not None:
                raise
        # An empty object has no ranges, and some stores do not send its size.
        return self._by_store(ask)

    def _by_store(self, ask: Ask) -> Reply:
        """Read with obstore itself."""
        store = networked_store(ask.location, self.config)
        most = self.config.max_request
        return retrying(self.config, ask.location, ask.size(most), lambda _: read(store, ask, most))


@contextmanager
def guarding(location: Location, config: StorageConfig) -> Iterator[None]:
    """Raise errors with a hint and without their causes, which may show the signed URL."""
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


# -- addresses -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Address(Location):
    """The HTTP URL of an object, with the caller's name for the object.

    Its query is a secret: messages, pins and pickles show only the caller's name.
    """

    named: Location = field(kw_only=True)
    token: str = field(kw_only=True, default="")
    """The bearer token to send with a request."""
    headers: tuple[tuple[str, str], ...] = field(kw_only=True, default=())
    """Headers to send with a request, including the token."""
    until: float = field(kw_only=True, default=0.0)
    """When to stop using it, by `time.monotonic`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "href", self.named.href)  # ``s3://bucket/key``
        object.__setattr__(self, "is_local", False)

    @property
    def url(self) -> str:
        """The URL with its query."""
        return f"{self.scheme}://{self.root}{self.path}?{self.query}".removesuffix("?")

    @property
    def variant(self) -> str:
        """Empty: the query says who asks, not which object."""
        return ""

    def __repr__(self) -> str:
        return f"Address({self.label!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Location, (self.named.scheme, self.named.root, self.named.path)


class _StuckError(Exception):
    """A call that waits for ever in a forked child."""


_signers: PerProcess[tuple[str, ...], Signer] = PerProcess(inherited=True)


def signer_of(location: Location, config: StorageConfig) -> Signer:
    """The signer of a bucket, one per configuration; a forked child keeps using it."""
    options = store_options(location.scheme, config)
    named = location.scheme, location.root, repr(sorted(options.items())), config.key
    return _signers.get(named, lambda: Signer(location, config))


class Signer:
    """Makes the addresses of the objects in one bucket."""

    def __init__(self, location: Location, config: StorageConfig) -> None:
        self._config = config
        self._options = store_options(location.scheme, config)
        self._http = allows_http(location.scheme, self._options)
        self._stuck_until = 0.0
        self._any_name = location.scheme != "az"
        self._tokens: Tokens | None = None
        self._addresses: _Addresses | None = None
        with suppress(_StuckError):
            self._addresses = self._in_time(lambda: self._find(location))

    @property
    def by_clock(self) -> bool:
        """Whether URLs are signed with an Azure account key; Azure compares clocks."""
        return not (self._any_name or self._tokens)

    def address(self, location: Location, refused: Address | None = None) -> Address | None:
        """The URL of an object, other than `refused`; None if it has none.

        Raises for an invalid key, for missing credentials, and in a forked process for credentials
        that need the network.
        """
        addresses = self._addresses
        if addresses is None:
            return None
        # obstore does not fetch tokens: a forked child can wait for them as its parent does.
        token = self._tokens.get(refused.token if refused else "") if self._tokens else None
        try:
            return self._in_time(lambda: self._address(location, addresses, token))
        except _StuckError:
            raise no_network_here(location) from None

    def _address(
        self, location: Location, addresses: _Addresses, token: Token | None
    ) -> Address | None:
        until, headers = time.monotonic() + _USED_FOR, _HEADERS.get(location.scheme, ())
        if token is not None:
            until = min(until, token.until)
            headers = (*headers, ("Authorization", f"Bearer {token.value}"))

        def sign(_: float) -> str:
            with store_errors(Ask(location, Head(0), None), last=True):
                return addresses(location.path)

        parts = urlsplit(retrying(self._config, location, 0, sign))
        if parts.scheme == "http" and not self._http:
            raise InvalidInputError(
                "the endpoint of the store has no TLS",
                where=location.label,
                found=f"http://{parts.netloc}",
                hint="set the option allow_http if that is meant",
            )
        if "%" in parts.path and not self._any_name:
            # Azure expects a signature of the plain name, obstore signs the encoded one.
            return None
        where = parts.scheme, parts.netloc, parts.path, parts.query
        value = token.value if token else ""
        return Address(*where, named=location, token=value, headers=headers, until=until)

    def _in_time(self, call: Callable[[], T]) -> T:
        """Call a function that may wait for the network, which never answers in a forked child."""
        if not forked():
            return call()
        if time.monotonic() < self._stuck_until:
            raise _StuckError
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:  # noqa: BLE001 - raised again by who waits
                answer.set_exception(error)

        threading.Thread(target=run, name="comal-signing", daemon=True).start()
        wait([answer], self._config.connect_timeout)
        if not answer.done():
            self._stuck_until = time.monotonic() + _STUCK_FOR
            raise _StuckError
        return answer.result()

    def _find(self, location: Location) -> _Addresses | None:
        known = settings(location.scheme, self._options)
        if any(switched_on(known.get(name)) for name in _OWN_REQUESTS):
            return None
        public = switched_on(known.get("skip_signature"))
        if location.scheme == "gs" and public:
            return _google(location, known)
        if public:
            return self._public(location)
        if location.scheme == "s3":
            return self._signed(location)
        static = known.get("bearer_token") or (location.scheme == "az" and known.get("token"))
        if self._config.credential_provider is not None or static:
            # A signature would have another identity than the token.
            return self._by_tokens(location, known, str(static))
        return self._local(location, known)

    def _by_tokens(
        self, location: Location, known: dict[str, Any], static: str
    ) -> _Addresses | None:
        """Plain URLs, to be requested with a token; None if keys are given instead."""
        provider = self._config.credential_provider
        if provider is None:
            if "credential_type" in known:
                return None
            provider = functools.partial(dict, token=static)
        tokens = Tokens(provider, location.label)
        if tokens.get() is None:
            return None
        self._tokens = tokens
        if location.scheme == "gs":
            return _google(location, known)
        with suppress(InvalidInputError):
            return self._public(location)
        # Only the provider knows the account.
        return None

    def _signed(self, location: Location, **client: Any) -> _Addresses:
        sign = _signing(opened_store(location, self._options, self._config, **client))
        # obstore does not encode keys in Google's URLs, not even '#' and '?'.
        return (lambda key: sign(quote(key))) if location.scheme == "gs" else sign

    def _public(self, location: Location, query: str = "") -> _Addresses:
        options: dict[str, Any] = {**_NOBODY[location.scheme], "skip_signature": False}
        options |= without(location.scheme, self._options, options)
        config = replace(self._config, credential_provider=None)
        sign = _signing(opened_store(location, options, config))
        self._any_name = True
        return lambda key: sign(key).partition("?")[0] + query

    def _local(self, location: Location, known: dict[str, Any]) -> _Addresses | None:
        addresses = self._signed(location, **_OFFLINE)
        try:
            addresses("probe")
        except (BaseError, OSError, ValueError) as error:
            if "SASforSASNotSupported" in str(error):
                token = str(known.get("sas_key") or known.get("sas_token")).lstrip("?")
                return self._public(location, f"?{token}")
            return None
        return addresses


def _signing(store: ObjectStore) -> _Addresses:
    return lambda key: obstore.sign(cast("Any", store), "GET", key, timedelta(seconds=LIFETIME))


def _google(location: Location, known: dict[str, Any]) -> _Addresses | None:
    if any(name in known for name in _GOOGLE_ACCOUNTS):
        # The account may name another server.
        return None
    base = str(known.get("base_url") or _GOOGLE).rstrip("/")

    def address(key: str) -> str:
        if any(part in ("", ".", "..") for part in key.split("/")):
            raise ValueError("a part of the key is empty or dots")
        return f"{base}/{location.root}/{quote(key)}"

    return address


# -- bearer tokens ---------------------------------------------------------------------------------


_Provider = Callable[[], Mapping[str, Any]]
# A token that is about to expire could expire on its way.
_BEFORE = 60.0


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A token and when it expires, by `time.monotonic`."""

    value: str
    until: float


class Tokens:
    """The current token, fetched from a provider when there is none."""

    def __init__(self, provider: _Provider, where: str) -> None:
        self._provider = provider
        self._where = where
        self._token: Token | None = None
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def get(self, refused: str = "") -> Token | None:
        """A token that has not expired and is not `refused`.

        None if the provider returns credentials of another kind.

        Raises
        ------
        StorageError
            When the provider fails.
        InvalidInputError
            When the provider returns an invalid token.
        """
        token = self._good(refused)
        if token is not None:
            return token
        if self._pid != os.getpid():
            # A thread of the parent that does not exist here may hold the lock.
            self._start()
        with self._lock:
            # Token services refuse frequent requests: one thread asks, the others wait.
            token = self._good(refused)
            if token is None:
                token = self._token = self._ask()
            return token

    def _good(self, refused: str) -> Token | None:
        token = self._token
        good = token is not None and token.value != refused and time.monotonic() < token.until
        return token if good else None

    def _ask(self) -> Token | None:
        try:
            given = self._provider()
            if "token" not in given:
                return None
            value, expires = given["token"], given.get("expires_at")
            left = math.inf if expires is None else expires.timestamp() - time.time()
        except Exception as error:  # the caller's code may raise anything
            raise StorageError(
                "the credential provider failed",
                where=self._where,
                found=shown(" ".join(f"{type(error).__name__}: {error}".split()), 200)[1:-1],
            ) from error
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise InvalidInputError(
                "the credential provider gave no usable token",
                where=self._where,
                expected="printable ASCII",
            )
        return Token(value, time.monotonic() + left - _BEFORE)
