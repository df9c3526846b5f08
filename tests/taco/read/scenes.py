"""Containers that the tests of the reader make, with geometry and time on every level."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.attacks.build import Recipe, Tree, folder, leaves_of

HOUR = 3_600_000_000
DAY = 24 * HOUR
START = 1_672_531_200_000_000  # 2023-01-01T00:00:00Z


def point(lon: float, lat: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, lon, lat)


def located(level: int, table: Any) -> Any:
    """The table with a point one degree and a time one day further for each row."""
    count = len(table)
    times = [START + n * DAY + 10 * HOUR for n in range(count)]
    points = [point(float(n), 10.0 * level) for n in range(count)]
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
