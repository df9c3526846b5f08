"""The law of secrets: what an address or a header carries is in nothing that comal shows."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

import comal
from comal import raquet, server, site, taco, tapalcatl, tortilla
from comal.cli import root
from comal.errors import AccessDeniedError, ComalError, InvalidInputError, without_secrets
from comal.plan import Head
from comal.server.metrics import AccessRecord, JsonFormatter
from comal.storage import (
    BlockCache,
    CachedSource,
    CountingSource,
    Location,
    Source,
    StorageConfig,
    as_source,
    open_source,
    parse_href,
)
from comal.storage.location import PICKLE_SECRETS
from tests.cli.conftest import COLLECTION
from tests.forked import pool
from tests.raquet.writing.sources import noise, utm
from tests.server.asking import ask
from tests.servers.http import HttpServer
from tests.support import said_by
from tests.tapalcatl.reading.test_remote import serve

SECRETS = ("pLaNtEdUser", "pLaNtEdWord", "pLaNtEdSig", "pLaNtEdAmz", "pLaNtEdToken", "pLaNtEdHead")
USER = "pLaNtEdUser:pLaNtEdWord@"
QUERY = "?sig=pLaNtEdSig&X-Amz-Signature=pLaNtEdAmz&token=pLaNtEdToken"
CONFIG = StorageConfig(
    http_headers={"X-Key": "pLaNtEdHead"},
    s3={"secret_access_key": "pLaNtEdHead"},
    tries=1,
    backoff_first=0.01,
    linked_origins=["http://127.0.0.1:9"],
)
FORMATS = (
    *("a.tacozip", ".tacocat", "a.tortilla", "a.parquet"),
    *("t/meta.json", "u/meta.json", "t/0/0/0.zip"),
)


def secret(url: str) -> str:
    """A URL with everything in it that must not be shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{USER}{parts.netloc}{parts.path}{QUERY}"


