"""What is recorded: each job yields facts, a key and a value of one line.

Only public names, commands and HTTP are used, so that the same jobs run before and after a
rebuilding.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import importlib
import inspect
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.testing import CliRunner

from comal import server
from comal.cli import root
from tests.server.asking import ask
from tests.server.making import raquet_file, tileset
from tests.test_overwriting import EVERY, write_sources

Fact = tuple[str, str]

PACKAGES = (
    *("comal", "comal.taco", "comal.taco.extensions", "comal.tortilla", "comal.raquet"),
    *("comal.tapalcatl", "comal.ml", "comal.server", "comal.site", "comal.convert"),
    *("comal.storage", "comal.jobs"),
)
_LONGEST = 400
_ADDRESS = re.compile(r" at 0x[0-9a-f]+|(?<=Limits\()[^)]*")
"""What is left out of signatures: addresses, and the numbers of all limits."""


def sources(folder: Path) -> Path:
    """The archives that all jobs read; their bytes are facts themselves."""
    s = write_sources(folder / "s")
    ramp = np.arange(128 * 128, dtype=np.int16).reshape(128, 128)
    raquet_file(s / "height.parquet", {"height": ramp})
    tileset(s / "mixed")
    return s


def digest(data: bytes) -> str:
    """A short fingerprint."""
    return hashlib.sha256(data).hexdigest()[:16]


def tree(path: Path) -> str:
    """Names and bytes of a file, or of everything below a folder."""
    if path.is_file():
        return f"{path.stat().st_size} {digest(path.read_bytes())}"
    files = sorted(one for one in path.rglob("*") if one.is_file())
    lines = [f"{one.relative_to(path)} {digest(one.read_bytes())}" for one in files]
    return f"{len(files)} files {digest(repr(lines).encode())}"


# -- faces ----------------------------------------------------------------------------------------


def faces(_: Path) -> Iterator[Fact]:
    """Signatures of public names, and options of commands."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(getattr(module, "__all__", ())):
            value = getattr(module, name)
            if inspect.isclass(value):
                yield from _members(f"{package}.{name}", value)
            elif callable(value):
                yield f"{package}.{name}", _signature(value)
            else:
                yield f"{package}.{name}", type(value).__name__
    for words, command in _walked("comal", root):
        for parameter in command.params:
            if not getattr(parameter, "hidden", False):
                kind = parameter.type.name
                yield f"{words} {'/'.join(parameter.opts)}", f"{kind} {parameter.nargs}"


def _members(where: str, kind: Any) -> Iterator[Fact]:
    bases = ", ".join(base.__name__ for base in kind.__mro__[1:-1])
    yield where, f"class({bases})" + ("" if issubclass(kind, enum.Enum) else _signature(kind))
    own = [base for base in kind.__mro__ if base.__module__.startswith("comal.")]
    for name in sorted({name for base in own for name in vars(base)}):
        value = inspect.getattr_static(kind, name)
        if not name.startswith("_") and not isinstance(value, int | str | tuple | dict):
            function = getattr(value, "__func__", getattr(value, "fget", value))
            yield f"{where}.{name}", _signature(function) if callable(function) else "attribute"


