"""Windows of a Web Mercator grid from one or many rasters; the first that has a pixel gives it."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from comal.raster.describing import FileOrigin, RasterInfo, gdal_rules, open_origin
from comal.raster.gridding import Member
from comal.raster.opening import reading
from comal.raster.values import Array, occurring, valid_mask
from comal.raster.warping import MemberReader, OutBand, Patch, Window2D
from comal.storage.config import StorageConfig

_OPEN = 8
_AT_ONCE = 1 << 22


def values_of(info: RasterInfo, band: int) -> Array:
    """Values of a band, counted from 1; of types wider than 16 bits the least and the greatest."""
    found: Array = np.empty(0, info.bands[band - 1].dtype)
    rows = max(1, _AT_ONCE // info.width)
    file = info.origin if isinstance(info.origin, FileOrigin) else None
    with gdal_rules(file.config if file else None), reading(info.where), ExitStack() as stack:
        dataset = None
        if file is not None:
            dataset = stack.enter_context(open_origin(file, info.where))
        for top in range(0, info.height, rows):
            part = slice(top, min(top + rows, info.height))
            if dataset is None:
                pixels = info.origin.read((band,), part, slice(0, info.width))[0]
            else:
                pixels = dataset.read(band, window=((part.start, part.stop), (0, info.width)))
            values = occurring(pixels, valid_mask(pixels, info.nodata(band)))
            found = np.union1d(found, values)
    return found


@dataclass(frozen=True, slots=True)
class GridSource:
    """What is to be put on a grid, as plain data that another process can open."""

    members: tuple[Member, ...]
    """Rasters; earlier ones lie on top."""
    bands: tuple[OutBand, ...]
    pixel_zoom: int
    """The world is 2**pixel_zoom pixels wide."""
    method: str = "nearest"

    @property
    def config(self) -> StorageConfig | None:
        """Where GDAL may lead, which is the same for all of them."""
        origin = self.members[0].info.origin
        return origin.config if isinstance(origin, FileOrigin) else None


class GridReader:
    """Reads windows of a `GridSource`; for one thread.

    Few files are open at a time, whatever their number.
    """

    def __init__(self, source: GridSource) -> None:
        self.source = source
        self._boxes = np.array([member.box for member in source.members])
        self._open: OrderedDict[int, MemberReader] = OrderedDict()

    def read(self, window: Window2D) -> Patch | None:
        """The pixels of a window, None when no raster reaches it.

        Raises
        ------
        InvalidMetadataError, StorageError
            A raster cannot be read.
        """
        merged: Patch | None = None
        for index in self._touching(window):
            patch = self._reader(index).read(window)
            merged = patch if merged is None else self._merged(merged, patch)
            if self._complete(merged):
                break
        return merged

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()

    def _touching(self, window: Window2D) -> list[int]:
        side = 2.0**self.source.pixel_zoom
        # One pixel of slack: an edge may lie on a line only after it is snapped there.
        west, east = (window.x - 1) / side, (window.x + window.width + 1) / side
        north, south = (window.y - 1) / side, (window.y + window.height + 1) / side
        boxes = self._boxes
        touching = (
            (boxes[:, 0] < east)
            & (boxes[:, 2] > west)
            & (boxes[:, 1] < south)
            & (boxes[:, 3] > north)
        )
        return [int(index) for index in np.flatnonzero(touching)]

    def _reader(self, index: int) -> MemberReader:
        reader = self._open.pop(index, None)
        if reader is None:
            source = self.source
            if len(self._open) >= _OPEN:
                self._open.popitem(last=False)[1].close()
            reader = MemberReader(
                source.members[index],
                source.bands,
                source.pixel_zoom,
                source.method,
            )
        self._open[index] = reader
        return reader

    def _merged(self, top: Patch, below: Patch) -> Patch:
        bands = []
        for at, band in enumerate(self.source.bands):
            valid = valid_mask(top.bands[at], band.nodata, top.covered)
            if valid is None:
                bands.append(top.bands[at])
            elif band.nodata is None and top.covered is not None:
                # Without a nodata value whole pixels belong to one raster or the other.
                bands.append(np.where(top.covered, top.bands[at], below.bands[at]))
            else:
                bands.append(np.where(valid, top.bands[at], below.bands[at]))
        covered = None
        if top.covered is not None and below.covered is not None:
            covered = top.covered | below.covered
        return Patch(bands, covered)

    def _complete(self, patch: Patch) -> bool:
        return len(self.source.members) > 1 and all(
            valid_mask(pixels, band.nodata, patch.covered) is None
            for pixels, band in zip(patch.bands, self.source.bands, strict=True)
        )
