"""From pixels to pictures: parameters, expressions, colours, encoders."""

from __future__ import annotations

import ast
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, MissingExtraError, shown
from comal.raster.values import as_array, seen
from comal.server.requests import Query

MEDIA_TYPES = {
    "png": "image/png",
    "webp": "image/webp",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "npy": "application/x-npy",  # the type of stored tiles of this kind
}
ALGORITHMS = {"terrarium": "terrarium", "terrainrgb": "terrainrgb", "mapbox": "terrainrgb"}
_MOST_BANDS = 64


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """The look of a tile; part of the key of the cache."""

    bidx: tuple[int, ...] = ()
    expression: str | None = None
    rescale: tuple[tuple[float, float], ...] = ()
    colormap_name: str | None = None
    nodata: float | None = None
    return_mask: bool = True
    algorithm: str | None = None
    nodata_height: float = 0.0
    time: str | None = None

    @classmethod
    def of(cls, query: Query, band_count: int) -> RenderOptions:
        """The checked parameters of a request."""
        algorithm = query.text("algorithm")
        if algorithm is not None and algorithm not in ALGORITHMS:
            raise InvalidInputError(
                "there is no such algorithm",
                found=shown(algorithm),
                expected=", ".join(ALGORITHMS),
            )
        expression = query.text("expression")
        if expression is not None:
            _check_bands(parse_expression(expression).bands, band_count)
        name = query.text("colormap_name")
        nodata = query.text("nodata")
        return cls(
            bidx_of(query, band_count),
            expression,
            tuple(_range(part) for text in query.all("rescale") for part in _pairs(text)),
            None if name is None else name.lower(),
            None if nodata is None else _number(nodata, "nodata", nan=True),
            query.flag("return_mask", default=True),
            None if algorithm is None else ALGORITHMS[algorithm],
            _number(query.text("nodata_height") or "0", "nodata_height"),
            query.text("time"),
        )

    def formula(self) -> Expression | None:
        """The expression, parsed."""
        return None if self.expression is None else parse_expression(self.expression)


def bidx_of(query: Query, count: int) -> tuple[int, ...]:
    """Numbers of bands, counted from 1: ``bidx=1&bidx=2``, or ``bidx=1,2``."""
    found = []
    for text in query.all("bidx"):
        for part in text.split(","):
            digits = part.strip()
            if not (digits.isascii() and digits.isdigit() and len(digits) <= 5):
                raise InvalidInputError(
                    "bidx must be the number of a band, counted from 1", found=shown(part)
                )
            found.append(int(digits))
    _check_bands(tuple(found), count)
    return tuple(found)


def _check_bands(numbers: tuple[int, ...], count: int) -> None:
    if len(numbers) > _MOST_BANDS:
        raise InvalidInputError("too many bands", expected=f"at most {_MOST_BANDS}")
    wrong = [number for number in numbers if not 1 <= number <= count]
    if wrong:
        raise InvalidInputError("there is no such band", found=wrong[0], expected=f"1 to {count}")


def _pairs(text: str) -> list[str]:
    """``0,1`` unchanged; the pairs of ``[[0,1],[0,2]]``, which some clients send."""
    bare = text.replace("[", "").replace("]", "")
    numbers = bare.split(",")
    if len(numbers) % 2 or len(numbers) > 2 * _MOST_BANDS:
        raise InvalidInputError("rescale must be min,max", found=shown(text))
    return [",".join(numbers[at : at + 2]) for at in range(0, len(numbers), 2)]


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(",")
    first, last = _number(low, "rescale"), _number(high, "rescale")
    if not first < last:
        raise InvalidInputError("rescale must be min,max with min below max", found=shown(text))
    return first, last


def _number(text: str, name: str, *, nan: bool = False) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInputError(f"{name} must be a number", found=shown(text)) from error
    if not math.isfinite(value) and not (nan and math.isnan(value)):
        raise InvalidInputError(f"{name} must be a finite number", found=shown(text))
    return value


Bytes = npt.NDArray[np.uint8]
_SHOWN = 16


def _maps() -> Any:
    try:
        from rio_tiler.colormap import cmap  # noqa: PLC0415 - optional, and half a second
    except ImportError as error:
        raise MissingExtraError.of("rio-tiler", "server", "a colour map") from error
    return cmap


