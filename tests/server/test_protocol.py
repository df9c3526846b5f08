"""What HTTP demands of every kind of answer: validators, variants, parts, caches, counts."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from comal import server
from tests.server.asking import Reply, ask, reply_of, scope_of
from tests.server.making import HTTP_TIME

DOCUMENT = "/scenes/items"
STRONG = (
    *("/tiles/1/0/1.png", "/tiles/1/0/1.mvt", "/rgb/1/0/0.png"),
    *("/scenes/data/scene%202/image.tif", "/scenes/preview/scene%201/image.tif"),
)
"""Tiles that are stored as they are sent, stored in gzip and drawn; a sample, and its preview."""
WEAK = (DOCUMENT, "/_/assets/viewer/index.html")
"""Texts, whose tags are weak: they are of whatever coding they are sent in."""
LONG_AGO = "Mon, 01 Jan 1990 00:00:00 GMT"
NO_CHARACTER_OF_HEADERS = "☃".encode().decode("latin-1")

CONDITIONS: tuple[tuple[dict[str, str], int, int], ...] = (
    *(
        ({"If-None-Match": tags}, 304, 304)
        for tags in ("{tag}", "W/{bare}", '"nothing", {tag}', 'W/"a",W/{bare}', "*", " * ")
    ),
    *(
        # Tags win over times.
        ({"If-None-Match": tags, "If-Modified-Since": HTTP_TIME}, 200, 200)
        for tags in ('"00000000"', "", '"', "W/", ",,,", '""', NO_CHARACTER_OF_HEADERS)
    ),
    ({"If-Match": "{tag}"}, 200, 412),
    ({"If-Match": '"x" , {tag}'}, 200, 412),
    ({"If-Match": "*"}, 200, 200),
    ({"If-Match": "W/{bare}"}, 412, 412),
    ({"If-Match": '"x"'}, 412, 412),
    ({"If-Match": ""}, 412, 412),
    ({"If-Match": '"x"', "If-None-Match": "{tag}"}, 412, 412),
    ({"If-Match": "{tag}", "If-None-Match": "{tag}"}, 304, 412),
    ({"If-Match": "{tag}", "If-Unmodified-Since": LONG_AGO}, 200, 412),
    ({"If-Match": '"x"', "Range": "bytes=0-1"}, 412, 412),
    ({"If-Unmodified-Since": "nonsense"}, 200, 200),
)
"""Headers, the status of an answer with a strong tag, and of one with a weak tag."""


def filled(headers: dict[str, str], tag: str) -> dict[str, str]:
    """The headers with the tag of an answer, and with what stands in it between quotes."""
    bare = tag.removeprefix("W/")
    return {name: value.format(tag=tag, bare=bare) for name, value in headers.items()}


@pytest.mark.parametrize("coding", ["gzip", "identity", "gzip;q=0"])
@pytest.mark.parametrize("path", STRONG + WEAK)
def test_conditions(app: Any, path: str, coding: str) -> None:
    """RFC 9110, 13.1; 15.4.5: a 304 has the tag and the variants of the 200.

    If-Match compares tags strongly, If-None-Match weakly. A tag of another strength refreshes
    nothing (RFC 9111, 4.3.4).
    """
    accepted = {"Accept-Encoding": coding}
    whole = ask(app, path, headers=accepted)
    head = ask(app, path, "HEAD", accepted)
    assert (head.status, head.body, sorted(head.pairs)) == (200, b"", sorted(whole.pairs))
    names = ("etag", "last-modified", "vary", "cache-control", "access-control-allow-origin")
    for condition, strong, weak in CONDITIONS:
        headers = accepted | filled(condition, whole.headers["etag"])
        for method in ("GET", "HEAD"):
            reply = ask(app, path, method, headers)
            assert reply.status == (weak if path in WEAK else strong), headers
            if reply.status == 304:
                assert reply.body == b""
                assert "content-length" not in reply.headers
                for name in names:
                    assert reply.headers.get(name) == whole.headers.get(name), (headers, name)
            elif reply.status == 412 and method == "GET":
                assert reply.json()["code"] == "precondition-failed"


@pytest.mark.parametrize("path", ["/tiles/1/0/1.png", "/tiles/1/0/1.mvt", "/rgb/1/0/0.png"])
def test_times(app: Any, path: str) -> None:
    """Drawn tiles have none."""
    timed = "last-modified" in ask(app, path).headers
    assert timed == path.startswith("/tiles")
    for since, status in (
        (HTTP_TIME, 304),
        ("Wed, 31 Oct 2018 19:10:27 GMT", 304),
        ("Wed, 31 Oct 2018 19:10:25 GMT", 200),
        ("Wed, 99 Oct 99999 19:10:25 GMT", 200),
        ("nonsense", 200),
        ("", 200),
    ):
        expected = status if timed else 200
        assert ask(app, path, headers={"If-Modified-Since": since}).status == expected, since
    for since, status in ((HTTP_TIME, 200), (LONG_AGO, 412 if timed else 200)):
        assert ask(app, path, headers={"If-Unmodified-Since": since}).status == status, since


@pytest.mark.parametrize("path", STRONG)
def test_ranges(app: Any, path: str) -> None:
    whole = ask(app, path)
    size = len(whole.body)
    assert whole.headers["accept-ranges"] == "bytes"
    for wanted, first, last in (
        ("bytes=0-9", 0, 10),
        ("Bytes=5-", 5, size),  # units are of any case (RFC 9110, 14.1)
        ("bytes=-7", size - 7, size),
        ("bytes=3-99999", 3, size),
    ):
        reply = ask(app, path, headers={"Range": wanted})
        assert (reply.status, reply.body) == (206, whole.body[first:last])
        assert reply.headers["content-range"] == f"bytes {first}-{last - 1}/{size}"
        assert reply.headers["content-length"] == str(last - first)
    for wanted in ("bytes=999999-", "bytes=-0"):
        reply = ask(app, path, headers={"Range": wanted})
        assert (reply.status, reply.json()["code"]) == (416, "range-not-satisfiable")
        assert reply.headers["content-range"] == f"bytes */{size}"
    for wanted in ("bytes=5-2", "bytes=-", "lines=1-2", "bytes=0-1,3-4", "x", "bytes=a-b"):
        assert ask(app, path, headers={"Range": wanted}).status == 200, wanted
    timed = 206 if "last-modified" in whole.headers else 200
    for condition, status in (("{tag}", 206), ("W/{tag}", 200), ('"x"', 200), (HTTP_TIME, timed)):
        headers = filled({"Range": "bytes=0-1", "If-Range": condition}, whole.headers["etag"])
        assert ask(app, path, headers=headers).status == status, condition


@pytest.mark.parametrize("path", WEAK)
def test_texts_are_sent_whole(app: Any, path: str) -> None:
    """Their tags are weak, which no condition of a range meets (RFC 9110, 13.1.5)."""
    whole = ask(app, path)
    part = ask(app, path, headers={"Range": "bytes=0-9"})
    assert (part.status, part.body, part.pairs) == (200, whole.body, whole.pairs)
    assert "accept-ranges" not in whole.headers


# -- lists of headers in pieces --------------------------------------------------------------------


def asked_twice(app: Any, path: str, *pairs: tuple[str, str]) -> Reply:
    scope = scope_of(path)
    scope["headers"] = [(name.encode(), value.encode()) for name, value in pairs]
    return asyncio.run(reply_of(app, scope))


@pytest.mark.parametrize("path", ["/tiles/0/0/0.png", DOCUMENT])
def test_a_list_in_two_lines_is_one_list(app: Any, path: str) -> None:
    """RFC 9110, 5.3."""
    tag = ask(app, path).headers["etag"]
    for tags in ((tag, '"other"'), ('"other"', tag)):
        pairs = [("if-none-match", one) for one in tags]
        assert asked_twice(app, path, *pairs).status == 304
        pairs = [("if-match", one) for one in tags]
        assert asked_twice(app, path, *pairs).status == (412 if path == DOCUMENT else 200)


def test_codings_in_two_lines(app: Any) -> None:
    for codings in (("gzip", "identity;q=0"), ("identity;q=0", "gzip")):
        pairs = [("accept-encoding", one) for one in codings]
        reply = asked_twice(app, "/tiles/1/1/0.mvt", *pairs)
        assert (reply.status, reply.headers["content-encoding"]) == (200, "gzip")


# -- caches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [204, 404])
def test_absent_tiles_are_kept_as_long_as_others(archives: dict[str, Path], missing: int) -> None:
    sources = {"tiles": {"href": str(archives["tiles"])}}
    app = server.app(sources, missing=missing, cache_control="max-age=77")
    reply = ask(app, "/tiles/2/3/3.png")
    assert reply.status == missing
    assert reply.headers["cache-control"] == "max-age=77"
    assert (reply.body == b"") == (missing == 204)
    for outside in ("/tiles/5/3/3.png", "/tiles/2/3/3.gif"):  # of the zooms, of the formats
        assert ask(app, outside).status == 404
    assert "cache-control" not in ask(app, "/tiles/nothing").headers
    assert ask(app, "/tiles/2/0/0.png").headers["cache-control"] == "no-store"


# -- counts ----------------------------------------------------------------------------------------


def test_failures_are_counted_where_they_happen(archives: dict[str, Path]) -> None:
    sources = {"tiles": {"href": str(archives["tiles"])}, "scenes": str(archives["scenes"])}
    app = server.app(sources, log="none")
    for path in (
        *("/tiles/2/0/0.png", "/tiles/2/3/3.png", "/tiles/0/0/0.xyz", "/tiles/nothing"),
        *("/scenes/items?limit=x", "/scenes/data/nothing", "/scenes/made-up-1/a", "/made-up-2"),
    ):
        assert ask(app, path).status >= 400
    text = ask(app, "/metrics").body.decode()
    found = set(re.findall(r'_total\{route="(\S+?)",source="(\S*?)",status="(\d+)"\}', text))
    assert ("tile", "tiles", "500") in found
    assert ("tile", "tiles", "404") in found
    assert ("items", "scenes", "400") in found
    assert ("data", "scenes", "404") in found
    assert ("none", "scenes", "404") in found
    assert "made-up" not in text
    assert "nothing" not in text


# -- work that nobody sees -------------------------------------------------------------------------


def test_head_reads_no_sample(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from comal.taco.reading import spans

    path = "/scenes/data/scene%200/note.txt"
    full = ask(app, path)

    def never(*_: object) -> Any:
        raise AssertionError("nothing of it is sent")

    monkeypatch.setattr(spans, "read_leaves", never)
    head = ask(app, path, "HEAD")
    assert (head.status, head.body, head.headers) == (200, b"", full.headers)


@pytest.mark.parametrize("path", [*STRONG, *WEAK, "/healthz", "/"])
def test_whole_addresses(app: Any, path: str) -> None:
    """RFC 9112, 3.2.2: a server accepts the form that clients send to a proxy."""
    for before in ("http://example.org", "HTTPS://example.org:8000"):
        whole, own = ask(app, before + path), ask(app, path)
        assert (whole.status, whole.body) == (own.status, own.body)
    assert ask(app, "http://example.org").body == ask(app, "/").body