def check(*shown: object) -> None:
    """Nothing of what was planted is in any of these."""
    for one in shown:
        text = one.decode("latin-1") if isinstance(one, bytes) else str(one)
        for planted in SECRETS:
            at = text.find(planted)
            assert at < 0, text[max(0, at - 300) : at + 50]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One archive of each format."""
    folder = tmp_path_factory.mktemp("secrets")
    raster = utm(folder / "a.tif", noise((64, 64), "uint8"))
    samples = [taco.Sample(id=name, path=name.encode() * 50) for name in ("one", "two")]
    taco.create(taco.Taco(taco.Tortilla(samples), **COLLECTION), folder / "a.tacozip")
    taco.create_tacocat([folder / "a.tacozip"], folder)
    tortilla.create(
        [tortilla.Sample(id=name, path=name.encode() * 50, file_format="BYTES") for name in "ab"],
        folder / "a.tortilla",
    )
    raquet.write(raster, folder / "a.parquet")
    return folder


@pytest.fixture
def served(files: Path, http_server: HttpServer) -> HttpServer:
    """The archives on a server, with a tileset."""
    http_server.serve_folder(files)
    serve(http_server)
    there = http_server.origin.replace("://", f"://{USER}")
    serve(http_server, f"{there}/t/{{z}}/{{x}}/{{y}}.zip", "u")
    return http_server


@dataclass
class Shown:
    """What is said while a test runs: logs of every level and library, and warnings."""

    log: pytest.LogCaptureFixture
    warned: list[warnings.WarningMessage]

    def check(self) -> None:
        """No secret was said."""
        check(*self.log.messages, *(one.message for one in self.warned))
        for record in self.log.records:
            check(record.getMessage(), record.args, record.exc_text)


@pytest.fixture
def shown(caplog: pytest.LogCaptureFixture) -> Iterator[Shown]:
    """Everything that is logged or warned of."""
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield Shown(caplog, warned)
    Shown(caplog, warned).check()


def told(thing: Any) -> Iterator[object]:
    """All that an object says of itself: its text, its pickle, its properties, its copies."""
    yield repr(thing)
    yield str(thing)
    with suppress(TypeError, AttributeError, pickle.PicklingError):
        yield pickle.dumps(thing)
    for name, _ in inspect.getmembers_static(type(thing), lambda one: isinstance(one, property)):
        if name.startswith("_") or (isinstance(thing, Location) and name == "url"):
            continue
        with suppress(ComalError):
            value = getattr(thing, name)
            yield repr(value)
            yield from _table(value)


def _table(value: Any) -> Iterator[object]:
    table = getattr(value, "table", value)
    if callable(table):
        table = table()
    if hasattr(table, "to_pylist"):
        yield table.to_pylist()


def readings(reader: Any) -> Iterator[Any]:
    """What the public readers give: frames, tables, rows, paths of GDAL, entries."""
    if isinstance(reader, taco.TacoDataset):
        yield from (reader.data, reader.collection, reader.data.read("one"))
        yield reader.data.to_arrow().to_pylist()
        yield reader.sql("SELECT * FROM data").data.to_arrow().to_pylist()
        with reader.data.open("one") as file:
            yield from (file, file.name, file.read(3))
    elif isinstance(reader, raquet.RaquetFile):
        yield from (reader.metadata, reader.bands, reader.read(zoom=reader.zooms[-1]))
        yield from reader.sources
    elif isinstance(reader, tapalcatl.TileSet):
        yield from (reader.tile(0, 0, 0), reader.entry(0, 0, 0), reader.metadata)
        yield from (one for _, one in zip(range(2), reader.keys(), strict=False))
    else:
        yield from (reader.read(0), reader.collection)
        yield reader.to_arrow().to_pylist()


def opened(name: str, url: str) -> Any:
    """A reader of a format."""
    if name in {"a.tacozip", ".tacocat"}:
        return taco.load(url, config=CONFIG)
    if name == "a.tortilla":
        return tortilla.open(url, config=CONFIG)
    if name == "a.parquet":
        return raquet.open(url, config=CONFIG)
    return tapalcatl.open(url, config=CONFIG)


# What an archive itself says is not a secret of the reader, though messages leave that out, too.
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "u/meta.json"])
def test_readers(served: HttpServer, name: str, shown: Shown) -> None:
    url = secret(served.url_for(name))
    reader = opened(name, url)
    check(*told(reader))
    for one in readings(reader):
        check(*told(one))
    assert all("X-Key" in one.headers for one in served.requests)
    assert all("Authorization" in one.headers for one in served.requests)
    served.requests.clear()
    copied = pickle.loads(pickle.dumps(reader))  # in this process it works as before
    for one, right in zip(readings(copied), readings(reader), strict=True):
        assert type(one) is type(right)
    if name != ".tacocat":
        check(*told(comal.open(url)))
    shown.check()


FAULTS: dict[str, Callable[[HttpServer, str], object]] = {
    "absent": lambda server, _: server.behave("status", code=404),
    "denied": lambda server, _: server.behave("status", code=403),
    "failing": lambda server, _: server.behave("status", code=500),
    "broken off": lambda server, _: server.behave("short-body", keep=3),
    "reset": lambda server, _: server.behave("reset"),
    "other bytes": lambda server, name: server.put(name, b"PK\x05\x06" + b"x" * 900),
    "no archive": lambda server, name: server.put(name, b"<html>"),
    "another range": lambda server, _: server.behave("wrong-range", shift=1),
    "packed": lambda server, _: server.behave("gzip"),
    "changing": lambda server, _: server.behave("etag", value='"x"', skip=1),
    "a redirect": lambda server, _: server.behave("redirect", to=secret("http://127.0.0.1:9/x")),
    "a refused redirect": lambda server, _: server.behave(
        "redirect", to=secret("http://127.0.0.1:10/x")
    ),
    "a bad redirect": lambda server, _: server.behave("redirect", to=f"gopher://{USER}h/x{QUERY}"),
    "round and round": lambda server, name: server.behave("redirect", to=f"/{name}{QUERY}"),
    "gone": lambda server, _: server.close(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_errors(served: HttpServer, fault: str, shown: Shown) -> None:
    names = ("a.tacozip", "a.tortilla", "a.parquet", "t/meta.json")
    for name in names:
        FAULTS[fault](served, name)
        with suppress(ComalError):
            reader = opened(name, secret(served.url_for(name)))
            for one in readings(reader):
                check(*told(one))
        for act in (
            lambda: readings(opened(name, secret(served.url_for(name)))),  # noqa: B023
            lambda: [comal.open(secret(served.url_for(name)))],  # noqa: B023
            lambda: [raquet.write(secret(served.url_for(name)), "/nowhere/x.parquet")],  # noqa: B023
        ):
            try:
                list(act())
            except ComalError as error:
                check(*said_by(error))
        if fault == "gone":
            break
        served.well()
    shown.check()


BAD = (
    f"ftp://{USER}h/a{QUERY}",
    f"https://{USER}/a{QUERY}",
    f"https://{USER}h:port/a{QUERY}",
    f"https://{USER}[h/a{QUERY}",
    f"file://{USER}h/a{QUERY}",
    f"s3://{QUERY}",
    f"hf://{USER}x{QUERY}",
    f"/vsicurl/https://{USER}h/a{QUERY}",
    # Passwords that should have been encoded, and hosts that the parser of URLs repeats.
    f"https://{USER}h\u2100/a{QUERY}",
    "https://u:pLaNtEdWord/x@h/a",
    "https://u:pLaNtEdWord?x@h/a",
    "https://u:pLaNtEdWord#x@h/a",
    "https://u:pLaNtEd'Word@h:port/pLaNtEdWord@h:port",
    "ftp://u:'pLaNtEdWord@h/a",
    "https://u: pLaNtEdWord@h h/a",
    f"/vsicurl?url=https%3A%2F%2Fh%2Fa&header.Authorization=pLaNtEdHead{QUERY}",
)


@pytest.mark.parametrize("href", [*BAD, Path(BAD[1])])
def test_addresses_that_cannot_be_used(href: Any, shown: Shown) -> None:
    for act in (comal.open, taco.load, tortilla.open, raquet.open, tapalcatl.open, open_source):
        with pytest.raises(ComalError) as caught:
            cast("Any", act(href)).stat()
        check(*said_by(caught.value))
    with pytest.raises(ComalError) as caught:
        raquet.write(href, "x.parquet")
    check(*said_by(caught.value))
    shown.check()


@pytest.mark.parametrize("name", FORMATS)
def test_the_command_line(
    served: HttpServer, name: str, shown: Shown, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    url = secret(served.url_for(name))
    keys = {"a.tacozip": "one", ".tacocat": "one", "a.tortilla": "a", "a.parquet": "0/0/0"}
    commands = [["info"], ["ls"], ["check"], ["get", keys.get(name, "0/0/0.png")], ["get", "none"]]
    for words in commands:
        for more in ([], ["--json"], ["--debug"]):
            with pytest.raises(SystemExit):
                root.main([words[0], url, *words[1:], *more])
            check(*capfdbinary.readouterr())
    served.behave("status", code=403)
    for more in ([], ["--json"], ["--debug"]):
        with pytest.raises(SystemExit) as ended:
            root.main(["info", url, *more])
        assert ended.value.code == 4
        check(*capfdbinary.readouterr())
    shown.check()


def test_commands_that_write(
    served: HttpServer,
    tmp_path: Path,
    shown: Shown,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Neither what they print nor the files that they leave."""
    written = {
        "a.parquet": ["convert", secret(served.url_for("a.tif"))],
        "a.tif": ["convert", secret(served.url_for("a.parquet"))],
        "a.tacozip": ["taco", "export", secret(served.url_for("a.tacozip"))],
        "a.pmtiles": ["convert", secret(served.url_for("t/meta.json"))],
    }
    for name, words in written.items():
        with pytest.raises(SystemExit) as ended:
            root.main([*words, str(tmp_path / name), "--json"])
        printed = capfdbinary.readouterr()
        assert ended.value.code == 0, printed
        check(*printed)
    for path in tmp_path.rglob("*"):
        check(path.name, path.read_bytes() if path.is_file() else b"")
    shown.check()


