"""Times of the STAC columns: whole seconds since 1970, UTC (table of ``stac-tortilla``)."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import InvalidInputError, shown
from comal.geo import times
from comal.public import warn
from comal.tortilla import spec
from comal.tortilla.warning import TortillaWarning

_SECOND = 1_000_000


def seconds(values: Any, name: str) -> Any:
    """Times as an Arrow int64 array of seconds.

    Parameters
    ----------
    values
        Arrow column, NumPy array or sequence: **numbers are seconds**; datetimes and dates (naive
        ones are UTC), datetime64 and ISO 8601 texts. None, NaN and NaT are null.
    name
        The column, for messages.

    Raises
    ------
    InvalidInputError
        A value that is no time.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufM":
        values = pa.array(values, from_pandas=True)
    if isinstance(values, pa.Array):
        kind = values.type
        if pa.types.is_integer(kind) or pa.types.is_null(kind):
            return values.cast(pa.int64())
        if pa.types.is_floating(kind):
            whole = pc.if_else(pc.is_finite(values), pc.floor(values), pa.scalar(None, kind))
            return whole.cast(pa.int64())
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return _floored(times.timestamps(values, name))
        values = values.to_pylist()
    return _from_objects(values, name)


def _floored(stamps: Any) -> Any:
    micro = stamps.cast(pa.int64())
    whole = np.floor_divide(micro.fill_null(0).to_numpy(), _SECOND)
    return pa.array(whole, mask=micro.is_null().to_numpy(zero_copy_only=False))


def _from_objects(values: Sequence[Any], name: str) -> Any:
    found: list[int | None] = []
    naive = False
    for value in values:
        if value is None or (isinstance(value, float | np.floating) and not math.isfinite(value)):
            found.append(None)
        elif isinstance(value, bool):
            raise InvalidInputError("not a point in time", where=name, found=shown(value))
        elif isinstance(value, int | float | np.integer | np.floating):
            found.append(math.floor(value))
        elif isinstance(value, np.datetime64) and np.isnat(value):
            found.append(None)
        else:
            naive = naive or (isinstance(value, dt.datetime) and value.tzinfo is None)
            found.append(times.parse_instant(value, name) // _SECOND)
    if naive:
        warn(f"{name}: times without a zone are taken as UTC", TortillaWarning)
    return pa.array(found, pa.int64())


def check_times(table: Any, where: str) -> None:
    """Refuse a start after its end; warn of years and other units where seconds belong."""
    present = [name for name in (spec.TIME_START, spec.TIME_END) if name in table.column_names]
    for name in present:
        values = pc.cast(table[name], pa.float64(), safe=False).to_numpy()
        for odd, what in spec.odd_times(values):
            if odd.any():
                row = int(odd.argmax())
                warn(
                    f"{where}, row {row}: {name} is {table[name][row]}, which looks like {what}; "
                    "seconds since 1970 are expected",
                    TortillaWarning,
                )
    if len(present) < 2:
        return
    row = pc.index(pc.greater(table[spec.TIME_START], table[spec.TIME_END]), True).as_py()
    if row >= 0:
        raise InvalidInputError(
            "time_start is after time_end",
            where=f"{where}, row {row}",
            found=f"{table[spec.TIME_START][row]} > {table[spec.TIME_END][row]}",
        )
