"""The shape of the package, as far as import-linter cannot tell it, and of its documents."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.support import REPOSITORY

SOURCES = REPOSITORY / "src"
MODULES = sorted((SOURCES / "comal").rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def users(library: str) -> set[str]:
    return {
        dotted(path)
        for path in MODULES
        if any(f"{name}.".startswith(f"{library}.") for name in imports(path))
    }


def test_options_in_the_documents_are_those_of_the_commands() -> None:
    """docs/cli.md is what ``scripts/cli_options.py`` writes."""
    done = subprocess.run(
        [sys.executable, REPOSITORY / "scripts" / "cli_options.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_architecture_names_what_is_there() -> None:
    """Every room, and no module or file that is gone; short enough to be read at once."""
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    assert len(text.encode()) <= 12_288
    rooms = {dotted(path) for path in (SOURCES / "comal").glob("*/__init__.py")}
    modules = {dotted(path) for path in MODULES}
    told = set(re.findall(r"^- `(comal\.\w+)`: \S", text, re.MULTILINE))
    assert rooms <= told <= modules
    named = set(re.findall(r"`(comal(?:\.\w+)+)`", text))
    assert not {one for one in named if one not in modules | {"comal.storage.open_linked"}}
    for path in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]*)`", text):
        assert (REPOSITORY / path).exists(), path


def test_every_module_says_what_it_is() -> None:
    silent = [dotted(path) for path in MODULES if not ast.get_docstring(tree(path))]
    assert not silent


ALLOWED = {
    # Files of the user's own, which no range plan fetches: manifests, and their pieces in plans.
    # Two write with settings of their own: the many small tables of local metadata, and tiles of
    # a raster, one to a page.
    "pyarrow.parquet": (
        "comal.table",
        "comal.samples.intake",
        "comal.taco.writing.containers",
        "comal.raquet.writing.layout",
        "comal.jobs.plans",
    ),
    # One module for values that come in, one for frames that go out.
    "polars": ("comal.taco.extensions.base", "comal.samples.frame"),
    "pandas": ("comal.taco.reading.frame", "comal.ml.torchgeo"),
    "yaml": ("comal.cli.taco",),
    "xarray": ("comal.raquet.xarray_engine", "comal.ml.decoding"),
    "torch": ("comal.ml.batches",),
    "matplotlib": ("comal.ml.plotting",),
    "diskcache": ("comal.ml.cache",),
    "pmtiles": ("comal.tapalcatl.containers.pmtiles", "comal.tapalcatl.containers.pmtiles"),
    "sqlite3": (
        "comal.ml.cache",
        "comal.tapalcatl.containers.mbtiles",
        "comal.tapalcatl.containers.mbtiles",
        "comal.raster.zones",
    ),
    "uvicorn": ("comal.server.process", "comal.server.uvicornserver"),
    "rio_tiler": ("comal.server.render",),
    "PIL": ("comal.server.render",),
    "google": (),
    "azure": (),
    # Known by what its frames offer, and imported where TorchGeo expects them.
    "geopandas": ("comal.ml.torchgeo",),
    "torchgeo": (),
    # Known by what its objects offer; imported only for the option --dask.
    "distributed": ("comal.cli.options",),
    "rich": ("comal.cli", "comal.demo", "comal.progress"),
}


@pytest.mark.parametrize("library", ALLOWED)
def test_a_library_is_imported_only_where_it_belongs(library: str) -> None:
    strangers = {name for name in users(library) if not name.startswith(ALLOWED[library])}
    assert not strangers


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    reasons = (REPOSITORY / "docs" / "decisions" / "0003-dependencies.md").read_text()
    for requirement in project["dependencies"]:
        name = re.match(r"[\w-]+", requirement)
        assert name is not None
        assert name.group() in reasons, requirement


def test_one_version() -> None:
    import comal

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"]
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", comal.__version__)


def test_links_between_documents_lead_somewhere() -> None:
    documents = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    for document in documents:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_decisions_are_listed() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    index = (folder / "index.md").read_text()
    navigation = (REPOSITORY / "mkdocs.yml").read_text()
    notes = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(name[:4]) for name in notes] == list(range(1, len(notes) + 1))
    for name in notes:
        assert name in index
        assert f"decisions/{name}" in navigation