@pytest.mark.parametrize("named", [True, False])
def test_the_server(served: HttpServer, shown: Shown, named: bool) -> None:
    urls = {f"s{n}": secret(served.url_for(name)) for n, name in enumerate(FORMATS)}
    urls |= {"gone": secret("http://127.0.0.1:9/a.tacozip"), "host": f"http://{USER}127.0.0.1:9"}
    app = server.app(urls if named else list(urls.values()), log="all")
    urls = dict.fromkeys(app.mounts, "")
    check(*(f"{name} {mount!r} {mount.place!r}" for name, mount in app.mounts.items()))
    pages = ("", "sources.json", "collections", "metrics", "readyz", "api")
    paths = [f"/{page}" for page in pages]
    paths += [f"/{name}{more}" for name in (*urls, "gone") for more in ("", ".json", "/items")]
    for path in paths:
        reply = ask(app, path)
        check(reply.body, reply.headers)
    shown.check()


def test_errors_of_others(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What other libraries say, with an address in it, where tracebacks are printed or logged."""

    def fail(*_: Any) -> None:
        raise OSError(f"no route to {secret('https://h/a')}")

    monkeypatch.setattr("comal.storage.source.LocalSource.fetch", fail)
    for more in ([], ["--json"], ["--debug"]):
        with pytest.raises(SystemExit):
            root.main(["info", __file__, *more])
        printed = capfd.readouterr()
        assert "no route" in printed.err
        check(*printed)
    try:
        fail()
    except OSError:
        record = logging.LogRecord("x", 40, "x", 1, "failed", None, sys.exc_info())
    check(JsonFormatter().format(record))
    check(str(AccessRecord("GET", "/", failure=secret("https://h/a")).document()))


@pytest.mark.parametrize("address", [f"https://{USER}h/a.parquet", f"https://h/a.parquet{QUERY}"])
def test_a_public_page(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="public page") as caught:
        site.write(tmp_path / "site", [address])
    check(*said_by(caught.value))


def test_what_a_pickle_carries(
    served: HttpServer, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = secret(served.url_for("a.tacozip"))
    source: Source = open_source(url, config=CONFIG)
    for one in (source, CountingSource(source), CachedSource(source, BlockCache(9)), CONFIG):
        check(*told(one), *told(copy.deepcopy(one)))
    check(*told(parse_href(url)), *told(source.stat()), *told(source.fetch([Head(3)])))
    # Processes of multiprocessing get what they need to go on.
    for some in (pool(1), ProcessPoolExecutor(1, mp_context=get_context("fork"))):
        with some as workers:
            assert workers.submit(first, source).result() == source.fetch([Head(3)])[0].data
            again = workers.submit(same, source).result()
            assert again.fetch([Head(3)])[0].data == b"PK\x03"
    # So does whoever asks for it; nobody else.
    data = pickle.dumps(source)
    with pool(1) as workers:
        with pytest.raises(AccessDeniedError, match="left out of the pickle") as caught:
            workers.submit(unpickled, data).result()
        check(*said_by(caught.value))
        monkeypatch.setenv(PICKLE_SECRETS, "1")
        carried = pickle.dumps(source)
        assert b"pLaNtEdWord" in carried
        assert workers.submit(unpickled, carried).result() == b"PK\x03"
    shown.check()


def first(source: Source) -> bytes:
    """The first bytes of a source."""
    assert "Authorization" not in repr(source)
    return source.fetch([Head(3)])[0].data


def same(source: Source) -> Source:
    """The source itself, sent back."""
    return source


def unpickled(data: bytes) -> bytes:
    """The first bytes of a source that comes out of a pickle."""
    return first(pickle.loads(data))


def test_awaited_and_counted(served: HttpServer, shown: Shown) -> None:
    counted = CountingSource(as_source(secret(served.url_for("a.tortilla")), config=CONFIG))
    frame = asyncio.run(tortilla.open_async(counted))
    check(*told(frame), *told(counted), counted.log, counted.vsi(), counted.file("").name)
    shown.check()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("https://u:p@h:8/a?x=1", "https://h:8/a"),
        ("see /vsicurl/https://u@h/a?b 's3://b/k?c'", "see /vsicurl/https://h/a 's3://b/k'"),
        ("/vsicurl?url=https%3A%2F%2Fh&header.Authorization=x", "/vsicurl"),
        ("https://h/a@2x/b?c", "https://h/a@2x/b"),
        ("hf://datasets/o/n@main/x", "hf://datasets/o/n@main/x"),
        ("ftp://u:'p@h/a", "ftp://h/a"),
        ("'https://h/a' or 'b@c'", "'https://h/a' or 'b@c'"),
        ("a/b?c=d", "a/b?c=d"),
        ("why? 2:/1", "why? 2:/1"),
    ],
)  # fmt: skip
def test_texts(text: str, plain: str) -> None:
    assert without_secrets(text) == plain
