"""The collection: converted, given, asked for, never made up."""

from __future__ import annotations

from typing import Any

import pytest

from comal.convert.collection import collection_of, refuse_missing
from comal.convert.report import Notes
from comal.errors import InvalidInputError
from tests.convert.migrated import FIELDS

V1: dict[str, Any] = {
    "id": "old",
    "dataset_version": "1",
    "description": "d",
    "licenses": ["MIT"],
    "providers": [{"name": "p"}],
    "task": "general",
    "taco_version": "0.4.0",
}


FAR = {"temporal": [[0, 10**15]]}  # beyond the year 9999


def converted(stored: dict[str, Any] | None, **given: Any) -> tuple[dict[str, Any], Notes]:
    notes = Notes()
    return collection_of(stored, given, {}, notes), notes


def test_a_tortilla_has_to_be_told_everything() -> None:
    fields, notes = converted(None)
    names = ["id", "dataset_version", "description", "licenses", "tasks", "providers"]
    assert [one.field for one in notes.missing] == names
    assert fields["licenses"] is None
    with pytest.raises(InvalidInputError) as caught:
        refuse_missing(notes.missing, "x.tortilla")
    for option in ("--id", "--dataset-version", "--license", "--provider", "--task"):
        assert option in str(caught.value)
    assert caught.value.fields["missing"] == names
    assert converted(None, **FIELDS)[1].missing == []


def test_the_caller_wins() -> None:
    fields, notes = converted(V1, id="new", tasks=["other"], licenses=["CC0-1.0"])
    assert (fields["id"], fields["tasks"], fields["licenses"]) == ("new", ["other"], ["CC0-1.0"])
    assert fields["description"] == "d"
    assert notes.missing == []


def test_what_the_file_has_wrong_is_asked_for() -> None:
    _, notes = converted({**V1, "id": "Not Legal", "licenses": [], "task": None})
    assert {one.field: one.option for one in notes.missing} == {
        "id": "--id",
        "licenses": "--license",
        "tasks": "--task",
    }


@pytest.mark.parametrize(
    ("stored", "extent"),
    [
        ({"spatial": [[1, 2, 3, 4]], "temporal": None}, ([1, 2, 3, 4], None)),
        ({"spatial": [1, 2, 3, 4]}, ([1, 2, 3, 4], None)),
        ({"spatial": [[170, 0, 175, 1], [-175, 0, -170, 2]]}, ([170, 0, -170, 2], None)),
        (
            {"spatial": None, "temporal": [[0, 86_400_000]]},
            (None, ["1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"]),
        ),
        (
            {"temporal": ["2020-01-01T00:00:00+00:00", "2021-01-01T00:00:00Z"]},
            (None, ["2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z"]),
        ),
    ],
)
def test_extents(stored: dict[str, Any], extent: tuple[Any, Any]) -> None:
    fields, _ = converted({**V1, "extent": stored})
    assert (fields["extent"]["spatial"], fields["extent"]["temporal"]) == extent


@pytest.mark.parametrize(
    "extent", [[1], {"spatial": "x"}, {"spatial": [[400, 0, 1, 1]]}, {"temporal": [["x", 1]]}, FAR]
)
def test_an_extent_that_is_none_is_not_taken(extent: Any) -> None:
    fields, notes = converted({**V1, "extent": extent})
    assert fields["extent"] is None
    assert [one.kind for one in notes.changes if one.name == "extent"][-1] in {"kept", "dropped"}


def test_contacts_lose_nothing() -> None:
    contact = {
        "name": "n",
        "emails": [{"value": "a@x", "roles": ["r"]}, {"value": "b@x", "roles": None}],
        "phones": ["1"],
        "logo": None,
    }
    fields, notes = converted({**V1, "providers": [contact]})
    assert fields["providers"] == [{"name": "n", "email": "a@x"}]
    assert fields["tortilla:providers"] == [contact]
    (kept,) = [one for one in notes.changes if one.name == "providers"]
    assert "phones" in kept.message
    assert "emails" in kept.message


@pytest.mark.parametrize("emails", [5, "a@x", ["a@x"], {"value": "a@x"}])
def test_addresses_of_other_forms_are_kept(emails: Any) -> None:
    contact = {"name": "n", "emails": emails}
    fields, _ = converted({**V1, "providers": [contact], "task": ["general", "other"]})
    assert fields["providers"] == [{"name": "n"}]
    assert fields["tortilla:providers"] == [contact]
    assert fields["tasks"] == ["general", "other"]


@pytest.mark.parametrize("name", ["optical_data", "labels", "scientific"])
@pytest.mark.parametrize("value", [5, [], {"other": 1}, {"bands": 1, "label_classes": 1}])
def test_odd_documents_are_kept_whole(name: str, value: Any) -> None:
    fields, _ = converted({**V1, name: value})
    assert fields[f"tortilla:{name}"] == value


def test_fields_that_are_none() -> None:
    with pytest.raises(InvalidInputError, match="reserved"):
        collection_of(V1, {}, {"taco:x": 1}, Notes())
    assert collection_of(V1, {}, {"mine": 1}, Notes())["mine"] == 1
