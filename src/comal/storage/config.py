"""Storage settings: one frozen value that travels with a source into other processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any

from comal.errors import InvalidInputError, shown
from comal.limits import KIB, MIB
from comal.storage.location import Location, Sealed, parse_href, told

LINKED_ORIGINS = "COMAL_LINKED_ORIGINS"
"""Environment variable with the default of `StorageConfig.linked_origins`."""

LINK_LOCAL, LOOPBACK, PRIVATE, PUBLIC = range(4)
"""How public an address is; at link-local ones, clouds serve the credentials of machines."""
ANY = LINK_LOCAL

_SECRETS = ("http_headers", "s3", "gcs", "azure", "credential_provider")
Linked = Mapping[str, "StorageConfig | None"] | Iterable[str] | str


def _from_environment() -> Linked:
    return os.environ.get(LINKED_ORIGINS, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig:
    """Settings of remote reading and writing. Times are seconds, sizes bytes.

    Headers, store options and the provider are credentials of the origin (scheme, host and port,
    or bucket) that they are given with. No other origin that an archive or a redirect leads to gets
    them. They are not shown. `multiprocessing` passes them to its own processes; other pickles
    carry them only if ``COMAL_PICKLE_SECRETS=1`` is set.
    """

    concurrency: int = 64
    """Requests in flight at once, in one process."""
    coalesce_gap: int = 64 * KIB
    """Ranges that are at most this far apart are fetched in one request."""
    max_request: int = 8 * MIB
    """Ranges are not merged beyond this, and a longer one is fetched in parts of this size."""
    multi_range: bool = True
    """Fetch many ranges of one object in one HTTP request, if more than `concurrency` requests are
    needed and the server supports it; the first such request to an origin is a trial. If False,
    every range is a request of its own. Object stores support single ranges only."""
    whole_answer: int = 8 * MIB
    """Up to this size, a whole object is accepted from a server that ignores Range."""
    tries: int = 4
    """How often one request is tried before it is given up."""
    backoff_first: float = 0.2
    """Upper end of the first random pause between tries; it doubles with each."""
    backoff_limit: float = 8.0
    """No pause between tries is longer, unless the server asks for one."""
    retry_after_limit: float = 30.0
    """Longest pause that a server can ask for by ``Retry-After``."""
    connect_timeout: float = 5.0
    """Longest wait for a connection."""
    idle_timeout: float = 15.0
    """Longest wait for the next byte."""
    total_timeout: float = 60.0
    """Longest time for one request with all its tries, plus the time for its size."""
    slowest: int = 64 * KIB
    """Bytes per second: a request for more bytes gets more time, at this rate."""
    max_redirects: int = 5
    """Redirects that are followed for one request."""
    scratch: str | None = None
    """Folder in which a file lies until it is whole and goes to a store; None for that of the
    system (``TMPDIR``). It needs room for all that is written."""
    cache_control: str | None = None
    """``Cache-Control`` of objects that are written, such as ``public, max-age=31536000``.
    Documents and the tables of an index may be replaced, and get ``no-cache``: who keeps a copy
    asks whether it is still the newest."""
    follow_symlinks: bool = False
    """Whether names below a local folder may lead out of it through symbolic links."""
    linked_origins: Linked = field(default_factory=_from_environment)
    """Origins to which absolute references and redirects may lead.

    ``https://host[:port]``, ``s3://bucket`` or ``file://``; several, or one text separated by
    commas. A mapping gives the configuration, and so the credentials, for each. The default is the
    environment variable ``COMAL_LINKED_ORIGINS``. For origins that are not named: a remote archive
    may not refer to them at all; a local one may, without credentials, but not to link-local
    addresses; a redirect may lead to them, but not to addresses that are less public than the one
    it comes from.
    """
    untrusted: bool = False
    """Whether local archives are untrusted, too: then they may refer to public addresses only.
    The server sets this."""
    http_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers sent with each HTTP request to the named origin, such as a token."""
    s3: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of obstore's ``S3Store``: ``endpoint``, ``region``, ``skip_signature``, ..."""
    gcs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of obstore's ``GCSStore``."""
    azure: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of obstore's ``AzureStore``: ``account_name``, ``sas_token``, ..."""
    credential_provider: Any = field(default=None, repr=False)
    """An obstore credential provider for the stores opened with this; not a coroutine."""
    withheld: bool = field(default=False, repr=False)
    """Whether a pickle has left out the credentials; then network requests raise an error."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "linked_origins", _origins(self.linked_origins))
        if any(getattr(self, name) for name in _SECRETS):
            told()
        provider = self.credential_provider
        if iscoroutinefunction(provider) or iscoroutinefunction(getattr(provider, "__call__", 0)):  # noqa: B004 - looked at, not called
            raise InvalidInputError(
                "the credential provider is asynchronous",
                where="credential_provider",
                hint="pass its blocking twin, or a function that runs it to its end",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        secrets = {name: value for name in _SECRETS if (value := values.pop(name))}
        if values.pop("withheld"):
            return _configured, (values, Sealed(None))
        return _configured, (values, Sealed(secrets) if secrets else None)

    @property
    def key(self) -> str:
        """Identity of a configuration, except for store options and headers."""
        return f"{self!r} {self.credential_provider!r}"

    def public(self) -> StorageConfig:
        """The same without credentials."""
        return replace(self, http_headers={}, s3={}, gcs={}, azure={}, credential_provider=None)

    def linked(self, location: Location) -> StorageConfig | None:
        """The configuration for a linked location; None if `linked_origins` lacks its origin."""
        named = self.linked_origins
        assert isinstance(named, Mapping)
        if location.origin not in named:
            return None
        given = named[location.origin]
        return self.public() if given is None else replace(given, linked_origins=named)

    def deadline(self, size: int) -> float:
        """Seconds that a request for `size` bytes may take with all its tries."""
        return self.total_timeout + size / self.slowest


def _configured(values: Mapping[str, Any], secrets: Sealed | None) -> StorageConfig:
    if secrets is None:
        return StorageConfig(**values)
    return StorageConfig(**values, **(secrets.value or {}), withheld=secrets.value is None)


def _origins(given: Linked) -> dict[str, StorageConfig | None]:
    if isinstance(given, Mapping):
        return {_origin(name): config for name, config in given.items()}
    names = given.replace(",", " ").split() if isinstance(given, str) else given
    return {_origin(name): None for name in names}


def _origin(name: Any) -> str:
    if name in {"file:", "file://", "file:///"}:
        return "file://"
    location = parse_href(name)
    named = "://" in str(name) and location.path.strip("/") == ""
    if not named or location.query or location.userinfo:
        raise InvalidInputError(
            "not an origin",
            where="linked_origins",
            found=shown(location.label),
            expected="https://host, https://host:port, s3://bucket or file://",
        )
    return location.origin


DEFAULT_CONFIG = StorageConfig(linked_origins=())


@lru_cache(maxsize=4)
def _by_environment(named: str) -> StorageConfig:
    return StorageConfig(linked_origins=named)


def default_config() -> StorageConfig:
    """The configuration to use when none is given."""
    named = os.environ.get(LINKED_ORIGINS)
    return _by_environment(named) if named else DEFAULT_CONFIG
