"""Samples for training: from an archive to batches, without a copy of the data.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.ml.archives import ArchiveDataset as ArchiveDataset
    from comal.ml.archives import Dataset as Dataset
    from comal.ml.archives import dataset as dataset
    from comal.ml.batches import collate as collate
    from comal.ml.benching import Bench as Bench
    from comal.ml.benching import bench as bench
    from comal.ml.decoding import Field as Field
    from comal.ml.loader import Loader as Loader
    from comal.ml.loader import LoaderOptions as LoaderOptions
    from comal.ml.mirroring import mirror as mirror
    from comal.ml.order import Order as Order
    from comal.ml.order import Sampler as Sampler
    from comal.ml.order import SamplerOptions as SamplerOptions
    from comal.ml.rasterchips import ChipDataset as ChipDataset
    from comal.ml.rasterchips import ChipOptions as ChipOptions
    from comal.ml.rasterchips import TileDataset as TileDataset
    from comal.ml.rasterchips import chips as chips
    from comal.ml.statistics import FieldStatistics as FieldStatistics
    from comal.ml.statistics import Statistics as Statistics
    from comal.ml.statistics import StatisticsOptions as StatisticsOptions
    from comal.ml.torchgeo import as_geo as as_geo
    from comal.ml.torchgeo import as_nongeo as as_nongeo

__all__, __getattr__, __dir__ = exports(__name__)