@lru_cache(maxsize=64)
def colormap_table(name: str) -> Bytes:
    """RGBA of the 256 values of a colour map, shape (256, 4)."""
    maps = _maps()
    wanted = name.lower()
    # Names are looked up in a list: a client's text never becomes the name of a file.
    if wanted not in maps.list():
        raise InvalidInputError("there is no such colour map", found=shown(name))
    table = np.zeros((256, 4), np.uint8)
    colours = maps.get(wanted)
    if not isinstance(colours, Mapping):
        raise InvalidInputError("a colour map of intervals cannot be used", found=shown(name))
    for value, colour in colours.items():
        if 0 <= value < 256:
            table[value] = _with_alpha(colour)
    table.setflags(write=False)
    return table


def _with_alpha(colour: Any) -> tuple[int, int, int, int]:
    red, green, blue, *alpha = colour
    return red, green, blue, alpha[0] if alpha else 255


@lru_cache(maxsize=1)
def colormap_list() -> dict[str, Any]:
    """Every colour map with 16 of its colours, for people to choose from."""
    found = []
    for name in sorted(_maps().list()):
        try:
            table = colormap_table(name)
        except InvalidInputError:
            continue
        places = np.linspace(0, 255, _SHOWN).round().astype(int)
        colours = [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue, _ in table[places]]
        found.append({"name": name, "colors": colours})
    return {"colormaps": found}


Pixels = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_PNG_LEVEL = 1
"""Of zlib. Level 6 takes three times as long for some hundredths of the size."""
_PNG_STRATEGY = 3
"""Z_RLE: where rows are filtered, longer matches are rare. A third faster than the default of
Pillow, and no larger."""
_QUALITY = {"jpeg": 85, "webp": 80}
_GREYS = np.stack([*[np.arange(256)] * 3, np.full(256, 255)], axis=1).astype(np.uint8)
"""A palette that shows each number as that grey."""
_LUT_BITS = 16


@dataclass(frozen=True, slots=True)
class Picture:
    """Something to encode.

    Either `index` and `palette`, or `channels`.
    """

    valid: Mask | None
    """Visible pixels, shape (rows, columns); None if all are visible."""
    channels: Bytes | None = None
    """Shape (1 or 3, rows, columns)."""
    index: Bytes | None = None
    """Shape (rows, columns), indices into the palette."""
    palette: Bytes | None = None
    """RGBA, shape (256, 4)."""


# -- rescaling -------------------------------------------------------------------------------------


def rescaled(band: Pixels, low: float, high: float) -> Bytes:
    """Values from `low` to `high` as 0 to 255, rounded down; values outside are clipped.

    Integers of up to 16 bits go through a table, which gives the same values.
    """
    kind = band.dtype
    if kind.kind in "iu" and kind.itemsize * 8 <= _LUT_BITS:
        table = _rescale_table(kind.newbyteorder("=").str, low, high)
        unsigned = band.astype(kind.newbyteorder("="), copy=False).view(f"u{kind.itemsize}")
        result: Bytes = table[unsigned]
        return result
    return _scaled(band.astype(np.float64, copy=False), low, high)


@lru_cache(maxsize=64)
def _rescale_table(kind: str, low: float, high: float) -> Bytes:
    size = np.dtype(kind).itemsize
    values = np.arange(2 ** (8 * size), dtype=np.uint32).astype(f"u{size}").view(kind)
    return _scaled(values.astype(np.float64), low, high)


def _scaled(values: npt.NDArray[np.float64], low: float, high: float) -> Bytes:
    with np.errstate(invalid="ignore"):
        part = (np.clip(values, low, high) - low) / (high - low) * 255.0
    result: Bytes = np.nan_to_num(part).astype(np.uint8)
    return result


# -- terrain ---------------------------------------------------------------------------------------


def terrain(height: npt.NDArray[np.float64], algorithm: str) -> Bytes:
    """Heights in metres as red, green and blue, shape (3, rows, columns).

    ``terrarium``: height = red * 256 + green + blue / 256 - 32768.
    ``terrainrgb`` (of Mapbox): height = -10000 + (red * 65536 + green * 256 + blue) * 0.1.
    """
    if algorithm == "terrarium":
        # Steps of 1/256 m: whole metres in red and green, the fraction in blue.
        steps = np.floor((height + 32768.0) * 256.0)
    else:
        steps = np.round((height + 10000.0) * 10.0)
    whole = np.clip(steps, 0, 2**24 - 1).astype(np.uint32)
    return np.stack([whole >> 16, (whole >> 8) & 255, whole & 255]).astype(np.uint8)


# -- encoding --------------------------------------------------------------------------------------


