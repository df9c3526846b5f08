"""Loose files: links, pipes, paths that lead elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from comal.errors import InvalidMetadataError, UnsafeContentError
from tests.attacks.build import FLAT, Recipe
from tests.attacks.corpus.base import attack, first, foldered, set_column


def _secret_link(target: Path) -> None:
    secret = target.parent / "secret.txt"
    secret.write_bytes(b"secret")
    leaf = target / "DATA/s2/imagery/before.bin"
    leaf.unlink()
    leaf.symlink_to(secret)


def linked_folder(target: Path) -> None:
    """Put a link in the place of a folder of the dataset."""
    outside = target.parent / "outside"
    (target / "DATA/s2/imagery").rename(outside)
    (target / "DATA/s2/imagery").symlink_to(outside)


attack(
    "folder: link to a file",
    foldered(Recipe(), _secret_link),
    "taco-symlink",
    error=UnsafeContentError,
)
attack(
    "folder: link to a folder",
    foldered(Recipe(), linked_folder),
    "taco-symlink",
    error=UnsafeContentError,
)
for name, path in (
    ("..", "../../secret.txt"),
    ("absolute", "/etc/passwd"),
    ("URL", "file:///etc/passwd"),
    ("backslash", "..\\secret.txt"),
    ("NUL", "a\0b"),
):
    attack(
        f"folder: relative_path {name}",
        foldered(
            Recipe(table=set_column(2, "internal:relative_path", first(path))),
            lambda target: (target.parent / "secret.txt").write_bytes(b"secret"),
        ),
        "taco-path",
        reads="either",
    )
    attack(
        f"folder: id {name}",
        foldered(
            Recipe(tree=FLAT, table=set_column(0, "id", first(path))),
            lambda target: (target.parent / "secret.txt").write_bytes(b"secret"),
        ),
        "taco-id",
        reads="either",
        tree=FLAT,
    )
attack(
    "folder: file gone",
    foldered(Recipe(), lambda target: (target / "DATA/s1/label.txt").unlink()),
    "taco-file-missing",
)


def _pipe(target: Path) -> None:
    (target / "DATA/s1/label.txt").unlink()
    os.mkfifo(target / "DATA/s1/label.txt")


attack("folder: pipe", foldered(Recipe(), _pipe), "taco-symlink")
attack(
    "folder: file too many",
    foldered(Recipe(), lambda target: (target / "DATA/s1/x").write_bytes(b"x")),
    "taco-file-extra",
    reads="right",
)
attack(
    "folder: level gone",
    foldered(Recipe(), lambda target: (target / "METADATA/level1.parquet").unlink()),
    "taco-level-missing",
    error=InvalidMetadataError,
)
attack(
    "folder: no local metadata",
    foldered(Recipe(), lambda target: (target / "DATA/s1/__meta__").unlink()),
    "taco-meta-missing",
    reads="right",
)
attack(
    "stored paths",
    Recipe(
        tree=FLAT,
        table=lambda depth, table: table.append_column(
            "internal:gdal_vsi", pa.array(["/etc/passwd"] * 4)
        ),
    ),
    "taco-stored-path",
    reads="right",
)
attack(
    "folder: stored paths",
    foldered(
        Recipe(
            tree=FLAT,
            table=lambda depth, table: table.append_column(
                "internal:gdal_vsi", pa.array(["/etc/passwd"] * 4)
            ),
        )
    ),
    "taco-stored-path",
    reads="right",
    tree=FLAT,
)
