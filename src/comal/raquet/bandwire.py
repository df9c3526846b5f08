"""Values of a JSON object from a stranger, and what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Any

import numpy as np

from comal.errors import Problem, shown
from comal.raquet import spec
from comal.raquet.spec import Band, BandStatistics, Number


class Fields:
    """One object of a document; objects inside it note their problems in the same list."""

    def __init__(
        self, values: Mapping[str, Any], place: str, problems: list[Problem] | None = None
    ) -> None:
        self.values = values
        self.place = place
        self._separator = ": " if problems is None else "."
        self.problems: list[Problem] = [] if problems is None else problems

    @property
    def has_errors(self) -> bool:
        """Whether anything was noted that makes the document useless."""
        return any(problem.severity == "error" for problem in self.problems)

    def wrong(self, code: str, key: str, message: str) -> None:
        """Note an error."""
        self.problems.append(Problem(code, self._at(key), message))

    def doubt(self, code: str, key: str, message: str) -> None:
        """Note a warning."""
        self.problems.append(Problem(code, self._at(key), message, "warning"))

    def inside(self, key: str) -> Fields:
        """The object at `key`; an empty one when there is none."""
        value = self.values.get(key)
        found = value if isinstance(value, Mapping) else {}
        return Fields(found, self._at(key), self.problems)

    def element(self, key: str, index: int, values: Mapping[str, Any]) -> Fields:
        """An object that is an element of the list at `key`."""
        return Fields(values, f"{self._at(key)}[{index}]", self.problems)

    def rest(self, known: Collection[str]) -> dict[str, Any]:
        """What stands under keys that are not known."""
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
        """A whole number from `least` to `below`, also if it is written as 256.0; else None.

        With `code`, anything else is an error that makes the document useless, if it is `needed`;
        else it is a warning and counts as missing.
        """
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value < below:
            return value
        note = self.wrong if code and needed else self.doubt
        note(code or "raquet-number", key, f"{shown(value)} is no whole number from {least} on")
        return None

    def number(self, key: str) -> Number | None:
        """A finite number; anything else is a warning and counts as missing."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and _finite(value):
            return value
        self.doubt("raquet-number", key, f"{shown(value)} is no number")
        return None

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        value = self.values.get(key)
        if value is None or value == "":
            return None
        if isinstance(value, str):
            return value
        self.doubt("raquet-text", key, f"{shown(value)} is no text")
        return None

    def flag(self, key: str) -> bool | None:
        """True or false; anything else is a warning and counts as missing."""
        value = self.values.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.doubt("raquet-flag", key, f"{shown(value)} is neither true nor false")
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
        self.wrong(code, key, f"{shown(value)} is none of {names}")
        return default

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """An object; anything else is a warning and counts as missing."""
        value = self.values.get(key)
        if value is None or isinstance(value, Mapping):
            return value
        self.doubt("raquet-object", key, f"{shown(value)} is no object")
        return None

    def _at(self, key: str) -> str:
        return f"{self.place}{self._separator}{key}" if key else self.place


def _finite(value: Number) -> bool:
    return isinstance(value, int) or math.isfinite(value)


_KNOWN = frozenset(
    {
        "name",
        "type",
        "nodata",
        "description",
        "unit",
        "scale",
        "offset",
        "colorinterp",
        "colortable",
        "stats",
        "histogram",
        "source_band",
        "STATISTICS_MINIMUM",
        "STATISTICS_MAXIMUM",
        "STATISTICS_MEAN",
        "STATISTICS_STDDEV",
        "STATISTICS_VALID_PERCENT",
    }
)
_STATISTICS_KNOWN = frozenset(
    {
        "count",
        "min",
        "max",
        "mean",
        "stddev",
        "sum",
        "sum_squares",
        "quantiles",
        "top_values",
        "approximated_stats",
        "version",
    }
)
_NOT_FINITE = {
    "nan": math.nan,
    "inf": math.inf,
    "infinity": math.inf,
    "+inf": math.inf,
    "+infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
}
_NONE = frozenset({"", "none", "null"})
_MOST_DIGITS = 400


