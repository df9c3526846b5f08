"""What holds for all requests: mounting, limits, problems, lists, operations, bad input."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from prometheus_client import parser
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import comal
from comal import server, taco
from comal.errors import InvalidInputError, ObjectChangedError, StorageError
from comal.server import mounts
from comal.server.mounts import suggested_name
from comal.server.responses import Refusal
from comal.server.runtime import ConcurrencyLimit, Runtime, SingleFlight
from comal.server.settings import RequestLimits, Settings
from tests.server.asking import ask, reply_of, scope_of
from tests.server.making import PNG
from tests.support import REPOSITORY


def test_viewer_is_at_the_root(app: Any) -> None:
    for accept in ("*/*", "", "application/*", "application/json, text/html;q=0.5"):
        reply = ask(app, "/", headers={"Accept": accept} if accept else {})
        assert reply.headers["content-type"] == "application/json", accept
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"
    page = ask(app, "/", headers={"Accept": browser})
    if page.headers["content-type"] != "text/html; charset=utf-8":
        pytest.skip("the viewer is not there")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "accept" in page.headers["vary"]
    assert ask(server.app({"a": "b"}, viewer=False), "/").headers["content-type"] == (
        "application/json"
    )


def test_one_broken_source_does_not_take_away_the_others(
    archives: dict[str, Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    sources = {"good": str(archives["dem"]), "bad": str(broken), "gone": str(tmp_path / "x.zip")}
    app = server.app(sources, log="none")
    listed = {one["name"]: one for one in ask(app, "/sources.json").json()["sources"]}
    assert listed["good"]["state"] == "ready"
    assert listed["bad"]["state"] == listed["gone"]["state"] == "error"
    assert ask(app, "/good/0/0/0.png").status == 200
    for name in ("bad", "gone"):
        reply = ask(app, f"/{name}/0/0/0.png")
        assert reply.status in {404, 500}
        assert str(tmp_path) not in reply.body.decode()
    ready = ask(app, "/readyz")
    assert (ready.status, ready.json()["status"]) == (200, "degraded")
    problems = ready.json()["problems"]
    assert {name: one["code"] for name, one in problems.items()} == {
        "bad": listed["bad"]["problem"]["code"],
        "gone": "object-not-found",
    }
    assert ask(server.app({"bad": str(broken)}, log="none"), "/readyz").status == 503


class _Unsteady:
    """A reader's module that fails as often as it is told, and hangs when it is told."""

    def __init__(self, served: Any, errors: list[Exception]) -> None:
        self.served, self.errors, self.tries = served, errors, 0
        self.answer = threading.Event()

    def __call__(self, *_: Any) -> Any:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        assert self.answer.wait(10)
        return self.served


@pytest.mark.parametrize("kind", [StorageError, ValueError], ids=["ours", "a bug"])
def test_sources_that_fail_are_tried_again_ever_more_rarely(
    archives: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: type[Exception],
) -> None:
    now = 1000.0
    monkeypatch.setattr(mounts, "time", SimpleNamespace(monotonic=lambda: now))
    app = server.app({"far": str(archives["dem"]), "near": str(archives["rgb"])}, log="none")
    served = ask(app, "/near").json()
    opener = _Unsteady(app.mounts["near"].served, [kind("no route to host") for _ in range(7)])
    monkeypatch.setattr(mounts, "open_place", opener)
    waits = []
    for tries in range(1, 8):
        first = ask(app, "/far/0/0/0.png").status
        assert (first, opener.tries) == (502 if kind is StorageError else 500, tries)
        problem = ask(app, "/readyz").json()["problems"]["far"]
        waits.append(problem["retry_seconds"])
        now += waits[-1] - 1
        assert ask(app, "/far").status == first
        assert b"no route" not in ask(app, "/sources.json").body
        assert ask(app, "/near").json() == served
        assert (ask(app, "/healthz").status, ask(app, "/readyz").status) == (200, 200)
        assert opener.tries == tries, "told again without another trial"
        now += 1
    assert waits == [10, 20, 40, 80, 160, 300, 300]
    assert "no route to host" in caplog.text

    async def hangs() -> int:
        told = await reply_of(app, scope_of("/readyz"))
        assert (told.json()["status"], opener.tries) == ("degraded", 8)
        opener.answer.set()
        return (await reply_of(app, scope_of("/far"))).status

    assert asyncio.run(hangs()) == 200
    assert ask(app, "/readyz").json() == {
        "status": "ready",
        "sources": {"far": "ready", "near": "ready"},
        "problems": {},
    }


