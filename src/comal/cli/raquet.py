"""The group ``comal raquet``: rasters as Parquet tables of tiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click import argument

from comal import raquet
from comal.cli import options
from comal.cli.app import Group
from comal.cli.options import Style, choice, flag, option, together, whole
from comal.cli.output import done, human_size, print_fields, print_result, working, write_file
from comal.errors import InvalidInputError, counted


@click.group(
    "raquet",
    cls=Group,
    removed={
        "add-bands": "comal convert STACK.vrt OUT, with a stack by 'gdalbuildvrt -separate'",
        "check": "comal check X... --statistics",
        "repair": "comal check X --repair OUT",
    },
)
def group() -> None:
    """RaQuet: make and query rasters that are Parquet tables of tiles.

    $ comal raquet create dem.tif dem.parquet  # convert a raster
    $ comal raquet export dem.parquet dem.tif  # and back, as a COG
    $ comal raquet point dem.parquet 11.5 48.1  # the values at a place
    $ comal raquet zonal dem.parquet fields.parquet --stat mean  # a mean for every field
    $ comal raquet sql dem.parquet 'SELECT count(*) FROM raster'  # query it
    """


_band_option = option(
    "--band",
    "Only this band; repeatable.",
    multiple=True,
    callback=options.listed,
    metavar="NAME",
    to="bands",
)

_zoom_option = whole("--zoom", "Zoom whose tiles to use; the finest by default.", 0, 26)

_step_option = whole("--step", "Time step of a time series, counted from 0.", 0, to="time")

_stat_option = option(
    "--stat",
    "Only this statistic; repeatable: count, sum, mean, min, max, range, variance,"
    " stddev (of the population), stddev_sample, median, p10 (or any percent), majority,"
    " minority, variety.",
    multiple=True,
    default=("count", "sum", "mean", "min", "max", "stddev"),
    metavar="NAME",
    to="stats",
)


_RESAMPLING = (
    *("nearest", "bilinear", "cubic", "cubicspline", "lanczos", "average", "mode"),
    *("max", "min", "med", "q1", "q3"),
)
_OVERVIEWS = ("average", "mode", "nearest", "min", "max")


raster_options = together(
    choice("--spec-version", ["0.1.0", "0.5.0"], "Version of RaQuet to write.", default="0.1.0"),
    whole("--zoom", "Zoom of the full resolution.", 0, 26),
    choice(
        "--zoom-strategy",
        ["auto", "lower", "upper"],
        "Take the zoom nearest to the resolution, or the coarser or finer one.",
        default="auto",
    ),
    whole("--min-zoom", "Zoom of the coarsest overview to make.", 0, 26),
    choice(
        "--resampling",
        _RESAMPLING,
        "How pixels are resampled to the grid; a raster that lies on it is copied.",
        default="nearest",
    ),
    choice(
        "--overview-resampling",
        _OVERVIEWS,
        "How overviews are made; by default average, or mode for colour tables.",
    ),
    option("--block-size", "Side of a tile in pixels, 16 to 4096.", type=int, default=256),
    option(
        "--band",
        "Only this band, by number or name, optionally renamed; repeatable.",
        multiple=True,
        metavar="[NAME=]BAND",
        to="bands",
    ),
    option(
        "--nodata",
        "Nodata value: a number, nan, or none to let none be chosen.",
        metavar="VALUE",
    ),
    option("--crs", "CRS of a raster that has none, such as EPSG:32618."),
    option("--variable", "Variable of a NetCDF, HDF5 or Zarr file, unless named as GDAL does."),
    choice(
        "--compression",
        ["gzip", "none", "jpeg", "webp"],
        "Compression of tiles; JPEG and WebP are lossy and need 0.5.0 and the interleaved layout.",
        default="gzip",
    ),
    whole("--level", "Level of gzip, 1 to 12; 0 is fastest.", 0, 12, default=3),
    whole("--quality", "Quality of JPEG and WebP.", 1, 100, default=85),
    choice(
        "--layout",
        ["sequential", "interleaved"],
        "A column for each band, or one for the pixels of all bands (0.5.0).",
        default="sequential",
    ),
    flag("--tile-statistics", "Statistics of each tile as columns (0.5.0)."),
    whole("--row-group-size", "Tiles per row group, 64 or more.", 1),
    choice(
        "--block-dtype", ["uint64", "int64"], "Type of the column of tile ids.", default="uint64"
    ),
)
"""How rasters become RaQuet."""


@group.command()
@argument("sources", nargs=-1, required=True, metavar="RASTER...")
@argument("output", metavar="OUTPUT")
@raster_options
@option(
    "--time",
    "Time of each raster, in the same order; rasters become the steps of a time series.",
    multiple=True,
    callback=options.listed,
    to="time",
)
@options.by_workers
@options.writing
def create(style: Style, /, sources: tuple[str, ...], output: str, **named: Any) -> None:
    """Write RASTER, or several as a mosaic, to OUTPUT as RaQuet.

    A raster that lies on the pixel grid of a Web Mercator zoom is copied; any other is warped.

    $ comal raquet create dem.tif dem.parquet --resampling bilinear  # convert a raster
    $ comal raquet create a.tif b.tif both.parquet  # two rasters as one; the first on top
    $ comal raquet create s2.tif s2.parquet --band red=4 --band nir=8  # two bands, named
    $ comal raquet create old.tif new.parquet --crs EPSG:32618  # a raster that has no CRS
    $ comal raquet create tmmx.nc tmmx.parquet --variable air_temperature  # one variable
    $ comal raquet create photo.tif photo.parquet --spec-version 0.5.0
      --layout interleaved --compression webp
      # pictures as tiles
    """
    source: Any = sources[0] if len(sources) == 1 and not named["time"] else list(sources)
    with working(f"converting {sources[0]}", style) as progress:
        made = raquet.write(source, output, progress=progress, **raster_choices(**named))
    low, high = made.min_zoom, made.max_zoom
    zooms = f"zoom {low}" if low == high else f"zooms {low} to {high}"
    text = f"{output}: {counted(made.tiles, 'tile')} of {zooms}, {human_size(made.size)}"
    done(made.to_dict(), style, text + _padding(made))


def raster_choices(
    *, bands: tuple[str, ...], nodata: str | None, compression: str, **named: Any
) -> dict[str, Any]:
    """The values of `raster_options` as `comal.raquet.write` takes them."""
    return {
        **named,
        "bands": _chosen_bands(bands),
        "nodata": nodata if nodata in {None, "none"} else _number(str(nodata)),
        "compression": None if compression == "none" else compression,
    }


def _padding(made: raquet.Written) -> str:
    """The alpha band or nodata values that comal added to mark pixels without a value."""
    if made.added_alpha is not None:
        return f"\nband {made.added_alpha!r} was added: 0 where the raster has no pixel"
    return "".join(
        f"\nnodata {value} was chosen for {name}: tiles reach beyond the raster, "
        "and no pixel has it"
        for name, value in made.chosen_nodata.items()
    )


def _chosen_bands(given: tuple[str, ...]) -> Any:
    if not any("=" in one for one in given):
        return [options.number_or_name(one) for one in given] or None
    named = {}
    for one in given:
        name, _, band = one.partition("=")
        if not (name and band):
            raise click.BadParameter(
                f"{one!r} is not NAME=BAND; name all bands or none", param_hint="--band"
            )
        named[name] = options.number_or_name(band)
    return named


def _number(text: str) -> int | float:
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a number", param_hint="--nodata") from error


@group.command()
@argument("source", metavar="X")
@argument("output", metavar="OUTPUT")
@_zoom_option
@option("--bbox", "Only this box, in degrees.", type=options.BBOX)
@_band_option
@_step_option
@flag("--plain", "A GeoTIFF without overviews instead of a COG.")
@choice(
    "--compression",
    ["deflate", "zstd", "lzw", "lerc", "none"],
    "Compression of a GeoTIFF.",
    default="deflate",
)
@whole("--size", "Longest side of a PNG in pixels.", 16, 8192, default=512)
@options.writing
def export(
    style: Style, /, source: str, output: str, *, size: int, plain: bool, **named: Any
) -> None:
    """Write X as OUTPUT: a COG when its name ends in .tif, a picture when it ends in .png.

    Without --step, every step of a time series becomes a band.

    $ comal raquet export dem.parquet dem.tif  # the whole raster as a COG
    $ comal raquet export dem.parquet part.tif --bbox 11,48,12,49  # a part of it
    $ comal raquet export sst.parquet june.tif --step 5  # one step of a time series
    $ comal raquet export dem.parquet dem.png --size 1024  # a picture
    """
    suffix = Path(output).suffix.lower()
    if suffix == ".png":
        picture = raquet.preview(source, size=size, bands=named["bands"], time=named["time"])
        write_file(output, picture, source, overwrite=named["overwrite"])
        done({"output": output, "size": len(picture)}, style, f"{output}: written")
        return
    if suffix not in {".tif", ".tiff"}:
        raise InvalidInputError("unknown kind of file", found=output, expected=".tif or .png")
    write = raquet.to_geotiff if plain else raquet.to_cog
    with working(f"exporting {source}", style) as progress:
        made = write(source, output, progress=progress, **named)
    told = f"{made.width} x {made.height} pixels of zoom {made.zoom}"
    done(made.to_dict(), style, f"{output}: {told}, {human_size(made.size)}")


@group.command()
@argument("source", metavar="X")
@argument("folder")
@whole("--zoom", "Zoom of the cells that become a part each.", 0, 26)
@whole("--target-mb", "Size of a part in MB, if no zoom is given.", 1, default=128)
@options.negative("--no-overviews", "overviews", "Leave out tiles coarser than the cells.")
@options.writing
def partition(style: Style, /, source: str, folder: str, *, target_mb: int, **named: Any) -> None:
    """Write X to FOLDER as parts, each a whole RaQuet file called z6_33_22.parquet.

    $ comal raquet partition dem.parquet dem/  # parts of some 128 MB
    $ comal raquet partition dem.parquet dem/ --zoom 6  # a part for each cell of zoom 6
    """
    with working(f"cutting {source}", style) as progress:
        size = target_mb << 20
        made = raquet.partition(source, folder, target_size=size, progress=progress, **named)
    summary = {"folder": folder, "parts": [one.to_dict() for one in made]}
    done(summary, style, f"{folder}: {counted(len(made), 'part')}")


@group.command()
@argument("parts", nargs=-1, required=True, metavar="PART...")
@option("-o --output", "The file to write.", required=True, metavar="FILE")
@options.writing
def merge(style: Style, /, parts: tuple[str, ...], output: str, **named: Any) -> None:
    """Write the PARTs of a raster, or all that a folder holds, as one file.

    $ comal raquet merge dem/ -o dem.parquet  # all parts in a folder
    $ comal raquet merge z6_33_22.parquet z6_34_22.parquet -o two.parquet  # two of them
    """
    folder = len(parts) == 1 and (Path(parts[0]).is_dir() or parts[0].endswith("/"))
    with working(f"merging {parts[0]}", style) as progress:
        of = parts[0] if folder else list(parts)
        made = raquet.merge(of, output, progress=progress, **named)
    text = f"{output}: {counted(made.tiles, 'tile')}, {human_size(made.size)}"
    done(made.to_dict(), style, text)


@group.command()
@options.query_options
def sql(style: Style, source: str, query: str, *, as_csv: bool, untrusted: bool | None) -> None:
    """Run one SELECT over the tiles of X.

    The table raster holds the tiles of the finest zoom, tiles their index without pixels,
    overviews the tiles of all other zooms, and metadata one row. Only SELECT is allowed; it can
    read neither files nor addresses.

    $ comal raquet sql dem.parquet 'SELECT block, z, x, y FROM tiles'  # what tiles there are
    $ comal raquet sql dem.parquet 'SELECT ST_RasterSummaryStats(b1, metadata).mean FROM raster'
      # the mean of each tile
    $ comal raquet sql dem.parquet 'SELECT block FROM read_raquet_at($$raster$$, 11, 48)'
      # the tile at a place
    """
    table = raquet.sql(source, query, isolated=options.is_isolated(source, untrusted=untrusted))
    print_result(table, as_json=style.json, as_csv=as_csv)


@group.command()
@options.source
@argument("zones")
@_band_option
@_stat_option
@_zoom_option
@_step_option
@choice(
    "--method",
    ("centre", "all_touched", "fractional"),
    "Count pixels whose centre is inside, all that are touched, or each by its share inside.",
    default="centre",
)
@option(
    "--keep", "Also print this column of the zones; repeatable.", multiple=True, metavar="COLUMN"
)
@option("--layer", "Layer of a GeoPackage that has several.", metavar="NAME")
@options.as_csv
@options.pass_style
def zonal(style: Style, /, source: str, zones: str, *, as_csv: bool, **named: Any) -> None:
    """Compute statistics of the valid pixels of X within each zone of ZONES.

    ZONES is a GeoParquet, GeoJSON or GeoPackage file; convert other formats to GeoPackage.

    $ comal raquet zonal dem.parquet fields.parquet  # a line for each field, as CSV
    $ comal raquet zonal dem.parquet fields.parquet --stat mean --keep name --json
      # means with the names of the fields
    $ comal raquet zonal dem.parquet fields.geojson --keep name  # zones of a GeoJSON file
    $ comal raquet zonal rain.parquet basins.parquet --method fractional  # by exact areas
    $ comal raquet zonal cover.parquet fields.parquet --stat majority --stat variety
      # the most frequent class, and how many there are
    """
    with working(f"zones of {source}", style) as progress:
        table = raquet.zonal(source, zones, progress=progress, **named)
    print_result(table, as_json=style.json, as_csv=as_csv)


@group.command()
@options.source
@_band_option
@_stat_option
@_zoom_option
@_step_option
@options.as_csv
@options.pass_style
def stats(style: Style, /, source: str, *, as_csv: bool, **named: Any) -> None:
    """Compute statistics of every band of X from its pixels.

    Nodata pixels, NaN and the padding of edge tiles do not count. In a band without a nodata
    value, padding can be told from pixels only in files that comal wrote.

    $ comal raquet stats dem.parquet  # all bands at full resolution
    $ comal raquet stats dem.parquet --zoom 6 --stat mean --json  # of an overview
    $ comal raquet stats dem.parquet --stat p2 --stat median --stat p98  # quantiles
    """
    with working(f"statistics of {source}", style) as progress:
        table = raquet.statistics(source, progress=progress, **named)
    print_result(table, as_json=style.json, as_csv=as_csv)


@group.command(context_settings={"ignore_unknown_options": True})
@options.source
@argument("lon", type=click.FloatRange(-180, 180))
@argument("lat", type=click.FloatRange(-90, 90))
@_band_option
@_zoom_option
@_step_option
@flag("--scaled", "Physical values: pixel x scale + offset.")
@options.pass_style
def point(
    style: Style, /, source: str, lon: float, lat: float, *, bands: list[str] | None, **named: Any
) -> None:
    """Print the value of each band of X at LON LAT, in degrees; nothing where there is none.

    $ comal raquet point dem.parquet 11.5 48.1  # longitude, then latitude
    $ comal raquet point dem.parquet -122.4 37.7 --json  # as one JSON object
    """
    import numpy as np  # noqa: PLC0415 - help needs none of it

    with raquet.open(source) as file:
        names = bands or list(file.metadata.band_names)
        values = [file.point(lon, lat, [name], masked=True, **named) for name in names]
    fields = {
        name: None if np.ma.getmaskarray(value)[0] else value[0].item()
        for name, value in zip(names, values, strict=True)
    }
    print_fields(fields, style)


@group.command()
@options.source
@options.pass_style
def inspect(style: Style, source: str) -> None:
    """Print the metadata of X, as the row with block 0 holds it.

    $ comal raquet inspect dem.parquet  # the document of the metadata row, indented
    $ comal raquet inspect dem.parquet --json  # as it stands there, on one line
    """
    with raquet.open(source) as file:
        text = file.documents()[0]
    # The document is indented, and otherwise unchanged.
    click.echo(text if style.json else json.dumps(json.loads(text), indent=2))
