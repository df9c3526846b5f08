"""Reading the document of a RaQuet file, in every known form.

Versions 0.1.0 and 0.2.0 are flat, 0.3.0 and later are nested. The form decides, not the version:
the earliest files have no version.
"""

from __future__ import annotations

import marshal
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from comal import strictjson
from comal.errors import InvalidMetadataError, Problem, UnsupportedVersionError, shown
from comal.grid.mercator import lonlat_to_xy
from comal.limits import DEFAULT_LIMITS, KIB, Limits
from comal.raquet import spec
from comal.raquet.spec import Band, BandStatistics, Bounds, Metadata, Number
from comal.raster.values import whole_nodata


class Fields:
    """One object of a document; nested objects record their problems in the same list."""

    def __init__(
        self, values: Mapping[str, Any], place: str, problems: list[Problem] | None = None
    ) -> None:
        self.values = values
        self.place = place
        self._separator = ": " if problems is None else "."
        self.problems: list[Problem] = [] if problems is None else problems

    @property
    def has_errors(self) -> bool:
        """Whether an error was recorded; the document is unusable then."""
        return any(problem.severity == "error" for problem in self.problems)

    def wrong(self, code: str, key: str, message: str) -> None:
        """Record an error."""
        self.problems.append(Problem(code, self._at(key), message))

    def doubt(self, code: str, key: str, message: str) -> None:
        """Record a warning."""
        self.problems.append(Problem(code, self._at(key), message, "warning"))

    def inside(self, key: str) -> Fields:
        """The object at `key`; an empty one if there is none."""
        value = self.values.get(key)
        found = value if isinstance(value, Mapping) else {}
        return Fields(found, self._at(key), self.problems)

    def element(self, key: str, index: int, values: Mapping[str, Any]) -> Fields:
        """An object that is an element of the list at `key`."""
        return Fields(values, f"{self._at(key)}[{index}]", self.problems)

    def rest(self, known: Collection[str]) -> dict[str, Any]:
        """The entries whose keys are not in `known`."""
        return {key: value for key, value in self.values.items() if key not in known}

    def whole(
        self,
        key: str,
        *,
        least: int = 0,
        below: int = 1 << 64,
        code: str | None = None,
        needed: bool = True,
    ) -> int | None:
        """A whole number from `least` to below `below`, even if written as 256.0; else None.

        With `code` and `needed`, anything else is an error that makes the document unusable;
        otherwise it is a warning and counts as missing.
        """
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value < below:
            return value
        note = self.wrong if code and needed else self.doubt
        note(
            code or "raquet-number",
            key,
            f"{shown(value)} is not a whole number of at least {least}",
        )
        return None

    def number(self, key: str) -> Number | None:
        """A finite number; anything else is a warning and counts as missing."""
        value: Number | None = self._typed(key, int | float, "raquet-number", "not a number")
        if value is None or math.isfinite(value):
            return value
        self.doubt("raquet-number", key, f"{shown(value)} is not a number")
        return None

    def real(self, key: str) -> float | None:
        """The same as `number`, as a float."""
        value = self.number(key)
        return None if value is None else float(value)

    def text(self, key: str) -> str | None:
        """A text; None if it is empty."""
        return self._typed(key, str, "raquet-text", "not text") or None

    def flag(self, key: str) -> bool | None:
        """True or false; anything else is a warning and counts as missing."""
        found: bool | None = self._typed(key, bool, "raquet-flag", "neither true nor false")
        return found

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """An object; anything else is a warning and counts as missing."""
        found: Mapping[str, Any] | None = self._typed(
            key, Mapping, "raquet-object", "not an object"
        )
        return found

    def _typed(self, key: str, kind: Any, code: str, what: str) -> Any:
        value = self.values.get(key)
        is_flag = isinstance(value, bool)
        if value is None or (isinstance(value, kind) and is_flag == (kind is bool)):
            return value
        self.doubt(code, key, f"{shown(value)} is {what}")
        return None

    def choice(
        self, key: str, allowed: Collection[str | None], code: str, default: Any = None
    ) -> Any:
        """One of `allowed`; anything else is an error."""
        value = self.values.get(key, default)
        value = default if value is None else value
        if (value is None or isinstance(value, str)) and value in allowed:
            return value
        names = ", ".join(str(one) for one in allowed)
        self.wrong(code, key, f"{shown(value)} is not one of {names}")
        return default

    def _at(self, key: str) -> str:
        return f"{self.place}{self._separator}{key}" if key else self.place


