"""GeotiffStats: statistics of the pixels of a sample, band by band."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError
from comal.parallel import results
from comal.public import warn
from comal.taco.extensions.base import SampleExtension, declared, list_of, table_of

_THREADS = 4
_IN_FLIGHT = 64

Job = tuple[Any, Any, Any]


@dataclass
class GeotiffStats(SampleExtension):
    """Statistics per band of a raster that is a path or bytes.

    Continuous: min, max, mean, std, valid pixels in percent, p25, p50, p75, p95, as
    `comal.raster.band_stats` computes them. When the sample has ``scaling:scale_factor`` or
    ``scaling:scale_offset``, the statistics are those of the scaled values. Categorical: the share
    of each class among the pixels of all given classes.

    A band without valid pixels has nulls (and 0 percent); a raster without any is null.

    Parameters
    ----------
    categorical
        Shares of classes instead of statistics.
    class_values
        The classes, in the order of the shares; needed when `categorical`.
    executor
        Any `concurrent.futures.Executor` for many samples; a few threads when None.
    """

    categorical: bool = False
    class_values: Sequence[int] | None = None
    executor: Executor | None = field(default=None, repr=False, compare=False)
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.categorical and not self.class_values:
            raise InvalidInputError(
                "categorical statistics need class_values", expected="a list of class numbers"
            )

    def get_schema(self) -> pa.Schema:
        """The column ``geotiff:stats``, a list of floats per band."""
        text = (
            f"Per band: share of the classes {list(self.class_values or [])}"
            if self.categorical
            else "Per band: min, max, mean, std, valid percent, p25, p50, p75, p95"
        )
        return declared(("geotiff:stats", list_of(list_of(pa.float32())), text))

    def compute_table(self, table: pa.Table) -> pa.Table:
        """Statistics of the rasters in the column ``path``, in parallel.

        Raises
        ------
        InvalidInputError
            There is no such column, or a sample has no data of its own.
        ComalError
            A raster cannot be read; the message names it.
        """
        if "path" not in table.column_names:
            raise InvalidInputError(
                "GeotiffStats needs the data of the samples",
                found=", ".join(table.column_names),
                expected="a column 'path' of files or bytes",
            )
        stats = partial(_stats, classes=self._classes())
        if table.num_rows == 1 and self.executor is None:
            rows = list(map(stats, _jobs(table)))
        else:
            rows = list(results(self.executor or _THREADS, stats, _jobs(table), _IN_FLIGHT))
        return pa.table({"geotiff:stats": rows}, schema=self.get_schema())

    def _compute(self, sample: Any) -> pa.Table:
        return self.compute_table(table_of(sample))

    def _classes(self) -> list[int] | None:
        return list(self.class_values or []) if self.categorical else None


def _jobs(table: pa.Table) -> Any:
    """Path, factor and offset of each row."""
    wanted = ("path", "scaling:scale_factor", "scaling:scale_offset")
    present = [name for name in wanted if name in table.column_names]
    for batch in table.select(present).to_batches(max_chunksize=1024):
        columns = [
            batch.column(name).to_pylist() if name in present else [None] * batch.num_rows
            for name in wanted
        ]
        yield from zip(*columns, strict=True)


def _stats(job: Job, classes: list[int] | None) -> list[list[float | None]] | None:
    from comal.raster.stats import band_stats, class_shares  # noqa: PLC0415 - loads GDAL

    path, factor, offset = job
    if path is None:
        raise InvalidInputError(
            "GeotiffStats of a sample without data of its own", expected="a file or bytes"
        )
    if classes is not None:
        found = class_shares(path, classes)
    else:
        found = band_stats(
            path,
            scale=1.0 if factor is None else factor,
            offset=0.0 if offset is None else offset,
        )
    # The fifth number of an empty band is 0 percent; all others are missing.
    if np.isnan(found[:, 0]).all():
        name = "bytes" if isinstance(path, bytes) else path
        warn(f"no valid pixels in {name}: geotiff:stats is null")
        return None
    return [[None if np.isnan(value) else float(value) for value in band] for band in found]
