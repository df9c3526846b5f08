"""Figures of samples: images and masks side by side."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from comal.errors import InvalidInputError, MissingExtraError, shown
from comal.ml.decoding import Masked, images_of
from comal.raster.pictures import coloured

try:
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
except ImportError as error:
    raise MissingExtraError.of("matplotlib", "plot", "a figure of samples") from error

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


@dataclass(frozen=True, slots=True)
class Drawing:
    """How fields are drawn; see `Dataset.grid`."""

    fields: Sequence[str] | None
    bands: Mapping[str, Sequence[int]]
    classes: Mapping[str, Mapping[int, str]]
    percentiles: tuple[float, float]
    used: dict[tuple[int, str], Any] = field(default_factory=dict)
    """Colours of the classes that were drawn, by value and name."""

    def panels(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """Names and `Masked` images of a sample; those of a series have numbers."""
        found = {}
        for name, images in images_of(sample):
            for number, image in enumerate(images):
                is_wanted = self.fields is None or name in self.fields
                if is_wanted and image.pixels.ndim in (2, 3):
                    found[name if len(images) == 1 else f"{name} {number}"] = image, name
        return found

    def draw(self, axes: Any, image: Masked, name: str) -> None:
        """Draw one image."""
        shape = (-1, *image.pixels.shape[-2:])
        pixels, masks = image.pixels.reshape(shape), image.masks().reshape(shape)
        chosen = list(self.bands.get(name, (1, 2, 3) if len(pixels) >= 3 else (1,)))
        if len(chosen) not in (1, 3) or not all(0 < band <= len(pixels) for band in chosen):
            raise InvalidInputError(
                f"no such bands of {shown(name)} to draw",
                found=chosen,
                expected=f"1 or 3 bands of 1 to {len(pixels)}",
            )
        places = [band - 1 for band in chosen]
        pixels, masks = pixels[places], masks[places]
        whole = len(places) == 1 and pixels.dtype.kind in "biu"
        values = [int(one) for one in np.unique(pixels[0][masks[0]])] if whole else []
        if values and (name in self.classes or len(values) <= _FEW):
            colours = _COLOURS[pixels[0] % len(_COLOURS)]
            picture = np.where(masks[0][..., None], colours, 1.0)
            for value in values:
                label = self.classes.get(name, {}).get(value, str(value))
                self.used[value, label] = _COLOURS[value % len(_COLOURS)]
        else:
            picture = np.moveaxis(coloured(pixels, list(masks), None, self.percentiles), 0, -1)
        axes.imshow(picture, interpolation="nearest")


def figure_of(
    samples: Sequence[Mapping[str, Any]], drawing: Drawing, across: int, size: float
) -> Any:
    """A figure of samples that `Dataset.masked` gave; see `Dataset.grid`."""
    if not size > 0:
        raise InvalidInputError("width of an image", found=size, expected="inches above 0")
    panels = [drawing.panels(sample) for sample in samples]
    wide = max(map(len, panels), default=0)
    if not wide:
        known = ", ".join(map(shown, samples[0])) if samples else "no samples"
        raise InvalidInputError("no images to draw", found=known, expected="fields with pixels")
    columns = max(1, min(across, len(samples)))
    rows = -(-len(samples) // columns)
    height, width = next(one for each in panels for one, _ in each.values()).pixels.shape[-2:]
    high = size * min(2.0, max(0.5, height / width)) + 0.55
    figure = Picture(figsize=(size * wide * columns, high * rows + 0.3), layout="constrained")
    parts = figure.subfigures(rows, columns, squeeze=False, wspace=0.04).ravel()
    for part, sample, images in zip(parts, samples, panels, strict=False):
        title = str(sample.get("id", ""))
        part.suptitle(title, fontsize=9, color=_INK, weight="bold", parse_math=False)
        axes = part.subplots(1, wide, squeeze=False).ravel()
        for panel in axes:
            panel.set_axis_off()
        for panel, (title, (image, name)) in zip(axes, images.items(), strict=False):
            drawing.draw(panel, image, name)
            panel.set_title(title, fontsize=7, color=_FAINT, pad=3, parse_math=False)
    if drawing.used:
        every = sorted(drawing.used.items())
        patches = [Patch(color=colour, label=label) for (_, label), colour in every]
        figure.legend(
            handles=patches, loc="outside lower center", ncols=9, frameon=False, fontsize=8
        )
    return figure
