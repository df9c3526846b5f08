"""Addresses by which plain HTTP reads objects of a store: signed, public, or none.

obstore signs, so that no signature is made by hand here. It is asked to where that is a
computation: by the keys of S3, whichever way they come, by the private key of a Google service
account, and by the key of an Azure account. Public objects, and Azure's with a shared access
signature, have an address without that, and so have those that are read by a token that the caller
or the caller's provider gives. Tokens that only obstore knows it does not tell, and to have an
address signed by a service of the cloud takes a request for each object, and rights that reading
does not: there is no address then, nor where requests need keys of customers, sessions or
connections of the store's own.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlsplit

import obstore
from obstore.exceptions import BaseError

from comal.errors import InvalidInputError
from comal.parallel import PerProcess
from comal.plan import Head
from comal.storage.config import StorageConfig
from comal.storage.credentials import Token, Tokens, asked_at_once
from comal.storage.location import Location
from comal.storage.remote import Ask
from comal.storage.retry import Tries, retrying
from comal.storage.stores import (
    OWN_CLIENT,
    allows_http,
    forked,
    no_network_here,
    opened_store,
    settings,
    store_errors,
    store_options,
    switched_on,
    without,
)

T = TypeVar("T")
_Addresses = Callable[[str], str]

LIFETIME = 3600.0
"""Seconds for which an address is signed."""
# What is left then is enough for the longest request.
_USED_FOR = LIFETIME / 2
# What did not answer is not waited for again at once.
_STUCK_FOR = 60.0

# What a request by a signed address would lack: keys of customers, sessions, the way and the trust
# of the store's own client.
_OWN_REQUESTS = ("sse_customer_key_base64", "encryption_key", "s3_express", *OWN_CLIENT)
# Without this header, Azure answers anonymous requests as it did in 2009.
_AZURE_VERSION = ("x-ms-version", "2023-11-03")
# A client that reaches nothing: what it signs was signed without the network.
_OFFLINE = {"proxy_url": "http://127.0.0.1:0"}
# Signed with these, an address is only taken for what stands before its query.
_NOBODY_S3 = {"access_key_id": "nobody", "secret_access_key": "nobody"}
_NOBODY_AZURE = {"account_key": "bm9ib2R5", "credential_type": "access_key"}
_GOOGLE_ACCOUNTS = ("service_account", "service_account_path", "service_account_key")
_GOOGLE = "https://storage.googleapis.com"

_signers: PerProcess[tuple[str, ...], Signer] = PerProcess(inherited=True)


class _StuckError(Exception):
    """What was asked for waits for ever in a forked child."""


@dataclass(frozen=True, slots=True, repr=False)
class Address(Location):
    """Where an object is asked for over HTTP, under the name that the caller has for it.

    Its query is a secret: messages, pins and pickles only know the caller's name.
    """

    named: Location = field(kw_only=True)
    token: str = field(kw_only=True, default="")
    """The bearer token to send with a request."""
    headers: tuple[tuple[str, str], ...] = field(kw_only=True, default=())
    """What to send with a request, the token included."""
    until: float = field(kw_only=True, default=0.0)
    """For how long to use it, by `time.monotonic`."""

    @property
    def href(self) -> str:
        """The name of the object: ``s3://bucket/key``."""
        return self.named.href

    @property
    def label(self) -> str:
        """The name of the object as messages show it."""
        return self.named.label

    @property
    def url(self) -> str:
        """The address itself."""
        return f"{self.scheme}://{self.root}{self.path}?{self.query}".removesuffix("?")

    @property
    def variant(self) -> str:
        """Nothing: the query says who asks, and not for what."""
        return ""

    def __repr__(self) -> str:
        return f"Address({self.label!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Location, (self.named.scheme, self.named.root, self.named.path)


