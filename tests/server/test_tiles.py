"""Tiles of Tapalcatl: codings, validators, ranges, headers, what is absent or damaged."""

from __future__ import annotations

import asyncio
import gzip
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from comal import server, tapalcatl
from tests.server.asking import ask
from tests.server.making import GZIPPED, HTTP_TIME, PNG, VECTOR, crc, entry, tileset


def test_stored_tile_is_sent_as_it_is(app: Any) -> None:
    reply = ask(app, "/tiles/1/0/1.png")
    expected = PNG + b"1/0/1"
    assert (reply.status, reply.body) == (200, expected)
    assert reply.headers["content-type"] == "image/png"
    assert reply.headers["content-length"] == str(len(expected))
    assert reply.headers["etag"] == crc(expected)
    assert reply.headers["last-modified"] == HTTP_TIME
    assert reply.headers["cache-control"] == "public, max-age=3600"
    assert reply.headers["access-control-allow-origin"] == "*"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "vary" not in reply.headers, "nothing was chosen"
    assert "content-encoding" not in reply.headers


@pytest.mark.parametrize("accepted", ["gzip", "br, gzip;q=0.5", "*", "x-gzip"])
def test_gzip_bytes_pass_through(app: Any, accepted: str) -> None:
    reply = ask(app, "/tiles/0/0/0.mvt", headers={"Accept-Encoding": accepted})
    assert reply.body == GZIPPED
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.headers["vary"] == "accept-encoding"
    assert reply.headers["etag"] == crc(GZIPPED)


@pytest.mark.parametrize("accepted", [None, "identity", "br", "gzip;q=0", "deflate, gzip;q=0, *"])
def test_gzip_bytes_are_inflated_for_others(app: Any, accepted: str | None) -> None:
    headers = {} if accepted is None else {"Accept-Encoding": accepted}
    reply = ask(app, "/tiles/0/0/0.mvt", headers=headers)
    assert (reply.status, reply.body) == (200, VECTOR)
    assert "content-encoding" not in reply.headers
    assert reply.headers["vary"] == "accept-encoding"
    assert reply.headers["content-length"] == str(len(VECTOR))


def test_gzip_of_several_members_is_inflated_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = len(VECTOR) // 2
    members = gzip.compress(VECTOR[:half]) + gzip.compress(VECTOR[half:])
    monkeypatch.setattr("tests.server.making.GZIPPED", members)
    app = server.app({"tiles": tileset(tmp_path / "set")})
    assert ask(app, "/tiles/0/0/0.mvt", headers={"Accept-Encoding": "gzip"}).body == members
    assert ask(app, "/tiles/0/0/0.mvt").body == VECTOR


def test_deflated_entry_becomes_gzip_without_compressing_again(
    app: Any, archives: dict[str, Path]
) -> None:
    reply = ask(app, "/tiles/1/0/0.txt", headers={"Accept-Encoding": "gzip"})
    stored = tapalcatl.open(archives["tiles"]).stored_tile(1, 0, 0, ext="txt")
    assert stored is not None
    assert reply.body[10:-8] == stored.payload, "the bits of the archive"
    assert gzip.decompress(reply.body) == VECTOR + b"1/0/0"
    assert reply.headers["content-encoding"] == "gzip"
    assert reply.headers["etag"] == tag(VECTOR + b"1/0/0", "gzip"), "of the tile, and its coding"
    assert reply.headers["content-length"] == str(len(reply.body))
    plain = ask(app, "/tiles/1/0/0.txt", headers={"Accept-Encoding": "identity"})
    assert plain.body == VECTOR + b"1/0/0"
    assert "content-encoding" not in plain.headers


def tag(data: bytes, coding: str) -> str:
    """The tag of bytes that are sent in another coding than they were found in."""
    return f'{crc(data)[:-1]}-{coding}"'


