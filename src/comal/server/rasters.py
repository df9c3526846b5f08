"""RaQuet: tiles as pictures, values at points, statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from comal.errors import ComalError, InvalidInputError, NotThisFormatError, shown
from comal.geo import boxes
from comal.geo.boxes import validate_bbox
from comal.grid import mercator, quadbin
from comal.limits import MIB
from comal.parallel import cached_property
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.windows import Grid
from comal.raquet.spec import Band
from comal.raster.values import colour_table, default_bands, drawn_range, rgb_bands
from comal.server.http import Headers, crc_etag
from comal.server.items import bbox_of, histogram
from comal.server.render import (
    MEDIA_TYPES,
    Expression,
    Look,
    RenderOptions,
    bands_of,
    evaluated,
    render,
)
from comal.server.requests import Address, Query, Request, Route, parse_address
from comal.server.responses import (
    Content,
    Refusal,
    Response,
    bad_request,
    content_response,
    json_response,
    not_found,
    plain,
)
from comal.server.runtime import Runtime, check_wanted
from comal.server.sources import LOOK, TILES, ServedSource, file_name, only, tile_meets

EXTENSIONS = ("png", "webp", "jpg", "npy")
_MOST_COLOURS = 65_536
_SHOWN_COLOURS = 256
_VALUES = ("bidx", "expression", "nodata", "time")
_COUNTED = (*_VALUES, "bbox", "bins")
_MOST_STEPS = 2_000


def serve(
    name: str, title: str, reader: Any, kind: str, runtime: Runtime, version: str
) -> RasterSource:
    """A RaQuet file."""
    if not isinstance(reader, RaquetFile):
        raise NotThisFormatError("not a reader of rasters", where=kind, found=type(reader).__name__)
    return RasterSource(name, title or file_name(reader.href), reader, runtime, version)


class RasterSource(ServedSource):
    """A raster under a name."""

    kind: ClassVar[str] = "raster"
    format = "raquet"

    def __init__(
        self, name: str, title: str, file: RaquetFile, runtime: Runtime, version: str
    ) -> None:
        super().__init__(name, title, runtime, version)
        self.file = file

    # -- documents ---------------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """Name, extent, zooms."""
        metadata, name = self.file.metadata, self.name
        return {
            "name": name,
            "title": self.title,
            "description": None,
            "format": self.format,
            "kind": self.kind,
            "bounds": list(self.file.bounds),
            "minzoom": metadata.min_zoom,
            "maxzoom": metadata.max_zoom,
            "attribution": None,
            "tile_type": "raster",
            "tilesize": metadata.block_width,
            "media_types": {ext: MEDIA_TYPES[ext] for ext in EXTENSIONS},
            "links": {
                "self": name,
                "tilejson": f"{name}.json",
                "tiles": f"{name}/{{z}}/{{x}}/{{y}}.png",
                "point": f"{name}/point/{{lon}},{{lat}}",
                "statistics": f"{name}/statistics",
            },
        }

    async def details(self) -> dict[str, Any]:
        """Bands, and the default look of tiles."""
        metadata = self.file.metadata
        look = await self.runtime.run(lambda: self.look)
        return {
            "version": metadata.version,
            "width": metadata.width,
            "height": metadata.height,
            "crs": self.file.crs,
            "tiles": {
                "template": f"{self.name}/{{z}}/{{x}}/{{y}}{{scale}}.{{ext}}",
                "extensions": list(EXTENSIONS),
                "scales": [1, 2],
            },
            "bands": [_band_document(n, band) for n, band in enumerate(self.file.bands, 1)],
            "defaults": {
                "bidx": list(look.bidx),
                "rescale": [list(pair) for pair in look.rescale],
                "colormap_name": None,
            },
            "time": self._times(),
            "python": (
                "from comal import raquet\n\n"
                f"raster = raquet.open({self.title!r})\n"
                "window = raster.read(masked=True)"
            ),
        }

    def _times(self) -> dict[str, Any] | None:
        times = self.file.times
        if times is None:
            return None
        stamps = [None if np.isnat(one) else f"{one}Z" for one in times.stamps[:_MOST_STEPS]]
        return {
            "count": len(times),
            "values": stamps,
            "units": times.units,
            "calendar": times.calendar,
        }

    def tilejson(self, request: Request) -> dict[str, Any]:
        """TileJSON 3.0; rendering parameters become part of the tile URL."""
        ext = request.query.text("ext") or "png"
        if ext not in EXTENSIONS:
            raise not_found("there is no such format")
        self._params(request)
        parameters = [pair for pair in request.query.pairs if pair[0] in LOOK]
        address = request.link(f"{self.name}/{{z}}/{{x}}/{{y}}.{ext}", parameters)
        metadata = self.file.metadata
        west, south, east, north = self.file.bounds
        lon = west + float(boxes.arc_width(west, east)) / 2
        return {
            "tilejson": "3.0.0",
            "tiles": [address],
            "name": self.title,
            "scheme": "xyz",
            "minzoom": metadata.min_zoom,
            "maxzoom": metadata.max_zoom,
            "bounds": boxes.unturned(self.file.bounds),
            "center": [lon - 360 * (lon > 180), (south + north) / 2, metadata.min_zoom],
            "tileSize": metadata.block_width,
        }

    # -- what is shown -----------------------------------------------------------------------------

    @cached_property
    def look(self) -> Look:
        """The default look of tiles."""
        bands = self.file.bands
        colours = [band.colorinterp for band in bands]
        bidx = default_bands(colours)
        if not rgb_bands(colours) and any(bands[number - 1].dtype != "uint8" for number in bidx):
            bidx = bidx[:1]
        chosen = [bands[number - 1] for number in bidx]
        if bidx[0] in self.tables:
            return Look(bidx, (), self.tables[bidx[0]])
        if all(band.dtype == "uint8" for band in chosen):
            return Look(bidx, ())
        return Look(bidx, tuple(self._range(number) for number in bidx))

    @cached_property
    def tables(self) -> dict[int, npt.NDArray[np.uint8]]:
        """RGBA by value of the bands that have colours of their own."""
        numbered = enumerate(self.file.bands, 1)
        return {number: _table_of(band) for number, band in numbered if band.colortable}

    def _range(self, number: int) -> tuple[float, float]:
        """Values that become black and white: 2 and 98 percent of an overview, else the limits."""
        found = sampled_range(self.file, number)
        if found is not None and found[0] < found[1]:
            return found
        statistics = self.file.bands[number - 1].statistics
        if statistics is not None and statistics.min is not None and statistics.max is not None:
            low, high = float(statistics.min), float(statistics.max)
            if math.isfinite(low) and math.isfinite(high) and low < high:
                return low, high
        return (0.0, 1.0) if found is None else drawn_range(*found)

    def _params(self, request: Request) -> RenderOptions:
        return RenderOptions.of(request.query, len(self.file.bands))

    def _step(self, text: str | None) -> Any:
        """The time step that a parameter names; the first by default."""
        if self.file.times is None:
            if text is not None:
                raise InvalidInputError("the raster has no time steps")
            return None
        if text is None:
            return 0
        if len(text) <= 9 and text.isascii() and text.isdigit():
            return int(text)
        return text

    # -- tiles -------------------------------------------------------------------------------------

    async def tile(self, request: Request, address: Address) -> Response:
        """One tile as a picture or as an array."""
        if address.ext not in MEDIA_TYPES:
            raise not_found("there is no such format")
        ext = "jpg" if address.ext == "jpeg" else address.ext
        params = self._params(request)
        if address.scale > 2:
            raise not_found("there is no such scale")
        self._check_there(address, params)

        async def made() -> bytes:
            return await self.runtime.run(self._rendered, address, ext, params)

        body = await self.runtime.once(self._key(address, ext, params), made)
        return self._drawn(body, ext, request.headers)

    def local_response(self, parts: Sequence[str], headers: Headers) -> Response | None:
        """The answer for a cached tile in the default look."""
        try:
            address = parse_address(*parts[1:])
        except Refusal:
            return None
        body = self.runtime.cache.get(self._key(address, address.ext, self._usual))
        if body is None:
            return None
        self.runtime.hits += 1
        return self._drawn(body, address.ext, headers)

    def _key(self, address: Address, ext: str, params: RenderOptions) -> tuple[Any, ...]:
        return self.name, self.version, address, ext, params

    @cached_property
    def _usual(self) -> RenderOptions:
        """The options of a request without a query."""
        return RenderOptions.of(Query(()), len(self.file.bands))

    def _drawn(self, body: bytes, ext: str, headers: Headers) -> Response:
        crc = crc32(body)
        content = Content(
            MEDIA_TYPES[ext].encode(),
            crc_etag(crc),
            len(body),
            body=body,
            headers=self.cache_control,
            crc=crc,
        )
        return content_response(content, headers)

    def _check_there(self, address: Address, params: RenderOptions) -> None:
        file = self.file
        metadata = file.metadata
        z, x, y = address.z, address.x, address.y
        if not metadata.min_zoom <= z <= metadata.max_zoom:
            raise not_found("there are no tiles of this zoom")
        if file.has_tile(z, x, y, time=self._step(params.time)):
            return
        if self.runtime.settings.missing == 204 and tile_meets(z, x, y, file.everything()):
            raise Refusal(204, "no-tile", None, self.cache_control)
        raise not_found("there is no such tile", self.cache_control)

    def _rendered(self, address: Address, ext: str, params: RenderOptions) -> bytes:
        look = self.look
        if len(params.bidx) == 1 and params.bidx[0] in self.tables:
            look = Look(params.bidx, (), self.tables[params.bidx[0]])
        bands = bands_of(params, look)
        pixels = self._pixels(address, bands, params)
        scales = [
            (self.file.bands[number - 1].scale or 1.0, self.file.bands[number - 1].offset or 0.0)
            for number in bands
        ]
        return render(pixels, params, look, ext, scales=scales)

    def _pixels(self, address: Address, bands: tuple[int, ...], params: RenderOptions) -> Any:
        """Pixels of the tile; at scale 2 those of its four children, or its own doubled."""
        file, step = self.file.with_nodata(params.nodata), self._step(params.time)
        z, x, y = address.z, address.x, address.y
        if address.scale == 1:
            return file.tile(z, x, y, bands, time=step, masked=True)
        if z < file.metadata.max_zoom:
            children = [(z + 1, 2 * x + dx, 2 * y + dy) for dy in (0, 1) for dx in (0, 1)]
            four = file.tiles(children, bands, time=step, masked=True)
            joined: Any = np.ma.concatenate  # numpy has no type for it
            upper, lower = (joined(four[n : n + 2], axis=2) for n in (0, 2))
            return joined([upper, lower], axis=1)
        own = file.tile(z, x, y, bands, time=step, masked=True)
        return own.repeat(2, axis=1).repeat(2, axis=2)

    # -- values ------------------------------------------------------------------------------------

    async def _point(self, request: Request, rest: Sequence[str]) -> Response:
        (text,) = only(rest, 1)
        lon, lat = _lonlat(text)
        params = self._params(request)
        metadata = self.file.metadata
        zoom = request.query.whole("zoom", metadata.max_zoom, 0, 26)
        if not metadata.min_zoom <= zoom <= metadata.max_zoom:
            raise bad_request(f"zoom must be from {metadata.min_zoom} to {metadata.max_zoom}")
        formula, bands = self._asked(params)
        found = await self.file.with_nodata(params.nodata).point_async(
            lon, lat, list(bands), zoom=zoom, time=self._step(params.time), masked=True
        )
        names = names_of(self.file, bands, formula)
        pixels, valid = evaluated(found, formula)
        values = [
            plain(one.item()) if has else None for one, has in zip(pixels, valid, strict=True)
        ]
        document = {"coordinates": [lon, lat], "values": values, "band_names": names, "zoom": zoom}
        return json_response(document, headers=self.cache_control)

    def _asked(self, params: RenderOptions) -> tuple[Expression | None, tuple[int, ...]]:
        """The formula of a request, and the bands that it needs: all by default."""
        formula = params.formula()
        every = tuple(range(1, len(self.file.bands) + 1))
        return formula, formula.bands if formula else params.bidx or every

    async def _sampled(self, request: Request, params: RenderOptions) -> Sample:
        bbox = bbox_of(request.query) or self.file.everything()
        formula, bands = self._asked(params)
        step = self._step(params.time)
        file = self.file.with_nodata(params.nodata)
        return await self.runtime.run(sample, file, bands, bbox, step, formula)

    async def _statistics(self, request: Request, rest: Sequence[str]) -> Response:
        only(rest, 0)
        params = self._params(request)
        bins = request.query.whole("bins", 10, 1, 512)
        found = await self._sampled(request, params)
        document = {
            "bbox": list(found.bbox),
            "zoom": found.zoom,
            "exact": found.exact,
            "statistics": {
                name: counts_of(values, found.pixels, bins)
                for name, values in zip(found.names, found.values, strict=True)
            },
        }
        return json_response(document, headers=self.cache_control)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    routes: ClassVar[tuple[Route, ...]] = (
        *TILES,
        Route("/{source}/point/{lon},{lat}", "Values at a point", _point, query=(*_VALUES, "zoom")),
        Route("/{source}/statistics", "Statistics of a box", _statistics, query=_COUNTED),
    )


def _table_of(band: Band) -> npt.NDArray[np.uint8]:
    table = band.colortable
    assert table, "the caller has looked"
    size = min(_MOST_COLOURS, max(256, max(table) + 1))
    return colour_table(table, size)


def _band_document(number: int, band: Band) -> dict[str, Any]:
    table = band.colortable
    return {
        "index": number,
        "name": band.name,
        "description": band.description,
        "dtype": band.dtype,
        "nodata": plain(band.nodata),
        "unit": band.unit,
        "scale": plain(band.scale),
        "offset": plain(band.offset),
        "colorinterp": band.colorinterp,
        "has_colortable": bool(table),
        "colortable": _colour_documents(table) if table else None,
        **{
            name: plain(getattr(band.statistics, name, None))
            for name in ("min", "max", "mean", "stddev")
        },
    }


def _colour_documents(table: Any) -> list[dict[str, Any]]:
    return [
        {"value": value, "color": "#" + bytes(colour).hex()}
        for value, colour in sorted(table.items())[:_SHOWN_COLOURS]
    ]


def _lonlat(text: str) -> tuple[float, float]:
    try:
        lon, lat = (float(part) for part in text.split(","))
    except ValueError as error:
        raise bad_request("a point must be longitude,latitude in degrees") from error
    if not (-180 <= lon <= 180 and -90 <= lat <= 90):
        raise InvalidInputError("a point must be longitude,latitude in degrees", found=shown(text))
    return lon, lat


# -- statistics ------------------------------------------------------------------------------------


_MOST_PIXELS = 4_194_304
"""Pixels of one band that are read: 64 tiles of 256 x 256."""
_MOST_VALUES = 8 * _MOST_PIXELS
"""Pixels of all bands together."""
_RANGE_PIXELS = 1_048_576
_BATCH_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of a box."""

    bbox: tuple[float, ...]
    zoom: int
    exact: bool
    """Whether this is the finest zoom."""
    names: tuple[str, ...]
    values: list[npt.NDArray[Any]]
    """The valid values of each band or formula."""
    pixels: int
    """Number of pixels in the box."""


