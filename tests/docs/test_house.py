"""The shape of the package, as far as import-linter cannot tell it, and of its documents."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter

import pytest
from scripts import cli_options

from tests.docs.reading import modules
from tests.support import REPOSITORY


def test_options_in_the_documents_are_those_of_the_commands() -> None:
    """docs/cli.md is what ``scripts/cli_options.py`` writes."""
    text = cli_options.PAGE.read_text()
    assert cli_options.written(text) == text, "run scripts/cli_options.py"


def test_architecture_names_what_is_there() -> None:
    """Every room, and no module or file that is gone; short enough to be read at once."""
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    assert len(text.encode()) <= 12_288
    names = {one.name for one in modules()}
    rooms = {f"comal.{path.parent.name}" for path in REPOSITORY.glob("src/comal/*/__init__.py")}
    told = set(re.findall(r"^- `(comal\.\w+)`: \S", text, re.MULTILINE))
    assert rooms <= told <= names
    named = set(re.findall(r"`(comal(?:\.\w+)+)`", text))
    assert named - names == {"comal.storage.open_linked"}
    for path in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]*)`", text):
        assert (REPOSITORY / path).exists(), path


def test_every_module_says_what_it_is() -> None:
    assert [one.name for one in modules() if not one.said] == []


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
    "torch": ("comal.ml.batches", "comal.ml.buffers"),
    "matplotlib": ("comal.ml.plotting",),
    "diskcache": ("comal.ml.cache",),
    "pmtiles": ("comal.tapalcatl.containers.pmtiles",),
    "sqlite3": (
        "comal.ml.cache",
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
    users = {
        one.name
        for one in modules()
        if any(f"{name}.".startswith(f"{library}.") for name in one.imports)
    }
    assert {name for name in users if not name.startswith(ALLOWED[library])} == set()


MEET = {("comal.formats", "comal.formats.sniff"), ("comal.cli", "comal.cli.app")}
"""Imports of a package's own modules: of one that nothing else imports, and in a program."""


def needed(name: str) -> Iterator[str]:
    """The modules whose import must have ended before that of a module ends."""
    found = {one.name: one for one in modules()}
    while name:
        if name in found:
            yield name
        else:  # a name of a package, or of a module that has it itself
            home, _, own = name.rpartition(".")
            if home in found and own in found[home].exports:
                yield from needed(found[home].exports[own])
        name = name.rpartition(".")[0]


def test_no_two_modules_need_each_other_first() -> None:
    """Threads that import them both would wait in a circle, which Python ends with an error."""
    before = {
        one.name: {
            name
            for imported in (one.name, *one.at_once)
            for name in needed(imported)
            if name != one.name and (one.name, name) not in MEET
        }
        for one in modules()
    }
    assert before["comal.taco.reading.dataset"] > {"comal", "comal.taco", "comal.errors"}
    TopologicalSorter(before).prepare()  # an error names a circle


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


def test_no_mark_of_a_merge_is_left() -> None:
    mark = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
    texts = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    texts += [
        path for top in ("src", "tests", "benchmarks") for path in REPOSITORY.glob(f"{top}/**/*.py")
    ]
    assert [path.name for path in texts if mark.search(path.read_text())] == []
