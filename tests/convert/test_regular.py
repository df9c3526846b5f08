"""Nested files that differ: brought into order, padded as the specification says, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from comal import taco
from comal.convert import migrate
from comal.errors import InvalidInputError, LimitExceededError
from tests.convert.migrated import FIELDS, collection, leaves, level, moved
from tests.tortilla.build import Item, built, deep, nested


def items(*names: str, root: str = "") -> list[Item]:
    return [Item(name, f"{root}{name}".encode()) for name in names]


MISSING = nested(("r0", items("a", "b", "c")), ("r1", items("a", "c")), ("r2", items("b", "c")))


def test_another_order_is_brought_into_one(tmp_path: Path) -> None:
    data = nested(("r0", items("a", "b", root="0")), ("r1", items("b", "a", root="1")))
    output, report = moved(tmp_path, data)
    assert level(output, 1)["id"].to_pylist() == ["a", "b", "a", "b"]
    assert leaves(output) == {"r0/a": b"0a", "r0/b": b"0b", "r1/a": b"1a", "r1/b": b"1b"}
    assert [change.name for change in report.of("changed")] == ["order"]


def test_a_missing_child_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        moved(tmp_path, MISSING)
    text = str(caught.value)
    assert "'r2/a' is missing, but 'r0/a' exists" in text
    assert "2 to 3 items" in text
    assert "--pad" in text
    assert "--children position" in text
    assert not (tmp_path / "new.tacozip").exists()


def test_padding_takes_its_place(tmp_path: Path) -> None:
    output, report = moved(tmp_path, MISSING, pad=True)
    pads = ["__TACOPAD__0"]
    assert level(output, 1)["id"].to_pylist() == [*"abc", "a", *pads, "c", *pads, "b", "c"]
    assert (report.padding, report.leaves, report.levels) == (2, 7, (3, 9))
    assert "padding: 2 empty samples" in report.lines()
    assert "padding: 1 empty sample" in replace(report, padding=1).lines()
    assert leaves(output, padding=True)["r1/__TACOPAD__0"] == b""
    assert sorted(leaves(output)) == ["r0/a", "r0/b", "r0/c", "r1/a", "r1/c", "r2/b", "r2/c"]
    pattern = collection(output)["taco:pit_schema"]["hierarchy"]["1"][0]
    assert (pattern["n"], pattern["id"]) == (9, ["a", "b", "c"])
    with taco.load(output) as dataset:
        assert dataset.data.read("r1").read_bytes("c") == b"c"


def test_other_ids_below_each_parent(tmp_path: Path) -> None:
    data = nested(*((f"r{n}", items(f"{n}_x", f"{n}_y", root="!")) for n in range(4)))
    with pytest.raises(InvalidInputError, match="differ in structure"):
        moved(tmp_path, data)
    with pytest.raises(InvalidInputError, match="24 empty samples for 8 items"):
        moved(tmp_path, data, pad=True)
    output, report = moved(tmp_path, data, children="position")
    assert leaves(output)["r3/0001"] == b"!3_y"
    assert level(output, 1)["tortilla:id"].to_pylist()[:3] == ["0_x", "0_y", "1_x"]
    assert report.ids.to_pylist()[-1] == {"level": 1, "old": "r3/3_y", "new": "r3/0001"}
    again = migrate(
        tmp_path / "old.tortilla",
        tmp_path / "named.tacozip",
        ids=lambda name: name[2:] if name[1:2] == "_" else None,
        **FIELDS,
    )
    assert again.levels == (4, 8)
    assert leaves(tmp_path / "named.tacozip")["r2/y"] == b"!2_y"


def test_an_empty_nested_file_is_padded(tmp_path: Path) -> None:
    data = nested(("r0", items("a")), ("r1", []))
    with pytest.raises(InvalidInputError, match="differ in structure"):
        moved(tmp_path, data)
    output, report = moved(tmp_path, data, pad=True)
    assert (report.padding, list(leaves(output))) == (1, ["r0/a"])


def test_three_levels_out_of_order(tmp_path: Path) -> None:
    def scene(name: str, *groups: str) -> Item:
        inner = [
            Item(group, built(items("x", "y", root=f"{name}{group}")), "TORTILLA")
            for group in groups
        ]
        return Item(name, built([*inner, Item("label", name.encode())]), "TORTILLA")

    data = built([scene("s10", "p", "q"), scene("s2", "q", "p"), scene("s1", "p", "q")])
    output, report = moved(tmp_path, data)
    assert report.levels == (3, 9, 12)
    assert leaves(output) == {
        **{
            f"{s}/{g}/{x}": f"{s}{g}{x}".encode()
            for s in ("s10", "s2", "s1")
            for g in "pq"
            for x in "xy"
        },
        **{f"{s}/label": s.encode() for s in ("s10", "s2", "s1")},
    }


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (built([]), "holds no item"),
        (built([Item("a", b"1"), Item("b", built(items("c")), "TORTILLA")]), "mixes items"),
        (nested(("r0", []), ("r1", [])), "holds no items"),
        (
            built(
                [
                    Item("r0", built([Item("x", b"1")]), "TORTILLA"),
                    Item("r1", built([Item("x", built(items("y")), "TORTILLA")]), "TORTILLA"),
                ]
            ),
            "a file in one place and a nested file in another",
        ),
        (
            built(
                [
                    Item(
                        "r0",
                        built([Item("x", built(items("y")), "TORTILLA"), *items("z")]),
                        "TORTILLA",
                    ),
                    Item("r1", built(items("z")), "TORTILLA"),
                ]
            ),
            "a missing nested file cannot be padded",
        ),
    ],
    ids=["empty", "mixed", "childless", "types", "missing-folder"],
)
def test_what_no_padding_mends(tmp_path: Path, data: bytes, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        moved(tmp_path, data, pad=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.tortilla"]
    with pytest.raises(InvalidInputError, match=match):
        migrate(tmp_path / "old.tortilla", dry_run=True, pad=True, **FIELDS)


def test_six_levels_are_the_deepest(tmp_path: Path) -> None:
    output, report = moved(tmp_path, deep(6))
    assert report.levels == (1,) * 6
    assert leaves(output) == {"in/in/in/in/in/leaf": b"leaf"}
    with pytest.raises(LimitExceededError, match="nested too deeply"):
        moved(tmp_path, deep(7), overwrite=True)
