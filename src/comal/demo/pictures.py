"""Pictures of samples: one of each, and all on one sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from comal.raster import open_raster
from comal.raster.pictures import encode_png

Array = np.ndarray[Any, Any]

_GAP = 14
_LABEL = 26
_PAPER = (250, 246, 239)
_INK = (70, 48, 28)

# Capitals of 5 by 7 points, a byte for each column with the top point in its lowest bit.
_GLYPHS = {
    "A": "7e1111117e", "B": "7f49494936", "C": "3e41414122", "D": "7f4141221c", "E": "7f49494941",
    "F": "7f09090901", "G": "3e4149497a", "H": "7f0808087f", "I": "00417f4100", "J": "2040413f01",
    "K": "7f08142241", "L": "7f40404040", "M": "7f020c027f", "N": "7f0408107f", "O": "3e4141413e",
    "P": "7f09090906", "Q": "3e4151215e", "R": "7f09192946", "S": "4649494931", "T": "01017f0101",
    "U": "3f4040403f", "V": "1f2040201f", "W": "3f4038403f", "X": "6314081463", "Y": "0708700807",
    "Z": "6151494543", "0": "3e5149453e", "1": "00427f4000", "2": "4261514946", "3": "2141454b31",
    "4": "1814127f10", "5": "2745454539", "6": "3c4a494930", "7": "0171090503", "8": "3649494936",
    "9": "064949291e", "-": "0808080808", "%": "2313086462", ".": "0060600000", "_": "4040404040",
    "/": "2010080402", ":": "0036360000",
}  # fmt: skip
"""What labels can hold; anything else is left blank."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of one sample."""

    label: str
    note: str
    rgb: Array
    """uint8, shape (3, height, width)."""

    def png(self) -> bytes:
        """The picture as a PNG file."""
        return encode_png(self.rgb)


def from_png(label: str, note: str, data: bytes) -> Picture:
    """A picture from a PNG; what is transparent becomes paper."""
    with open_raster(data) as dataset:
        pixels = dataset.read()
    if len(pixels) == 3:
        return Picture(label, note, pixels)
    alpha = pixels[3:4].astype(np.float64) / 255
    paper = np.array(_PAPER, dtype=np.float64)[:, None, None]
    rgb = np.asarray(np.round(pixels[:3] * alpha + paper * (1 - alpha)), dtype=np.uint8)
    return Picture(label, note, rgb)


def side_by_side(label: str, note: str, pictures: Sequence[Array]) -> Picture:
    """Pictures of one height as one."""
    return Picture(label, note, np.concatenate(pictures, axis=2))


def contact_sheet(
    pictures: Sequence[Picture],
    *,
    columns: int = 3,
    width: int = 420,
    legend: Sequence[tuple[str, tuple[int, int, int]]] = (),
) -> bytes:
    """All pictures with their labels on one sheet, as PNG.

    Parameters
    ----------
    pictures
        In reading order.
    columns
        How many stand in a row.
    width
        Pixels that each may take; the shapes of the pictures are kept.
    legend
        Words with their colours, for a line below.
    """
    cells = [_fitted(picture.rgb, width) for picture in pictures]
    height = max(cell.shape[1] for cell in cells)
    rows = math.ceil(len(cells) / columns)
    foot = _LABEL + _GAP if legend else 0
    sheet = np.empty(
        (3, rows * (height + _LABEL + _GAP) + _GAP + foot, columns * (width + _GAP) + _GAP),
        np.uint8,
    )
    sheet[:] = np.array(_PAPER, np.uint8)[:, None, None]
    for number, (picture, cell) in enumerate(zip(pictures, cells, strict=True)):
        row, column = divmod(number, columns)
        top = _GAP + row * (height + _LABEL + _GAP)
        left = _GAP + column * (width + _GAP)
        down, across = (height - cell.shape[1]) // 2, (width - cell.shape[2]) // 2
        _paste(sheet, cell, top + down, left + across)
        _write(sheet, picture.label.replace("_", " "), top + height + 6, left, width)
        room = width - _width(picture.label) - 12
        if picture.note and _width(picture.note) <= room:
            _write(
                sheet, picture.note, top + height + 6, left + width - _width(picture.note), width
            )
    if legend:
        _write_legend(sheet, legend, sheet.shape[1] - _LABEL - _GAP // 2)
    return encode_png(sheet)


def _write_legend(
    sheet: Array, legend: Sequence[tuple[str, tuple[int, int, int]]], top: int
) -> None:
    left = _GAP
    for word, colour in legend:
        sheet[:, top - 3 : top + 17, left : left + 20] = np.array(_INK, np.uint8)[:, None, None]
        sheet[:, top - 2 : top + 16, left + 1 : left + 19] = np.array(colour, np.uint8)[
            :, None, None
        ]
        _write(sheet, word, top, left + 28, sheet.shape[2] - left)
        left += 28 + _width(word) + 26


def _fitted(rgb: Array, limit: int) -> Array:
    """The picture, no wider and no higher than `limit`; shrunk by averaging whole blocks."""
    step = math.ceil(max(rgb.shape[1], rgb.shape[2]) / limit)
    if step == 1:
        return rgb
    height, width = (side // step * step for side in rgb.shape[1:])
    blocks = rgb[:, :height, :width].reshape(3, height // step, step, width // step, step)
    return np.asarray(np.round(blocks.mean(axis=(2, 4))), dtype=np.uint8)


def _paste(sheet: Array, cell: Array, top: int, left: int) -> None:
    sheet[:, top : top + cell.shape[1], left : left + cell.shape[2]] = cell


_SCALE = 2


def _width(text: str) -> int:
    return 6 * _SCALE * len(text)


def _write(sheet: Array, text: str, top: int, left: int, width: int) -> None:
    for place, letter in enumerate(text.upper()[: width // (6 * _SCALE)]):
        columns = np.frombuffer(bytes.fromhex(_GLYPHS.get(letter, "0000000000")), np.uint8)
        points = np.unpackbits(columns[None, :], axis=0, bitorder="little")[:7].astype(bool)
        ink = np.repeat(np.repeat(points, _SCALE, axis=0), _SCALE, axis=1)
        x = left + 6 * _SCALE * place
        area = sheet[:, top : top + ink.shape[0], x : x + ink.shape[1]]
        area[:, ink] = np.array(_INK, np.uint8)[:, None]
