"""Many ranges in one request: which servers are asked so, and what is believed of their answers."""

from __future__ import annotations

import email
import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from comal import storage
from comal.errors import ComalError, ObjectChangedError, ShortReadError, StorageError
from comal.plan import ByteRange, Head, Tail
from comal.storage import (
    CountingSource,
    Source,
    StorageConfig,
    http,
)
from comal.storage.cloud import CloudTransport
from comal.storage.http import HttpTransport
from comal.storage.httpwire import NotFittingError, check_parts, read_parts
from comal.storage.location import parse_href
from tests.servers.http import HttpServer
from tests.servers.multipart import HONEST, Form
from tests.storage.places import noise

DATA = noise(200_000)
# Four connections are soon too few, and nothing is near enough to be merged.
FEW = StorageConfig(concurrency=4, coalesce_gap=0)
WANTED = [ByteRange(1000 + 4000 * index, 100 + index) for index in range(12)]


def right(wanted: Sequence[ByteRange], data: bytes = DATA) -> list[bytes]:
    return [data[want.offset : want.end] for want in wanted]


def read(source: Source, wanted: Sequence[ByteRange] = WANTED) -> list[bytes]:
    return [piece.data for piece in source.fetch(wanted)]


def opened(url: str, config: StorageConfig = FEW) -> Source:
    """A source that knows its object."""
    source = storage.open_source(url, config=config)
    source.fetch([Head(1)])
    return source


def leading_to(server: HttpServer) -> StorageConfig:
    return replace(FEW, linked_origins=[server.origin])


@pytest.fixture
def other() -> Iterator[HttpServer]:
    """A second server, which answers many ranges."""
    made = HttpServer()
    made.behave("multipart")
    yield made
    made.close()


@pytest.fixture
def many(http_server: HttpServer) -> HttpServer:
    """The server, which answers many ranges."""
    http_server.behave("multipart")
    return http_server


def verdict(server: HttpServer) -> bool | None:
    return http.takes_many(parse_href(server.origin))


def test_one_request_for_all(many: HttpServer) -> None:
    source = opened(many.put("a", DATA))
    many.reset()
    assert read(source) == right(WANTED)
    (seen,) = many.requests
    assert seen.range == "bytes=" + ",".join(f"{w.offset}-{w.end - 1}" for w in WANTED)
    assert seen.headers["If-Match"].startswith('"')
    assert seen.headers["Accept-Encoding"] == "identity"
    assert verdict(many) is True
    assert read(opened(many.put("b", DATA[::-1]))) == right(WANTED, DATA[::-1])
    assert len(many.requests) == 3


@pytest.mark.parametrize(
    ("count", "known", "switched_on", "requests"),
    [
        (5, True, True, 1),
        # What fits into the connections takes one round trip anyway.
        (4, True, True, 4),
        # Only of a known object each part can be compared with its version and size.
        (12, False, True, 12),
        (12, True, False, 12),
    ],
)
def test_when_many_ranges_are_asked_for_at_once(
    many: HttpServer, count: int, known: bool, switched_on: bool, requests: int
) -> None:
    config, url = replace(FEW, multi_range=switched_on), many.put("a", DATA)
    source = opened(url, config) if known else storage.open_source(url, config=config)
    many.reset()
    assert read(source, WANTED[:count]) == right(WANTED[:count])
    assert len(many.requests) == requests
    assert verdict(many) is (True if requests == 1 else None)


@pytest.mark.parametrize(
    "form",
    [
        Form(chunked=True),
        Form(boundary=b"a b", said='"a b"'),
        Form(boundary=b"[lka9uw3et5vxybtp87ghq23dpu7djv84nhls9p]"),
        Form(kind="Multipart/Byteranges", preamble=b"", epilogue=b"\r\nThe end.\r\n" * 99),
        Form(fields=b"ETag: x\r\nLast-Modified: yesterday\r\n"),
    ],
)
def test_forms_that_fit(http_server: HttpServer, form: Form) -> None:
    http_server.behave("multipart", form=form)
    source = opened(http_server.put("a", DATA))
    assert read(source) == right(WANTED)
    assert len(http_server.requests) == 2
    assert verdict(http_server) is True