def test_a_source_that_does_not_answer_keeps_nobody(
    archives: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"far{number}" for number in range(12)]
    sources = {name: f"https://{name}.example/x.parquet" for name in names}
    app = server.app({**sources, "near": str(archives["rgb"])}, log="none")
    opener = _Unsteady(None, [])
    monkeypatch.setattr(mounts, "fingerprint", lambda href, *_: opener() if "://" in href else "1")

    assert ask(app, "/near").status == 200

    async def main() -> tuple[Any, Any]:
        ready = await reply_of(app, scope_of("/readyz"))
        tile = await asyncio.wait_for(reply_of(app, scope_of("/near/0/0/0.png")), 5)
        opener.answer.set()
        return ready, tile

    ready, tile = asyncio.run(main())
    assert tile.status == 200
    states = ready.json()["sources"]
    assert states == dict.fromkeys(names, "opening") | {"near": "ready"}


_SIDE_BY_SIDE = """
import json, sys
from comal import server
from tests.server.asking import ask
sys.setswitchinterval(1e-6)
app, problems = server.app(json.loads(sys.argv[1]), log="none"), None
while problems is None or "opening" in str(problems):  # the list does not wait long
    found = ask(app, "/sources.json").json()["sources"]
    problems = {one["name"]: one["problem"] for one in found if one["state"] != "ready"}
print(problems)
"""


def test_first_sources_that_are_opened_side_by_side_are_all_there(
    archives: dict[str, Path],
) -> None:
    """Threads that load modules which load one another saw half of them."""
    sources = json.dumps({name: str(path) for name, path in archives.items()})
    command = [sys.executable, "-c", _SIDE_BY_SIDE, sources]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("{}\n", 0), done.stderr


def test_names() -> None:
    for href, name in (
        ("/data/dem.parquet", "dem"),
        ("s3://bucket/roads/meta.json", "roads"),
        ("https://example.org/a b/my tiles.tacozip?x=1", "my-tiles"),
        ("/x/metrics", "source-metrics"),
        ("/", "source"),
    ):
        assert suggested_name(href) == name
    app = server.app(["/a/dem.parquet", "/b/dem.parquet"])
    assert list(app.mounts) == ["dem", "dem-2"]
    assert list(server.app("/a/dem.parquet").mounts) == ["dem"]
    assert list(server.app(Path("/a/dem.parquet")).mounts) == ["dem"]
    unusable: list[Any] = [
        {"a/b": "x"},
        {"": "x"},
        {"..": "x"},
        {"metrics": "x"},
        {"a.json": "x"},
        {},
        [],
    ]
    for sources in unusable:
        with pytest.raises(InvalidInputError):
            server.app(sources)
    for options in ({"missing": 500}, {"prefix": "/ä"}, {"cors": ["a\nb"]}, {"log": "some"}):
        with pytest.raises(InvalidInputError):
            server.app({"a": "x"}, **options)


def test_open_readers_are_served(archives: dict[str, Path]) -> None:
    from comal import raquet, tapalcatl

    app = server.app(
        {
            "dem": raquet.open(archives["dem"]),
            "scenes": taco.load(archives["scenes"]).limit(2),
            "tiles": tapalcatl.open(archives["tiles"]),
        }
    )
    assert ask(app, "/scenes").json()["count"] == 2
    assert ask(app, "/dem/0/0/0.png").status == 200
    assert ask(app, "/tiles/0/0/0.png").status == 200
    wrong = ask(server.app({"a": comal.Limits()}), "/a")
    assert (wrong.status, wrong.json()["code"]) == (500, "misconfigured")
    with pytest.raises(InvalidInputError, match="cannot be served"):
        server.app({"a": object()})


# -- mounted ---------------------------------------------------------------------------------------


def test_in_starlette(app: Any) -> None:
    inner = Starlette(routes=[Mount("/maps", app=app)])
    with TestClient(inner) as client:
        assert client.get("/maps/tiles/1/0/1.png").content == PNG + b"1/0/1"
        assert client.get("/maps/tiles/1/0/1.png").content == PNG + b"1/0/1"
        document = client.get("/maps/tiles.json").json()
        assert document["tiles"] == ["/maps/tiles/{z}/{x}/{y}.png"]
        page = client.get("/maps/scenes/items?limit=1").json()
        links = {link["rel"]: link["href"] for link in page["links"]}
        assert client.get(links["next"]).json()["features"][0]["id"] == "scene 1"
        assert client.get("/maps/scenes/items/scene%201%2Fimage.tif").json()["id"] == "image.tif"
        assert client.get("/maps/nothing").status_code == 404
        found = client.get("/maps", follow_redirects=False)
        assert found.status_code in {307, 308}