def _signature(value: Any) -> str:
    try:
        return _ADDRESS.sub("", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return "no signature"


def _walked(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, with the words that call them."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _walked(f"{words} {name}", found)


# -- bytes ----------------------------------------------------------------------------------------


@functools.cache
def made(folder: Path) -> dict[str, Path]:
    """The sources and what every writer and every command makes of them, once for all jobs."""
    s = sources(folder)
    found = {f"source {path.name}": path for path in sorted(s.iterdir())}
    for number, (name, writer) in enumerate(EVERY.items()):
        place = folder / f"w{number}"
        shutil.copytree(s, place / "s")
        (place / "to").mkdir()
        writer.call(place / "s", place / "to" / writer.target, False)
        found |= {f"{name}: {path.name}": path for path in sorted((place / "to").iterdir())}
        for path in sorted((place / "s").iterdir()):
            if tree(path) != tree(s / path.name):
                found[f"{name} changes {path.name}"] = path
    return found


def written(folder: Path) -> Iterator[Fact]:
    """Digests of all that is made."""
    for name, path in made(folder).items():
        yield name, tree(path)


# -- commands -------------------------------------------------------------------------------------

_SOURCES = (
    *("scenes.tacozip", "scenes", "more.tacozip", "broken.tacozip", "a.tortilla", "dem.parquet"),
    *("tiles", "mixed", "dem.tif", "files", "nothing"),
)
_LINES = (
    *(f"{verb} {{s}}/{name}" for verb in ("info", "ls", "check") for name in _SOURCES),
    *(f"{verb} {{s}}/{name} --json" for verb in ("info", "ls", "check") for name in _SOURCES),
    "get {s}/scenes.tacozip nothing",
    "taco sql {s}/more.tacozip 'SELECT id FROM data' --json",
    "taco sql {s}/more.tacozip 'SELECT nothing FROM data'",
    "tortilla sql {s}/a.tortilla 'SELECT count(*) AS n FROM data' --csv",
    "raquet sql {s}/dem.parquet 'SELECT count(*) AS n FROM dem' --json",
    "raquet stats {s}/dem.parquet --json",
    "raquet inspect {s}/dem.parquet --json",
    "raquet point {s}/dem.parquet 0 0 --json",
    "convert {s}/dem.tif {s}/out.xyz",
    "convert {s}/nothing {s}/out.parquet",
    "no-command",
    "info",
    "info {s}/dem.parquet --no-option",
)


def commands(folder: Path) -> Iterator[Fact]:
    """Exit code and output of command lines, and the help of every command."""
    s = sources(folder)
    for line in _LINES:
        result = CliRunner().invoke(root, shlex.split(line.format(s=s)), terminal_width=80)
        for stream in ("stdout", "stderr"):
            text = getattr(result, stream).replace(str(folder), "FOLDER")
            yield f"{line} {stream}", f"{result.exit_code} {_one_line(text)}"
    for words, _ in _walked("comal", root):
        result = CliRunner().invoke(root, [*words.split()[1:], "--help"], terminal_width=80)
        yield f"{words} --help", result.stdout.replace("\n", "\\n")


def _one_line(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.+Z-]+", "TIME", text)
    shown = text.replace("\n", "\\n")
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}... {digest(text.encode())}"


# -- HTTP -----------------------------------------------------------------------------------------

_PATHS = (
    *("/", "/sources.json", "/healthz", "/readyz", "/conformance", "/api", "/collections"),
    *("/colormaps.json", "/tileMatrixSets", "/tileMatrixSets/WebMercatorQuad", "/nothing"),
    *("/WMTSCapabilities.xml", "/collections/scenes", "/collections/scenes/items"),
    *("/dem", "/dem.json", "/dem/0/0/0.png", "/dem/0/0/0.webp", "/dem/0/0/0.npy", "/dem/0/0/9.png"),
    *("/dem/0/0/0@2x.png", "/dem/statistics", "/dem/point/0,0", "/dem/x/y/z"),
    *("/dem/0/0/0.png?rescale=0,10&colormap_name=viridis", "/dem/0/0/0.png?bidx=9"),
    *("/dem/tiles", "/dem/tiles/WebMercatorQuad/0/0/0.png", "/dem/point/200,0"),
    *("/mixed", "/mixed.json", "/mixed/0/0/0.png", "/mixed/0/0/0.mvt", "/mixed/0/0/0@2x.png"),
    *(
        "/mixed/0/0/0",
        "/mixed/2/0/0.png",
        "/mixed/2/3/3.png",
        "/mixed/1/1/0.txt",
        "/mixed/9/0/0.png",
    ),
    *("/scenes", "/scenes/items", "/scenes/items?limit=1", "/scenes/table", "/scenes/tree"),
    *("/scenes/queryables", "/scenes/schema", "/scenes/collection", "/scenes/items/nothing"),
    *("/scenes/items?filter=id='a'", "/scenes/items?filter=(", "/scenes/items?bbox=1,2,3"),
    *("/gone", "/gone/0/0/0.png", "/dem/%00", "/dem/../dem", "//dem"),
)
_ASKING: tuple[tuple[str, dict[str, str]], ...] = (
    ("GET", {}),
    ("HEAD", {}),
    ("GET", {"Accept": "text/html", "Accept-Encoding": "gzip"}),
    ("GET", {"Range": "bytes=1-4", "If-None-Match": '"other"'}),
    ("POST", {}),
)


def responses(folder: Path) -> Iterator[Fact]:
    """Status, headers and body of requests."""
    s = sources(folder)
    places = {"dem": s / "height.parquet", "mixed": s / "mixed", "scenes": s / "scenes.tacozip"}
    named = {name: str(path) for name, path in places.items()} | {"gone": str(s / "gone.parquet")}
    app = server.app(named, log="none")
    for path in _PATHS:
        for number, (method, headers) in enumerate(_ASKING):
            reply = ask(app, path, method, headers)
            kept = {k: v for k, v in reply.headers.items() if k not in {"x-request-id", "date"}}
            kept.pop("content-length", None)
            body = re.sub(rb'"id":"[0-9a-f]{16}"', b"", reply.body).replace(bytes(s), b"S")
            text = " ".join(f"{name}={value}" for name, value in sorted(kept.items()))
            yield f"{path} {method} {number}", f"{reply.status} {text[:300]} {_body(body)}"


def _body(body: bytes) -> str:
    short = len(body) < 200 and body.isascii() and body.decode().isprintable()
    return _one_line(body.decode()) if short else f"{len(body)} {digest(body)}"