@pytest.mark.parametrize(
    ("kind", "options", "more"),
    [
        ("well", {}, 12),
        ("first-only", {}, 12),
        ("spanning", {}, 12),
        ("many-status", {"code": 416}, 12),
        ("many-status", {"code": 400}, 12),
        ("many-status", {"code": 501}, 13),
        ("many-status", {"code": 204}, 12),
        ("multipart", {"form": Form(drop=1)}, 12),
        ("multipart", {"form": Form(backwards=True)}, 12),
        ("multipart", {"form": Form(merge=4000)}, 12),
        ("multipart", {"form": Form(shift=1)}, 12),
        ("multipart", {"form": Form(total=1)}, 12),
        ("multipart", {"form": Form(said="other")}, 12),
        ("multipart", {"form": Form(kind="multipart/mixed")}, 12),
        ("multipart", {"form": Form(garbage=b"x")}, 12),
        ("multipart", {"form": Form(chunked=True, span="bytes 1000-1099/200000")}, 12),
        ("multipart", {"form": Form(close=False)}, 12),
        ("multipart", {"form": Form(endless="headers")}, 12),
        ("multipart", {"form": Form(endless="parts")}, 12),
        ("multipart", {"form": Form(endless="body")}, 12),
        ("multipart", {"form": Form(preamble=b"x" * 1_000_000)}, 12),
        ("multipart", {"form": Form(newline=b"\n", preamble=b"")}, 12),
        ("multipart", {"form": Form(cut=700)}, 13),
        ("multipart", {"form": Form(cut=0)}, 13),
    ],
)
def test_servers_that_do_not_know_it(
    http_server: HttpServer, kind: str, options: dict[str, Any], more: int
) -> None:
    """The trial costs one request, or two when it looks like passing trouble; then never again."""
    http_server.behave(kind, **options)
    config = replace(FEW, backoff_first=0.001, max_request=100_000)
    source = opened(http_server.put("a", DATA), config)
    http_server.reset()
    http_server.sent = 0
    assert read(source) == right(WANTED)
    assert len(http_server.requests) == 1 + more
    assert http_server.sent < 16 << 20, "an endless answer ends soon"
    assert verdict(http_server) is False
    http_server.reset()
    assert read(source) == right(WANTED)
    assert len(http_server.requests) == 12
    assert all("," not in str(request.range) for request in http_server.requests)


def test_the_body_of_a_200_is_not_read(http_server: HttpServer) -> None:
    large = bytes(64 << 20)
    source = opened(http_server.put("a", large))
    http_server.sent = 0
    assert read(source) == right(WANTED, large)
    # What the system takes before it notices that nobody listens.
    deadline = time.monotonic() + 5
    while http_server.sent < 12 * 100 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert http_server.sent < 16 << 20
    assert verdict(http_server) is False


def test_a_changed_object_is_an_error(many: HttpServer) -> None:
    source = opened(many.put("a", DATA))
    many.put("a", DATA[::-1])
    with pytest.raises(ObjectChangedError):
        source.fetch(WANTED)
    # That says nothing of the server.
    assert verdict(many) is None
    assert read(opened(many.url_for("a"))) == right(WANTED, DATA[::-1])
    assert verdict(many) is True
    source = opened(many.url_for("a"))
    many.put("a", DATA)
    with pytest.raises(ObjectChangedError):
        source.fetch(WANTED)
    assert verdict(many) is True


@pytest.mark.parametrize("shorter", [0, 1])
def test_a_change_that_only_the_answer_tells(many: HttpServer, shorter: int) -> None:
    """Without an entity tag there is no If-Match; the time of change and the size are compared."""
    source = opened(many.put("a", DATA, etag="", modified=1e9))
    if shorter:
        many.behave("no-validators")
    many.put("a", DATA[: len(DATA) - shorter], etag="", modified=1e9 + 3600)
    many.reset()
    with pytest.raises(ObjectChangedError):
        source.fetch(WANTED)
    assert shorter or len(many.requests) == 1


