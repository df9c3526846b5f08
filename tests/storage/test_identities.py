"""Identities of machines and users: which one counts, and reading by its tokens."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from comal import storage
from comal.errors import AccessDeniedError, StorageError
from comal.plan import ByteRange, Head
from comal.storage import Source, StorageConfig
from comal.storage import credentials as identities
from comal.storage.location import parse_href
from comal.storage.signing import signer_of
from comal.storage.stores import forked, networked_store, settings
from tests.servers.http import HttpServer
from tests.servers.tls import self_signed
from tests.storage.places import noise
from tests.storage.test_process import in_child
from tests.storage.tokenserver import TokenServer

DATA = noise(100_000)
MACHINE = "/computeMetadata/v1/instance/service-accounts/default"
IMDS = "/metadata/identity/oauth2/token"
USER = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}


def only(source: Source, offset: int) -> bytes:
    return source.fetch([ByteRange(offset, 10)])[0].data


def told(http_server: HttpServer) -> list[str]:
    """What the store was told of the identity, request by request."""
    return [seen.headers.get("Authorization", "") for seen in http_server.requests]


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that knows nobody."""
    for name in list(os.environ):
        if name.startswith(("GOOGLE_", "AZURE_", "IDENTITY_", "IMDS_", "MSI_", "GCE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))


@pytest.fixture
def server() -> Iterator[TokenServer]:
    made = TokenServer()
    yield made
    made.close()


@dataclass(frozen=True, slots=True)
class Case:
    """An identity that the fake cloud knows."""

    scheme: str
    kind: str
    server: TokenServer
    config: StorageConfig

    def source(self, name: str = "box/k") -> Source:
        return storage.open_source(f"{self.scheme}://{name}", config=self.config)


def machine_of_google(server: TokenServer, monkeypatch: pytest.MonkeyPatch, _: Path) -> str:
    from google.auth.compute_engine import _metadata

    # It looks into the environment when it is loaded, obstore each time.
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", server.host)
    monkeypatch.setenv("GCE_METADATA_HOST", server.host)
    server.answers[f"{MACHINE}/"] = lambda: {"email": "a@b.c", "scopes": ["x"]}
    server.answers[f"{MACHINE}/token"] = lambda: oauth(server)
    return "machine"


def user_of_google(server: TokenServer, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    from google.oauth2 import credentials

    monkeypatch.setattr(credentials, "_GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{server.origin}/token")
    file = folder / "home/.config/gcloud/application_default_credentials.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(USER))
    server.answers["/token"] = lambda: oauth(server)
    return "authorized_user"


def federated_by_google(server: TokenServer, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    subject = folder / "subject"
    subject.write_text("a subject")
    info = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{server.origin}/token",
        "credential_source": {"file": str(subject)},
    }
    file = folder / "federated.json"
    file.write_text(json.dumps(info))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    issued = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
    server.answers["/token"] = lambda: {**oauth(server), **issued}
    return "external_account"


def machine_of_azure(server: TokenServer, monkeypatch: pytest.MonkeyPatch, _: Path) -> str:
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.origin)
    server.answers[IMDS] = lambda: {**oauth(server), "resource": "r"}
    return "managed_identity"


def service_of_azure(server: TokenServer, monkeypatch: pytest.MonkeyPatch, _: Path) -> str:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.origin}/service")
    monkeypatch.setenv("IDENTITY_HEADER", "secret")

    def answer() -> dict[str, Any]:
        until = str(int(time.time() + server.life))
        return {"access_token": server.token(), "expires_on": until, "resource": "r"}

    server.answers["/service"] = answer
    return "managed_identity"


def line_of_azure(server: TokenServer, monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """The program ``az``, which asks the server."""
    later = datetime.now(UTC).astimezone() + timedelta(hours=1)
    answer = {
        "expiresOn": later.strftime("%Y-%m-%d %H:%M:%S.%f"),
        "expires_on": int(later.timestamp()),
        "tokenType": "Bearer",
    }
    program = folder / "bin/az"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, sys, urllib.request\n"
        f"given = json.load(urllib.request.urlopen('{server.origin}/line'))\n"
        f"print(json.dumps({{**{answer!r}, 'accessToken': given['access_token']}}))\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("AZURE_USE_AZURE_CLI", "true")
    server.answers["/line"] = lambda: oauth(server)
    return "azure_cli"


def oauth(server: TokenServer) -> dict[str, Any]:
    return {"access_token": server.token(), "expires_in": server.life, "token_type": "Bearer"}


Maker = Callable[[TokenServer, pytest.MonkeyPatch, Path], str]
GOOGLE: list[Maker] = [machine_of_google, user_of_google, federated_by_google]
AZURE: list[Maker] = [machine_of_azure, service_of_azure, line_of_azure]
# What obstore finds by the same variables, and without TLS.
BOTH: list[Maker] = [machine_of_google, service_of_azure, line_of_azure]
# Without the program, whose answer is fixed and which has its own ways of asking again.
SERVICES: list[Maker] = [*GOOGLE, machine_of_azure, service_of_azure]
services = pytest.mark.parametrize("case", SERVICES, indirect=True, ids=lambda make: make.__name__)


@pytest.fixture(params=GOOGLE + AZURE, ids=lambda make: make.__name__)
def case(
    request: pytest.FixtureRequest,
    server: TokenServer,
    http_server: HttpServer,
    hasty: StorageConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Case:
    kind = request.param(server, monkeypatch, tmp_path)
    origin = http_server.origin
    for name in ("box/k", "box/other", "box/late"):
        http_server.put(name, DATA)
    azure = {"account_name": "acc", "endpoint": origin}
    # A program that starts, and servers of a busy machine, are not to be hurried.
    config = replace(hasty, idle_timeout=5.0, total_timeout=20.0)
    config = replace(config, gcs={"base_url": origin}, azure=azure)
    return Case("gs" if request.param in GOOGLE else "az", kind, server, config)


def test_reading(case: Case, http_server: HttpServer) -> None:
    location = parse_href(f"{case.scheme}://box/k")
    source = case.source()
    # Nobody is asked before something is read.
    assert not case.server.asked
    http_server.behave("status", code=503, times=1, headers={"Retry-After": "1"})
    begin = time.monotonic()
    assert only(source, 5) == DATA[5:15]
    assert time.monotonic() - begin >= 1.0
    assert only(source.sibling("other"), 7) == DATA[7:17]
    assert told(http_server) == ["Bearer token-1"] * 3
    assert not any("object_store" in str(seen.headers) for seen in http_server.requests)
    assert case.server.tokens == 1
    address = signer_of(location, case.config).address(location)
    assert address is not None
    for text in (repr(address), repr(pickle.dumps(address)), repr(pickle.dumps(source))):
        assert "token-1" not in text
    assert only(pickle.loads(pickle.dumps(source)), 9) == DATA[9:19]


def test_a_forked_child_reads(case: Case, http_server: HttpServer) -> None:
    source = case.source()
    only(source, 5)
    assert not forked()

    def goes_on() -> None:
        assert only(source, 15) == DATA[15:25]
        assert only(source.sibling("other"), 15) == DATA[15:25]

    in_child(goes_on)
    assert case.server.tokens == 1

    def asks() -> None:
        # The token of the parent is no good any more.
        http_server.behave("status", path="box/late", code=401, times=1)
        assert only(source.sibling("late"), 15) == DATA[15:25]

    http_server.behave("status", path="box/late", code=401, times=1)
    in_child(asks)
    assert case.server.tokens == 2
    only(source, 25)


def test_a_forked_child_asks_first(case: Case) -> None:
    only(storage.open_source("s3://box/k", config=keys(case.config)), 5)
    source = case.source()

    def child() -> None:
        assert only(source, 5) == DATA[5:15]

    in_child(child)
    assert case.server.tokens == 1
    assert only(source, 5) == DATA[5:15]


def keys(config: StorageConfig) -> StorageConfig:
    """Keys of S3 for the same server."""
    endpoint = config.gcs["base_url"]
    return replace(
        config,
        s3={"endpoint": endpoint, "access_key_id": "a", "secret_access_key": "b", "region": "r"},
    )


def test_refused_tokens(case: Case, http_server: HttpServer) -> None:
    source = case.source()
    only(source, 5)
    http_server.reset()
    # Of an object that was read before, and of one that was not.
    for name in ("k", "other"):
        http_server.behave("status", path=f"box/{name}", code=401, times=1)
        assert only(source.sibling(name), 5) == DATA[5:15]
    assert told(http_server) == [f"Bearer token-{number}" for number in (1, 2, 2, 3)]
    # What stays refused is an error, and asked for once more only.
    http_server.behave("status", code=401)
    with pytest.raises(AccessDeniedError):
        only(source.sibling("late"), 5)
    assert case.server.tokens == 4


@services
def test_tokens_that_expire(case: Case, http_server: HttpServer) -> None:
    case.server.life = 62
    source = case.source()
    only(source, 5)
    only(source, 15)
    assert case.server.tokens == 1
    # A minute before the end a token is old; Google's library counts in full seconds.
    time.sleep(2.1)
    only(source, 25)
    assert told(http_server) == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


def test_many_threads_ask_once(case: Case) -> None:
    source = case.source()
    wanted = [ByteRange(at, 10) for at in range(0, 90_000, 3000)]
    config = replace(case.config, coalesce_gap=0)
    source = storage.open_source(source.href, config=config)
    assert [piece.data for piece in source.fetch(wanted)] == [
        DATA[want.offset : want.end] for want in wanted
    ]
    assert case.server.tokens == 1


@services
def test_busy_token_services(case: Case) -> None:
    case.server.troubles = [(503, {"Retry-After": "1"})]
    begin = time.monotonic()
    assert only(case.source(), 5) == DATA[5:15]
    assert time.monotonic() - begin >= 0.9


def test_no_token(case: Case) -> None:
    case.server.answers.clear()
    begin = time.monotonic()
    with pytest.raises(StorageError, match=case.kind.replace("_", " ")) as caught:
        only(case.source(), 5)
    assert time.monotonic() - begin < 15
    assert "SKIP_SIGNATURE" in str(caught.value.hint)


@pytest.mark.parametrize("case", BOTH, indirect=True, ids=lambda make: make.__name__)
def test_the_same_identity_without_the_library(
    case: Case, http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(case.source(), 5)
    by_library = case.server.asked.copy()
    case.server.asked.clear()
    http_server.reset()
    monkeypatch.setattr(identities.Identity, "installed", lambda _: False)
    # Another configuration, for what was found is kept.
    other = replace(case, config=replace(case.config, concurrency=9))
    assert only(other.source(), 5) == DATA[5:15]
    assert told_lower(http_server) == ["Bearer token-2"]
    assert case.server.asked[-1].path == by_library[-1].path
    assert case.server.asked[-1].method == by_library[-1].method

    def child() -> None:
        begin = time.monotonic()
        with pytest.raises(StorageError, match="spawn") as caught:
            only(replace(case, config=replace(case.config, concurrency=10)).source(), 5)
        assert f"comal[{'gcs' if case.scheme == 'gs' else 'azure'}]" in str(caught.value.hint)
        assert time.monotonic() - begin < 5

    in_child(child)


def told_lower(http_server: HttpServer) -> list[str]:
    """As `told`; obstore writes names of headers in lower case."""
    return [
        {name.lower(): text for name, text in seen.headers.items()}.get("authorization", "")
        for seen in http_server.requests
    ]


@pytest.mark.parametrize("case", [*BOTH, federated_by_google], indirect=True)
def test_stores_have_the_same_identity(case: Case, http_server: HttpServer) -> None:
    """What obstore does by itself, listing, is by that identity, too."""
    import obstore

    location = parse_href(f"{case.scheme}://box/k")
    store = networked_store(location, case.config)
    assert networked_store(location, case.config) is store
    assert bytes(obstore.get_range(store, "k", start=5, length=5)) == DATA[5:10]
    assert told_lower(http_server) == ["Bearer token-1"]


def test_nothing_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from comal import storage\n"
        "for href in ('gs://box/k', 'az://box@acc/k'):\n"
        "    storage.open_source(href)\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('google', 'azure', 'msal')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    # Namespace packages may bring modules of their own names.
    loaded = [name for name in eval(done.stdout) if name not in ("google", "azure")]
    assert loaded == []


# TLS, which Microsoft's library insists on where people and programs have passwords.


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    context, cert = self_signed(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(cert))
    made = TokenServer(context)
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["client_secret", "workload_identity"])
def test_programs_of_azure(
    secure: TokenServer,
    http_server: HttpServer,
    hasty: StorageConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
) -> None:
    tenant = "11111111-1111-1111-1111-111111111111"
    token = f"{secure.origin}/{tenant}/oauth2/v2.0/token"
    secure.answers[f"/{tenant}/v2.0/.well-known/openid-configuration"] = lambda: {
        "token_endpoint": token,
        "authorization_endpoint": f"{secure.origin}/{tenant}/oauth2/v2.0/authorize",
        "issuer": f"{secure.origin}/{tenant}/v2.0",
    }
    secure.answers[f"/{tenant}/oauth2/v2.0/token"] = lambda: oauth(secure)
    (tmp_path / "subject").write_text("a subject")
    monkeypatch.setenv("AZURE_TENANT_ID", tenant)
    monkeypatch.setenv("AZURE_CLIENT_ID", "me")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "a secret")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", secure.origin)
    if kind == "workload_identity":
        monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "subject"))
    http_server.put("box/k", DATA)
    azure = {"account_name": "acc", "endpoint": http_server.origin}
    config = replace(hasty, azure=azure, idle_timeout=5.0, total_timeout=20.0)
    source = storage.open_source("az://box/k", config=config)
    assert only(source, 5) == DATA[5:15]
    assert told(http_server) == ["Bearer token-1"]
    given = secure.asked[-1].given
    assert (given["client_id"], given["grant_type"]) == ("me", "client_credentials")
    name = "client_assertion" if kind == "workload_identity" else "client_secret"
    assert given[name] == ("a subject" if kind == "workload_identity" else "a secret")
    assert "https://storage.azure.com/.default" in given["scope"]

    def asks() -> None:
        http_server.behave("status", code=401, times=1)
        assert only(source, 15) == DATA[15:25]

    http_server.behave("status", code=401, times=1)
    in_child(asks)
    assert secure.tokens == 2
    secure.answers.clear()
    other = replace(config, concurrency=9)
    with pytest.raises(StorageError) as caught:
        only(storage.open_source("az://box/k", config=other), 5)
    assert "a secret" not in str(caught.value) + repr(vars(caught.value))


