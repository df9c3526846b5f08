"""Level tables and local metadata that contradict each other or the entries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from comal.errors import InvalidMetadataError
from tests.attacks.build import NESTED, Recipe, Tree, replaced, swapped_spans
from tests.attacks.corpus.base import attack, set_column

attack(
    "spans of other samples",
    Recipe(table=lambda depth, table: swapped_spans(table) if depth else table),
    "taco-offset-mismatch",
    reads="right",
)
attack(
    "spans of other samples in local metadata",
    Recipe(
        meta=lambda path, table: (
            replaced(table, "internal:offset", table["internal:offset"].to_pylist()[::-1])
            if path.endswith("imagery")
            else table
        )
    ),
    "taco-meta-span",
    reads="either",
)
attack(
    "local metadata of other children",
    Recipe(
        meta=lambda path, table: replaced(table, "id", [f"x{n}" for n in range(table.num_rows)])
    ),
    "taco-meta-rows",
    reads="right",
)
attack(
    "local metadata of other values",
    Recipe(meta=lambda path, table: replaced(table, "value", [-1.0] * table.num_rows)),
    "taco-meta-value",
    reads="right",
)
attack(
    "local metadata of another type",
    Recipe(meta=lambda path, table: replaced(table, "value", ["x"] * table.num_rows, pa.string())),
    "taco-pit-2",
    reads="right",
)
attack(
    "local metadata is no Parquet",
    Recipe(meta_bytes=lambda path, data: b"not a table"),
    "taco-meta",
    reads="right",
)
attack(
    "no local metadata",
    Recipe(meta_bytes=lambda path, data: None),
    "taco-meta-missing",
    reads="either",
)
attack(
    "parents that are not there",
    Recipe(table=set_column(2, "internal:parent_id", lambda v: [77, *v[1:]])),
    "taco-parent",
    reads="either",
)
attack(
    "parents that are files",
    Recipe(table=set_column(2, "internal:parent_id", lambda v: [1, *v[1:]])),
    "taco-parent",
    reads="either",
)


def _no_way(depth: int, table: Any) -> Any:
    if depth != 2:
        return table
    table = replaced(table, "internal:parent_id", [77] * 6)
    return table.drop_columns(["internal:relative_path"])


attack(
    "parents that nothing tells",
    Recipe(table=_no_way),
    "taco-parent",
    reads="either",
    error=InvalidMetadataError,
)
attack(
    "numbers of rows that stand twice",
    Recipe(table=set_column(1, "internal:current_id", lambda v: [0] * len(v))),
    "taco-current-id",
    reads="either",
)
attack(
    "roots of both types",
    Recipe(tree={**NESTED, "loose.bin": b"loose"}),
    "taco-pit-1",
    reads="right",
)
_IMAGERY: Tree = {"before.bin": b"3", "after.bin": b"4"}
attack(
    "more children in one folder",
    Recipe(tree={**NESTED, "s99": {"imagery": _IMAGERY, "label.txt": b"1", "more.bin": b"2"}}),
    "taco-pit-1",
    reads="right",
)
attack(
    "other ids in the depth",
    Recipe(
        tree={**NESTED, "s99": {"imagery": {"before.bin": b"1", "AFTER": b"2"}, "label.txt": b"3"}}
    ),
    "taco-pit-1",
    reads="right",
)
attack(
    "stale counts",
    Recipe(collection=lambda d: {**d, "taco:pit_schema": _counted(d["taco:pit_schema"], 99)}),
    "taco-pit-count",
    reads="right",
)


def _counted(pit: dict[str, Any], n: int) -> dict[str, Any]:
    return {**pit, "root": {**pit["root"], "n": n}}
