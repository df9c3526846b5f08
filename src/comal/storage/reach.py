"""Which addresses may be asked: what only this machine or its network sees is not for strangers.

An address is as public as its kind: link-local (where clouds keep the credentials of machines),
loopback, private, public. A name is resolved once, and the connection goes to an address that was
looked at, so that a second answer of the name server changes nothing.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from comal.errors import AccessDeniedError
from comal.storage.location import Location

LINK_LOCAL, LOOPBACK, PRIVATE, PUBLIC = range(4)
ANY = LINK_LOCAL
_NAMES = ("link-local", "loopback", "private", "public")
# The service of AWS that gives out credentials of machines, by IPv6.
_METADATA = ipaddress.ip_address("fd00:ec2::254")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def kind_of(address: str) -> int:
    """How public a numerical address is: `LINK_LOCAL`, `LOOPBACK`, `PRIVATE` or `PUBLIC`."""
    return min(_kind(one) for one in _all_forms(ipaddress.ip_address(address)))


def kind_of_host(host: str) -> int | None:
    """The same for a host that a proxy resolves; None for a name, which tells nothing here."""
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
    """The numerical addresses of a host that are at least as public as `least`.

    Raises
    ------
    AccessDeniedError
        It has none.
    OSError
        Its name cannot be resolved.
    """
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(one[4][0]) for one in found)
    fitting = [address for address in addresses if kind_of(address) >= least]
    if not fitting:
        raise refused(f"{host}:{port}", min(map(kind_of, addresses)), least)
    return fitting


def check_by_proxy(location: Location, least: int) -> None:
    """Refuse a place that a proxy would be asked for, and whose address is not known to be public.

    Raises
    ------
    AccessDeniedError
        Its address is not at least as public as `least`, or only the proxy learns it.
    """
    if least == ANY:
        return
    kind = kind_of_host(urlsplit(location.href).hostname or "")
    if kind is None:
        raise AccessDeniedError(
            "a reference or a redirect leads to a name that only the proxy resolves",
            where=location.label,
            expected=f"a {_NAMES[least]} address, which cannot be looked at behind a proxy",
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
    """An address, and those of IPv4 that it stands for."""
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