FLAT_STATISTICS: Mapping[str, Callable[[Fields, str], Any]] = {
    "min": Fields.number,
    "max": Fields.number,
    "mean": Fields.real,
    "stddev": Fields.real,
    "sum": Fields.number,
    "sum_squares": Fields.number,
    "count": Fields.whole,
}
"""Numbers of ``stats`` (flat form); `BandStatistics` has the same names."""
NESTED_STATISTICS: Mapping[str, tuple[str, Callable[[Fields, str], Any]]] = {
    "STATISTICS_MINIMUM": ("min", Fields.number),
    "STATISTICS_MAXIMUM": ("max", Fields.number),
    "STATISTICS_MEAN": ("mean", Fields.real),
    "STATISTICS_STDDEV": ("stddev", Fields.real),
    "STATISTICS_VALID_PERCENT": ("valid_percent", Fields.real),
}
"""Keys of a band (nested form), and their names in `BandStatistics`."""
BAND: Mapping[str, Callable[[Fields, str], Any]] = {
    "description": Fields.text,
    "unit": Fields.text,
    "scale": Fields.real,
    "offset": Fields.real,
    "histogram": Fields.mapping,
    "source_band": partial(Fields.whole, least=1),
}
"""Keys of a band that have the same name in both forms and in `Band`."""
_BAND_KNOWN = frozenset(
    {"name", "type", "nodata", "colorinterp", "colortable", "stats", *BAND, *NESTED_STATISTICS}
)
_STATISTICS_KNOWN = frozenset(
    {"quantiles", "top_values", "approximated_stats", "version", *FLAT_STATISTICS}
)
_NONE = frozenset({"", "none", "null"})
_MOST_DIGITS = 400


_same: dict[bytes, tuple[Band, ...]] = {}
"""The bands that were read last: the files of one raster declare the same ones."""


def bands_of(root: Fields) -> tuple[Band, ...]:
    """The bands of a document; `root` records their problems."""
    found, before = root.values.get("bands"), len(root.problems)
    # Unlike `==` of the values, their bytes tell 1, 1.0 and true apart.
    stored = marshal.dumps((found, root.values.get("nodata")), 2)
    if (same := _same.get(stored)) is not None:
        return same
    if not isinstance(found, list) or not found:
        root.wrong("raquet-bands", "bands", "no bands")
        return ()
    bands: list[Band] = []
    for index, one in enumerate(found):
        fields = _fields(root, index, one)
        if fields is not None and (band := _band(fields, _root_nodata(root, index))) is not None:
            bands.append(band)
    for name, count in sorted(Counter(band.name for band in bands).items()):
        if count > 1:
            root.wrong("raquet-band-name", "bands", f"several bands are named {shown(name)}")
    if len(root.problems) == before and len(stored) < 64 * KIB:
        _same.clear()
        _same[stored] = tuple(bands)
    return tuple(bands)


def _fields(root: Fields, index: int, one: object) -> Fields | None:
    """A band as an object; early files of the DuckDB extension hold pairs of name and type."""
    if isinstance(one, list) and len(one) == 2:
        one = {"name": one[0], "type": one[1]}
    if isinstance(one, Mapping):
        return root.element("bands", index, one)
    root.wrong("raquet-bands", "bands", f"band {index} is not an object")
    return None


def _root_nodata(root: Fields, index: int) -> Any:
    """The nodata value of the file (flat form), or that of the band if it is a list."""
    value = root.values.get("nodata")
    if isinstance(value, list):
        return value[index] if index < len(value) else None
    return value


def _band(fields: Fields, root_nodata: Any) -> Band | None:
    name, dtype = fields.values.get("name"), fields.values.get("type")
    if not isinstance(name, str) or not name or name in spec.RESERVED:
        fields.wrong("raquet-band-name", "name", f"{shown(name)} is not a band name")
        return None
    if not isinstance(dtype, str) or dtype not in spec.DTYPES:
        fields.wrong("raquet-band-type", "type", f"{shown(dtype)} is not a pixel type of RaQuet")
        return None
    colour = fields.text("colorinterp")
    return Band(
        name=name,
        dtype=dtype,
        nodata=_nodata(fields, root_nodata, dtype),
        colorinterp=None if colour is None else colour.lower(),
        colortable=_colortable(fields),
        statistics=_statistics(fields),
        **{key: read(fields, key) for key, read in BAND.items()},
        extra=fields.rest(_BAND_KNOWN),
    )


