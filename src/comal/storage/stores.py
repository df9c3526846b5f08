"""obstore stores: opening, translating errors, and reading."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    BaseError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, MemoryStore, ObjectStore, S3Store

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    shown,
)
from comal.parallel import PerProcess
from comal.plan import ByteRange, Tail, Wanted
from comal.storage.config import StorageConfig
from comal.storage.httpwire import check_version, ignores_range
from comal.storage.location import Location
from comal.storage.remote import Ask, Reply, TransientError, passes
from comal.storage.source import ObjectInfo, changed

if TYPE_CHECKING:
    from obstore.store import ObjectStore


_STATUS = re.compile(r"status(?: code)?: (\d{3})")
_BROKEN = ("error sending request", "HTTP error", "error decoding", "timed out", "connection")
# Where the store looks for credentials when none are named.
_METADATA_SERVICE = "169.254.169.254"
_PREFIXES = {"s3": ("AWS_",), "gs": ("GOOGLE_",), "az": ("AZURE_STORAGE_", "AZURE_")}
# Variables that count with the longer prefix only; AZURE_TOKEN is not one of the storage.
_OF_STORAGE = frozenset({"token", "bearer_token", "sas_key", "sas_token"})
_ENDPOINTS = {
    "s3": ("endpoint_url_s3", "endpoint_url", "endpoint"),
    "gs": ("base_url",),
    "az": ("endpoint",),
}
# Hosts of the clouds, which redirect to their own hosts only.
_CLOUDS = {
    "s3": (".amazonaws.com", ".amazonaws.com.cn", ".api.aws"),
    "gs": (".googleapis.com",),
    "az": (".core.windows.net", ".core.usgovcloudapi.net", ".core.chinacloudapi.cn"),
}
# obstore follows redirects by itself. It drops Authorization then, but not other headers, and
# repeats the query as Referer.
_FOLLOWING = {
    "s3": ("sse_customer_key_base64", "session_token", "token", "default_headers"),
    "gs": ("default_headers",),
    "az": ("encryption_key", "sas_key", "sas_token", "default_headers"),
}
_OF_SIGNATURES = frozenset({"session_token", "token", "sas_key", "sas_token"})
OWN_CLIENT = (
    "allow_invalid_certificates",
    "default_headers",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
)
"""Settings of the store's own HTTP client, which it also uses to fetch tokens."""
_UNSIGNED = {
    "s3": "AWS_NO_SIGN_REQUEST=YES",
    "gs": "GOOGLE_SKIP_SIGNATURE=true",
    "az": "AZURE_SKIP_SIGNATURE=true",
}
_OFF = frozenset({"", "false", "no", "off", "0", "none"})

_memory: dict[str, MemoryStore] = {}
# In a forked child, a store still works without the network, with the credentials it has.
_opened: PerProcess[tuple[str, ...], ObjectStore] = PerProcess(inherited=True)
_first_user: list[int] = []


class OtherWayError(Exception):
    """The store cannot answer this kind of range."""


def memory_store(name: str) -> MemoryStore:
    """The store behind ``memory://name/``, to be filled with ``obstore.put``."""
    return _memory.setdefault(name, MemoryStore())


def forked() -> bool:
    """Whether a parent of this process was the first to use obstore.

    obstore's threads do not exist in a forked child: network calls would wait for ever. Calls
    without network work.
    """
    if not _first_user:
        _first_user.append(os.getpid())
    return _first_user[0] != os.getpid()


def networked_store(
    location: Location, config: StorageConfig, retries: int = 0, **client: Any
) -> ObjectStore:
    """The store of a location, to be used over the network, or in memory.

    `retries` are those of the store itself, `client` further options of its HTTP client.

    Raises in a forked child of a process that has used obstore, and for secrets that a redirect of
    the endpoint would carry to another server.
    """
    left_behind = forked()
    if location.scheme == "memory":
        return memory_store(location.root)
    if left_behind:
        raise no_network_here(location)
    options = store_options(location.scheme, config)
    _check_following(location, options, config)
    if location.scheme == "s3":
        options.setdefault("copy_if_not_exists", "multipart")
    return opened_store(location, options, config, retries, **client)


