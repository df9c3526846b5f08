"""What HTTP demands of answers that are no tiles: validators, variants, parts, caches, counts."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from comal import server
from tests.server.asking import Reply, ask, reply_of, scope_of

DOCUMENT = "/scenes/items"
PAGE = "/_/assets/viewer/index.html"


@pytest.mark.parametrize("path", [DOCUMENT, PAGE])
def test_304_has_the_tag_and_the_variants_of_the_200(app: Any, path: str) -> None:
    """RFC 9110, 15.4.5; a tag of another strength refreshes nothing (RFC 9111, 4.3.4)."""
    for accepted in ("gzip", "identity", "gzip;q=0"):
        full = ask(app, path, headers={"Accept-Encoding": accepted})
        tag = full.headers["etag"]
        known = ask(app, path, headers={"Accept-Encoding": accepted, "If-None-Match": tag})
        assert (known.status, known.body) == (304, b"")
        for name in ("etag", "vary", "cache-control"):
            assert known.headers.get(name) == full.headers.get(name), (accepted, name)


@pytest.mark.parametrize("path", [DOCUMENT, PAGE])
def test_documents_are_sent_whole(app: Any, path: str) -> None:
    """Their tags are weak, which no condition of a range meets (RFC 9110, 13.1.5)."""
    whole = ask(app, path)
    part = ask(app, path, headers={"Range": "bytes=0-9"})
    assert (part.status, part.body, part.pairs) == (200, whole.body, whole.pairs)
    assert "accept-ranges" not in whole.headers
    assert ask(app, path, headers={"If-Match": whole.headers["etag"]}).status == 412


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


def test_documents_say_how_long_they_are_good(app: Any) -> None:
    """What says nothing is kept for a day by some caches."""
    paths = ["/", "/sources.json", "/conformance", "/tileMatrixSets", "/api", "/collections"]
    paths += ["/tileMatrixSets/WebMercatorQuad", "/collections/scenes", "/metrics", "/healthz"]
    paths += ["/tiles", "/dem", "/scenes", "/scenes/", "/tiles.json", "/scenes/items"]
    for path in paths:
        reply = ask(app, path)
        assert reply.status == 200, path
        assert "cache-control" in reply.headers, path
    for path in ("/tiles", "/dem", "/scenes"):
        assert ask(app, path).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("missing", [204, 404])
def test_absent_tiles_are_kept_as_long_as_others(archives: dict[str, Path], missing: int) -> None:
    sources = {"tiles": {"href": str(archives["tiles"])}}
    app = server.app(sources, missing=missing, cache_control="max-age=77")
    reply = ask(app, "/tiles/2/3/3.png")
    assert reply.status == missing
    assert reply.headers["cache-control"] == "max-age=77"
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
