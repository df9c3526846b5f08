"""TACO to and fro: our files in the reference readers, and theirs here.

Every leaf is read on every way to it; theirs are right here also where their index is wrong.
"""

from __future__ import annotations

import hashlib
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from comal import tortilla as tortillas
from comal.convert import migrate
from comal.taco.copying.exporting import export, folder2zip, zip2folder
from comal.taco.model.collection import Sample, Tortilla
from comal.taco.reading.dataset import load
from comal.taco.spec import TacoWarning
from comal.taco.writing.creating import create
from comal.taco.writing.tacocat import create_tacocat
from tests.interop.environments import LATEST, OLDEST, SPECIFIED, drive
from tests.support import SHARED, digests
from tests.taco.write.small import FIELDS, Archive, dataset, scene
from tests.tortilla import build

pytestmark = pytest.mark.interop

QUERY = "SELECT * FROM data ORDER BY id DESC LIMIT 2"
Leaves = dict[str, bytes]


@dataclass(frozen=True)
class Written:
    """A container and the bytes of its leaves by path."""

    path: Path
    leaves: Leaves


SCENES = (2, 10, 1)
"""Ids that do not stand in the order of their texts."""


def scene_leaves(number: int) -> Leaves:
    return {
        f"s{number}/imagery/before.tif": f"s{number} before".encode(),
        f"s{number}/imagery/after.tif": f"s{number} after".encode(),
        f"s{number}/label.json": f"s{number} label".encode(),
    }


def leaves_of(*numbers: int) -> Leaves:
    return {path: data for n in numbers for path, data in scene_leaves(n).items()}


def padded() -> tuple[Tortilla, Leaves]:
    """Scenes with three images each, filled up to four."""
    samples: list[Sample] = []
    leaves: Leaves = {}
    for number in SCENES:
        bands = {f"band{n}.tif": f"s{number} band {n}".encode() for n in range(3)}
        inner = Tortilla([Sample(name, data, n=number) for name, data in bands.items()], pad_to=4)
        samples.append(Sample(f"s{number}", inner, score=number / 2))
        leaves |= {f"s{number}/{name}": data for name, data in bands.items()}
    return Tortilla(samples), leaves


def migrated(root: Path) -> dict[str, Written]:
    """Tortillas and TACOs of the first version; one is filled up."""
    sources = [SHARED / "fixtures/tortilla" / name for name in ("flat.taco", "nested.taco")]
    sources += [root / "odd.tortilla", SHARED / "fixtures/tortilla/mixed_bytes.tortilla"]
    odd = [("s10", {"a": b"1", "b": b"2"}), ("s2", {"b": b"3"}), ("s1", {"a": b""})]
    items = [(name, [build.Item(*one) for one in inner.items()]) for name, inner in odd]
    sources[2].write_bytes(build.nested(*items))
    found = {}
    for source in filter(Path.exists, sources):
        output, more = root / f"{source.name}.tacozip", {} if source.suffix == ".taco" else FIELDS
        migrate(source, output, pad=source == sources[2], **more)
        flat = tortillas.open(source).flatten()
        paths = flat["internal:path"].to_pylist()
        found[source.name] = Written(output, dict(zip(paths, flat.read_bytes(), strict=True)))
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """What `zip2folder` and `folder2zip` write are the same bytes (`taco/export/test_convert`)."""
    root = tmp_path_factory.mktemp("written")
    flat = {f"img_{n}": bytes([n]) * (3 * n) for n in range(12)}
    flat_tortilla = Tortilla([Sample(name, data, cloud=1.5) for name, data in flat.items()])
    pad_tortilla, pad_leaves = padded()
    found: dict[str, Written] = {}
    for name, tortilla, leaves in (
        ("flat", flat_tortilla, flat),
        ("nested", Tortilla([scene(n) for n in SCENES]), leaves_of(*SCENES)),
        ("padded", pad_tortilla, pad_leaves),
    ):
        for form in (f"{name}.tacozip", f"{name}_folder"):
            found[form] = Written(create(dataset(tortilla), root / form)[0], leaves)
    part = load(found["nested.tacozip"].path).sql("SELECT * FROM data WHERE score > 2")
    for form in ("part.tacozip", "part"):
        found[form] = Written(export(part, root / form), leaves_of(2, 10))
    parts = root / "parts"
    parts.mkdir()
    for number in range(3):
        tortilla = Tortilla([scene(n) for n in (12 - number, number)])
        create(dataset(tortilla), parts / f"part{number}.tacozip")
    create_tacocat(sorted(parts.glob("*.tacozip")), parts)
    found["index"] = Written(parts, leaves_of(12, 0, 11, 1, 10, 2))
    return found | migrated(root)


