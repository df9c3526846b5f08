"""Containers that the tests of the reader make, with geometry and time on every level."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from comal.taco.reading.dataset import TacoDataset, concat, load
from tests.attacks.build import Index, Recipe, Tree, folder, leaves_of, pit_of, rows_of

HOUR = 3_600_000_000
DAY = 24 * HOUR
START = 1_672_531_200_000_000  # 2023-01-01T00:00:00Z


def point(lon: float, lat: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, lon, lat)


def located(level: int, table: Any, before: int = 0) -> Any:
    """The table with a point one degree and a time one day further for each row.

    `before` are the scenes in front of its first one.
    """
    rows = range(before * (1, 2, 2)[level], before * (1, 2, 2)[level] + len(table))
    times = [START + n * DAY + 10 * HOUR for n in rows]
    points = [point(float(n), 10.0 * level) for n in rows]
    columns = {
        "stac:centroid": pa.array(points, pa.binary()),
        "stac:time_start": pa.array(times, pa.timestamp("us")),
    }
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def without(*columns: str) -> Callable[[int, Any], Any]:
    """A table hook that leaves columns out."""

    def drop(level: int, table: Any) -> Any:
        return table.drop_columns([name for name in columns if name in table.column_names])

    return drop


def large(level: int, table: Any) -> Any:
    """The table with the wide types that writers of generation A used."""
    kinds = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    fields = [pa.field(f.name, kinds.get(f.type, f.type)) for f in table.schema]
    return table.cast(pa.schema(fields))


def scenes(*ids: str, names: tuple[str, str] = ("before.bin", "after.bin")) -> Tree:
    """Three levels: scenes, each with `imagery/` of two leaves and a label."""
    return {
        scene: {
            "imagery": {name: f"{scene}/{name}".encode() * 3 for name in names},
            "label.txt": f"{scene}-label".encode(),
        }
        for scene in ids
    }


def write(target: Path, recipe: Recipe, name: str = "x.tacozip") -> Path:
    """The archive of a recipe on disk."""
    path = target / name
    path.write_bytes(recipe.build())
    return path


def write_folder(target: Path, recipe: Recipe, name: str = "x") -> Path:
    """The folder of a recipe on disk."""
    return folder(target / name, recipe.tree, recipe)


def expected(tree: Tree) -> dict[str, bytes]:
    """Path and bytes of every leaf."""
    return dict(leaves_of(tree))


def read_all(frame: Any) -> dict[str, bytes]:
    """Path and bytes of every leaf that a frame leads to."""
    return {path: frame.read_bytes(path) for path, _ in frame.walk()}


# -- the same samples in every container ----------------------------------------------------------

Hook = Callable[[int, Any], Any]


def _located(hook: Hook, before: int, level: int, table: Any) -> Any:
    return hook(level, located(level, table, before))


def _halves(tree: Tree, hook: Hook) -> list[Recipe]:
    """The scenes of a tree, of which the last stands alone; places and times go on there."""
    *first, last = tree
    return [
        Recipe(tree={scene: tree[scene] for scene in some}, table=partial(_located, hook, before))
        for some, before in ((first, 0), ([last], len(first)))
    ]


def _index(place: Path, tree: Tree, hook: Hook, form: str) -> Path:
    parts = dict(zip(("one.tacozip", "two.tacozip"), _halves(tree, hook), strict=True))
    pit = {"taco:pit_schema": pit_of(rows_of(tree))}
    return Index(parts, collection=lambda document: {**document, **pit}).write(place, (form,))


def _concatenated(place: Path, tree: Tree, hook: Hook) -> TacoDataset:
    one, two = _halves(tree, hook)
    return concat([load(write(place, one, "one.tacozip")), load(write_folder(place, two, "two"))])


def _with_an_index(place: Path, tree: Tree, hook: Hook) -> TacoDataset:
    one, two = _halves(tree, hook)
    index = Index({"one.tacozip": one}).write(place, ("folder",))
    return concat([load(index), load(write(place, two, "two.tacozip"))])


def _whole(make: Callable[..., Path], place: Path, tree: Tree, hook: Hook) -> TacoDataset:
    return load(make(place, Recipe(tree=tree, table=partial(_located, hook, 0))))


CONTAINERS: dict[str, Callable[[Path, Tree, Hook], TacoDataset]] = {
    "zip": partial(_whole, write),
    "folder": partial(_whole, write_folder),
    "__TACOCAT__": lambda place, tree, hook: load(_index(place, tree, hook, "single")),
    ".tacocat": lambda place, tree, hook: load(_index(place, tree, hook, "folder")),
    "concat": _concatenated,
    "concat of an index": _with_an_index,
}
"""Scenes of three levels with places and times, opened; a hook changes tables before."""


def as_it_is(_level: int, table: Any) -> Any:
    """The hook that changes nothing."""
    return table
