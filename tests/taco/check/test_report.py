"""What a report says, and how it counts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from comal.errors import InvalidInputError, ObjectNotFoundError
from comal.taco.checking import check
from comal.taco.checking.archive import SHARE, some
from comal.taco.checking.document import covers, plain_type
from tests.attacks.build import FLAT, NESTED, Recipe, swapped_spans
from tests.attacks.corpus import zipped


def test_report_is_plain_data(tmp_path: Path) -> None:
    recipe = Recipe(table=lambda depth, table: swapped_spans(table) if depth else table)
    report = check(zipped(recipe)(tmp_path))
    data = json.loads(json.dumps(report.to_dict()))
    assert data["ok"] is False
    assert data["container"] == "zip"
    assert data["total"] == data["errors"] + data["warnings"] == len(data["problems"])
    first = data["problems"][0]
    assert set(first) == {"code", "severity", "place", "message"}
    assert first["code"] == "taco-offset-mismatch"
    # Every wrong row is named: the level, the row and the path of the sample.
    assert "level 1, row 0 ('s2/imagery')" in {problem["place"] for problem in data["problems"]}


def test_what_is_no_taco_raises(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        check(tmp_path / "nothing.tacozip")
    with pytest.raises(InvalidInputError):
        check(zipped(Recipe(tree=FLAT))(tmp_path), level="thorough")


def test_progress_is_told(tmp_path: Path) -> None:
    steps: list[str] = []
    check(
        zipped(Recipe(tree=NESTED))(tmp_path), progress=lambda done, total, what: steps.append(what)
    )
    assert "local metadata" in steps
    assert "bytes" in steps


@pytest.mark.parametrize("count", [0, 1, SHARE, SHARE * SHARE, SHARE * SHARE + 1, 10_000])
def test_the_sample_is_a_share_and_never_nothing(count: int) -> None:
    chosen = some(count)
    assert len(chosen) == count
    assert chosen.sum() == count if count <= SHARE * SHARE else chosen.sum() >= count // SHARE - 1
    assert np.array_equal(chosen, some(count))


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ((0, 0, 10, 10), (1, 1, 9, 9), True),
        ((0, 0, 10, 10), (0, 0, 10, 10), True),
        ((0, 0, 10, 10), (1, 1, 9, 11), False),
        ((0, 0, 10, 10), (-1, 1, 9, 9), False),
        ((170, 0, -170, 10), (175, 1, -175, 9), True),
        ((170, 0, -170, 10), (160, 1, -175, 9), False),
        ((170, 0, -170, 10), (-179, 1, -171, 9), True),
        ((-10, 0, 10, 10), (5, 1, -5, 9), False),
        ((-180, -90, 180, 90), (170, 1, -170, 9), True),
        ((-180, -90, 180, 90), (-180, -90, 180, 90), True),
        ((0, 0, 10, 10), (-180, 0, 180, 10), False),
    ],
)
def test_boxes_are_compared_on_the_circle(
    outer: tuple[float, ...], inner: tuple[float, ...], expected: bool
) -> None:
    assert covers(outer, inner) is expected


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("list(int64)", "list<item: int64>"),
        ("list<element: double>", "list(float64)"),
        ("datetime(time_unit='us', time_zone=none)", "timestamp[us]"),
        ("String", "string"),
        ("boolean", "bool"),
        ("list<item: list<item: float>>", "list(list(float32))"),
    ],
)
def test_types_of_all_generations_are_one(first: str, second: str) -> None:
    assert plain_type(first) == plain_type(second)
