"""The layout that is chosen: directories come with the first request."""

from __future__ import annotations

import zipfile
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError
from comal.tapalcatl import choose_layout
from comal.tapalcatl.layout import DIRECTORY_LIMIT, EntrySize, directory_bytes


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 22), st.integers(0, 22), st.integers(1, 12), st.integers(0, 200))
def test_chosen_layouts_fit_the_first_request(
    one: int, other: int, per_tile: int, extra: int
) -> None:
    low, high = sorted((one, other))
    layout = choose_layout(low, high, per_tile=per_tile, entry_extra=extra)
    size = EntrySize(per_tile=per_tile, entry_extra=extra)
    for zoom in layout.materialized_zooms:
        assert directory_bytes(layout, zoom, high, size) <= DIRECTORY_LIMIT
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


@pytest.mark.parametrize("zooms", [(-1, 3), (4, 3), (0, 31)])
def test_zooms_that_are_none(zooms: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError):
        choose_layout(*zooms)
