"""Bearer tokens for stores: of the caller, of the caller's provider, of a machine or a user."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from comal.errors import InvalidInputError, StorageError, shown
from comal.storage.config import StorageConfig
from comal.storage.retry import TransientError, Tries, parse_retry_after, passes, retrying

_Provider = Callable[[], Mapping[str, Any]]
# A token that is about to expire could do so on its way.
_BEFORE = 60.0
_FAILURE = "the credential provider failed"


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A token and when it expires, by `time.monotonic`."""

    value: str
    until: float


class Tokens:
    """The token that is good now, asked of a provider when there is none."""

    def __init__(
        self, provider: _Provider, where: str, failure: str = _FAILURE, hint: str | None = None
    ) -> None:
        self._provider = provider
        self._where = where
        self._failure = failure
        self._hint = hint
        self._token: Token | None = None
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def get(self, refused: str = "") -> Token | None:
        """A token that has not expired, and is not the one that was refused.

        None where the provider gives credentials of another kind.

        Raises
        ------
        StorageError
            When the provider fails.
        InvalidInputError
            When what it gives is not a token.
        """
        token = self._good(refused)
        if token is not None:
            return token
        if self._pid != os.getpid():
            # A thread of the parent, which is not here, may hold the lock.
            self._start()
        with self._lock:
            # Services for tokens refuse who asks too often: one thread asks, the others wait.
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
        except Exception as error:  # whatever the caller's own code may raise
            raise StorageError(
                self._failure,
                where=self._where,
                found=shown(" ".join(f"{type(error).__name__}: {error}".split()), 200)[1:-1],
                hint=self._hint,
            ) from error
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise InvalidInputError(
                "the credential provider gives no token",
                where=self._where,
                expected="printable ASCII",
            )
        return Token(value, time.monotonic() + left - _BEFORE)


class AskedAtOnce:
    """A credential provider that is a coroutine function, as one that is not.

    Its coroutine runs in a thread of its own, whatever loop may run in the one that asks.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def __call__(self) -> Any:
        """What the provider gives."""
        with ThreadPoolExecutor(1, thread_name_prefix="comal-credentials") as pool:
            return pool.submit(asyncio.run, self._provider()).result()

    def __getattr__(self, name: str) -> Any:
        # obstore looks for more than the call: some providers bring options of the store.
        return getattr(self._provider, name)


def asked_at_once(provider: Any) -> Any:
    """A provider that answers when it is called, made of one that may need to be awaited."""
    called = provider if inspect.isroutine(provider) else getattr(provider, "__call__", None)  # noqa: B004 - looked at, not called
    return AskedAtOnce(provider) if inspect.iscoroutinefunction(called) else provider


_LIBRARIES = {"gs": ("google.auth", "requests"), "az": ("azure.identity",)}
_EXTRAS = {"gs": "gcs", "az": "azure"}
_READING = ("https://www.googleapis.com/auth/devstorage.read_only",)
_AZURE_STORAGE = "https://storage.azure.com/.default"
_USERS_FILE = ".config/gcloud/application_default_credentials.json"
_AWS_SUBJECT = "urn:ietf:params:aws:token-type:aws4_request"
_FABRIC = ("token_service_url", "workload_host", "session_token", "cluster_identifier")
# The kinds of identity of Azure by the names of obstore's `credential_type`.
_SECRET, _WORKLOAD, _CLI, _MANAGED = (
    "client_secret",
    "workload_identity",
    "azure_cli",
    "managed_identity",
)

_Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """An identity of Google or Azure, and as a call the token that it has now.

    It is a credential provider as obstore describes it.
    """

    scheme: str
    kind: str
    settings: _Settings
    """Settings of the store by their short names."""
    storage: StorageConfig

    def __repr__(self) -> str:
        # It is part of the names under which stores are kept, and holds no secrets.
        return f"Identity({self.scheme!r}, {self.kind!r})"

    @property
    def extra(self) -> str:
        """The extra of comal that brings the library."""
        return _EXTRAS[self.scheme]

    @property
    def name(self) -> str:
        """Its kind as messages name it."""
        return self.kind.replace("_", " ")

    def installed(self) -> bool:
        """Whether the library is there; it is not loaded for that."""
        try:
            return all(find_spec(name) is not None for name in _LIBRARIES[self.scheme])
        except ModuleNotFoundError:
            # Nothing of that cloud is there.
            return False

    def __call__(self) -> dict[str, Any]:
        """The token, and when it expires."""
        ask = _google_token if self.scheme == "gs" else _azure_token
        token, expires = ask(self)
        return {"token": token, "expires_at": expires}


def identity_of(scheme: str, settings: _Settings, storage: StorageConfig) -> Identity | None:
    """The identity by which obstore would read, if it is one that a token stands for.

    None where keys, signatures or given tokens come first, or where only obstore knows the way.
    """
    kind = None
    if scheme == "gs":
        kind = _google_kind(settings)
    elif scheme == "az":
        kind = _azure_kind(settings)
    return Identity(scheme, kind, settings, storage) if kind else None


# Google: https://google.aip.dev/auth/4110


def _google_kind(settings: _Settings) -> str | None:
    named = ("bearer_token", "service_account", "service_account_path", "service_account_key")
    if any(settings.get(name) for name in named) or os.environ.get("SERVICE_ACCOUNT"):
        return None
    file = _google_file(settings)
    if file is None:
        return "machine"
    try:
        kind = json.loads(file.read_bytes())["type"]
    except (OSError, ValueError, KeyError, TypeError):
        # obstore tells what is the matter with it.
        return None
    return kind if kind in _GOOGLE_KINDS else None


def _google_file(settings: _Settings) -> Path | None:
    named = settings.get("application_credentials")
    if named:
        return Path(str(named))
    home = os.environ.get("HOME")
    file = Path(home) / _USERS_FILE if home else None
    return file if file is not None and file.exists() else None


def _google_user(info: _Settings) -> Any:
    from google.oauth2 import credentials  # noqa: PLC0415 - optional

    kind: Any = credentials.Credentials
    return kind.from_authorized_user_info(info)


def _google_federated(info: _Settings) -> Any:
    """Workload identity federation: https://google.aip.dev/auth/4117."""
    from google.auth import aws, identity_pool, pluggable  # noqa: PLC0415 - optional

    kind: Any = identity_pool
    if info.get("subject_token_type") == _AWS_SUBJECT:
        kind = aws
    elif "executable" in (info.get("credential_source") or {}):
        kind = pluggable
    return kind.Credentials.from_info(info, scopes=_READING)