@pytest.mark.parametrize(
    ("path", "plain", "compressed"),
    [
        ("/tiles/1/0/0.txt", crc(VECTOR + b"1/0/0"), tag(VECTOR + b"1/0/0", "gzip")),
        ("/tiles/0/0/0.mvt", tag(GZIPPED, "identity"), crc(GZIPPED)),
    ],
)
def test_each_coding_has_a_tag_of_its_own(app: Any, path: str, plain: str, compressed: str) -> None:
    """RFC 9110, 8.8.3.3: strong tags of the same tile in two codings differ."""

    def status(accepted: str, **conditions: str) -> tuple[int, str, bool]:
        given = {name.replace("_", "-"): value for name, value in conditions.items()}
        reply = ask(app, path, headers={"Accept-Encoding": accepted, **given})
        coded = reply.headers.get("content-encoding") == "gzip"
        return reply.status, reply.headers.get("etag", ""), coded

    for _ in range(2):  # twice
        assert status("gzip") == (200, compressed, True)
        assert status("identity") == (200, plain, False)
        assert status("gzip", If_None_Match=compressed)[:2] == (304, compressed)
        assert status("identity", If_None_Match=plain) == (304, plain, False)
        # who takes both may keep what he has; the answer names it, and says nothing of gzip
        assert status("gzip", If_None_Match=plain) == (304, plain, False)
        assert status("gzip", If_None_Match=f"{plain}, {compressed}")[:2] == (304, compressed)
        assert status("gzip, identity;q=0", If_None_Match=plain) == (200, compressed, True)
        assert status("identity", If_None_Match=compressed) == (200, plain, False)
        assert status("identity", If_None_Match=f'W/"x", W/{plain}')[0] == 304
        # parts are of the bytes in one coding
        assert status("gzip", Range="bytes=0-3", If_Range=compressed)[0] == 206
        assert status("gzip", Range="bytes=0-3", If_Range=plain)[0] == 200
        assert status("identity", If_Match=compressed)[0] == 412
        assert status("identity", If_Match=plain)[0] == 200


def test_no_coding_that_fits_is_406(app: Any) -> None:
    headers = {"Accept-Encoding": "gzip;q=0, identity;q=0"}
    reply = ask(app, "/tiles/0/0/0.mvt", headers=headers)
    assert (reply.status, reply.json()["code"]) == (406, "not-acceptable")


@pytest.mark.parametrize(("ext", "stored"), [("png", PNG + b"1/0/1"), ("mvt", GZIPPED)])
def test_checksums_as_numbers_are_tags(app: Any, ext: str, stored: bytes) -> None:
    """Which other servers of the same tiles have sent."""
    number = zlib.crc32(stored)
    for tag in (f'"{number}"', str(number)):
        assert ask(app, f"/tiles/1/0/1.{ext}", headers={"If-None-Match": tag}).status == 304, tag


def test_the_first_moment_of_zip_is_no_time(tmp_path: Path) -> None:
    """Archives that are written the same each time have it; a copy would never grow old by it."""
    folder = tileset(tmp_path / "set")
    with zipfile.ZipFile(folder / "0/0/0.zip", "w") as archive:
        info = zipfile.ZipInfo("0/0/0.png", (1980, 1, 1, 0, 0, 0))
        archive.writestr(info, PNG)
        archive.writestr(zipfile.ZipInfo("1/0/0.png", (1980, 1, 1, 0, 0, 2)), PNG)
    app = server.app({"tiles": str(folder)}, log="none")
    since = {"If-Modified-Since": "Tue, 01 Jan 1980 00:00:00 GMT"}
    for _ in range(2):
        for headers in ({}, since, {"Range": "bytes=0-1"}):
            reply = ask(app, "/tiles/0/0/0.png", headers=headers)
            assert reply.status in {200, 206}
            assert "last-modified" not in reply.headers
    reply = ask(app, "/tiles/1/0/0.png")
    assert reply.headers["last-modified"] == "Tue, 01 Jan 1980 00:00:02 GMT"


def test_options(app: Any) -> None:
    plain = ask(app, "/tiles/1/0/1.png", "OPTIONS")
    assert (plain.status, plain.headers["allow"]) == (204, "GET, HEAD, OPTIONS")
    headers = {"Origin": "https://example.org", "Access-Control-Request-Method": "GET"}
    preflight = ask(app, "/tiles/1/0/1.png", "OPTIONS", headers)
    assert preflight.status == 204
    assert "range" in preflight.headers["access-control-allow-headers"]
    assert "GET" in preflight.headers["access-control-allow-methods"]


def test_formats_that_nobody_has_told(tmp_path: Path) -> None:
    """Tapalcatl 1 of pictures, opened without ``formats``: its archives show them."""
    for place, ext in (("0/0/0", "png"), ("1/1/0", "webp")):
        path = tmp_path / f"{place}.zip"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("0/0/0", "1/0/0", "1/1/0", "1/0/1", "1/1/1"):
                entry(archive, f"{name}.{ext}", PNG + name.encode())
    app = server.app({"old": {"href": str(tmp_path), "metatile": 2}}, log="none")
    for _ in range(2):
        reply = ask(app, "/old/0/0/0.png")
        assert (reply.status, reply.headers["content-type"]) == (200, "image/png")
        assert ask(app, "/old/0/0/0.mvt").status == 404
    assert ask(app, "/old").json()["tile_type"] == "raster"
    assert ask(app, "/old.json").json()["tiles"] == ["/old/{z}/{x}/{y}.png"]
    assert ask(app, "/old/2/2/0.png").status == 404
    assert ask(app, "/old/2/2/0.webp").status == 200, "the second archive has another one"