@pytest.mark.parametrize("reader", [SPECIFIED, LATEST, OLDEST])
def test_every_leaf_reads_back(written: dict[str, Written], reader: str, tmp_path: Path) -> None:
    """Also by an index away from its archives, which the first generation cannot do."""
    # One folder holds both forms of an index; each generation of readers knows one of them.
    index = written["index"].path / ("__TACOCAT__" if reader == OLDEST else ".tacocat")
    paths = {name: one.path for name, one in written.items()} | {"index": index}
    jobs = [{"path": str(path), "query": QUERY, "base": None} for path in paths.values()]
    if reader != OLDEST:
        moved = shutil.copytree(index, tmp_path / "elsewhere" / ".tacocat")
        jobs.append({"path": str(moved), "query": QUERY, "base": str(index.parent)})
    answers = drive(reader, "read.py", tmp_path / "home", jobs)
    if reader != OLDEST:
        assert answers.pop()["tables"] == digests(written["index"].leaves)
    for (name, one), answer in zip(written.items(), answers, strict=True):
        wanted = digests(one.leaves)
        assert answer["navigated"] == wanted, name
        assert answer["tables"] == wanted, name
        roots = sorted({leaf.partition("/")[0] for leaf in wanted})
        assert sorted(answer["ids"]) == roots, name
        last = roots[-1:-3:-1]
        below = {leaf: digest for leaf, digest in wanted.items() if leaf.partition("/")[0] in last}
        assert answer["queried"] == ({"ids": last} if reader == LATEST else below), name


# -- theirs here ----------------------------------------------------------------------------------

Theirs = tuple[Path, dict[str, dict[str, str]]]
"""Their folder, and the digests of leaves by path of each container in it."""
NAMES = ["flat.tacozip", "sorted.tacozip", "swapped.tacozip", "folder", "parts"]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    root = tmp_path_factory.mktemp("theirs")
    (answers,) = drive(LATEST, "write.py", root / "home", [str(root)])
    return root, answers


def read_all(dataset: Any) -> dict[str, bytes]:
    frame = dataset.data
    return {path: frame.read_bytes(path) for path, _ in frame.walk()}


@pytest.mark.parametrize("name", NAMES)
def test_every_leaf_of_theirs(theirs: Theirs, name: str) -> None:
    root, answers = theirs
    with warnings.catch_warnings():
        # The index of nested archives with such ids is known to be wrong.
        warnings.simplefilter("ignore", TacoWarning)
        dataset = load(root / name)
        assert digests(read_all(dataset)) == answers[name]
        deepest = dataset.flatten()
        for place in range(len(deepest)):
            row = {name: deepest.to_arrow()[name][place].as_py() for name in deepest.columns}
            data = deepest.read_bytes(place)
            ids = [row[f"l{n}:id"] for n in range(3) if f"l{n}:id" in row]
            assert hashlib.sha256(data).hexdigest() == answers[name]["/".join(ids)]


def test_the_index_of_unsorted_ids_is_wrong_and_comal_says_so(
    theirs: Theirs,
) -> None:
    root, answers = theirs
    wrong = Archive(root / "swapped.tacozip")
    assert digests(wrong.entries()) == answers["swapped.tacozip"]
    assert digests(wrong.leaves()) != answers["swapped.tacozip"]
    dataset = load(root / "swapped.tacozip")
    with pytest.warns(TacoWarning, match="not those of their samples"):
        found = read_all(dataset)
    assert digests(found) == answers["swapped.tacozip"]


@pytest.mark.parametrize("name", NAMES)
def test_exports_and_conversions_are_right(theirs: Theirs, name: str, tmp_path: Path) -> None:
    root, answers = theirs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TacoWarning)
        path = export(load(root / name), tmp_path / "out.tacozip")
        made = [path]
        if name.endswith(".tacozip"):
            made.append(folder2zip(zip2folder(root / name, tmp_path / "f"), tmp_path / "b.zip"))
        elif name == "folder":
            made.append(folder2zip(root / name, tmp_path / "b.zip"))
    for path in made:
        archive = Archive(path)
        assert digests(archive.leaves()) == digests(archive.walked()) == answers[name]