def _google_federated_user(info: _Settings) -> Any:
    from google.auth import external_account_authorized_user  # noqa: PLC0415 - optional

    kind: Any = external_account_authorized_user.Credentials
    return kind.from_info(info)


def _google_impersonated(info: _Settings) -> Any:
    from google.auth import impersonated_credentials  # noqa: PLC0415 - optional

    kind: Any = impersonated_credentials.Credentials
    return kind.from_impersonated_service_account_info(info, scopes=_READING)


def _google_machine() -> Any:
    from google.auth import compute_engine  # noqa: PLC0415 - optional

    kind: Any = compute_engine.Credentials
    return kind()


# A service account with its private key is not here: its addresses are signed.
_GOOGLE_KINDS: dict[str, Callable[[_Settings], Any]] = {
    "authorized_user": _google_user,
    "external_account": _google_federated,
    "external_account_authorized_user": _google_federated_user,
    "impersonated_service_account": _google_impersonated,
}


def _google_token(identity: Identity) -> tuple[str, datetime | None]:
    file = None if identity.kind == "machine" else _google_file(identity.settings)
    if file is None:
        credentials = _google_machine()
    else:
        credentials = _GOOGLE_KINDS[identity.kind](json.loads(file.read_bytes()))
    request = _GoogleRequest(identity.storage)
    try:
        credentials.refresh(request)
    finally:
        request.session.close()
    expiry = credentials.expiry
    return credentials.token, expiry.replace(tzinfo=UTC) if expiry else None


