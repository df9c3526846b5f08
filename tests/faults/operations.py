"""What is done to a folder while faults happen; each is done again to see that it can be.

Sources stand beside the folder, where no fault strikes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from comal import raquet, taco, tapalcatl, tortilla
from tests.taco.write.small import dataset, flat, nested
from tests.tapalcatl.making import listed, picture, pyramid

TILES = {key: picture(number) for number, key in enumerate(pyramid(3))}
NEW = picture(200)
PUT = [(0, 0, 0, NEW), (3, 2, 2, NEW), (3, 7, 7, b"{}" * 40)]
MORE = [
    tortilla.Sample("t", path=b"new" * 30_000),
    tortilla.Sample("u", path=[tortilla.Sample("x", path=b"x" * 20_000)]),
]
DELETED = [(3, 2, 2), (2, 0, 0), (1, 1, 1)]


def source_of(folder: str) -> Path:
    """The raster that is converted."""
    return Path(folder).parent / "source.tif"


def write_raquet(folder: str, **options: Any) -> None:
    source = source_of(folder)
    raquet.write(source, Path(folder) / "out.parquet", block_size=32, row_group_size=16, **options)


def replace_raquet(folder: str) -> None:
    write_raquet(folder, overwrite=True, compression=None)


def partition_raquet(folder: str) -> None:
    raquet.partition(Path(folder).parent / "whole.parquet", Path(folder) / "parts", zoom=6)


def export_raquet(folder: str) -> None:
    raquet.to_geotiff(Path(folder).parent / "whole.parquet", Path(folder) / "out.tif")


def build(folder: str, **options: Any) -> None:
    tapalcatl.build(
        listed(TILES),
        Path(folder) / "out",
        metatile=2,
        materialized_zooms=[0, 2],
        name="a name",
        **options,
    )


def build_from_file(folder: str) -> None:
    tapalcatl.build(
        Path(folder).parent / "source.mbtiles",
        Path(folder) / "out",
        metatile=2,
        materialized_zooms=[0, 2],
    )


def replace_tileset(folder: str) -> None:
    build(folder, overwrite=True, compression="deflate")


def put(folder: str) -> None:
    tapalcatl.put(Path(folder) / "out", PUT)


def put_into_archive(folder: str) -> None:
    tapalcatl.put(Path(folder) / "out/2/0/0.zip", [(3, 2, 2, NEW), (3, 3, 3, NEW)])


def delete(folder: str) -> None:
    tapalcatl.delete(Path(folder) / "out", DELETED)


def compact(folder: str) -> None:
    tapalcatl.compact(Path(folder) / "out")


def edit(folder: str) -> None:
    tapalcatl.edit_metadata(Path(folder) / "out", {"name": "b"})


def to_mbtiles(folder: str) -> None:
    tapalcatl.to_mbtiles(Path(folder).parent / "tiles", Path(folder) / "out.mbtiles")


def to_pmtiles(folder: str) -> None:
    tapalcatl.to_pmtiles(Path(folder).parent / "tiles", Path(folder) / "out.pmtiles")


def tortilla_of(folder: str) -> Path:
    return Path(folder) / "a.tortilla"


def append(folder: str) -> None:
    tortilla.append(tortilla_of(folder), MORE)


def set_columns(folder: str) -> None:
    tortilla.edit(tortilla_of(folder), columns={"m": [1.0, 2.0, 3.0, 4.0]})


def delete_rows(folder: str) -> None:
    tortilla.delete(tortilla_of(folder), ids=["s1"])


def compact_tortilla(folder: str) -> None:
    tortilla.compact(tortilla_of(folder))


def create_taco(folder: str) -> None:
    for name in ("a.tacozip", "b"):
        taco.create(dataset(flat(3)), Path(folder) / name)


def replace_taco_zip(folder: str) -> None:
    taco.create(dataset(nested(3)), Path(folder) / "a.tacozip", overwrite=True)


def replace_taco_folder(folder: str) -> None:
    taco.create(dataset(nested(3)), Path(folder) / "b", output_format="folder", overwrite=True)


# -- sets of files ---------------------------------------------------------------------------------

_AGAIN = b"again " * 200


def tortilla_parts(folder: str, data: bytes = b"first", count: int = 4, **options: Any) -> None:
    items = [tortilla.Sample(f"s{n}", path=data + bytes([n])) for n in range(count)]
    tortilla.create(items, Path(folder) / "a.tortilla", chunk_rows=2, **options)


def replace_tortilla_parts(folder: str) -> None:
    tortilla_parts(folder, _AGAIN, 6, overwrite=True)


def fewer_tortilla_parts(folder: str) -> None:
    tortilla_parts(folder, _AGAIN, 3, overwrite=True)


def taco_parts(folder: str, count: int = 2, **options: Any) -> None:
    made = dataset(flat(count), description=f"{count} parts")
    taco.create(made, Path(folder) / "a.tacozip", split_size=1, **options)


def replace_taco_parts(folder: str) -> None:
    taco_parts(folder, 3, overwrite=True)


def fewer_taco_parts(folder: str) -> None:
    taco_parts(folder, 1, overwrite=True)


def raquet_parts(folder: str, zoom: int = 6, **options: Any) -> None:
    raquet.partition(
        Path(folder).parent / "whole.parquet", Path(folder) / "parts", zoom=zoom, **options
    )


def replace_raquet_parts(folder: str) -> None:
    raquet_parts(folder, 5, overwrite=True)


def taco_folder(folder: str) -> None:
    taco.create(dataset(flat(3)), Path(folder) / "b", output_format="folder")
