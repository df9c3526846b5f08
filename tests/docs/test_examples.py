"""The examples of the documents run, and say what is there."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from comal.cli import COMMANDS, jobs, ml, raquet, root, taco, tapalcatl, tortilla
from comal.cli.app import EXIT_CODES
from comal.demo import Result
from comal.server import process
from comal.server.settings import ProcessSettings
from tests.docs.reading import blocks, run_python
from tests.servers.http import HttpServer
from tests.support import REPOSITORY

README = REPOSITORY / "README.md"
GUIDE = REPOSITORY / "docs" / "guide.md"
REMOTE = REPOSITORY / "docs" / "remote.md"
GROUPS = {
    "taco": taco.group.commands,
    "tortilla": tortilla.group.commands,
    "raquet": raquet.group.commands,
    "tapalcatl": tapalcatl.group.commands,
    "ml": ml.group.commands,
    "plan": jobs.plan.commands,
}
# What the examples of a document leave behind.
MADE = {
    "tortilla": ("chips.tortilla",),
    "raquet": ("cusco.parquet", "series.parquet", "cusco.tif", "parts", "mended.parquet"),
    "tapalcatl": ("cusco-tiles/meta.json", "cusco.mbtiles", "cusco.pmtiles", "t1"),
    "serve": ("cusco-tiles/meta.json",),
    "site": ("public/index.html", "public/site.json"),
    "train": (),
    "scale-out": ("two.parquet", "plan/job.json", "parts/__TACOCAT__"),
}


def test_readme(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[ProcessSettings] = []
    monkeypatch.setattr(process, "run", served.append)
    run_python(README)
    assert (workplace / "scenes.tacozip").is_file()
    lines = [
        line
        for block in blocks(README, "sh")
        if block.startswith("comal ")
        for line in block.splitlines()
    ]
    for line in lines:
        program, *arguments = shlex.split(line)
        result = CliRunner().invoke(root, arguments)
        assert (program, result.exit_code) == ("comal", 0), f"{line}\n{result.output}"
    (plan,) = served
    assert list(plan.sources) == ["scenes", "cusco", "cusco-tiles"]


def test_guide_python(workplace: Path) -> None:
    run_python(GUIDE)
    assert (workplace / "europe-again.tacozip").is_file()
    assert (workplace / "chips.tacozip").is_file()


@pytest.mark.parametrize("name", MADE)
@pytest.mark.usefixtures("own_loop")
def test_python(name: str, workplace: Path) -> None:
    run_python(REPOSITORY / "docs" / f"{name}.md")
    for made in MADE[name]:
        assert (workplace / made).exists(), made


@pytest.mark.usefixtures("workplace")
def test_examples_of_serving_name_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option and the configuration in docs/serve.md are known to the command."""
    served: list[ProcessSettings] = []
    monkeypatch.setattr(process, "run", served.append)
    document = REPOSITORY / "docs" / "serve.md"
    (config,) = blocks(document, "json")
    Path("sources.json").write_text(config)
    lines = [*blocks(document, "sh"), "comal serve --config sources.json"]
    for line in lines:
        result = CliRunner().invoke(root, [*shlex.split(line)[1:], "--lazy"])
        assert result.exit_code == 0, f"{line}\n{result.output}"
    assert len(served) == len(lines)


def test_remote_python(whole_demo: Result, http_server: HttpServer) -> None:
    http_server.put("scenes.tacozip", whole_demo.archive.read_bytes())
    origin = http_server.url_for("")
    run_python(REMOTE, {"https://example.org/": origin.rstrip("/") + "/"})
    assert http_server.requests


def test_readme_has_the_two_commands() -> None:
    commands = [block.strip() for block in blocks(README, "sh")]
    assert commands[0].endswith("comal demo")
    assert commands[1] == "sh scripts/test"
    assert "exec sh scripts/test" in (REPOSITORY / ".ci" / "run").read_text()


def test_exit_codes_are_documented() -> None:
    text = (REPOSITORY / "docs" / "cli.md").read_text()
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in text


def test_every_command_is_documented() -> None:
    text = (REPOSITORY / "docs" / "cli.md").read_text()
    for name in COMMANDS:
        assert name in GROUPS or f"`comal {name} " in text
    for group, commands in GROUPS.items():
        for name in commands:
            assert f"`comal {group} {name} " in text