@pytest.mark.parametrize(("proven", "lasts"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(
    ("kind", "options", "error"),
    [
        ("status", {"code": 503, "headers": {"Retry-After": "0"}}, StorageError),
        ("status", {"code": 429}, StorageError),
        ("reset", {}, StorageError),
        ("multipart", {"form": Form(cut=900)}, ShortReadError),
    ],
)
def test_trouble(
    many: HttpServer,
    hasty: StorageConfig,
    proven: bool,
    lasts: bool,
    kind: str,
    options: dict[str, Any],
    error: type[ComalError],
) -> None:
    """It is tried again; single ranges take the place of a trial alone."""
    config = replace(hasty, concurrency=4, coalesce_gap=0)
    source = opened(many.put("a", DATA), config)
    if proven:
        assert read(source) == right(WANTED)
    many.reset()
    many.behave(kind, times=None if lasts else 1, **options)
    if lasts:
        with pytest.raises(error) as caught:
            source.fetch(WANTED)
        assert type(caught.value) is error
        assert caught.value.fields["tries"] == len(many.requests) == 4
    else:
        assert read(source) == right(WANTED)
        assert len(many.requests) == 2
    assert verdict(many) is True


def test_a_server_that_stops_to_know_it(http_server: HttpServer) -> None:
    http_server.behave("multipart", times=2)
    source = opened(http_server.put("a", DATA))
    assert read(source) == right(WANTED)
    assert verdict(http_server) is True
    http_server.reset()
    assert read(source) == right(WANTED)
    assert len(http_server.requests) == 13
    assert verdict(http_server) is False


def test_one_thread_tries(http_server: HttpServer) -> None:
    """The others do not wait for what it finds, and try nothing themselves."""
    http_server.behave("multipart", form=HONEST)
    source = opened(http_server.put("a", DATA))
    entered, go = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        go.wait(10)

    http_server.reset()
    http_server.behave("call", times=1, function=hold)
    found: list[bytes] = []
    first = threading.Thread(target=lambda: found.extend(read(source)))
    first.start()
    assert entered.wait(10)
    assert read(source) == right(WANTED)
    assert len(http_server.requests) == 12
    go.set()
    first.join()
    assert found == right(WANTED)
    assert len(http_server.requests) == 13
    assert verdict(http_server) is True


def test_counting(many: HttpServer) -> None:
    counting = CountingSource(opened(many.put("a", DATA)))
    counting.fetch(WANTED)
    assert (counting.wanted, counting.requests, counting.round_trips) == (12, 1, 1)
    assert counting.bytes == sum(want.size for want in WANTED)
    assert counting.log[0].ranges == 12
    assert counting.log[0].offset == 1000


def test_several_objects_in_one_fetch(many: HttpServer) -> None:
    for name in "abc":
        many.put(f"base/{name}", DATA[ord(name) :])
    source = storage.open_source(many.url_for("base"), config=FEW)
    source.fetch([Head(1, name) for name in "abc"])
    many.reset()
    wanted = [ByteRange(w.offset, w.size, name) for w in WANTED for name in "abc"]
    wanted += [ByteRange(0, 0, "a")]
    found = source.fetch([*wanted, Tail(10, "b"), Head(10, "c")])
    for want, piece in zip(wanted, found, strict=False):
        data = DATA[ord(want.href) :]
        assert piece.data == data[want.offset : want.end]
    assert found[-2].data == DATA[-10:]
    assert len(many.requests) == 3


def test_connections_are_used_again(many: HttpServer) -> None:
    source = opened(many.put("a", DATA), replace(FEW, concurrency=1))
    ports: list[int] = []
    handle = many._server.get_request

    def counted() -> Any:
        sock, address = handle()
        ports.append(address[1])
        return sock, address

    many._server.get_request = counted  # type: ignore[method-assign]
    for _ in range(5):
        assert read(source) == right(WANTED)
    assert ports == []


def test_signed_addresses_are_not_tried(many: HttpServer) -> None:
    url = many.put("a", DATA)
    signed = opened(url + "?signature=1")
    assert read(signed) == right(WANTED)
    assert len(many.requests) == 13
    assert read(opened(url)) == right(WANTED)
    many.reset()
    assert read(signed) == right(WANTED)
    assert len(many.requests) == 1


def test_who_answers_counts_and_not_who_redirects(
    http_server: HttpServer, other: HttpServer
) -> None:
    http_server.behave("redirect", path="from", to=other.put("to", DATA))
    source = opened(http_server.url_for("from"), leading_to(other))
    http_server.reset()
    assert read(source) == right(WANTED)
    assert (verdict(http_server), verdict(other)) == (None, True)
    assert http_server.requests == []
    assert len(other.requests) == 2


def test_redirects_are_not_followed_with_many_ranges(
    http_server: HttpServer, other: HttpServer
) -> None:
    """They may lead to signed addresses; single ranges go there first."""
    other.put("to", DATA)
    http_server.behave("redirect", path="from", to=other.url_for("to") + "?signature=1")
    # A copy, in a worker say, knows the object but not where the redirect leads.
    source = pickle.loads(pickle.dumps(opened(http_server.url_for("from"), leading_to(other))))
    http_server.reset()
    other.reset()
    for _ in range(2):
        assert read(source) == right(WANTED)
    assert (verdict(http_server), verdict(other)) == (None, None)
    assert [seen.range for seen in other.requests if "," in str(seen.range)] == []
    assert len(other.requests) == 24
    assert "," in str(http_server.requests[0].range)
    assert all("," not in str(seen.range) for seen in http_server.requests[1:])


def test_an_address_that_expires_shows_nothing(http_server: HttpServer, other: HttpServer) -> None:
    http_server.behave("redirect", path="from", to=other.put("to", DATA))
    source = opened(http_server.url_for("from"), leading_to(other))
    assert read(source) == right(WANTED)
    tag = source.known().etag  # type: ignore[union-attr]  # just fetched
    other.behave("status", path="to", code=403)
    http_server.well()
    http_server.behave("redirect", path="from", to=other.put("next", DATA, etag=tag))
    assert read(source) == right(WANTED)
    assert verdict(other) is True
    other.reset()
    assert read(source) == right(WANTED)
    assert [seen.path for seen in other.requests] == ["next"]


def test_object_stores_know_single_ranges_only() -> None:
    at = parse_href("https://example.org/a")
    assert CloudTransport(FEW).takes_many(at) is False
    assert HttpTransport(FEW).takes_many(at) is None


# -- laws of their answers -------------------------------------------------------------------------

# Data that looks like the frame around it.
ALPHABET = st.sampled_from(
    [b"\r", b"\n", b"-", b"--B", b"--B--", b"\r\n--B\r\n", b"x", b"\0", b"\xff"]
)
FRAMED = st.lists(ALPHABET, min_size=1, max_size=120).map(b"".join)
Spans = list[tuple[int, int]]


@st.composite
def cases(draw: st.DrawFn, data: st.SearchStrategy[bytes] = FRAMED) -> tuple[bytes, Spans]:
    """Bytes, and ascending ranges of them as starts and stops."""
    found = draw(data)
    cuts = sorted(draw(st.sets(st.integers(0, len(found)), min_size=2, max_size=16)))
    return found, list(zip(cuts[::2], cuts[1::2], strict=False))


def parts_of(body: bytes, boundary: bytes, spans: Spans, total: int) -> list[bytes]:
    return read_parts(body, boundary, [(start, stop - start) for start, stop in spans], total)


FORMS = st.builds(
    Form,
    boundary=st.sampled_from([b"B", b"00000000000000000001", b"a b:c=d", b"[lka9uw3]", b"B--"]),
    preamble=st.sampled_from([b"", b"\r\n"]),
    epilogue=st.sampled_from([b"", b"\r\n", b"\n", b"\r\nThe end"]),
    fields=st.sampled_from([b"", b"X-Other: 1\r\n", b'etag: "1"\r\n']),
)


@settings(max_examples=300, deadline=None)
@given(cases(), FORMS)
def test_every_form_gives_the_bytes(case: tuple[bytes, Spans], form: Form) -> None:
    data, spans = case
    assume(len(spans) > 1)
    body = b"".join(form.body(data, spans))
    assert parts_of(body, form.boundary, spans, len(data)) == [data[a:b] for a, b in spans]


@settings(max_examples=200, deadline=None)
@given(cases(st.binary(min_size=40, max_size=400)))
def test_the_standard_library_sees_the_same_parts(case: tuple[bytes, Spans]) -> None:
    data, spans = case
    form = replace(HONEST, boundary=b"3d6b6a416f9b5", epilogue=b"\r\n")
    assume(form.boundary not in data and len(spans) > 1)
    body = b"".join(form.body(data, spans))
    header = f"Content-Type: {form.content_type}\r\n\r\n".encode()
    message = email.message_from_bytes(header + body)
    theirs = [part.get_payload(decode=True) for part in message.walk()][1:]
    boundary = check_parts({"Content-Type": form.content_type}, spans)
    assert parts_of(body, boundary, spans, len(data)) == theirs


@settings(max_examples=500, deadline=None)
@given(cases(), st.data())
def test_a_broken_frame_gives_no_wrong_byte(case: tuple[bytes, Spans], draw: st.DataObject) -> None:
    data, spans = case
    pieces = list(HONEST.body(data, spans))
    # Data stands in every fifth piece; everything else is frame.
    number = draw.draw(st.sampled_from([n for n in range(len(pieces)) if n % 5 != 4]))
    at = draw.draw(st.integers(0, max(0, len(pieces[number]) - 1)))
    new = draw.draw(st.one_of(st.just(b""), st.binary(min_size=1, max_size=3)))
    pieces[number] = pieces[number][:at] + new + pieces[number][at + 1 :]
    with suppress(NotFittingError):
        found = parts_of(b"".join(pieces), HONEST.boundary, spans, len(data))
        assert found == [data[start:stop] for start, stop in spans]


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"Content-Type: image/png\r\n",
        b"Content-Range bytes 0-2/100\r\n",
        b" Content-Range: bytes 0-2/100\r\n",
        b"Content-Range : bytes 0-2/100\r\n",
        b"Content-Range: bytes 0-2/100\r\ncontent-range: bytes 0-2/100\r\n",
        b"Content-Range: bytes 0-2/101\r\n",
        b"Content-Range: bytes 0-2/*\r\n",
        b"Content-Range: bytes */100\r\n",
        b"Content-Range: items 0-2/100\r\n",
        b"Content-Range: bytes 2-0/100\r\n",
        b"Content-Range: bytes 0-1/100\r\n",
        b"Content-Range: bytes 1-2/100\r\n",
        b"Content-Range: bytes 10-2/100\r\n",
        b"Content-Range: bytes -0-2/100\r\n",
        b"Content-Range: bytes 0-2/100\r\nX:" + b"x" * 3000 + b"\r\n",
    ],
)
def test_parts_that_were_not_asked_for(head: bytes) -> None:
    with pytest.raises(NotFittingError):
        read_parts(b"--B\r\n" + head + b"\r\nabc\r\n--B--\r\n", b"B", [(0, 3)], 100)


def test_names_of_fields_have_no_case() -> None:
    body = b"--B\r\nX:\r\nCONTENT-RANGE:bytes  0-2/100\r\n\r\nabc\r\n--B--"
    assert read_parts(body, b"B", [(0, 3)], 100) == [b"abc"]
