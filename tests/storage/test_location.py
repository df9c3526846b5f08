"""Hrefs: taken apart, put together, joined, shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import storage
from comal.errors import InvalidInputError, ObjectNotFoundError, UnsafeContentError
from comal.plan import Tail
from comal.storage import Location, parse_href
from comal.storage.location import relative_parts
from tests.servers.http import HttpServer


@pytest.mark.parametrize(
    ("href", "normal", "vsi"),
    [
        ("/a/b.tif", "/a/b.tif", "/a/b.tif"),
        ("/a//b/./c", "/a/b/c", "/a/b/c"),
        ("/a b%20#?.tif", "/a b%20#?.tif", "/a b%20#?.tif"),
        ("file:///a%20b", "/a b", "/a b"),
        ("file://localhost/a", "/a", "/a"),
        ("http://Host:80/a", "http://host/a", "/vsicurl/http://host/a"),
        ("HTTPS://h:8443/a?x=1#frag", "https://h:8443/a?x=1", "/vsicurl/https://h:8443/a"),
        ("https://h", "https://h/", "/vsicurl/https://h/"),
        ("http://h/a b/\u00fc%20", "http://h/a%20b/%C3%BC%20", "/vsicurl/http://h/a%20b/%C3%BC%20"),
        ("http://[::1]:8/a", "http://[::1]:8/a", "/vsicurl/http://[::1]:8/a"),
        ("s3://bucket/a b/c%20", "s3://bucket/a b/c%20", "/vsis3/bucket/a b/c%20"),
        ("s3a://bucket/k", "s3://bucket/k", "/vsis3/bucket/k"),
        ("S3://bucket/k/", "s3://bucket/k", "/vsis3/bucket/k"),
        ("gs://b/k", "gs://b/k", "/vsigs/b/k"),
        ("gcs://b/k", "gs://b/k", "/vsigs/b/k"),
        ("az://c/k", "az://c/k", "/vsiaz/c/k"),
        ("abfs://c/k", "az://c/k", "/vsiaz/c/k"),
        (
            "abfss://c@acc.dfs.core.windows.net/k",
            "az://c@acc.dfs.core.windows.net/k",
            "/vsiaz/c/k",
        ),
    ],
)
def test_normalised(href: str, normal: str, vsi: str) -> None:
    location = parse_href(href)
    assert location.url == normal
    assert location.href == (normal.partition("?")[0] if "://" in normal else normal)
    assert parse_href(location.url) == location
    assert storage.open_source(href).vsi() == vsi


@pytest.mark.parametrize(
    "href",
    [
        "",
        "\0",
        "a\0b",
        "ftp://h/a",
        "vrt://x",
        "http://",
        "http:///a",
        "http://h:x/",
        "s3://",
        "file://other/a",
        "file:///%00",
        "http://[::1/a",
        "zip+http://x/y",
        None,
        5,
        b"a",
        ["a"],
    ],
)
def test_refused(href: Any) -> None:
    with pytest.raises(InvalidInputError):
        parse_href(href)


def test_relative_paths_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_href("a/b").href == f"{tmp_path}/a/b"
    assert parse_href(Path("s3://x")).href == f"{tmp_path}/s3:/x"
    assert parse_href(os.fsdecode(b"\xff")).href == f"{tmp_path}/\udcff"


def test_dots_go_through_links_as_the_system_does(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    assert parse_href(f"{tmp_path}/link/../x").href == f"{tmp_path}/deep/x"


@pytest.mark.parametrize(
    ("base", "relative", "joined"),
    [
        ("/a", "b/c", "/a/b/c"),
        ("/", "b", "/b"),
        ("/a", "./b//c/", "/a/b/c"),
        ("http://h/a/", "b c%", "http://h/a/b%20c%25"),
        ("http://h", "x?y#z", "http://h/x%3Fy%23z"),
        ("s3://b", "k", "s3://b/k"),
        ("s3://b/p", "k", "s3://b/p/k"),
        ("memory://m/p", "\u00fc", "memory://m/p/\u00fc"),
    ],
)
def test_joined(base: str, relative: str, joined: str) -> None:
    assert parse_href(base).join(relative).href == joined


@pytest.mark.parametrize(
    ("href", "parent"),
    [
        ("/a/b", "/a"),
        ("/a", "/"),
        ("http://h/a/b/", "http://h/a"),
        ("http://h/a?x=1", "http://h/?x=1"),
        ("s3://b/k", "s3://b/"),
        ("s3://b/p/k", "s3://b/p"),
    ],
)
def test_parents(href: str, parent: str) -> None:
    assert parse_href(href).parent().url == parent


@pytest.mark.parametrize("href", ["/", "http://h/", "s3://b"])
def test_no_parent(href: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_href(href).parent()


def test_names() -> None:
    assert parse_href("http://h/a%20b/").name == "a b"
    assert parse_href("s3://b/x/a%20b").name == "a%20b"


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("a./\\:\0%?# "), max_size=12))
def test_a_relative_href_never_leaves(relative: str) -> None:
    base = Location("file", "", "/base/of/all")
    try:
        joined = base.join(relative)
    except UnsafeContentError:
        return
    assert os.path.normpath(joined.path) == joined.path
    assert (joined.path + "/").startswith("/base/of/all/")
    assert ".." not in relative_parts(relative, "")


def test_labels_are_printable_and_hide_secrets() -> None:
    location = parse_href("https://me:hush@h/a\u202eb?sig=hush")
    assert str(location) == "https://h/a%E2%80%AEb"
    assert "\n" not in str(parse_href("/a\nb"))
    assert location.url == "https://h/a%E2%80%AEb?sig=hush"


def test_gdal_has_no_path_to_these() -> None:
    for href in ("memory://a/b", "/vsizip/a.zip/b"):
        with pytest.raises(InvalidInputError):
            storage.open_source(href).vsi()


def test_long_paths_are_shown_without_their_middle() -> None:
    label = str(parse_href("/" + "long/" * 50 + "name.tif"))
    assert len(label) == 90
    assert label.startswith("/long/")
    assert label.endswith("/name.tif")


# -- hf:// -----------------------------------------------------------------------------------------

PUBLIC = "https://huggingface.co/"


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("hf://datasets/me/set/a.tortilla", "datasets/me/set/resolve/main/a.tortilla"),
        ("hf://datasets/me/set@v1.0/d/a b.taco", "datasets/me/set/resolve/v1.0/d/a%20b.taco"),
        ("hf://datasets/me/set@a%2Fb/x", "datasets/me/set/resolve/a%2Fb/x"),
        (
            "hf://datasets/me/set@refs/convert/parquet/x",
            "datasets/me/set/resolve/refs%2Fconvert%2Fparquet/x",
        ),
        ("hf://datasets/me/set@refs/pr/3/x", "datasets/me/set/resolve/refs%2Fpr%2F3/x"),
        ("hf://spaces/me/app/x.tif", "spaces/me/app/resolve/main/x.tif"),
        ("HF://me/model/w.tif", "me/model/resolve/main/w.tif"),
        ("hf://datasets/me/set/part%5B1%5D", "datasets/me/set/resolve/main/part%5B1%5D"),
    ],
)
def test_urls_of_a_hub(href: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert parse_href(href).url == PUBLIC + url
    assert storage.open_source(href).vsi() == f"/vsicurl/{PUBLIC}{url}"


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "datasets/me/set",
        "datasets/me/set/",
        "me",
        "datasets/me/set@/x",
        "a/b//x",
        "a/../b/x",
        "a/b/../../x",
        "a/b/x?y",
    ],
)
def test_what_names_no_file_is_refused(rest: str) -> None:
    with pytest.raises(InvalidInputError, match="not a file on the Hub"):
        parse_href(f"hf://{rest}")


def test_ranges_of_another_hub(http_server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = http_server.put("datasets/me/set/resolve/v2/x.bin", b"0123456789")
    monkeypatch.setenv("HF_ENDPOINT", url.partition("/datasets")[0] + "/")
    source = storage.open_source("hf://datasets/me/set@v2/x.bin")
    assert source.fetch([Tail(3)])[0].data == b"789"
    assert [seen.range for seen in http_server.requests] == ["bytes=-3"]
    with pytest.raises(ObjectNotFoundError):
        storage.open_source("hf://datasets/me/set/x.bin").stat()
