"""What a tile shall look like: the parameters of a request, named as in titiler."""

from __future__ import annotations

import math
from dataclasses import dataclass

from comal.errors import InvalidInputError, shown
from comal.server.render.expressions import Expression, parse_expression
from comal.server.requests import Query

MEDIA_TYPES = {
    "png": "image/png",
    "webp": "image/webp",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "npy": "application/x-npy",  # as tiles of this kind are called where they are stored
}
ALGORITHMS = {"terrarium": "terrarium", "terrainrgb": "terrainrgb", "mapbox": "terrainrgb"}
PARAMETERS = (
    "bidx",
    "expression",
    "rescale",
    "colormap_name",
    "nodata",
    "return_mask",
    "algorithm",
    "nodata_height",
    "time",
)
_MOST_BANDS = 64


@dataclass(frozen=True, slots=True)
class Params:
    """The look of a tile; equal ones are one key of the cache."""

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
    def of(cls, query: Query, band_count: int) -> Params:
        """The parameters of a request, each checked.

        Raises
        ------
        InvalidInputError, Refusal
            One that cannot be used.
        """
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

    @property
    def is_plain(self) -> bool:
        """Whether nothing is said, so that the tile looks as the source says."""
        return not (self.bidx or self.expression or self.rescale or self.colormap_name)


def bidx_of(query: Query, count: int) -> tuple[int, ...]:
    """Numbers of bands, counted from 1: ``bidx=1&bidx=2``, or ``bidx=1,2``.

    Raises
    ------
    InvalidInputError
        A number of no band.
    """
    found = []
    for text in query.all("bidx"):
        for part in text.split(","):
            digits = part.strip()
            if not (digits.isascii() and digits.isdigit() and len(digits) <= 5):
                raise InvalidInputError("bidx is the number of a band", found=shown(part))
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
    """``0,1`` as it is; ``[[0,1],[0,2]]``, as some clients send it, as its pairs."""
    bare = text.replace("[", "").replace("]", "")
    numbers = bare.split(",")
    if len(numbers) % 2 or len(numbers) > 2 * _MOST_BANDS:
        raise InvalidInputError("rescale is min,max", found=shown(text))
    return [",".join(numbers[at : at + 2]) for at in range(0, len(numbers), 2)]


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(",")
    first, last = _number(low, "rescale"), _number(high, "rescale")
    if not first < last:
        raise InvalidInputError("rescale is min,max, and min is the lower", found=shown(text))
    return first, last


def _number(text: str, name: str, *, nan: bool = False) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInputError(f"{name} is a number", found=shown(text)) from error
    if not math.isfinite(value) and not (nan and math.isnan(value)):
        raise InvalidInputError(f"{name} is a finite number", found=shown(text))
    return value