def encode(picture: Picture, ext: str, *, lossless: bool = False) -> bytes:
    """The picture in a format: ``png``, ``webp``, ``jpg`` or ``jpeg``."""
    if ext in {"jpg", "jpeg"}:
        if lossless:
            raise InvalidInputError("terrain needs a lossless format", expected="png or webp")
        planes = _planes(picture, colour=True)
        if len(planes) == 4:  # invisible pixels are black, as in titiler
            planes = np.where(planes[3] == 0, np.uint8(0), planes[:3])
        return _saved(planes, "JPEG", quality=_QUALITY["jpeg"])
    if ext == "webp":
        planes = _planes(picture, colour=picture.valid is not None)
        if lossless:
            return _saved(planes, "WEBP", lossless=True, quality=0, exact=True)
        return _saved(planes, "WEBP", quality=_QUALITY["webp"], method=0)
    return _png(picture)


def npy(values: Pixels, valid: Mask | None) -> bytes:
    """Bands, followed by the mask as 0 and 255 if there is one, as an NPY file."""
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    if valid is not None:
        native = np.concatenate([native, (valid * np.uint8(255))[np.newaxis]])
    file = io.BytesIO()
    np.save(file, native, allow_pickle=False)
    return file.getvalue()


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingExtraError.of("pillow", "server", "a picture") from error
    return Image


def _png(picture: Picture) -> bytes:
    indexed, channels = picture, picture.channels
    if channels is not None and len(channels) == 1 and picture.valid is not None:
        indexed = Picture(picture.valid, None, channels[0], _GREYS)
    small = None if indexed.index is None else _palette_image(indexed)
    if small is not None:
        return small
    options = {"compress_level": _PNG_LEVEL, "compress_type": _PNG_STRATEGY}
    return _saved(_planes(picture), "PNG", **options)


def _palette_image(picture: Picture) -> bytes | None:
    """A PNG with a palette; None if no index is free for invisible pixels."""
    index, palette = picture.index, picture.palette
    assert index is not None, "the caller has looked"
    assert palette is not None, "an index has a palette"
    if picture.valid is not None and not picture.valid.all():
        used = np.bincount(index[picture.valid].ravel(), minlength=256)
        clear = np.flatnonzero((palette[:, 3] == 0) | (used == 0))
        if not len(clear):
            return None
        number = int(clear[0])
        index = np.where(picture.valid, index, np.uint8(number)).astype(np.uint8)
        palette = palette.copy()
        palette[number] = 0
    rows, columns = index.shape
    image = _pillow().frombytes("P", (columns, rows), index.tobytes())
    image.putpalette(palette[:, :3].tobytes(), "RGB")
    options: dict[str, Any] = {"compress_level": _PNG_LEVEL}
    alpha = palette[:, 3]
    if (alpha < 255).any():
        last = int(np.flatnonzero(alpha < 255)[-1])
        options["transparency"] = alpha[: last + 1].tobytes()
    return _written(image, "PNG", **options)


def _planes(picture: Picture, *, colour: bool = False) -> Bytes:
    """Channels to encode, shape (1 to 4, rows, columns): grey or colour, and alpha.

    There is alpha with a mask and with a palette; with `colour`, grey is repeated three times.
    """
    if picture.index is not None:
        assert picture.palette is not None, "an index has a palette"
        pixels = picture.palette[picture.index]
        if picture.valid is not None:
            pixels[~picture.valid] = 0
        return np.moveaxis(pixels, 2, 0)
    channels = picture.channels
    assert channels is not None, "a picture has an index or channels"
    if colour and len(channels) == 1:
        channels = np.repeat(channels, 3, axis=0)
    if picture.valid is None:
        return channels
    alpha = np.where(picture.valid, np.uint8(255), np.uint8(0))
    return np.concatenate([channels, alpha[np.newaxis]])


def _saved(planes: Bytes, form: str, **options: Any) -> bytes:
    mode = ("L", "LA", "RGB", "RGBA")[len(planes) - 1]
    rows, columns = planes.shape[1:]
    pixels = np.moveaxis(planes, 0, 2).tobytes()
    return _written(_pillow().frombytes(mode, (columns, rows), pixels), form, **options)


