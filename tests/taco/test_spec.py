from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from comal.errors import InvalidMetadataError
from comal.taco import spec

GOOD: dict[str, Any] = {
    "id": "my-data_1",
    "dataset_version": "1.0.0",
    "description": "Text.",
    "licenses": ["CC-BY-4.0"],
    "providers": [{"name": "ACME", "roles": ["producer"], "url": None, "links": None}],
    "tasks": ["classification"],
    "taco_version": "2.0.0",
    "title": None,
    "curators": None,
    "keywords": None,
    "extent": {"spatial": [170.0, -10.0, -170.0, 10.0], "temporal": None},
}

BAD = [
    ("id", "Upper", "lower-case"),
    ("id", "ñandú", "lower-case"),
    ("id", "", "a string"),
    ("id", 3, "a string"),
    ("description", None, "a string"),
    ("licenses", [], "at least one"),
    ("licenses", "MIT", "list of strings"),
    ("tasks", [], "at least one"),
    ("tasks", [""], "list of strings"),
    ("providers", [], "at least one"),
    ("providers", [{"role": "x"}], "name or an organization"),
    ("providers", ["ACME"], "object"),
    ("curators", "me", "contacts"),
    ("title", "x" * 251, "250"),
    ("keywords", [1], "list of strings"),
    ("extent", [], "object"),
    ("extent", {"spatial": [0, 0, 1]}, "west, south, east, north"),
    ("extent", {"spatial": [0, 5, 1, 4]}, "south above north"),
    ("extent", {"spatial": [0, 0, 181, 4]}, "outside the world"),
    ("extent", {"spatial": [0, float("nan"), 1, 1]}, "outside the world"),
    ("extent", {"spatial": ["0", 0, 1, 1]}, "four numbers"),
    ("extent", {"temporal": ["2020-01-01"]}, "two ISO times"),
]


def test_good_collection_has_no_problems() -> None:
    assert spec.collection_problems(GOOD) == []


@pytest.mark.parametrize(("key", "value", "text"), BAD)
def test_bad_collection(key: str, value: object, text: str) -> None:
    problems = spec.collection_problems({**GOOD, key: value})
    assert any(text in problem.message and key in problem.place for problem in problems)
    assert all(problem.severity == "error" for problem in problems)


def test_every_problem_is_listed() -> None:
    places = {problem.place for problem in spec.collection_problems({})}
    for key in ("id", "dataset_version", "description", "licenses", "providers", "tasks"):
        assert f"COLLECTION.json: {key}" in places


def test_unknown_task_and_contact_key_are_warnings() -> None:
    document = {**GOOD, "tasks": ["weeding"], "providers": [{"name": "A", "phone": "1"}]}
    assert [p.severity for p in spec.collection_problems(document)] == ["warning", "warning"]


@pytest.mark.parametrize("key", ["cloud_cover", "stac:crs", "A1:b_2", "x"])
def test_key_grammar_takes(key: str) -> None:
    assert spec.key_fault(key) is None


@pytest.mark.parametrize(
    "key",
    [
        *("id", "Type", "path", "internal:offset", "INTERNAL:x", "a" * 129),
        *("a:b:c", "a b", "", ":a", "a:", "é", 'a"b'),
    ],
)
def test_key_grammar_refuses(key: str) -> None:
    assert spec.key_fault(key)


PIT = {
    "root": {"n": 3, "type": "FOLDER"},
    "shape": [3, 2, 2],
    "hierarchy": {
        "1": [{"n": 6, "type": ["FOLDER", "FILE"], "id": ["imagery", "label.json"]}],
        "2": [{"n": 6, "type": ["FILE", "FILE"], "id": ["before.tif", "after.tif"]}],
    },
}


def test_pit_round_trip() -> None:
    pit = spec.PITSchema.from_dict(PIT)
    assert pit.to_dict() == PIT
    assert (pit.depth, pit.levels, pit.rows(0), pit.rows(2)) == (2, 3, 3, 6)


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        [],
        {"root": {"n": 1, "type": "DIR"}},
        {"root": {"n": -1, "type": "FILE"}},
        {"root": {"n": 1.5, "type": "FILE"}},
        {"root": {"n": True, "type": "FILE"}},
        {"root": {"n": 1, "type": "FOLDER"}, "hierarchy": {"2": []}},
        {"root": {"n": 1, "type": "FOLDER"}, "hierarchy": {"1": [{"n": 1}]}},
        {"root": {"n": 1, "type": "FOLDER"}, "hierarchy": {"x": []}},
        {"root": {"n": 1, "type": "FOLDER"}, "hierarchy": {str(n): [] for n in range(1, 7)}},
    ],
)
def test_pit_refuses(document: object) -> None:
    with pytest.raises(InvalidMetadataError, match="taco:pit_schema"):
        spec.PITSchema.from_dict(document)


def test_type_names_are_those_of_the_writers() -> None:
    assert spec.type_name(pa.list_(pa.field("element", pa.int64()))) == "list<item: int64>"
    assert spec.type_name(pa.list_(pa.list_(pa.float32()))) == "list<item: list<item: float>>"
    assert spec.type_name(pa.timestamp("us")) == "timestamp[us]"
    assert spec.type_name(pa.large_string()) == "string"


def test_field_schema_has_three_values_per_stored_column() -> None:
    number = pa.field("n", pa.int64(), metadata={spec.DESCRIPTION: b"a number"})
    schema = pa.schema([("id", pa.string()), number, ("internal:offset", pa.int64())])
    rows = spec.field_schema([schema])["level0"]
    assert [row[:2] for row in rows] == [
        ["id", "string"],
        ["n", "int64"],
        ["internal:offset", "int64"],
    ]
    assert rows[1][2] == "a number"
    assert rows[2][2]


@pytest.mark.parametrize(
    ("version", "readable"),
    [
        *((version, True) for version in ("0.5.0", "2.0.0", "2.1.3", None)),
        *((version, False) for version in ("3.0.0", "1.0.0", "0.4.0", "2", 2, ["2.0.0"])),
    ],
)
def test_versions(version: object, readable: bool) -> None:
    assert spec.version_is_readable(version) is readable


def test_tasks_that_are_no_list_are_one_problem() -> None:
    for tasks in (True, 7, {"classification": 1}):
        found = [one for one in spec.collection_problems({"tasks": tasks}) if "tasks" in one.place]
        assert [one.severity for one in found] == ["error"]