def test_damaged_archive_that_should_tell_formats(tmp_path: Path) -> None:
    path = tmp_path / "0/0/0.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PK\x05\x06 and no archive")
    app = server.app({"old": {"href": str(tmp_path), "metatile": 2}}, log="none")
    assert ask(app, "/old").status == 200
    assert ask(app, "/old/0/0/0.mvt").status == 500


def test_damaged_tile_is_500_and_the_rest_is_served(app: Any) -> None:
    for path in ("/tiles/2/0/0.txt", "/tiles/2/0/0.png"):
        for accepted in ("gzip", "identity"):
            reply = ask(app, path, headers={"Accept-Encoding": accepted})
            assert (reply.status, reply.json()["code"]) == (500, "damaged")
            assert reply.headers["cache-control"] == "no-store"
    assert ask(app, "/tiles/2/0/1.txt").status == 200


def test_headers_of_the_archive_less_those_it_may_not_set(app: Any) -> None:
    reply = ask(app, "/tiles/0/0/0.html")
    assert reply.headers["x-fine"] == "yes"
    assert reply.headers["cache-control"] == "max-age=7"
    assert "set-cookie" not in reply.headers
    assert reply.headers["content-length"] == str(len(reply.body))
    assert reply.headers["access-control-allow-origin"] == "*"
    assert reply.headers["content-security-policy"] == "default-src 'none'; sandbox", (
        "an archive cannot run scripts in the server's name"
    )
    assert ask(app, "/tiles/0/0/0@2x.png").headers["x-scale"] == "2"


def test_accept_chooses_the_format(app: Any) -> None:
    for accepted, kind in (
        ("image/png", "image/png"),
        (
            "text/plain;q=0.3, application/vnd.mapbox-vector-tile",
            "application/vnd.mapbox-vector-tile",
        ),
        ("text/*", "text/plain"),
        ("*/*", "image/png"),
    ):
        for address in ("/tiles/0/0/0", "/tiles/tiles/WebMercatorQuad/0/0/0"):
            reply = ask(app, address, headers={"Accept": accepted})
            assert reply.headers["content-type"] == kind
            assert "accept" in reply.headers["vary"].split(", ")
    assert ask(app, "/tiles/0/0/0").body == ask(app, "/tiles/0/0/0.png").body
    named = ask(app, "/tiles/0/0/0.png", headers={"Accept": "text/plain"})
    assert (named.headers["content-type"], "vary" in named.headers) == ("image/png", False)
    refused = ask(app, "/tiles/0/0/0", headers={"Accept": "audio/*"})
    assert (refused.status, refused.headers["vary"]) == (406, "accept")


def test_ogc_address_has_the_row_before_the_column(app: Any) -> None:
    assert ask(app, "/tiles/tiles/WebMercatorQuad/1/0/1.png").body == PNG + b"1/1/0"
    assert ask(app, "/tiles/tiles/WebMercatorQuad/0/0/0@2x.png").body == PNG + b"twice"
    document = ask(app, "/tiles/tiles/WebMercatorQuad").json()
    (item, *_) = [link for link in document["links"] if link["rel"] == "item"]
    assert item["href"].endswith("/{tileMatrix}/{tileRow}/{tileCol}.png")
    assert ask(app, "/tiles/tiles").json()["tilesets"][0]["crs"].endswith("3857")
    assert ask(app, "/collections/tiles/tiles").status == 200
    assert ask(app, "/tileMatrixSets/WebMercatorQuad").json()["tileMatrices"][1]["matrixWidth"] == 2
    for path in ("WebMercatorQuad/1/0", "WebMercatorQuad/1/0/1/2.png", "Other", "Other/1/0/1.png"):
        assert ask(app, f"/tiles/tiles/{path}").status == 404
    assert ask(app, "/scenes/tiles").status == 404


def test_tilejson(archives: dict[str, Path]) -> None:
    source = {"tiles": {"href": str(archives["tiles"])}}
    app = server.app(source, prefix="maps", public_url="https://example.org/")
    for path in ("/maps/tiles.json", "/maps/tiles/tilejson.json"):
        document = ask(app, path, headers={"Host": "evil.example"}).json()
        assert document["tilejson"] == "3.0.0"
        assert document["tiles"] == ["https://example.org/maps/tiles/{z}/{x}/{y}.png"]
        assert (document["minzoom"], document["maxzoom"]) == (0, 2)
    assert ask(app, "/maps/tiles.json?ext=mvt").json()["tiles"][0].endswith(".mvt")
    assert ask(app, "/maps/tiles.json?ext=exe").status == 404


