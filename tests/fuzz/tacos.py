"""TACO containers: the header, the level tables and the collection; and whole archives."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from functools import cache

from comal import strictjson, taco
from comal.errors import NotThisFormatError, UnsupportedVersionError
from comal.plan import run
from comal.taco import checking, wire
from tests.attacks.build import COLLECTION, FLAT, NESTED, Recipe, leaves_of
from tests.attacks.reading import checked, read_everything
from tests.fakes import MemorySource
from tests.fuzz.base import Target, as_file, folder


def _wire(data: bytes) -> None:
    opened = run(wire.open_plan("archive"), MemorySource.of(data).fetch)
    assert len(opened.footers) == len(opened.header.levels if opened.header else ())


def _archive(data: bytes) -> None:
    """Every door of the reader, and the check."""
    path = as_file(data, "data.tacozip")
    read_everything(path, {})
    checked(checking, path, (NotThisFormatError, UnsupportedVersionError))


def _collection(data: bytes) -> None:
    """Any COLLECTION.json in an archive that is sound otherwise."""
    _archive(Recipe(tree=FLAT, collection_bytes=lambda _: data).build())


def _tacollection(data: bytes) -> None:
    """Any TACOLLECTION.json beside two datasets."""
    path = as_file(data, "TACOLLECTION.json")
    for name in _PARTS:
        as_file(_parts()[name], name)
    checked(checking, path, (NotThisFormatError, UnsupportedVersionError))
    opened = taco.load(path)
    # Nothing is opened but what the document names, each once.
    named = json.loads(data.decode("utf-8-sig"))["taco:sources"]["files"]
    assert len(opened.data) == len(named) * len(FLAT)
    assert set(opened.data["internal:source_file"].to_pylist()) == set(named)


def _json(data: bytes) -> None:
    """What the strict parser takes is what CPython's says it is, and can be written again."""
    document = strictjson.loads(data, "document")
    assert document == json.loads(data.decode("utf-8-sig"))
    assert strictjson.loads(strictjson.dumps(document), "again") == document


def _archives() -> Iterator[bytes]:
    yield Recipe(tree=FLAT).build()
    yield Recipe(tree=NESTED).build()
    path = folder() / "seed.tacozip"
    samples = [taco.Sample(id=name, path=data) for name, data in leaves_of(FLAT)]
    made = taco.Taco(taco.Tortilla(samples), **{**COLLECTION, "id": "seed"})
    taco.create(made, path, overwrite=True)
    yield path.read_bytes()


@cache
def _parts() -> dict[str, bytes]:
    """Two datasets and the document over them."""
    place = folder() / "seeds"
    place.mkdir(exist_ok=True)
    for name in _PARTS:
        samples = [taco.Sample(id=f"{name[0]}{key}", path=data) for key, data in leaves_of(FLAT)]
        made = taco.Taco(taco.Tortilla(samples), **{**COLLECTION, "id": "seed"})
        taco.create(made, place / name, overwrite=True)
    document = taco.create_tacollection([place / name for name in _PARTS], overwrite=True)
    return {path.name: path.read_bytes() for path in (*(place / n for n in _PARTS), document)}


def _documents() -> Iterator[bytes]:
    for archive in _archives():
        with zipfile.ZipFile(io.BytesIO(archive)) as file:
            yield file.read("COLLECTION.json")
    yield b'{"a": [1, -2.5e3, 1e99, true, null, "\\ud83d\\ude00"], "b": {"c": "\xc3\xa9"}}'


_PARTS = ("a.tacozip", "b.tacozip")

TARGETS = {
    "taco": Target(_archive, _archives),
    "taco-wire": Target(_wire, _archives),
    "taco-collection": Target(_collection, _documents),
    "tacollection": Target(_tacollection, lambda: [_parts()["TACOLLECTION.json"]]),
    "json": Target(_json, _documents),
}