def _written(image: Any, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


@dataclass(frozen=True, slots=True)
class Look:
    """The default look of a source."""

    bidx: tuple[int, ...]
    rescale: tuple[tuple[float, float], ...]
    """A range per band; empty if values are shown unscaled."""
    table: npt.NDArray[np.uint8] | None = None
    """RGBA by value, if a single band is shown."""


def bands_of(params: RenderOptions, look: Look) -> tuple[int, ...]:
    """The bands that must be read, counted from 1."""
    formula = params.formula()
    if formula is not None:
        return formula.bands
    return params.bidx or look.bidx


def render(
    pixels: Any,
    params: RenderOptions,
    look: Look,
    ext: str,
    *,
    scales: Sequence[tuple[float, float]] = (),
) -> bytes:
    """A tile in a format, of the bands of `bands_of` in their order, as a masked array.

    Scale and offset of each band turn pixels into heights.
    """
    values, valid = evaluated(pixels, params.formula())
    shown = as_array(seen([None if band.all() else band for band in valid]), valid.shape[1:])
    if ext == "npy":
        return npy(values, shown if params.return_mask else None)
    if params.algorithm is not None:
        return _terrain(values, shown, params, ext, scales)
    picture = _picture(values, valid, params, look)
    if params.return_mask and not shown.all():
        hidden = picture.valid
        picture = replace(picture, valid=shown if hidden is None else shown & hidden)
    return encode(picture, ext)


def _picture(values: Pixels, valid: Mask, params: RenderOptions, look: Look) -> Picture:
    """The colours of all pixels; missing values become 0."""
    count = len(values)
    if count not in {1, 3}:
        raise InvalidInputError(
            "a picture needs one band or three", found=count, expected="bidx once or three times"
        )
    plain = params.expression is None and params.bidx in {(), look.bidx}
    if plain and look.table is not None and not (params.rescale or params.colormap_name):
        return _own_colours(values[0], look.table)
    ranges = _ranges(values, params, look, plain=plain)
    if ranges is None:
        channels = values.astype(np.uint8, copy=False)
    else:
        pairs = zip(values, ranges, strict=True)
        channels = np.stack([rescaled(band, *pair) for band, pair in pairs])
    if not valid.all():
        channels = np.where(valid, channels, np.uint8(0))
    if params.colormap_name is not None:
        if count != 1:
            raise InvalidInputError("a colour map needs one band", found=f"{count} bands")
        table = colormap_table(params.colormap_name)
        return Picture(None, None, channels[0], table)
    return Picture(None, channels)


def _own_colours(band: Pixels, table: npt.NDArray[np.uint8]) -> Picture:
    """A picture in the band's own colours; values without a colour are invisible."""
    inside = (band >= 0) & (band < len(table))
    index = np.where(inside, band, 0).astype(np.int64)
    if len(table) == 256:
        return Picture(None if inside.all() else inside, None, index.astype(np.uint8), table)
    pixels = table[index]
    visible = inside & (pixels[..., 3] > 0)
    channels = np.moveaxis(pixels[..., :3], 2, 0).copy()
    return Picture(None if visible.all() else visible, channels)


def _ranges(
    values: Pixels, params: RenderOptions, look: Look, *, plain: bool
) -> list[tuple[float, float]] | None:
    """A range per band; None for bytes that are shown unscaled."""
    count = len(values)
    given = params.rescale or (look.rescale if plain else ())
    if given:
        if len(given) not in {1, count}:
            raise InvalidInputError(
                "rescale must be given once, or once for each band", found=f"{len(given)} times"
            )
        return list(given) * (count if len(given) == 1 else 1)
    if values.dtype == np.uint8:
        return None
    raise InvalidInputError(
        "pixels of this type need rescale=min,max",
        found=f"{values.dtype}",
        expected="a range for the colours",
    )


def _terrain(
    values: Pixels,
    valid: Mask,
    params: RenderOptions,
    ext: str,
    scales: Sequence[tuple[float, float]],
) -> bytes:
    if len(values) != 1:
        raise InvalidInputError("terrain needs one band", found=f"{len(values)} bands")
    height = values[0].astype(np.float64)
    if params.expression is None and scales:
        factor, offset = scales[0]
        height = height * factor + offset
    height = np.where(valid, height, params.nodata_height)
    # Opaque: browsers drop the colours of transparent pixels, and with them the height.
    picture = Picture(None, terrain(height, str(params.algorithm)))
    return encode(picture, ext, lossless=True)


# -- formulas --------------------------------------------------------------------------------------


Floats = npt.NDArray[np.float64]
Step = Callable[[Mapping[int, Any]], Any]

_LONGEST = 500
_MOST_NODES = 200
_MOST_BLOCKS = 4
_BAND = re.compile(r"[bB]([1-9]\d{0,3})")

_OPERATORS: Mapping[type[ast.AST], Any] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
    ast.Mod: np.mod,
    ast.FloorDiv: np.floor_divide,
    ast.BitAnd: np.logical_and,
    ast.BitOr: np.logical_or,
    ast.USub: np.negative,
    ast.UAdd: np.positive,
    ast.Invert: np.logical_not,
    ast.Not: np.logical_not,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_OF_ONE = (
    *("sqrt", "abs", "exp", "log", "log10", "log1p"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan"),
)
_FUNCTIONS: Mapping[str, tuple[Any, int]] = {
    **{name: (getattr(np, name), 1) for name in _OF_ONE},
    "arctan2": (np.arctan2, 2),
    "floor": (np.floor, 1),
    "ceil": (np.ceil, 1),
    "min": (np.minimum, 2),
    "max": (np.maximum, 2),
    "where": (np.where, 3),
}
"""Functions of formulas by name, each with its number of arguments."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One or more formulas, separated by semicolons, each a band of the result."""

    texts: tuple[str, ...]
    bands: tuple[int, ...]
    """Bands that are used, ascending, counted from 1."""
    steps: tuple[Step, ...]

    def values(self, bands: Mapping[int, npt.NDArray[Any]]) -> Floats:
        """The formulas over bands of one shape (rows, columns); shape (formulas, rows, columns).

        Undefined results, such as a division by zero, are NaN or infinite.
        """
        some = next(iter(bands.values()))
        wide = {number: band.astype(np.float64) for number, band in bands.items()}
        with np.errstate(all="ignore"):
            found = [np.broadcast_to(step(wide), some.shape) for step in self.steps]
        return np.stack(found).astype(np.float64)


@lru_cache(maxsize=256)
def parse_expression(text: str) -> Expression:
    """Parse an expression."""
    if len(text) > _LONGEST:
        raise InvalidInputError(
            "the expression is too long", expected=f"at most {_LONGEST} characters"
        )
    texts = tuple(part.strip() for part in text.split(";") if part.strip())
    if not 1 <= len(texts) <= _MOST_BLOCKS:
        raise InvalidInputError("an expression must have one to four formulas, separated by ';'")
    bands: set[int] = set()
    steps = tuple(_step(_tree(one), bands) for one in texts)
    if not bands:
        raise InvalidInputError("the expression uses no band", found=shown(text))
    return Expression(texts, tuple(sorted(bands)), steps)


def evaluated(pixels: Any, formula: Expression | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Values of bands, or of formulas over them, and the mask of valid ones.

    A formula is valid where all of its bands are valid and the result is finite.
    """
    data, valid = np.ma.getdata(pixels), ~np.ma.getmaskarray(pixels)
    if formula is not None:
        data = formula.values(dict(zip(formula.bands, data, strict=True)))
        valid = valid.all(axis=0) & np.isfinite(data)
    return data, valid


def _tree(text: str) -> ast.expr:
    try:
        tree = ast.parse(text, mode="eval")
        count = sum(1 for _ in ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInputError("the expression cannot be understood", found=shown(text)) from error
    if count > _MOST_NODES:
        raise InvalidInputError(
            "the expression is too long", expected=f"at most {_MOST_NODES} parts"
        )
    return tree.body


def _step(node: ast.expr, bands: set[int]) -> Step:
    """The function that computes a node; adds the bands it uses to `bands`."""
    match node:
        case ast.Constant(value=bool() | int() | float()):
            return _constant(node.value)
        case ast.Name(id=name):
            return _band(name, bands)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _call(_OPERATORS[type(op)], [_step(operand, bands)])
        case (
            ast.BinOp(left=left, op=op, right=right)
            | ast.Compare(left=left, ops=[op], comparators=[right])
        ) if type(op) in _OPERATORS:
            return _call(_OPERATORS[type(op)], [_step(left, bands), _step(right, bands)])
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _function(name, args, bands)
    raise InvalidInputError(
        "the expression uses something that is not supported",
        found=shown(ast.unparse(node)),
        expected="numbers, bands (b1, b2, ...), + - * / ** % // & | ~, comparisons, "
        + ", ".join(_FUNCTIONS),
    )


def _constant(value: object) -> Step:
    try:
        number = np.float64(value)  # type: ignore[arg-type] # checked by the caller
    except OverflowError as error:
        raise InvalidInputError("a number in the expression is too large") from error
    return lambda _: number


def _band(name: str, bands: set[int]) -> Step:
    match = _BAND.fullmatch(name)
    if match is None:
        raise InvalidInputError(
            "the expression uses an unknown name", found=shown(name), expected="b1, b2, ..."
        )
    number = int(match[1])
    bands.add(number)
    return lambda values: values[number]


def _function(name: str, args: list[ast.expr], bands: set[int]) -> Step:
    function, count = _FUNCTIONS[name]
    if len(args) != count:
        raise InvalidInputError(f"{name} takes {count} values", found=len(args))
    return _call(function, [_step(arg, bands) for arg in args])


def _call(function: Any, steps: list[Step]) -> Step:
    return lambda values: function(*(step(values) for step in steps))