@dataclass(frozen=True, slots=True)
class _Cover:
    """The existing tiles of a zoom in a box, and the pixels of the box."""

    grid: Grid
    span: tuple[int, int, int, int]
    x: npt.NDArray[np.int64]
    y: npt.NDArray[np.int64]

    @classmethod
    def of(cls, file: RaquetFile, zoom: int, box: Sequence[float]) -> _Cover:
        metadata = file.metadata
        grid = Grid(zoom, metadata.block_width, metadata.block_height)
        column, row, width, height = span = grid.span(box)
        cells, side = file.cells(zoom), 1 << zoom
        top, bottom = row // grid.block_height, (row + height - 1) // grid.block_height
        # Columns of a box across the antimeridian continue after the last one of the world.
        first, last = column // grid.block_width, (column + width - 1) // grid.block_width
        if (last - first + 1) * (bottom - top + 1) < len(cells):
            across, down = np.unique(np.arange(first, last + 1) % side), np.arange(top, bottom + 1)
            x, y = (one.ravel() for one in np.meshgrid(across, down))
            wanted = quadbin.cells(zoom, x, y)
            at = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
            inside = cells[at] == wanted
        else:
            _, x, y = quadbin.tiles(cells)
            inside = ((x >= first) & (x <= last)) | (x + side <= last)
            inside &= (y >= top) & (y <= bottom)
        return cls(grid, span, x[inside], y[inside])

    @property
    def pixels(self) -> int:
        """Number of pixels of all these tiles."""
        return len(self.x) * self.grid.block_width * self.grid.block_height

    def parts(self, at: int) -> Iterator[tuple[slice, slice]]:
        """Rows and columns of a tile that are in the box."""
        column, row, width, height = self.span
        left, top = (
            int(self.x[at]) * self.grid.block_width,
            int(self.y[at]) * self.grid.block_height,
        )
        rows = slice(max(0, row - top), min(self.grid.block_height, row + height - top))
        for turn in (0, self.grid.width):
            start, stop = column - left - turn, column + width - left - turn
            if start < self.grid.block_width and stop > 0:
                yield rows, slice(max(0, start), min(self.grid.block_width, stop))


