"""The shape of the package, as far as import-linter cannot tell it, and of its documents."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import REPOSITORY

SOURCES = REPOSITORY / "src"
MODULES = sorted((SOURCES / "comal").rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def users(library: str) -> set[str]:
    return {
        dotted(path)
        for path in MODULES
        if any(f"{name}.".startswith(f"{library}.") for name in imports(path))
    }


@pytest.mark.parametrize("script", ["architecture.py", "cli_options.py"])
def test_lists_are_what_their_scripts_write(script: str) -> None:
    """Every module in ARCHITECTURE.md, every option of a command in docs/cli.md."""
    done = subprocess.run(
        [sys.executable, REPOSITORY / "scripts" / script, "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_architecture_has_a_line_for_every_module() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"^- `(comal[\w.]*)`: \S", text, re.MULTILINE))
    assert named == {dotted(path) for path in MODULES}


ALLOWED = {
    # Files of the user's own, which no range plan fetches: manifests and layers of regions. The
    # last two write with settings of their own: the many small tables of local metadata, and tiles
    # of a raster, one to a page.
    "pyarrow.parquet": (
        "comal.table",
        "comal.intake.manifests",
        "comal.geo.regions",
        "comal.taco.writing.stored",
        "comal.raquet.writing.layout",
    ),
    # One module for values that come in, one for frames that go out.
    "polars": ("comal.taco.extensions.polars_types", "comal.frames.topolars"),
    "pandas": ("comal.taco.reading.frame",),
    "yaml": ("comal.cli.taco.collection",),
    "xarray": ("comal.raquet.xarray_engine",),
    "pmtiles": ("comal.tapalcatl.sources.pmtiles_file", "comal.tapalcatl.sinks.pmtiles_file"),
    "sqlite3": (
        "comal.tapalcatl.sources.mbtiles",
        "comal.tapalcatl.sinks.mbtiles_file",
        "comal.raquet.querying.zones",
    ),
    "uvicorn": ("comal.server.process", "comal.server.uvicornserver"),
    "prometheus_client": ("comal.server.metrics",),
    "rio_tiler": ("comal.server.render",),
    "PIL": ("comal.server.render",),
    "google": ("comal.storage.identities",),
    "azure": ("comal.storage.identities",),
    # Only to read a Shapefile of zones; its frames are known by what they offer.
    "geopandas": ("comal.raquet.querying.zones",),
    # Known by what its objects offer, never by import.
    "distributed": (),
    "rich": ("comal.cli", "comal.demo", "comal.taco.copying.telling"),
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
