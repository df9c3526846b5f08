from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError
from comal.geo.boxes import Box, arc_width, boxes_intersect, union_box, validate_bbox, wrap

# Eighths of a degree add and subtract without rounding, so laws hold exactly.
lons = st.sampled_from((-180, -179.875, 179.875, 180)) | st.integers(-1440, 1440).map(
    lambda n: n / 8
)
lats = st.integers(-720, 720).map(lambda n: n / 8)
W, E = -76.83457071558132, -76.79000000000001


@st.composite
def boxes(draw: Any) -> Box:
    south, north = sorted((draw(lats), draw(lats)))
    return Box(draw(lons), south, draw(lons), north)


def columns(found: list[Box]) -> list[np.ndarray[Any, Any]]:
    return list(np.array(found, np.float64).T)


def holds(outer: Box, lon: float) -> bool:
    """Whether a meridian is within the arc of a box, told by the angle from its western end."""
    width = float(arc_width(outer.west, outer.east))
    return (lon - outer.west) % 360 <= width


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([(-5, 0, -5, 0), (4, 1, 4, 1)], (-5, 0, 4, 1)),
        ([(-5, 0, -5, 0), (-1, 0, -1, 0), (0.1, 0, 0.1, 0), (4, 0, 4, 0)], (-5, 0, 4, 0)),
        ([(170, 0, 170, 0), (-170, 0, -170, 0)], (170, 0, -170, 0)),
        ([(170, 0, 180, 1), (-180, 0, -170, 1)], (170, 0, -170, 1)),
        ([(170, 0, -170, 1), (100, 2, 110, 3)], (100, 0, -170, 3)),
        ([(-180, -90, 180, 90), (1, 1, 2, 2)], (-180, -90, 180, 90)),
        ([(0, -90, 360, 90)], (-180, -90, 180, 90)),
        ([(0, 0, 180, 1), (-180, 0, 0, 1)], (-180, 0, 180, 1)),
        ([(170, 0, 190, 1)], (170, 0, -170, 1)),
        ([(180, 0, 180, 0)], (180, 0, 180, 0)),
        ([(180, 0, 180, 0), (-180, 5, -180, 5)], (-180, 0, -180, 5)),
        ([(180, 0, 180, 0), (-10, 0, -10, 0)], (-180, 0, -10, 0)),
        ([(-180, 0, -180, 0), (170, 0, 180, 0)], (170, 0, 180, 0)),
        # Four gaps of 90 degrees: the one that leaves the antimeridian alone is kept closed.
        ([(x, 0, x, 0) for x in (-135, -45, 45, 135)], (-135, 0, 135, 0)),
        ([(x, 0, x, 0) for x in (-152.9, -32.9, 87.1)], (-152.9, 0, 87.1, 0)),  # as rounded
        ([(np.nan, 0, 1, 1), (1, 2, 3, 4)], (1, 2, 3, 4)),
        # The very numbers, which adding and taking off 360 would round.
        ([(W, 0, E, 0), (170.1, 0, -179.9, 1)], (170.1, 0, E, 1)),
        ([(W, 0, E, 1)], (W, 0, E, 1)),
    ],
)
def test_union(found: list[tuple[float, ...]], expected: tuple[float, ...]) -> None:
    assert union_box(*np.array(found, np.float64).T) == expected


def test_union_of_nothing_is_none() -> None:
    assert union_box([], [], [], []) is None
    assert union_box([np.nan], [0.0], [1.0], [1.0]) is None


