"""HTTP connections of this process, kept by origin, with deadlines a slow server cannot extend.

A read timeout bounds the wait for the next byte only: a server that sends one byte every few
seconds would hold a reader for ever. Here each read of headers or body also ends at the deadline
of the request.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import exceptions
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from comal.errors import AccessDeniedError
from comal.parallel import PerProcess
from comal.storage.config import ANY, LINK_LOCAL, LOOPBACK, PRIVATE, PUBLIC, StorageConfig
from comal.storage.location import Location
from comal.storage.remote import TransientError

_POOLS = 64
_FOREVER = float("inf")
# RFC 3986, 3.4, with its percent-encoding in normal form (6.2.2.1).
_ENCODED = re.compile(r"(?:[-\w.~!$&'()*+,;=:@/?]|%[\dA-F]{2})*", re.ASCII)


Sender = tuple[Callable[..., urllib3.BaseHTTPResponse], int]
"""What sends a request to an origin, and how many characters of a URL it does not take."""

_senders: PerProcess[tuple[int, str | None, int], Callable[[str], Sender]] = PerProcess()
_request = threading.local()


def send(
    location: Location,
    config: StorageConfig,
    least: int,
    headers: dict[str, str],
    deadline: float,
    method: str = "GET",
    body: Iterable[bytes] | None = None,
) -> urllib3.BaseHTTPResponse:
    """Request a location, directly or through the proxy of the environment.

    A body in blocks needs a ``Content-Length``; each block has the time of `idle_timeout`.

    The response ends at the deadline, by `time.monotonic`, or when no byte comes for too long.
    `least` is how public an address must be. A proxy resolves names by its own rules: then only a
    numerical address in the URL can be checked, and a name raises `AccessDeniedError`.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TransientError("no time left")
    proxy = _proxy(location.scheme, location.root)
    if proxy is not None:
        _check_by_proxy(location, least)
        least = ANY
    url, mark, query = location.url.partition("?")
    if _ENCODED.fullmatch(query) is None:
        url, mark, query = location.url, "", ""
    _request.deadline, _request.idle = deadline, config.idle_timeout
    _request.least, _request.query = least, mark + query
    # Connections with checked addresses are kept apart from unchecked ones.
    key = config.concurrency, proxy, least
    timeout = urllib3.Timeout(
        connect=min(left, config.connect_timeout), read=min(left, config.idle_timeout)
    )
    urlopen, skipped = _senders.get(key, lambda: _make(config.concurrency, proxy))(location.origin)
    _request.ours = True
    try:
        return urlopen(
            method,
            url[skipped:] or "/",
            body=body,
            headers=headers,
            redirect=False,
            retries=False,
            timeout=timeout,
            preload_content=False,
            decode_content=False,
        )
    finally:
        _request.ours = False


def kind_answered(location: Location) -> int:
    """How public the address is that this thread's last request for a location went to."""
    if _proxy(location.scheme, location.root) is not None:
        known = kind_of_host(urlsplit(location.href).hostname or "")
        return PUBLIC if known is None else known
    kind: int = getattr(_request, "kind", PUBLIC)
    return kind


@lru_cache(maxsize=256)
def _proxy(scheme: str, root: str) -> str | None:
    return None if proxy_bypass(root) else getproxies().get(scheme)


def _make(concurrency: int, proxy: str | None) -> Callable[[str], Sender]:
    options: dict[str, Any] = {"maxsize": concurrency, "block": False, "retries": False}
    if proxy is None:
        made = urllib3.PoolManager(_POOLS, **options)
    else:
        made = urllib3.ProxyManager(proxy, _POOLS, **options)
    made.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}

    @lru_cache(maxsize=_POOLS)
    def sender(origin: str) -> Sender:
        if proxy is not None:
            return made.urlopen, 0
        # The manager would parse each URL and look its pool up: a tenth of the time of a request.
        return made.connection_from_url(origin).urlopen, len(origin)

    return sender


class _DeadlineReader(io.RawIOBase):
    """The incoming side of a socket."""

    def __init__(self, raw: socket.SocketIO, sock: socket.socket) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock
        self._deadline = getattr(_request, "deadline", _FOREVER)
        self._idle = getattr(_request, "idle", _FOREVER)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left = min(self._idle, self._deadline - time.monotonic())
        if left <= 0:
            raise TimeoutError("the answer took too long")
        if left < _FOREVER and self._sock.gettimeout() != left:
            self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
            super().close()


class _DeadlineResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **named: Any) -> None:
        super().__init__(sock, *args, **named)
        raw = self.fp.detach()
        assert isinstance(raw, socket.SocketIO)
        self.fp = io.BufferedReader(_DeadlineReader(raw, sock), 1 << 16)