def _check_following(location: Location, options: Mapping[str, Any], config: StorageConfig) -> None:
    """Refuse requests by obstore whose secrets a redirect would carry to another origin."""
    scheme, known = location.scheme, settings(location.scheme, options)
    endpoint = next((str(known[name]) for name in _ENDPOINTS[scheme] if known.get(name)), "")
    host = urlsplit(endpoint).hostname or ""
    if host.endswith(_CLOUDS[scheme]) or not (endpoint or switched_on(known.get("use_emulator"))):
        return
    carried = [name for name in _FOLLOWING[scheme] if switched_on(known.get(name))]
    if switched_on(known.get("skip_signature")):
        carried = [name for name in carried if name not in _OF_SIGNATURES]
    elif scheme == "s3" and (config.credential_provider or not known.get("access_key_id")):
        # Keys of machines and roles come with a session token.
        carried.append("session_token")
    if carried:
        raise AccessDeniedError(
            "a redirect of the store's endpoint could send credentials to another server",
            where=location.label,
            found=f"{carried[0]} for {host or 'an emulator'}",
            hint="customer-provided keys, and listing with such credentials, need the cloud's own "
            "endpoint; to avoid listing, name the objects of the folder",
        )


def no_network_here(location: Location) -> StorageError:
    """The error for what a forked child cannot do."""
    return StorageError(
        "a process that was forked after its parent had used an object store can neither list one "
        "nor get credentials over the network",
        where=location.label,
        hint="start the process with the 'spawn' or 'forkserver' method, or pass a "
        "credential_provider",
    )


def store_options(scheme: str, config: StorageConfig) -> dict[str, Any]:
    """The configured options of a kind of store."""
    options = dict({"s3": config.s3, "gs": config.gcs, "az": config.azure}[scheme])
    if scheme == "s3" and switched_on(os.environ.get("AWS_NO_SIGN_REQUEST", "")):
        # GDAL's name for what obstore calls skip_signature.
        options.setdefault("skip_signature", True)
    return options


