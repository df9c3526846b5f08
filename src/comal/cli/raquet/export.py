"""``comal raquet export``: RaQuet as GeoTIFF, COG or PNG."""

from __future__ import annotations

from pathlib import Path

import click

from comal import raquet, storage
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, human_size, working
from comal.cli.raquet import choices
from comal.errors import InvalidInputError
from comal.storage.kinds import PNG

_TIFF = {".tif", ".tiff"}


@click.command(
    "export",
    cls=Command,
    examples=(
        ("comal raquet export dem.parquet dem.tif", "the whole raster as a COG"),
        ("comal raquet export dem.parquet part.tif --bbox 11,48,12,49", "a part of it"),
        ("comal raquet export sst.parquet june.tif --step 5", "one step of a time series"),
        ("comal raquet export dem.parquet dem.png --size 1024", "a picture"),
    ),
)
@click.argument("source", metavar="X")
@click.argument("output", metavar="OUTPUT")
@choices.zoom
@click.option("--bbox", metavar="W,S,E,N", help="Only this box, in degrees.")
@choices.bands
@choices.step
@click.option("--plain", is_flag=True, help="A GeoTIFF without overviews instead of a COG.")
@click.option(
    "--compression",
    type=click.Choice(["deflate", "zstd", "lzw", "lerc", "none"]),
    default="deflate",
    show_default=True,
    help="Of a GeoTIFF.",
)
@click.option(
    "--size", type=click.IntRange(16, 8192), default=512, help="Longest side of a PNG in pixels."
)
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    source: str,
    output: str,
    zoom: int | None,
    bbox: str | None,
    bands: tuple[str, ...],
    step: int | None,
    compression: str,
    size: int,
    *,
    plain: bool,
    overwrite: bool,
) -> None:
    """Write X as OUTPUT: a COG when its name ends in .tif, a picture when it ends in .png.

    Without --step, every step of a time series becomes a band.
    """
    suffix = Path(output).suffix.lower()
    if suffix == ".png":
        picture = raquet.preview(source, size=size, bands=list(bands) or None, time=step)
        with storage.targets.new_file(output, overwrite, PNG, source) as file:
            file.write(picture)
        done({"output": output, "size": len(picture)}, style, f"{output}: written")
        return
    if suffix not in _TIFF:
        raise InvalidInputError("unknown kind of file", found=output, expected=".tif or .png")
    write = raquet.to_geotiff if plain else raquet.to_cog
    with working(f"exporting {source}", style) as progress:
        made = write(
            source,
            output,
            zoom=zoom,
            bbox=None if bbox is None else options.parse_bbox(bbox),
            bands=list(bands) or None,
            time=step,
            compression=compression,
            overwrite=overwrite,
            progress=progress,
        )
    told = f"{made.width} x {made.height} pixels of zoom {made.zoom}"
    done(made.to_dict(), style, f"{output}: {told}, {human_size(made.size)}")