@given(st.lists(boxes(), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_union_holds_every_box(found: list[Box]) -> None:
    union = union_box(*columns(found))
    assert union is not None
    for box in found:
        width = float(arc_width(box.west, box.east))
        assert all(holds(union, box.west + width * part) for part in (0, 0.25, 0.5, 0.75, 1))
        assert union.south <= box.south
        assert union.north >= box.north


@given(st.lists(boxes(), min_size=1, max_size=7), st.integers(-8, 8))
@settings(max_examples=60, deadline=None)
def test_union_has_the_same_width_when_the_earth_is_turned(found: list[Box], turn: int) -> None:
    west, south, east, north = columns(found)
    width = arc_width(west, east)
    turned = wrap(west + 45 * turn)
    before = union_box(west, south, west + width, north)
    after = union_box(turned, south, turned + width, north)
    assert before is not None
    assert after is not None
    assert arc_width(before.west, before.east) == arc_width(after.west, after.east)


@given(st.lists(boxes(), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_union_is_the_smallest_of_all_arcs_between_ends(found: list[Box]) -> None:
    union = union_box(*columns(found))
    assert union is not None
    ends = [(a.west, b.east) for a, b in itertools.product(found, found)]
    for west, east in ends:
        candidate = Box(west, -90, east, 90)
        held = all(
            (b.west - west) % 360 + arc_width(b.west, b.east) <= arc_width(west, east)
            for b in found
        )
        if held:
            assert arc_width(union.west, union.east) <= arc_width(candidate.west, candidate.east)


@pytest.mark.parametrize(
    ("row", "query", "expected"),
    [
        ((1, 1, 2, 2), (0, 0, 1, 1), True),
        ((1, 1, 2, 2), (0, 0, 0.999, 1), False),
        ((170, 0, -170, 1), (175, 0, 178, 1), True),
        ((170, 0, -170, 1), (-178, 0, -175, 1), True),
        ((170, 0, -170, 1), (0, 0, 10, 1), False),
        ((175, 0, 176, 1), (170, 0, -170, 1), True),
        ((0, 0, 1, 1), (170, 0, -170, 1), False),
        ((179, 0, -179, 1), (170, 0, -170, 1), True),
        ((180, 0, 180, 0), (-180, 0, -170, 1), True),
        ((-180, 0, -180, 0), (170, 0, 180, 1), True),
        ((160, 0, 180, 0), (-180, 0, -170, 1), True),
        ((185, 0, 186, 1), (-176, 0, -170, 1), True),
        ((5, 5, 6, 6), (-180, -90, 180, 90), True),
        ((5, 5, 6, 6), (4, 6.01, 7, 8), False),
        ((np.nan, 5, 6, 6), (-180, -90, 180, 90), False),
        ((170, np.nan, -170, 6), (-180, -90, 180, 90), False),
        ((np.nan, 0, -170, 6), (170, -90, -160, 90), False),
        ((np.nan, 0, 175, 6), (170, -90, -160, 90), False),
        ((-170, 0, np.nan, 6), (170, -90, -160, 90), False),
        ((0, 0, 1, np.inf), (-180, -90, 180, 90), False),
        ((0, -np.inf, 1, 1), (-180, -90, 180, 90), False),
    ],
)
def test_intersects(row: tuple[float, ...], query: tuple[float, ...], expected: bool) -> None:
    west, south, east, north = np.array([row], np.float64).T
    found = boxes_intersect(west, south, east, north, query)
    assert found.tolist() == [expected]


def intersect(first: Box, second: Box) -> bool:
    west, south, east, north = columns([first])
    return bool(boxes_intersect(west, south, east, north, second)[0])


@given(boxes(), boxes())
@settings(max_examples=200, deadline=None)
def test_intersects_is_mutual_and_agrees_with_points(first: Box, second: Box) -> None:
    one = intersect(first, second)
    assert one == intersect(second, first)
    if first.south <= second.north and second.south <= first.north:
        touch = holds(first, second.west) or holds(second, first.west)
        assert one == touch


@pytest.mark.parametrize(
    "bbox",
    [
        (0, 0, 1),
        (0, 0, np.nan, 1),
        (0, 2, 1, 1),
        (0, -91, 1, 1),
        (0, 0, 1, 90.1),
        (0, 90.1, 1, 90.2),
        (-360.1, 0, 1, 1),
        (360.1, 0, 1, 1),
        (0, 0, 360.1, 1),
        (0, 0, -360.1, 1),
        (0, 0, 1, 1, 1),
        ("a", 0, 1, 1),
        None,
        (0, 0, np.inf, 1),
    ],
)
def test_invalid_boxes_are_refused(bbox: Any) -> None:
    with pytest.raises(InvalidInputError, match="box") as caught:
        validate_bbox(bbox, "the box of a query")
    assert caught.value.where == "the box of a query"


def test_validate_wraps() -> None:
    assert validate_bbox([170, 0, 190, 1]) == (170, 0, -170, 1)
    assert validate_bbox([180.5, 0, 181, 1]) == (-179.5, 0, -179, 1)
    assert validate_bbox([180, 0, -170, 1]) == (-180, 0, -170, 1)
    assert validate_bbox([170, 0, -180, 1]) == (170, 0, 180, 1)
    assert validate_bbox([0, 0, 360, 1]) == (-180, 0, 180, 1)
    assert validate_bbox([170, 0, -170, 1]).crosses_antimeridian
    assert validate_bbox([-360, -90, 0, 90]) == (-180, -90, 180, 90)
    assert validate_bbox([-350, 90, 360, 90]) == (-180, 90, 180, 90)
    assert validate_bbox([-350, 0, -340, 0]) == (10, 0, 20, 0)
    assert validate_bbox([360, 0, -360, 0]) == (0, 0, 0, 0)
    assert not validate_bbox([5, 5, 5, 5]).crosses_antimeridian
