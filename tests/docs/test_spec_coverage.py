"""The tables of docs/spec-coverage.md: tests, codes and keys that they name are there, all of them.

A key that the code knows and no table names makes this fail, so that the list grows with the code.
"""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from comal.raquet import wire
from comal.raquet.checking.run import CODES as RAQUET_CODES
from comal.taco import spec as taco_spec
from comal.taco.checking.codes import CODES as TACO_CODES
from comal.tapalcatl import spec as tapalcatl_spec
from comal.tapalcatl.checking import CODES as TAPALCATL_CODES
from comal.tortilla import spec as tortilla_spec
from comal.tortilla.spec import CODES as TORTILLA_CODES
from tests.support import REPOSITORY

HEADS = ("field or rule", "read", "written", "checked", "test")
CODES = {
    "RaQuet": RAQUET_CODES,
    "Tapalcatl": TAPALCATL_CODES,
    "TACO": TACO_CODES,
    "Tortilla": TORTILLA_CODES,
}
KEYS = {
    "RaQuet": wire._KNOWN | wire._BAND_KNOWN | wire._STATISTICS_KNOWN,
    "Tapalcatl": tapalcatl_spec.KNOWN | {tapalcatl_spec.VARIANTS},
    "TACO": {
        *taco_spec.CORE_FIELDS,
        *taco_spec.PROTECTED_COLUMNS,
        *taco_spec._CONTACT_KEYS,
        taco_spec.PATH,
        taco_spec.PIT_SCHEMA,
        taco_spec.FIELD_SCHEMA,
        taco_spec.SUBSET_OF,
        taco_spec.SUBSET_DATE,
        taco_spec.SOURCES,
    },
    "Tortilla": {
        *tortilla_spec.TYPES,
        *tortilla_spec.ALIASES,
        *tortilla_spec.COLLECTION_REQUIRED,
        tortilla_spec.SUBFILE,
    },
}


@cache
def rows(name: str) -> list[dict[str, str]]:
    """The rows of the tables of a specification."""
    text = (REPOSITORY / "docs" / "spec-coverage.md").read_text()
    (section,) = re.findall(rf"^## {name} .*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]
    assert {len(row) for row in cells} == {1 + len(HEADS)}
    return [dict(zip(HEADS, row[1:], strict=True)) for row in cells if row[-1] != "test"]


@cache
def functions_of(path: str) -> frozenset[str]:
    """Names of the test functions of a file, those in classes too."""
    tree = ast.parse((REPOSITORY / "tests" / path).read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("name", CODES)
def test_tests_that_are_named_are_there(name: str) -> None:
    named = [row["test"] for row in rows(name) if row["test"] != "-"]
    assert len(named) > 20
    assert [
        one for one in named if one.partition("::")[2] not in functions_of(one.partition("::")[0])
    ] == []


@pytest.mark.parametrize("name", CODES)
def test_codes_that_are_named_are_there(name: str) -> None:
    named = {code for row in rows(name) for code in re.findall(r"`([^`]+)`", row["checked"])}
    assert len(named) > 20
    assert named - set(CODES[name]) == set()


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_the_code_are_named(name: str) -> None:
    named = {key for row in rows(name) for key in re.findall(r"`([^`]+)`", row["field or rule"])}
    assert KEYS[name] - named == set()


@pytest.mark.parametrize("name", CODES)
def test_no_cell_is_empty(name: str) -> None:
    assert [row for row in rows(name) if "" in row.values()] == []
