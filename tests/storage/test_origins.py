"""The law of origins: who is asked because of what an archive says, and who is told secrets."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

import pyarrow.parquet as pq
import pytest
import rasterio

from comal import raquet, taco, tapalcatl
from comal.cli import root
from comal.errors import AccessDeniedError, ComalError, StorageError, UnsafeContentError
from comal.plan import Head
from comal.storage import Source, StorageConfig, http_pool, open_linked, open_source
from comal.storage.config import LINK_LOCAL, LOOPBACK, PRIVATE, PUBLIC
from comal.taco.reading.container import open_container
from tests.forked import forks, pool
from tests.raquet.writing.sources import noise, utm
from tests.servers.http import HttpServer, Seen
from tests.taco.write.small import dataset
from tests.tapalcatl.reading.test_remote import META, entry, tree

SECRET = "Bearer s3cr3t"
NO, YES = "refused", "asked"
OWN = "asked, with what was given for it"


@dataclass(frozen=True)
class World:
    """Servers that remember who asked: `own` and `other` are public here, `inside` is not."""

    own: HttpServer
    other: HttpServer
    inside: HttpServer

    def fill(self, reference: str) -> str:
        """A reference with the ports of this world in it."""
        ports = {name: urlsplit(getattr(self, name).origin).port for name in vars(self)}
        return reference.format(**ports)

    def seen(self) -> list[Seen]:
        """Every request that any server saw."""
        return [one for server in vars(self).values() for one in server.requests]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """127.0.0.1 stands for the public network, where names end in .test; the rest is as it is."""
    kind_of, getaddrinfo = http_pool.kind_of, socket.getaddrinfo
    names = {"public.test": "127.0.0.1", "inside.test": "127.0.0.2", "meta.test": "169.254.169.254"}

    def resolved(host: Any, *args: Any, **named: Any) -> Any:
        return getaddrinfo(names.get(str(host).rstrip("."), host), *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(
        http_pool, "kind_of", lambda one: PUBLIC if one == "127.0.0.1" else kind_of(one)
    )
    made = World(HttpServer(), HttpServer(), HttpServer(host="127.0.0.2"))
    for server in vars(made).values():
        for name, data in {**tree(), "k": b"leaf"}.items():
            server.put(f"t/{name}", data)
    yield made
    for server in vars(made).values():
        server.close()


# For each place what becomes of a reference in a remote archive, in a local one, and of a redirect.
PLACES: dict[str, tuple[str, str, str]] = {
    "http://127.0.0.1:{own}": (OWN, YES, OWN),
    "http://127.0.0.1:{other}": (NO, YES, YES),
    "http://public.test:{own}": (NO, YES, YES),
    "https://127.0.0.1:{own}": (NO, "", ""),
    "http://127.0.0.2:{inside}": (NO, YES, NO),
    "http://inside.test:{inside}": (NO, YES, NO),
    "http://inside.test.:{inside}": (NO, YES, NO),
    "http://2130706434:{inside}": (NO, YES, NO),
    "http://0x7f000002:{inside}": (NO, YES, NO),
    "http://0177.0.0.2:{inside}": (NO, YES, NO),
    "http://127.2:{inside}": (NO, YES, NO),
    "http://[::ffff:127.0.0.2]:{inside}": (NO, YES, NO),
    "http://[::ffff:7f00:2]:{inside}": (NO, YES, NO),
    "http://u:p@127.0.0.2:{inside}": (NO, YES, NO),
    "http://169.254.169.254": (NO, NO, NO),
    "http://meta.test": (NO, NO, NO),
    "http://0xa9fea9fe": (NO, NO, NO),
    "http://[::ffff:169.254.169.254]": (NO, NO, NO),
    "http://[fe80::1]": (NO, NO, NO),
    "http://10.0.0.1": (NO, "", NO),
    "http://[fd00::1]": (NO, "", NO),
    "http://0.0.0.0:{inside}": (NO, "", NO),
    "http://[::1]:{inside}": (NO, "", NO),
    "s3://bucket": (NO, "", "another scheme"),
    "file:///etc": (NO, "", "another scheme"),
    "/etc": (NO, "", ""),
}


def fetched(world: World, where: str, reference: str, config: StorageConfig) -> Any:
    """An object that something leads to."""
    return open_linked(open_source(where, config=config), f"{reference}/t/k").fetch([Head(4)])


def tiled(world: World, where: str, reference: str, config: StorageConfig) -> Any:
    """A tile of a document whose archives are elsewhere."""
    text = META % f"{reference}/t/{{z}}/{{x}}/{{y}}.zip"
    if where.startswith("http"):
        world.own.put("meta.json", text.encode())
    else:
        Path(where).write_text(text)
    tile = tapalcatl.open(where, config=config).tile(0, 0, 0)
    assert tile is not None
    assert tile.data == entry(0, 0, 0).data


def redirected(world: World, where: str, reference: str, config: StorageConfig) -> Any:
    """An object whose server sends elsewhere."""
    world.own.behave("redirect", path="meta.json", to=f"{reference}/t/k")
    return open_source(where, config=config).fetch([Head(4)])


def outcome(world: World, place: str, act: Callable[..., Any], *args: Any) -> str:
    """What became of a reference, with everything that must hold whatever it is."""
    target = urlsplit(place).netloc.rpartition("@")[2].replace(".:", ":") or "none"
    told = [one for one in world.seen() if one.headers.get("Authorization") == SECRET]
    assert all(one.headers["Host"] == urlsplit(world.own.origin).netloc for one in told)
    before = len(world.seen())
    try:
        act(*args)
    except AccessDeniedError:
        found = NO
    except StorageError as error:
        return "another scheme" if "another scheme" in str(error) else str(error)
    else:
        found = YES
    asked = [one for one in world.seen()[before:] if one.path.startswith("t/")]
    asked = [one for one in asked if one.headers["Host"].replace(".:", ":") == target]
    assert bool(asked) == (found == YES)
    secrets = {one.headers.get("Authorization") for one in asked}
    assert secrets <= {None, SECRET, "Basic dTpw"}
    return OWN if SECRET in secrets else found


@pytest.mark.parametrize("act", [fetched, tiled])
@pytest.mark.parametrize("place", PLACES)
def test_references(world: World, place: str, act: Any, tmp_path: Path) -> None:
    place, (remote, local, _) = world.fill(place), PLACES[place]
    fast = StorageConfig(http_headers={"Authorization": SECRET}, tries=1, connect_timeout=1)
    for where, right in (
        (f"{world.own.origin}/meta.json", remote),
        (str(tmp_path / "meta.json"), local),
    ):
        if right:
            assert outcome(world, place, act, world, where, place, fast) == right
    for one in world.seen():
        mine = one.headers["Host"] == urlsplit(world.own.origin).netloc
        assert mine or one.headers.get("Authorization") != SECRET


@pytest.mark.parametrize("place", [place for place in PLACES if PLACES[place][2]])
def test_redirects(world: World, place: str) -> None:
    where, right = f"{world.own.origin}/meta.json", PLACES[place][2]
    place = world.fill(place)
    fast = StorageConfig(http_headers={"Authorization": SECRET}, tries=1, connect_timeout=1)
    assert outcome(world, place, redirected, world, where, place, fast) == right
    # By user and password, too, and from what a redirect has led to.
    where = where.replace("http://", "http://u:p@")
    mended = right.replace(OWN, YES)
    assert outcome(world, place, redirected, world, where, place, fast) == mended
    world.own.behave("redirect", path="meta.json", to=f"{world.other.origin}/t/next")
    world.other.behave("redirect", path="t/next", to=f"{place}/t/k")
    source = open_source(where, config=fast)
    assert outcome(world, place, source.fetch, [Head(4)]) == mended
    assert all("Authorization" not in one.headers for one in world.other.requests)
    assert not world.inside.requests


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_a_server_of_this_machine_leads_to_itself_alone(http_server: HttpServer, host: str) -> None:
    other = HttpServer(host="127.0.0.1" if host == "localhost" else host)
    for server in (other, http_server):
        server.put("k", b"leaf")
    there = f"http://{host}:{urlsplit(other.origin).port}/k"
    http_server.behave("redirect", path="from", to=there)
    url = http_server.url_for("from")
    with pytest.raises(AccessDeniedError, match="linked_origins"):
        open_source(url).fetch([Head(4)])
    assert not other.requests
    origin = there.removesuffix("/k")
    named = open_source(url, config=StorageConfig(linked_origins=[origin]))
    assert named.fetch([Head(4)])[0].data == b"leaf"
    http_server.well()
    http_server.behave("redirect", path="from", to=http_server.url_for("k"))
    assert open_source(url).fetch([Head(4)])[0].data == b"leaf"
    other.close()


@pytest.mark.parametrize("place", [place for place in PLACES if PLACES[place][1] == YES])
def test_origins_that_are_named(world: World, place: str) -> None:
    where, place = f"{world.own.origin}/meta.json", world.fill(place)
    origin = place.replace("u:p@", "")
    own = StorageConfig(http_headers={"X-Own": "1"})
    for linked in ([origin], f"s3://b, {origin}/", {origin: own}):
        config = StorageConfig(http_headers={"Authorization": SECRET}, linked_origins=linked)
        for act in (fetched, tiled, redirected):
            world.own.well()
            right = OWN if origin == world.own.origin else YES
            assert outcome(world, place, act, world, where, place, config) == right
    named = [one for one in world.seen() if "X-Own" in one.headers]
    assert bool(named) == (origin != world.own.origin)


def test_what_is_unsafe_stays_so_where_local_archives_come_from_strangers(
    world: World, tmp_path: Path
) -> None:
    config = StorageConfig(untrusted=True, tries=1)
    where = str(tmp_path / "meta.json")
    for place, right in ((world.other.origin, YES), (world.inside.origin, NO), ("s3://b", NO)):
        assert outcome(world, place, tiled, world, where, place, config) == right


def test_a_second_answer_of_the_name_server_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    getaddrinfo, answers = socket.getaddrinfo, ["127.0.0.1", "127.0.0.2", "127.0.0.2"]

    def rebinding(host: Any, *args: Any, **named: Any) -> Any:
        return getaddrinfo(answers.pop(0) if host == "evil.test" else host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    place = world.fill("http://evil.test:{inside}")
    where = f"{world.own.origin}/meta.json"
    config = StorageConfig(tries=1, connect_timeout=1)
    with pytest.raises(StorageError):  # nothing listens there by the first answer
        redirected(world, where, place, config)
    assert answers == ["127.0.0.2", "127.0.0.2"]
    assert not world.inside.requests
    # Nor does a connection that is open already: who names a place himself may ask it.
    place = world.fill("http://inside.test:{inside}")
    assert open_source(f"{place}/t/k").fetch([Head(4)])[0].data == b"leaf"
    with pytest.raises(AccessDeniedError, match="loopback"):
        redirected(world, where, place, config)
    assert len(world.inside.requests) == 1


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", PUBLIC),
        ("2606:4700::1", PUBLIC),
        ("127.0.0.1", LOOPBACK),
        ("127.255.0.9", LOOPBACK),
        ("0.0.0.0", LOOPBACK),
        ("::", LOOPBACK),
        ("::1", LOOPBACK),
        ("::ffff:127.0.0.1", LOOPBACK),
        ("::127.0.0.1", LOOPBACK),
        ("64:ff9b::7f00:1", LOOPBACK),
        ("2002:7f00:1::", LOOPBACK),
        ("10.1.2.3", PRIVATE),
        ("172.16.0.1", PRIVATE),
        ("192.168.1.1", PRIVATE),
        ("100.64.0.1", PRIVATE),
        ("224.0.0.1", PRIVATE),
        ("255.255.255.255", PRIVATE),
        ("fc00::1", PRIVATE),
        ("64:ff9b::a00:1", PRIVATE),
        ("169.254.169.254", LINK_LOCAL),
        ("::ffff:169.254.169.254", LINK_LOCAL),
        ("fe80::1", LINK_LOCAL),
        ("fe80::1%lo", LINK_LOCAL),
        ("fd00:ec2::254", LINK_LOCAL),
    ],
)
def test_kinds_of_addresses(address: str, kind: int) -> None:
    assert http_pool.kind_of(address) == kind
    assert http_pool.kind_of_host(address) == kind


def test_hosts_that_a_proxy_would_resolve() -> None:
    for host in (
        "localhost",
        "a.localhost.",
        "LOCALHOST",
        "127.1",
        "2130706433",
        "[::1]",
        "0x7f.1",
    ):
        assert http_pool.kind_of_host(host) == LOOPBACK
    assert http_pool.kind_of_host("example.org") is None


# What becomes of a redirect of http://far.invalid, and of a reference in a local archive.
BY_PROXY = {
    "http://far.invalid": (YES, NO),
    "http://cdn.invalid": (NO, NO),
    "http://8.8.8.8": (YES, YES),
    "http://10.0.0.1": (NO, YES),
    "http://localhost": (NO, YES),
    "http://169.254.169.254": (NO, NO),
}


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("place", BY_PROXY)
def test_names_that_only_a_proxy_resolves(
    http_server: HttpServer, monkeypatch: pytest.MonkeyPatch, place: str, linked: bool
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", http_server.origin)
    http_pool._proxy.cache_clear()
    http_server.put(f"{place}/k", b"leaf")
    http_server.behave("redirect", path="http://far.invalid/from", to=f"{place}/k")
    config = StorageConfig(linked_origins=[place] if linked else [], tries=1)
    sources = (
        open_source("http://far.invalid/from", config=config),
        open_linked(open_source("/a", config=config), f"{place}/k"),
    )
    for source, right in zip(sources, BY_PROXY[place], strict=True):
        http_server.reset()
        if linked or right == YES:
            assert source.fetch([Head(4)])[0].data == b"leaf"
        else:
            with pytest.raises(AccessDeniedError, match="linked_origins"):
                source.fetch([Head(4)])
            assert all(not one.path.startswith(f"{place}/k") for one in http_server.requests)
    http_pool._proxy.cache_clear()


@pytest.mark.parametrize(
    "name", ["example.org", "/tmp", "https://h/path", "https://u:p@h", "https://h?x", "ftp://h", ""]
)
def test_what_is_no_origin(name: str) -> None:
    with pytest.raises(ComalError):
        StorageConfig(linked_origins=[name])


# -- stores: requests that obstore makes itself, by a client that follows redirects ----------------

KEY = base64.b64encode(b"pLaNtEd!" * 4).decode()
S3 = {"access_key_id": "AK", "secret_access_key": "SK", "region": "r"}
SSE_C = {"server_side_encryption": "sse-c", "sse_customer_key_base64": KEY}
AZURE = {"account_name": "acc"}
STORES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    # The options of a store, and what becomes of listing and reading with them.
    "keys": ("s3", S3, YES, YES),
    "a session": ("s3", S3 | {"session_token": KEY}, NO, YES),
    "a session without signatures": (
        "s3",
        S3 | {"aws_session_token": KEY, "skip_signature": True},
        YES,
        YES,
    ),
    "a customer's key": ("s3", S3 | SSE_C, NO, NO),
    "keys of the machine": ("s3", {"region": "r"}, NO, ""),
    "a provider of keys": ("s3", {"region": "r"}, NO, ""),
    "a token of Azure": ("azure", AZURE | {"bearer_token": KEY}, YES, YES),
    "a key of Azure": ("azure", AZURE | {"account_key": KEY}, YES, YES),
    "a shared signature": ("azure", AZURE | {"sas_token": f"sig={KEY}"}, NO, YES),
    "a key beside a key": ("azure", AZURE | {"account_key": KEY, "encryption_key": KEY}, NO, NO),
    "a token of Google": ("gcs", {"bearer_token": KEY}, YES, YES),
}  # fmt: skip
SCHEMES = {"s3": ("s3", "endpoint"), "azure": ("az", "endpoint"), "gcs": ("gs", "base_url")}


@pytest.mark.parametrize("there", ["other", "inside"])
@pytest.mark.parametrize("kind", STORES)
def test_redirects_of_stores(world: World, kind: str, there: str) -> None:
    field, options, listing, reading = STORES[kind]
    scheme, endpoint = SCHEMES[field]
    provider: Any = (lambda: {"access_key_id": "AK"}) if kind == "a provider of keys" else None
    if field == "gcs":
        provider, options = (lambda: {"token": KEY, "expires_at": None}), {"allow_http": True}
    given: dict[str, Any] = {field: options | {endpoint: world.own.origin}}
    config = StorageConfig(credential_provider=provider, tries=1, connect_timeout=1, **given)
    target: HttpServer = getattr(world, there)
    acts: list[tuple[str, Callable[[Source], Any]]] = [
        (listing, lambda source: source.names()),
        (reading, lambda source: source.fetch([Head(4)])),
    ]
    for code, (right, act) in product((301, 302, 303, 307, 308), acts):
        source = open_source(f"{scheme}://box/k", config=config)
        world.own.reset()
        world.own.behave("redirect", to=f"{target.origin}/t/k", code=code)
        with pytest.raises(ComalError) if right != YES else suppress(ComalError):
            act(source)
        assert bool(world.own.requests) == (right == YES) or not right
        told = str([one.headers for one in target.requests])
        assert not any(secret in told for secret in (KEY, quote(KEY), quote(KEY, safe="")))
        assert "Authorization" not in told
        world.own.well()


# -- formats ---------------------------------------------------------------------------------------


def test_parts_of_an_index_lie_in_its_folder(world: World, tmp_path: Path) -> None:
    parts = []
    for name in ("a", "b"):
        parts.append(tmp_path / f"{name}.tacozip")
        taco.create(dataset(taco.Tortilla([taco.Sample(name, name.encode() * 9)])), parts[-1])
    taco.create_tacocat(parts, tmp_path)
    for file in (*parts, tmp_path / ".tacocat"):
        for one in [file] if file.is_file() else file.iterdir():
            name = one.relative_to(tmp_path).as_posix()
            world.own.put(f"cat/{name}", one.read_bytes())
            world.other.put(f"cat/{name}", one.read_bytes())
    index = f"{world.own.origin}/cat/.tacocat"
    config = StorageConfig(http_headers={"Authorization": SECRET})
    container = open_container(open_source(index, config=config))
    for place in PLACES:
        with pytest.raises(UnsafeContentError):
            container.part(f"{world.fill(place)}/a.tacozip")
    # What the caller names beside it gets no secret of another origin, unless it brings its own.
    for base, told in (
        (f"{world.other.origin}/cat", None),
        (
            open_source(f"{world.other.origin}/cat", config=StorageConfig(http_headers={"K": "v"})),
            "v",
        ),
        (f"{world.own.origin}/cat", None),
    ):
        world.other.requests.clear()
        world.own.requests.clear()
        data = taco.load(index, base_path=base, config=config)
        assert data.data.read_bytes("a") == b"a" * 9
        assert all("Authorization" not in one.headers for one in world.other.requests)
        assert all(one.headers.get("K") == told for one in world.other.requests)
        assert all(one.headers["Authorization"] == SECRET for one in world.own.requests)
        assert bool(world.other.requests) == (base != f"{world.own.origin}/cat")


def test_the_command_line_and_the_server(
    world: World, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from comal import server
    from tests.server.asking import ask

    text = META % f"{world.other.origin}/t/{{z}}/{{x}}/{{y}}.zip"
    url = world.own.put("meta.json", text.encode())
    words = ["get", url, "0/0/0.png", "--json"]
    for more, code in (
        ([], 4),
        (["--linked-origins", world.inside.origin], 4),
        (["--linked-origins", world.other.origin], 0),
        ([], 4),
    ):
        with pytest.raises(SystemExit) as ended:
            root.main([*words, *more])
        printed = capfd.readouterr()
        assert ended.value.code == code, printed
        if code:
            assert json.loads(printed.err)["error"] == "AccessDeniedError"
    for linked, status in (
        (None, 403),
        ([world.inside.origin], 403),
        ([world.other.origin], 200),
    ):
        world.other.requests.clear()
        app = server.app({"set": {"href": url}}, linked_origins=linked)
        reply = ask(app, "/set/0/0/0.png")
        assert reply.status == status
        assert bool(world.other.requests) == (status == 200)
        assert "127.0.0.1" not in reply.body.decode(errors="replace") or status == 200
    monkeypatch.setenv("COMAL_LINKED_ORIGINS", world.other.origin)
    assert tapalcatl.open(url).tile(0, 0, 0) is not None


_VRT = """<VRTDataset rasterXSize="9" rasterYSize="9"><SRS>EPSG:3857</SRS>
<GeoTransform>0,1,0,0,0,-1</GeoTransform><VRTRasterBand dataType="Byte" band="1"><SimpleSource>
<SourceFilename relativeToVRT="{relative}">{reference}</SourceFilename><SourceBand>1</SourceBand>
</SimpleSource></VRTRasterBand></VRTDataset>"""


@pytest.mark.parametrize(
    "reference",
    [
        "/vsicurl/{origin}/a.tif",
        "/vsicurl_streaming/{origin}/a.tif",
        "/vsicurl?url={origin}/a.tif&amp;header.Authorization=x",
        "/vsizip//vsicurl/{origin}/a.zip",
        "/vsisubfile/0_9,/vsicurl/{origin}/a.tif",
        "{origin}/a.tif",
        "/vsis3/bucket/a.tif",
        "/vsiaz/bucket/a.tif",
        "/vsiswift/bucket/a.tif",
        "WMS:{origin}/wms?layers=a",
        "&lt;GDAL_WMS&gt;&lt;Service name='TMS'&gt;&lt;ServerUrl&gt;x&lt;/ServerUrl&gt;",
        "GTI:{origin}/a.gpkg",
        "nested.vrt",
    ],
)
def test_a_vrt_leads_nowhere_else(world: World, tmp_path: Path, reference: str) -> None:
    nested = _VRT.format(relative=0, reference=f"/vsicurl/{world.own.origin}/a.tif")
    (tmp_path / "nested.vrt").write_text(nested)
    text = _VRT.format(relative=1, reference=reference.format(origin=world.own.origin))
    (tmp_path / "x.vrt").write_text(text)
    with pytest.raises(AccessDeniedError, match="linked_origins"):
        raquet.write(tmp_path / "x.vrt", tmp_path / "x.parquet")
    assert not world.seen()


def serving(data: bytes, line: Connection) -> None:
    """Serve a raster until told to stop: GDAL asks while it keeps all threads of Python waiting."""
    server = HttpServer()
    line.send(server.put("a.tif", data))
    line.recv()
    line.send(len(server.requests))
    server.close()


def test_a_vrt_leads_to_origins_that_are_named(tmp_path: Path) -> None:
    raster = utm(tmp_path / "a.tif", noise((64, 64), "uint8"))
    line, other_end = Pipe()
    process = forks().Process(target=serving, args=(raster.read_bytes(), other_end))
    process.start()
    url = str(line.recv())
    with rasterio.open(raster) as dataset:
        crs, transform = dataset.crs.to_wkt(), dataset.transform.to_gdal()
    text = _VRT.format(relative=0, reference=f"/vsicurl/{url}").replace('"9"', '"64"')
    text = text.replace("EPSG:3857", escape(crs))
    text = text.replace("0,1,0,0,0,-1", ",".join(map(str, transform)))
    (tmp_path / "x.vrt").write_text(text)
    config = StorageConfig(linked_origins=[url.removesuffix("/a.tif")])
    paths = tmp_path / "x.parquet", tmp_path / "right.parquet"
    raquet.write(raster, paths[1])
    for refused in (None, StorageConfig(linked_origins=["http://127.0.0.1:9"])):
        with pytest.raises(AccessDeniedError, match="linked_origins"):
            raquet.write(tmp_path / "x.vrt", paths[0], config=refused)
    with pool(1) as workers:
        for executor in (None, workers):
            raquet.write(
                tmp_path / "x.vrt", paths[0], config=config, executor=executor, overwrite=True
            )
            # The first row of a RaQuet is its metadata.
            found, right = (pq.read_table(path)["band_1"].to_pylist()[1:] for path in paths)
            assert found == right
    line.send("stop")
    assert line.recv() > 0
    process.join()


def test_headers_for_a_remote_raster(http_server: HttpServer, tmp_path: Path) -> None:
    raster = utm(tmp_path / "a.tif", noise((64, 64), "uint8"))
    url = http_server.put("a.tif", Path(raster).read_bytes())
    config = StorageConfig(http_headers={"Authorization": SECRET})
    raquet.write(url, tmp_path / "x.parquet", config=config)
    assert {one.headers.get("Authorization") for one in http_server.requests} == {SECRET}
