"""What a report says, and how it counts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from comal.check import MAX_LISTED
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    Problem,
)
from comal.taco.checking import check
from comal.taco.checking.archive import SHARE, some
from comal.taco.checking.codes import new_check
from comal.taco.checking.document import covers, plain_type
from tests.attacks.build import FLAT, NESTED, Recipe, swapped_spans
from tests.attacks.corpus import raw, zipped


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


def test_a_thousand_problems_are_listed_and_all_are_counted() -> None:
    findings = new_check()
    findings.add_rows("taco-offset-mismatch", np.arange(5_000), lambda row: (str(row), "wrong"))
    findings.add("taco-licence", "x", "y")
    report = findings.report("here", "zip", "full")
    assert len(report.problems) == MAX_LISTED
    assert report.counts == {"taco-licence": 1, "taco-offset-mismatch": 5_000}
    assert (report.errors, report.warnings, report.total) == (5_000, 1, 5_001)
    assert not report.ok
    findings = new_check()
    findings.add("taco-licence", "a", "b")
    findings.add("zip-crc", "c", "d")
    codes = [problem.code for problem in findings.report("x", None, "full").problems]
    assert codes == ["zip-crc", "taco-licence"]


def test_an_error_with_problems_gives_all_of_them() -> None:
    findings = new_check()
    inner = (Problem("zip-span", "a", "b"), Problem("zip-span", "c", "d"))
    with findings.guard("taco-table", "level 0"):
        raise InvalidMetadataError("broken", problems=inner)
    with findings.guard("taco-table", "level 0"):
        raise InvalidMetadataError("broken", found="x", expected="y")
    report = findings.report("x", None, "full")
    assert report.counts == {"taco-table": 1, "zip-span": 2}
    assert report.problems[-1].message == "broken, found x, expected y"


def test_other_errors_are_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError), new_check().guard("taco-table", "level 0"):
        raise ZeroDivisionError


def test_what_is_no_taco_raises(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        check(tmp_path / "nothing.tacozip")
    with pytest.raises(NotThisFormatError):
        check(raw(b"#y" + bytes(50))(tmp_path))
    with pytest.raises(InvalidInputError):
        check(zipped(Recipe(tree=FLAT))(tmp_path), level="thorough")


def test_a_truncated_archive_has_a_report(tmp_path: Path) -> None:
    data = Recipe(tree=FLAT).build()
    report = check(raw(data[: len(data) - 200])(tmp_path))
    assert not report.ok
    assert report.container == "zip"


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
