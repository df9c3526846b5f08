"""Checks of every format: levels, places, and what a part of a check has found."""

from __future__ import annotations

import numpy as np
import pytest

from comal.check import LEVELS, MAX_LISTED, Check, rules
from comal.errors import InvalidInputError, InvalidMetadataError, Problem
from comal.limits import DEFAULT_LIMITS

RULES = rules({"a-broken": "it is broken"}, {"b-odd": "it is odd"})


def new(level: str = "full") -> Check:
    return Check(RULES, level, DEFAULT_LIMITS)


def test_each_rule_has_a_severity_and_a_meaning() -> None:
    assert RULES == {"a-broken": ("error", "it is broken"), "b-odd": ("warning", "it is odd")}


@pytest.mark.parametrize(("level", "one_of"), list(zip(LEVELS, (0, 20, 1), strict=True)))
def test_levels_say_how_many_payloads_are_read(level: str, one_of: int) -> None:
    assert new(level).one_of == one_of


def test_a_level_that_there_is_not() -> None:
    with pytest.raises(InvalidInputError, match="level"):
        new("thorough")


def test_places_of_a_part_begin_with_its_name() -> None:
    check = new()
    part = check.at("0/0/0.zip")
    part.add("a-broken", "comment", "1")
    part.add("a-broken", "", "2")
    part.add_rows("b-odd", [7], lambda row: (f"entry {row}", "3"))
    part.take([Problem("a-broken", "0/0/0.zip, byte 5", "4")])
    with part.guard("a-broken", ""):
        raise InvalidMetadataError("no entry", where="0/0/0.zip, entry 3")
    with part.guard("a-broken", ""):
        raise InvalidMetadataError("nothing")
    check.add("b-odd", "meta.json", "5")
    report = check.report("x", "tree")
    assert [problem.place for problem in report.problems] == [
        "0/0/0.zip, comment",
        "0/0/0.zip",
        "0/0/0.zip, byte 5",
        "0/0/0.zip, entry 3",
        "0/0/0.zip",
        "0/0/0.zip, entry 7",
        "meta.json",
    ]
    assert (report.errors, report.warnings, report.level) == (5, 2, "full")


def test_a_part_of_its_own_is_counted_when_it_is_taken() -> None:
    check = new()
    inner = check.part()
    inner.add_rows("a-broken", range(MAX_LISTED + 5), lambda row: (f"row {row}", "no"))
    assert check.total == 0
    check.take_all(inner, "b.zip")
    report = check.report("x", None)
    assert report.counts == {"a-broken": MAX_LISTED + 5}
    assert report.problems[0].place == "b.zip: row 0"
    assert len(report.problems) == MAX_LISTED


def test_a_thousand_problems_are_listed_errors_first_and_all_are_counted() -> None:
    check = new()
    check.add("b-odd", "x", "y")
    check.add_rows("a-broken", np.arange(5_000), lambda row: (str(row), "wrong"))
    report = check.report("here", "zip")
    assert len(report.problems) == MAX_LISTED
    assert {problem.code for problem in report.problems} == {"a-broken"}
    assert report.counts == {"a-broken": 5_000, "b-odd": 1}
    assert (report.errors, report.warnings, report.total) == (5_000, 1, 5_001)
    assert not report.ok


def test_an_error_about_the_content_gives_all_its_problems_and_others_come_out() -> None:
    check = new()
    inner = (Problem("b-odd", "a", "b"), Problem("b-odd", "c", "d"))
    with check.guard("a-broken", "level 0"):
        raise InvalidMetadataError("broken", problems=inner)
    with check.guard("a-broken", "level 0"):
        raise InvalidMetadataError("broken", found="x", expected="y")
    report = check.report("x", None)
    assert report.counts == {"a-broken": 1, "b-odd": 2}
    assert report.problems[0].message == "broken, found x, expected y"
    with pytest.raises(ZeroDivisionError), check.guard("a-broken", "level 0"):
        raise ZeroDivisionError
