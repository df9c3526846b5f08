"""``comal serve``: from words to what the server is told."""

from __future__ import annotations

import hashlib
import json
import pickle
import socket
import zipfile
from pathlib import Path
from typing import Any

import pytest

from comal.cli.serve import command as serve_command
from comal.server import process
from comal.server.application import Application
from comal.server.settings import ProcessSettings, Settings
from tests.server.asking import ask
from tests.server.making import PNG, entry
from tests.support import command


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[ProcessSettings]:
    """What would have been served."""
    found: list[ProcessSettings] = []
    monkeypatch.setattr(process, "run", found.append)
    monkeypatch.setattr(process, "check_address", lambda *_: None)
    return found


def serve(*words: object, code: int = 0) -> Any:
    return command("serve", *words, code=code)


def test_sources_and_options(archives: dict[str, Path], plans: list[ProcessSettings]) -> None:
    result = serve(
        str(archives["dem"]),
        f"other={archives['scenes']}",
        *("--port", "9000", "--workers", "2", "--prefix", "maps/", "--missing", "204"),
        *("--cors", "https://a.example", "--log", "all", "--cache-control", ""),
    )
    (plan,) = plans
    hrefs = {name: place.href for name, place in plan.sources.items()}
    assert hrefs == {"dem": str(archives["dem"]), "other": str(archives["scenes"])}
    assert (plan.port, plan.workers) == (9000, 2)
    assert plan.settings == Settings(
        prefix="/maps",
        public_url="http://127.0.0.1:9000",
        missing=204,
        cache_control=None,
        cors=("https://a.example",),
        log="all",
    )
    assert "http://127.0.0.1:9000/maps/dem" in result.stderr


def test_sources_that_are_not_there_are_served_with_their_error(
    archives: dict[str, Path], plans: list[ProcessSettings], tmp_path: Path
) -> None:
    gone, cut = tmp_path / "gone.parquet", tmp_path / "cut.tacozip"
    cut.write_bytes(b"no archive at all")
    far = "http://127.0.0.1:9/far.parquet"
    result = serve(archives["dem"], gone, cut, far)
    assert list(plans[0].sources) == ["dem", "gone", "cut", "far"]
    told = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert [line.split()[1] for line in told] == ["gone", "cut", "far"]
    serve(far)  # time may mend it
    serve(gone, cut, code=3)
    serve(gone, "--lazy")


def test_configuration(
    archives: dict[str, Path], plans: list[ProcessSettings], tmp_path: Path
) -> None:
    config = tmp_path / "serve.json"
    old = {"href": str(tmp_path), "metatile": 4, "layout": "plain"}
    config.write_text(json.dumps({"sources": {"old": old}}))
    serve(archives["dem"], "--config", config, "--host", "0.0.0.0")
    place = plans[0].sources["old"]
    assert {"href": place.href, **place.options} == old
    assert plans[0].settings.public_url is None
    config.write_text("{}")
    serve("--config", config, code=2)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(("", 6), ("[]", 6), ("{", 6), ("\xff", 6)),
        *(('{"sources": []}', 2), ('{"sources": 1}', 2)),
    ],
)
def test_broken_configuration_is_an_error_of_ours(
    plans: list[ProcessSettings], tmp_path: Path, text: str, code: int
) -> None:
    config = tmp_path / "serve.json"
    config.write_text(text, "latin-1")
    serve("--config", config, code=code)
    assert plans == []


def served(plan: ProcessSettings) -> Any:
    """The application as a worker makes it."""
    plan = pickle.loads(pickle.dumps(plan))
    return Application(plan.sources, plan.settings)


def test_folder_with_a_document(
    archives: dict[str, Path], plans: list[ProcessSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = archives["tiles"]
    for place in (folder, folder / "meta.json", folder / "0/0/0.zip"):
        serve(f"a={place}")
        assert ask(served(plans[-1]), "/a/1/0/1.png").body == PNG + b"1/0/1"
    monkeypatch.chdir(folder)
    serve(".")
    assert list(plans[-1].sources) == [folder.name]
    assert ask(served(plans[-1]), f"/{folder.name}/1/0/1.png").body == PNG + b"1/0/1"


def test_tapalcatl_1_as_the_help_says(plans: list[ProcessSettings], tmp_path: Path) -> None:
    text = str(serve_command.help)
    example = json.loads(text[text.index('{"sources"') : text.index("}}}") + 3])
    (old,) = example["sources"].values()
    place = tmp_path / hashlib.md5(b"/all/0/0/0.zip").hexdigest()[:5] / "all/0/0"
    place.mkdir(parents=True)
    with zipfile.ZipFile(place / "0.zip", "w") as archive:
        entry(archive, "2/1/2.mvt", b"a tile", deflate=True)
    config = tmp_path / "serve.json"
    hashed = {**old, "href": str(tmp_path), "layout": "{hash}/{layer}/{z}/{x}/{y}.zip"}
    for layout in (old["layout"], hashed["layout"]):
        config.write_text(json.dumps({"sources": {"old": {**hashed, "layout": layout}}}))
        serve("--config", config)
    assert ask(served(plans[-1]), "/old/2/1/2.mvt").body == b"a tile"


def test_operations(archives: dict[str, Path], plans: list[ProcessSettings]) -> None:
    more = ("--idle-timeout", "75", "--max-memory", "500")
    serve(archives["dem"], *more)
    assert (plans[0].idle_seconds, plans[0].max_memory) == (75, 500)
    serve(archives["dem"], "--max-memory", "1", code=2)
    assert "--server has no effect" in serve(archives["dem"], "--server", "granian").stderr
    serve(archives["dem"], "--idle-timeout", "0", code=2)
    wrong = ("--timeout=nan", "--timeout=-1", "--reload=-1", "--reload=inf", "--cache=-1")
    for option in (*wrong, "--public-url=example.org"):
        assert "cannot be used" in serve(archives["dem"], option, code=2).stderr
    for name in ("sources", "colormaps", "api"):  # of pages, and of their JSON
        serve(f"{name}={archives['dem']}", code=2)
    assert len(plans) == 2


@pytest.mark.usefixtures("plans")
def test_what_is_served_as_json(archives: dict[str, Path]) -> None:
    serve(code=2)
    printed = serve(archives["dem"], "--lazy", "--json")
    assert json.loads(printed.stdout) == {"url": "http://127.0.0.1:8000/", "sources": ["dem"]}


def test_nothing_is_announced_without_a_server(
    archives: dict[str, Path], plans: list[ProcessSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "find_spec", lambda _: None)
    result = serve(archives["dem"], code=8)
    assert "serving" not in result.output
    assert plans == []


def test_nothing_is_announced_where_nobody_can_listen(archives: dict[str, Path]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for host, hint in (("127.0.0.1", "another --port"), ("x.invalid", "this machine")):
            result = serve(archives["dem"], "--host", host, "--port", port, code=10)
            assert hint in result.stderr
            assert "serving" not in result.output
