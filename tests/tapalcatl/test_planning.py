"""The calculator counts what is there when every tile is."""

from __future__ import annotations

import zipfile
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError
from comal.tapalcatl import choose_layout, plan
from comal.tapalcatl.addressing import tile_range
from comal.tapalcatl.planning import DIRECTORY_LIMIT, directory_bytes
from comal.tapalcatl.spec import WORLD


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 6),
    st.integers(0, 3),
    st.sampled_from([1, 2, 4]),
    st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True),
    st.sampled_from(
        [
            None,
            (5.0, 45.0, 30.0, 60.0),
            (-180.0, -80.0, -100.0, -1.0),
            (130.0, -20.0, -130.0, 20.0),
        ]
    ),
)
def test_counts_are_those_of_enumeration(
    min_zoom: int,
    more: int,
    metatile: int,
    zooms: list[int],
    bounds: tuple[float, float, float, float] | None,
) -> None:
    max_zoom = min(min_zoom + more, 7)
    zooms = sorted({*zooms, min(zooms[0], min_zoom)})
    planned = plan(min_zoom, max_zoom, bounds=bounds, metatile=metatile, materialized_zooms=zooms)
    archives: dict[tuple[int, int, int], int] = {}
    for z in range(min_zoom, max_zoom + 1):
        west, south, east, north = bounds or WORLD
        parts = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
        columns = {x for a, b in parts for x in tile_range((a, south, b, north), z)[0]}
        for x in columns:
            for y in tile_range(bounds or WORLD, z)[1]:
                archive = planned.layout.archive(z, x, y)
                assert archive is not None
                archives[archive] = archives.get(archive, 0) + 1
    assert planned.archives == len(archives)
    assert planned.entries == sum(archives.values())
    for zoom in planned.zooms:
        here = [count for (z, _, _), count in archives.items() if z == zoom.zoom]
        assert zoom.archives == len(here)
        assert max(here) <= zoom.most_entries


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 22), st.integers(0, 22), st.integers(1, 12), st.integers(0, 200))
def test_chosen_layouts_fit_the_first_request(
    one: int, other: int, per_tile: int, extra: int
) -> None:
    low, high = sorted((one, other))
    layout = choose_layout(low, high, per_tile=per_tile, entry_extra=extra)
    planned = plan(low, high, per_tile=per_tile, entry_extra=extra)
    assert planned.layout == layout
    assert planned.fits
    assert layout.materialized_zooms[0] == low


def test_the_rule() -> None:
    assert choose_layout(0, 14).materialized_zooms == (0, 3, 7, 11)
    assert choose_layout(0, 14).metatile == 2
    assert choose_layout(0, 8).materialized_zooms == (0, 5)
    assert choose_layout(0, 3).materialized_zooms == (0,)
    assert choose_layout(5, 8).materialized_zooms == (5,)
    assert choose_layout(0, 14, per_tile=4).metatile == 1
    given_zooms = choose_layout(0, 12, materialized_zooms=[4, 0, 8], metatile=8)
    assert (given_zooms.materialized_zooms, given_zooms.metatile) == ((0, 4, 8), 8)
    assert not plan(0, 12, materialized_zooms=[0], metatile=8).fits


def test_directories_are_as_long_as_zipfile_writes_them() -> None:
    layout = choose_layout(3, 6)
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for z in range(3, 7):
            for x in range(2 << (z - 3)):
                for y in range(2 << (z - 3)):
                    high = (1 << z) - 1
                    archive.writestr(f"{z}/{high - x}/{high - y}.mvt", b"")
        start = archive.start_dir
    assert directory_bytes(layout, 3, 6) >= len(file.getvalue()) - start
    assert directory_bytes(layout, 3, 6) <= DIRECTORY_LIMIT
    assert plan(3, 6).to_dict()["entries"] == 64 + 256 + 1024 + 4096


def test_layouts_and_boxes_that_cannot_be() -> None:
    with pytest.raises(InvalidInputError, match="no archives for the first zooms"):
        plan(0, 6, materialized_zooms=[2, 4])
    for bounds in ((0, 95, 1, 99), (0, 20, 1, 10)):
        with pytest.raises(InvalidInputError, match="latitudes"):
            plan(0, 6, bounds=bounds)


@pytest.mark.parametrize("zooms", [(-1, 3), (4, 3), (0, 31)])
def test_zooms_that_are_none(zooms: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError):
        plan(*zooms)
