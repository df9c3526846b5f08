"""What a message says to do can be done, and works.

Mends are collected from the source, each ``hint=`` of an error, and from the documents. What stands
in them is looked up in the command line and in the public functions; what a hint says is done, too,
after the error that has it (`tests.docs.mends`).
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from comal import (
    convert,
    jobs,
    limits,
    ml,
    raquet,
    raster,
    server,
    site,
    taco,
    tapalcatl,
    tortilla,
)
from comal.cli import root
from comal.errors import ComalError
from comal.storage import StorageConfig
from comal.taco import extensions
from tests.archives import Files, files, made
from tests.docs.mends import ELSEWHERE, MENDS, FailedError
from tests.docs.reading import GONE, modules
from tests.support import REPOSITORY

__all__ = ["files", "made"]

DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def mends() -> list[tuple[str, str]]:
    """Place and text of every hint of an error."""
    return [hint for module in modules() for hint in module.hints]


def commands(group: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group of the command line, with the words that lead to it."""
    yield names, group
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, (*names, name))


COMMANDS = dict(commands(root))
OPTIONS = {
    words: {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    | {"--help"}
    for words, command in COMMANDS.items()
}


def parameters() -> set[str]:
    """Names of arguments of all public functions, classes and methods."""
    found: set[str] = set()
    for room in (
        convert,
        extensions,
        jobs,
        limits,
        ml,
        raquet,
        raster,
        server,
        site,
        taco,
        tapalcatl,
        tortilla,
    ):
        for name in getattr(room, "__all__", ["Limits"]):
            thing = getattr(room, name)
            callables = [thing] if callable(thing) else []
            if inspect.isclass(thing):
                callables += [value for _, value in inspect.getmembers(thing, callable)]
            for one in callables:
                try:
                    found |= set(inspect.signature(one).parameters)
                    found |= set(getattr(getattr(one, "takes", None), "__dataclass_fields__", ()))
                except (TypeError, ValueError):
                    continue
    return found | set(inspect.signature(StorageConfig).parameters)


def unknown_command(line: str) -> str | None:
    """What of a command line is not there, or None."""
    words = [word.strip("'\"`.,;:()") for word in line.split()]
    names: tuple[str, ...] = ()
    for word in words[1:]:
        if (*names, word) in COMMANDS:
            names = (*names, word)
        elif not names and word not in ("", GONE, "--help") and not word.startswith("-"):
            return f"no command {word!r}"
        else:
            break
    options = {word.partition("=")[0] for word in words if word.startswith("--") and len(word) > 2}
    lost = sorted(options - OPTIONS[names])
    return f"{' '.join(names)} has no {', '.join(lost)}" if lost else None


def test_commands_in_mends_are_there() -> None:
    found = {
        place: fault
        for place, text in mends()
        for line in re.findall(r"'(comal [^']*)'", text)
        if (fault := unknown_command(line)) is not None
    }
    assert found == {}


def test_options_in_mends_are_there() -> None:
    every = set().union(*OPTIONS.values())
    named = {
        (place, option) for place, text in mends() for option in re.findall(r"--[a-z][a-z-]+", text)
    }
    assert len(named) > 5
    assert {(place, option) for place, option in named if option not in every} == set()


def test_arguments_in_mends_are_there() -> None:
    known = parameters()
    named = {
        (place, name)
        for place, text in mends()
        for name in re.findall(r"(?<![\w.\"'{:?&-])([a-z][a-z_]+)=(?!=)", text)
    }
    assert len(named) > 20
    assert {(place, name) for place, name in named if name not in known} == set()


def test_extras_in_mends_are_there() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = {name for one in modules() for name in re.findall(r"comal\[(\w+)\]", one.text)}
    called = {name for one in modules() for name in one.extras}
    assert called
    assert ((named - {"extra"}) | called) - set(extras) == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_are_there(path: Path) -> None:
    text = path.read_text()
    inline = re.findall(r"`(comal [^`]*)`", text)
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    blocks = re.findall(r"^(?:\$ )?(comal [^\n\\|>]*)", fenced, re.MULTILINE)
    faults = {line: unknown_command(line) for line in [*inline, *blocks]}
    assert {line: fault for line, fault in faults.items() if fault is not None} == {}


PROPOSED = re.compile(r"'comal |--[a-z]|\w\(|\bST_|SELECT|LIMIT|\bexport\b|gdal")
"""What of a mend can be typed: a command, an option, a function, SQL. Of one that only names an
argument it is looked up that there is such a one; what it does, the tests of its room ask."""


def test_every_mend_that_can_be_typed_is_tried() -> None:
    known = [*MENDS, *ELSEWHERE]
    lost = {
        place: text
        for place, text in mends()
        if PROPOSED.search(text) and not any(part in text.replace(GONE, "") for part in known)
    }
    assert lost == {}
    texts = [text.replace(GONE, "") for _, text in mends()]
    assert [part for part in known if not any(part in text for text in texts)] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", MENDS)
def test_mends_work(part: str, files: Files) -> None:
    provoke, mend = MENDS[part]
    with pytest.raises((ComalError, FailedError)) as caught:
        provoke(files)
    assert part in " ".join(str(caught.value).split())
    mend(files)