def bands_of(root: Fields) -> tuple[Band, ...]:
    """The bands of a document; what is wrong with them is noted in `root`."""
    found = root.values.get("bands")
    if not isinstance(found, list) or not found:
        root.wrong("raquet-bands", "bands", "no bands")
        return ()
    bands: list[Band] = []
    for index, one in enumerate(found):
        fields = _fields(root, index, one)
        if fields is not None and (band := _band(fields, _root_nodata(root, index))) is not None:
            bands.append(band)
    names = [band.name for band in bands]
    twice = (
        {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()
    )
    for name in sorted(twice):
        root.wrong("raquet-band-name", "bands", f"two bands {shown(name)}")
    return tuple(bands)


def _fields(root: Fields, index: int, one: object) -> Fields | None:
    """A band as an object; early files of the DuckDB extension have pairs of name and type."""
    if isinstance(one, list) and len(one) == 2:
        one = {"name": one[0], "type": one[1]}
    if isinstance(one, Mapping):
        return root.element("bands", index, one)
    root.wrong("raquet-bands", "bands", f"band {index} is no object")
    return None


def _root_nodata(root: Fields, index: int) -> Any:
    """The value of the whole file (flat form), or that of the band in a list of them."""
    value = root.values.get("nodata")
    if isinstance(value, list):
        return value[index] if index < len(value) else None
    return value


def _band(fields: Fields, root_nodata: Any) -> Band | None:
    name, dtype = fields.values.get("name"), fields.values.get("type")
    if not isinstance(name, str) or not name or name in spec.RESERVED:
        fields.wrong("raquet-band-name", "name", f"{shown(name)} is no name of a band")
        return None
    if not isinstance(dtype, str) or dtype not in spec.DTYPES:
        fields.wrong("raquet-band-type", "type", f"{shown(dtype)} is no type of pixels")
        return None
    colour = fields.text("colorinterp")
    return Band(
        name=name,
        dtype=dtype,
        nodata=_nodata(fields, root_nodata, dtype),
        description=fields.text("description"),
        unit=fields.text("unit"),
        scale=_real(fields.number("scale")),
        offset=_real(fields.number("offset")),
        colorinterp=None if colour is None else colour.lower(),
        colortable=_colortable(fields),
        statistics=_statistics(fields),
        histogram=fields.mapping("histogram"),
        source_band=fields.whole("source_band", least=1),
        extra=fields.rest(_KNOWN),
    )


def _real(value: Number | None) -> float | None:
    return None if value is None else float(value)


def _nodata(fields: Fields, root_nodata: Any, dtype: str) -> Number | None:
    for value in (fields.values.get("nodata"), root_nodata):
        if value is None or (isinstance(value, str) and value.strip().lower() in _NONE):
            continue
        number = parse_nodata(value, dtype)
        if number is None:
            fields.wrong("raquet-nodata", "nodata", f"{shown(value)} is no number")
        return number
    padded = np.dtype(dtype).kind == "f" and spec.PADDING.items() <= fields.values.items()
    return math.nan if padded else None


def parse_nodata(value: object, dtype: str) -> Number | None:
    """A nodata value as it may be written, as the number that pixels of `dtype` are compared to.

    Integers stay exact at any size. None when it is no number.
    """
    number = value
    if isinstance(value, str):
        number = _parsed(value.strip())
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    if np.dtype(dtype).kind == "f":
        return _as_float(number)
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return number


def _as_float(number: Number) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _parsed(text: str) -> Number | None:
    special = _NOT_FINITE.get(text.lower())
    if special is not None:
        return special
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
            fields.doubt("raquet-colortable", "colortable", f"{shown(key)}: {shown(value)}")
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
    """Statistics: an object ``stats`` in the flat form, keys of the band in the nested one."""
    flat = band.mapping("stats")
    if flat is None:
        return _nested_statistics(band)
    stats = band.inside("stats")
    return BandStatistics(
        count=stats.whole("count"),
        min=stats.number("min"),
        max=stats.number("max"),
        mean=_real(stats.number("mean")),
        stddev=_real(stats.number("stddev")),
        sum=stats.number("sum"),
        sum_squares=stats.number("sum_squares"),
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
        min=band.number("STATISTICS_MINIMUM"),
        max=band.number("STATISTICS_MAXIMUM"),
        mean=_real(band.number("STATISTICS_MEAN")),
        stddev=_real(band.number("STATISTICS_STDDEV")),
        valid_percent=_real(band.number("STATISTICS_VALID_PERCENT")),
    )


def _quantiles(stats: Fields) -> dict[str, tuple[Number, ...]] | None:
    found = stats.mapping("quantiles")
    if found is None:
        return None
    lists = list(found.values())
    if {list}.issuperset(map(type, lists)) and _are_numbers(list(chain.from_iterable(lists))):
        return {key: tuple(values) for key, values in found.items()}
    kept: dict[str, tuple[Number, ...]] = {}
    for key, values in found.items():
        if isinstance(values, list) and _are_numbers(values):
            kept[key] = tuple(values)
        else:
            stats.doubt("raquet-quantiles", "quantiles", f"{shown(key)} is no list of numbers")
    return kept


def _top_values(stats: Fields) -> dict[str, int] | None:
    found = stats.mapping("top_values")
    if found is None:
        return None
    if _are_numbers(found.values()) and min(found.values(), default=0) >= 0:
        return {key: int(value) for key, value in found.items()}
    kept = {key: int(value) for key, value in found.items() if _is_number(value) and value >= 0}
    if len(kept) < len(found):
        stats.doubt("raquet-top-values", "top_values", "counts that are no numbers")
    return kept


def _are_numbers(values: Collection[Any]) -> bool:
    """Whether all are finite numbers; hundreds of them stand in a document."""
    return {int, float}.issuperset(map(type, values)) and all(map(math.isfinite, values))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