PROGRAM = {"client_id": "i", "tenant_id": "t"}


@pytest.mark.parametrize(
    ("scheme", "options", "kind"),
    [
        ("s3", {}, None),
        ("gs", {}, "machine"),
        ("gs", {"GOOGLE_BEARER_TOKEN": "t"}, None),
        ("gs", {"service_account": "/f"}, None),
        ("gs", {"google_service_account_key": "{}"}, None),
        ("gs", {"application_credentials": "/no/such/file"}, None),
        ("az", {}, "managed_identity"),
        ("az", {"azure_storage_token": "t"}, None),
        ("az", {"account_key": "k"}, None),
        ("az", {"AZURE_STORAGE_ACCESS_KEY": "k", **PROGRAM, "client_secret": "s"}, None),
        ("az", {**PROGRAM}, "managed_identity"),
        ("az", {**PROGRAM, "client_secret": "s"}, "client_secret"),
        ("az", {"client_id": "i", "client_secret": "s"}, "managed_identity"),
        (
            "az",
            {**PROGRAM, "client_secret": "s", "federated_token_file": "f"},
            "workload_identity",
        ),
        ("az", {**PROGRAM, "client_secret": "s", "sas_token": "sig=1"}, "client_secret"),
        ("az", {"sas_key": "sig=1"}, None),
        ("az", {"sas_key": "sig=1", "use_azure_cli": True}, None),
        ("az", {"use_azure_cli": "true"}, "azure_cli"),
        ("az", {"use_azure_cli": "false"}, "managed_identity"),
        ("az", {"use_emulator": True}, None),
        ("az", {"credential_type": "auto"}, "managed_identity"),
        ("az", {"credential_type": "azure_cli", "account_key": "k"}, "azure_cli"),
        ("az", {"credential_type": "managed_identity", "sas_key": "s"}, "managed_identity"),
        ("az", {"credential_type": "sas_token", "sas_key": "s"}, None),
        ("az", {"msi_endpoint": "http://127.0.0.1:9"}, None),
        ("az", {"azure_fabric_token_service_url": "u"}, "managed_identity"),
        (
            "az",
            {
                "fabric_token_service_url": "u",
                "fabric_workload_host": "h",
                "fabric_session_token": "s",
                "fabric_cluster_identifier": "c",
            },
            None,
        ),
    ],
)
def test_which_identity_counts(scheme: str, options: dict[str, Any], kind: str | None) -> None:
    """The order of object_store's ``resolve_credential_auto``, and Google's AIP 4110."""
    known = settings(scheme, options)
    found = identities.identity_of(scheme, known, StorageConfig())
    assert (found.kind if found else None) == kind


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, {}),
        ({"client_id": "i"}, {"client_id": "i"}),
        ({"client_id": "i", "object_id": "o"}, {"object_id": "o"}),
        ({"object_id": "o", "msi_resource_id": "m"}, {"msi_res_id": "m"}),
    ],
)
@pytest.mark.parametrize("installed", [True, False])
def test_which_identity_of_a_machine(
    server: TokenServer,
    http_server: HttpServer,
    hasty: StorageConfig,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: dict[str, str],
    asked: dict[str, str],
    installed: bool,
) -> None:
    """Asked for the same one by obstore, and by Microsoft's library."""
    if installed:
        machine_of_azure(server, monkeypatch, tmp_path)
    else:
        service_of_azure(server, monkeypatch, tmp_path)
        monkeypatch.setattr(identities.Identity, "installed", lambda _: False)
    http_server.put("box/k", DATA)
    azure = {"account_name": "acc", "endpoint": http_server.origin, **options}
    config = replace(hasty, azure=azure, idle_timeout=5.0, total_timeout=20.0)
    only(storage.open_source("az://box/k", config=config), 5)
    names = ("client_id", "object_id", "msi_res_id")
    given = server.asked[-1].given
    assert {name: given[name] for name in names if name in given} == asked