class _Connection(HTTPConnection):
    """A connection to a checked address, which sends queries past urllib3.

    urllib3 scans each character of a query several times, which takes longer than the request if
    the query is a signature with a session token. Only queries that are not properly encoded are
    left to urllib3.
    """

    response_class = _DeadlineResponse

    def putrequest(self, method: str, url: str, *args: Any, **named: Any) -> None:
        super().putrequest(method, url + getattr(_request, "query", ""), *args, **named)

    def getresponse(self) -> Any:
        _request.kind = self._kind
        return super().getresponse()

    def _new_conn(self) -> socket.socket:
        sock = self._connected(getattr(_request, "least", ANY))
        try:
            self._kind = kind_of(sock.getpeername()[0])
        except OSError as error:
            # The server has hung up already.
            sock.close()
            raise exceptions.NewConnectionError(self, str(error)) from error
        return sock

    def _connected(self, least: int) -> socket.socket:
        if least == ANY:
            return super()._new_conn()
        name = self._dns_host
        try:
            addresses = allowed(name, self.port, least)
        except socket.gaierror as error:
            raise exceptions.NameResolutionError(name, self, error) from error
        try:
            for number, self._dns_host in enumerate(addresses, 1):
                try:
                    return super()._new_conn()
                except exceptions.HTTPError:
                    if number == len(addresses):
                        raise
        finally:
            self._dns_host = name
        raise AssertionError("unreachable: there is an address")


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(_Pool, HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def _without_query(record: logging.LogRecord) -> bool:
    """Keep queries, which may be signatures, out of the log for debugging."""
    if getattr(_request, "ours", False) and isinstance(record.args, tuple):
        record.args = tuple(
            arg.partition("?")[0] if isinstance(arg, str) else arg for arg in record.args
        )
    return True


# A record is made in the thread of its request, so records of other requests stay unchanged.
logging.getLogger(urllib3.connectionpool.__name__).addFilter(_without_query)


# -- addresses -------------------------------------------------------------------------------------
# Untrusted content must not reach addresses that only this machine or its network sees. A name is
# resolved once and the connection goes to a checked address, so that a second answer of the name
# server changes nothing.


_NAMES = ("link-local", "loopback", "private", "public")
# The AWS service for credentials of machines, by IPv6.
_METADATA = ipaddress.ip_address("fd00:ec2::254")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def kind_of(address: str) -> int:
    """How public a numerical address is: `LINK_LOCAL`, `LOOPBACK`, `PRIVATE` or `PUBLIC`."""
    return min(_kind(one) for one in _all_forms(ipaddress.ip_address(address)))


def kind_of_host(host: str) -> int | None:
    """As `kind_of`, for a host that a proxy resolves; None for a name."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return LOOPBACK
    with suppress(OSError):
        # As the C library reads it: also 127.1, 2130706433 and 0x7f000001.
        host = socket.inet_ntoa(socket.inet_aton(host))
    try:
        return kind_of(host)
    except ValueError:
        return None


def allowed(host: str, port: int, least: int) -> list[str]:
    """The numerical addresses of a host that are at least as public as `least`; never empty."""
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(one[4][0]) for one in found)
    fitting = [address for address in addresses if kind_of(address) >= least]
    if not fitting:
        raise refused(f"{host}:{port}", min(map(kind_of, addresses)), least)
    return fitting


def _check_by_proxy(location: Location, least: int) -> None:
    """Refuse to ask a proxy for a location whose address is not known to be public enough."""
    if least == ANY:
        return
    kind = kind_of_host(urlsplit(location.href).hostname or "")
    if kind is None:
        raise AccessDeniedError(
            "a reference or a redirect leads to a name that only the proxy resolves",
            where=location.label,
            expected=f"a {_NAMES[least]} address, which cannot be checked behind a proxy",
            hint=f"name {location.origin} in linked_origins if that is meant",
        )
    if kind < least:
        raise refused(location.label, kind, least)


def refused(where: str, kind: int, least: int) -> AccessDeniedError:
    """The error for an address that is not public enough."""
    return AccessDeniedError(
        "a reference or a redirect leads to an address that may not be asked",
        where=where,
        found=f"a {_NAMES[kind]} address",
        expected=f"a {_NAMES[least]} address" + (" or a more public one" if least < PUBLIC else ""),
        hint="name its origin in linked_origins if that is meant",
    )


def _all_forms(address: _Address) -> list[_Address]:
    """An address, and the IPv4 addresses that it embeds."""
    forms: list[_Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        forms += [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
        forms += address.teredo or ()
        if address in _NAT64 or int(address) < 1 << 32:
            forms.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return forms


def _kind(address: _Address) -> int:
    if address.is_link_local or address == _METADATA:
        return LINK_LOCAL
    if address.is_loopback or address.is_unspecified:
        return LOOPBACK
    return PUBLIC if address.is_global and not address.is_multicast else PRIVATE
