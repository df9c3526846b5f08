"""Archives that a process of their own updates in a loop, while others read them.

``python -m tests.faults.updating`` reads lines: ``KIND COUNT FOLDER`` to update that, until
another line comes; it says when it has done so that often.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from comal import taco, tapalcatl, tortilla
from tests.taco.write.small import dataset
from tests.tapalcatl.making import listed, picture, pyramid

NOISE = 5_000
"""So many bytes in each picture that no archive fits into one read of an end."""
MARKED = [(3, x, y) for x in range(4) for y in range(4)]
"""Tiles that one update replaces together."""


def marked(number: int) -> bytes:
    """What all of them are after an update."""
    return picture(number % 200, NOISE)


def make_tileset(folder: Path) -> None:
    tiles = dict.fromkeys(pyramid(3), picture(255, NOISE))
    options: dict[str, Any] = {"metatile": 1, "name": "a", "compression": "store"}
    tapalcatl.build(listed(tiles), folder / "set", materialized_zooms=[0, 2], **options)
    tapalcatl.build(listed(tiles), folder / "one", materialized_zooms=[0], **options)
    update_tileset(folder, 0)
    update_archive(folder, 0)


def update_tileset(folder: Path, number: int) -> None:
    """Seventeen archives at most, as one change."""
    tree = folder / "set"
    tapalcatl.put(tree, [(*key, marked(number)) for key in MARKED], durable=False)
    if number % 5 == 3:
        tapalcatl.edit_metadata(tree, {"name": "a" * (1 + number % 50)})
    if number % 5 == 4:
        tapalcatl.compact(tree)


def update_archive(folder: Path, number: int) -> None:
    path = folder / "one/0/0/0.zip"
    tapalcatl.put(path, [(*key, marked(number)) for key in MARKED], durable=number % 2 == 0)
    if number % 5 == 2:
        tapalcatl.delete(path, [(2, 3, 3)])
    if number % 5 == 3:
        tapalcatl.edit_metadata(path, {"name": "a" * (1 + number % 50)})
    if number % 5 == 4:
        tapalcatl.compact(path)


def _sample(name: str, number: int) -> tortilla.Sample:
    return tortilla.Sample(name, "PNG", path=marked(number), n=number)


def make_tortilla(folder: Path) -> None:
    tortilla.create([_sample(f"s{n}", n) for n in range(30)], folder / "a.tortilla")


def update_tortilla(folder: Path, number: int) -> None:
    path = folder / "a.tortilla"
    if number % 5 == 4:
        tortilla.delete(path, rows=list(range(30, len(tortilla.open(path)))))
        tortilla.compact(path)
    elif number % 5 == 3:
        rows = len(tortilla.open(path))
        tortilla.edit(path, columns={"m": [number] * rows}, replace=True)
    else:
        tortilla.append(path, [_sample(f"t{number}-{n}", n) for n in range(8)])


def make_folder(folder: Path) -> None:
    update_folder(folder, 0)


def update_folder(folder: Path, number: int) -> None:
    """A folder of TACO 2.0, replaced by one with as many rows as its version says."""
    samples = [taco.Sample(f"s{n}", marked(number), v=number) for n in range(3 + number % 3)]
    made = dataset(taco.Tortilla(samples))
    made.title = str(number)
    taco.create(made, folder / "dataset", output_format="folder", overwrite=True)


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path, int], None]]] = {
    "archive": (make_tileset, update_archive),
    "tileset": (make_tileset, update_tileset),
    "tortilla": (make_tortilla, update_tortilla),
    "folder": (make_folder, update_folder),
}


def main() -> None:
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    while True:
        kind, least, folder = lines.get().rstrip("\n").split(" ", 2)
        number = 0
        while number < int(least) or lines.empty():
            number += 1
            KINDS[kind][1](Path(folder), number)
            if number == int(least):
                sys.stdout.write(f"{number}\n")
                sys.stdout.flush()
        lines.get()


if __name__ == "__main__":
    main()