def test_kinds_of_files_that_only_google_knows(tmp_path: Path) -> None:
    known = {"application_credentials": str(tmp_path / "file")}
    for kind, expected in (
        ("service_account", None),
        ("gdch_service_account", None),
        ("impersonated_service_account", "impersonated_service_account"),
        ("external_account_authorized_user", "external_account_authorized_user"),
        (7, None),
    ):
        (tmp_path / "file").write_text(json.dumps({"type": kind}))
        found = identities.identity_of("gs", known, StorageConfig())
        assert (found.kind if found else None) == expected
    (tmp_path / "file").write_text("[]")
    assert identities.identity_of("gs", known, StorageConfig()) is None


def test_what_is_named_comes_first(http_server: HttpServer, hasty: StorageConfig) -> None:
    http_server.put("box/k", DATA)
    origin = http_server.origin
    given = {"token": "given", "expires_at": datetime.now(UTC) + timedelta(hours=1)}
    for config, identity in (
        (replace(hasty, gcs={"base_url": origin, "skip_signature": True}), ""),
        (replace(hasty, gcs={"base_url": origin}, credential_provider=lambda: given), "given"),
        (replace(hasty, gcs={"base_url": origin, "bearer_token": "named"}), "named"),
    ):
        http_server.reset()
        source = storage.open_source("gs://box/k", config=config)
        assert source.fetch([Head(5)])[0].data == DATA[:5]
        assert told(http_server) == [f"Bearer {identity}" if identity else ""]