class _GoogleRequest:
    """How google-auth makes its requests, in the time and with the tries that comal gives them."""

    def __init__(self, storage: StorageConfig) -> None:
        from google.auth.transport.requests import Request  # noqa: PLC0415 - optional

        self._storage = storage
        self._request: Any = Request()
        # google-auth adds certificates for the metadata service to it, where machines have them.
        self.session = self._request.session

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: object = None,  # noqa: ARG002 - google-auth's own, twice as patient
        **more: Any,
    ) -> Any:
        """The answer, when it is one that stays."""
        from google.auth.exceptions import TransportError  # noqa: PLC0415 - optional

        patience = self._storage.connect_timeout, self._storage.idle_timeout

        def send(_: float) -> Any:
            try:
                response = self._request(url, method, body, headers, patience, **more)
            except TransportError as error:
                raise TransientError(str(error)) from error
            if passes(response.status):
                after = parse_retry_after(response.headers.get("Retry-After"))
                raise TransientError(
                    f"status {response.status}", status=response.status, retry_after=after
                )
            return response

        return retrying(Tries(self._storage, url.partition("?")[0]), send)


# Azure: https://learn.microsoft.com/azure/storage/blobs/authorize-access-azure-active-directory


def _azure_kind(settings: _Settings) -> str | None:
    if _on(settings, "use_emulator"):
        return None
    named = str(settings.get("credential_type") or "auto").lower()
    if named != "auto":
        kind = named if named in (_SECRET, _WORKLOAD, _CLI, _MANAGED) else None
    else:
        kind = _azure_default(settings)
    return None if kind == _MANAGED and _odd_endpoint(settings) else kind


def _azure_default(settings: _Settings) -> str | None:
    given = {name for name, value in settings.items() if value}
    if given.issuperset(f"fabric_{name}" for name in _FABRIC):
        return None
    if given & {"token", "bearer_token", "account_key", "access_key", "master_key"}:
        return None
    if "client_id" in given and given & {"tenant_id", "authority_id"}:
        if "federated_token_file" in given:
            return _WORKLOAD
        if "client_secret" in given:
            return _SECRET
    if given & {"sas_key", "sas_token"}:
        return None
    return _CLI if _on(settings, "use_azure_cli") else _MANAGED


def _odd_endpoint(settings: _Settings) -> bool:
    """Whether managed identities come from where azure-identity would not ask for them."""
    if settings.get("msi_endpoint") or settings.get("identity_endpoint"):
        return True
    helped = os.environ.get("IDENTITY_HEADER") or os.environ.get("IMDS_ENDPOINT")
    return bool(os.environ.get("IDENTITY_ENDPOINT")) and not helped


def _on(settings: _Settings, name: str) -> bool:
    return str(settings.get(name) or "").lower() in ("1", "true", "on", "yes", "y")


def _azure_token(identity: Identity) -> tuple[str, datetime | None]:
    with _azure_credential(identity) as credential:
        token = credential.get_token(_AZURE_STORAGE)
    return token.token, datetime.fromtimestamp(token.expires_on, UTC)


def _azure_credential(identity: Identity) -> Any:
    from azure import identity as library  # noqa: PLC0415 - optional

    settings, storage = identity.settings, identity.storage
    if identity.kind == _CLI:
        return library.AzureCliCredential()
    patience: dict[str, Any] = {
        "connection_timeout": storage.connect_timeout,
        "read_timeout": storage.idle_timeout,
        "retry_total": storage.tries - 1,
        # Most who wait for a connection here have no such service, for they are on no machine of
        # Azure.
        "retry_connect": 0,
        "retry_backoff_max": storage.backoff_limit,
        "timeout": storage.total_timeout,
    }
    if identity.kind == _MANAGED:
        return library.ManagedIdentityCredential(**_which(settings), **patience)
    who: dict[str, Any] = {
        "tenant_id": settings.get("tenant_id") or settings.get("authority_id"),
        "client_id": settings.get("client_id"),
        # One request less; obstore does not ask either whether a host is one of Microsoft's.
        "disable_instance_discovery": True,
        **patience,
    }
    if settings.get("authority_host"):
        who["authority"] = settings["authority_host"]
    if identity.kind == _WORKLOAD:
        file = settings.get("federated_token_file")
        return library.WorkloadIdentityCredential(token_file_path=file, **who)
    return library.ClientSecretCredential(client_secret=str(settings["client_secret"]), **who)


def _which(settings: _Settings) -> dict[str, Any]:
    """Which of the identities of a machine: the last that obstore adds to its request counts."""
    for name, key in (("msi_resource_id", "resource_id"), ("object_id", "object_id")):
        if settings.get(name):
            return {"identity_config": {key: settings[name]}}
    return {"client_id": settings["client_id"]} if settings.get("client_id") else {}
