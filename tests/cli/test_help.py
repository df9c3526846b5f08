"""Help shows examples, costs little, and knows every exit code."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from comal.cli import root
from comal.cli.app import EXIT_CODES, Command, Group
from comal.errors import ComalError
from tests.cli.conftest import Run
from tests.raquet.writing.sources import noise, utm

CONTEXT = click.Context(root)
HEAVY = {"numpy", "pyarrow", "rasterio", "duckdb", "pandas", "polars", "shapely", "obstore", "rich"}


def commands(group: Group, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield names, group
    for name in group.list_commands(CONTEXT):
        command = group.get_command(CONTEXT, name)
        assert command is not None
        if isinstance(command, Group):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


def paths() -> list[tuple[str, ...]]:
    assert isinstance(root, Group)
    return [path for path, _ in commands(root)]


@pytest.mark.parametrize("path", paths(), ids=" ".join)
def test_every_command_shows_examples(run: Run, path: tuple[str, ...]) -> None:
    text = run(*path, "--help").stdout
    assert "Examples:" in text
    assert f"\n  $ comal {' '.join(path)}" in text
    assert text.count("$ comal") == len(re.findall(r"\n  # \S", text))


def test_every_option_says_what_it_is() -> None:
    assert isinstance(root, Group)
    silent = [
        (*path, option.name)
        for path, command in commands(root)
        for option in command.params
        if option.param_type_name == "option" and not getattr(option, "help", None)
    ]
    assert silent == []


def test_every_command_takes_the_common_options() -> None:
    assert isinstance(root, Group)
    for path, command in commands(root):
        if path and not isinstance(command, Group):
            assert isinstance(command, Command), path
            options = {name for option in command.params for name in option.opts}
            assert {"--json", "--quiet", "--debug"} <= options, path


_LOADED = """
import sys
from comal.cli import main
for line in sys.stdin:
    sys.argv = ["comal", *line.split()]
    try:
        main()
    except SystemExit as error:
        assert not error.code
    print("LOADED", *sys.modules)
"""


def test_short_commands_load_what_they_use_alone(tmp_path: Path) -> None:
    """In one process, first what needs the least."""
    source = utm(tmp_path / "a.tif", noise((1, 60, 60), "uint8"))
    groups = ["taco", "tortilla", "raquet", "tapalcatl", "ml"]
    lines = ["--help", *(f"{group} --help" for group in groups)]
    lines.append(f"raquet create {source} {tmp_path / 'a.parquet'}")
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], input="\n".join(lines), check=True, capture_output=True,
        text=True,
    )  # fmt: skip
    told = [line.split() for line in done.stdout.splitlines() if line.startswith("LOADED")]
    helped, made = set(told[-2]), set(told[-1])
    assert len(told) == len(lines)
    assert {f"comal.cli.{name}" for name in groups} <= helped
    assert not HEAVY & {name.partition(".")[0] for name in helped}
    assert {"rasterio", "pyarrow.parquet"} <= made
    unused = {"pandas", "boto3", "rich", "pyarrow.compute", "pyarrow.dataset", "duckdb", "asyncio"}
    assert not unused & made


def kinds(kind: type[ComalError]) -> Iterator[type[ComalError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from kinds(below)


def test_every_error_has_a_listed_exit_code(run: Run) -> None:
    text = run("--help").stdout
    for kind in kinds(ComalError):
        assert kind.exit_code in EXIT_CODES, kind
    for code, meaning in EXIT_CODES.items():
        assert f"  {code}" in text
        assert meaning in text


def test_the_package_runs_as_a_module() -> None:
    import comal

    called = [sys.executable, "-m", "comal", "--version"]
    found = subprocess.run(called, capture_output=True, text=True, check=True)
    assert found.stdout == f"comal, version {comal.__version__}\n"


def test_a_command_that_is_gone_names_its_successor(run: Run) -> None:
    """And the successor is a command with these options."""
    for path, group in commands(root):
        for name, successor in getattr(group, "removed", {}).items():
            text = run(*path, name, "x", code=2).stderr
            assert f"use '{successor}'" in text
            words = successor.split()[1:]
            named = [word for word in words if word.islower() and not word.startswith("-")]
            options = [word for word in words if word.startswith("--")]
            shown = run(*named, "--help").stdout
            assert all(option in shown for option in options), successor


def test_a_group_alone_shows_its_help(run: Run) -> None:
    assert "Commands:" in run("taco", code=2).stderr