def test_a_library_that_is_there_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's library without requests cannot ask the metadata service: obstore still can."""
    google = identities.identity_of("gs", {}, StorageConfig())
    azure = identities.identity_of("az", {}, StorageConfig())
    assert google is not None
    assert azure is not None
    assert google.installed()
    assert azure.installed()
    absent: set[str] = set()
    monkeypatch.setattr(
        "comal.storage.credentials.find_spec",
        lambda name: None if name in absent else find_spec(name),
    )
    for library, there in (
        ("requests", (False, True)),
        ("google.auth", (False, True)),
        ("azure.identity", (True, False)),
    ):
        absent.clear()
        absent.add(library)
        assert (google.installed(), azure.installed()) == there


def test_threads_wait_for_one_that_asks() -> None:
    from comal.storage.credentials import Tokens

    asked: list[int] = []

    def slow() -> dict[str, Any]:
        asked.append(1)
        time.sleep(0.2)
        return {"token": f"t{len(asked)}", "expires_at": None}

    tokens = Tokens(slow, "here")
    found: list[str] = []

    def work() -> None:
        token = tokens.get()
        assert token is not None
        found.append(token.value)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    # A child that is forked while a thread asks does not wait for that thread.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        in_child(work)
    for thread in threads:
        thread.join()
    assert (found, asked) == (["t1"] * 20, [1])