def settings(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options, with environment variables as defaults, by their short names in lower case.

    obstore reports only the options that were passed to it, and not even all of those.
    """
    prefixes = _PREFIXES[scheme]
    found: dict[str, Any] = {}
    for name, value in os.environ.items():
        short = _short(name, prefixes)
        other_service = short in _OF_STORAGE and not name.startswith("AZURE_STORAGE_")
        if name.startswith(prefixes) and not (scheme == "az" and other_service):
            found[short] = value
    return found | {_short(name, prefixes): value for name, value in options.items()}


def _short(name: str, prefixes: tuple[str, ...]) -> str:
    upper = name.upper()
    for prefix in prefixes:
        if upper.startswith(prefix):
            return upper.removeprefix(prefix).lower()
    return name.lower()


def without(scheme: str, options: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """The options except `names`, in any spelling."""
    prefixes = _PREFIXES[scheme]
    return {key: value for key, value in options.items() if _short(key, prefixes) not in names}


def switched_on(value: object) -> bool:
    """Whether a setting is present and not switched off."""
    return value is not None and str(value).lower() not in _OFF


def opened_store(
    location: Location,
    options: Mapping[str, Any],
    config: StorageConfig,
    retries: int = 0,
    **client: Any,
) -> ObjectStore:
    """The store of a location, one per configuration, shared with forked children.

    `retries` and `client` as for `networked_store`.
    """
    parts = repr(sorted(options.items())), config.key, repr((retries, client))
    named = (location.scheme, location.root, *parts)
    return _opened.get(named, lambda: new_store(location, options, config, retries, **client))


def allows_http(scheme: str, options: Mapping[str, Any]) -> bool:
    """Whether the store is configured for an endpoint without TLS."""
    known = settings(scheme, options)
    named = any(str(known.get(name, "")).startswith("http://") for name in _ENDPOINTS[scheme])
    return named or any(switched_on(known.get(name)) for name in ("allow_http", "use_emulator"))


def new_store(
    location: Location,
    options: Mapping[str, Any],
    config: StorageConfig,
    retries: int = 0,
    **client: Any,
) -> ObjectStore:
    """The store of a location, which nothing else shares; see `opened_store`."""
    options = dict(options)
    container, _, account = location.root.partition("@")
    client = {
        "connect_timeout": timedelta(seconds=config.connect_timeout),
        "read_timeout": timedelta(seconds=config.idle_timeout),
        "timeout": timedelta(seconds=config.deadline(config.max_request)),
        "allow_http": allows_http(location.scheme, options),
        **client,
    }
    options.pop("allow_http", None)
    named: dict[str, Any] = {"client_options": client, "retry_config": {"max_retries": retries}}
    if config.credential_provider is not None:
        named["credential_provider"] = config.credential_provider
    if account:
        options.setdefault("account_name", account.partition(".")[0])
    kind: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[location.scheme]
    try:
        return cast("ObjectStore", kind(container, config=options, **named))
    except (BaseError, ValueError, TypeError) as error:
        raise InvalidInputError(
            "the store cannot be configured", where=location.label, found=_first_line(error)
        ) from error


@contextmanager
def store_errors(ask: Ask, *, last: bool = False) -> Iterator[None]:
    """Translate errors of obstore into errors of comal, or into one that causes a retry.

    `last` says that there is no other way left to make the request.
    """
    try:
        yield
    except ComalError:
        raise
    except (BaseError, OSError, ValueError, TypeError) as error:
        raise _translation(error, ask, last=last) from error


def _translation(error: Exception, ask: Ask, *, last: bool) -> Exception:
    location = ask.location
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError("no such object", where=location.label)
    _, by_provider, why = _first_line(error).partition("credential provider: ")
    if by_provider:
        return StorageError("the credential provider failed", where=location.label, found=why)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return AccessDeniedError("access denied", where=location.label)
    if isinstance(error, PreconditionError) and ask.known is not None:
        return changed(location, ask.known, None)
    if isinstance(error, NotSupportedError) or "non-partial response" in str(error):
        return ignores_range(None, 0, location) if last else OtherWayError()
    if isinstance(error, ValueError | TypeError) and not isinstance(error, BaseError):
        return InvalidInputError("not a key", where=location.label, found=_first_line(error))
    return _generic(error, ask, last=last)


def _generic(error: Exception, ask: Ask, *, last: bool) -> Exception:
    text = _first_line(error)
    match = _STATUS.search(text)
    status = int(match[1]) if match else None
    if status == 416 or "Invalid range" in text:
        if ask.known is not None:
            # The range was inside the opened object: this is another one.
            return changed(ask.location, ask.known, None)
        if not last:
            return OtherWayError()
    if status is not None and passes(status):
        return TransientError(f"status {status}", status=status)
    if status is None and any(sign in text for sign in _BROKEN):
        return TransientError(text)
    hint = None
    if any(sign in text.lower() for sign in (_METADATA_SERVICE, "credential", "token")):
        hint = (
            "pass credentials or a credential_provider, or read public objects unsigned: "
            + _UNSIGNED[ask.location.scheme]
        )
    return StorageError(
        "the store failed", where=ask.location.label, found=text, hint=hint, status=status
    )


def _first_line(error: Exception) -> str:
    # obstore appends debugging details, which may hold signed URLs.
    return shown(str(error).partition("\n")[0], 200)[1:-1]


def read(store: ObjectStore, ask: Ask, most: int) -> Reply:
    """Make one request; a `Whole` may be answered by its first `most` bytes.

    Raises `TransientError` for failures that may pass; the caller retries.
    """
    if ask.is_question:
        return Reply(b"", 0, _head(store, ask))
    try:
        return _ranged(store, ask, most)
    except OtherWayError:
        # An empty object has no ranges, and Azure does not support ranges from the end. If
        # ranges are ignored altogether, the second attempt raises an error for that.
        second = partial(_ranged, store, most=most, last=True)
        return ask.answered(_head(store, ask), most, second)


def _range(want: Wanted, size: int) -> tuple[int, int] | dict[str, int]:
    if isinstance(want, ByteRange):
        return want.offset, want.end
    return {"suffix": size} if isinstance(want, Tail) else (0, max(1, size))


def _head(store: ObjectStore, ask: Ask) -> ObjectInfo:
    with store_errors(ask, last=True):
        meta = obstore.head(store, ask.location.path)
    return _checked_info(ask, cast("Mapping[str, Any]", meta))


def _ranged(store: ObjectStore, ask: Ask, most: int, *, last: bool = False) -> Reply:
    options: dict[str, Any] = {"range": _range(ask.want, ask.size(most))}
    if ask.known is not None and ask.known.etag is not None:
        options["if_match"] = ask.known.etag
    with store_errors(ask, last=last):
        result = obstore.get(store, ask.location.path, options=cast("Any", options))
        data, start = bytes(result.bytes()), result.range[0]
    info = _checked_info(ask, cast("Mapping[str, Any]", result.meta))
    offset, size = ask.span(info.size, most)
    if (start, len(data)) != (offset, size):
        raise ShortReadError(
            "the store sent a range that was not asked for",
            where=ask.location.label,
            found=f"{start}+{len(data)}",
            expected=f"{offset}+{size}",
        )
    return Reply(data, offset, info)


def _checked_info(ask: Ask, meta: Mapping[str, Any]) -> ObjectInfo:
    etag = meta["e_tag"]
    modified = int(meta["last_modified"].timestamp()) * 10**9
    strong = etag if etag and not etag.startswith("W/") else None
    info = ObjectInfo(ask.location.href, meta["size"], strong or meta["version"], modified)
    check_version(ask.known, info, ask.location)
    return info
