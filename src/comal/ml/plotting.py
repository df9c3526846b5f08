"""Figures of samples: images and masks side by side."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from comal.errors import InvalidInputError, MissingExtraError, shown
from comal.ml.decoding import images_of
from comal.raster.pictures import coloured

try:
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
except ImportError as error:
    raise MissingExtraError.of("matplotlib", "plot", "a figure of samples") from error

_ACROSS, _SIZE = 3, 2.2
"""Samples in a row, and inches of an image."""
_FEW = 12
"""Most values of a band that is drawn as classes."""
_COLOURS = colormaps["tab20"](np.r_[0:20:2, 1:20:2])
"""Colours of classes by their values, strong ones first."""
_INK, _FAINT = "#222222", "#777777"


class Picture(Figure):  # type: ignore[misc,unused-ignore] # without matplotlib it is Any
    """A figure that notebooks show although pyplot does not know it."""

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as file:
            self.savefig(file, format="png", dpi=110)
            return file.getvalue()


def figure_of(
    samples: Sequence[Mapping[str, Any]],
    bands: Mapping[str, Sequence[int]],
    classes: Mapping[str, Mapping[int, str]],
) -> Any:
    """A figure of samples that `Dataset.masked` gave; see `Dataset.grid`."""
    panels = [dict(_panels(sample)) for sample in samples]
    wide = max(map(len, panels), default=0)
    if not wide:
        known = ", ".join(map(shown, samples[0])) if samples else "no samples"
        raise InvalidInputError("no images to draw", found=known, expected="fields with pixels")
    columns = min(_ACROSS, len(samples))
    rows = -(-len(samples) // columns)
    height, width = next(one for each in panels for one, _ in each.values()).shape[-2:]
    high = _SIZE * min(2.0, max(0.5, height / width)) + 0.55
    figure = Picture(figsize=(_SIZE * wide * columns, high * rows + 0.3), layout="constrained")
    parts = figure.subfigures(rows, columns, squeeze=False, wspace=0.04).ravel()
    used: dict[tuple[int, str], Any] = {}
    for part, sample, images in zip(parts, samples, panels, strict=False):
        title = str(sample.get("id", ""))
        part.suptitle(title, fontsize=9, color=_INK, weight="bold", parse_math=False)
        axes = part.subplots(1, wide, squeeze=False).ravel()
        for panel in axes:
            panel.set_axis_off()
        for panel, (title, (image, name)) in zip(axes, images.items(), strict=False):
            picture, values = _drawn(image, name, bands.get(name), named=name in classes)
            panel.imshow(picture, interpolation="nearest")
            panel.set_title(title, fontsize=7, color=_FAINT, pad=3, parse_math=False)
            labels = [(value, classes.get(name, {}).get(value, str(value))) for value in values]
            used |= {label: _COLOURS[label[0] % len(_COLOURS)] for label in labels}
    if used:
        patches = [Patch(color=colour, label=label) for (_, label), colour in sorted(used.items())]
        figure.legend(
            handles=patches, loc="outside lower center", ncols=9, frameon=False, fontsize=8
        )
    return figure


def _panels(sample: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Titles, images and names of fields of a sample; images of a series have numbers."""
    for name, images in images_of(sample):
        for number, image in enumerate(images):
            if image.ndim in (2, 3):
                yield name if len(images) == 1 else f"{name} {number}", (image, name)


def _drawn(
    image: Any, name: str, bands: Sequence[int] | None, *, named: bool
) -> tuple[Any, list[int]]:
    """A picture (y, x, colours), and the values that it shows if these are classes."""
    image = image.reshape(-1, *image.shape[-2:])
    chosen = list(bands or ((1, 2, 3) if len(image) >= 3 else (1,)))
    if len(chosen) not in (1, 3) or not all(0 < band <= len(image) for band in chosen):
        expected = f"1 or 3 bands of 1 to {len(image)}"
        raise InvalidInputError(f"no such bands of {shown(name)}", found=chosen, expected=expected)
    image = image[[band - 1 for band in chosen]]
    pixels, masks = image.data, ~np.ma.getmaskarray(image)
    if len(pixels) == 1 and pixels.dtype.kind in "biu":
        values = np.unique(pixels[0][masks[0]]).astype(int).tolist()
        if values and (named or len(values) <= _FEW):
            colours = _COLOURS[pixels[0] % len(_COLOURS)]
            return np.where(masks[0][..., None], colours, 1.0), values
    return np.moveaxis(coloured(pixels, list(masks)), 0, -1), []
