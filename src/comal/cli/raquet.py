"""The group ``comal raquet``: rasters as Parquet tables of tiles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from comal import raquet
from comal.cli import options
from comal.cli.app import Group
from comal.cli.options import Style
from comal.cli.output import done, human_size, print_fields, print_result, working, write_file
from comal.errors import InvalidInputError, counted


@click.group(
    "raquet",
    cls=Group,
    removed={
        "check": "comal check X... --statistics",
        "repair": "comal check X --repair OUT",
    },
    examples=(
        ("comal raquet create dem.tif dem.parquet", "convert a raster"),
        ("comal raquet export dem.parquet dem.tif", "and back, as a COG"),
        ("comal raquet point dem.parquet 11.5 48.1", "the values at a place"),
        ("comal raquet zonal dem.parquet fields.parquet --stat mean", "a mean for every field"),
        ("comal raquet sql dem.parquet 'SELECT count(*) FROM raster'", "query it"),
    ),
)
def group() -> None:
    """RaQuet: make and query rasters that are Parquet tables of tiles."""


_band_option = click.option(
    "--band",
    "bands",
    multiple=True,
    callback=options.listed,
    metavar="NAME",
    help="Only this band; may be repeated.",
)

_zoom_option = click.option(
    "--zoom", type=click.IntRange(0, 26), help="Use the tiles of this zoom; the finest if absent."
)

_step_option = click.option(
    "--step", "time", type=click.IntRange(0), help="Time step of a time series, counted from 0."
)

_stat_option = click.option(
    "--stat",
    "stats",
    multiple=True,
    default=("count", "sum", "mean", "min", "max", "stddev"),
    metavar="NAME",
    help=(
        "Only this statistic; may be repeated: count, sum, mean, min, max, range, variance,"
        " stddev (of the population), stddev_sample, median, p10 (or any percent), majority,"
        " minority, variety."
    ),
)

# -- create ---------------------------------------------------------------------------------------


_RESAMPLING = (
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
_OVERVIEWS = ("average", "mode", "nearest", "min", "max")


@group.command(
    "create",
    short_help="Convert a raster, or several as a mosaic.",
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
    type=click.Choice(_RESAMPLING),
    default="nearest",
    help="How pixels are moved to the grid; a raster that lies on it is copied.",
)
@click.option(
    "--overview-resampling",
    type=click.Choice(_OVERVIEWS),
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
    "time",
    multiple=True,
    callback=options.listed,
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
@options.writing
def create(
    style: Style,
    /,
    sources: tuple[str, ...],
    output: str,
    *,
    bands: tuple[str, ...],
    nodata: str | None,
    compression: str,
    **named: Any,
) -> None:
    """Write RASTER, or several as a mosaic, to OUTPUT as RaQuet.

    A raster on the pixels of a Web Mercator zoom is copied as it is; any other is warped.
    """
    source: Any = sources[0] if len(sources) == 1 and not named["time"] else list(sources)
    with working(f"converting {sources[0]}", style) as progress:
        made = raquet.write(
            source,
            output,
            bands=_chosen_bands(bands),
            nodata=nodata if nodata in {None, "none"} else _number(str(nodata)),
            compression=None if compression == "none" else compression,
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


def _chosen_bands(given: tuple[str, ...]) -> Any:
    if not any("=" in one for one in given):
        return [_band(one) for one in given] or None
    named = {}
    for one in given:
        name, _, band = one.partition("=")
        if not (name and band):
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


# -- export ---------------------------------------------------------------------------------------


_TIFF = {".tif", ".tiff"}


@group.command(
    "export",
    short_help="Write a GeoTIFF, a COG or a PNG.",
    examples=(
        ("comal raquet export dem.parquet dem.tif", "the whole raster as a COG"),
        ("comal raquet export dem.parquet part.tif --bbox 11,48,12,49", "a part of it"),
        ("comal raquet export sst.parquet june.tif --step 5", "one step of a time series"),
        ("comal raquet export dem.parquet dem.png --size 1024", "a picture"),
    ),
)
@click.argument("source", metavar="X")
@click.argument("output", metavar="OUTPUT")
@_zoom_option
@click.option("--bbox", type=options.BBOX, help="Only this box, in degrees.")
@_band_option
@_step_option
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
@options.writing
def export(
    style: Style,
    /,
    source: str,
    output: str,
    *,
    size: int,
    plain: bool,
    overwrite: bool,
    **part: Any,
) -> None:
    """Write X as OUTPUT: a COG when its name ends in .tif, a picture when it ends in .png.

    Without --step, every step of a time series becomes a band.
    """
    suffix = Path(output).suffix.lower()
    if suffix == ".png":
        picture = raquet.preview(source, size=size, bands=part["bands"], time=part["time"])
        write_file(output, picture, source, overwrite=overwrite)
        done({"output": output, "size": len(picture)}, style, f"{output}: written")
        return
    if suffix not in _TIFF:
        raise InvalidInputError("unknown kind of file", found=output, expected=".tif or .png")
    write = raquet.to_geotiff if plain else raquet.to_cog
    with working(f"exporting {source}", style) as progress:
        made = write(source, output, overwrite=overwrite, progress=progress, **part)
    told = f"{made.width} x {made.height} pixels of zoom {made.zoom}"
    done(made.to_dict(), style, f"{output}: {told}, {human_size(made.size)}")


# -- partition ------------------------------------------------------------------------------------


@group.command(
    "partition",
    short_help="Cut a file along cells, each a file.",
    examples=(
        ("comal raquet partition dem.parquet dem/", "parts of some 128 MB"),
        ("comal raquet partition dem.parquet dem/ --zoom 6", "a part for each cell of zoom 6"),
    ),
)
@click.argument("source", metavar="X")
@click.argument("folder")
@click.option("--zoom", type=click.IntRange(0, 26), help="Zoom of the cells that get a part each.")
@click.option(
    "--target-mb",
    type=click.IntRange(1),
    default=128,
    help="Size of a part in MB, where no zoom is given.",
)
@options.negative("--no-overviews", "overviews", "Leave out tiles coarser than the cells.")
@options.writing
def partition(style: Style, /, source: str, folder: str, *, target_mb: int, **named: Any) -> None:
    """Write X to FOLDER as parts, each a whole RaQuet file called z6_33_22.parquet."""
    with working(f"cutting {source}", style) as progress:
        made = raquet.partition(
            source, folder, target_size=target_mb << 20, progress=progress, **named
        )
    summary = {"folder": folder, "parts": [one.to_dict() for one in made]}
    done(summary, style, f"{folder}: {counted(len(made), 'part')}")


# -- merge ----------------------------------------------------------------------------------------


@group.command(
    "merge",
    short_help="Write the parts of a set as one file.",
    examples=(
        ("comal raquet merge dem/ -o dem.parquet", "all parts in a folder"),
        ("comal raquet merge z6_33_22.parquet z6_34_22.parquet -o two.parquet", "two of them"),
    ),
)
@click.argument("parts", nargs=-1, required=True, metavar="PART...")
@click.option("-o", "--output", required=True, metavar="FILE", help="The file to write.")
@options.writing
def merge(style: Style, /, parts: tuple[str, ...], output: str, *, overwrite: bool) -> None:
    """Write the PARTs of a raster, or all that a folder holds, as one file."""
    folder = len(parts) == 1 and (Path(parts[0]).is_dir() or parts[0].endswith("/"))
    with working(f"merging {parts[0]}", style) as progress:
        made = raquet.merge(
            parts[0] if folder else list(parts), output, overwrite=overwrite, progress=progress
        )
    text = f"{output}: {counted(made.tiles, 'tile')}, {human_size(made.size)}"
    done(made.to_dict(), style, text + _new_nodata(made.chosen_nodata))


# -- add-bands ------------------------------------------------------------------------------------


@group.command(
    "add-bands",
    short_help="Write the bands of two rasters as one file.",
    examples=(
        (
            "comal raquet add-bands rgb.parquet dem.tif all.parquet --rename band_1=elevation",
            "a raster, put on the grid of the file",
        ),
        ("comal raquet add-bands a.parquet b.parquet both.parquet", "another RaQuet file"),
    ),
)
@click.argument("source", metavar="X")
@click.argument("other", metavar="OTHER")
@click.argument("output", metavar="OUTPUT")
@click.option(
    "--rename",
    multiple=True,
    type=options.OLD_NEW,
    help="New name for a band of OTHER; repeatable.",
)
@click.option(
    "--layout",
    type=click.Choice(("sequential", "interleaved")),
    help="How tiles are stored; as in X if absent. Bands of several types need sequential.",
)
@options.writing
def add_bands(
    style: Style,
    /,
    source: str,
    other: str,
    output: str,
    *,
    rename: tuple[tuple[str, str], ...],
    **named: Any,
) -> None:
    """Write OUTPUT with the bands of X and of OTHER, a RaQuet file or a raster."""
    with working(f"adding bands to {source}", style) as progress:
        made = raquet.append_bands(
            source, other, output, names=dict(rename), progress=progress, **named
        )
    bands = ", ".join(made.bands)
    text = f"{output}: bands {bands}, {human_size(made.size)}"
    done(made.to_dict(), style, text + _new_nodata(made.chosen_nodata))


def _new_nodata(chosen: Mapping[str, float]) -> str:
    """Lines about bands whose nodata value became another."""
    return "".join(
        f"\nnodata of {name} is {value} now, which no pixel has" for name, value in chosen.items()
    )


# -- sql ------------------------------------------------------------------------------------------


@group.command(
    "sql",
    short_help="One SELECT over the tiles, with functions for rasters.",
    examples=(
        ("comal raquet sql dem.parquet 'SELECT block, z, x, y FROM tiles'", "what tiles there are"),
        (
            "comal raquet sql dem.parquet 'SELECT raquet_pixel(b1, metadata, 0, 0) FROM raster'",
            "the first pixel of each tile",
        ),
        (
            "comal raquet sql dem.parquet 'SELECT block FROM read_raquet_at($$raster$$, 11, 48)'",
            "the tile at a place",
        ),
    ),
)
@options.query_options
def sql(style: Style, source: str, query: str, *, as_csv: bool, untrusted: bool | None) -> None:
    """Run one SELECT over the tiles of X.

    The table raster holds the tiles of the finest zoom, tiles their index without pixels,
    overviews the tiles of all other zooms, and metadata one row. Nothing but SELECT is possible,
    and no file and no address can be read by it.
    """
    isolated = options.is_isolated(source, untrusted=untrusted)
    table = raquet.sql(source, query, isolated=isolated)
    print_result(table, as_json=style.json, as_csv=as_csv)


# -- zonal ----------------------------------------------------------------------------------------


@group.command(
    "zonal",
    short_help="Statistics of the pixels within zones.",
    examples=(
        ("comal raquet zonal dem.parquet fields.parquet", "a line for each field, as CSV"),
        (
            "comal raquet zonal dem.parquet fields.parquet --stat mean --keep name --json",
            "means with the names of the fields",
        ),
        ("comal raquet zonal dem.parquet fields.geojson --keep name", "zones of a GeoJSON file"),
        ("comal raquet zonal rain.parquet basins.parquet --method fractional", "by exact areas"),
        (
            "comal raquet zonal cover.parquet fields.parquet --stat majority --stat variety",
            "the most frequent class, and how many there are",
        ),
    ),
)
@options.source
@click.argument("zones")
@_band_option
@_stat_option
@_zoom_option
@_step_option
@click.option(
    "--method",
    type=click.Choice(("centre", "all_touched", "fractional")),
    default="centre",
    show_default=True,
    help="Pixels whose middle is inside; all that are touched; or by the share that is inside.",
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Also this column of the zones.")
@click.option("--layer", metavar="NAME", help="Which layer of a GeoPackage that has several.")
@options.as_csv
@options.pass_style
def zonal(style: Style, /, source: str, zones: str, *, as_csv: bool, **named: Any) -> None:
    """Tell statistics of the valid pixels of X within each zone of ZONES.

    ZONES is a file of GeoParquet, GeoJSON or GeoPackage; a Shapefile needs geopandas.
    """
    with working(f"zones of {source}", style) as progress:
        table = raquet.zonal(source, zones, progress=progress, **named)
    print_result(table, as_json=style.json, as_csv=as_csv)


# -- stats ----------------------------------------------------------------------------------------


@group.command(
    "stats",
    short_help="Statistics of the bands, out of their pixels.",
    examples=(
        ("comal raquet stats dem.parquet", "all bands at full resolution"),
        ("comal raquet stats dem.parquet --zoom 6 --stat mean --json", "of an overview"),
        ("comal raquet stats dem.parquet --stat p2 --stat median --stat p98", "quantiles"),
    ),
)
@options.source
@_band_option
@_stat_option
@_zoom_option
@_step_option
@options.as_csv
@options.pass_style
def stats(style: Style, /, source: str, *, as_csv: bool, **named: Any) -> None:
    """Compute statistics of every band of X from its pixels.

    Pixels that are nodata or NaN do not count, nor does the padding of tiles at the edge. Of a
    band without a nodata value only files by comal tell the latter from pixels.
    """
    with working(f"statistics of {source}", style) as progress:
        table = raquet.statistics(source, progress=progress, **named)
    print_result(table, as_json=style.json, as_csv=as_csv)


# -- point ----------------------------------------------------------------------------------------


@group.command(
    "point",
    short_help="The values at a place.",
    context_settings={"ignore_unknown_options": True},
    examples=(
        ("comal raquet point dem.parquet 11.5 48.1", "longitude, then latitude"),
        ("comal raquet point dem.parquet -122.4 37.7 --json", "as one JSON object"),
    ),
)
@options.source
@click.argument("lon", type=click.FloatRange(-180, 180))
@click.argument("lat", type=click.FloatRange(-90, 90))
@_band_option
@_zoom_option
@_step_option
@click.option("--scaled", is_flag=True, help="Physical values: pixel x scale + offset.")
@options.pass_style
def point(
    style: Style, /, source: str, lon: float, lat: float, *, bands: list[str] | None, **named: Any
) -> None:
    """Tell the value of each band of X at LON LAT, in degrees; nothing where there is none."""
    import numpy as np  # noqa: PLC0415 - help needs none of it

    with raquet.open(source) as file:
        names = bands or list(file.metadata.band_names)
        values = [file.point(lon, lat, [name], masked=True, **named) for name in names]
    fields = {
        name: None if np.ma.getmaskarray(value)[0] else value[0].item()
        for name, value in zip(names, values, strict=True)
    }
    print_fields(fields, style)


# -- inspect --------------------------------------------------------------------------------------


@group.command(
    "inspect",
    short_help="The metadata as they stand in the file.",
    examples=(
        ("comal raquet inspect dem.parquet", "the document of the metadata row, indented"),
        ("comal raquet inspect dem.parquet --json", "as it stands there, on one line"),
    ),
)
@options.source
@options.pass_style
def inspect(style: Style, source: str) -> None:
    """Print the metadata of X: what the row with block 0 holds."""
    with raquet.open(source) as file:
        text = file.documents()[0]
    # Nothing of the document is lost or made up: it is only indented.
    click.echo(text if style.json else json.dumps(json.loads(text), indent=2))
