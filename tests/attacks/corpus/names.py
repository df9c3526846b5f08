"""Ids that could leave their folder, hide, or be taken for another."""

from __future__ import annotations

from tests.attacks.build import FLAT, Recipe
from tests.attacks.corpus.base import attack, first, set_column

for name in ("..", ".", "", "a/b", "a\\b", "C:x", "a\0b", "a\nb", "a\u202eb", "a\u200bb", "__x"):
    attack(
        f"id {name!r}",
        Recipe(tree=FLAT, table=set_column(0, "id", first(name))),
        "taco-id",
        reads="either",
    )
for name in ("e\u0301", "nul", "a.", "x ", "a*b", "-rf", "~x", "a%2fb", "x" * 300):
    attack(
        f"risky id {name[:20]!r}",
        Recipe(tree={name: b"risky", "b": b"other"}),
        "taco-id-risky",
        reads="right",
    )
attack("ids alike", Recipe(tree={"a.bin": b"one", "A.bin": b"two"}), "taco-id-alike", reads="right")