def _nodata(fields: Fields, root_nodata: Any, dtype: str) -> Number | None:
    for value in (fields.values.get("nodata"), root_nodata):
        if value is None or (isinstance(value, str) and value.strip().lower() in _NONE):
            continue
        number = parse_nodata(value, dtype)
        if number is None:
            fields.wrong("raquet-nodata", "nodata", f"{shown(value)} is not a number")
        return number
    padded = np.dtype(dtype).kind == "f" and spec.PADDING.items() <= fields.values.items()
    return math.nan if padded else None


def parse_nodata(value: object, dtype: str) -> Number | None:
    """A nodata value of a document as the number to compare with pixels of `dtype`.

    Integers of any size stay exact. Returns None if the value is not a number.
    """
    number = _parsed(value.strip()) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return whole_nodata(number, dtype)


def _parsed(text: str) -> Number | None:
    if len(text) > _MOST_DIGITS or "_" in text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _colortable(fields: Fields) -> dict[int, tuple[int, int, int, int]] | None:
    found = fields.mapping("colortable")
    if not found:
        return None
    table: dict[int, tuple[int, int, int, int]] = {}
    for key, value in found.items():
        colour = _colour(value)
        if colour is None or not (key.isascii() and key.isdigit() and len(key) < 8):
            fields.doubt(
                "raquet-colortable", "colortable", f"{shown(key)}: {shown(value)} is not a colour"
            )
            continue
        table[int(key)] = colour
    return table or None


def _colour(value: object) -> tuple[int, int, int, int] | None:
    if not isinstance(value, list) or len(value) not in {3, 4}:
        return None
    parts = [int(one) for one in value if isinstance(one, int | float) and 0 <= one <= 255]
    if len(parts) != len(value):
        return None
    red, green, blue, alpha = (*parts, 255)[:4]
    return red, green, blue, alpha


def _statistics(band: Fields) -> BandStatistics | None:
    """Statistics: the object ``stats`` in the flat form, keys of the band in the nested form."""
    if band.mapping("stats") is None:
        return _nested_statistics(band)
    stats = band.inside("stats")
    return BandStatistics(
        **{key: read(stats, key) for key, read in FLAT_STATISTICS.items()},
        quantiles=_quantiles(stats),
        top_values=_top_values(stats),
        approximated=stats.flag("approximated_stats"),
        version=stats.text("version"),
        extra=stats.rest(_STATISTICS_KNOWN),
    )


def _nested_statistics(band: Fields) -> BandStatistics | None:
    if not any(key.startswith("STATISTICS_") for key in band.values):
        return None
    return BandStatistics(
        **{name: read(band, key) for key, (name, read) in NESTED_STATISTICS.items()}
    )


def _quantiles(stats: Fields) -> dict[str, tuple[Number, ...]] | None:
    found = stats.mapping("quantiles")
    if found is None:
        return None
    kept: dict[str, tuple[Number, ...]] = {}
    lists = {list}.issuperset(map(type, found.values()))
    right = lists and _are_numbers(list(chain.from_iterable(found.values())))
    for key, values in found.items():
        if right or (isinstance(values, list) and _are_numbers(values)):
            kept[key] = tuple(values)
        else:
            stats.doubt("raquet-quantiles", "quantiles", f"{shown(key)} is not a list of numbers")
    return kept


def _top_values(stats: Fields) -> dict[str, int] | None:
    found = stats.mapping("top_values")
    if found is None:
        return None
    right = _are_numbers(found.values())
    kept = {
        key: int(value)
        for key, value in found.items()
        if (right or _is_number(value)) and value >= 0
    }
    if len(kept) < len(found):
        stats.doubt("raquet-top-values", "top_values", "some counts are not numbers")
    return kept


def _are_numbers(values: Collection[Any]) -> bool:
    """Whether all are finite numbers; fast, since a document has hundreds."""
    return {int, float}.issuperset(map(type, values)) and all(map(math.isfinite, values))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?")
_TILE_MATRIX_SET = "WebMercatorQuad"
_FARTHEST = 1e6
"""Larger than any plausible bound in degrees."""

_KEYS = (
    "version file_format compression compression_quality band_layout block_width block_height"
    " block_resolution minresolution maxresolution pixel_resolution num_blocks num_pixels nodata"
    " bounds bounds_crs center crs width height bands tiling tile_matrix_set time tile_statistics"
    " tile_statistics_columns custom processing"
)
_KNOWN = frozenset(_KEYS.split())
"""Keys that the model holds in a field or derives from one."""