def signer_of(location: Location, config: StorageConfig) -> Signer:
    """The signer of a place, one for each configuration; a forked child goes on with it."""
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
        self._headers: tuple[tuple[str, str], ...] = ()
        self._tokens: Tokens | None = None
        self._addresses: _Addresses | None = None
        with suppress(_StuckError):
            self._addresses = self._in_time(lambda: self._find(location))

    @property
    def by_clock(self) -> bool:
        """Whether its addresses are signed by an account key of Azure, which compares clocks."""
        return not (self._any_name or self._tokens)

    def address(self, location: Location, refused: Address | None = None) -> Address | None:
        """The address of an object, if it has one, other than one that was refused.

        Raises
        ------
        InvalidInputError
            For a key that no object can have.
        StorageError
            When there are no credentials, or none without the network in a forked process.
        """
        addresses = self._addresses
        if addresses is None:
            return None
        # Tokens are not asked for by obstore: a forked child waits for them as its parent does.
        token = self._tokens.get(refused.token if refused else "") if self._tokens else None
        try:
            return self._in_time(lambda: self._address(location, addresses, token))
        except _StuckError:
            raise no_network_here(location) from None

    def _address(
        self, location: Location, addresses: _Addresses, token: Token | None
    ) -> Address | None:
        until, headers = time.monotonic() + _USED_FOR, self._headers
        if token is not None:
            until = min(until, token.until)
            headers += (("Authorization", f"Bearer {token.value}"),)
        tries = Tries(self._config, location)

        def sign() -> str:
            with store_errors(Ask(location, Head(0), None), last=True):
                return addresses(location.path)

        parts = urlsplit(retrying(tries, lambda _: sign()))
        if parts.scheme == "http" and not self._http:
            raise InvalidInputError(
                "the endpoint of the store has no TLS",
                where=location.label,
                found=f"http://{parts.netloc}",
                hint="if that is meant, say so by the option allow_http",
            )
        if "%" in parts.path and not self._any_name:
            # Azure compares the signature with that of the plain name, obstore signs its encoding.
            return None
        where = parts.scheme, parts.netloc, parts.path, parts.query
        value = token.value if token else ""
        return Address(*where, named=location, token=value, headers=headers, until=until)

    def _in_time(self, call: Callable[[], T]) -> T:
        """Call what may wait for the network, which never answers in a forked child."""
        if not forked():
            return call()
        if time.monotonic() < self._stuck_until:
            raise _StuckError
        done: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                done.append(call())
            except BaseException as error:  # noqa: BLE001 - raised again by who waits
                failed.append(error)

        thread = threading.Thread(target=run, name="comal-signing", daemon=True)
        thread.start()
        thread.join(self._config.connect_timeout)
        if failed:
            raise failed[0]
        if not done:
            self._stuck_until = time.monotonic() + _STUCK_FOR
            raise _StuckError
        return done[0]

    def _find(self, location: Location) -> _Addresses | None:
        known = settings(location.scheme, self._options)
        if any(switched_on(known.get(name)) for name in _OWN_REQUESTS):
            return None
        if location.scheme == "az":
            self._headers = (_AZURE_VERSION,)
        public = switched_on(known.get("skip_signature"))
        if location.scheme == "s3":
            return self._public(location, _NOBODY_S3) if public else self._signed(location)
        if location.scheme == "gs" and public:
            return _google(location, known)
        if public:
            return self._public(location, _NOBODY_AZURE)
        static = known.get("bearer_token") or (location.scheme == "az" and known.get("token"))
        if self._config.credential_provider is not None or static:
            # A signature would be by another identity than the token.
            return self._by_tokens(location, known, str(static))
        return self._local(location, known)

    def _by_tokens(
        self, location: Location, known: dict[str, Any], static: str
    ) -> _Addresses | None:
        provider = asked_at_once(self._config.credential_provider)
        if provider is None:
            if "credential_type" in known:
                return None
            provider = functools.partial(dict, token=static)
        tokens = Tokens(provider, location.label)
        if tokens.get() is None:
            return None
        self._tokens = tokens
        return self._told(location, known)

    def _told(self, location: Location, known: dict[str, Any]) -> _Addresses | None:
        """Plain addresses, to be asked with a token."""
        if location.scheme == "gs":
            return _google(location, known)
        with suppress(InvalidInputError):
            return self._public(location, _NOBODY_AZURE)
        # The account is the provider's secret.
        return None

    def _signed(self, location: Location, **client: Any) -> _Addresses:
        store = cast("Any", opened_store(location, self._options, self._config, **client))
        lifetime = timedelta(seconds=LIFETIME)
        if location.scheme == "gs":
            # obstore puts keys into Google's addresses as they are, '#' and '?' among them.
            return lambda key: obstore.sign(store, "GET", quote(key), lifetime)
        return lambda key: obstore.sign(store, "GET", key, lifetime)

    def _public(self, location: Location, nobody: dict[str, Any], query: str = "") -> _Addresses:
        options = {**nobody, "skip_signature": False}
        options |= without(location.scheme, self._options, options)
        config = replace(self._config, credential_provider=None)
        store = cast("Any", opened_store(location, options, config))
        lifetime = timedelta(seconds=LIFETIME)
        self._any_name = True
        return lambda key: obstore.sign(store, "GET", key, lifetime).partition("?")[0] + query

    def _local(self, location: Location, known: dict[str, Any]) -> _Addresses | None:
        addresses = self._signed(location, **_OFFLINE)
        try:
            addresses("probe")
        except (BaseError, OSError, ValueError) as error:
            if "SASforSASNotSupported" in str(error):
                token = str(known.get("sas_key") or known.get("sas_token")).lstrip("?")
                return self._public(location, _NOBODY_AZURE, f"?{token}")
            return None
        return addresses


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