def _cover_for(file: RaquetFile, box: Sequence[float], most: int) -> _Cover:
    """The tiles of the finest zoom whose existing tiles in the box have at most `most` pixels.

    At the coarsest zoom they may have more.
    """
    metadata = file.metadata
    block = metadata.block_width * metadata.block_height
    west, south, east, north = file.everything()
    whole = box[0] <= west < east <= box[2] and box[1] <= south and box[3] >= north
    for zoom in range(metadata.max_zoom, metadata.min_zoom, -1):
        if whole and len(file.cells(zoom)) * block > most:
            continue
        cover = _Cover.of(file, zoom, box)
        if cover.pixels <= most:
            return cover
    return _Cover.of(file, metadata.min_zoom, box)


def sample(
    file: RaquetFile,
    bands: Sequence[int],
    bbox: Sequence[float],
    step: Any,
    formula: Expression | None = None,
    most: int = _MOST_PIXELS,
    *,
    some: bool = False,
) -> Sample:
    """Values of bands, or of formulas over them, within a box.

    Memory is bounded by a batch of existing tiles and by the values that are kept; the size of
    the box does not matter.
    """
    box = tuple(validate_bbox(bbox))
    names = names_of(file, bands, formula)
    most = min(most, _MOST_VALUES // max(len(names), len(bands)))
    cover = _cover_for(file, box, most)
    _, _, width, height = cover.span
    step_by = max(1, -(-cover.pixels // most))
    if step_by > 1 and not some:
        raise _too_large(cover, most)
    chosen = range(0, len(cover.x), step_by)
    kept: list[list[npt.NDArray[Any]]] = [[] for _ in names]
    zoom = cover.grid.zoom
    for batch in _batches(file, len(bands), chosen):
        check_wanted()
        tiles = [(zoom, int(cover.x[at]), int(cover.y[at])) for at in batch]
        found = file.tiles(tiles, list(bands), time=step, masked=True)
        for at, pixels in zip(batch, found, strict=True):
            for rows, columns in cover.parts(at):
                data, valid = evaluated(pixels[:, rows, columns], formula)
                for values_of, plane, has in zip(kept, data, valid, strict=True):
                    values_of.append(plane[has])
    values = [np.concatenate(some) if some else np.empty(0) for some in kept]
    return Sample(box, zoom, zoom == file.metadata.max_zoom, names, values, width * height)


def names_of(file: RaquetFile, bands: Sequence[int], formula: Expression | None) -> tuple[str, ...]:
    """The names of bands, or of formulas over them."""
    if formula is not None:
        return formula.texts
    return tuple(file.bands[number - 1].name for number in bands)


def _batches(file: RaquetFile, count: int, chosen: range) -> Iterator[range]:
    metadata = file.metadata
    size = max(np.dtype(band.dtype).itemsize for band in file.bands)
    tile = metadata.block_width * metadata.block_height * size * count
    step = max(1, _BATCH_BYTES // tile)
    for start in range(0, len(chosen), step):
        yield chosen[start : start + step]


def _too_large(cover: _Cover, most: int) -> Refusal:
    tiles = max(1, most // (cover.grid.block_width * cover.grid.block_height))
    zoom, side = cover.grid.zoom, math.isqrt(tiles)
    x, y = int(cover.x.min()), int(cover.y.min())
    west, north = mercator.xy_to_lonlat(x, y, zoom)
    east, south = mercator.xy_to_lonlat(x + side, y + side, zoom)
    box = ",".join(f"{edge:.9g}" for edge in (west, south, east, north))
    return Refusal(
        422,
        "limit-exceeded",
        f"the box has {len(cover.x)} tiles at zoom {zoom}, the coarsest; ask for a bbox with at"
        f" most {tiles}, such as bbox={box}",
    )


def sampled_range(file: RaquetFile, number: int) -> tuple[float, float] | None:
    """2 and 98 percent of a band, from an overview, or its extremes; None without any value."""
    step = None if file.times is None else 0
    try:
        found = sample(file, [number], file.everything(), step, most=_RANGE_PIXELS, some=True)
    except ComalError:
        return None  # a broken tile; the intact ones are still shown
    values = found.values[0].astype(np.float64)
    if not len(values):
        return None
    low, high = (float(edge) for edge in np.percentile(values, (2, 98)))
    if low < high:
        return low, high
    return float(values.min()), float(values.max())


def counts_of(values: npt.NDArray[Any], pixels: int, bins: int) -> dict[str, Any]:
    """Statistics with the names of titiler; all None when no pixel is valid."""
    valid = values.astype(np.float64)
    document: dict[str, Any] = {
        "valid_pixels": len(valid),
        "masked_pixels": pixels - len(valid),
        "valid_percent": round(100 * len(valid) / pixels, 2) if pixels else 0.0,
        "count": len(valid),
    }
    names = ("min", "max", "mean", "std", "sum", "median", "percentile_2", "percentile_98")
    if not len(valid):
        return document | dict.fromkeys(names) | {"histogram": None}
    low, median, high = np.percentile(valid, (2, 50, 98))
    counts, edges = histogram(valid, bins)
    # Extremes in the type of the band, as floats do not hold all 64 bits.
    numbers = (values.min(), values.max(), valid.mean(), valid.std(), valid.sum())
    found = [number.item() for number in (*numbers, median, low, high)]
    numbers_of_bins = [counts.tolist(), edges.tolist()]
    return document | dict(zip(names, found, strict=True)) | {"histogram": numbers_of_bins}