def parse_metadata(text: str | bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> Metadata:
    """Read the document.

    Parameters
    ----------
    text
        The column ``metadata`` of the row whose block is 0.
    where
        Name of the file in errors.
    limits
        Caps on the size and depth of the document.

    Raises
    ------
    InvalidMetadataError
        The text is not JSON, or values that pixels depend on are wrong: types, compression, block
        size, zooms, bounds, names. Its `problems` list all of them.
    UnsupportedVersionError
        The file has a newer major version, or a grid other than Web Mercator.
    LimitExceededError
        The document is larger or deeper than the limits.
    """
    document, tokens = read_document(text, where, limits)
    root = Fields(document, where)
    if tokens:
        root.doubt("raquet-json-token", "", f"the number {tokens[0]} is not valid JSON")
    _check_generation(document, where)
    metadata = _metadata(root)
    if metadata is None:
        errors = (one.message for one in root.problems if one.severity == "error")
        raise InvalidMetadataError(
            "the RaQuet metadata are not valid",
            where=where,
            found=next(errors),
            problems=root.problems,
        )
    return metadata


def read_document(
    text: str | bytes, where: str, limits: Limits = DEFAULT_LIMITS
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The document as plain data, and its number tokens that Python accepts but JSON does not.

    Raises
    ------
    InvalidMetadataError, LimitExceededError
        As for `comal.strictjson.loads`.
    """
    tokens: list[str] = []

    def constant(token: str) -> float:
        tokens.append(token)
        return float(token)

    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return strictjson.loads(data, f"{where}: metadata", limits, constant=constant), tuple(tokens)


def _check_generation(document: Mapping[str, Any], where: str) -> None:
    version = document.get("version")
    major, minor = 0, 0
    if isinstance(version, str) and (match := _VERSION.fullmatch(version)):
        major, minor = int(match[1]), int(match[2])
    if major > 0:
        raise UnsupportedVersionError(
            "this version of RaQuet is too new",
            where=where,
            found=f"metadata version {shown(version)}",
            expected="0.x",
        )
    grid = document.get("tile_matrix_set", _TILE_MATRIX_SET)
    if grid not in {_TILE_MATRIX_SET, None}:
        raise UnsupportedVersionError(
            "the grid of the RaQuet file is not Web Mercator",
            where=where,
            found=f"tile_matrix_set {shown(grid)} in version {major}.{minor}",
            expected=_TILE_MATRIX_SET,
        )


def _metadata(root: Fields) -> Metadata | None:
    """The model; None if `root` has recorded errors."""
    nested = isinstance(root.values.get("tiling"), Mapping)
    version = _version(root)
    if nested:
        _check_names(root)
    tiling = root.inside("tiling") if nested else root
    width, height = _block(tiling)
    zooms = _zooms(root, tiling, nested=nested)
    bounds = _bounds(root)
    compression = root.choice("compression", spec.COMPRESSIONS, "raquet-compression")
    layout = root.choice("band_layout", spec.LAYOUTS, "raquet-layout", spec.SEQUENTIAL)
    bands = bands_of(root)
    _check_coding(root, compression, layout, bands)
    if zooms is None or bounds is None or root.has_errors:
        return None
    return Metadata(
        version=version,
        compression=compression,
        quality=root.whole("compression_quality", least=1),
        layout=layout,
        block_width=width,
        block_height=height,
        min_zoom=zooms[0],
        max_zoom=zooms[1],
        num_blocks=tiling.whole("num_blocks"),
        bounds=bounds,
        width=_size(root, "width", bounds, zooms[1], width),
        height=_size(root, "height", bounds, zooms[1], height),
        bands=bands,
        time=root.mapping("time"),
        tile_statistics=_tile_statistics(root),
        custom=root.mapping("custom") or {},
        processing=root.mapping("processing") or {},
        extra=root.rest(_KNOWN),
        nested=nested,
        problems=tuple(root.problems),
    )


def _version(root: Fields) -> str | None:
    version = root.values.get("version")
    if version is None:
        root.doubt("raquet-version-missing", "version", "the version is missing")
        return None
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        root.wrong("raquet-version", "version", f"{shown(version)} is not a version")
        return None
    return version


def _check_names(root: Fields) -> None:
    """RaQuet 0.3.0 to 0.5.0: keys with a fixed value."""
    fixed = (
        (root, "file_format", "raquet"),
        (root, "crs", "EPSG:3857"),
        (root, "bounds_crs", "EPSG:4326"),
        (root.inside("tiling"), "scheme", "quadbin"),
    )
    for fields, key, expected in fixed:
        found = fields.values.get(key, expected)
        if not isinstance(found, str) or found.lower() != expected.lower():
            fields.wrong("raquet-grid", key, f"{shown(found)} is not {expected}")


def _block(tiling: Fields) -> tuple[int, int]:
    sizes = []
    for key in ("block_width", "block_height"):
        size = tiling.whole(key, code="raquet-block-size")
        if size is None or size % spec.BLOCK_STEP or not 0 < size <= spec.MAX_BLOCK:
            tiling.wrong(
                "raquet-block-size",
                key,
                f"{shown(tiling.values.get(key))} is not a multiple of {spec.BLOCK_STEP}"
                f" up to {spec.MAX_BLOCK}",
            )
            size = spec.BLOCK_STEP
        sizes.append(size)
    return sizes[0], sizes[1]


def _zooms(root: Fields, tiling: Fields, *, nested: bool) -> tuple[int, int] | None:
    """Minimum and maximum zoom.

    In a document with the keys of both forms, some tool has changed the flat keys and left the
    nested ones as they were.
    """
    low = root.whole("minresolution", code="raquet-zooms")
    high = root.whole("maxresolution", code="raquet-zooms")
    if high is None:
        high = root.whole("block_resolution", code="raquet-zooms")
    if nested:
        low = tiling.whole("min_zoom", code="raquet-zooms") if low is None else low
        high = tiling.whole("max_zoom", code="raquet-zooms") if high is None else high
    if high is None:
        root.wrong("raquet-zooms", "", "the maximum zoom is missing")
        return None
    low = high if low is None else low
    if not 0 <= low <= high <= spec.MAX_ZOOM:
        root.wrong(
            "raquet-zooms", "", f"zooms {low} to {high} are not a range within 0 to {spec.MAX_ZOOM}"
        )
        return None
    return low, high


def _bounds(root: Fields) -> Bounds | None:
    found = root.values.get("bounds")
    if isinstance(found, list) and len(found) == 4 and all(map(_is_number, found)):
        west, south, east, north = (float(one) for one in found)
        if -_FARTHEST < west < east < _FARTHEST and -_FARTHEST < south < north < _FARTHEST:
            return west, south, east, north
    root.wrong("raquet-bounds", "bounds", f"{shown(found, 100)} are not valid bounds")
    return None


def _size(root: Fields, key: str, bounds: Bounds, zoom: int, block: int) -> int:
    """Width or height; derived from the bounds if it is missing."""
    # Pixels can be read without it, so only a check reports an error.
    size = root.whole(key, least=1, below=1 << 63, code="raquet-size", needed=False)
    if size is not None:
        return size
    world = block << zoom
    west, south, east, north = bounds
    share = (east - west) / 360
    if key == "height":
        _, (top, bottom) = lonlat_to_xy([0, 0], [north, south], 0)
        share = bottom - top
    return max(1, round(share * world))


def _check_coding(root: Fields, compression: Any, layout: Any, bands: Any) -> None:
    """RaQuet 0.4.0: lossy tiles are uint8 images, and interleaved bands have one type."""
    types = {band.dtype for band in bands}
    if layout == spec.INTERLEAVED and len(types) > 1:
        root.wrong("raquet-layout", "bands", "interleaved bands have several types")
    allowed = spec.LOSSY_BANDS.get(compression)
    if allowed is None:
        return
    if layout != spec.INTERLEAVED or types - {"uint8"} or len(bands) not in allowed:
        root.wrong(
            "raquet-compression",
            "compression",
            f"{compression} cannot hold {len(bands)} {layout} bands of {', '.join(sorted(types))}",
        )


def _tile_statistics(root: Fields) -> tuple[str, ...]:
    """RaQuet 0.5.0: kinds of statistics that tiles have."""
    if root.values.get("tile_statistics") is not True:
        return ()
    kinds = root.values.get("tile_statistics_columns")
    if kinds is None:
        return spec.STATISTICS
    if isinstance(kinds, list) and all(kind in spec.STATISTICS for kind in kinds):
        return tuple(dict.fromkeys(kinds))
    root.doubt("raquet-tile-statistics", "tile_statistics_columns", "some kinds are not known")
    return ()
