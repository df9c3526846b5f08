"""``hf://`` hrefs become the URLs by which a Hub serves files, and nothing else is asked."""

from __future__ import annotations

import pytest

from comal import storage
from comal.errors import InvalidInputError, ObjectNotFoundError
from comal.plan import Tail
from comal.storage.location import parse_href
from tests.servers.http import HttpServer

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
def test_url(href: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
