"""``comal raquet create``: a raster, or several as a mosaic, as RaQuet."""

from __future__ import annotations

from typing import Any

import click

from comal import raquet
from comal.cli import options
from comal.cli.base import Command
from comal.cli.output import done, human_size, working
from comal.errors import counted

RESAMPLING = (
    "nearest",
    "bilinear",
    "cubic",
    "cubicspline",
    "lanczos",
    "average",
    "mode",
    "max",
    "min",
    "med",
    "q1",
    "q3",
)
_PICTURES = (
    "comal raquet create photo.tif photo.parquet --spec-version 0.5.0"
    " --layout interleaved --compression webp"
)
OVERVIEWS = ("average", "mode", "nearest", "min", "max")


@click.command(
    "create",
    cls=Command,
    examples=(
        ("comal raquet create dem.tif dem.parquet --resampling bilinear", "convert a raster"),
        ("comal raquet create a.tif b.tif both.parquet", "two rasters as one; the first on top"),
        ("comal raquet create s2.tif s2.parquet --band red=4 --band nir=8", "two bands, named"),
        ("comal raquet create old.tif new.parquet --crs EPSG:32618", "a raster that has no CRS"),
        ("comal raquet create tmmx.nc tmmx.parquet --variable air_temperature", "one variable"),
        (_PICTURES, "pictures as tiles"),
    ),
)
@click.argument("sources", nargs=-1, required=True, metavar="RASTER...")
@click.argument("output", metavar="OUTPUT")
@click.option(
    "--spec-version",
    type=click.Choice(["0.1.0", "0.5.0"]),
    default="0.1.0",
    show_default=True,
    help="Version of RaQuet to write.",
)
@click.option("--zoom", type=click.IntRange(0, 26), help="Zoom of the full resolution.")
@click.option(
    "--zoom-strategy",
    type=click.Choice(["auto", "lower", "upper"]),
    default="auto",
    help="Take the zoom nearest to the resolution, or the coarser or finer one.",
)
@click.option(
    "--min-zoom", type=click.IntRange(0, 26), help="Zoom of the coarsest overview to make."
)
@click.option(
    "--resampling",
    type=click.Choice(RESAMPLING),
    default="nearest",
    help="How pixels are moved to the grid; a raster that lies on it is copied.",
)
@click.option(
    "--overview-resampling",
    type=click.Choice(OVERVIEWS),
    help="How overviews are made: average, or mode for colour tables, if absent.",
)
@click.option("--reuse-overviews", is_flag=True, help="Take overviews that the source has.")
@click.option("--block-size", type=int, default=256, help="Pixels of a tile's side: 16 to 4096.")
@click.option(
    "--band",
    "bands",
    multiple=True,
    metavar="[NAME=]BAND",
    help="Only this band, by number or name, and what to call it; may be repeated.",
)
@click.option(
    "--nodata",
    metavar="VALUE",
    help="Value of pixels without data: a number, nan, or none to have no value chosen.",
)
@click.option("--crs", help="CRS of a raster that has none, such as EPSG:32618.")
@click.option(
    "--variable", help="Variable of a NetCDF, HDF5 or Zarr file; or name it as GDAL does."
)
@click.option(
    "--compression",
    type=click.Choice(["gzip", "none", "jpeg", "webp"]),
    default="gzip",
    show_default=True,
    help="Of tiles; JPEG and WebP lose detail and need 0.5.0 and the interleaved layout.",
)
@click.option(
    "--level", type=click.IntRange(0, 12), help="Of gzip, 1 to 12; 0 is fastest.", default=3
)
@click.option("--quality", type=click.IntRange(1, 100), default=85, help="Of JPEG and WebP.")
@click.option(
    "--layout",
    type=click.Choice(["sequential", "interleaved"]),
    default="sequential",
    show_default=True,
    help="A column for each band, or one for the pixels of all bands (0.5.0).",
)
@click.option("--keep-empty", is_flag=True, help="Write tiles without data as well.")
@click.option("--tile-statistics", is_flag=True, help="Statistics of each tile as columns (0.5.0).")
@click.option(
    "--time",
    "times",
    multiple=True,
    help="Instant of each raster, in their order: they become the steps of a time series.",
)
@click.option("--row-group-size", type=click.IntRange(1), help="Tiles of a row group; 64 or more.")
@click.option(
    "--block-dtype",
    type=click.Choice(["uint64", "int64"]),
    default="uint64",
    show_default=True,
    help="Type of the column of tile ids.",
)
@options.overwrite
@options.pass_style
def command(
    style: options.Style,
    /,
    sources: tuple[str, ...],
    output: str,
    bands: tuple[str, ...],
    nodata: str | None,
    compression: str,
    times: tuple[str, ...],
    *,
    overwrite: bool,
    **named: Any,
) -> None:
    """Write RASTER, or several as a mosaic, to OUTPUT as RaQuet.

    A raster on the pixels of a Web Mercator zoom is copied as it is; any other is warped.
    """
    source: Any = sources[0] if len(sources) == 1 and not times else list(sources)
    with working(f"converting {sources[0]}", style) as progress:
        made = raquet.write(
            source,
            output,
            bands=_bands(bands),
            nodata=nodata if nodata in {None, "none"} else _number(str(nodata)),
            compression=None if compression == "none" else compression,
            time=list(times) or None,
            overwrite=overwrite,
            progress=progress,
            **named,
        )
    low, high = made.min_zoom, made.max_zoom
    zooms = f"zoom {low}" if low == high else f"zooms {low} to {high}"
    done(
        made.to_dict(),
        style,
        f"{output}: {counted(made.tiles, 'tile')} of {zooms}, {human_size(made.size)}"
        + _padding(made),
    )


def _padding(made: raquet.Written) -> str:
    """What was made up to tell pixels from what has no value."""
    if made.added_alpha is not None:
        return f"\nband {made.added_alpha!r} was added: 0 where the raster has no pixel"
    by_value: dict[float, list[str]] = {}
    for name, value in made.chosen_nodata.items():
        by_value.setdefault(value, []).append(name)
    return "".join(
        f"\nnodata {value} was chosen for {', '.join(names)}: tiles reach beyond the raster, "
        "and no pixel has it"
        for value, names in by_value.items()
    )


def _bands(given: tuple[str, ...]) -> Any:
    if not given:
        return None
    if not any("=" in one for one in given):
        return [_band(one) for one in given]
    named = {}
    for one in given:
        name, equals, band = one.partition("=")
        if not (equals and name and band):
            raise click.BadParameter(
                f"{one!r} is not NAME=BAND; name all bands or none", param_hint="--band"
            )
        named[name] = _band(band)
    return named


def _band(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no number", param_hint="--nodata") from error