def test_in_fastapi_with_a_prefix(archives: dict[str, Path]) -> None:
    inner = FastAPI()
    inner.mount("/a/b", server.app({"dem": str(archives["dem"])}, prefix="/c"))
    with TestClient(inner) as client:
        assert client.get("/a/b/c/dem/0/0/0.png").status_code == 200
        assert client.get("/a/b/c/dem.json").json()["tiles"] == ["/a/b/c/dem/{z}/{x}/{y}.png"]
        assert client.get("/a/b/dem/0/0/0.png").status_code == 404
        assert client.get("/a/b/c", follow_redirects=False).headers["location"] == "c/"


def test_older_frameworks_cut_the_mount_off(app: Any) -> None:
    scope = {**scope_of("/tiles.json"), "root_path": "/maps"}
    reply = asyncio.run(reply_of(app, scope))
    assert reply.json()["tiles"] == ["/maps/tiles/{z}/{x}/{y}.png"]
    del scope["raw_path"]
    assert asyncio.run(reply_of(app, {**scope, "path": "/maps/tiles.json"})).status == 200


def test_lifespan(app: Any) -> None:
    sent: list[str] = []
    steps = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        return {"type": next(steps)}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    asyncio.run(app({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert ask(app, "/readyz").status == 503


def test_long_texts_are_compressed(app: Any) -> None:
    plain = ask(app, "/scenes/items")
    assert "accept-encoding" in plain.headers["vary"]
    reply = ask(app, "/scenes/items", headers={"Accept-Encoding": "gzip"})
    assert reply.headers["content-encoding"] == "gzip"
    assert gzip.decompress(reply.body) == plain.body
    assert reply.headers["content-length"] == str(len(reply.body))
    assert reply.headers["etag"] == plain.headers["etag"]
    short = ask(app, "/healthz", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in short.headers
    data = ask(app, "/scenes/data/scene%201/note.txt", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in data.headers


# -- cross origin ----------------------------------------------------------------------------------


def test_origins(archives: dict[str, Path]) -> None:
    source = {"dem": str(archives["dem"])}
    chosen = server.app(source, cors=["https://a.example"])
    allowed = ask(chosen, "/dem", headers={"Origin": "https://a.example"})
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    other = ask(chosen, "/dem", headers={"Origin": "https://b.example"})
    assert "access-control-allow-origin" not in other.headers
    assert "origin" in other.headers["vary"]
    closed = ask(server.app(source, cors=False), "/dem", headers={"Origin": "https://a.example"})
    assert "access-control-allow-origin" not in closed.headers


# -- bad input -------------------------------------------------------------------------------------


def test_hosts_of_requests_are_never_believed(app: Any) -> None:
    headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example", "Forwarded": "host=evil"}
    for path in ("/tiles.json", "/scenes/items", "/collections", "/"):
        assert b"evil" not in ask(app, path, headers=headers).body


def test_bugs_tell_nothing(
    app: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from comal.server.rasters import RasterSource

    async def bug(*_: Any) -> Any:
        raise RuntimeError("secret /path/of/server")

    monkeypatch.setattr(RasterSource, "tile", bug)
    with caplog.at_level(logging.ERROR, "comal.server"):
        reply = ask(app, "/dem/0/0/0.png")
    assert (reply.status, reply.json()["code"]) == (500, "internal")
    assert "secret" not in reply.body.decode()
    assert "secret" in caplog.text
    assert reply.json()["id"] in caplog.text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StorageError("disk on fire", where="/data/x"), 502),
        (ObjectChangedError("changed", where="s3://bucket/x"), 503),
        (TimeoutError(), 504),
        (Refusal(429, "slow-down"), 429),
    ],
)
def test_failures_have_their_status(
    app: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    from comal.server.rasters import RasterSource

    async def fails(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(RasterSource, "tile", fails)
    reply = ask(app, "/dem/0/0/0.png")
    assert reply.status == status
    assert reply.headers["cache-control"] == "no-store"
    assert "bucket" not in reply.body.decode()
    assert "/data" not in reply.body.decode()
    if status == 503:
        assert reply.headers["retry-after"] == "1"


def test_slow_work_is_504(archives: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from comal.server.rasters import RasterSource

    async def hangs(*_: Any) -> Any:
        await asyncio.sleep(60)

    monkeypatch.setattr(RasterSource, "tile", hangs)
    limits = server.RequestLimits(seconds=0.05)
    app = server.app({"dem": str(archives["dem"])}, limits=limits, log="none")
    asyncio.run(app.mounts["dem"].get())
    reply = ask(app, "/dem/0/0/0.png")
    assert (reply.status, reply.json()["code"]) == (504, "timeout")


def test_gate_lets_those_in_who_wait() -> None:
    async def main() -> None:
        gate = ConcurrencyLimit(1, 2)
        order: list[int] = []

        async def work(number: int) -> None:
            async with gate:
                order.append(number)
                await asyncio.sleep(0)

        first = asyncio.create_task(work(1))
        await asyncio.sleep(0)
        second, third = asyncio.create_task(work(2)), asyncio.create_task(work(3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert (order[0], order[-1], gate.active, gate.waiting) == (1, 3, 0, 0)

    asyncio.run(main())


def test_flights_survive_those_who_leave() -> None:
    async def main() -> None:
        single_flight, done = SingleFlight(), []

        async def work() -> str:
            await asyncio.sleep(0.01)
            done.append(1)
            return "result"

        leaves = asyncio.create_task(single_flight.run("key", work))
        stays = asyncio.create_task(single_flight.run("key", work))
        await asyncio.sleep(0)
        leaves.cancel()
        assert await stays == "result"
        assert len(done) == 1
        assert not single_flight._tasks

    asyncio.run(main())


def test_flights_end_when_all_have_left() -> None:
    async def main() -> None:
        single_flight, done = SingleFlight(), []

        async def work() -> str:
            await asyncio.sleep(0.01)
            done.append(1)
            return "result"

        for keep in (False, True):
            leave = [
                asyncio.create_task(single_flight.run("key", work, keep=keep)) for _ in range(2)
            ]
            await asyncio.sleep(0)
            for task in leave:
                task.cancel()
            await asyncio.gather(*leave, return_exceptions=True)
            # Who comes now has nothing of what was cancelled.
            comes = single_flight.run("key", work)
            assert await comes == "result"
            assert len(done) == 1
            done.clear()
        assert not single_flight._tasks
        assert not single_flight._waiting

    asyncio.run(main())


# -- operations ------------------------------------------------------------------------------------


def test_metrics_are_what_prometheus_reads(app: Any) -> None:
    assert ask(server.app({"a": "b"}, metrics=False), "/metrics").status == 404
    for path in (
        "/dem/0/0/0.png",
        "/dem/0/0/0.png",
        "/dem/statistics",
        "/nothing",
        "/dem/9/0/0.png",
    ):
        ask(app, path)
    reply = ask(app, "/metrics")
    assert reply.headers["cache-control"] == "no-store"
    text = reply.body.decode()
    families = {one.name: one for one in parser.text_string_to_metric_families(text)}
    kinds = {name: one.type for name, one in families.items()}
    counters = {name for name, kind in kinds.items() if kind == "counter"}
    assert {"comal_requests", "comal_sent_bytes", "comal_cache_hits", "comal_cache_misses"} <= (
        counters
    )
    assert kinds["comal_request_seconds"] == "histogram"
    assert {kind for name, kind in kinds.items() if name not in counters} == {"gauge", "histogram"}
    for name, family in families.items():
        assert family.documentation, name
        names = {sample.name for sample in family.samples}
        if name in counters:
            assert names <= {f"{name}_total"}
        assert f"# HELP {name}{'_total' if name in counters else ''} " in text
    (hits,) = families["comal_cache_hits"].samples
    assert hits.value == 1
    counted = {tuple(one.labels.values()): one.value for one in families["comal_requests"].samples}
    assert counted["tile", "dem", "200"] == 2
    assert counted["tile", "dem", "404"] == 1


def test_cache_is_bounded() -> None:
    runtime = Runtime(Settings(limits=RequestLimits(cache_bytes=100_000)))

    async def fill() -> None:
        async def work(size: int) -> bytes:
            return b"x" * size

        for number in range(1000):
            await runtime.once(number, lambda: work(1000))
        await runtime.once("large", lambda: work(50_000))

    asyncio.run(fill())
    assert runtime.cache.size <= 100_000
    assert runtime.cache.get(999) == b"x" * 1000
    assert runtime.cache.get(0) is None
    assert runtime.cache.get("large") is None