def test_tapalcatl_1(tmp_path: Path) -> None:
    place = tmp_path / "all" / "0" / "0"
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "0.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for dz in range(2):
            for x in range(1 << dz):
                for y in range(1 << dz):
                    entry(archive, f"{dz}/{x}/{y}.mvt", f"{dz}/{x}/{y}".encode() * 9, deflate=True)
    config = {"href": str(tmp_path), "metatile": 2, "layout": "plain", "layer": "all"}
    app = server.app({"old": config})
    assert ask(app, "/old/1/1/0.mvt").body == b"1/1/0" * 9
    assert ask(app, "/old/256/1/1/0.mvt").body == b"1/1/0" * 9
    assert ask(app, "/old/512/0/0/0.mvt").body == b"0/0/0" * 9
    for path in ("/old/300/0/0/0.mvt", "/old/0/0/0/0.mvt", "/old/4096/0/0/0.mvt"):
        assert ask(app, path).status in {400, 404}
    assert ask(app, "/old/x/0/0/0.mvt").status == 400
    assert ask(app, "/old").json()["version"] == "1"


def test_broken_change_keeps_the_old_one(tmp_path: Path) -> None:
    folder = tileset(tmp_path / "set")
    app = server.app({"set": {"href": str(folder)}}, reload_seconds=0.01)
    assert ask(app, "/set/0/0/0.png").status == 200
    (folder / "meta.json").write_text("{ no json")

    async def looked() -> None:
        mount = app.mounts["set"]
        await mount.get()
        if mount._looking is not None:
            await mount._looking

    for _ in range(10):
        time.sleep(0.02)
        asyncio.run(looked())
        assert ask(app, "/set/0/0/0.png").status == 200
    assert (
        'comal_reloads_total{outcome="failed",source="set"} 1' in ask(app, "/metrics").body.decode()
    )


def test_remote_document_cannot_send_the_server_elsewhere(http_server: Any, tmp_path: Path) -> None:
    folder = tileset(tmp_path / "set", source="http://169.254.169.254/{z}/{x}/{y}.zip")
    href = f"{http_server.serve_folder(folder)}/meta.json"
    app = server.app({"set": {"href": href}})
    reply = ask(app, "/set/0/0/0.png")
    assert (reply.status, reply.json()["code"]) == (403, "access-denied")
    assert "169.254" not in reply.body.decode()


def test_remote_tiles_and_failing_storage(http_server: Any, tmp_path: Path) -> None:
    folder = tileset(tmp_path / "set")
    href = f"{http_server.serve_folder(folder)}/meta.json"
    app = server.app({"set": {"href": href}})
    assert ask(app, "/set/1/0/1.png").body == PNG + b"1/0/1"
    assert ask(app, "/set/2/3/3.png").status == 404
    http_server.close()
    gone = server.app({"set": {"href": href}})
    reply = ask(gone, "/set/1/0/1.png")
    assert reply.status in {502, 503, 504}, "a failure is never told as absence"
    assert "127.0.0.1" not in reply.body.decode()


def test_variants_have_addresses(tmp_path: Path) -> None:
    names = ("dark", "styles", "styles/dark")
    folder = tmp_path / "set"
    tapalcatl.build([(0, 0, 0, PNG + b"plain")], folder, materialized_zooms=[0], metatile=1)
    for name in names:
        tapalcatl.put(folder, [(0, 0, 0, PNG + name.encode())], variant=name)
    for source in (folder, tapalcatl.open(folder)):
        app = server.app({"set": source}, public_url="https://example.org")
        assert ask(app, "/set/0/0/0.png").body == PNG + b"plain"
        assert ask(app, "/set/variants/none/0/0/0.png").status == 404
        listed = ask(app, "/set/variants").json()["variants"]
        assert listed == ask(app, "/set.json").json()["variants"]
        for name in names:
            address = listed[name]["tilejson"].removeprefix("https://example.org")
            assert address == f"/set/variants/{name}/tilejson.json"
            document = ask(app, address).json()
            template = document["tiles"][0].removeprefix("https://example.org")
            reply = ask(app, template.format(z=0, x=0, y=0))
            assert (reply.status, reply.body) == (200, PNG + name.encode())
            assert reply.headers["etag"] == crc(PNG + name.encode())
            links = ask(app, f"/set/variants/{name}").json()["links"]
            assert ask(app, f"/{links['tilejson']}").json() == document
            row_first = f"/set/variants/{name}/tiles/WebMercatorQuad"
            assert ask(app, f"{row_first}/0/0/0.png").body == reply.body
            described = [one["href"] for one in ask(app, row_first).json()["links"]]
            assert f"https://example.org{address}" in described
            assert ask(app, f"/set/variants/{name}/1/0/0.png").status == 404
            assert ask(app, f"/set/variants/{name}/variants/dark/0/0/0.png").status == 404
